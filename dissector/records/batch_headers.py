"""Reads batch headers into columns.

A `records` field contains batches, one after the other (KIP-98; before it, message sets). All
formats have the same first 17 bytes:

    offset   type    magic 2                  magic 0 and 1
         0   int64   base offset              offset of the message, or of a wrapper's last
         8   int32   bytes that follow        bytes that follow
        12   int32   partition leader epoch   CRC-32 of all bytes after it
        16   int8    magic                    magic

So a compiled loop follows the batches of all formats. Then the bytes after the magic are read for
all batches of a format at once:

    magic 2   17 crc (CRC-32C of all bytes after it), 21 attributes, 23 last offset delta,
              27 base timestamp, 35 max timestamp, 43 producer id, 51 producer epoch,
              53 base sequence, 57 record count, 61 records
    magic 1   17 attributes, 18 timestamp, 26 key and value, with an int32 length each
    magic 0   17 attributes, 18 key and value

In magic 0 and 1 a row is an outermost message: a record, or a wrapper of a compressed set.

Only headers are read; nothing is decompressed or copied. A broker fills a Fetch response up to the
limit of bytes and cuts the last batch (KIP-74). A cut batch is a row with `truncated`; if fewer
than 17 bytes are present, it is only counted. Bytes that are not a batch end their field.
"""

from __future__ import annotations

import dataclasses
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissector import _native
from dissector.arrays import arrays
from dissector.byteview import ByteView
from dissector.packets.block import Int32, Int64, UInt32
from dissector.problems import Problem

