"""Data that OpenSSL sent, decrypted with its key log, however it is divided."""

import pickle
import random
import re
import ssl

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed")

from dissector.tls import KeyLog
from dissector.tls.keylog import may_be_key_log
from dissector.tls.record_layer import RecordReader
from dissector.tls.session import TlsSession
from dissector.tls.suites import NAMES
from tests.dissector.tls.decrypting import (
    MESSAGES,
    assert_all_decrypted,
    decrypted,
    feed,
    needs_openssl,
    no_texts,
    placed,
    take,
)
from tests.dissector.tls.tls_made import (
    CLIENT,
    NO_ENCRYPT_THEN_MAC,
    SERVER,
    by_command_line,
    contexts,
    talk,
)

SUITES = """
    ECDHE-RSA-AES128-GCM-SHA256 ECDHE-RSA-AES256-GCM-SHA384 ECDHE-RSA-CHACHA20-POLY1305
    ECDHE-RSA-AES128-SHA ECDHE-RSA-AES256-SHA ECDHE-RSA-AES128-SHA256 ECDHE-RSA-AES256-SHA384
    AES128-GCM-SHA256 AES256-GCM-SHA384 AES128-SHA AES256-SHA AES128-SHA256 AES256-SHA256
    AES128-CCM AES256-CCM AES128-CCM8 AES256-CCM8
    ECDHE-ECDSA-AES128-GCM-SHA256 ECDHE-ECDSA-AES256-GCM-SHA384 ECDHE-ECDSA-CHACHA20-POLY1305
    ECDHE-ECDSA-AES128-SHA ECDHE-ECDSA-AES256-SHA384 ECDHE-ECDSA-AES128-CCM
    ECDHE-ECDSA-AES256-CCM8
"""


@pytest.mark.parametrize("cipher", SUITES.split())
def test_each_cipher_of_tls_1_2(folder, cipher):
    kind = "EC" if "ECDSA" in cipher else "RSA"
    made = talk(folder, contexts(folder, "TLSv1_2", cipher, kind), MESSAGES)
    session = assert_all_decrypted(made)
    facts = session.facts
    assert (facts.version, facts.sni, facts.alpn) == ("1.2", "broker.test", "kafka")
    assert facts.cipher in NAMES.values()
    assert session.client == CLIENT


@pytest.mark.parametrize("cipher", ["ECDHE-RSA-AES128-SHA256", "ECDHE-RSA-AES256-SHA384"])
def test_cbc_that_is_authenticated_before_it_is_encrypted(folder, cipher):
    both = contexts(folder, "TLSv1_2", cipher)
    both[0].options |= NO_ENCRYPT_THEN_MAC
    assert_all_decrypted(talk(folder, both, MESSAGES))


def test_tls_1_3(folder):
    session = assert_all_decrypted(talk(folder, contexts(folder, "TLSv1_3"), MESSAGES))
    facts = session.facts
    assert (facts.version, facts.cipher) == ("1.3", "TLS_AES_256_GCM_SHA384")
    assert (facts.sni, facts.alpn) == ("broker.test", "kafka")


@pytest.mark.slow
@needs_openssl
@pytest.mark.parametrize(
    "cipher", [NAMES[number] for number in (0x1301, 0x1302, 0x1303, 0x1304, 0x1305)]
)
def test_each_cipher_of_tls_1_3_over_changes_of_keys(folder, cipher):
    arguments = ["-tls1_3", "-ciphersuites", cipher]
    # K asks the other end to change its key, too; k does not.
    lines = ["one", "K", "two", "k", "three", "K", "K", "four"]
    made = by_command_line(folder, arguments, arguments, lines)
    session, texts = decrypted(placed(made.wire), KeyLog(made.keys))
    assert texts == [[b"one\ntwo\nthree\nfour\n"], [b"eno\nowt\neerht\nruof\n"]]
    assert (session.problems, session.facts.cipher) == ([], cipher)


@pytest.mark.slow
@needs_openssl
def test_renegotiation_is_a_problem_and_earlier_data_is_read(folder):
    arguments = ["-tls1_2"]
    made = by_command_line(
        folder, [*arguments, "-client_renegotiation"], arguments, ["one", "R", "two"]
    )
    session, texts = decrypted(placed(made.wire), KeyLog(made.keys))
    assert texts == [[b"one\n"], [b"eno\n"]]
    assert [trouble.kind for trouble in session.problems] == ["tls_renegotiation"]


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_resumption(folder, version):
    both = contexts(folder, version)
    first = talk(folder, both, MESSAGES[:4])
    second = talk(folder, both, MESSAGES[:4], session=first.session)
    assert sum(len(data) for _, data in second.wire) < sum(len(data) for _, data in first.wire)
    assert_all_decrypted(second)


