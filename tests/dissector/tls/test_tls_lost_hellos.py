"""Sessions whose ClientHello or ServerHello is lost, in whole or in part."""

import ssl

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed")

from dissector.tls import KeyLog, keylog
from dissector.tls.record_layer import HEADER
from dissector.tls.session import TlsSession
from tests.dissector.tls.decrypting import (
    MESSAGES,
    decrypted,
    feed,
    needs_openssl,
    no_texts,
    of_end,
    other_sessions,
    placed,
    take,
)
from tests.dissector.tls.tls_made import CLIENT, SERVER, Dialogue, by_command_line, contexts, talk


def test_a_capture_of_one_end_is_read(made):
    """Except for the client's in TLS 1.2, whose keys need the server's random."""
    for end in (CLIENT, SERVER):
        session, texts = decrypted(of_end(made, end), KeyLog(other_sessions(5) + made.keys))
        if end == CLIENT and session.facts.version != "1.3":
            (trouble,) = session.problems
            assert trouble.kind == "tls_no_handshake"
            assert trouble.detail == "not decrypted: its ServerHello is not in the capture"
        else:
            assert texts[end] == [made.plain[end]]
            assert session.problems == []


@pytest.mark.parametrize("cipher", ["ECDHE-RSA-AES128-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"])
def test_encrypted_bytes_of_the_server_are_not_a_client_hello(folder, cipher):
    """Its Finished begins with random bytes, here with the type of a ClientHello."""
    made = talk(folder, contexts(folder, "TLSv1_2", cipher), MESSAGES[:2])
    wire = bytearray(b"".join(data for _, _, data in of_end(made, SERVER)))
    change = wire.index(b"\x14\x03\x03\x00\x01\x01")  # ChangeCipherSpec, before Finished
    wire[change + 6 + HEADER] = 1
    session, _ = decrypted([(SERVER, 0, bytes(wire))], KeyLog(made.keys))
    assert session.client == CLIENT


def test_the_problem_names_the_client_hello_of_a_session_that_is_not_in_the_key_log(made):
    for parts in (of_end(made, SERVER), placed(made.wire)[1:]):
        (trouble,) = decrypted(parts, KeyLog(other_sessions(5)))[0].problems
        assert trouble.kind == "tls_no_handshake"
        assert trouble.detail == "not decrypted: its ClientHello is not in the capture"


@pytest.mark.parametrize("is_server_first", [False, True])
def test_a_lost_client_hello_is_found_in_the_key_log(made, is_server_first):
    _, *parts = placed(made.wire)
    if is_server_first:  # in another block
        parts.sort(key=lambda part: part[0] != SERVER)
    session, texts = decrypted(parts, KeyLog(other_sessions(50) + made.keys + other_sessions(9)))
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]
    assert session.problems == []


@pytest.mark.parametrize("is_server_first", [False, True])
def test_a_client_hello_is_found_with_the_finished_of_either_end(folder, is_server_first):
    """That of the server is lost: then no key opens its first encrypted record in the capture."""
    made = talk(folder, contexts(folder, "TLSv1_2"), MESSAGES[:4])
    _, *parts = placed(made.wire)
    parts.remove([part for part in parts if part[0] == SERVER][1])
    if is_server_first:
        parts.sort(key=lambda part: part[0] != SERVER)
    _, texts = decrypted(parts, KeyLog(made.keys))
    assert [b"".join(each) for each in texts] == [made.plain[CLIENT], made.plain[SERVER]]


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("size", [20, 90])
def test_a_client_hello_whose_begin_is_lost(folder, version, size):
    """The unencrypted messages behind it are no encrypted ones."""
    made = talk(folder, contexts(folder, version), MESSAGES[:4])
    for count in range(1, len(made.wire[0][1]) // size + 1):
        hello = (CLIENT, size * count, made.wire[0][1][size * count :])
        _, texts = decrypted([hello, *placed(made.wire)[1:]], KeyLog(made.keys))
        assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]


def test_a_lost_client_hello_whose_secret_is_logged_late(made):
    keys = KeyLog(other_sessions(5), grows=True)
    session, texts = TlsSession(keys), no_texts()
    feed(session, placed(made.wire)[1:], texts)
    assert texts == no_texts()
    keys.add(made.keys)
    take(session.read(last=True), texts)
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]


def test_a_search_begins_at_the_session_that_was_read_last_and_is_limited(monkeypatch):
    sessions = [number.to_bytes(32) for number in range(9)]
    line = b"CLIENT_RANDOM %s " + b"ab" * 48 + b"\n"
    monkeypatch.setattr(keylog, "CANDIDATES", 4)
    monkeypatch.setattr(keylog, "ATTEMPTS", 20)
    keys = KeyLog(b"".join(line % session.hex().encode() for session in sessions))
    for latest, numbers in ((0, [0, 1, 2, 3]), (5, [5, 4, 6, 3]), (8, [8, 7, 6, 5])):
        keys.latest = sessions[latest]
        assert [*keys.candidates(0)] == [sessions[number] for number in numbers]
    assert [*keys.candidates(7)] == sessions[7:]
    assert len([*keys.candidates(0)]) == 4
    assert len([*keys.candidates(0)]) == 2
    assert [*keys.candidates(0)] == []


def by_session_id(made: Dialogue) -> KeyLog:
    """The secret in the form that needs both hellos."""
    hello = next(data for end, data in made.wire if end == SERVER)
    session_id, secret = hello[44 : 44 + hello[43]], made.keys.split()[-1]
    return KeyLog(b"RSA Session-ID:%s Master-Key:%s\n" % (session_id.hex().encode(), secret))


