"""Deciding: what a connection carries, which end is the client, and where frames begin.

The client is the end that sent the SYN; else the broker is the end with a known port; else the
client is the end whose bytes look like a request. A connection is Kafka when what the client sends
first looks like a request, TLS when it looks like a TLS record (RFC 8446, section 5.1).

Where a stream is joined in its middle, or its chain of sizes broke, a frame is looked for at the
beginning of each packet, since a message mostly begins one. A request shows itself by its header. A
response has no more than a size: it is believed when the frame that the size makes ends where a
packet ends.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from dissector.packets.block import Int64
from dissector.streams.bytespace import FlatSpace
from dissector.streams.framing import MAX_FRAME, Chains
from dissector.streams.table import KAFKA, OTHER, TLS, ConnectionTable

NEWER = 16
"""Versions beyond the newest known that a request may have; and API keys beyond the last."""

UNKNOWN_LIMIT = 1 << 20
"""Bytes in which a connection of unknown ports must show a request."""

HEAD = 64
"""Bytes to look at: a header and the beginning of a client id."""

CONVINCING = 4
"""Responses in a row whose correlation ids ascend, to believe a stream of unknown ports."""
ID_STEP = 10_000
"""Most that a correlation id grows from one response of a connection to the next."""

HEADER = 14
"""Bytes of size, API key, version, correlation id and the client id's length."""


def looks_like_request(head: bytes, newest: Mapping[int, int], *, to_broker: bool = False) -> bool:
    """Whether `head`, HEADER bytes or more, begins a request. `newest`: version by API key.

    `to_broker`: it was sent to where a broker listens, so that an API or version of which nobody
    has heard is more likely than another protocol.
    """
    size = int.from_bytes(head[:4], "big", signed=True)
    api_key = int.from_bytes(head[4:6], "big", signed=True)
    version = int.from_bytes(head[6:8], "big", signed=True)
    client = int.from_bytes(head[12:14], "big", signed=True)
    if not 8 <= size <= MAX_FRAME or api_key < 0 or version < 0:
        return False
    if not to_broker and (
        api_key > max(newest) + NEWER or version > newest.get(api_key, 0) + NEWER
    ):
        return False
    if api_key == 7 and version == 0:
        return True  # ControlledShutdown v0 has no client id
    if not -1 <= client <= size - 10:
        return False
    text = head[14 : 14 + max(client, 0)]
    return all(byte >= 0x20 and byte != 0x7F for byte in text)


def looks_like_tls(head: bytes) -> bool:
    """A TLS record: content type 20 to 23, version 3.0 to 3.4."""
    return len(head) >= 3 and 20 <= head[0] <= 23 and head[1] == 3 and head[2] <= 4


