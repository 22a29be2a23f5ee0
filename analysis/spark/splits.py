"""Splits: the byte ranges of files that tasks read, and their scan.

A scan finds where the packets of a split begin and end, and reads their headers: the number of
packets, the latest time, and the broker of each connection that starts in the split and carries
Kafka. So the driver knows the number of each split's first packet, and the brokers, before any
connection is dissected.

The scan also validates guessed split positions (see `packets.file_ranges`). A file that fails the
validation because it is damaged is scanned again as one split, and so gives the same rows as on one
machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, repeat
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.spark import packets
from analysis.spark.packets import select_packets
from analysis.spark.pruning import PayloadPruner
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
"""A smaller split takes longer to start than to read."""
_REMAINDER: Final = 8
"""A last split smaller than this fraction is merged with the one before."""
BLOCK_BYTES: Final = 1 << 26
"""Bytes of a split that are assigned to shards together."""
BEFORE_ALL: Final = -(1 << 63)
AFTER_ALL: Final = (1 << 63) - 1

HARMLESS: Final = frozenset(
    {"cut_headers", "malformed_headers", "tunnel", "unknown_link", "unread_layer"}
)
"""Problems of single packets. All others of this stage concern the chain of records."""

Broker = tuple[int, int, int]
"""Address (high, low) and port, as in `PacketBlock`."""


@dataclass(frozen=True, slots=True)
class Split:
    """A byte range of a file, which one task reads."""

    capture: int
    """Index of the file."""
    part: FilePart
    """The range; before the scan, its ends are guesses."""
    packets_before: int = 0
    """Number of packets of the file before this split."""
    floor: int = BEFORE_ALL
    """Latest time of packets of the file before this split; ns."""
    skip: int = 0
    """Packets at the start that were read before."""
    is_validated: bool = False
    """Whether a packet starts at its start. The file may grow beyond its end."""


@dataclass(slots=True)
class SplitScan:
    """The result of scanning a split."""

    split: Split
    packets: int = 0
    size: int = 0
    """Input bytes."""
    earliest: int = AFTER_ALL
    """Earliest and latest time of TCP packets; ns."""
    latest: int = BEFORE_ALL
    brokers: set[Broker] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    tail: Problem | None = None
    """The problem to report if the incomplete last packet of a growing file stays incomplete."""
    secrets: list[bytes] = field(default_factory=list)
    """TLS key logs inside the capture."""
    context: object = None
    is_valid: bool = True
    """Whether the ends are valid, judged by this split alone."""

    def problems_in(self, captures: Sequence[str]) -> list[Problem]:
        """The problems, with packet numbers of the file, and the file's name."""
        name, before = captures[self.split.capture], self.split.packets_before
        return [
            replace(
                problem,
                capture=name,
                packet=None if problem.packet is None else problem.packet + before,
            )
            for problem in self.problems
        ]


