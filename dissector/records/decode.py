"""Decodes one `records` field into Python objects: `decode_records`.

It uses the column readers, and creates objects from their columns. It is meant for a few batches,
and for bytes without a capture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from dissector.arguments import buffer
from dissector.byteview import ContiguousBytes
from dissector.records.arrow import control_types, kind_of
from dissector.records.batch_headers import CODECS, FRONT, TIMESTAMP_TYPES, Batches
from dissector.records.batch_reader import read_batches
from dissector.records.record_columns import Records, read_views
from dissector.records.record_reader import read_records


@dataclass(frozen=True, slots=True)
class Record:
    """One record."""

    offset: int
    timestamp: int
    """ms since 1970; -1 if absent."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str | bytes, bytes | None], ...] = ()
    """Keys as text, or as bytes if they are not UTF-8."""
    kind: str | None = None
    """Type of a control record: commit, abort, leader_change, …"""


@dataclass(frozen=True, slots=True)
class Batch:
    """One record batch, or outermost message of magic 0 and 1. Unknown numbers are -1."""

    position: int
    """Offset of the batch in the data."""
    size: int
    """Bytes, including the header."""
    magic: int
    """0, 1 or 2; -1 for bytes that are not a batch, which `problem` describes."""
    base_offset: int = -1
    """Offset of the first record; -1 for a wrapper, which has the offset of its last record."""
    last_offset: int = -1
    record_count: int = -1
    """Record count of the header; -1 for a wrapper."""
    codec: str | None = None
    """none, gzip, snappy, lz4 or zstd; None for an unknown codec."""
    timestamp_type: str | None = None
    """create_time or log_append_time; None for magic 0."""
    base_timestamp: int = -1
    """ms; the delete horizon if `has_delete_horizon`."""
    max_timestamp: int = -1
    leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    is_control: bool = False
    has_delete_horizon: bool = False
    crc: int = 0
    crc_ok: bool | None = None
    """None if the batch is cut."""
    truncated: bool = False
    """Whether the batch is cut; then it has no records."""
    problem: str | None = None
    """Description of the parts that could not be read."""
    records: tuple[Record, ...] = ()


def decode_records(data: bytes) -> list[Batch]:
    """The batches of one `records` field, or of a log segment, with their records.

    Damage does not raise an exception: intact parts are returned, and `crc_ok`, `truncated` and
    `problem` report the damage. Bytes that are not a batch are in the list with magic -1. Raises
    DissectorError if `data` is not bytes.
    """
    data = buffer("data", data)
    space = ContiguousBytes.of(data)
    batches = read_batches(space, np.array([0]), np.array([len(data)]))
    records: list[list[Record]] = [[] for _ in range(len(batches))]
    details: list[list[str]] = [[] for _ in range(len(batches))]
    for group in read_records(space, batches):
        for index, problem in group.problems:
            details[index].append(problem.detail)
        owner = group.columns.batch.tolist()
        for index, record in zip(owner, _objects(group, batches), strict=True):
            records[index].append(record)
    rows = {address: index for index, address in enumerate(batches.address.tolist())}
    decoded: list[Batch] = []
    for _, problem in batches.problems:
        position, size = problem.offset or 0, problem.bytes or 0
        if position in rows:
            details[rows[position]].append(problem.detail)
        else:
            decoded.append(_unread(position, size, problem.detail))
    for index in range(len(batches)):
        detail = "; ".join(details[index]) or None
        decoded.append(_batch(batches, index, detail, tuple(records[index])))
    decoded.sort(key=lambda batch: batch.position)
    end = max((batch.position + batch.size for batch in decoded), default=0)
    if 0 < len(data) - end < FRONT:  # the beginning of a batch
        decoded.append(_unread(end, len(data) - end, None))
    return decoded


_COMMON = (
    "size", "magic", "base_offset", "last_offset", "record_count", "base_timestamp",
    "max_timestamp", "leader_epoch", "producer_id", "producer_epoch", "base_sequence",
    "is_transactional", "is_control", "has_delete_horizon", "crc", "truncated",
)  # fmt: skip
"""Columns of `Batches` that `Batch` has unchanged."""


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
    """Bytes that are not a batch; without a problem, the beginning of a batch that is cut."""
    return Batch(position, size, -1, truncated=problem is None, problem=problem)


def _objects(records: Records, batches: Batches) -> Iterator[Record]:
    columns, buffers = records.columns, records.buffers
    headers = zip(
        read_views(buffers, columns.header_key),
        read_views(buffers, columns.header_value),
        strict=True,
    )
    for offset, timestamp, key, value, count, control in zip(
        columns.offset.tolist(),
        columns.timestamp.tolist(),
        read_views(buffers, columns.key),
        read_views(buffers, columns.value),
        columns.header_count.tolist(),
        control_types(columns, batches).tolist(),
        strict=True,
    ):
        pairs = tuple((_text(key or b""), value) for key, value in islice(headers, count))
        yield Record(offset, timestamp, key, value, pairs, kind_of(control))


def _text(key: bytes) -> str | bytes:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key
