"""Heads: what the header of each frame says, as arrays, before any body is read.

A request tells its API, version, correlation id and client id; a response its correlation id
alone, and where its body begins is known once its request is. A head stays with the place of its
frame: the index of a space, and the addresses where the frame begins and where what is there of it
ends.
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
"""Header version of what the definitions do not know."""
VERSIONS = 1 << 7
"""More than any API has."""


@dataclass(frozen=True, slots=True)
class Heads:
    """n frames of one direction, in stream order; int64 arrays of shape (n,)."""

    connection: Int64
    capture: Int64
    packet: Int64
    time: Int64
    """ns, first byte."""
    end_time: Int64
    """ns, last byte."""
    bytes: Int64
    """Size, the 4-byte length included."""
    space: Int64
    """Index of the space in which the addresses count."""
    start: Int64
    end: Int64
    """Behind the last byte that is there."""
    correlation_id: Int64
    """0 where the frame is too short to have one."""
    sequence: Int64
    acknowledged: Int64
    rank: Int64
    run: Int64
    """As in `FrameBlock`."""

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, index: Int64) -> Heads:
        return Heads(*(getattr(self, each.name)[index] for each in fields(self)))

    def __add__(self, other: Heads) -> Heads:
        if not len(other):
            return self
        columns = (
            np.concatenate([getattr(self, each.name), getattr(other, each.name)])
            for each in fields(self)
        )
        return Heads(*columns)

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Frames of which no byte is missing."""
        whole: NDArray[np.bool_] = self.end - self.start == self.bytes - 4
        return whole


EMPTY = Heads(*(np.zeros(0, np.int64) for _ in fields(Heads)))


def spaces_of(frames: FrameBlock) -> list[ByteView]:
    """The two spaces of a block: 0 where frames lie in one row, 1 where they lie in pieces."""
    return [ContiguousBytes(frames.data), frames.space]


def heads(frames: FrameBlock, spaces: Sequence[ByteView], index: Int64) -> Heads:
    """The heads of the frames at `index`, which are of one direction."""
    position = frames.position[index]
    pieced = position < 0
    start = np.where(pieced, frames.start[index], position)
    end = start + frames.readable[index]
    is_request = bool(len(index)) and bool(frames.is_request[index[0]])
    at = start + (4 if is_request else 0)
    space = pieced.astype(np.int64)
    correlation = numbers(spaces, space, np.minimum(at, end), "i4")
    return Heads(
        frames.connection[index].astype(np.int64), frames.capture[index].astype(np.int64),
        frames.packet[index], frames.time[index], frames.end_time[index],
        frames.size[index] + 4, space, start, end, np.where(at + 4 <= end, correlation, 0),
        frames.sequence[index], frames.acknowledged[index], frames.rank[index], frames.run[index],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RequestHeads:
    """What only requests tell; arrays of shape (n,)."""

    api_key: Int64
    version: Int64
    client_id: Int64
    """Address of the client id's first byte."""
    client_id_length: Int64
    """Bytes that are there; -1 where there is none."""
    client_id_is_cut: NDArray[np.bool_]
    """More of it was sent than the capture has."""
    body: Int64
    """Address of the body."""
    known: NDArray[np.bool_]
    """The header is there, and the definitions know the API and version."""


def request_heads(head: Heads, spaces: Sequence[ByteView]) -> RequestHeads:
    """Read the rest of the request headers."""
    start, end = head.start, head.end
    api_key = numbers(spaces, head.space, np.minimum(start, end), "i2")
    version = numbers(spaces, head.space, np.minimum(start + 2, end), "i2")
    header = header_versions(Direction.REQUEST, api_key, version)
    # In a SASL token that is taken for a request, its text would stand for a client id.
    may_be = np.isin(api_key, list(registry.apis())) | (version & ~LARGEST_VERSION == 0)
    has_client = (header != 0) & may_be & (start + 10 <= end)
    length = numbers(spaces, head.space, np.minimum(start + 8, end), "i2")
    fits = has_client & (length >= -1) & (start + 10 + length <= end)
    is_cut = has_client & ~fits & ~head.whole & (length > 0)
    length = np.where(fits, length, np.where(is_cut, end - start - 10, -1))
    body = start + np.where(header == 0, 8, 10 + np.maximum(length, 0))
    body = np.where(is_cut, end + 1, _behind_tags(spaces, head.space, body, end, header == 2))
    known = (start + 8 <= end) & (header != UNKNOWN) & (fits | (header == 0) | ~head.whole)
    return RequestHeads(api_key, version, start + 10, length, is_cut, body, known)


def response_bodies(
    head: Heads, spaces: Sequence[ByteView], api_key: Int64, version: Int64
) -> tuple[Int64, Int64]:
    """Version and address of the body of each response, from what its request asked for.

    An ApiVersions request of a version that the broker does not know is answered in version 0, with
    error 35 (KIP-511); such an answer is as long as a version 0 body with that many APIs.
    """
    asked = np.flatnonzero((api_key == API_VERSIONS) & (version > 0))
    if len(asked):
        start, space = head.start[asked], head.space[asked]
        error = numbers(spaces, space, np.minimum(start + 4, head.end[asked]), "i2")
        count = numbers(spaces, space, np.minimum(start + 6, head.end[asked]), "i4")
        size = head.bytes[asked] - 4
        version = version.copy()
        version[asked[(error == UNSUPPORTED_VERSION) & (size == 10 + 6 * count)]] = 0
    header = header_versions(Direction.RESPONSE, api_key, version)
    body = _behind_tags(spaces, head.space, head.start + 4, head.end, header == 1)
    return version, body


def header_versions(direction: Direction, api_key: Int64, version: Int64) -> Int64:
    """Header version of each message; UNKNOWN where the definitions do not know it."""
    most = max(registry.apis())
    may_be = (api_key >= 0) & (api_key <= most) & (version >= 0) & (version < VERSIONS)
    kind = np.where(may_be, api_key * VERSIONS + version, -1)
    found = np.full((most + 1) * VERSIONS + 1, UNKNOWN, np.int64)
    occurs = np.zeros(len(found), np.bool_)
    occurs[kind] = True
    for each in np.flatnonzero(occurs[:-1]).tolist():
        with suppress(UnknownVersion):
            key, number = divmod(each, VERSIONS)
            found[each] = registry.layout(key, direction, number).header_version
    return found[kind]


def numbers(spaces: Sequence[ByteView], space: Int64, at: Int64, dtype: str) -> Int64:
    """A big-endian number at each of n addresses, each in its own space; int64."""
    # Nearly all lie in the first space.
    result = spaces[0].number(np.where(space == 0, at, 0), dtype).astype(np.int64)
    for index, each in enumerate(spaces[1:], 1):
        members = np.flatnonzero(space == index)
        if len(members):
            result[members] = each.number(at[members], dtype)
    return result


def _behind_tags(
    spaces: Sequence[ByteView], space: Int64, at: Int64, end: Int64, has: NDArray[np.bool_]
) -> Int64:
    at = np.minimum(at, end)
    for index, each in enumerate(spaces):
        members = np.flatnonzero(has & (space == index))
        if len(members):
            at[members] = skip_tags(each, at[members], end[members])
    return np.minimum(at, end + 1)
