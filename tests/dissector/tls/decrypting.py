"""Helpers of the tests of TLS sessions: what was sent, fed to a session, and what it decrypts."""

import random
import shutil

import pytest

from dissector.tls import HOLE, KeyLog
from dissector.tls.session import TlsSession
from tests.dissector.tls.tls_made import CLIENT, SERVER, Dialogue

MESSAGES = [
    (end, bytes(random.Random(size + end).randbytes(size)))
    for size in (1, 30, 700, 16384, 40000)
    for end in (CLIENT, SERVER)
]

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing")

Part = tuple[int, int, bytes]
"""End, position, bytes."""


def placed(wire: list[tuple[int, bytes]], size: int = 1 << 20) -> list[Part]:
    """The data on the wire in parts of a size, with their positions."""
    at = [0, 0]
    parts = []
    for end, data in wire:
        for begin in range(0, len(data), size):
            part = data[begin : begin + size]
            parts.append((end, at[end], part))
            at[end] += len(part)
    return parts


def decrypted(parts: list[Part], keys: KeyLog) -> tuple[TlsSession, list[list]]:
    """The data of each end, in stretches without missing bytes."""
    session, texts = TlsSession(keys), no_texts()
    feed(session, parts, texts)
    take(session.read(last=True), texts)
    return session, texts


def no_texts() -> list[list]:
    """The texts of both ends, before any data was read."""
    return [[bytearray()], [bytearray()]]


def feed(session: TlsSession, parts: list[Part], texts: list[list]) -> None:
    """Feed parts one by one, and take the data behind each."""
    for time, (end, at, data) in enumerate(parts):
        session.feed(end, at, data, (time, 0, time + 1))
        take(session.read(), texts)


def take(plains, texts) -> None:
    for plain in plains:
        holes, at = divmod(plain.at, HOLE)
        assert at == sum(map(len, texts[plain.end]))
        if holes == len(texts[plain.end]):
            texts[plain.end].append(bytearray())
        assert holes == len(texts[plain.end]) - 1
        texts[plain.end][-1] += plain.data


def assert_all_decrypted(made: Dialogue, size: int = 1 << 20) -> TlsSession:
    session, texts = decrypted(placed(made.wire, size), KeyLog(made.keys))
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]
    assert [t for t in session.problems if t.kind != "tls_cut_record"] == []
    return session


def assert_right_or_absent(
    made: Dialogue, session: TlsSession, texts: list[list], *, is_followed: bool = True
) -> int:
    """Each stretch is part of the data that was sent, in order. Returns the number of bytes.

    `is_followed`: data follows the missing data, so that a problem must report it.
    """
    for end in (CLIENT, SERVER):
        at = 0
        for stretch in texts[end]:
            at = made.plain[end].index(stretch, at) + len(stretch)
    size = sum(len(stretch) for each in texts for stretch in each)
    if is_followed and size < sum(map(len, made.plain)):
        assert session.problems
    return size


def of_end(made: Dialogue, end: int) -> list[Part]:
    return [part for part in placed(made.wire) if part[0] == end]


def other_sessions(count: int) -> bytes:
    """Lines of a key log, of TLS 1.3 and 1.2."""
    rng = random.Random(13)
    lines = (
        b"%s %s %s\n" % (label, rng.randbytes(32).hex().encode(), rng.randbytes(48).hex().encode())
        for _ in range(count)
        for label in (b"SERVER_HANDSHAKE_TRAFFIC_SECRET", b"CLIENT_RANDOM")
    )
    return b"".join(lines)
