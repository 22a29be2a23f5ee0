"""Writes `protocol_vectors.jsonl.gz`: messages that two other implementations encoded.

kio encodes every version of Kafka 4, and kafka-python some older ones. Each has its own writer, and
its own copy of Kafka's schemas. The values are random, and the same in every run.

    pip install kio==0.6.5 kafka-python==3.0.12
    python -m tools.write_protocol_vectors

A line has `source`, `api_key`, `direction`, `version`, `frame` (hex, after the 4-byte size),
`correlation_id`, `client_id` (of requests) and `body`; bytes are ``{"hex": ...}``.
"""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import io
import json
import pathlib
import random
import types
import typing
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any

import kio.schema.index
from kafka.protocol import admin, consumer, metadata, producer, sasl
from kafka.protocol.api_message import ApiMessage
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.serial._implicit_defaults import get_tagged_field_default
from kio.static.constants import EntityType
from kio.static.primitive import i32Timedelta

PACKAGES = (admin, consumer, metadata, producer, sasl)
"""Importing them makes kafka-python's messages known."""
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
RENAMED = {
    (52, 0): {"replica_id": "candidate_id", "replica_epoch": "candidate_epoch"},
    (52, 1): {
        "replica_id": "candidate_id",
        "replica_epoch": "candidate_epoch",
        "replica_directory_id": "candidate_directory_id",
    },
    (74, 0): {"config_resources": "client_metrics_resources", "resource_name": "name"},
}
"""Fields that a later version renamed: kio has the new name in all versions."""
TEXTS = ("", "t", "orders", "größe", "a" * 127, "b" * 130)


class Source:
    """Random values, by Kafka's type."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def count(self) -> int:
        return self.random.choice((0, 1, 1, 2))

    def is_null(self) -> bool:
        return self.random.random() < 0.25

    def of(self, kind: str) -> Any:
        pick = self.random
        if kind in BITS:
            top = 1 << BITS[kind] - 1
            return pick.choice((0, 1, -1, -top, top - 1, pick.randrange(-top, top)))
        match kind:
            case "bool":
                return pick.random() < 0.5
            case "uint16":
                return pick.choice((0, 9092, 0xFFFF))
            case "uint32":
                return pick.randrange(1 << 32)
            case "float64":
                return pick.choice((0.0, -1.5, 1e300))
            case "string":
                return pick.choice(TEXTS)
            case "bytes" | "records":
                return pick.randbytes(pick.choice((0, 1, 7, 200)))
            case "uuid":
                return uuid.UUID(bytes=pick.randbytes(16))
        raise ValueError(kind)


def plain(value: Any) -> Any:
    """A value as in the vectors."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, uuid.UUID):
        return urlsafe_b64encode(value.bytes).rstrip(b"=").decode()
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


def header_fields(source: Source, direction: str) -> dict[str, Any]:
    """Random fields of a header."""
    head = {"correlation_id": source.of("int32")}
    if direction == "request":
        head["client_id"] = None if source.is_null() else source.of("string")
    return head


def vector(
    source: str, key: int, direction: str, version: int, frame: bytes, head: dict[str, Any],
    body: Any,
) -> dict[str, Any]:  # fmt: skip
    """A line of the file."""
    known = {"source": source, "api_key": key, "direction": direction, "version": version}
    return {**known, "frame": frame.hex(), **head, "body": body}


# kio


def kio_entity(entity: type, source: Source) -> tuple[Any, dict[str, Any]]:
    """A random instance, and the expected result of decoding it."""
    hints = typing.get_type_hints(entity)
    given, expected = {}, {}
    for field in dataclasses.fields(entity):
        kind = field.metadata.get("kafka_type")
        value, want = kio_value(hints[field.name], kind, source)
        if "tag" in field.metadata:  # kio writes no tagged field that has its default
            default = get_tagged_field_default(field)
            if value == default or source.is_null():
                given[field.name] = default
                continue
        given[field.name], expected[kio_name(field.name, kind)] = value, want
    return entity(**given), expected


def kio_name(name: str, kind: str | None) -> str:
    """Kafka's name of a field: kio drops the unit of times, and appends _ to keywords of Python."""
    unit = "_ms" if kind and kind.startswith(("timedelta", "datetime")) else ""
    return name.removesuffix("_") + unit


def kio_renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(name, name): kio_renamed(each, names) for name, each in value.items()}
    return [kio_renamed(each, names) for each in value] if isinstance(value, list) else value


