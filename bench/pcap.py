"""Little-endian pcap files, without NumPy: the measuring process stays small."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path

HEADER = bytes.fromhex("4d3cb2a1 0200 0400 00000000 00000000 00000400 01000000")
"""Header of a pcap with times in ns: snaplen 262144, Ethernet."""
RECORD = 16
"""Bytes of a record header."""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of an input."""

    packets: int
    bytes: int
    messages: int
    """Requests and responses, without those in heads and tails of connections."""
    connections: int
    broker_ports: list[int]
    seconds: float
    """Time from the first packet to the last."""
    made_from: str
    """A digest of the recording and the specification."""


def records(data: bytes | mmap) -> Iterator[tuple[int, int]]:
    """Position and size of each record of a little-endian pcap; with its header of RECORD bytes."""
    at = len(HEADER)
    while at < len(data):
        size = RECORD + int.from_bytes(data[at + 8 : at + 12], "little")
        yield at, size
        at += size


def divide(source: Path, folder: Path, count: int) -> None:
    """Write the packets of a little-endian pcap file as about `count` files of the same size."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    data = source.read_bytes()
    begin = len(HEADER)
    for at, size in records(data):
        end = at + size
        if end - begin >= len(data) / count or end == len(data):
            path = folder / f"{end:012}.pcap"
            path.write_bytes(data[: len(HEADER)] + data[begin:end])
            begin = end
