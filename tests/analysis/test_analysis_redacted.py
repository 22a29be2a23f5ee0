"""Secrets in bytes that are not decoded, or misread: in trees, JSON, and browsed bytes."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any

import pytest

from analysis.browse.message_pane import MessageContent
from analysis.display.exchange_json import as_json
from analysis.display.exchange_tree import tree
from dissector.capture import open_capture
from dissector.exchanges.exchange import Exchange
from dissector.protocol import registry
from tests.analysis.made_rows import made_exchange as made
from tests.captures.recorded import CAPTURES
from tests.kafka_bytes import envelope, request, text

SECRET = b"hunter2-and-more-of-it"
TAGGED = b"\1\x4d" + bytes([len(SECRET)]) + SECRET
"""A tagged section with a field of a later release."""
CONFIG = text("ssl.key.password") + b"\0" + text(SECRET)

SASL_AUTHENTICATE = {"api_key": 36, "api": "SaslAuthenticate", "api_version": 2}
ALTER_CONFIGS = {"api_key": 44, "api": "IncrementalAlterConfigs", "api_version": 0}
ENVELOPE = {"api_key": 58, "api": "Envelope", "api_version": 0}


def lines(row: Exchange) -> list[str]:
    return [line.plain for line in tree(row)]


def leaks(row: Exchange, secret: bytes = SECRET) -> bool:
    content = MessageContent.of(row, secrets=False)
    details = [line.plain for n in range(len(content.lines)) for line in content.details(n, 4096)]
    printed = "\n".join((*lines(row), json.dumps(as_json(row)), *details))
    return any(form in printed for form in (secret.decode(), secret.hex(), secret.hex(" ")))


@pytest.mark.parametrize("mechanism", [None, "GSSAPI"])
def test_an_unknown_tagged_field_of_an_api_with_secrets(mechanism: str | None) -> None:
    """Also beside a token of GSSAPI, of which no field is a secret."""
    frame = request(36, 2, b"\0\2t" + TAGGED)
    assert not leaks(made(**SASL_AUTHENTICATE, request_frame=frame, sasl_mechanism=mechanism))


def test_an_unknown_tagged_field_of_an_api_without_secrets_is_shown() -> None:
    frame = request(3, 9, b"\0\1\1\0\0" + TAGGED)
    assert leaks(made(api_key=3, api="Metadata", api_version=9, request_frame=frame))


def test_an_unknown_tagged_field_of_a_forwarded_request() -> None:
    inside = request(39, 2, b"\0\2h" + bytes(8) + TAGGED)
    assert not leaks(made(**ENVELOPE, request_frame=envelope(inside)))


@pytest.mark.parametrize("columns", [ALTER_CONFIGS, ENVELOPE], ids=["sent", "forwarded"])
def test_a_message_that_contradicts_its_definition(columns: dict[str, Any]) -> None:
    """Its fields are misaligned: the password is where the name of a resource is expected."""
    wrong = struct.pack(">ib", 2, 4) + text("") + bytes(4) + b"\4" + text(SECRET) + b"\0\0"
    frame = request(44, 0, wrong)
    row = made(**columns, request_frame=envelope(frame) if columns is ENVELOPE else frame)
    assert not leaks(row)
    shown = lines(row)
    assert any("! " in line for line in shown)
    assert any("header.client_id" in line and '"app"' in line for line in shown)


TOKEN = request(36, 1, text(b"\0alice\0" + SECRET, ">i"))


@pytest.mark.parametrize("api_key", registry.apis())
def test_a_token_with_a_damaged_api_key(api_key: int) -> None:
    """The bytes are read as another API, with an error or many surplus bytes."""
    for version in registry.versions(api_key):
        if api_key == 13 and version < 3:
            continue  # LeaveGroup with an empty group: two strings are the same bytes
        frame = struct.pack(">hh", api_key, version) + TOKEN[4:]
        name = registry.api_name(api_key)
        row = made(api_key=api_key, api=name, api_version=version, request_frame=frame)
        assert not leaks(row)
        assert any("[redacted]" in line for line in lines(row))


def test_a_token_with_an_api_key_that_no_api_has() -> None:
    """A hash of the token would allow trying passwords."""
    frame = struct.pack(">hh", 100, 1) + TOKEN[4:]
    shown = lines(made(api_key=100, api=None, api_version=1, request_frame=frame))
    size = len(frame) - 8  # the header of a request ends behind the correlation id
    assert any(line.endswith(f"  {size} bytes [redacted]") for line in shown)


def test_a_response_to_a_request_with_a_damaged_api_key() -> None:
    """A broker's part of SCRAM, read as a response to Heartbeat."""
    frame = struct.pack(">ihh", 7, 0, -1) + text(SECRET, ">i") + bytes(8)
    row = made(api_key=12, api="Heartbeat", api_version=1, response_frame=frame)
    assert not leaks(row)


