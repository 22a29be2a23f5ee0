"""Packets on their way through Spark: blocks of arrays to rows, and rows to blocks again.

A row is one TCP packet. What Spark sorts and groups by are columns; the other header fields travel
as one structure, and the payload as it was read:

    connection  long     the same for all packets between two ends; two pairs may share a number,
                         which only means that they are dissected together
    position    long     order in the capture: time in ns, but not before a packet that precedes it
                         in its file; ties go by capture, then by number
    capture     int      index of the file
    number      long     packet number in the file, 1-based
    head        binary   HEAD
    payload     binary   captured payload bytes

Rows become Arrow arrays, and Arrow arrays blocks, without a step of Python for each packet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissector.packets.block import PAD, SYN, Int64, PacketBlock, UInt64

SCHEMA: Final = pa.schema(
    [
        ("connection", pa.int64()),
        ("position", pa.int64()),
        ("capture", pa.int32()),
        ("number", pa.int64()),
        ("head", pa.binary()),
        ("payload", pa.binary()),
    ]
)
HEAD: Final = np.dtype(
    [
        *[("time", "<i8"), ("src_high", "<u8"), ("src_low", "<u8"), ("dst_high", "<u8")],
        *[("dst_low", "<u8"), ("src_port", "<u2"), ("dst_port", "<u2"), ("seq", "<u4")],
        *[("ack", "<u4"), ("length", "<i4"), ("window", "<u2"), ("flags", "u1")],
    ]
)
BLOCK_BYTES: Final = 1 << 24
"""Payload bytes, about, that are dissected together."""
BLOCK_ROWS: Final = 1 << 18

_FIELDS: Final = HEAD.names or ()
_MIX: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)


def to_rows(block: PacketBlock, position: Int64, first_number: int) -> pa.RecordBatch:
    """The packets of a block. `first_number`: packets of the file before the block's own count."""
    head = np.empty(len(block), HEAD)
    for name in _FIELDS:
        head[name] = getattr(block, name)
    offsets = np.arange(len(block) + 1, dtype=np.int32) * HEAD.itemsize
    columns = [
        pa.array(connections(block)),
        pa.array(position),
        pa.array(block.capture),
        pa.array(block.number + first_number),
        pa.Array.from_buffers(
            pa.binary(), len(block), [None, pa.py_buffer(offsets), pa.py_buffer(head)]
        ),
        _payloads(block),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def connections(block: PacketBlock) -> Int64:
    """A number for the pair of ends of each packet, whichever of them sent it."""
    return (
        _mixed(block.src_high, block.src_low, block.src_port.astype(np.uint64))
        + _mixed(block.dst_high, block.dst_low, block.dst_port.astype(np.uint64))
    ).view(np.int64)


def _mixed(*columns: UInt64) -> UInt64:
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column, factor in zip(columns, _MIX, strict=True):
        mixed = (mixed ^ column) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _payloads(block: PacketBlock) -> pa.Array:
    """The payloads, copied once: those of the data that stand between them are left out."""
    order = np.argsort(block.payload, kind="stable")
    begin = block.payload[order]
    edges = np.empty(2 * len(block) + 1, np.int64)
    edges[0:-1:2], edges[1::2] = begin, begin + block.captured[order]
    edges[-1] = edges[-2] if len(block) else 0
    every = pa.Array.from_buffers(
        pa.large_binary(), 2 * len(block), [None, pa.py_buffer(edges), pa.py_buffer(block.data)]
    )
    place = np.empty(len(block), np.int64)
    place[order] = np.arange(len(block)) * 2
    return every.take(pa.array(place)).cast(pa.binary())


class RowSource:
    """The `PacketSource` over rows that come in order of `position`, `capture` and `number`."""

    def __init__(self, batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> None:
        self.names = list(names)
        self.total_bytes: int | None = None
        self._chunks = _chunks(batches)
        self._opening: list[tuple[Int64, Int64]] = []

    def read(self, reserve: int) -> PacketBlock | None:
        """The next packets, with `reserve` free bytes before them; None at the end."""
        chunk = next(self._chunks, None)
        if chunk is None:
            return None
        block = _block(chunk, reserve)
        self._note_openings(block, _ints(chunk, "connection"), _ints(chunk, "position"))
        return block

    def close(self) -> None:
        """There is nothing to give back."""

    @property
    def openings(self) -> tuple[Int64, Int64]:
        """Identity and position of packets, all first ones of connections among them; sorted."""
        none = np.zeros(0, np.int64)
        who, where = zip((none, none), *self._opening, strict=True)
        key, position = np.concatenate(who), np.concatenate(where)
        order = np.argsort(key)
        return key[order], position[order]

    def _note_openings(self, block: PacketBlock, connection: Int64, position: Int64) -> None:
        first = np.unique(connection, return_index=True)[1]
        some = np.union1d(first, np.flatnonzero(block.flags & SYN))
        self._opening.append((identity(block.capture, block.number)[some], position[some]))


def identity(capture: NDArray[np.integer], number: Int64) -> Int64:
    """File and number of packets as one number, 2^23 files of 2^40 packets."""
    return capture.astype(np.int64) << 40 | number


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Batches put together, so that a block is worth its while."""
    chunk: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        if len(batch):
            chunk.append(batch)
            size, rows = size + batch.column("payload").nbytes, rows + len(batch)
        if size >= BLOCK_BYTES or rows >= BLOCK_ROWS:
            yield chunk
            chunk, size, rows = [], 0, 0
    if chunk:
        yield chunk


def _ints(chunk: Sequence[pa.RecordBatch], name: str) -> Int64:
    column: Int64 = np.concatenate([batch.column(name).to_numpy() for batch in chunk])
    return column


def _block(chunk: Sequence[pa.RecordBatch], reserve: int) -> PacketBlock:
    heads = np.concatenate([_bytes(batch.column("head"))[0].view(HEAD) for batch in chunk])
    pieces, sizes = zip(*(_bytes(batch.column("payload")) for batch in chunk), strict=True)
    captured = np.concatenate(sizes)
    fields: dict[str, Any] = {name: np.ascontiguousarray(heads[name]) for name in _FIELDS}
    front, back = np.empty(reserve, np.uint8), np.zeros(PAD, np.uint8)
    return PacketBlock(
        data=np.concatenate([front, *pieces, back]),
        reserve=reserve,
        capture=_ints(chunk, "capture").astype(np.int32),
        number=_ints(chunk, "number"),
        payload=reserve + np.cumsum(captured) - captured,
        captured=captured.astype(np.int32),
        packets_seen=len(heads),
        bytes_read=int(captured.sum()),
        **fields,
    )


def _bytes(column: pa.Array) -> tuple[NDArray[np.uint8], Int64]:
    """The bytes of a column of binary values in a row, and how many are of each."""
    _, offsets, data = column.buffers()
    begin, end = column.offset, column.offset + len(column) + 1
    edges = np.frombuffer(offsets, np.int32)[begin:end]
    return np.frombuffer(data, np.uint8)[edges[0] : edges[-1]], np.diff(edges).astype(np.int64)
