"""Data that a client sends before its handshake (0-RTT; RFC 8446, section 4.2.10)."""

import random

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed")

from dissector.tls import KeyLog
from tests.dissector.tls.decrypting import (
    assert_all_decrypted,
    assert_right_or_absent,
    decrypted,
    needs_openssl,
    placed,
)
from tests.dissector.tls.tls_made import CLIENT, RETRIED, SERVER, Dialogue, with_early_data

EARLY = random.Random(7).randbytes(6000)


@pytest.fixture(scope="module")
def resumed(folder) -> list[Dialogue]:
    """With early data that the server read, and with the same once more, which it refused."""
    return with_early_data(folder, [], EARLY, 2)


@needs_openssl
@pytest.mark.parametrize("size", [1, 1448, 1 << 20])
def test_early_data(resumed, size):
    assert bytes(resumed[0].plain[CLIENT]) == EARLY + b"a line\n"
    session = assert_all_decrypted(resumed[0], size)
    assert session.problems == []


@needs_openssl
def test_early_data_before_data_of_the_server(resumed):
    made = resumed[0]
    parts = placed(made.wire)
    for first in (CLIENT, SERVER):
        ordered = sorted(parts, key=lambda part: part[0] != first)
        session, texts = decrypted(ordered, KeyLog(made.keys))
        assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]
        assert session.problems == []


@needs_openssl
def test_early_data_that_the_server_refused_is_skipped(resumed):
    session, texts = decrypted(placed(resumed[1].wire), KeyLog(resumed[1].keys))
    assert texts == [[b"a line\n"], [b"a line\n"]]
    assert [(trouble.kind, trouble.end) for trouble in session.problems] == [
        ("tls_early_data", CLIENT)
    ]
    assert "rejected" in session.problems[0].detail


@pytest.mark.slow
@needs_openssl
def test_early_data_that_a_retry_refused_is_skipped(folder):
    (made,) = with_early_data(folder, ["-groups", "P-384"], EARLY, 1, RETRIED)
    session, texts = decrypted(placed(made.wire), KeyLog(made.keys))
    assert texts == [[b"a line\n"], [b"a line\n"]]
    assert [trouble.kind for trouble in session.problems] == ["tls_early_data"]


@needs_openssl
def test_early_data_without_its_secret(resumed):
    lines = resumed[0].keys.splitlines(keepends=True)
    keys = b"".join(line for line in lines if b"CLIENT_EARLY" not in line)
    session, texts = decrypted(placed(resumed[0].wire), KeyLog(keys))
    assert texts == [[b"", b"a line\n"], [b"a line\n"]]
    assert [trouble.kind for trouble in session.problems] == ["tls_early_data"]
    assert "lacks" in session.problems[0].detail


@needs_openssl
def test_each_piece_of_early_data_lost_once(resumed):
    made = resumed[0]
    parts = placed(made.wire, 700)
    for lost in range(len(parts)):
        session, texts = decrypted(parts[:lost] + parts[lost + 1 :], KeyLog(made.keys))
        follows = any(end == parts[lost][0] for end, _, _ in parts[lost + 1 :])
        assert_right_or_absent(made, session, texts, is_followed=follows)


@needs_openssl
def test_the_end_of_early_data_and_the_finished_behind_it_are_lost(resumed):
    """In one packet: then two epochs end in lost bytes. More data may be in a part of the wire."""
    made = resumed[0]
    stream = b"".join(data for end, data in made.wire if end == CLIENT)
    sent, at = [], 0
    while at < len(stream):
        size = 5 + int.from_bytes(stream[at + 3 : at + 5])
        sent.append((CLIENT, at, stream[at : at + size]))
        at += size
    server = [part for part in placed(made.wire) if part[0] == SERVER]
    _, texts = decrypted([*server, *sent[:-3], sent[-1]], KeyLog(made.keys))
    assert texts == [[EARLY, b"a line\n"], [b"a line\n"]]
