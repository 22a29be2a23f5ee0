"""Packets on their way through Spark: blocks of arrays to bundles, and bundles to blocks again.

A bundle is some packets of a block that go to the same task, in order. It is one row for Spark,
which moves a few large rows with far less effort than many small ones:

    share     int      the task that dissects its connections; all packets between two ends have the
                       same, whoever sent them
    position  long     that of its first packet
    content   binary   how many packets and claims (int64), COLUMNS of the packets one after the
                       other, claims, then the payload of each packet, as it was read, but of those
                       that are cut; see `cutting`. In a frame of zstd: what is in a column is much
                       alike, and Java copies each byte that travels some eight times

The position of a packet is its time in ns, but not before a packet that precedes it in its file. It
orders the capture; ties go by file, then by number.

Bundles become blocks, and blocks bundles, without a step of Python for each packet.
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
    [("share", pa.int32()), ("position", pa.int64()), ("content", pa.binary())]
)
SPARK_SCHEMA: Final = "share int, position long, content binary"
COLUMNS: Final = {
    name: np.dtype(dtype)
    for dtype, names in {
        "<i8": ("position", "time", "number"),
        "<u8": ("src_high", "src_low", "dst_high", "dst_low"),
        "<i4": ("capture", "captured", "length"),
        "<u4": ("seq", "ack"),
        "<u2": ("src_port", "dst_port", "window"),
        "u1": ("flags", "is_cut"),
    }.items()
    for name in names
}
"""Of a bundle, in their order."""
BLOCK_BYTES: Final = 1 << 24
"""Bytes of bundles that are dissected together, where memory suffices."""

_FIELDS: Final = tuple(name for name in COLUMNS if name not in ("position", "is_cut"))
"""Those that a block has, too."""
_LEVEL: Final = 1
"""Of compression."""
_COUNTS: Final = 2
_COUNTS_BYTES: Final = 8 * _COUNTS
_MIX: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)

Bools = NDArray[np.bool_]
Columns: TypeAlias = dict[str, NDArray[Any]]
"""`COLUMNS` of some packets, each of shape (packets,)."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What must be so for what was cut to be of no use; arrays of shape (n,)."""

    pair: Int64
    """The two ends of the connection, as `connections` numbers them."""
    content: Int64


NO_CLAIMS: Final = Claims(np.zeros(0, np.int64), np.zeros(0, np.int64))


def joined(claims: Sequence[Claims]) -> Claims:
    """Claims, all in one."""
    every = [NO_CLAIMS, *claims]
    pair, content = ([getattr(each, name) for each in every] for name in ("pair", "content"))
    return Claims(np.concatenate(pair), np.concatenate(content))


def bundles(
    block: PacketBlock,
    position: Int64,
    packets_before: int,
    shares: int,
    cut: Bools | None = None,
    claims: Claims = NO_CLAIMS,
) -> pa.RecordBatch:
    """The packets of a block, a bundle for each share that has some.

    `packets_before`: packets of the file before those that the block counts. `cut`: those whose
    payload stays behind.
    """
    share = _share(connections(block), shares)
    order = np.argsort(share.astype(np.min_scalar_type(shares)), kind="stable")
    none = np.zeros(len(block), np.bool_)
    every = {name: getattr(block, name) for name in _FIELDS}
    every |= {"number": block.number + packets_before, "position": position}
    every["is_cut"] = none if cut is None else cut
    head = {name: every[name][order].astype(dtype) for name, dtype in COLUMNS.items()}
    share = share[order]
    payload = _gathered(block.data, block.payload[order], _sent(head))
    first = np.flatnonzero(np.diff(share, prepend=-1))
    columns = [pa.array(share[first]), pa.array(head["position"][first])]
    claimed = _share(claims.pair, shares)
    mine = [claims.content[claimed == each] for each in share[first].tolist()]
    contents = _contents(head, mine, payload, np.append(first, len(share)))
    return pa.RecordBatch.from_arrays([*columns, contents], schema=SCHEMA)


def _share(pair: Int64, shares: int) -> NDArray[np.int32]:
    return (pair.view(np.uint64) % np.uint64(shares)).astype(np.int32)


def _sent(head: Columns) -> Int64:
    """Bytes of payload that travel, of each packet."""
    return np.where(head["is_cut"] == 0, head["captured"], 0).astype(np.int64)


