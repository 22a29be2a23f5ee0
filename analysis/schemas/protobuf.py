"""Protobuf in Confluent's framing: descriptors to messages to JSON.

A schema registry compiles a schema for clients: with ``format=serialized`` it returns a
FileDescriptorProto in base64. Confluent's own Python client requests that, too. So no compiler of
.proto files is needed: protobuf, which the project needs for OpenTelemetry anyway, is enough.

After the id of the schema, the payload has the path to the type of the message: the index of a
message in the file, then of a message nested in it, and so on.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Final

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError

from dissector.errors import DissectorError
from dissector.protocol.wire import unsigned_varint

MOST_INDEXES: Final = 32
"""Maximum number of levels of nested messages."""
_WELL_KNOWN: Final = re.compile(r"google/protobuf/(\w+)\.proto")


class ProtobufSchema:
    """Decodes the messages of one schema."""

    def __init__(self, schema: str, imported: Mapping[str, str]) -> None:
        """`schema`: its FileDescriptorProto in base64. `imported`: the same of imported files, by
        the names that import them, each file after those that it imports.

        Raises DissectorError if a descriptor is invalid or a dependency is missing.
        """
        self._pool = descriptor_pool.DescriptorPool()
        for name, content in imported.items():
            self._add(_descriptor(content), name)
        self._file = _descriptor(schema)
        self._add(self._file, self._file.name or "schema")

    def __call__(self, payload: bytes) -> str | None:
        """The message as JSON; None if the payload does not match the schema."""
        try:
            indexes, start = message_indexes(payload)
            name = self._type_name(indexes)
            message = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))()
            message.ParseFromString(payload[start:])
            value = json_format.MessageToDict(
                message, preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True, descriptor_pool=self._pool,
            )  # fmt: skip
        except (DissectorError, ValueError, IndexError, DecodeError, TypeError, json_format.Error):
            return None
        return json.dumps(value, ensure_ascii=False)

    def _type_name(self, indexes: list[int]) -> str:
        """The full name of a message type. Raises IndexError."""
        names = [self._file.package] if self._file.package else []
        messages = self._file.message_type
        for index in indexes:
            # Confluent's Java serializer counts the messages of the text: without the types that
            # a compiler makes for the entries of maps.
            message = [each for each in messages if not each.options.map_entry][index]
            names.append(message.name)
            messages = message.nested_type
        return ".".join(names)

    def _add(self, file: descriptor_pb2.FileDescriptorProto, name: str) -> None:
        """Add a file under the name by which others import it, and the files of Google."""
        file.name = name
        for imported in file.dependency:
            self._add_well_known(imported)
        try:
            self._pool.Add(file)
            self._pool.FindFileByName(name)
        except (TypeError, KeyError) as error:
            raise DissectorError(f"Protobuf schema {name}: {error}") from error

    def _add_well_known(self, name: str) -> None:
        """Add a file of the package protobuf, such as google/protobuf/timestamp.proto."""
        known = _WELL_KNOWN.fullmatch(name)
        if known is None or self._has(name):
            return
        try:
            module = import_module(f"google.protobuf.{known[1]}_pb2")
        except ModuleNotFoundError:
            return
        for imported in module.DESCRIPTOR.dependencies:
            self._add_well_known(imported.name)
        self._pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)

    def _has(self, name: str) -> bool:
        try:
            self._pool.FindFileByName(name)
        except KeyError:
            return False
        return True


def message_indexes(payload: bytes) -> tuple[list[int], int]:
    """The path to the type of a message, and where the message begins.

    The number of indexes, then each index, as zigzag varints. A single 0 is the path [0]. Raises
    DissectorError or ValueError.
    """
    count, at = _zigzag(payload, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= MOST_INDEXES:
        raise ValueError(f"{count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        if index < 0:
            raise ValueError(f"message index {index}")
        indexes.append(index)
    return indexes, at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = unsigned_varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _descriptor(content: str) -> descriptor_pb2.FileDescriptorProto:
    """Raises DissectorError, also for the text of a schema."""
    try:
        decoded = base64.b64decode(content, validate=True)
        return descriptor_pb2.FileDescriptorProto.FromString(decoded)
    except (binascii.Error, DecodeError) as error:
        raise DissectorError(
            "a Protobuf schema must be a descriptor, as the registry returns it with "
            "?format=serialized"
        ) from error
