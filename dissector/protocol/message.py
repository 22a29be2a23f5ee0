"""Whole frames: header and body, as one `Message` or as an explanation.

A frame is what follows the 4-byte size. A request tells its API and version; a response tells
neither, and whoever has the request says what they are.

Request header 0 is API key, version and correlation id; 1 adds the client id, which stays plain in
flexible versions because a broker must be able to read it whatever the version (KIP-482); 2 adds a
tagged section. Response header 0 is the correlation id, 1 adds a tagged section. Which of them a
version has is said on the API's page.

One response is not of the version that was asked for: a broker that does not know the version of an
ApiVersions request answers in version 0, with error 35, so that a client can read it (KIP-511). The
two are told apart by their length, which a version 0 body determines to the byte.

Bytes behind the last field are no error: see `dissector.protocol.surplus`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from dissector.errors import TooManyElements
from dissector.protocol.explain import BodyReader, Explanation
from dissector.protocol.notation import Direction, Field, Layout
from dissector.protocol.registry import api_name, layout
from dissector.protocol.surplus import is_accepted
from dissector.protocol.tree_decoder import decode, decode_fields
from dissector.protocol.wire import Prefix

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


@dataclass(frozen=True, slots=True)
class Message:
    """One request or response."""

    direction: Direction
    api_key: int
    api: str
    """Name of the API."""
    api_version: int
    """The version in which the body is written."""
    correlation_id: int
    client_id: str | None
    """None in a response, and where the client gave none."""
    body: dict[str, Any]
    """Field names as in Kafka's protocol guide; see `decode`."""
    surplus: bytes = b""
    """Bytes behind the last field, which brokers and clients ignore."""


def decode_request(frame: Buffer) -> Message:
    """A request. Raises UnknownVersion, or DecodeError with path and offset."""
    data = bytes(frame)
    walk = BodyReader(data)
    found = request_header(walk)
    return _message(found, walk, data)


def decode_response(frame: Buffer, api_key: int, api_version: int) -> Message:
    """The response to a request of that API and version.

    Raises UnknownVersion, or DecodeError with path and offset.
    """
    data = bytes(frame)
    walk = BodyReader(data)
    found = response_header(walk, api_key, api_version)
    return _message(found, walk, data)


def explain_request(frame: Buffer) -> Explanation:
    """Every field of a request, the header's first, as ``header.client_id``. Never raises."""
    walk = BodyReader(bytes(frame))
    return walk.explanation(lambda: _body(walk, request_header(walk)))


def explain_response(frame: Buffer, api_key: int, api_version: int) -> Explanation:
    """Every field of a response, the header's first. Never raises."""
    walk = BodyReader(bytes(frame))
    return walk.explanation(lambda: _body(walk, response_header(walk, api_key, api_version)))


def refusal(frame: Buffer) -> str:
    """Why bytes are not taken for a request, in words."""
    explanation = explain_request(frame)
    if explanation.error is None:
        return "it reads as a request, but too little is evidence that it is one"
    api_key, version = (event.value for event in explanation.events[:2])
    name = api_name(api_key) or f"API {api_key}"
    return f"read as {name} v{version} request, {explanation.error}"


def is_fallback(frame: Buffer) -> bool:
    """Whether an ApiVersions response is in version 0 because its broker knew no better (KIP-511).

    Error 35, and exactly as long as a version 0 body with that many APIs: correlation id, error
    code, count, then six bytes each.
    """
    count = int.from_bytes(frame[6:10], "big", signed=True)
    error_code = int.from_bytes(frame[4:6], "big", signed=True)
    return error_code == UNSUPPORTED_VERSION and len(frame) == 10 + 6 * count


def request_header(walk: BodyReader) -> Layout:
    """Read the header of a request; the layout of its body."""
    walk.fields(_REQUEST_HEADER, False, _PREFIX)
    api_key, api_version = walk.events[0].value, walk.events[1].value
    found = layout(api_key, Direction.REQUEST, api_version)
    if found.header_version >= 1:
        client_id(walk)
    if found.header_version >= 2:
        walk.tags({}, _PREFIX)
    return found


def client_id(walk: BodyReader) -> None:
    """Read the client id, which stands at the same place in every version that has one."""
    walk.fields((_CLIENT_ID,), False, _PREFIX)


def response_header(walk: BodyReader, api_key: int, api_version: int) -> Layout:
    """Read the header of a response; the layout of its body."""
    if api_key == API_VERSIONS and is_fallback(walk.data):
        api_version = 0
    found = layout(api_key, Direction.RESPONSE, api_version)
    walk.fields(_RESPONSE_HEADER, False, _PREFIX)
    if found.header_version >= 1:
        walk.tags({}, _PREFIX)
    return found


def body_end(data: bytes, size: int, request: tuple[int, int] | None = None) -> int:
    """Where the body of a message of `size` bytes ends, which begins with `data`.

    `request`: of a response, the API key and version of its request. Returns `size` where more
    bytes are needed to know. Raises UnknownVersion, or DecodeError where no message begins so.
    """
    walk = BodyReader(Prefix(data, size))
    try:
        found = request_header(walk) if request is None else response_header(walk, *request)
        walk.fields(found.fields, found.flexible)
    except (IndexError, TooManyElements):
        return size
    return walk.at


def _body(walk: BodyReader, found: Layout) -> None:
    start = walk.at
    walk.fields(found.fields, found.flexible)
    if not is_accepted(found.direction, walk.at - start, walk.left):
        walk.finish()


def _message(found: Layout, walk: BodyReader, data: bytes) -> Message:
    header = {event.name: event.value for event in walk.events}
    start = walk.at
    body, end = decode_fields(found, data, start)
    if not is_accepted(found.direction, end - start, len(data) - end):
        body = decode(found, data, start)  # which raises the error
    return Message(
        found.direction,
        found.api_key,
        found.api,
        found.version,
        header["correlation_id"],
        header.get("client_id"),
        body,
        data[end:],
    )