def _contents(head: Columns, claims: Sequence[Int64], payload: Bytes, border: Int64) -> pa.Array:
    """Bundles of the packets between these borders."""
    behind = np.append(0, np.cumsum(_sent(head)))[border]
    press = zstandard.ZstdCompressor(level=_LEVEL)
    made = []
    for (begin, end), (low, high), more in zip(
        pairwise(border.tolist()), pairwise(behind.tolist()), claims, strict=True
    ):
        counts = np.array([end - begin, len(more)], np.int64)
        columns = (column[begin:end] for column in head.values())
        parts = (counts, *columns, more, payload[low:high])
        made.append(press.compress(b"".join([part.data for part in parts])))
    return pa.array(made, pa.binary())


def chosen(block: PacketBlock, rows: NDArray[np.bool_]) -> PacketBlock:
    """These packets of a block."""
    names = (*_FIELDS, "payload")
    return replace(block, **{name: getattr(block, name)[rows] for name in names})


def connections(block: PacketBlock) -> Int64:
    """A number for the two ends of each packet; two pairs of ends may have the same."""
    source = end_key(block.src_high, block.src_low, block.src_port)
    return (source + end_key(block.dst_high, block.dst_low, block.dst_port)).view(np.int64)


def connections_of(table: ConnectionTable, rows: Int64) -> Int64:
    """The same number for rows of a connection table."""
    ends = (column[rows].T for column in (table.high, table.low, table.port))
    one, other = (end_key(*end) for end in zip(*ends, strict=True))
    return (one + other).view(np.int64)


def end_key(high: UInt64, low: UInt64, port: UInt16) -> UInt64:
    """A number for each end; `connections` gives the sum of two."""
    return mixed(high, low, port.astype(np.uint64))


def mixed(*columns: UInt64) -> UInt64:
    """A number for each row of up to three columns."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column, factor in zip(columns, _MIX, strict=True):
        mixed = (mixed ^ column) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _gathered(data: Bytes, at: Int64, length: Int64) -> Bytes:
    """These stretches of `data`, one behind the other."""
    order = np.argsort(at, kind="stable")
    edges = np.empty(2 * len(at) + 1, np.int64)
    edges[0:-1:2], edges[1::2] = at[order], at[order] + length[order]
    edges[-1] = edges[-2] if len(at) else 0
    # Every second value is a payload; those between them are not taken.
    every = pa.Array.from_buffers(
        pa.large_binary(), 2 * len(at), [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    place = np.empty(len(at), np.int64)
    place[order] = np.arange(len(at)) * 2
    _, _, gathered = every.take(pa.array(place)).buffers()
    return np.frombuffer(gathered, np.uint8) if gathered else np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True)
class _Packets:
    """Packets in order; `payload` says where in `data` each one's payload begins, if not cut."""

    head: Columns
    payload: Int64
    data: Bytes

    @classmethod
    def of(cls, bundle: bytes) -> tuple[_Packets, Int64]:
        """The packets of a bundle, and its claims."""
        count, claimed = np.frombuffer(bundle, "<i8", _COUNTS).tolist()
        head, at = {}, _COUNTS_BYTES
        for name, dtype in COLUMNS.items():
            head[name] = np.frombuffer(bundle, dtype, count, at)
            at += head[name].nbytes
        claims, sent = np.frombuffer(bundle, "<i8", claimed, at), _sent(head)
        data = np.frombuffer(bundle, np.uint8)[at + claims.nbytes :]
        return cls(head, np.cumsum(sent) - sent, data), claims

    def __len__(self) -> int:
        return len(self.payload)

    def __getitem__(self, rows: slice) -> _Packets:
        head = {name: column[rows] for name, column in self.head.items()}
        payload = self.payload[rows]
        if not len(payload):
            return _Packets(head, payload, self.data[:0])
        end = payload[-1] + _sent(head)[-1]
        return _Packets(head, payload - payload[0], self.data[payload[0] : end])


