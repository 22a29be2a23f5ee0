"""Seeking: what a connection carries, and where frames begin when no chain of sizes tells.

A stream is joined in its middle, or a size is lost or cannot be: then places are judged by how much
they look like the beginning of a frame, in bits of evidence. A field of which one random value in
2^k would do is worth k bits:

- a request: its size, an API and version that exist, a client id that fits and is text;
- a response: its size, and a correlation id near those that its client uses;
- the beginning of a segment, since a message mostly begins one;
- a frame that ends where a segment ends, and what comes behind it, judged alike.

A place with `CERTAINTY` bits is taken; one against which something speaks is not, whatever its
bits. Beginnings of segments are tried first, all streams together; then, in connections known to be
Kafka, every byte. A place that only bytes to come can confirm is kept for a while.

Where the SYN was seen there is one place to judge: what the client sends first decides what the
connection carries. TLS is known by its record header (RFC 8446, section 5.1).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int64, UInt8
from dissector.streams.bytespace import ranges
from dissector.streams.framing import Chains
from dissector.streams.limits import CERTAINTY, FRAME_LIMIT, SEEK_BYTES
from dissector.streams.table import (
    KAFKA,
    OTHER,
    TLS,
    UNDECIDED,
    Bools,
    ConnectionTable,
    StreamTable,
)

REQUEST_BITS = 30
"""5 of the size, 9 of the API, 11 of the version, 5 of the client id."""
SIZE_BITS = 6
"""Of a response: its size, and a correlation id that is not negative."""
CORRELATION_BITS = 31
"""Of a correlation id that is known to the last bit, less what `SIZE_BITS` counts of it."""
BORDER_BITS = 10
"""Of a place where a segment begins: one in about 1,448 bytes."""

NEWER = 16
"""Versions beyond the newest known one that a request may have, and APIs beyond the last one: what
is newer than the definitions must be seen, to be reported."""

REQUEST_HEAD = 14
"""Bytes of a request up to its client id, size included."""
RESPONSE_HEAD = 8
SMALLEST_REQUEST = 10
LONGEST_CLIENT_ID = 4096
CONTROLLED_SHUTDOWN = 7
"""Version 0 of it has no client id."""

HOPS = 4
"""Frames of a chain that are judged."""
SURE_HOPS = 2
"""Of these, how many headers must not speak against it."""
SLACK = 256
"""Correlation ids that a response may be behind the requests at hand."""

FIRST_PLACES, EVERY_PLACE = 8, 1 << 62
"""Beginnings of segments to try: most often, one of the first is a frame."""

NO, UNCLEAR, YES = range(3)


def looks_like_tls(head: Int64) -> Bools:
    """Whether 4 bytes, as a number, begin a TLS record: type 20 to 23, version 3.0 to 3.4, and the
    first byte of a length up to 2^14 + 2048."""
    kind, major, minor, length = (head >> shift & 0xFF for shift in (24, 16, 8, 0))
    tls: Bools = (kind >= 20) & (kind <= 23) & (major == 3) & (minor <= 4) & (length <= 0x48)
    return tls


class Seeker:
    """Judges places in the streams of a block. `newest`: newest known version by API key."""

    def __init__(
        self, table: ConnectionTable, streams: StreamTable, ports: Collection[int],
        newest: Mapping[int, int],
    ) -> None:  # fmt: skip
        self.brokers: set[tuple[int, int, int]] = set()
        """Addresses and ports where brokers listen: of Kafka connections, and named by them."""
        self._table = table
        self._streams = streams
        self._ports = np.array(sorted(ports), np.uint16)
        self._newest = np.full(max(newest, default=0) + NEWER + 1, NEWER, np.int64)
        for key, version in newest.items():
            self._newest[key] += version

    # Connections

    def tell_sides(self, rows: Int64) -> None:
        """Which end is the client, of connections without handshake: by the broker's port."""
        rows = rows[self._table.client[rows] < 0]
        if len(rows):
            broker = self._is_broker(rows)
            told = broker[:, 0] != broker[:, 1]
            self._table.client[rows[told]] = broker[told, 0]

    def decide(self, chains: Chains, stream: Int64) -> None:
        """What connections carry of which the beginning is at hand.

        `stream`: of each stream of the chains.
        """
        table, row = self._table, stream >> 1
        index = np.flatnonzero(
            (table.protocol[row] == UNDECIDED)
            & self._streams.flat("at_head")[stream]
            & (table.client[row] == stream & 1)
        )
        if not len(index):
            return
        row = row[index]
        at = chains.address[chains.first[index]]
        verdict = self._requests(chains, at, chains.end[index], row)[1]
        head = chains.space.number(at, "i4").astype(np.int64)
        protocol = np.where(looks_like_tls(head), TLS, OTHER)
        protocol[verdict == YES] = KAFKA
        protocol[verdict == UNCLEAR] = UNDECIDED
        self._learn_brokers(row[protocol == KAFKA])
        # Where a broker listens, an API or version that nobody knows is likelier than another
        # protocol, and is to be reported.
        strange = np.flatnonzero(protocol == OTHER)
        strange = strange[
            self._is_broker(row[strange])[np.arange(len(strange)), 1 - table.client[row[strange]]]
        ]
        some = index[strange]
        verdict = self._requests(chains, at[strange], chains.end[some], row[strange], any_api=True)[
            1
        ]
        protocol[strange[verdict == YES]] = KAFKA
        table.protocol[row] = protocol

    def _learn_brokers(self, rows: Int64) -> None:
        """Where the servers of Kafka connections listen, brokers listen."""
        table, end = self._table, 1 - self._table.client[rows]
        ends = (table.high[rows, end], table.low[rows, end], table.port[rows, end])
        self.brokers.update(zip(*(each.tolist() for each in ends), strict=True))

    def begin_block(self, stream: Int64) -> None:
        """Of these streams a block begins: correlation ids seen so far are those of before it."""
        streams = self._streams
        streams.flat("correlation_from")[stream] = streams.flat("correlation")[stream]

    def note_requests(self, stream: Int64, first: Int64, last: Int64) -> None:
        """Keep the correlation ids of the block's requests: those of first and last."""
        streams = self._streams
        new = ~streams.flat("has_correlation")[stream]
        streams.flat("correlation_from")[stream[new]] = first[new]
        streams.flat("correlation")[stream] = last
        streams.flat("has_correlation")[stream] = True

    def _is_broker(self, rows: Int64) -> Bools:
        """Of both ends of connections: whether it is at a broker's port."""
        table = self._table
        found: Bools = np.isin(table.port[rows], self._ports)
        for high, low, port in self.brokers:
            found |= (
                (table.port[rows] == port)
                & (table.low[rows] == np.uint64(low))
                & (table.high[rows] == np.uint64(high))
            )
        return found

    # Places

    def seek(self, chains: Chains, index: Int64, stream: Int64) -> Int64:
        """Address of the first frame that is found in each of these streams of the chains, or -1.

        `stream`: of each one at `index`. What is found may decide the connection. Where nothing is
        found, the stream's `boundary` moves on to what may still become something.
        """
        found, pending = self._try(chains, index, stream, FIRST_PLACES)
        rest = np.flatnonzero(found < 0)
        found[rest], pending[rest] = self._try(chains, index[rest], stream[rest], EVERY_PLACE)
        kafka = self._table.protocol[stream >> 1] == KAFKA
        for each in np.flatnonzero(kafka).tolist():
            until = int(found[each] if found[each] >= 0 else chains.end[index[each]])
            place, tried = self._scan(chains, int(index[each]), int(stream[each]), until)
            found[each] = place if place >= 0 else found[each]
            pending[each] = tried if pending[each] < 0 else min(tried, int(pending[each]))
        self._move_on(chains, index, stream, np.flatnonzero(found < 0), pending)
        return found

    def places(self, chains: Chains, index: Int64, stream: Int64) -> Int64:
        """Every beginning of a segment, in one stream, that begins a frame by itself."""
        at = chains.address[chains.first[index[0]] : chains.first[index[0] + 1]]
        client = self._table.client[stream >> 1] == stream & 1
        one = np.zeros(len(at), np.int64)
        verdict = self._judge(chains, at, index[one], stream[one], client[one], BORDER_BITS)
        found: Int64 = at[verdict == YES]
        return found

    def _try(self, chains: Chains, index: Int64, stream: Int64, places: int) -> tuple[Int64, Int64]:
        """Try the beginnings of segments, no more than `places` of each stream.

        Returns the addresses of the first that is good and of the first that is unclear, or -1.
        """
        table, row = self._table, stream >> 1
        client = table.client[row]
        asks = (client < 0) | (client == stream & 1)
        boundary = chains.address_of(index, self._streams.flat("boundary")[stream])
        first = np.searchsorted(chains.address, boundary)
        first = np.maximum(first, chains.first[index])
        count = np.clip(chains.first[index + 1] - first, 0, places)
        at = chains.address[ranges(first, count)[0]]
        owner = np.repeat(np.arange(len(index)), count)
        verdict = self._judge(chains, at, index[owner], stream[owner], asks[owner], BORDER_BITS)
        good, unclear = verdict == YES, verdict == UNCLEAR
        undecided = table.protocol[row] == UNDECIDED
        if undecided.any():
            good &= (~undecided | asks | self._is_broker(row).any(1))[owner]
        found = _first(len(index), owner[good], at[good])
        if undecided.any():
            self._take(chains, stream, found, undecided, owner, at)
        return found, _first(len(index), owner[unclear], at[unclear])

    def _take(
        self, chains: Chains, stream: Int64, found: Int64, undecided: Bools, owner: Int64,
        at: Int64,
    ) -> None:  # fmt: skip
        """Decide connections by what was found in them; one side of each can be the client."""
        table, row = self._table, stream >> 1
        some = np.flatnonzero((found >= 0) & undecided)
        _, first = np.unique(row[some], return_index=True)
        doubled = np.setdiff1d(some, some[first])
        found[doubled] = -1
        some = some[first]
        table.protocol[row[some]] = KAFKA
        unknown = some[table.client[row[some]] < 0]
        table.client[row[unknown]] = stream[unknown] & 1
        self._learn_brokers(row[some])
        head = chains.space.number(at, "i4").astype(np.int64)
        tls = row[owner[looks_like_tls(head) & undecided[owner]]]
        table.protocol[tls[table.protocol[tls] == UNDECIDED]] = TLS

    def _scan(self, chains: Chains, index: int, stream: int, end: int) -> tuple[int, int]:
        """Try every byte of a stream that was not tried, up to the address `end`: the address of a
        frame, or -1; and the first address that is to be tried again when more is there."""
        streams = self._streams
        one = np.array([index])
        scanned = max(streams.flat("scanned")[stream], streams.flat("boundary")[stream])
        begin = int(chains.address_of(one, np.array([scanned]))[0])
        begin = max(begin, int(chains.address[chains.first[index]]))
        if end - begin < REQUEST_HEAD:
            return -1, min(begin, end)
        window, address = chains.bytes_between(index, begin, end)
        if len(window) < REQUEST_HEAD:
            return -1, min(begin, end)
        asks = bool(self._table.client[stream >> 1] == stream & 1)
        like = self._like_requests(window) if asks else self._like_responses(window, stream)
        at = address(like)
        who = np.full(len(at), stream)
        verdict = self._judge(chains, at, np.full(len(at), index), who, np.full(len(at), asks), 0)
        good, unclear = at[verdict == YES], at[verdict == UNCLEAR]
        tried = int(unclear[0]) if len(unclear) else end - REQUEST_HEAD + 1
        streams.flat("scanned")[stream] = int(chains.position_of(one, np.array([tried]))[0])
        return (int(good[0]) if len(good) else -1), tried

    def _like_requests(self, window: UInt8) -> Int64:
        """Offsets at which the bytes that are nearly constant in a request are so."""
        count = len(window) - REQUEST_HEAD + 1
        like = window[:count] <= FRAME_LIMIT >> 24
        like &= window[4 : count + 4] == 0
        like &= window[5 : count + 5] < len(self._newest)
        like &= window[6 : count + 6] == 0
        return np.flatnonzero(like)

    def _like_responses(self, window: UInt8, stream: int) -> Int64:
        """Offsets at which a correlation id stands that the client may be waiting for."""
        count = len(window) - RESPONSE_HEAD + 1
        number = np.ndarray((count,), ">i4", window, 4, (1,))
        low, high, known = self._awaited(np.array([stream]))
        if not known[0]:
            return np.zeros(0, np.int64)
        return np.flatnonzero(
            (number >= low[0]) & (number <= high[0]) & (window[:count] <= FRAME_LIMIT >> 24)
        )

    def _move_on(
        self, chains: Chains, index: Int64, stream: Int64, some: Int64, pending: Int64
    ) -> None:
        """Where nothing was found: keep what may become a frame, and no more than SEEK_BYTES.

        Boundaries go to the beginnings of segments, since these are evidence.
        """
        end = chains.end[index[some]]
        keep = np.where(pending[some] < 0, end, pending[some])
        keep = np.maximum(keep, end - SEEK_BYTES)
        kept = chains.address[chains.piece_of(np.minimum(keep, end - 1))]
        kept = np.where(keep >= end, end, kept)
        position = chains.position_of(index[some], kept)
        boundary = self._streams.flat("boundary")
        boundary[stream[some]] = np.maximum(boundary[stream[some]], position)

    # Evidence

    def _judge(
        self, chains: Chains, at: Int64, index: Int64, stream: Int64, asks: Bools, bits: int
    ) -> Int64:
        """YES, NO or UNCLEAR for each place, of which `bits` speak already.

        Walks the chain that begins there, for up to `HOPS` frames.
        """
        here, end = at.copy(), chains.end[index]
        score = np.full(len(at), float(bits))
        verdict = np.full(len(at), UNCLEAR)
        live = np.arange(len(at))
        for hop in range(HOPS):
            if not len(live):
                break
            size, state, gain = self._headers(
                chains, here[live], end[live], stream[live], asks[live]
            )
            # What follows two good frames may be damaged as well.
            if hop < SURE_HOPS:
                verdict[live[state == NO]] = NO
            score[live] += gain
            live, size = live[state == YES], size[state == YES]
            here[live] += 4 + size
            inside = here[live] <= end[live]
            live = live[inside]
            piece = chains.piece_of(here[live])
            border = (chains.address[piece] == here[live]) | (here[live] == end[live])
            score[live] += BORDER_BITS * border
            live = live[here[live] < end[live]]
        verdict[(verdict == UNCLEAR) & (score >= CERTAINTY)] = YES
        return verdict

    def _headers(
        self, chains: Chains, at: Int64, end: Int64, stream: Int64, asks: Bools
    ) -> tuple[Int64, Int64, NDArray[np.float64]]:
        """Size, verdict, and bits of evidence of the header at each place."""
        size, verdict = np.zeros(len(at), np.int64), np.full(len(at), NO)
        gain = np.zeros(len(at))
        some = np.flatnonzero(asks)
        size[some], verdict[some], gain[some] = self._requests(
            chains, at[some], end[some], stream[some] >> 1
        )
        some = np.flatnonzero(~asks)
        size[some], verdict[some], gain[some] = self._responses(
            chains, at[some], end[some], stream[some]
        )
        return size, verdict, gain

    def _requests(
        self, chains: Chains, at: Int64, end: Int64, row: Int64, *, any_api: bool = False
    ) -> tuple[Int64, Int64, NDArray[np.float64]]:
        there = np.minimum(chains.there_until(at), end) - at
        size, api, version, correlation, client = (
            _number(chains, at + offset, dtype)
            for offset, dtype in ((0, "i4"), (4, "i2"), (6, "i2"), (8, "i4"), (12, "i2"))
        )
        newest = self._newest[np.clip(api, 0, len(self._newest) - 1)]
        nameless = (api == CONTROLLED_SHUTDOWN) & (version == 0)
        fits = (client >= -1) & (client <= np.minimum(size - SMALLEST_REQUEST, LONGEST_CLIENT_ID))
        # Zeros are everywhere, so where they alone speak for a request, a broker's port must too.
        blank = (api == 0) & (version == 0) & (client == 0)
        trusted = np.flatnonzero(blank & (correlation != 0))
        blank[trusted] = ~self._is_broker(row[trusted]).any(1)
        bad = (there >= 4) & ((size < SMALLEST_REQUEST) | (size > FRAME_LIMIT))
        known = (api < len(self._newest)) & (version <= newest) | any_api
        bad |= (there >= 6) & (api < 0)
        bad |= (there >= 8) & ((version < 0) | ~known)
        bad |= (there >= REQUEST_HEAD) & ((~fits & ~nameless) | blank)
        verdict = np.where(bad, NO, np.where(there >= REQUEST_HEAD, YES, UNCLEAR))
        named = np.flatnonzero((verdict == YES) & ~nameless & (client > 0))
        length = np.minimum(client[named], there[named] - REQUEST_HEAD)
        text, borders = chains.space.take(at[named] + REQUEST_HEAD, length)
        control = np.append(0, np.cumsum((text < 0x20) | (text == 0x7F)))
        verdict[named[control[borders[1:]] > control[borders[:-1]]]] = NO
        return size, verdict, np.where(verdict == YES, REQUEST_BITS, 0.0)

    def _responses(
        self, chains: Chains, at: Int64, end: Int64, stream: Int64
    ) -> tuple[Int64, Int64, NDArray[np.float64]]:
        there = np.minimum(chains.there_until(at), end) - at
        size, correlation = _number(chains, at, "i4"), _number(chains, at + 4, "i4")
        bad = (there >= 4) & ((size < 4) | (size > FRAME_LIMIT))
        bad |= (there >= RESPONSE_HEAD) & (correlation < 0)
        verdict = np.where(bad, NO, np.where(there >= RESPONSE_HEAD, YES, UNCLEAR))
        low, high, known = self._awaited(stream)
        near = known & (correlation >= low) & (correlation <= high)
        bits = SIZE_BITS + near * (CORRELATION_BITS - np.log2(high - low + 1))
        return size, verdict, np.where(verdict == YES, bits, 0.0)

    def _awaited(self, stream: Int64) -> tuple[Int64, Int64, Bools]:
        """Range of the correlation ids that may come in these streams; whether it is known."""
        streams, client = self._streams, stream ^ 1
        low, high = streams.flat("correlation_from")[client], streams.flat("correlation")[client]
        known = streams.flat("has_correlation")[client] & (low <= high)
        return np.minimum(low, high) - SLACK, high, known


def _number(chains: Chains, at: Int64, dtype: str) -> Int64:
    return chains.space.number(np.minimum(at, chains.space.size), dtype).astype(np.int64)


def _first(count: int, owner: Int64, at: Int64) -> Int64:
    """The first of the places, which ascend, for each of `count` owners; -1 where there is none."""
    first = np.full(count, -1)
    first[owner[::-1]] = at[::-1]
    return first
