"""Record batches in a message: a line per batch, then its records, decoded for internal topics.

A message may contain thousands of records: the first records of the first batches are shown, and
the number of the others. Records have no offset in the message, since batches may be compressed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from dissector.embedded.contents import NOWHERE, TEXT, Contents, field_event
from dissector.errors import DecodeError
from dissector.protocol.explain import Explained
from dissector.protocol.structures import (
    METADATA_TOPIC,
    RECORD_TOPICS,
    StructureBytes,
    record_structures,
)
from dissector.records.decode import Batch, Record, decode_records
from dissector.secrets import is_secret_record

BATCHES: Final = 10
"""Maximum number of batches to show per field."""
RECORDS: Final = 20
"""Maximum number of records to show per batch."""

Decode: TypeAlias = Callable[[int, bytes], str | None]
"""Decodes the payload of a key or value by the id of its schema; None if it cannot."""
SCHEMA_FRAMING: Final = 5
"""Bytes of the framing of Confluent's serializers."""
PAYLOAD_BYTES: Final = 24
"""Maximum number of bytes of a payload that is not decoded."""
_SCHEMAS: Final = 1 << 24
"""Largest id of a schema that is recognised."""
_LONG: Final = 8
"""Bytes of a number of Kafka's LongSerializer."""

_FRONT: Final = 12
"""Bytes of the offset and length at the start of a batch."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def batches(data: bytes, topic: str | None, decode: Decode | None = None) -> Contents:
    """The batches of one `records` field of a partition of `topic`."""
    starts = list(_starts(data))
    events: list[Explained] = []
    end = starts[BATCHES] if len(starts) > BATCHES else len(data)
    for number, batch in enumerate(decode_records(data[:end])):
        events += _batch(batch, number, topic, decode)
    if len(starts) > BATCHES:
        events.append(field_event("…", f"{len(starts) - BATCHES:,} more", type=TEXT))
    many = "1 batch" if len(starts) == 1 else f"{len(starts):,} batches"
    return Contents(f"{many}, {len(data):,} bytes", events)


def _starts(data: bytes) -> Iterator[int]:
    """Positions of batches, or of outermost messages, up to the first invalid length."""
    at = 0
    while at + _FRONT <= len(data):
        yield at
        size = int.from_bytes(data[at + 8 : at + _FRONT], signed=True)
        if size <= 0:
            return
        at += _FRONT + size


def _batch(
    batch: Batch, number: int, topic: str | None, decode: Decode | None
) -> Iterator[Explained]:
    path = f"[{number}]"
    yield Explained(path, path, TEXT, _words(batch), batch.position, batch.size, 0)
    for index, record in enumerate(batch.records[:RECORDS]):
        yield from _record(record, f"{path}.[{index}]", topic, decode)
    left = len(batch.records) - RECORDS
    if left > 0:
        yield Explained(f"{path}.…", "…", TEXT, f"{left:,} more", NOWHERE, 0, 1)


def _words(batch: Batch) -> str:
    """A description of a batch, without properties that have their usual value."""
    if batch.magic < 0:
        return batch.problem or "cut"
    count = len(batch.records) if batch.record_count < 0 else batch.record_count
    first = batch.base_offset if batch.base_offset >= 0 else batch.last_offset
    parts = [
        f"magic {batch.magic}",
        f"{count:,} {'record' if count == 1 else 'records'}",
        f"offset {first}"
        if first == batch.last_offset
        else f"offsets {first} to {batch.last_offset}",
        batch.codec or "unknown codec",
    ]
    if batch.producer_id >= 0:
        parts.append(
            f"producer {batch.producer_id} epoch {batch.producer_epoch} "
            f"sequence {batch.base_sequence}"
        )
    parts += [
        word
        for word, is_so in (
            ("transactional", batch.is_transactional),
            ("control", batch.is_control),
            ("cut", batch.truncated),
            ("wrong checksum", batch.crc_ok is False),
            (batch.problem, batch.problem is not None),
        )
        if is_so and word
    ]
    return ", ".join(parts)


def _record(
    record: Record, path: str, topic: str | None, decode: Decode | None
) -> Iterator[Explained]:
    kind = f", {record.kind}" if record.kind else ""
    when = "" if record.timestamp < 0 else f", {_time(record.timestamp)}"
    name = path.rpartition(".")[2]
    yield Explained(path, name, TEXT, f"offset {record.offset}{when}{kind}", NOWHERE, 0, 1)
    of_key, of_value, may_be_secret = _parts(record, topic)
    yield from _bytes("key", record.key, of_key, path, decode)
    yield from _bytes("value", record.value, of_value, path, decode, may_be_secret)
    for header, value in record.headers:
        words = f"{_text(header)}: {_text(value)}"
        yield Explained(f"{path}.header", "header", TEXT, words, NOWHERE, 0, 2)


def _parts(
    record: Record, topic: str | None
) -> tuple[StructureBytes | None, StructureBytes | None, bool]:
    """The structures of a record's key and value, and whether its value may be a secret."""
    key, value = record.key, record.value
    if topic not in RECORD_TOPICS and is_secret_record(key, value):
        topic = METADATA_TOPIC
    try:
        parts = record_structures(topic, key, value, is_control=record.kind is not None)
    except DecodeError:
        parts = None, None
    return *parts, parts == (None, None) and topic == METADATA_TOPIC


