"""Whole frames, header and body, as a `Message` or an explanation.

A frame is the bytes after the 4-byte size. A request contains its API and version. A response does
not: the caller passes those of the request.

Request header 0 is API key, version and correlation id. Header 1 adds the client id, which is not
compact even in flexible versions: a broker must be able to read it in any version (KIP-482). Header
2 adds a tagged section. Response header 0 is the correlation id; header 1 adds a tagged
section. The API's page states which header a version has.

One response is not in the requested version: a broker that does not know the version of an
ApiVersions request responds in version 0 with error 35, so that the client can read it (KIP-511).
The length distinguishes them, because it is fixed for a version 0 body.

Bytes after the last field are no error: see `dissector.protocol.limits`.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from dissector import arguments
from dissector.arrays import value
from dissector.protocol.explain import BodyReader, Explanation
from dissector.protocol.limits import is_accepted
from dissector.protocol.notation import Direction, Field, Layout
from dissector.protocol.registry import api_name, layout
from dissector.protocol.tree_decoder import decode, decode_fields

Buffer: TypeAlias = bytes | bytearray | memoryview

API_VERSIONS: Final = 18
UNSUPPORTED_VERSION: Final = 35

_REQUEST_HEADER: Final = (
    Field("api_key", "int16"),
    Field("api_version", "int16"),
    Field("correlation_id", "int32"),
)
_CLIENT_ID: Final = Field("client_id", "string", nullable=True)
_RESPONSE_HEADER: Final = (Field("correlation_id", "int32"),)
_PREFIX: Final = "header."
_INT16: Final = (-(2**15), 2**15 - 1)


@value
class Message:
    """One request or response."""

    direction: Direction
    api_key: int
    api: str
    """Name of the API."""
    api_version: int
    """The version of the body."""
    correlation_id: int
    client_id: str | None
    """None in a response, and if the client sent none."""
    body: dict[str, Any]
    """Values by the names of Kafka's protocol guide, such as ``topic_data``. Structs are dicts, and
    arrays are lists of them."""
    surplus: bytes = b""
    """Bytes after the last field, which brokers and clients ignore."""


def decode_request(frame: Buffer) -> Message:
    """Decode a request.

    Raises UnknownVersion, or DecodeError with path and offset; DissectorError if these are not
    bytes.
    """
    reader = BodyReader(arguments.buffer("frame", frame))
    return _message(request_header(reader), reader)


def decode_response(frame: Buffer, api_key: int, api_version: int) -> Message:
    """Decode the response to a request with this API and version.

    Raises UnknownVersion, or DecodeError with path and offset; DissectorError if these are not
    bytes, or the numbers are not 16-bit integers.
    """
    api_key = arguments.integer("api_key", api_key, *_INT16)
    api_version = arguments.integer("api_version", api_version, *_INT16)
    reader = BodyReader(arguments.buffer("frame", frame))
    return _message(response_header(reader, api_key, api_version), reader)


def explain_request(frame: Buffer) -> Explanation:
    """All fields of a request, starting with the header's: ``header.client_id``. Never raises."""
    reader = BodyReader(bytes(frame))
    return reader.explanation(lambda: _body(reader, request_header(reader)))


def explain_response(frame: Buffer, api_key: int, api_version: int) -> Explanation:
    """All fields of a response, starting with the header's. Never raises."""
    reader = BodyReader(bytes(frame))
    return reader.explanation(lambda: _body(reader, response_header(reader, api_key, api_version)))


def refusal(frame: Buffer) -> str:
    """The reason why bytes are not accepted as a request."""
    explanation = explain_request(frame)
    if explanation.error is None:
        return "it can be decoded as a request, but there is too little evidence that it is one"
    api_key, version = (event.value for event in explanation.events[:2])
    name = api_name(api_key) or f"API {api_key}"
    return f"decoded as a {name} v{version} request: {explanation.error}"


def is_fallback(frame: Buffer) -> bool:
    """Whether an ApiVersions response is in version 0 because of KIP-511.

    It has error 35, and exactly the length of a version 0 body with its number of APIs: correlation
    id, error code, count, and six bytes per API.
    """
    count = int.from_bytes(frame[6:10], "big", signed=True)
    error_code = int.from_bytes(frame[4:6], "big", signed=True)
    return error_code == UNSUPPORTED_VERSION and len(frame) == 10 + 6 * count


def request_header(reader: BodyReader) -> Layout:
    """Read the header of a request; returns the layout of its body."""
    reader.fields(_REQUEST_HEADER, False, _PREFIX)
    api_key, api_version = reader.events[0].value, reader.events[1].value
    body_layout = layout(api_key, Direction.REQUEST, api_version)
    if body_layout.header_version >= 1:
        client_id(reader)
    if body_layout.header_version >= 2:
        reader.tags({}, _PREFIX)
    return body_layout


def client_id(reader: BodyReader) -> None:
    """Read the client id, whose position does not depend on the version."""
    reader.fields((_CLIENT_ID,), False, _PREFIX)


def response_header(reader: BodyReader, api_key: int, api_version: int) -> Layout:
    """Read the header of a response; returns the layout of its body."""
    if api_key == API_VERSIONS and is_fallback(reader.data):
        api_version = 0
    body_layout = layout(api_key, Direction.RESPONSE, api_version)
    reader.fields(_RESPONSE_HEADER, False, _PREFIX)
    if body_layout.header_version >= 1:
        reader.tags({}, _PREFIX)
    return body_layout


def _body(reader: BodyReader, body_layout: Layout) -> None:
    start = reader.at
    reader.fields(body_layout.fields, body_layout.flexible)
    if not is_accepted(body_layout.direction, reader.at - start, reader.left):
        reader.finish()


def _message(body_layout: Layout, reader: BodyReader) -> Message:
    header = {event.name: event.value for event in reader.events}
    data, start = reader.data, reader.at
    body, end = decode_fields(body_layout, data, start)
    if not is_accepted(body_layout.direction, end - start, len(data) - end):
        body = decode(body_layout, data, start)  # which raises the error
    return Message(
        body_layout.direction,
        body_layout.api_key,
        body_layout.api,
        body_layout.version,
        header["correlation_id"],
        header.get("client_id"),
        body,
        data[end:],
    )
