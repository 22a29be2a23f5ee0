"""The headers of frames, as arrays, read before any body.

A request header contains API, version, correlation id and client id. A response header contains the
correlation id only; where its body starts is known once its request is. Each header keeps the
location of its frame: the index of a byte space, and the addresses of the first byte and of the end
of the captured bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from dissector.errors import UnknownVersion
from dissector.packets.block import Int64
from dissector.protocol import registry
from dissector.protocol.column_decoder import skip_tags
from dissector.protocol.notation import Direction
from dissector.secrets import LARGEST_VERSION
from dissector.streams.byteview import ByteView, ContiguousBytes
from dissector.streams.frames import FrameBlock

API_VERSIONS = 18
UNSUPPORTED_VERSION = 35
UNKNOWN = -1
"""Header version of an API or version that the definitions do not contain."""
VERSIONS = 1 << 7
"""More versions than any API has."""


@dataclass(frozen=True, slots=True)
class MessageHeaders:
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
    """0 if the frame is too short to have one."""
    sequence: Int64
    acknowledged: Int64
    rank: Int64
    run: Int64
    """As in `FrameBlock`."""

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, index: Int64) -> MessageHeaders:
        return MessageHeaders(*(getattr(self, each.name)[index] for each in fields(self)))

    def __add__(self, other: MessageHeaders) -> MessageHeaders:
        if not len(other):
            return self
        columns = (
            np.concatenate([getattr(self, each.name), getattr(other, each.name)])
            for each in fields(self)
        )
        return MessageHeaders(*columns)

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Frames without missing bytes."""
        whole: NDArray[np.bool_] = self.end - self.start == self.bytes - 4
        return whole


EMPTY = MessageHeaders(*(np.zeros(0, np.int64) for _ in fields(MessageHeaders)))


def spaces_of(frames: FrameBlock) -> list[ByteView]:
    """The two byte spaces of a block: 0 for contiguous frames, 1 for frames in several pieces."""
    return [ContiguousBytes(frames.data), frames.space]


def read_headers(frames: FrameBlock, spaces: Sequence[ByteView], index: Int64) -> MessageHeaders:
    """The headers of the frames at `index`, which have one direction."""
    position = frames.position[index]
    pieced = position < 0
    start = np.where(pieced, frames.start[index], position)
    end = start + frames.readable[index]
    is_request = bool(len(index)) and bool(frames.is_request[index[0]])
    at = start + (4 if is_request else 0)
    space = pieced.astype(np.int64)
    correlation = numbers(spaces, space, np.minimum(at, end), "i4")
    return MessageHeaders(
        frames.connection[index].astype(np.int64), frames.capture[index].astype(np.int64),
        frames.packet[index], frames.time[index], frames.end_time[index],
        frames.size[index] + 4, space, start, end, np.where(at + 4 <= end, correlation, 0),
        frames.sequence[index], frames.acknowledged[index], frames.rank[index], frames.run[index],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
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
    start, end = headers.start, headers.end
    api_key = numbers(spaces, headers.space, np.minimum(start, end), "i2")
    version = numbers(spaces, headers.space, np.minimum(start + 2, end), "i2")
    header = header_versions(Direction.REQUEST, api_key, version)
    # In a SASL token that is mistaken for a request, its text would be read as a client id.
    may_be = np.isin(api_key, list(registry.apis())) | (version & ~LARGEST_VERSION == 0)
    has_client = (header != 0) & may_be & (start + 10 <= end)
    length = numbers(spaces, headers.space, np.minimum(start + 8, end), "i2")
    fits = has_client & (length >= -1) & (start + 10 + length <= end)
    is_cut = has_client & ~fits & ~headers.whole & (length > 0)
    length = np.where(fits, length, np.where(is_cut, end - start - 10, -1))
    body = start + np.where(header == 0, 8, 10 + np.maximum(length, 0))
    body = np.where(is_cut, end + 1, _after_tags(spaces, headers.space, body, end, header == 2))
    known = (start + 8 <= end) & (header != UNKNOWN) & (fits | (header == 0) | ~headers.whole)
    return RequestHeaders(api_key, version, start + 10, length, is_cut, body, known)


def response_bodies(
    headers: MessageHeaders, spaces: Sequence[ByteView], api_key: Int64, version: Int64
) -> tuple[Int64, Int64]:
    """Version and address of the body of each response. `api_key`, `version`: of its request.

    A broker responds to an ApiVersions request of an unknown version in version 0, with error 35
    (KIP-511). Such a response has exactly the size of a version 0 body with its number of APIs.
    """
    index = np.flatnonzero((api_key == API_VERSIONS) & (version > 0))
    if len(index):
        start, space = headers.start[index], headers.space[index]
        error = numbers(spaces, space, np.minimum(start + 4, headers.end[index]), "i2")
        count = numbers(spaces, space, np.minimum(start + 6, headers.end[index]), "i4")
        size = headers.bytes[index] - 4
        version = version.copy()
        version[index[(error == UNSUPPORTED_VERSION) & (size == 10 + 6 * count)]] = 0
    header = header_versions(Direction.RESPONSE, api_key, version)
    body = _after_tags(spaces, headers.space, headers.start + 4, headers.end, header == 1)
    return version, body


def header_versions(direction: Direction, api_key: Int64, version: Int64) -> Int64:
    """Header version of each message; UNKNOWN if the definitions do not contain it."""
    largest = max(registry.apis())
    may_be = (api_key >= 0) & (api_key <= largest) & (version >= 0) & (version < VERSIONS)
    kind = np.where(may_be, api_key * VERSIONS + version, -1)
    header_version = np.full((largest + 1) * VERSIONS + 1, UNKNOWN, np.int64)
    occurs = np.zeros(len(header_version), np.bool_)
    occurs[kind] = True
    for each in np.flatnonzero(occurs[:-1]).tolist():
        with suppress(UnknownVersion):
            key, number = divmod(each, VERSIONS)
            header_version[each] = registry.layout(key, direction, number).header_version
    return header_version[kind]


def numbers(spaces: Sequence[ByteView], space: Int64, at: Int64, dtype: str) -> Int64:
    """A big-endian number at each of n addresses, each in its own byte space; int64."""
    # Nearly all are in the first space.
    result = spaces[0].number(np.where(space == 0, at, 0), dtype)
    for index, each in enumerate(spaces[1:], 1):
        members = np.flatnonzero(space == index)
        if len(members):
            result[members] = each.number(at[members], dtype)
    return result


def _after_tags(
    spaces: Sequence[ByteView], space: Int64, at: Int64, end: Int64, has: NDArray[np.bool_]
) -> Int64:
    at = np.minimum(at, end)
    for index, each in enumerate(spaces):
        members = np.flatnonzero(has & (space == index))
        if len(members):
            at[members] = skip_tags(each, at[members], end[members])
    return np.minimum(at, end + 1)
