"""Recordings as bytes, and the kinds of damage.

    lost      one packet is missing
    flipped   all bits of one byte are inverted
    cut       the file ends inside a packet, or at the beginning of a packet
    shuffled  packets are in another order: neighbours, up to 16 apart, or all of them
    doubled   each packet occurs twice in a row, as from two interfaces

There is a place for `lost` and `cut` in each packet, and for `flipped` in each byte. The position
of the cut inside a packet has no effect: the reader ignores an incomplete packet
(`test_a_file_cut_anywhere_gives_every_whole_packet`, of pcap and of pcapng).
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.captures.recorded import unpacked

FLIPPED = 4096
"""Bytes at the beginning of a file, each of which is inverted."""
NEIGHBOURS = 16
_STRIDE = 7919
"""A prime, by which the place inside a packet where a file ends goes on from packet to packet."""
_PCAPNG = b"\x0a\x0d\x0d\x0a"
_PCAPNG_PACKETS = (2, 3, 6)
"""Types of blocks with a packet: obsolete, simple, enhanced."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A capture, decompressed."""

    name: str
    data: bytes
    begin: NDArray[np.int64]
    """Begin and end of each packet's record in `data`; shape (packets,)."""
    end: NDArray[np.int64]

    @property
    def packets(self) -> list[bytes]:
        """The record of each packet."""
        places = zip(self.begin.tolist(), self.end.tolist(), strict=True)
        return [self.data[begin:end] for begin, end in places]

    def made_of(self, packets: Sequence[int] | NDArray[np.int64]) -> bytes:
        """The file with those packets only, in that order; what stands among them comes first."""
        parts, at = [], 0
        for begin, end in zip(self.begin.tolist(), self.end.tolist(), strict=True):
            parts.append(self.data[at:begin])
            at = end
        parts += [self.data[self.begin[each] : self.end[each]] for each in packets]
        return b"".join([*parts, self.data[at:]])


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged copy of a recording."""

    kind: str
    where: int
    data: bytes
    touched: NDArray[np.bool_]
    """Whether each packet is missing or changed; shape (packets,)."""
    times: bool = True
    """Every other packet has its time, and the first of several copies is still the first."""


def recording(path: Path) -> Recording:
    """A capture."""
    data = unpacked(path)
    spans = list(_pcapng(data) if data.startswith(_PCAPNG) else _pcap(data))
    begin, end = np.array(spans, np.int64).T
    return Recording(path.name, data, begin, end)


def _pcap(data: bytes) -> Iterator[tuple[int, int]]:
    order = "<" if data[0] in b"\xd4\x4d" else ">"
    at = 24
    while at < len(data):
        end = at + 16 + struct.unpack_from(f"{order}I", data, at + 8)[0]
        yield at, end
        at = end


def _pcapng(data: bytes) -> Iterator[tuple[int, int]]:
    order = "<" if data[8:12] == b"\x4d\x3c\x2b\x1a" else ">"
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        if kind in _PCAPNG_PACKETS:
            yield at, at + size
        at += size


def _lost(whole: Recording, where: int) -> Damage:
    packets = np.arange(len(whole.begin))
    return Damage("lost", where, whole.made_of(np.delete(packets, where)), packets == where)


def _flipped(whole: Recording, where: int) -> Damage:
    data = whole.data[:where] + bytes([whole.data[where] ^ 0xFF]) + whole.data[where + 1 :]
    inside = (whole.begin <= where) & (where < whole.end)
    # What is in no packet says how to read all those behind it.
    touched = inside if inside.any() else whole.begin > where
    return Damage("flipped", where, data, touched, times=False)


def _cut(whole: Recording, where: int) -> Damage:
    begin, size = int(whole.begin[where]), int(whole.end[where] - whole.begin[where])
    until = begin + where * _STRIDE % size
    return Damage("cut", where, whole.data[:until], np.arange(len(whole.begin)) >= where)


def _shuffled(whole: Recording, where: int) -> Damage:
    chance = random.Random(where)
    reach = (2, NEIGHBOURS, len(whole.begin))[where]
    order = sorted(range(len(whole.begin)), key=lambda number: number + chance.random() * reach)
    touched = np.zeros(len(order), np.bool_)
    return Damage("shuffled", where, whole.made_of(order), touched, times=False)


def _doubled(whole: Recording, where: int) -> Damage:
    count = len(whole.begin)
    return Damage(
        "doubled", where, whole.made_of(np.repeat(np.arange(count), 2)), np.zeros(count, np.bool_)
    )


KINDS: dict[
    str, tuple[Callable[[Recording, int], Damage], Callable[[Recording], tuple[int, int]]]
] = {
    "lost": (_lost, lambda whole: (0, len(whole.begin))),
    "flipped": (_flipped, lambda whole: (0, min(FLIPPED, len(whole.data)))),
    "cut": (_cut, lambda whole: (0, len(whole.begin))),
    "shuffled": (_shuffled, lambda whole: (0, 3)),
    "doubled": (_doubled, lambda whole: (0, 1)),
}
"""A function that damages a recording at a place, and one that returns the range of places."""


def places_of(whole: Recording, kind: str) -> int:
    """At how many places a recording can be damaged so."""
    begin, end = KINDS[kind][1](whole)
    return end - begin


def places_in(whole: Recording, kind: str, places: int | None, shift: int) -> range:
    """`places` of the places of a kind of damage, or all if None.

    They are spread evenly, beginning at another one for each `shift`.
    """
    begin, end = KINDS[kind][1](whole)
    stride = 1 if places is None else max(1, (end - begin) // places)
    return range(begin + shift % stride, end, stride)


def damaged(whole: Recording, kind: str, places: int | None, shift: int = 0) -> Iterator[Damage]:
    """Copies of a recording, each damaged at one of these places; see `places_in`."""
    for where in places_in(whole, kind, places, shift):
        yield KINDS[kind][0](whole, where)
