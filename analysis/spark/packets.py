"""Packets in the shuffle: blocks of arrays to bundles, and bundles back to blocks.

A bundle is the packets of a block for one shard, in order. It is one row for Spark, which moves a
few large rows with far less effort than many small ones:

    shard     int      the task that dissects the connections; the same for all packets between two
                       endpoints, in both directions
    position  long     position of the first packet
    content   binary   numbers of packets and prune checks (int64), COLUMNS one after the other, the
                       prune checks, then the payload of each packet that is not pruned (see
                       `pruning`). Compressed by zstd, because columns compress well and Java copies
                       each byte about eight times

The position of a packet is its time in ns, or that of a preceding packet in its file if that is
later. It orders the capture; ties are ordered by file and packet number.

No conversion takes a Python step per packet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import zstandard
from numpy.typing import NDArray

from dissector.packets.block import PAD, SYN, Bytes, Int64, PacketBlock, UInt16, UInt64
from dissector.streams.table import ConnectionTable

SCHEMA: Final = pa.schema(
    [("shard", pa.int32()), ("position", pa.int64()), ("content", pa.binary())]
)
SPARK_SCHEMA: Final = "shard int, position long, content binary"
COLUMNS: Final = {
    name: np.dtype(dtype)
    for dtype, names in {
        "<i8": ("position", "time", "number"),
        "<u8": ("src_high", "src_low", "dst_high", "dst_low"),
        "<i4": ("capture", "captured", "length"),
        "<u4": ("seq", "ack"),
        "<u2": ("src_port", "dst_port", "window"),
        "u1": ("flags", "is_pruned"),
    }.items()
    for name in names
}
"""Columns of a bundle, in order."""
BLOCK_BYTES: Final = 1 << 24
"""Bytes of bundles that are dissected together, if memory allows it."""

_FIELDS: Final = tuple(name for name in COLUMNS if name not in ("position", "is_pruned"))
"""Columns that a block has too."""
_LEVEL: Final = 1
"""Compression level."""
_COUNTS: Final = 2
_COUNTS_BYTES: Final = 8 * _COUNTS
_MIX: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)

Bools = NDArray[np.bool_]
Columns: TypeAlias = dict[str, NDArray[Any]]
"""`COLUMNS` of packets, each of shape (packets,)."""


@dataclass(frozen=True, slots=True)
class PruneChecks:
    """Checks that pruned payload was not needed; arrays of shape (n,)."""

    pair: Int64
    """Number of the endpoint pair, from `connections`."""
    content: Int64
    """Fingerprint of a pruned message."""


NO_CHECKS: Final = PruneChecks(np.zeros(0, np.int64), np.zeros(0, np.int64))


def concat_checks(checks: Sequence[PruneChecks]) -> PruneChecks:
    """Concatenate prune checks."""
    parts = [NO_CHECKS, *checks]
    pair, content = ([getattr(part, name) for part in parts] for name in ("pair", "content"))
    return PruneChecks(np.concatenate(pair), np.concatenate(content))


def bundles(
    block: PacketBlock,
    position: Int64,
    packets_before: int,
    shards: int,
    pruned: Bools | None = None,
    checks: PruneChecks = NO_CHECKS,
) -> pa.RecordBatch:
    """The packets of a block as bundles, one per shard with packets.

    `packets_before`: number of packets of the file before those that the block counts. `pruned`:
    packets whose payload is removed.
    """
    shard = _shard(connections(block), shards)
    order = np.argsort(shard.astype(np.min_scalar_type(shards)), kind="stable")
    columns = {name: getattr(block, name) for name in _FIELDS}
    columns |= {"number": block.number + packets_before, "position": position}
    columns["is_pruned"] = np.zeros(len(block), np.bool_) if pruned is None else pruned
    head = {name: columns[name][order].astype(dtype) for name, dtype in COLUMNS.items()}
    shard = shard[order]
    payload = _gather_payloads(block.data, block.payload[order], _sent_bytes(head))
    first = np.flatnonzero(np.diff(shard, prepend=-1))
    check_shard = _shard(checks.pair, shards)
    shard_checks = [checks.content[check_shard == n] for n in shard[first].tolist()]
    contents = _contents(head, shard_checks, payload, np.append(first, len(shard)))
    return pa.RecordBatch.from_arrays(
        [pa.array(shard[first]), pa.array(head["position"][first]), contents], schema=SCHEMA
    )


def _shard(pair: Int64, shards: int) -> NDArray[np.int32]:
    return (pair.view(np.uint64) % np.uint64(shards)).astype(np.int32)


def _sent_bytes(head: Columns) -> Int64:
    """Bytes of payload that travel, of each packet."""
    return np.where(head["is_pruned"] == 0, head["captured"], 0).astype(np.int64)


def _contents(head: Columns, checks: Sequence[Int64], payload: Bytes, border: Int64) -> pa.Array:
    """Bundles of the packets between these borders."""
    behind = np.append(0, np.cumsum(_sent_bytes(head)))[border]
    press = zstandard.ZstdCompressor(level=_LEVEL)
    contents = []
    for (begin, end), (low, high), check in zip(
        pairwise(border.tolist()), pairwise(behind.tolist()), checks, strict=True
    ):
        counts = np.array([end - begin, len(check)], np.int64)
        columns = (column[begin:end] for column in head.values())
        parts = (counts, *columns, check, payload[low:high])
        contents.append(press.compress(b"".join([part.data for part in parts])))
    return pa.array(contents, pa.binary())


def select_packets(block: PacketBlock, rows: NDArray[np.bool_]) -> PacketBlock:
    """The selected packets of a block."""
    names = (*_FIELDS, "payload")
    return replace(block, **{name: getattr(block, name)[rows] for name in names})


def connections(block: PacketBlock) -> Int64:
    """A number for the endpoint pair of each packet; different pairs may share a number."""
    source = end_key(block.src_high, block.src_low, block.src_port)
    return (source + end_key(block.dst_high, block.dst_low, block.dst_port)).view(np.int64)


def connections_of(table: ConnectionTable, rows: Int64) -> Int64:
    """The same number for rows of a connection table."""
    ends = (column[rows].T for column in (table.high, table.low, table.port))
    left, right = (end_key(*end) for end in zip(*ends, strict=True))
    return (left + right).view(np.int64)


def end_key(high: UInt64, low: UInt64, port: UInt16) -> UInt64:
    """A number for each endpoint; `connections` adds the numbers of both."""
    return mixed(high, low, port.astype(np.uint64))


def mixed(*columns: UInt64) -> UInt64:
    """A hash of each row of up to three columns."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column, factor in zip(columns, _MIX, strict=True):
        mixed = (mixed ^ column) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _gather_payloads(data: Bytes, at: Int64, length: Int64) -> Bytes:
    """Byte ranges of `data`, concatenated."""
    order = np.argsort(at, kind="stable")
    edges = np.empty(2 * len(at) + 1, np.int64)
    edges[0:-1:2], edges[1::2] = at[order], at[order] + length[order]
    edges[-1] = edges[-2] if len(at) else 0
    # Every second value is a payload; the values between them are skipped.
    values = pa.Array.from_buffers(
        pa.large_binary(), 2 * len(at), [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    place = np.empty(len(at), np.int64)
    place[order] = np.arange(len(at)) * 2
    _, _, gathered = values.take(pa.array(place)).buffers()
    return np.frombuffer(gathered, np.uint8) if gathered else np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True)
class _PacketColumns:
    """Packets in order. `payload`: offset of each packet's payload in `data`, unless pruned."""

    head: Columns
    payload: Int64
    data: Bytes

    @classmethod
    def of(cls, bundle: bytes) -> tuple[_PacketColumns, Int64]:
        """The packets and prune checks of a bundle."""
        count, check_count = np.frombuffer(bundle, "<i8", _COUNTS).tolist()
        head, at = {}, _COUNTS_BYTES
        for name, dtype in COLUMNS.items():
            head[name] = np.frombuffer(bundle, dtype, count, at)
            at += head[name].nbytes
        checks, sent = np.frombuffer(bundle, "<i8", check_count, at), _sent_bytes(head)
        data = np.frombuffer(bundle, np.uint8)[at + checks.nbytes :]
        return cls(head, np.cumsum(sent) - sent, data), checks

    def __len__(self) -> int:
        return len(self.payload)

    def __getitem__(self, rows: slice) -> _PacketColumns:
        head = {name: column[rows] for name, column in self.head.items()}
        payload = self.payload[rows]
        if not len(payload):
            return _PacketColumns(head, payload, self.data[:0])
        end = payload[-1] + _sent_bytes(head)[-1]
        return _PacketColumns(head, payload - payload[0], self.data[payload[0] : end])


class BundleSource:
    """A `PacketSource` over the bundles of a shard, which arrive in order of `position`.

    Bundles that overlap in time are merged: packets before the start of the next bundle are
    complete. So memory holds about one bundle per file with packets of that time.
    """

    def __init__(self, block_bytes: int = BLOCK_BYTES) -> None:
        """`block_bytes`: approximate bytes of bundles per block."""
        self._block_bytes = block_bytes
        self.names: list[str] = []
        self.secrets: list[bytes] = []
        """TLS key logs."""
        self.total_bytes: int | None = None
        self.openings: list[tuple[Int64, Int64]] = []
        """Identity and position of packets, including all first packets of connections."""
        self.checks: list[Int64] = []
        """Prune checks to verify; see `pruning`."""
        self._runs: Iterator[list[_PacketColumns]] = iter(())
        self._until: int | None = None

    def take(self, batches: Iterable[pa.RecordBatch], until: int | None = None) -> None:
        """Set the next bundles. `until`: the time that all shards have reached; ns."""
        self.openings, self.checks = [], []
        self._runs, self._until = _runs(batches, self._block_bytes, self.checks), until

    def read(self, reserve: int) -> PacketBlock | None:
        """The next packets, with `reserve` free bytes before them; None at the end."""
        run = next(self._runs, None)
        if run is not None:
            block, position = _block(run, reserve)
            first = np.unique(connections(block), return_index=True)[1]
            rows = np.union1d(first, np.flatnonzero(block.flags & SYN))
            self.openings.append((identity(block.capture, block.number)[rows], position[rows]))
            return block
        self._runs = iter(())  # can be pickled
        if self._until is None:
            return None
        block, self._until = replace(PacketBlock.empty(reserve), until=self._until), None
        return block

    def close(self) -> None:
        """Nothing to release."""


def identity(capture: NDArray[np.integer], number: Int64) -> Int64:
    """File and packet number as one number: 2^23 files of 2^40 packets."""
    return capture.astype(np.int64) << 40 | number


def empty(shard: int) -> pa.RecordBatch:
    """A bundle without packets, before all others, so that each shard has a bundle."""
    content = [zstandard.compress(bytes(_COUNTS_BYTES), _LEVEL)]
    return pa.RecordBatch.from_arrays(
        [pa.array([shard], pa.int32()), pa.array([-(1 << 63)]), pa.array(content, pa.binary())],
        schema=SCHEMA,
    )


def _runs(
    batches: Iterable[pa.RecordBatch], block_bytes: int, checks: list[Int64]
) -> Iterator[list[_PacketColumns]]:
    """Packets of one block each. No packet is later than a packet of the next run."""
    pending: list[_PacketColumns] = []
    size = 0
    for bundle, position in _for_each(batches):
        if size >= block_bytes:
            ready, pending = _split_at(pending, position)
            if ready:
                yield ready
            size = sum(len(columns.data) for columns in pending)
        packets, bundle_checks = _PacketColumns.of(bundle)
        checks += [bundle_checks] if len(bundle_checks) else []
        if len(packets):
            pending.append(packets)
            size += len(bundle)
    if pending:
        yield pending


def _for_each(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[bytes, int]]:
    press = zstandard.ZstdDecompressor()
    for batch in batches:
        for position, content in zip(
            batch.column("position").to_pylist(), batch.column("content"), strict=True
        ):
            yield press.decompress(content.as_buffer()), position


def _split_at(
    held: Sequence[_PacketColumns], position: int
) -> tuple[list[_PacketColumns], list[_PacketColumns]]:
    """Packets before this position, and packets from it on."""
    ready, pending = [], []
    for columns in held:
        until = int(np.searchsorted(columns.head["position"], position))
        ready.append(columns[:until])
        pending.append(columns[until:])
    return [*filter(len, ready)], [*filter(len, pending)]


def _block(run: Sequence[_PacketColumns], reserve: int) -> tuple[PacketBlock, Int64]:
    """One block of these packets, in order, and their positions."""
    head = {name: np.concatenate([each.head[name] for each in run]) for name in COLUMNS}
    pruned = head["is_pruned"] != 0
    # Zeros, shared by all pruned packets as their payload.
    zeros = np.zeros(int(head["captured"].max(where=pruned, initial=0)), np.uint8)
    size = np.array([len(each.data) for each in run], np.int64)
    begin = reserve + len(zeros) + np.cumsum(size) - size
    payload = np.concatenate(
        [each.payload + at for each, at in zip(run, begin.tolist(), strict=True)]
    )
    payload[pruned] = reserve
    if not _in_order(head):
        order = np.lexsort((head["number"], head["capture"], head["position"]))
        head = {name: column[order] for name, column in head.items()}
        payload = payload[order]
    fields: dict[str, Any] = {name: head[name] for name in _FIELDS}
    front, back = np.empty(reserve, np.uint8), np.zeros(PAD, np.uint8)
    block = PacketBlock(
        data=np.concatenate([front, zeros, *(each.data for each in run), back]),
        reserve=reserve,
        payload=payload,
        packets_seen=len(payload),
        bytes_read=int(size.sum()),
        **fields,
    )
    return block, head["position"]


def _in_order(head: Columns) -> bool:
    """Whether all packets are of one file and in order."""
    capture, later = head["capture"], np.diff(head["position"]) >= 0
    return bool(
        (capture == capture[0]).all() and later.all() and (np.diff(head["number"]) > 0).all()
    )