def guess(files: Sequence[str], split_bytes: int = SPLIT_BYTES, tasks: int = 1) -> list[Split]:
    """Splits of at most `split_bytes`, enough for `tasks` unless they become too small.

    A file that cannot be read is one split, and fails in the scan.
    """
    sizes = [_size(path) for path in files]
    task_bytes = max(SMALL_SPLIT, math.ceil(sum(size or 0 for size in sizes) / tasks))
    limit, splits = min(split_bytes, task_bytes), []
    for capture, (path, size) in enumerate(zip(files, sizes, strict=True)):
        # A short remainder may contain no start of a packet.
        starts = range(0, size - limit // _REMAINDER, limit) if size and size > limit else [0]
        parts = map(FilePart, repeat(path), starts, [*starts[1:], None])
        splits += [Split(capture, part) for part in parts]
    return splits


def _size(path: str) -> int | None:
    try:
        return size_of(path)
    except OSError:
        return None


def scan_split(split: Split) -> SplitScan:
    """Scan a split, whose ends may be guesses."""
    part = split.part if split.is_validated else _to_packet_boundaries(split.part)
    if part is None:
        return SplitScan(split, is_valid=False)
    scan = SplitScan(replace(split, part=part))
    new_connections = _NewConnections()
    try:
        reader = open_part(scan.split.part, scan.secrets)
    except CaptureError as error:
        scan.problems.append(Problem("packets", "unreadable_file", str(error), capture=part.path))
        return scan
    for block in blocks(reader, split.capture, new_connections.reserve):
        scan.packets += block.packets_seen
        block = _without_skipped(scan.split, block)
        scan.size += block.bytes_read
        scan.problems += block.problems
        if len(block):
            scan.earliest = min(scan.earliest, int(block.time.min()))
            scan.latest = max(scan.latest, int(block.time.max()))
        new_connections.feed(block)
    scan.brokers = new_connections.brokers
    scan.context = reader.context
    kinds = {problem.kind for problem in scan.problems} - HARMLESS
    scan.is_valid = kinds <= ({"truncated_file"} if part.end is None else set())
    if split.is_validated and part.end is not None:
        _exclude_tail(scan)
    return scan


def _to_packet_boundaries(part: FilePart) -> FilePart | None:
    """Move guessed ends to packet boundaries; None if there is no likely boundary."""
    begin = boundary(part.path, part.begin) if part.begin else 0
    end = None if part.end is None else boundary(part.path, part.end)
    if begin is None or (end is None) != (part.end is None):
        return None
    return replace(part, begin=begin, end=end)


def _exclude_tail(scan: SplitScan) -> None:
    """Exclude an incomplete last packet, which is read when it is complete."""
    tails = [problem for problem in scan.problems if problem.kind == "truncated_file"]
    for tail in tails:
        scan.problems.remove(tail)
        scan.tail = tail
        scan.split = replace(scan.split, part=replace(scan.split.part, end=tail.offset))


def _without_skipped(split: Split, block: PacketBlock) -> PacketBlock:
    """Drop the packets that were read before."""
    return select_packets(block, block.number > split.skip) if split.skip else block


def blocks(
    reader: CaptureReader, capture: int, reserve: Callable[[], int]
) -> Iterator[PacketBlock]:
    """All packets of a reader, with `reserve()` free bytes before those of each block."""
    fragments = Fragments()
    while (records := reader.read(reserve(), BLOCK_BYTES)) is not None:
        captures = np.full(len(records.number), capture, np.int32)
        yield parse_packets(records, captures, {capture: reader.name}, fragments)
    problems = fragments.finish()
    if problems:
        yield replace(PacketBlock.empty(reserve()), problems=problems)


def validate(scans: Sequence[SplitScan]) -> tuple[list[Split], list[Split]]:
    """Splits with validated ends, and files that failed, each as one split.

    `scans`: scans of all splits of several files, in order of file and offset.
    """
    valid, invalid = [], []
    for _, group in groupby(scans, key=lambda scan: scan.split.capture):
        file = list(group)
        is_valid = all(scan.is_valid and scan.context == file[0].context for scan in file)
        if not is_valid and len(file) > 1:
            whole = file[0].split
            invalid.append(replace(whole, part=FilePart(whole.part.path)))
            continue
        before, floor = 0, BEFORE_ALL
        for scan in file:
            scan.split = replace(scan.split, packets_before=before, floor=floor)
            valid.append(scan.split)
            before, floor = before + scan.packets, max(floor, scan.latest)
    return valid, invalid


def bundles(
    split: Split, shards: int, since: int, until: int, pruner: PayloadPruner | None = None
) -> Iterator[pa.RecordBatch]:
    """The TCP packets of a validated split as bundles (`packets.SCHEMA`).

    Only packets in the time range [since, until), in ns, without payload that `pruner` removes.
    """
    floor = split.floor
    try:
        reader = open_part(split.part, [])
    except CaptureError:
        return  # the scan reported it
    for block in blocks(reader, split.capture, pruner.reserve if pruner else lambda: 0):
        block = _without_skipped(split, block)
        if len(block):
            position = np.maximum(np.maximum.accumulate(block.time), floor)
            floor = int(position[-1])
            inside = (block.time >= since) & (block.time < until)
            if not inside.all():
                block, position = select_packets(block, inside), position[inside]
            pruned = pruner.prune(block) if pruner else ()
            yield packets.bundles(block, position, split.packets_before, shards, *pruned)


class _NewConnections:
    """Follows the connections that start in a split, to find those that carry Kafka."""

    def __init__(self) -> None:
        newest = {key: registry.versions(key)[-1] for key in registry.apis()}
        self._streams = Streams(ports=DEFAULT_PORTS, newest=newest, evidence=evidence)
        self._pairs = np.zeros(0, np.int64)

    def reserve(self) -> int:
        """Bytes to leave free before the next block."""
        return self._streams.reserve

    def feed(self, block: PacketBlock) -> None:
        """Process the packets of such connections."""
        pair = packets.connections(block)
        self._pairs = np.union1d(self._pairs, pair[block.flags & SYN != 0])
        is_new = np.isin(pair, self._pairs)
        if is_new.any():
            self._streams.feed(block if is_new.all() else select_packets(block, is_new))

    @property
    def brokers(self) -> set[Broker]:
        """The broker ends of connections that carry Kafka."""
        table = self._streams.connections
        rows = np.flatnonzero((table.protocol == KAFKA) & table.opened)
        end = 1 - table.client[rows].astype(np.int64)
        ends = (column[rows, end].tolist() for column in (table.high, table.low, table.port))
        return set(zip(*ends, strict=True))
