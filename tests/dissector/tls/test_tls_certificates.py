"""Names in certificates that the package cryptography made."""

from __future__ import annotations

import contextlib
import datetime
import random
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.errors import DecodeError
from dissector.tls import KeyLog
from dissector.tls.certificates import subject
from dissector.tls.session import TlsSession
from tests.dissector.tls.tls_made import CLIENT, contexts, talk

KEY = ec.generate_private_key(ec.SECP256R1())
KINDS = (
    x509.NameOID.COMMON_NAME, x509.NameOID.ORGANIZATION_NAME, x509.NameOID.LOCALITY_NAME,
    x509.NameOID.ORGANIZATIONAL_UNIT_NAME, x509.NameOID.DOMAIN_COMPONENT,
    x509.NameOID.STATE_OR_PROVINCE_NAME, x509.NameOID.USER_ID, x509.NameOID.EMAIL_ADDRESS,
)  # fmt: skip


def message(name: x509.Name) -> bytes:
    """A Certificate message of TLS 1.2 with one certificate, which names that subject."""
    begin = datetime.datetime(2020, 1, 1)
    builder = x509.CertificateBuilder(name, name, KEY.public_key(), 1)
    builder = builder.not_valid_before(begin)
    builder = builder.not_valid_after(begin + datetime.timedelta(days=1))
    made = builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)
    sized = len(made).to_bytes(3, "big") + made
    return len(sized).to_bytes(3, "big") + sized


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=16)
names = st.lists(st.tuples(st.sampled_from(KINDS), texts), min_size=1, max_size=5)


@settings(max_examples=60)
@given(names)
def test_subjects_are_as_cryptography_writes_them(parts):
    name = x509.Name([x509.NameAttribute(kind, text) for kind, text in parts])
    assert subject(message(name)) == name.rfc4514_string()


def test_several_attributes_in_one_name_and_a_country():
    several = x509.RelativeDistinguishedName(
        [x509.NameAttribute(KINDS[0], "broker"), x509.NameAttribute(KINDS[6], "1")]
    )
    name = x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(x509.NameOID.COUNTRY_NAME, "DE")]),
            several,
        ]
    )
    assert subject(message(name)) == name.rfc4514_string()


def test_damaged_certificates_are_errors_or_text():
    whole = message(x509.Name([x509.NameAttribute(KINDS[0], "broker")]))
    chance = random.Random(3)
    for size in range(150):
        with pytest.raises(DecodeError):
            subject(whole[:size])
    for _ in range(2000):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] = chance.randrange(256)
        with contextlib.suppress(DecodeError):
            assert isinstance(subject(bytes(damaged)), str)


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("keyed", [True, False])
def test_the_server_is_named_where_its_certificate_is_in_the_clear(tmp_path: Path, version, keyed):
    made = talk(tmp_path, contexts(tmp_path, version), [(CLIENT, b"hello")])
    session = TlsSession(KeyLog(made.keys if keyed else b""))
    at = [0, 0]
    for end, data in made.wire:
        session.feed(end, at[end], data, (0, 0, 0))
        at[end] += len(data)
    decrypted = session.read(last=True)
    assert session.facts.subject == ("CN=broker" if version == "TLSv1_2" else None)
    assert session.is_over
    assert [plain.data for plain in decrypted] == ([b"hello"] if keyed else [])
