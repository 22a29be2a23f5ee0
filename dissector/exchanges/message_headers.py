"""The headers of frames, as arrays, read before any body.

A request header contains API, version, correlation id and client id. A response header contains the
correlation id only; where its body starts is known once its request is. Each header keeps the
location of its frame: the index of a byte space, and the addresses of the first byte and of the end
of the captured bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissector import _native
from dissector.arrays import arrays
from dissector.byteview import ByteView, ContiguousBytes
from dissector.errors import UnknownVersion
from dissector.exchanges.columns import masked
from dissector.packets.block import Int64
from dissector.parallel_arrays import ParallelArrays
from dissector.protocol import registry
from dissector.protocol.notation import Direction
from dissector.streams.detection.gssapi import GSSAPI_TAG, gssapi_head
from dissector.streams.frames import FrameBlock

UNKNOWN, NO_API, NEW = -1, -2, -3
"""Instead of a header version: the definitions lack this version, or this API; or not yet known."""
API_KEY_BYTES, VERSION_BYTES, HEADER_BYTES = 2, 4, 8
"""First bytes of a request up to its API key, its version and its correlation id."""
CORRELATION_BYTES = 4
"""First bytes of a response: its correlation id."""
VERSIONS = 1 << 7
"""More versions than any API has."""
LARGEST_VERSION = 0x1F
"""Largest plausible version of an unknown API. In a SASL token that is mistaken for a request, text
is read as the version, and no printable character is below 32."""


@arrays
class MessageHeaders(ParallelArrays):
    """n frames of one direction, in stream order; int64 arrays of shape (n,)."""

    connection: Int64
    capture: Int64
    packet: Int64
    time: Int64
    """ns, first byte."""
    end_time: Int64
    """ns, last byte."""
    bytes: Int64
    """Size, including the 4-byte length."""
    space: Int64
    """Index of the byte space to which the addresses refer."""
    start: Int64
    end: Int64
    """Address after the last captured byte."""
    correlation_id: Int64
    sequence: Int64
    acknowledged: Int64
    rank: Int64
    run: Int64
    """As in `FrameBlock`."""

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Frames without missing bytes."""
        whole: NDArray[np.bool_] = self.end - self.start == self.bytes - 4
        return whole

    def columns(self, front: int) -> dict[str, pa.Array | NDArray[np.generic]]:
        """Columns of a table of these messages. `front`: bytes up to the correlation id."""
        return {
            "correlation_id": masked(
                self.correlation_id.astype(np.int32), self.end - self.start < front
            ),
            "capture": self.capture.astype(np.int32),
            "packet": self.packet,
            "time": self.time,
            "end_time": self.end_time,
            "bytes": self.bytes,
        }


EMPTY = MessageHeaders.empty()


def spaces_of(frames: FrameBlock) -> list[ByteView]:
    """The two byte spaces of a block: 0 for contiguous frames, 1 for frames in several pieces."""
    return [ContiguousBytes(frames.data), frames.space]


def headers_of(frames: FrameBlock, direction: Direction) -> MessageHeaders:
    """The headers of the frames of one direction."""
    is_request = direction == Direction.REQUEST
    rows = slice(frames.requests) if is_request else slice(frames.requests, None)
    is_scattered = frames.position[rows] < 0
    start = np.where(is_scattered, frames.start[rows], frames.position[rows])
    return MessageHeaders(
        frames.connection[rows], frames.capture[rows], frames.packet[rows], frames.time[rows],
        frames.end_time[rows], frames.size[rows] + 4, is_scattered.astype(np.int64), start,
        start + frames.readable[rows], frames.correlation_id[rows], frames.sequence[rows],
        frames.acknowledged[rows], frames.rank[rows], frames.run[rows],
    )  # fmt: skip


