"""Bodies: whether the body of a message fits its size.

A message may contain the bytes of other messages: a topic may carry captured traffic. So bytes
inside a message that look like another message do not show that its size is wrong. Its body does,
if it ends before the size, or is invalid.

A response can only be read with the API and version of its request. `RequestLog` keeps those of the
latest requests.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from dissector.errors import DecodeError, UnknownVersion
from dissector.packets.block import Int32, Int64
from dissector.streams.connections.rows import places
from dissector.streams.connections.table import Bools, ConnectionTable, streams_at
from dissector.streams.frame_chain import NO_GAP, FrameChains
from dissector.streams.limits import USUAL_FRAME

BodyEnd: TypeAlias = Callable[[bytes, int, tuple[int, int] | None], int]
"""Returns where the body of a message ends, counted from the first byte after the size.

Takes the first bytes of the message, its size, and for a response the API and version of its
request. Returns the size if the bytes do not suffice. Raises DecodeError if no message begins with
these bytes, and UnknownVersion if the API or version is unknown.
"""

LOG_ENTRIES: Final = 1 << 19
"""Least number of requests that are kept. No capture has more requests in flight."""
_CHUNKS: Final = 64
"""Maximum number of chunks of the log; then they are joined."""

CONSISTENT, SURPLUS, UNKNOWN, TOO_LONG, UNREADABLE, RECORDS = range(6)
"""The body fits the size; ends a few bytes before it; cannot be checked; ends long before it; is
invalid; is a part of record batches. The lowest of several verdicts counts."""

BATCH_HEAD: Final = 17
"""Bytes of a batch, or message, up to its magic."""
LOG_OVERHEAD: Final = 12
"""Bytes that its length does not count: the base offset and the length."""
SMALLEST_MESSAGE: Final = 14
"""The smallest length: checksum, magic, attributes, and the lengths of key and value."""
SMALLEST_BATCH: Final = 49
"""The same of a batch with magic 2: its header."""
NO_TIMESTAMP: Final = b"\xff" * 8
"""The base timestamp of a batch without records."""
BATCHES: Final = 3
"""Batches of a records field that are checked."""
FILLER_OFFSET: Final = (1 << 64) - 1
"""Offset of the incomplete batch that fills the rest of a records field, -1 as an unsigned number:
converted to an older format, batches may need fewer bytes than the broker announced
(LazyDownConversionRecordsSend)."""

MAX_SURPLUS: Final = 16
"""Maximum number of surplus bytes that clients are known to append to a body."""

MAX_KINDS: Final = 16
"""Most APIs and versions of requests with the same correlation id for which a response is read."""


class RequestLog:
    """API and version of the latest requests, by stream and correlation id."""

    def __init__(self) -> None:
        self._keys: list[Int64] = []
        self._kinds: list[Int32] = []
        self._orders: list[Int64 | None] = []
        """The order of the keys of each chunk, once a request was looked up in it."""

    def add(self, keys: Int64, kinds: Int32) -> None:
        """Add requests. `keys`: stream and correlation id, see `key_of`. `kinds`: API key and
        version, as one number of the header."""
        if not len(keys):
            return
        self._keys.append(keys.copy())  # they may be a part of larger arrays
        self._kinds.append(kinds.copy())
        self._orders.append(None)
        while sum(map(len, self._keys[1:])) >= LOG_ENTRIES:
            del self._keys[0], self._kinds[0], self._orders[0]
        if len(self._keys) > _CHUNKS:
            self._keys = [np.concatenate(self._keys)[-LOG_ENTRIES:]]
            self._kinds = [np.concatenate(self._kinds)[-LOG_ENTRIES:]]
            self._orders = [None]

    def find(self, stream: int, correlation: int) -> list[tuple[int, int]]:
        """API key and version of the requests with a correlation id in a stream, each pair once.
        Clients may use an id again."""
        key = stream << 32 | (correlation & 0xFFFFFFFF)
        kinds = [np.zeros(0, np.int32)]
        for chunk, keys in enumerate(self._keys):
            order = self._order(chunk)
            low, high = (int(keys.searchsorted(key, side, order)) for side in ("left", "right"))
            kinds.append(self._kinds[chunk][order[low:high]])
        distinct: list[int] = np.unique(np.concatenate(kinds)).tolist()
        return [divmod(kind, 1 << 16) for kind in distinct]

    def has(self, stream: Int64, correlation: Int64) -> Bools:
        """Whether requests with these correlation ids were sent in these streams."""
        key = key_of(stream, correlation)
        has = np.zeros(len(key), np.bool_)
        for chunk, keys in enumerate(self._keys if len(key) else ()):
            order = self._order(chunk)
            rank = keys.searchsorted(key, "right", order) - 1
            has[rank >= 0] |= keys[order[rank[rank >= 0]]] == key[rank >= 0]
        return has

    def _order(self, chunk: int) -> Int64:
        """The order of the keys of a chunk."""
        order = self._orders[chunk]
        if order is None:
            order = self._orders[chunk] = self._keys[chunk].argsort(kind="stable")
        return order

    def forget(self, rows: Int64) -> None:
        """Remove the requests of these connections."""
        self._orders = [None] * len(self._keys)
        for number, keys in enumerate(self._keys):
            kept = ~np.isin(keys >> 33, rows)
            self._keys[number], self._kinds[number] = keys[kept], self._kinds[number][kept]

    def take(self, rows: Int64) -> tuple[Int64, Int64, Int32]:
        """Stream, correlation id and kind of the requests of these connections. Streams are
        numbered like `rows`."""
        keys = np.concatenate([np.zeros(0, np.int64), *(self._keys if len(rows) else ())])
        index, stream = places(keys >> 32, streams_at(rows))
        kinds = np.concatenate([np.zeros(0, np.int32), *self._kinds])[index]
        return stream, keys[index] & 0xFFFFFFFF, kinds

    def put(self, rows: Int64, taken: tuple[Int64, Int64, Int32]) -> None:
        """Add what `take` returned. `rows`: the row of each connection."""
        stream, correlation, kind = taken
        self.add(key_of(streams_at(rows)[stream], correlation), kind)


def key_of(stream: Int64, correlation: Int64) -> Int64:
    """One number of a stream and a correlation id."""
    return stream << 32 | (correlation & 0xFFFFFFFF)


class BodyCheck:
    """Compares the sizes of messages with their bodies."""

    def __init__(self, table: ConnectionTable, body_end: BodyEnd) -> None:
        self.log = RequestLog()
        self._table = table
        self._body_end = body_end

    def check(
        self, chains: FrameChains, index: int, at: int, most: int = NO_GAP
    ) -> tuple[int, int]:
        """Whether the body of the message at an address of a chain fits its size; and the address
        where the body ends, or the end of the message if that is unknown.

        A hole ends the check, and so does the number of bytes `most`. If several requests have the
        id of a response, the one that it fits best counts.
        """
        address, stream = np.array([at]), int(chains.stream[index])
        until = min(int(chains.end[index]), at + most)
        size = int(chains.space.number(address, "i4")[0])
        body = at + 4
        behind = body + size
        stop = min(behind, until, int(chains.gap_after(address)[0]))
        requests: list[tuple[int, int] | None] = [None]
        if self._table.client[stream >> 1] != stream & 1:
            correlation = int(chains.space.number(address + 4, "i4")[0])
            requests = [*self.log.find(stream ^ 1, correlation)]
            if not requests and _has_length_of_records(chains.space.bytes(body, stop - body), size):
                return RECORDS, behind
            if not 0 < len(requests) <= MAX_KINDS:
                return UNKNOWN, behind
        data, is_whole = chains.space.bytes(body, stop - body), stop == min(behind, until)
        fits = [self._fit(data, size, each, is_whole=is_whole) for each in requests]
        verdict, end = min(fits)
        return verdict, body + end

    def is_response(
        self, chains: FrameChains, index: int, at: int, request: tuple[int, int]
    ) -> bool:
        """Whether the body of the message at an address of a chain may be that of a response to a
        request of this API and version, as far as it is captured."""
        address = np.array([at])
        size = int(chains.number(address, "i4")[0])
        until = min(at + 4 + size, int(chains.end[index]), int(chains.gap_after(address)[0]))
        data = chains.space.bytes(at + 4, min(until - at - 4, USUAL_FRAME))
        verdict, _ = self._fit(data, size, request, is_whole=True)
        return verdict in (CONSISTENT, UNKNOWN)

    def _fit(
        self, data: bytes, size: int, request: tuple[int, int] | None, *, is_whole: bool
    ) -> tuple[int, int]:
        """Whether the body of a message of `size` bytes fits its size, and where it ends.

        `data`: its first bytes. `is_whole`: no captured byte of it is missing.
        """
        try:
            end = self._body_end(data, size, request)
        except UnknownVersion:
            return UNKNOWN, size
        except DecodeError:
            return UNREADABLE, size
        if end >= size:
            return (CONSISTENT if is_whole else UNKNOWN), end
        return (SURPLUS if end >= size - MAX_SURPLUS else TOO_LONG), end


def _has_length_of_records(data: bytes, size: int) -> bool:
    """Whether the size of a response is the length of a batch, a message, or a records field. The
    last ones end the response to a Fetch below version 12: another response follows them, too.

    `data`: the first of the `size` bytes.
    """
    return _is_batch(data, size) or _is_records_field(data, size)


def _is_batch(data: bytes, size: int) -> bool:
    """Whether bytes are a batch or message after its length."""
    if len(data) == size and zlib.crc32(data[4:]) == int.from_bytes(data[:4]):
        return True
    if size < SMALLEST_BATCH or len(data) < SMALLEST_BATCH:
        return False
    magic, last_offset_delta, count = data[4], data[11:15], int.from_bytes(data[45:SMALLEST_BATCH])
    if count == 0:  # of a producer's last records, the log cleaner keeps a batch without records
        return magic == 2 and size == SMALLEST_BATCH and data[15:23] == NO_TIMESTAMP
    return magic == 2 and count <= int.from_bytes(last_offset_delta) + 1


def _is_records_field(data: bytes, size: int) -> bool:
    """Whether bytes are batches or messages, of which the last one may be incomplete."""
    begin = 0
    for number in range(BATCHES):
        head = data[begin : begin + BATCH_HEAD]
        if len(head) < BATCH_HEAD:
            return number > 0
        offset, length, magic = int.from_bytes(head[:8]), int.from_bytes(head[8:12]), head[16]
        if offset == FILLER_OFFSET:
            return number > 0
        is_batch = offset >> 63 == 0 and length >= SMALLEST_MESSAGE and magic <= 2
        begin += LOG_OVERHEAD + length
        if not is_batch or (begin > size and not number):
            return False
    return True
