"""Bodies: whether a message can have the size that it announces.

A message may contain the bytes of other messages: a topic may carry captured traffic. So a place
inside a message that looks like a message is no evidence against it. Its own body is: where the
body ends before the announced size does, or cannot be read at all, the size is wrong.

A response can only be read with the API and version of its request. `RequestLog` keeps those of the
latest requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from dissector.errors import DecodeError, UnknownVersion
from dissector.packets.block import Int32, Int64
from dissector.streams.frame_chain import FrameChains
from dissector.streams.table import ConnectionTable

BodyEnd: TypeAlias = Callable[[bytes, int, tuple[int, int] | None], int]
"""Where the body of a message ends, counted from the first byte behind the size.

Takes the first bytes of the message, its announced size, and for a response the API and version of
its request. Returns the announced size where more bytes are needed to know. Raises DecodeError
where no message begins so, and UnknownVersion where the API or version is not known.
"""

LOG_ENTRIES: Final = 1 << 20
"""Requests that are remembered. No capture has more in flight."""
_CHUNKS: Final = 64
"""Parts of the log. More are joined."""

CONSISTENT, SURPLUS, TOO_LONG, UNREADABLE, UNKNOWN = range(5)
"""The body fits the size; ends a few bytes before it; ends long before it; cannot be read; cannot
be checked."""

FEW: Final = 16
"""Surplus bytes of clients that send too many."""


def unknown_body(data: bytes, size: int, request: tuple[int, int] | None) -> int:
    """A `BodyEnd` without definitions."""
    raise UnknownVersion("no definitions", offset=0)


class RequestLog:
    """API and version of the latest requests, by stream and correlation id."""

    def __init__(self) -> None:
        self._keys: list[Int64] = []
        self._kinds: list[Int32] = []
        self._by_stream: dict[int, dict[int, int]] = {}
        """Kinds by correlation id, of the streams in which requests were looked up."""

    def add(self, stream: Int64, correlation: Int64, kind: Int64) -> None:
        """Remember requests. `kind`: API key and version, as they stand in the header."""
        if not len(stream):
            return
        self._by_stream.clear()
        self._keys.append(_key(stream, correlation))
        self._kinds.append(kind.astype(np.int32))
        if len(self._keys) > _CHUNKS:
            self._keys = [np.concatenate(self._keys)[-LOG_ENTRIES:]]
            self._kinds = [np.concatenate(self._kinds)[-LOG_ENTRIES:]]

    def find(self, stream: int, correlation: int) -> tuple[int, int] | None:
        """API key and version of the latest request with a correlation id in a stream."""
        if stream not in self._by_stream:
            kinds: dict[int, int] = {}
            for keys, chunk in zip(self._keys, self._kinds, strict=True):
                index = np.flatnonzero(keys >> 32 == stream)
                kinds.update(zip(keys[index].tolist(), chunk[index].tolist(), strict=True))
            self._by_stream[stream] = kinds
        kind = self._by_stream[stream].get(stream << 32 | (correlation & 0xFFFFFFFF))
        return None if kind is None else divmod(kind, 1 << 16)

    def forget(self, rows: Int64) -> None:
        """Forget the requests of these connections."""
        self._by_stream.clear()
        for number, keys in enumerate(self._keys):
            kept = ~np.isin(keys >> 33, rows)
            self._keys[number], self._kinds[number] = keys[kept], self._kinds[number][kept]


def _key(stream: Int64, correlation: Int64) -> Int64:
    return stream << 32 | (correlation & 0xFFFFFFFF)


class BodyCheck:
    """Compares the sizes of messages with their bodies."""

    def __init__(self, table: ConnectionTable, body_end: BodyEnd) -> None:
        self.log = RequestLog()
        self._table = table
        self._body_end = body_end

    def check(self, chains: FrameChains, stream: int, at: int, until: int) -> tuple[int, int]:
        """Whether the body of the message at an address fits its size, and the address where the
        body ends (the end of the message where that is not known).

        `until`: address behind the last byte of the stream. What lost bytes may hide is not known.
        """
        here = np.array([at])
        size = int(chains.space.number(here, "i4")[0])
        body = at + 4
        behind = body + size
        stop = min(behind, until, int(chains.there_until(here)[0]))
        request = None
        if self._table.client[stream >> 1] != stream & 1:
            correlation = int(chains.space.number(here + 4, "i4")[0])
            request = self.log.find(stream ^ 1, correlation)
            if request is None:
                return UNKNOWN, behind
        try:
            end = body + self._body_end(chains.space.bytes(body, stop - body), size, request)
        except UnknownVersion:
            return UNKNOWN, behind
        except DecodeError:
            return UNREADABLE, behind
        if end >= behind:
            return (CONSISTENT if stop == min(behind, until) else UNKNOWN), end
        return (SURPLUS if end >= behind - FEW else TOO_LONG), end
