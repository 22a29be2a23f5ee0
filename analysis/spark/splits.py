"""Splits: which bytes of which files a task reads, and what a first look at them tells.

The first look finds where the packets of a split begin and end, and reads their headers: how many
there are, the time of the latest, and where brokers listen (on the far end of each connection that
begins in the split and speaks Kafka). From that, the driver knows the number of each split's first
packet, and what must be known before any connection is dissected.

Where a file was split at guessed places, the first look proves the guess (see `packets.parts`). A
file that fails the proof, being damaged, is looked at again as one split: so that what it gives is
what it gives on one machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.spark import packets
from analysis.spark.cutting import Cutter
from analysis.spark.packets import chosen
from dissector.errors import CaptureError
from dissector.packets.block import SYN, PacketBlock
from dissector.packets.capture_reader import CaptureReader
from dissector.packets.file_ranges import FilePart, boundary, open_part, size_of
from dissector.packets.fragments import Fragments
from dissector.packets.layers import parse_packets
from dissector.pipeline import DEFAULT_PORTS
from dissector.problems import Problem
from dissector.protocol import registry
from dissector.protocol.evidence import evidence
from dissector.streams import Streams
from dissector.streams.table import KAFKA

SPLIT_BYTES: Final = 128 << 20
SMALL_SPLIT: Final = 32 << 20
"""What is smaller takes longer to begin with than to read."""
_LEFT_OVER: Final = 8
"""That part of a split is too little for one of its own."""
BLOCK_BYTES: Final = 1 << 26
"""Bytes of a split that are dealt to shares together."""
BEFORE_ALL: Final = -(1 << 63)
AFTER_ALL: Final = (1 << 63) - 1

HARMLESS: Final = frozenset(
    {"cut_headers", "malformed_headers", "tunnel", "unknown_link", "unread_layer"}
)
"""Problems of single packets; all others of their stage are of the file's chain."""

Broker = tuple[int, int, int]
"""high, low and port, as in `PacketBlock`."""


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads."""

    capture: int
    """Index of the file."""
    part: FilePart
    """Before the first look its ends are guesses."""
    packets_before: int = 0
    """Packets of the file before this split's."""
    floor: int = BEFORE_ALL
    """ns; the latest packet of the file before this split's."""
    skip: int = 0
    """Packets at its beginning that were read before."""
    is_proved: bool = False
    """A packet begins where it begins; behind its end, the file grows."""


@dataclass(slots=True)
class Look:
    """What the first look at a split found."""

    split: Split
    packets: int = 0
    size: int = 0
    """Bytes of input."""
    earliest: int = AFTER_ALL
    """ns; of its TCP packets."""
    latest: int = BEFORE_ALL
    brokers: set[Broker] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    tail: Problem | None = None
    """What is wrong if no more comes of the packet within which a file ends that may grow."""
    secrets: list[bytes] = field(default_factory=list)
    """TLS key logs that it carries."""
    context: object = None
    is_sound: bool = True
    """As far as this split alone shows."""

    def problems_in(self, captures: Sequence[str]) -> list[Problem]:
        """The problems, with packet numbers as they are in the file, and the file's name."""
        name, before = captures[self.split.capture], self.split.packets_before
        return [
            replace(
                each, capture=name, packet=None if each.packet is None else each.packet + before
            )
            for each in self.problems
        ]