@pytest.mark.parametrize("lost", [50, 100])
def test_a_client_hello_whose_end_is_lost(folder, lost):
    """Post-quantum key shares and tickets make it longer than a packet."""
    both = contexts(folder, "TLSv1_2")
    both[1].options |= ssl.OP_NO_TICKET
    made = talk(folder, both, MESSAGES[:4])
    parts = [part for part in placed(made.wire, 50) if part[:2] != (CLIENT, lost)]
    session, texts = decrypted(parts, by_session_id(made))
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]
    assert session.facts.version == "1.2"


def joined(flight: bytes) -> bytes:
    """The handshake records of a flight as one, as Java sends them."""
    bodies, at = b"", 0
    while at < len(flight):
        size = int.from_bytes(flight[at + 3 : at + 5])
        bodies += flight[at + 5 : at + 5 + size]
        at += 5 + size
    return flight[:3] + len(bodies).to_bytes(2) + bodies


def test_a_lost_change_cipher_spec_of_the_client_before_the_server_hello_is_read(folder):
    """Java sends it in its own segment. A block may have the client's segments first."""
    made = talk(folder, contexts(folder, "TLSv1_2"), MESSAGES[:4])
    session = TlsSession(KeyLog(made.keys))
    for end, at, data in sorted(placed(made.wire), key=lambda part: part[0]):
        lost = data.find(b"\x14\3\3\0\1\1") if end == CLIENT else -1
        for begin, size in ((0, lost), (lost + 6, None)) if lost >= 0 else ((0, None),):
            session.feed(end, at + begin, data[begin:size], (0, 0, 0))
    texts = no_texts()
    take(session.read(last=True), texts)
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]


def divided(flight: bytes, size: int) -> bytes:
    """The handshake records of a flight as records of `size` bytes, as maximum fragment lengths
    make them (RFC 6066, section 4)."""
    body = joined(flight)[5:]
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(flight[:3] + len(part).to_bytes(2) + part for part in parts)


def test_a_lost_part_of_a_certificate_in_many_records(folder):
    """The unencrypted records behind it are no encrypted ones, although ChangeCipherSpec may be
    lost, too."""
    made = talk(folder, contexts(folder, "TLSv1_2"), MESSAGES[:4])
    at = next(at for at, (end, _) in enumerate(made.wire) if end == SERVER)
    made.wire[at] = SERVER, divided(made.wire[at][1], 8)
    parts = [part for part in placed(made.wire, 130) if part[:2] != (SERVER, 260)]
    session, texts = decrypted(parts, KeyLog(made.keys))
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]
    assert session.problems == []


@pytest.mark.parametrize("lost", [200, 400, 600, 1000])
def test_a_server_hello_in_a_record_whose_end_is_lost(folder, lost):
    made = talk(folder, contexts(folder, "TLSv1_2"), MESSAGES[:4])
    at = next(at for at, (end, _) in enumerate(made.wire) if end == SERVER)
    made.wire[at] = SERVER, joined(made.wire[at][1])
    assert len(made.wire[at][1]) > 1000
    parts = [part for part in placed(made.wire, 200) if part[:2] != (SERVER, lost)]
    session, texts = decrypted(parts, KeyLog(made.keys))
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]
    assert {trouble.kind for trouble in session.problems} <= {"tls_lost_records"}


def test_secrets_that_are_logged_late_behind_a_lost_server_hello(folder):
    """The hello and all handshake records of the server are lost."""
    made = talk(folder, contexts(folder, "TLSv1_3"), MESSAGES[:4])
    lost = next(part for part in placed(made.wire) if part[0] == SERVER)
    lines = [line for line in made.keys.splitlines(keepends=True) if b"HANDSHAKE" in line]
    keys = KeyLog(b"".join(lines), grows=True)
    session, texts = TlsSession(keys), no_texts()
    feed(session, [part for part in placed(made.wire) if part != lost], texts)
    keys.add(made.keys)
    take(session.read(last=True), texts)
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]


@needs_openssl
@pytest.mark.parametrize("cipher", ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"])
@pytest.mark.parametrize("is_flight", [False, True])
def test_tls_1_3_is_read_without_its_server_hello(folder, cipher, is_flight):
    """Lost alone, or with all that the server sends before its Finished."""
    made = by_command_line(folder, ["-tls1_3"], ["-ciphersuites", cipher], ["hello", "again"])
    flight = next(data for end, data in made.wire if end == SERVER)
    size = len(flight) if is_flight else 5 + int.from_bytes(flight[3:5])
    parts = [
        (end, max(at, size), data[size - at :]) if end == SERVER and at < size else (end, at, data)
        for end, at, data in placed(made.wire)
    ]
    session, texts = decrypted(parts, KeyLog(made.keys))
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]
    assert (session.facts.version, session.facts.cipher) == ("1.3", cipher)
    assert {each.kind for each in session.problems} <= {"tls_cut_record"}


@pytest.mark.parametrize("has_begin", [False, True])
def test_the_problem_names_a_lost_server_hello(folder, has_begin):
    """The server's next record is its encrypted Finished, which is no handshake message.

    `has_begin`: the position of the first byte is known, as the segment with SYN is not lost.
    """
    both = contexts(folder, "TLSv1_2")
    for _ in range(8):  # random bytes may have the size of a message
        made = talk(folder, both, MESSAGES[:4])
        parts = placed(made.wire)
        lost = next(part for part in parts if part[0] == SERVER)
        base = 0 if has_begin else len(lost[2])
        left = [
            (end, at - base if end == SERVER else at, data)
            for end, at, data in parts
            if (end, at, data) != lost
        ]
        session, _ = decrypted(left, KeyLog(made.keys))
        details = {each.detail for each in session.problems}
        assert details == {"not decrypted: its ServerHello is not in the capture"}