class Decider:
    """Decides about connections, and finds frames, among the bytes of a block."""

    def __init__(
        self, table: ConnectionTable, ports: Collection[int], newest: Mapping[int, int]
    ) -> None:
        self.brokers: set[tuple[int, int, int]] = set()
        """Addresses and ports where brokers listen: of Kafka connections, and named by them."""
        self._table = table
        self._ports = frozenset(ports)
        self._newest = newest
        self._passed: dict[int, int] = {}
        """Bytes of connections in which nothing was recognised yet."""

    def decide(self, row: int, chains: Chains, last: bool) -> None:
        """Decide about an undecided connection, if what is there of it is enough."""
        table = self._table
        sides = [self._index(chains, 2 * row + end) for end in (0, 1)]
        client = int(table.client[row])
        if client < 0:
            client = self._client(row, chains, sides)
        side = sides[client] if client >= 0 else None
        if side is None:
            self._decide_without_client(row, chains, sides)
            return
        to_broker = self._is_broker(row, 1 - client)
        first = int(chains.first[side])
        head = self._head(chains, first)
        whole = table.isn[row, client] >= 0 and chains.pieces.at[first] == 0
        if whole and len(head) < HEADER and not last and head[:4] != b"\0\0\0\x08":
            return
        begins = looks_like_request(head.ljust(HEADER, b"\0"), self._newest, to_broker=to_broker)
        if looks_like_tls(head):
            table.protocol[row] = TLS
        elif begins or (not whole and len(self.requests(chains, side))):
            self._is_kafka(row, client)
        elif whole:
            table.protocol[row] = OTHER
        else:
            self._pass_over(row, chains, sides)

    def _decide_without_client(self, row: int, chains: Chains, sides: list[int | None]) -> None:
        """Decide by the broker's side, where the capture has nothing that the client sent."""
        for end, side in enumerate(sides):
            if side is None or self._table.packets[row, 1 - end]:
                continue
            if self._answers(chains, side, self._is_broker(row, end)):
                self._is_kafka(row, 1 - end)
                return
        self._pass_over(row, chains, sides)

    def _answers(self, chains: Chains, index: int, known: bool) -> bool:
        """Whether a stream is a broker's: of one that is not known to be, ids must ascend."""
        found, _ = self._responses(chains, index)
        if known or not len(found):
            return bool(len(found))
        start, *_ = chains.walk(np.array([index]), chains.address[found[:1]])
        correlation = chains.space.number(start + 4, "i4").astype(np.int64)
        steps = np.diff(correlation[:CONVINCING])
        return len(steps) + 1 == CONVINCING and bool(((steps > 0) & (steps < ID_STEP)).all())

    def _is_kafka(self, row: int, client: int) -> None:
        table, broker = self._table, 1 - client
        table.protocol[row] = KAFKA
        table.client[row] = client
        self.brokers.add(
            (
                int(table.high[row, broker]),
                int(table.low[row, broker]),
                int(table.port[row, broker]),
            )
        )

    def keep_from(self, chains: Chains) -> Int64:
        """Position from which each stream is kept while its connection is undecided."""
        row = chains.stream >> 1
        begin: Int64 = chains.pieces.at[chains.first[:-1]]
        known = self._table.isn[row, chains.stream & 1] >= 0
        return np.where(known, begin, np.iinfo(np.int64).max)

    def find_frame(self, chains: Chains, index: int, since: int, last: bool) -> tuple[int, int]:
        """Position of the first frame from `since` on, and from where to keep the stream.

        -1 where none is found.
        """
        stream = int(chains.stream[index])
        if (stream & 1) == self._table.client[stream >> 1]:
            found = self.requests(chains, index)
            doubtful = found[:0]
        else:
            found, doubtful = self._responses(chains, index)
        at = chains.pieces.at
        found = found[at[found] >= since]
        doubtful = doubtful[at[doubtful] >= since]
        nothing = int(np.iinfo(np.int64).max)
        if len(found):
            return int(at[found[0]]), nothing
        if len(doubtful) and not last:
            return -1, int(at[doubtful[0]])
        return -1, nothing

    def requests(self, chains: Chains, index: int) -> Int64:
        """The pieces of a stream that begin with a request."""
        pieces = np.arange(chains.first[index], chains.first[index + 1])
        source = chains.pieces.source[pieces]
        flat = FlatSpace(chains.data)
        size = flat.number(source, "i4").astype(np.int64)
        api_key = flat.number(source + 4, "i2").astype(np.int64)
        version = flat.number(source + 6, "i2").astype(np.int64)
        likely = (size >= 8) & (size <= MAX_FRAME) & (chains.pieces.length[pieces] >= HEADER)
        likely &= (api_key >= 0) & (api_key <= max(self._newest) + NEWER)
        likely &= (version >= 0) & (version <= max(self._newest.values()) + NEWER)
        return np.array(
            [
                piece
                for piece in pieces[likely].tolist()
                if looks_like_request(self._head(chains, piece), self._newest)
            ],
            np.int64,
        )

    def _responses(self, chains: Chains, index: int) -> tuple[Int64, Int64]:
        """Pieces that begin with a size that ends where a piece ends; those that may do so yet."""
        pieces = np.arange(chains.first[index], chains.first[index + 1])
        address = chains.address[pieces]
        size = FlatSpace(chains.data).number(chains.pieces.source[pieces], "i4").astype(np.int64)
        likely = (size >= 4) & (size <= MAX_FRAME) & (chains.pieces.length[pieces] >= 4)
        behind = address + 4 + size
        ends = np.append(address, chains.end[index])
        return pieces[likely & np.isin(behind, ends)], pieces[likely & (behind > ends[-1])]

    def _client(self, row: int, chains: Chains, sides: list[int | None]) -> int:
        """The client of a connection without handshake: 0, 1, or -1."""
        broker = [self._is_broker(row, end) for end in (0, 1)]
        if broker[0] != broker[1]:
            return 1 if broker[0] else 0
        for end, side in enumerate(sides):
            if side is not None and len(self.requests(chains, side)):
                return end
        return -1

    def _is_broker(self, row: int, end: int) -> bool:
        table = self._table
        port = int(table.port[row, end])
        address = int(table.high[row, end]), int(table.low[row, end]), port
        return port in self._ports or address in self.brokers

    def _pass_over(self, row: int, chains: Chains, sides: list[int | None]) -> None:
        """Count what went by unrecognised; a limit ends the search."""
        table = self._table
        for side in sides:
            if side is not None:
                first, behind = chains.first[side : side + 2]
                seen = int(chains.pieces.length[first:behind].sum())
                self._passed[row] = self._passed.get(row, 0) + seen
        known = self._is_broker(row, 0) or self._is_broker(row, 1)
        if self._passed.get(row, 0) > (MAX_FRAME if known else UNKNOWN_LIMIT):
            table.protocol[row] = OTHER
            del self._passed[row]

    def _index(self, chains: Chains, stream: int) -> int | None:
        index = int(np.searchsorted(chains.stream, stream))
        found = index < len(chains.stream) and chains.stream[index] == stream
        return index if found else None

    def _head(self, chains: Chains, piece: int) -> bytes:
        """The first bytes from a piece on, as far as they are there."""
        at = int(chains.address[piece])
        index = int(np.searchsorted(chains.first, piece, side="right")) - 1
        there = int(chains.there_until(np.array([at]))[0])
        return chains.space.bytes(at, min(HEAD, there - at, int(chains.end[index]) - at))