def kio_value(hint: Any, kind: str | None, source: Source) -> tuple[Any, Any]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        inner = next(each for each in typing.get_args(hint) if each is not types.NoneType)
        if kind == "uuid":  # null is how kio shows the uuid that is all zeros
            return kio_value(inner, kind, source)
        if kind == "datetime_i64" or source.is_null():
            return (None, -1) if kind == "datetime_i64" else (None, None)
        return kio_value(inner, kind, source)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        pairs = [kio_value(inner, kind, source) for _ in range(source.count())]
        return tuple(value for value, _ in pairs), [want for _, want in pairs]
    if dataclasses.is_dataclass(hint):
        return kio_entity(hint, source)  # type: ignore[arg-type]
    match kind:
        case "error_code":
            code = source.random.choice(list(ErrorCode))
            return code, code.value
        case "timedelta_i32" | "timedelta_i64":
            milliseconds = source.random.choice((0, 1, 30_000, 2**31 - 1))
            return i32Timedelta.parse(datetime.timedelta(milliseconds=milliseconds)), milliseconds
        case "datetime_i64":
            milliseconds = source.random.randrange(2**40)
            return EPOCH + datetime.timedelta(milliseconds=milliseconds), milliseconds
        case None:
            raise ValueError(hint)
    value = source.of(kind)
    return value, plain(value)


def kio_vectors() -> Iterator[dict[str, Any]]:
    for key, name in sorted(kio.schema.index.api_key_map.items()):
        for version in sorted(kio.schema.index.schema_name_map[name]):
            for direction in EntityType.request, EntityType.response:
                yield kio_vector(key, name, version, direction)


def kio_vector(key: int, name: str, version: int, direction: EntityType) -> dict[str, Any]:
    source = Source(f"kio {key} {version} {direction.name}")
    module = load_payload_module(key, version, direction)
    entity = next(
        each
        for each in vars(module).values()
        if isinstance(each, type) and getattr(each, "__type__", None) is direction
    )
    payload, body = kio_entity(entity, source)
    head = header_fields(source, direction.name)
    is_request = direction is EntityType.request
    request = {"request_api_key": key, "request_api_version": version} if is_request else {}
    header = entity.__header_schema__(**request, **head)
    frame = io.BytesIO()
    entity_writer(type(header))(frame, header)
    entity_writer(entity)(frame, payload)
    body = kio_renamed(body, RENAMED.get((key, version), {}))
    return vector("kio", key, direction.name, version, frame.getvalue(), head, body)


# kafka-python


def messages() -> Iterator[type[ApiMessage]]:
    """Every request and response class of kafka-python."""
    left = list(ApiMessage.__subclasses__())
    while left:
        message = left.pop()
        left += message.__subclasses__()
        if message.__dict__.get("_json") and message._class_version is None:
            yield message


def python_vectors(known: set[tuple[int, str, int]]) -> Iterator[dict[str, Any]]:
    missing = {}
    for message in messages():
        for version in range(message.max_version + 1):
            key = message.API_KEY, message.type, version
            if key not in known:
                missing[key] = message, version
    for key in sorted(missing):
        yield python_vector(*missing[key])


def python_vector(message: type[ApiMessage], version: int) -> dict[str, Any]:
    source = Source(f"kafka-python {message.API_KEY} {version} {message.type}")
    body = python_struct(message._struct, version, source)
    head = header_fields(source, message.type)
    flexible = message.flexible_version_q(version)
    header = message(version=version)
    header.with_header(**head)
    frame = header.encode_header(flexible=flexible)
    frame += message._struct.encode(body, version=version, compact=flexible, tagged=flexible)
    key, direction = message.API_KEY, message.type
    return vector("kafka-python", key, direction, version, frame, head, plain(body))


def python_struct(struct: Any, version: int, source: Source) -> dict[str, Any]:
    return {
        field.name: python_value(field, version, source)
        for field in struct._fields
        if field.for_version_q(version) and not (field.tagged_field_q(version) and source.is_null())
    }


def python_value(field: Any, version: int, source: Source) -> Any:
    if field.nullable_for_version_q(version) and source.is_null():
        return None
    if field.is_struct_array():
        return [python_struct(field, version, source) for _ in range(source.count())]
    if field.is_struct():
        return python_struct(field, version, source)
    if field.is_array():
        kind = field._type_str.removeprefix("[]")
        return [source.of(kind) for _ in range(source.count())]
    return source.of(field._type_str)


def main() -> None:
    known = list(kio_vectors())
    keys = {(each["api_key"], each["direction"], each["version"]) for each in known}
    known += python_vectors(keys)
    path = pathlib.Path(__file__).parents[1] / "tests" / "data" / "protocol_vectors.jsonl.gz"
    with gzip.GzipFile(path, "wb", 9, mtime=0) as file:
        for vector in known:
            file.write(json.dumps(vector, ensure_ascii=False).encode() + b"\n")
    print(len(known), path.stat().st_size)


if __name__ == "__main__":
    main()
