"""Batches for the tests of records: from writers that are not ours, and by hand, byte for byte."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import aiokafka.record.default_records
import aiokafka.record.legacy_records
import kafka.record.default_records
import kafka.record.legacy_records
from crc32c import crc32c
from hypothesis import strategies as st
from kio.records.schema import NewRecordBatch, RecordHeader
from kio.records.schema import Record as KioRecord
from kio.records.writers import write_new_batch
from kio.static.primitive import i8, i16, i32, i64

from dissector.records.decode import Record, decode_records
from tests.kafka_bytes import varint

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
LARGE = 1 << 30


def wrapped(number: int) -> int:
    """In 64 bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


@dataclass(frozen=True)
class Entry:
    """The content of a record."""

    timestamp: int
    key: bytes | None = None
    value: bytes | None = b""
    headers: tuple[tuple[str, bytes | None], ...] = ()


def kafka_python(magic: int, codec: int, entries: Sequence[Entry]) -> bytes:
    if magic == 2:
        builder = kafka.record.default_records.DefaultRecordBatchBuilder(
            2, codec, False, -1, -1, -1, LARGE
        )
    else:
        builder = kafka.record.legacy_records.LegacyRecordBatchBuilder(magic, codec, LARGE)
    return _filled(builder, magic, entries)


def aio_kafka(magic: int, codec: int, entries: Sequence[Entry]) -> bytes:
    if magic == 2:
        builder = aiokafka.record.default_records.DefaultRecordBatchBuilder(
            2, codec, 0, -1, -1, -1, LARGE
        )
    else:
        builder = aiokafka.record.legacy_records.LegacyRecordBatchBuilder(magic, codec, LARGE)
    return _filled(builder, magic, entries)


def _filled(builder, magic: int, entries: Sequence[Entry]) -> bytes:
    for offset, entry in enumerate(entries):
        timed = [entry.timestamp] if magic else [-1]
        headers = [list(entry.headers)] if magic == 2 else []
        assert builder.append(offset, *timed, entry.key, entry.value, *headers) is not None
    return bytes(builder.build())


def kio(entries: Sequence[Entry], offsets: Sequence[int], **fields: int) -> bytes:
    """Seconds only: kio takes times as floats."""
    records = tuple(
        KioRecord(
            attributes=i8(0),
            timestamp=datetime.fromtimestamp(entry.timestamp // 1000, UTC),
            offset=i64(offset),
            key=entry.key,
            value=entry.value,
            headers=tuple(RecordHeader(key=k.encode(), value=v) for k, v in entry.headers),
        )
        for entry, offset in zip(entries, offsets, strict=True)
    )
    buffer = io.BytesIO()
    write_new_batch(
        buffer,
        NewRecordBatch(
            producer_id=i64(fields.get("producer_id", -1)),
            producer_epoch=i16(fields.get("producer_epoch", -1)),
            partition_leader_epoch=i32(fields.get("leader_epoch", 0)),
            base_sequence=i32(fields.get("base_sequence", -1)),
            attributes=i16(fields.get("attributes", 0)),
            records=records,
        ),
    )
    return buffer.getvalue()


WRITERS: dict[str, Callable[[int, int, Sequence[Entry]], bytes]] = {
    "kafka-python": kafka_python,
    "aiokafka": aio_kafka,
}


def written(magic: int) -> list[tuple[str, int]]:
    """Every writer of a magic, with the codecs that it writes there."""
    codecs = range(5) if magic == 2 else range(4)
    # aiokafka refuses lz4 with magic 0, for the sake of KAFKA-3160.
    return [
        (name, codec)
        for name in WRITERS
        for codec in codecs
        if (name, magic, codec) != ("aiokafka", 0, 3)
    ]


def read(data: bytes) -> list[Record]:
    """All records, where nothing is wrong with them."""
    batches = decode_records(data)
    assert all(batch.crc_ok and batch.problem is None for batch in batches), batches
    return [record for batch in batches for record in batch.records]


def expected(magic: int, entries: Sequence[Entry]) -> list[Record]:
    """The expected values of `_filled`."""
    return [
        Record(
            offset,
            entry.timestamp if magic else -1,
            entry.key,
            entry.value,
            entry.headers if magic == 2 else (),
        )
        for offset, entry in enumerate(entries)
    ]


def binary(longest: int) -> st.SearchStrategy[bytes]:
    """Byte strings, many of them about as long as an inline view or a one-byte varint reaches."""
    lengths = st.sampled_from([0, 12, 13, 63, 64, 8_191, 8_192, longest])
    repeated = st.builds(
        lambda part, length: (part * length)[:length], st.binary(max_size=3), lengths
    )
    return st.binary(max_size=20) | repeated


def entries(*, seconds: bool = False, most: int = 8) -> st.SearchStrategy[list[Entry]]:
    unit = 1000 if seconds else 1
    return st.lists(
        st.builds(
            Entry,
            timestamp=st.integers(0, 4_000_000_000_000 // unit).map(lambda value: value * unit),
            key=st.none() | binary(200),
            value=st.none() | binary(20_000),
            headers=st.lists(
                st.tuples(st.text(max_size=10), st.none() | binary(100)), max_size=4
            ).map(tuple),
        ),
        min_size=1,
        max_size=most,
    )


# By hand: the layouts as KIP-98 and the protocol guide write them.


def string(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def record(
    offset_delta: int = 0,
    timestamp_delta: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"",
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> bytes:
    body = b"\x00" + varint(timestamp_delta) + varint(offset_delta) + string(key) + string(value)
    body += varint(len(headers)) + b"".join(string(k) + string(v) for k, v in headers)
    return varint(len(body)) + body


def batch(
    payload: bytes,
    count: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    attributes: int = 0,
    last_delta: int | None = None,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    delta = max(count - 1, 0) if last_delta is None else last_delta
    covered = struct.pack(
        ">hiqqqhii", attributes, delta, base_timestamp, max_timestamp, *producer, count
    )
    covered += payload
    front = struct.pack(">qiibI", base_offset, 9 + len(covered), leader_epoch, 2, crc32c(covered))
    return front + covered


def message(
    magic: int,
    value: bytes | None,
    key: bytes | None = None,
    *,
    offset: int = 0,
    attributes: int = 0,
    timestamp: int = -1,
) -> bytes:
    covered = struct.pack(">bb", magic, attributes)
    covered += struct.pack(">q", timestamp) if magic else b""
    for part in (key, value):
        covered += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, 4 + len(covered), zlib.crc32(covered)) + covered