def guess(files: Sequence[str], split_bytes: int = SPLIT_BYTES, tasks: int = 1) -> list[Split]:
    """Splits of at most so many bytes, enough of them for so many tasks where that is worth it.

    A file that cannot be read is one split, and fails when read.
    """
    sizes = [_size(path) for path in files]
    share = max(SMALL_SPLIT, math.ceil(sum(size or 0 for size in sizes) / tasks))
    most, splits = min(split_bytes, share), []
    for capture, (path, size) in enumerate(zip(files, sizes, strict=True)):
        # No packet need begin in what is left over, if that is little.
        places = range(0, size - most // _LEFT_OVER, most) if size and size > most else [0]
        ends = [*places[1:], None]
        splits += [Split(capture, FilePart(path, *each)) for each in zip(places, ends, strict=True)]
    return splits


def _size(path: str) -> int | None:
    try:
        return size_of(path)
    except OSError:
        return None


def look(split: Split) -> Look:
    """Read a split whose ends are guesses."""
    part = split.part if split.is_proved else _at_packets(split.part)
    if part is None:
        return Look(split, is_sound=False)
    found = Look(replace(split, part=part))
    opened = _Opened()
    try:
        reader = open_part(found.split.part, found.secrets)
    except CaptureError as error:
        found.problems.append(Problem("packets", "unreadable_file", str(error), capture=part.path))
        return found
    for block in blocks(reader, split.capture, opened.reserve):
        found.packets += block.packets_seen
        block = _fresh(found.split, block)
        found.size += block.bytes_read
        found.problems += block.problems
        if len(block):
            found.earliest = min(found.earliest, int(block.time.min()))
            found.latest = max(found.latest, int(block.time.max()))
        opened.feed(block)
    found.brokers = opened.brokers
    found.context = reader.context
    kinds = {problem.kind for problem in found.problems} - HARMLESS
    found.is_sound = kinds <= ({"truncated_file"} if part.end is None else set())
    if split.is_proved and part.end is not None:
        _leave_the_tail(found)
    return found


def _at_packets(part: FilePart) -> FilePart | None:
    """A part whose ends were guessed, as it seems to be; None where nothing tells."""
    begin = boundary(part.path, part.begin) if part.begin else 0
    end = None if part.end is None else boundary(part.path, part.end)
    if begin is None or (end is None) != (part.end is None):
        return None
    return replace(part, begin=begin, end=end)


def _leave_the_tail(found: Look) -> None:
    """Where a file ends within a packet, leave that packet to when it is whole."""
    tails = [each for each in found.problems if each.kind == "truncated_file"]
    for tail in tails:
        found.problems.remove(tail)
        found.tail = tail
        found.split = replace(found.split, part=replace(found.split.part, end=tail.offset))


def _fresh(split: Split, block: PacketBlock) -> PacketBlock:
    """Without the packets that were read before."""
    return chosen(block, block.number > split.skip) if split.skip else block


def blocks(
    reader: CaptureReader, capture: int, reserve: Callable[[], int]
) -> Iterator[PacketBlock]:
    """All packets of a reader, with `reserve()` free bytes before those of each block."""
    fragments = Fragments()
    while (records := reader.read(reserve(), BLOCK_BYTES)) is not None:
        captures = np.full(len(records.number), capture, np.int32)
        yield parse_packets(records, captures, {capture: reader.name}, fragments)
    left = fragments.finish()
    if left:
        yield replace(PacketBlock.empty(reserve()), problems=left)


def settle(looks: Sequence[Look]) -> tuple[list[Split], list[Split]]:
    """Splits whose ends are proved, and files, each as one split, of which they are not.

    `looks`: at all splits of some files, in order of file and place.
    """
    proved, unproved = [], []
    for _, group in groupby(looks, key=lambda found: found.split.capture):
        file = list(group)
        sound = all(found.is_sound and found.context == file[0].context for found in file)
        if not sound and len(file) > 1:
            whole = file[0].split
            unproved.append(replace(whole, part=FilePart(whole.part.path)))
            continue
        before, floor = 0, BEFORE_ALL
        for found in file:
            found.split = replace(found.split, packets_before=before, floor=floor)
            proved.append(found.split)
            before, floor = before + found.packets, max(floor, found.latest)
    return proved, unproved


def bundles(
    split: Split, shares: int, since: int, until: int, cutter: Cutter | None = None
) -> Iterator[pa.RecordBatch]:
    """The TCP packets of a split whose ends are proved, as `packets.SCHEMA` has them.

    Only those of the time [since, until), in ns; and what `cutter` takes off them stays behind.
    """
    floor = split.floor
    try:
        reader = open_part(split.part, [])
    except CaptureError:
        return  # the first look has said so
    for block in blocks(reader, split.capture, cutter.reserve if cutter else lambda: 0):
        block = _fresh(split, block)
        if len(block):
            position = np.maximum(np.maximum.accumulate(block.time), floor)
            floor = int(position[-1])
            inside = (block.time >= since) & (block.time < until)
            if not inside.all():
                block, position = chosen(block, inside), position[inside]
            cut = cutter.cut(block) if cutter else ()
            yield packets.bundles(block, position, split.packets_before, shares, *cut)


class _Opened:
    """The connections that begin in a split, followed to see which of them speak Kafka."""

    def __init__(self) -> None:
        newest = {key: registry.versions(key)[-1] for key in registry.apis()}
        self._streams = Streams(ports=DEFAULT_PORTS, newest=newest, evidence=evidence)
        self._pairs = np.zeros(0, np.int64)

    def reserve(self) -> int:
        """Bytes to leave free in front of the next block."""
        return self._streams.reserve

    def feed(self, block: PacketBlock) -> None:
        """Take the packets of such connections."""
        pair = packets.connections(block)
        self._pairs = np.union1d(self._pairs, pair[block.flags & SYN != 0])
        some = np.isin(pair, self._pairs)
        if some.any():
            self._streams.feed(block if some.all() else chosen(block, some))

    @property
    def brokers(self) -> set[Broker]:
        """Where those lead that speak Kafka."""
        table = self._streams.connections
        some = np.flatnonzero((table.protocol == KAFKA) & table.opened)
        end = 1 - table.client[some].astype(np.int64)
        ends = (column[some, end].tolist() for column in (table.high, table.low, table.port))
        return set(zip(*ends, strict=True))