def _bytes(
    name: str,
    data: bytes | None,
    part: StructureBytes | None,
    path: str,
    decode: Decode | None,
    may_be_secret: bool = False,
) -> Iterator[Explained]:
    """A key, a value or a header; followed by its fields if it is a structure."""
    path = f"{path}.{name}"
    if data is not None and part is not None:
        events = _explained(part, data)
        if events is not None:
            words = f"{part.name} version {part.version}"
            yield Explained(path, name, TEXT, words, NOWHERE, 0, 2)
            for event in events:
                yield Explained(
                    f"{path}.{event.path}", event.name, event.type, event.value, NOWHERE, 0,
                    event.depth + 3, event.roles,
                )  # fmt: skip
            return
        may_be_secret = True
    roles = ("secret",) if may_be_secret else ()
    value, type = _shown(data, decode)
    yield Explained(path, name, type, value, NOWHERE, 0, 2, roles)


def _explained(part: StructureBytes, data: bytes) -> list[Explained] | None:
    try:
        explanation = part.explain(data)
    except DecodeError:  # an unknown version
        return None
    return None if explanation.error else explanation.events


def schema_id(data: bytes) -> int | None:
    """The id in the framing of Confluent's serializers: a zero byte, the id, and the payload.

    A number of 8 bytes, such as a time in ms, may look the same. None if it is not the framing.
    """
    if len(data) <= SCHEMA_FRAMING or data[0] or len(data) == _LONG:
        return None
    number = int.from_bytes(data[1:SCHEMA_FRAMING])
    return number if 0 < number <= _SCHEMAS else None


def _framed(data: bytes, decode: Decode | None) -> str | None:
    """Framed bytes in words; None if they are not framed."""
    number = schema_id(data)
    if number is None:
        return None
    if decode is not None and (text := decode(number, data[SCHEMA_FRAMING:])) is not None:
        return f"schema {number}: {text}"
    payload = data[SCHEMA_FRAMING:]
    value, type = _shown(payload, None)
    if isinstance(value, str) and (type == TEXT or value.isprintable()):
        return f"schema {number}: {value}"
    return f"schema {number}, {len(payload):,} bytes: {payload[:PAYLOAD_BYTES].hex()}"


def _shown(data: bytes | None, decode: Decode | None) -> tuple[str | bytes | None, str]:
    """Bytes as text if they are UTF-8, and the type of the result: JSON needs no quotes."""
    if data is not None:
        if (text := _framed(data, decode)) is not None:
            return text, TEXT
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return data, "bytes"
        return text, TEXT if _is_json(text) else "string"
    return data, "bytes"


def _is_json(text: str) -> bool:
    """Whether a text is an object or an array of JSON."""
    if text[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _text(text: str | bytes | None) -> str:
    if text is None:
        return "null"
    return text if isinstance(text, str) else text.decode("utf-8", "backslashreplace")


def _time(ms: int) -> str:
    """ISO 8601, in UTC; the number itself if it is outside the calendar."""
    try:
        time = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms"
    return f"{time:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"