OVERHEAD = 12
"""Bytes of a batch that its own length does not count."""
FRONT = 17
"""First bytes of a batch, up to its length and format."""
CRC_END = 21
"""End of the checksum of magic 2; that of magic 0 and 1 is in the first bytes."""
MIN_SIZE = (26, 34, 61)
"""Size of an empty batch, by magic."""
_MIN_SIZE = np.array(MIN_SIZE)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""Name of each codec, by the low three bits of the attributes."""
TIMESTAMP_TYPES = ("create_time", "log_append_time")
LOG_APPEND = 1
"""Timestamp type of batches whose records have the time of the batch (KIP-32)."""

_TIMESTAMP_TYPE, _TRANSACTIONAL, _CONTROL, _DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40


@arrays
class Batches:
    """Batches of n `records` fields: arrays of shape (rows,), by field, then by address.

    Absent values are -1: fields that the format does not have, and fields that are cut.
    """

    field: Int64
    """Index of the field that contains the batch."""
    address: Int64
    """Address of its first byte."""
    size: Int64
    """Bytes by its length field, including the header."""
    readable: Int64
    """How many of these bytes are present."""
    magic: NDArray[np.int8]
    base_offset: Int64
    """Offset of the first record; -1 for a wrapper, which has the offset of its last record."""
    last_offset: Int64
    record_count: Int32
    """By the header; 1 for an uncompressed message, -1 for a wrapper."""
    codec: NDArray[np.int8]
    """Index into `CODECS`; unknown codecs are up to 7."""
    timestamp_type: NDArray[np.int8]
    """0 create time, 1 log append time; -1 for magic 0."""
    base_timestamp: Int64
    """ms; base of the records' deltas. With `has_delete_horizon`, the delete horizon (KIP-534). -1
    for a wrapper, whose timestamp should be the largest one (KIP-32). kafka-node leaves it at 0."""
    max_timestamp: Int64
    """ms."""
    leader_epoch: Int32
    producer_id: Int64
    producer_epoch: NDArray[np.int16]
    base_sequence: Int32
    is_transactional: NDArray[np.bool_]
    """Like the next two, false if `codec` is -1: the attributes are cut."""
    is_control: NDArray[np.bool_]
    has_delete_horizon: NDArray[np.bool_]
    crc: UInt32
    """The stored checksum; 0 if it is cut."""
    crc_ok: NDArray[np.int8]
    """1 valid checksum, 0 invalid, -1 not verified, or cut."""
    truncated: NDArray[np.bool_]
    """Whether the batch is cut: by the fetch limit, or in the capture."""
    problems: list[tuple[int, Problem]] = dataclasses.field(default_factory=list)
    """Index of a field and a problem in it; offsets are relative to the field."""

    def __len__(self) -> int:
        return len(self.address)


@arrays
class BatchOffsets:
    """Positions of the batches of several fields: arrays of shape (rows,)."""

    field: Int64
    address: Int64
    size: Int64
    magic: NDArray[np.int8]
    broken: list[tuple[int, int]]
    """Field and address of bytes that are not a batch."""


def follow_sizes(space: ByteView, start: Int64, stop: Int64) -> BatchOffsets:
    """Follow the sizes through all fields, from `start` to `stop`."""
    start, stop = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(stop, np.int64)
    broken = np.empty(len(start), np.int64)
    room, count = -1, 2 * len(start)
    while room < count:
        room = count
        field, address, size, magic = np.empty((4, room), np.int64)
        count = _native.follow_batches(
            *space.pieces, start, stop, _MIN_SIZE, field, address, size, magic, broken
        )
    errors = np.flatnonzero(broken >= 0)
    return BatchOffsets(
        field[:count], address[:count], size[:count], magic[:count].astype(np.int8),
        list(zip(errors.tolist(), broken[errors].tolist(), strict=True)),
    )  # fmt: skip


def is_sane(magic: Int64, size: Int64) -> NDArray[np.bool_]:
    """Whether a batch of this magic can have this size."""
    known = magic < len(MIN_SIZE)
    least = _MIN_SIZE[np.where(known, magic, 0)]
    return known & np.asarray(size >= least, np.bool_)


def no_batch(space: ByteView, at: int, until: int) -> Problem:
    """The problem for bytes that are not a batch. Its offset is the address."""
    data = np.frombuffer(space.bytes(at, until - at), np.uint8)
    if not data.any():
        kind, detail = "zero_bytes", "zeros at the expected start of a batch"
    else:
        front = space.bytes(at, FRONT)
        magic, length = front[16], int.from_bytes(front[8:12], signed=True)
        kind, detail = "no_batch", f"not a batch: magic {magic}, length {length}"
    return Problem(stage="records", kind=kind, detail=detail, offset=at, bytes=until - at)


def read_headers(space: ByteView, chain: BatchOffsets, stop: Int64) -> Batches:
    """All fields of the headers; `stop[field]`: end address of a field's bytes."""
    n = len(chain.address)
    size = chain.size
    readable = np.minimum(size, stop[chain.field] - chain.address)

    def unknown(dtype: str) -> NDArray[Any]:
        return np.full(n, -1, dtype)

    def false() -> NDArray[np.bool_]:
        return np.zeros(n, np.bool_)

    offset = space.number(chain.address, "i8")
    batches = Batches(
        field=chain.field, address=chain.address, size=size, readable=readable, magic=chain.magic,
        base_offset=offset.copy(), last_offset=offset, record_count=unknown("i4"),
        codec=unknown("i1"), timestamp_type=unknown("i1"), base_timestamp=unknown("i8"),
        max_timestamp=unknown("i8"), leader_epoch=unknown("i4"), producer_id=unknown("i8"),
        producer_epoch=unknown("i2"), base_sequence=unknown("i4"), is_transactional=false(),
        is_control=false(), has_delete_horizon=false(), crc=np.zeros(n, np.uint32),
        crc_ok=unknown("i1"), truncated=readable < size,
    )  # fmt: skip
    newest = chain.magic == 2
    batches.last_offset[newest & (readable < 27)] = -1
    _read_messages(space, batches, np.flatnonzero(~newest))
    _read_batches(space, batches, np.flatnonzero(newest))
    return batches


