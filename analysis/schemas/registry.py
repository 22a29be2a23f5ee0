"""Schemas of keys and values in Confluent's framing, from a registry or a folder.

A folder has a file per schema, by its id: ``42.avsc`` with an Avro schema, or ``42.json`` with what
the registry returns for ``/schemas/ids/42``; with ``?format=serialized`` if it is Protobuf. Files
that a Protobuf schema imports are ``SUBJECT-VERSION.json``, by the references in its response. Avro
is decoded with fastavro, Protobuf in `analysis.schemas.protobuf`; the payload of a JSON schema is
JSON already. Avro schemas with references are not decoded.
"""

from __future__ import annotations

import json
import struct
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import urlopen

from analysis.extras import needed
from dissector.errors import DissectorError
from dissector.packets.formats.remote import is_url

if TYPE_CHECKING:
    from analysis.schemas.protobuf import ProtobufSchema

MOST_DEPTH: Final = 32
"""Maximum number of levels of references."""
TIMEOUT: Final = 10
"""Seconds to wait for the registry."""
_NOT_FOUND: Final = 404
_INVALID: Final = (
    ValueError, TypeError, KeyError, IndexError, EOFError, OverflowError, RecursionError,
    struct.error,
)  # fmt: skip
"""Errors of fastavro for data that does not match the schema."""


class SchemaRegistry:
    """Decodes payloads by the id of their schema; a `Decode` of `dissector.embedded.records`.

    `place`: a folder, or the URL of a registry. Raises DissectorError if it is neither, or if the
    package fastavro is missing.
    """

    def __init__(self, place: str) -> None:
        with needed("schemas"):
            import fastavro
        self._fastavro: Any = fastavro
        self._place = place.rstrip("/")
        if not is_url(place) and not Path(place).is_dir():
            raise DissectorError(
                f"{place} is neither a folder of schemas nor the URL of a registry"
            )
        self._parsed = cache(self._parse)

    def __call__(self, number: int, payload: bytes) -> str | None:
        """The payload as JSON; None if the schema is unknown or does not match.

        Raises DissectorError if the registry does not respond, or a schema is invalid.
        """
        kind, schema = self._parsed(number)
        if kind == "JSON":
            return payload.decode(errors="replace")
        if kind == "PROTOBUF":
            return cast("ProtobufSchema", schema)(payload)
        if kind != "AVRO":
            return None
        source = BytesIO(payload)
        try:
            value = self._fastavro.schemaless_reader(source, schema)
        except _INVALID:
            return None
        return json.dumps(value, default=_text, ensure_ascii=False) if not source.read(1) else None

    def _parse(self, number: int) -> tuple[str, Any]:
        """Type and parsed schema; an empty type for a schema that cannot be used."""
        path = f"schemas/ids/{number}"
        stored = self._stored(str(number), path)
        if stored is None:
            return "", None
        kind = stored.get("schemaType", "AVRO")
        try:
            if kind == "PROTOBUF":
                return kind, self._protobuf(str(number), path)
            if kind != "AVRO" or stored.get("references"):
                return kind if kind == "JSON" else "", None
            return kind, self._fastavro.parse_schema(json.loads(stored["schema"]))
        except (*_INVALID, self._fastavro.schema.SchemaParseException, DissectorError) as error:
            raise DissectorError(f"schema {number} in {self._place} is invalid: {error}") from error

    def _protobuf(self, name: str, path: str) -> ProtobufSchema:
        """A schema with all files that it imports."""
        from analysis.schemas.protobuf import ProtobufSchema

        imported: dict[str, str] = {}
        schema = self._serialized(name, path, imported)
        return ProtobufSchema(schema, imported)

    def _serialized(self, name: str, path: str, imported: dict[str, str], depth: int = 0) -> str:
        """The descriptor of a schema. Adds those of its references to `imported`, by name."""
        stored = self._stored(name, f"{path}?format=serialized")
        if stored is None or depth > MOST_DEPTH:
            raise DissectorError(f"the referenced schema {name} is missing")
        for each in stored.get("references") or ():
            if each["name"] not in imported:
                subject, version = quote(each["subject"], safe=""), int(each["version"])
                schema = self._serialized(
                    f"{subject}-{version}", f"subjects/{subject}/versions/{version}", imported,
                    depth + 1,
                )  # fmt: skip
                imported[each["name"]] = schema
        return cast(str, stored["schema"])

    def _stored(self, name: str, path: str) -> dict[str, Any] | None:
        """A schema: from the file with this name in the folder, or from this path of the registry.

        None if there is none. Raises DissectorError.
        """
        if is_url(self._place):
            return self._fetched(f"{self._place}/{path}", name)
        plain = Path(self._place, f"{name}.avsc")
        if plain.is_file():
            return {"schema": plain.read_text()}
        response = Path(self._place, f"{name}.json")
        return self._response(response.read_bytes(), name) if response.is_file() else None

    def _fetched(self, url: str, name: str) -> dict[str, Any] | None:
        try:
            with urlopen(url, timeout=TIMEOUT) as response:
                return self._response(response.read(), name)
        except HTTPError as error:
            if error.code == _NOT_FOUND:
                return None
            raise DissectorError(f"{url}: status {error.code} {error.reason}") from error
        except (URLError, OSError) as error:
            raise DissectorError(f"{url}: {getattr(error, 'reason', error)}") from error

    def _response(self, text: bytes, name: str) -> dict[str, Any]:
        """The response of a registry. Raises DissectorError if it is not one."""
        try:
            response = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DissectorError(f"schema {name} in {self._place} is not JSON") from error
        if not isinstance(response, dict) or not isinstance(response.get("schema"), str):
            raise DissectorError(f"schema {name} in {self._place} has no field schema")
        return response


def _text(value: Any) -> str:
    """A value that JSON lacks: bytes in hex; dates, decimals and UUIDs as text."""
    return value.hex() if isinstance(value, bytes) else str(value)