class BundleSource:
    """The `PacketSource` over the bundles of a share, which come in order of `position`.

    Where bundles overlap in time, they are merged: what lies before the beginning of the next one
    may go on. So what is held at a time is about a bundle of each file that has packets of it.
    """

    def __init__(self, block_bytes: int = BLOCK_BYTES) -> None:
        """`block_bytes`: of bundles, about, that make a block."""
        self._block_bytes = block_bytes
        self.names: list[str] = []
        self.secrets: list[bytes] = []
        """TLS key logs."""
        self.total_bytes: int | None = None
        self.openings: list[tuple[Int64, Int64]] = []
        """Identity and position of packets, all first ones of connections among them."""
        self.claims: list[Int64] = []
        """What must be found to be so, since packets were cut; see `cutting`."""
        self._runs: Iterator[list[_Packets]] = iter(())
        self._until: int | None = None

    def take(self, batches: Iterable[pa.RecordBatch], until: int | None = None) -> None:
        """What to read next. `until`: how far time has gone on in all shares, ns."""
        self.openings, self.claims = [], []
        self._runs, self._until = _runs(batches, self._block_bytes, self.claims), until

    def read(self, reserve: int) -> PacketBlock | None:
        """The next packets, with `reserve` free bytes before them; None at the end."""
        run = next(self._runs, None)
        if run is not None:
            block, position = _block(run, reserve)
            first = np.unique(connections(block), return_index=True)[1]
            some = np.union1d(first, np.flatnonzero(block.flags & SYN))
            self.openings.append((identity(block.capture, block.number)[some], position[some]))
            return block
        self._runs = iter(())  # which can be pickled
        if self._until is None:
            return None
        block, self._until = replace(PacketBlock.empty(reserve), until=self._until), None
        return block

    def close(self) -> None:
        """There is nothing to give back."""


def identity(capture: NDArray[np.integer], number: Int64) -> Int64:
    """File and number of packets as one number, 2^23 files of 2^40 packets."""
    return capture.astype(np.int64) << 40 | number


def empty(share: int) -> pa.RecordBatch:
    """A bundle without packets, before all others, so that a share has one at least."""
    nothing = [zstandard.compress(bytes(_COUNTS_BYTES), _LEVEL)]
    return pa.RecordBatch.from_arrays(
        [pa.array([share], pa.int32()), pa.array([-(1 << 63)]), pa.array(nothing, pa.binary())],
        schema=SCHEMA,
    )


def _runs(
    batches: Iterable[pa.RecordBatch], block_bytes: int, claims: list[Int64]
) -> Iterator[list[_Packets]]:
    """Packets that make a block: none of them is after one of the next run."""
    held: list[_Packets] = []
    size = 0
    for bundle, position in _each(batches):
        if size >= block_bytes:
            ready, held = _before(held, position)
            if ready:
                yield ready
            size = sum(len(each.data) for each in held)
        packets, claimed = _Packets.of(bundle)
        claims += [claimed] if len(claimed) else []
        if len(packets):
            held.append(packets)
            size += len(bundle)
    if held:
        yield held


def _each(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[bytes, int]]:
    press = zstandard.ZstdDecompressor()
    for batch in batches:
        for position, content in zip(
            batch.column("position").to_pylist(), batch.column("content"), strict=True
        ):
            yield press.decompress(content.as_buffer()), position


def _before(held: Sequence[_Packets], position: int) -> tuple[list[_Packets], list[_Packets]]:
    """What lies before this position, and the rest."""
    ready, rest = [], []
    for each in held:
        until = int(np.searchsorted(each.head["position"], position))
        ready.append(each[:until])
        rest.append(each[until:])
    return [each for each in ready if len(each)], [each for each in rest if len(each)]


def _block(run: Sequence[_Packets], reserve: int) -> tuple[PacketBlock, Int64]:
    """One block of these packets, in order; and their positions."""
    head = {name: np.concatenate([each.head[name] for each in run]) for name in COLUMNS}
    cut = head["is_cut"] != 0
    # The payload of every packet that was cut: one row of zeros for all.
    zeros = np.zeros(int(head["captured"].max(where=cut, initial=0)), np.uint8)
    size = np.array([len(each.data) for each in run], np.int64)
    begin = reserve + len(zeros) + np.cumsum(size) - size
    payload = np.concatenate(
        [each.payload + at for each, at in zip(run, begin.tolist(), strict=True)]
    )
    payload[cut] = reserve
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
    """Whether packets of one file are in order of place in the capture."""
    capture, later = head["capture"], np.diff(head["position"]) >= 0
    return bool(
        (capture == capture[0]).all() and later.all() and (np.diff(head["number"]) > 0).all()
    )
