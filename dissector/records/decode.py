"""One `records` field as Python objects: `decode_records`.

For a look at a few batches, and for whoever has bytes and no capture. It reads as the columns are
read; only the objects are made here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from dissector.packets.block import Bytes
from dissector.records.batch_headers import CODECS, TIMESTAMP_TYPES, Batches
from dissector.records.batch_reader import read_batches
from dissector.records.control import control_types, kind_of
from dissector.records.record_columns import RecordColumns, Spans
from dissector.records.record_reader import read_records
from dissector.streams.byteview import ContiguousBytes


@dataclass(frozen=True, slots=True)
class Record:
    """One record."""

    offset: int
    timestamp: int
    """ms since 1970; -1 for none."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str | bytes, bytes | None], ...] = ()
    """Keys as text, or as bytes where they are no UTF-8."""
    kind: str | None = None
    """Of a control record: commit, abort, leader_change, …"""


@dataclass(frozen=True, slots=True)
class Batch:
    """One record batch, or outermost message with magic 0 and 1. -1 for what it does not tell."""

    position: int
    """Where it begins in the data."""
    size: int
    """Bytes, all of its header included."""
    magic: int
    """0, 1 or 2; -1 for bytes that are no batch, of which `problem` says more."""
    base_offset: int
    """Offset of the first record; -1 for a wrapper, which tells its last one's."""
    last_offset: int
    record_count: int
    """As the header says; -1 for a wrapper."""
    codec: str | None
    """none, gzip, snappy, lz4 or zstd; None where there is no such codec."""
    timestamp_type: str | None
    """create_time or log_append_time; None for magic 0."""
    base_timestamp: int
    """ms; the delete horizon where `has_delete_horizon`."""
    max_timestamp: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    has_delete_horizon: bool
    crc: int
    crc_ok: bool | None
    """None where the batch is cut."""
    truncated: bool
    """Its end is not there; then it has no records."""
    problem: str | None
    """What of it could not be read."""
    records: tuple[Record, ...]


def decode_records(data: bytes) -> list[Batch]:
    """The batches of one `records` field, or of a log segment, each with its records.

    Damage raises nothing: what is good is there, and `crc_ok`, `truncated` and `problem` say what
    is not. Bytes that are no batch stand in the list with magic -1.
    """
    space = ContiguousBytes.of(data)
    batches = read_batches(space, np.array([0]), np.array([len(data)]))
    records: list[list[Record]] = [[] for _ in range(len(batches))]
    details: list[list[str]] = [[] for _ in range(len(batches))]
    for some in read_records(space, batches):
        for index, problem in some.problems:
            details[index].append(problem.detail)
        for part in some.parts:
            for index, record in zip(part.batch.tolist(), _objects(part, batches), strict=True):
                records[index].append(record)
    rows = {address: index for index, address in enumerate(batches.address.tolist())}
    found: list[Batch] = []
    for _, problem in batches.problems:
        position, size = problem.offset or 0, problem.bytes or 0
        if position in rows:
            details[rows[position]].append(problem.detail)
        else:
            found.append(_unread(position, size, problem.detail))
    for index in range(len(batches)):
        detail = "; ".join(details[index]) or None
        found.append(_batch(batches, index, detail, tuple(records[index])))
    found.sort(key=lambda batch: batch.position)
    if batches.cut_headers:
        end = max((batch.position + batch.size for batch in found), default=0)
        found.append(_unread(end, len(data) - end, None))
    return found


_COMMON = (
    "size", "magic", "base_offset", "last_offset", "record_count", "base_timestamp",
    "max_timestamp", "leader_epoch", "producer_id", "producer_epoch", "base_sequence",
    "is_transactional", "is_control", "has_delete_horizon", "crc", "truncated",
)  # fmt: skip
"""Columns of `Batches` that `Batch` has as they are."""


def _batch(batches: Batches, index: int, problem: str | None, records: tuple[Record, ...]) -> Batch:
    codec, timestamp_type = int(batches.codec[index]), int(batches.timestamp_type[index])
    crc_ok = int(batches.crc_ok[index])
    return Batch(
        position=int(batches.address[index]),
        codec=CODECS[codec] if 0 <= codec < len(CODECS) else None,
        timestamp_type=TIMESTAMP_TYPES[timestamp_type] if timestamp_type >= 0 else None,
        crc_ok=None if crc_ok < 0 else bool(crc_ok),
        problem=problem,
        records=records,
        **{name: getattr(batches, name)[index].item() for name in _COMMON},
    )


def _unread(position: int, size: int, problem: str | None) -> Batch:
    """Bytes that are no batch; without a problem, the front of one that is cut."""
    return Batch(
        position=position, size=size, magic=-1, base_offset=-1, last_offset=-1, record_count=-1,
        codec=None, timestamp_type=None, base_timestamp=-1, max_timestamp=-1, leader_epoch=-1,
        producer_id=-1, producer_epoch=-1, base_sequence=-1, is_transactional=False,
        is_control=False, has_delete_horizon=False, crc=0, crc_ok=None, truncated=problem is None,
        problem=problem, records=(),
    )  # fmt: skip


def _objects(part: RecordColumns, batches: Batches) -> Iterator[Record]:
    """The records of one part."""
    names, values = part.headers.key, part.headers.value
    headers = zip(_strings(part.row, names), _strings(part.row, values), strict=True)
    for offset, timestamp, key, value, count, control in zip(
        part.offset.tolist(),
        part.timestamp.tolist(),
        _strings(part.row, part.key),
        _strings(part.row, part.value),
        part.headers.count.tolist(),
        control_types(part, batches).tolist(),
        strict=True,
    ):
        theirs = tuple((_text(key or b""), value) for key, value in islice(headers, count))
        yield Record(offset, timestamp, key, value, theirs, kind_of(control))


def _strings(row: Bytes, spans: Spans) -> Iterator[bytes | None]:
    memory = row.data
    for at, length in zip(*(column.tolist() for column in spans), strict=True):
        yield None if length < 0 else bytes(memory[at : at + length])


def _text(key: bytes) -> str | bytes:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key