@pytest.mark.parametrize("columns", [ALTER_CONFIGS, ENVELOPE], ids=["sent", "forwarded"])
def test_a_client_id_that_damage_extended_over_the_body(columns: dict[str, Any]) -> None:
    """The length of the client id covers the body, up to the password."""
    body = struct.pack(">ib", 1, 2) + text("topic") + bytes(3) + b"\1" + CONFIG + bytes(9)
    frame = request(44, 0, body)
    size = struct.pack(">h", 3 + len(body) - 9)
    frame = frame[:8] + size + frame[10:]
    row = made(**columns, request_frame=envelope(frame) if columns is ENVELOPE else frame)
    assert not leaks(row)
    assert any("[redacted]" in line for line in lines(row))


def test_a_token_in_the_frame_of_a_handshake() -> None:
    """The size of the frame is damaged: the token that follows is in it."""
    frame = request(17, 0, text("PLAIN") + struct.pack(">i", 30) + b"\0alice\0" + SECRET)
    assert not leaks(made(api_key=17, api="SaslHandshake", api_version=0, request_frame=frame))


def test_a_misaligned_message_that_the_snap_length_cut() -> None:
    """It announces more elements than the message has bytes."""
    wrong = (
        struct.pack(">ib", 2, 4) + text("") + bytes(4) + b"\4" + text(SECRET) + b"\x7f\xff\xff\xff"
    )
    frame = request(44, 0, wrong)
    row = made(**ALTER_CONFIGS, request_frame=frame, request_bytes=len(frame) + 4 + 100)
    assert not leaks(row)
    assert any("! " in line for line in lines(row))


def test_a_message_that_the_snap_length_cut_is_not_misaligned() -> None:
    body = struct.pack(">ib", 1, 4) + text("1") + struct.pack(">i", 1) + CONFIG + b"\0"
    frame = request(44, 0, body)
    row = made(**ALTER_CONFIGS, request_frame=frame[:-8], request_bytes=len(frame) + 4)
    assert not leaks(row)
    assert any('"ssl.key.password"' in line for line in lines(row))


FETCH = (
    {"api_key": 1, "api": "Fetch", "api_version": 11},
    struct.pack(">iihii", 7, 0, 0, 0, 1),
    struct.pack(">iihqqqii", 1, 0, 0, 5, 5, 0, -1, -1),
    ">i",
    b"",
)
SNAPSHOT = (
    {"api_key": 59, "api": "FetchSnapshot", "api_version": 0},
    struct.pack(">ixihB", 7, 0, 0, 2),
    struct.pack(">Bihqixqq", 2, 0, 0, 5, 1, 99, 40),
    "B",
    bytes(3),
)


@pytest.mark.parametrize(
    ("columns", "head", "partition", "size", "end"), [FETCH, SNAPSHOT], ids=["fetch", "snapshot"]
)
def test_bytes_of_kraft_metadata_that_are_not_decoded(
    columns: dict[str, Any], head: bytes, partition: bytes, size: str, end: bytes
) -> None:
    """A batch that the broker cut, and a piece of a snapshot, which may start inside a batch."""
    records = struct.pack(">qi", 7, 500) + SECRET
    is_compact = size == "B"
    name = b"__cluster_metadata"
    topic = bytes([len(name) + 1]) + name if is_compact else text(name)
    field = struct.pack(size, len(records) + is_compact) + records
    frame = head + topic + partition + field + end
    row = made(**columns, response_frame=frame)
    assert row.explain("response").error is None
    assert not leaks(row)
    other = frame.replace(name, b"_my-own-topic-here")
    assert leaks(made(**columns, response_frame=other)) == (not is_compact)


def test_kraft_metadata_without_its_name() -> None:
    """A byte of the name, or of the topic id, is damaged. Kafka's own records and snapshot."""
    password, topic_id = b"plugin-secret", bytes(15) + b"\1"
    capture = open_capture(CAPTURES / "kafka-3-logins.pcap.zst")
    apis = set()
    for row in capture.exchanges(api=["Fetch", "FetchSnapshot"]):
        frame = row.response_frame or b""
        damaged = frame.replace(b"__cluster_meta", b"__cluster_mata").replace(
            topic_id, b"\x80" + topic_id[1:]
        )
        if damaged == frame or password not in frame:
            continue
        apis.add(row.api)
        assert not leaks(replace(row, response_frame=damaged), password)
        cut = damaged[: damaged.index(password) + len(password)]
        assert not leaks(replace(row, response_frame=cut), password)
    assert apis == {"Fetch", "FetchSnapshot"}
