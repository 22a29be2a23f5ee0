"""Fuzz targets: functions that accept any bytes, and may raise the errors of this project.

Any other exception is a finding, and so is an input that takes seconds or gigabytes. Each target
also asserts properties of its results.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import crc32c

from dissector import DissectorError, decode_records, decode_request, decode_response, open_capture
from dissector.embedded import MessageContext, unfold
from dissector.packets import open_packets
from dissector.packets.block import PAD, PacketBlock
from dissector.protocol.explain import Explanation
from dissector.protocol.message import explain_request, explain_response
from dissector.tables import TABLES
from dissector.tls import KeyLog
from dissector.tls.session import TlsSession
from tests.fuzz import fuzz_native
from tests.fuzz import fuzz_seeds as seeds


@dataclass(frozen=True, slots=True)
class Target:
    """Something that takes bytes."""

    name: str
    what: str
    run: Callable[[bytes], None]
    seeds: Callable[[bool], Iterator[bytes]]
    """The seeds; True: only a few of them."""
    longest: int
    """Bytes of the longest input."""


@contextlib.contextmanager
def as_file(data: bytes) -> Iterator[str]:
    """A file with these bytes, in memory where there is such a place."""
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    handle, path = tempfile.mkstemp(dir=folder)
    try:
        os.write(handle, data)
        os.close(handle)
        yield path
    finally:
        Path(path).unlink()


def read_packets(data: bytes) -> None:
    """Capture readers: every payload lies inside the block's bytes."""
    with as_file(data) as path, contextlib.suppress(DissectorError):
        source = open_packets([path])
        while (block := source.read(64)) is not None:
            _check(block)


def _check(block: PacketBlock) -> None:
    end = len(block.data) - PAD
    assert (block.captured >= 0).all()
    assert (block.captured <= block.length).all()
    held = block.captured > 0
    assert (block.payload[held] >= block.reserve).all()
    assert (block.payload + block.captured)[held].max(initial=0) <= end


def read_tables(data: bytes) -> None:
    """The whole way, from a capture to every table, and every exchange explained."""
    with as_file(data) as path, contextlib.suppress(DissectorError):
        for _ in open_capture(path).stream(TABLES):
            pass
        for exchange in open_capture(path).exchanges():
            for direction in (0, 1):
                exchange.unfold(direction)  # type: ignore[arg-type]


def read_request(data: bytes) -> None:
    """`decode_request`, which fails where the explanation does."""
    explanation = explain_request(data)
    _check_explanation(explanation, data, lambda: decode_request(data))
    unfold(explanation, MessageContext("PLAIN"))


def read_response(data: bytes) -> None:
    """`decode_response`, which fails where the explanation does."""
    key, version = (int.from_bytes(data[at : at + 2], signed=True) for at in (0, 2))
    frame = data[4:]
    explanation = explain_response(frame, key, version)
    _check_explanation(explanation, frame, lambda: decode_response(frame, key, version))
    unfold(explanation, MessageContext("SCRAM-SHA-256", data[:4]))


def _check_explanation(explanation: Explanation, data: bytes, decode: Callable[[], object]) -> None:
    failure = None
    try:
        decode()
    except DissectorError as error:
        failure = error
    assert (failure is None) == (explanation.error is None), (failure, explanation.error)
    assert 0 <= explanation.end <= len(data)
    for event in explanation.events:
        assert 0 <= event.offset <= event.offset + event.length <= len(data)


def read_batches(data: bytes) -> None:
    """`decode_records`; an odd first byte puts the first batch's length and checksum right."""
    field = bytearray(data[1:])
    if data[:1] and data[0] & 1 and len(field) > 21 and field[16] == 2:
        field[8:12] = (len(field) - 12).to_bytes(4, "big")
        field[17:21] = crc32c.crc32c(field[21:]).to_bytes(4, "big")
    batches = decode_records(bytes(field))
    at = 0
    for batch in batches:
        assert at <= batch.position <= batch.position + batch.size
        assert batch.position < len(field)
        at = batch.position


@cache
def _keys() -> KeyLog:
    return KeyLog(seeds.TLS_KEYS.read_bytes())


def read_tls(data: bytes) -> None:
    """A TLS session: its output is never longer than its input."""
    session, at, received, given = TlsSession(_keys()), 0, 0, 0
    positions = [0, 0]
    while at + 3 <= len(data):
        how, length = data[at], int.from_bytes(data[at + 1 : at + 3])
        part = data[at + 3 : at + 3 + length]
        end = how & 1
        positions[end] += how >> 1  # bytes that were lost
        session.feed(end, positions[end], part, (at, 0, at))
        received += sum(len(plain.data) for plain in session.read())
        positions[end] += len(part)
        given += len(part)
        at += 3 + length
    received += sum(len(plain.data) for plain in session.read(last=True))
    assert received <= given


TARGETS = {
    target.name: target
    for target in (
        Target("packets", "capture readers", read_packets, seeds.heads, 1 << 13),
        Target("tables", "captures to tables", read_tables, seeds.heads, 1 << 13),
        Target("request", "decode_request", read_request, seeds.requests, 1 << 12),
        Target("response", "decode_response", read_response, seeds.responses, 1 << 12),
        Target("records", "decode_records", read_batches, seeds.records, 1 << 12),
        Target("native", "loops", fuzz_native.call, seeds.requests, 1 << 9),
        Target("tls", "the TLS room", read_tls, seeds.tls, 1 << 14),
    )
}