def record_counts(space: ByteView, start: Int64, length: Int64) -> tuple[Int64, Int64]:
    """Index of the field, and number of records, of each batch in n `records` fields.

    The number is -1 for a wrapper, and 0 for a batch that its field cuts: no client reads its
    records. Faster than `read_headers`.
    """
    stop = start + np.maximum(length, 0)
    chain = follow_sizes(space, start, stop)
    is_whole = chain.address + chain.size <= stop[chain.field]
    count = np.zeros(len(chain.size), np.int64)
    newest = np.flatnonzero((chain.magic == 2) & is_whole)
    count[newest] = space.number(chain.address[newest] + 57, "i4")
    older = np.flatnonzero((chain.magic < 2) & is_whole)
    codec = space.number(chain.address[older] + FRONT, "u1") & 7
    count[older] = np.where(codec == 0, 1, -1)
    return chain.field, count


def _read_batches(space: ByteView, batches: Batches, rows: Int64) -> None:
    """Magic 2."""
    at, readable = batches.address[rows], batches.readable[rows]
    is_complete = bool((readable >= MIN_SIZE[2]).all())

    def put(column: NDArray[np.generic], offset: int, width: int) -> None:
        """Read a header field into the rows where it is not cut."""
        dtype = f"{column.dtype.kind}{width}"
        if is_complete:
            column[rows] = space.number(at + offset, dtype)
        else:
            uncut = readable >= offset + width
            column[rows[uncut]] = space.number(at[uncut] + offset, dtype)

    attributes = np.zeros(len(batches), np.int16)
    delta = np.zeros(len(batches), np.int32)
    put(batches.leader_epoch, 12, 4)
    put(batches.crc, 17, 4)
    put(attributes, 21, 2)
    put(delta, 23, 4)
    put(batches.base_timestamp, 27, 8)
    put(batches.max_timestamp, 35, 8)
    put(batches.producer_id, 43, 8)
    put(batches.producer_epoch, 51, 2)
    put(batches.base_sequence, 53, 4)
    put(batches.record_count, 57, 4)
    known = rows[readable >= 23]
    flags = attributes[known]
    batches.codec[known] = flags & 7
    batches.timestamp_type[known] = (flags & _TIMESTAMP_TYPE) != 0
    batches.is_transactional[known] = (flags & _TRANSACTIONAL) != 0
    batches.is_control[known] = (flags & _CONTROL) != 0
    batches.has_delete_horizon[known] = (flags & _DELETE_HORIZON) != 0
    known = rows[readable >= 27]
    batches.last_offset[known] += delta[known]


def _read_messages(space: ByteView, batches: Batches, rows: Int64) -> None:
    """Magic 0 and 1."""
    batches.crc[rows] = space.number(batches.address[rows] + 12, "u4")
    rows = rows[batches.readable[rows] > FRONT]
    attributes = space.number(batches.address[rows] + FRONT, "u1")
    codec = (attributes & 7).astype(np.int8)
    batches.codec[rows] = codec
    batches.record_count[rows] = np.where(codec == 0, 1, -1)
    batches.base_offset[rows[codec != 0]] = -1
    timed = (batches.magic[rows] == 1) & (batches.readable[rows] >= FRONT + 9)
    batches.timestamp_type[rows[timed]] = (attributes[timed] & _TIMESTAMP_TYPE) != 0
    rows = rows[timed]
    stamp = space.number(batches.address[rows] + 18, "i8")
    batches.max_timestamp[rows] = stamp
    is_first = (batches.codec[rows] == 0) | (batches.timestamp_type[rows] == LOG_APPEND)
    batches.base_timestamp[rows] = np.where(is_first, stamp, -1)


def take(batches: Batches, rows: Int64 | slice) -> Batches:
    """The batches with indexes `rows`, without problems."""
    columns = (each.name for each in fields(batches) if each.name != "problems")
    return Batches(*(getattr(batches, name)[rows] for name in columns))
