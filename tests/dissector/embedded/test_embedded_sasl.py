"""SASL tokens: examples of the RFCs, Kafka's extensions, and bytes that are not a token."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.embedded import MessageContext, explain_token
from dissector.embedded.contents import NOWHERE
from dissector.protocol.explain import Explained
from dissector.secrets import hidden


def fields(data: bytes, mechanism: str | None = None) -> list[Explained]:
    return explain_token(data, MessageContext(mechanism)).events


def shown(data: bytes, mechanism: str | None = None) -> list[tuple[str, str]]:
    """Name and value of each line, secrets hidden."""
    events = fields(data, mechanism)
    secret = hidden(events)
    return [
        (event.name, "[redacted]" if event.path in secret else str(event.value)) for event in events
    ]


# RFC 4616, section 4
PLAIN = b"Ursel\0Kurt\0xipj3plmq"
# RFC 5802, section 5
CLIENT_FIRST = b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
SERVER_FIRST = b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
CLIENT_FINAL = b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
SERVER_FINAL = b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="
# RFC 7628, section 4.1 and 4.3
BEARER = (
    b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01"
    b"auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
)
REFUSED = b'{"status":"invalid_token","scope":"example_scope"}'
STEPS = {
    "PLAIN": (PLAIN,),
    "SCRAM-SHA-256": (CLIENT_FIRST, SERVER_FIRST, CLIENT_FINAL, SERVER_FINAL),
    "OAUTHBEARER": (BEARER, REFUSED),
}


def test_plain() -> None:
    assert shown(PLAIN, "PLAIN") == [
        ("token", "PLAIN message"), ("authzid", "Ursel"), ("user", "Kurt"),
        ("password", "[redacted]"),
    ]  # fmt: skip


@pytest.mark.parametrize("data", [b"part\0\0of a password", b"\0part of\0"])
@pytest.mark.parametrize("mechanism", ["PLAIN", None])
def test_parts_of_other_bytes_are_not_a_user(data: bytes, mechanism: str | None) -> None:
    """RFC 4616: user and password have at least one character."""
    assert shown(data, mechanism) == [("token", "[redacted]")]


def test_scram() -> None:
    name = "SCRAM-SHA-256"
    assert shown(CLIENT_FIRST, name) == [
        ("token", f"{name} client-first"), ("user", "user"), ("nonce", "[redacted]"),
    ]  # fmt: skip
    assert shown(SERVER_FIRST, name) == [
        ("token", f"{name} server-first"), ("nonce", "[redacted]"), ("salt", "[redacted]"),
        ("iterations", "4096"),
    ]  # fmt: skip
    assert shown(CLIENT_FINAL, name) == [
        ("token", f"{name} client-final"), ("channel_binding", "[redacted]"),
        ("nonce", "[redacted]"), ("proof", "[redacted]"),
    ]  # fmt: skip
    assert shown(SERVER_FINAL, name) == [
        ("token", f"{name} server-final"), ("server_signature", "[redacted]"),
    ]  # fmt: skip
    assert shown(b"e=invalid-proof", name) == [
        ("token", f"{name} server-final"), ("error", "invalid-proof"),
    ]  # fmt: skip


def test_scram_by_delegation_token_and_for_another() -> None:
    assert shown(b"n,a=bob,n=juoZmzuVTWKVX7eVihRt9Q,r=b8,tokenauth=true", "SCRAM-SHA-512") == [
        ("token", "SCRAM-SHA-512 client-first"), ("authzid", "bob"),
        ("user", "juoZmzuVTWKVX7eVihRt9Q"), ("nonce", "[redacted]"), ("tokenauth", "true"),
    ]  # fmt: skip


def test_scram_names_are_unescaped() -> None:
    assert ("user", "a,b=c") in shown(b"n,,n=a=2Cb=3Dc,r=x", "SCRAM-SHA-256")


def test_bearer() -> None:
    assert shown(BEARER, "OAUTHBEARER") == [
        ("token", "OAUTHBEARER message"), ("authzid", "user@example.com"), ("host", "[redacted]"),
        ("port", "[redacted]"), ("auth", "[redacted]"),
    ]  # fmt: skip
    assert shown(REFUSED, "OAUTHBEARER") == [
        ("token", "OAUTHBEARER error"), ("status", "invalid_token"), ("scope", "example_scope"),
    ]  # fmt: skip
    assert shown(b"\x01", "OAUTHBEARER") == [("token", "OAUTHBEARER end")]


def jwt(payload: bytes) -> bytes:
    parts = (b'{"alg":"none"}', payload, b"signature")
    return b".".join(urlsafe_b64encode(part).rstrip(b"=") for part in parts)


def test_of_a_json_web_token_the_names_of_its_claims() -> None:
    token = jwt(json.dumps({"sub": "alice", "iat": 1, "exp": 2}).encode())
    token_fields = shown(b"n,,\x01auth=Bearer " + token + b"\x01\x01", "OAUTHBEARER")
    assert token_fields[1:] == [("auth", "[redacted]"), ("claims", "sub, iat, exp")]


@pytest.mark.parametrize("payload", [b"no json", b"[1]", b"\xff\xfe", b"[" * 100_000, b""])
def test_tokens_other_than_json_web_tokens(payload: bytes) -> None:
    token_fields = shown(b"n,,\x01auth=Bearer " + jwt(payload) + b"\x01\x01", "OAUTHBEARER")
    assert [name for name, _ in token_fields] == ["token", "auth"]


def test_gssapi_has_the_size_of_the_token() -> None:
    assert shown(b"\x60\x82\x02\x0a" + bytes(500), "GSSAPI") == [
        ("token", "GSSAPI token, 504 bytes")
    ]


@pytest.mark.parametrize("mechanism", STEPS)
def test_without_a_handshake_the_form_decides(mechanism: str) -> None:
    for step in STEPS[mechanism]:
        named, unnamed = shown(step, mechanism), shown(step)
        assert unnamed[1:] == named[1:]
        assert unnamed[0][1] == named[0][1].replace("SCRAM-SHA-256", "SCRAM")


@pytest.mark.parametrize(
    ("data", "mechanism"),
    [
        (b"\x60\x28\0\x06abc\0\x01\xff", None),  # two zeros are not PLAIN yet
        (b"\x05\x04\0\x02\0abc", None),
        (b'{"version":"2020_10_22","user-agent":"x"}', None),
        (b"what", None),
        (b"a=b", "SCRAM-SHA-256"),
        (b"alice secret", "PLAIN"),
        (PLAIN, "AWS_MSK_IAM"),
    ],
)
def test_tokens_of_unknown_mechanisms_are_hidden_whole(data: bytes, mechanism: str | None) -> None:
    assert shown(data, mechanism) == [("token", "[redacted]")]


def test_every_attribute_is_at_its_offset() -> None:
    for step in (PLAIN, CLIENT_FIRST, SERVER_FIRST, CLIENT_FINAL, SERVER_FINAL, BEARER):
        _, *events = fields(step)
        for event in events:
            here = step[event.offset : event.offset + event.length]
            assert event.offset != NOWHERE
            assert here.decode() == event.value


def test_an_empty_token_is_not_a_secret() -> None:
    assert shown(b"", "PLAIN") == [("token", "b''")]


@given(st.binary(max_size=80), st.sampled_from([None, *STEPS, "GSSAPI", "OTHER"]))
def test_any_bytes(data: bytes, mechanism: str | None) -> None:
    shown(data, mechanism)


@given(st.text('abc=,\0\x01nrspvi{}": ', max_size=40), st.sampled_from([None, *STEPS]))
def test_any_text(text: str, mechanism: str | None) -> None:
    shown(text.encode(), mechanism)