@arrays
class RequestHeaders:
    """The fields of request headers; arrays of shape (n,)."""

    api_key: Int64
    version: Int64
    client_id: Int64
    """Address of the client id's first byte."""
    client_id_length: Int64
    """Captured bytes; -1 if there is no client id."""
    client_id_is_cut: NDArray[np.bool_]
    """The capture does not have all of its bytes."""
    body: Int64
    """Address of the body."""
    known: NDArray[np.bool_]
    """The header is complete, and the definitions contain the API and version."""


def read_request_headers(headers: MessageHeaders, spaces: Sequence[ByteView]) -> RequestHeaders:
    """Read the fields that only requests have."""
    count = len(headers)
    api_key, version, length, body = np.zeros((4, count), np.int64)
    is_cut, known = np.zeros((2, count), np.bool_)
    whole, table = headers.whole, _header_versions(Direction.REQUEST)
    for space, chosen in members_of(spaces, headers.space):
        first = 0
        while first < len(chosen):
            first = _native.read_request_headers(
                *space.pieces, table, LARGEST_VERSION, chosen, headers.start, headers.end, whole,
                first, api_key, version, length, body, is_cut, known,
            )  # fmt: skip
            if first < len(chosen):
                _look_up(Direction.REQUEST, api_key[chosen[first]], version[chosen[first]])
    return RequestHeaders(api_key, version, headers.start + 10, length, is_cut, body, known)


def gssapi_tokens(headers: MessageHeaders, spaces: Sequence[ByteView], api_key: Int64) -> Int64:
    """Indices of the frames of clients that are first GSSAPI tokens, not requests."""
    indices = []
    for index in np.flatnonzero(api_key >> 8 == GSSAPI_TAG).tolist():
        head = gssapi_head(int(headers.bytes[index]) - 4)
        start, size = int(headers.start[index]), int(headers.end[index] - headers.start[index])
        if spaces[int(headers.space[index])].bytes(start, min(size, len(head))) == head:
            indices.append(index)
    return np.array(indices, np.int64)


def response_bodies(
    headers: MessageHeaders, spaces: Sequence[ByteView], api_key: Int64, version: Int64
) -> tuple[Int64, Int64]:
    """Version and address of the body of each response. `api_key`, `version`: of its request.

    A broker responds to an ApiVersions request of an unknown version in version 0, with error 35
    (KIP-511). Such a response has exactly the size of a version 0 body with its number of APIs.
    """
    version, body = version.copy(), np.zeros(len(headers), np.int64)
    table = _header_versions(Direction.RESPONSE)
    for space, chosen in members_of(spaces, headers.space):
        first = 0
        while first < len(chosen):
            first = _native.read_response_headers(
                *space.pieces, table, chosen, headers.start, headers.end, headers.bytes, api_key,
                first, version, body,
            )  # fmt: skip
            if first < len(chosen):
                _look_up(Direction.RESPONSE, api_key[chosen[first]], version[chosen[first]])
    return version, body


@cache
def _header_versions(direction: Direction) -> NDArray[np.int8]:
    """Header version by API key and version, `VERSIONS` of each key.

    NO_API if no API has the key. Others are NEW until they are looked up, because that parses the
    page of the API.
    """
    table = np.full((max(registry.apis()) + 1, VERSIONS), NO_API, np.int8)
    table[list(registry.apis())] = NEW
    return table.reshape(-1)


def _look_up(direction: Direction, api_key: int, version: int) -> None:
    """Replace NEW by the header version, or by UNKNOWN if the API has no such version."""
    try:
        header = registry.layout(int(api_key), direction, int(version)).header_version
    except UnknownVersion:
        header = UNKNOWN
    _header_versions(direction)[api_key * VERSIONS + version] = header


def members_of(spaces: Sequence[ByteView], space: Int64) -> Iterator[tuple[ByteView, Int64]]:
    """Each space, and the indices of the messages in it."""
    for number, each in enumerate(spaces):
        members = np.flatnonzero(space == number)
        if len(members):
            yield each, members