def test_secrets_by_session_id(folder):
    """The form in which extract-tls-secrets 4.0.0 logs TLS 1.2 in a broker."""
    both = contexts(folder, "TLSv1_2")
    both[1].options |= ssl.OP_NO_TICKET
    made = talk(folder, both, MESSAGES[:4])
    assert made.session is not None
    session_id, secret = made.session.id.hex().upper(), made.keys.split()[-1].decode().upper()
    made.keys = f"RSA Session-ID:{session_id} Master-Key:{secret}\n".encode()
    assert may_be_key_log(made.keys)
    assert_all_decrypted(made)


def test_hello_retry_request(folder):
    both = contexts(folder, "TLSv1_3")
    both[1].set_ecdh_curve("secp384r1")
    made = talk(folder, both, MESSAGES)
    retry = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
    assert any(retry in data for _, data in made.wire)
    assert_all_decrypted(made)


@pytest.mark.parametrize("size", [1, 7, 1448])
def test_records_in_any_pieces(made, size):
    assert_all_decrypted(made, size)


def test_ends_that_come_one_after_the_other(made):
    parts = placed(made.wire)
    for first in (CLIENT, SERVER):
        ordered = sorted(parts, key=lambda part: part[0] != first)
        _, texts = decrypted(ordered, KeyLog(made.keys))
        assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]


def test_keys_that_are_logged_late(made):
    keys = KeyLog(grows=True)
    session, texts, parts = TlsSession(keys), no_texts(), placed(made.wire)
    feed(session, parts[: len(parts) // 2], texts)
    assert texts == no_texts()
    for line in made.keys.splitlines():
        keys.add(line)
    feed(session, parts[len(parts) // 2 :], texts)
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_session_that_moved_finds_secrets_that_come_later(folder, version):
    """As in a pcapng file whose secrets are in a later run than the handshake."""
    made = talk(folder, contexts(folder, version), MESSAGES)
    session, texts = TlsSession(KeyLog(grows=True)), no_texts()
    feed(session, placed(made.wire), texts)
    session = pickle.loads(pickle.dumps(session))
    session.keys = KeyLog(made.keys)
    take(session.read(last=True), texts)
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]


@pytest.mark.parametrize(
    ("version", "cipher"),
    [
        ("TLSv1_3", ""),
        ("TLSv1_2", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLSv1_2", "AES128-CCM8"),
        ("TLSv1_2", "ECDHE-RSA-AES128-SHA256"),
    ],
)
def test_a_session_can_be_pickled_at_any_time(folder, version, cipher):
    made = talk(folder, contexts(folder, version, cipher), MESSAGES[:4])
    keys, other = KeyLog(made.keys), b"\xab" * 48
    keys.add(b"CLIENT_RANDOM " + b"00" * 32 + b" " + other.hex().encode())
    session, texts = TlsSession(keys), no_texts()
    for part in placed(made.wire, 200):
        feed(session, [part], texts)
        pickled = pickle.dumps(session)
        assert other not in pickled, "the secrets of other sessions are not passed on"
        session = pickle.loads(pickled)
        session.keys = keys
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]


def test_a_damaged_certificate_is_not_needed(folder):
    made = talk(folder, contexts(folder, "TLSv1_2"), MESSAGES[:4])
    at, (end, data) = next(each for each in enumerate(made.wire) if each[1][0] == SERVER)
    record = re.search(rb"\x16\x03\x03..\x0b", data, re.DOTALL)  # it begins with the message
    assert record is not None
    made.wire[at] = end, data[: record.end()] + b"\xff" + data[record.end() + 1 :]
    assert_all_decrypted(made)


def test_traffic_secrets_that_are_logged_after_those_of_the_handshake(folder):
    made = talk(folder, contexts(folder, "TLSv1_3"), MESSAGES[:4])
    early, late = KeyLog(), made.keys.splitlines(keepends=True)
    for line in late:
        if b"HANDSHAKE" in line:
            early.add(line)
    session, texts = TlsSession(early), no_texts()
    feed(session, placed(made.wire), texts)
    early.add(b"".join(late))
    take(session.read(last=True), texts)
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]
    assert session.problems == []


def test_random_bytes_raise_nothing():
    rng = random.Random(6)
    for _ in range(300):
        session = TlsSession(KeyLog(grows=True))
        at = [0, 0]
        for _ in range(rng.randrange(1, 20)):
            end, data = rng.randrange(2), rng.randbytes(rng.randrange(200))
            if rng.random() < 0.6:
                data = bytes([rng.choice([20, 21, 22, 23]), 3, 3, 0, len(data)]) + data
            session.feed(end, at[end], data, (0, 0, 0))
            at[end] += len(data) + rng.choice([0, 0, 0, 5])
            assert session.read() == []
        session.read(last=True)


def test_a_record_knows_when_its_last_byte_came():
    reader = RecordReader()
    reader.feed(0, b"\x17\x03\x03\x00", (1, 0, 1))
    assert reader.peek() is None
    reader.feed(4, b"\x02a", (2, 0, 2))
    reader.feed(6, b"b\x17\x03", (3, 0, 3))
    record = reader.peek()
    assert record is not None
    assert (record.body, record.at, record.arrival) == (b"ab", 0, (3, 0, 3))
