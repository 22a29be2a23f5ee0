"""Judging: how much a place in a stream looks like the beginning of a frame, in bits of evidence.

A field of which one random value in 2^k would do is worth k bits:

- a request: its size, an API and version that exist, a client id that fits. A client id that is
  longer than usual, or has control characters, is weaker evidence: brokers accept it, but few
  clients send it;
- a response: its size, and a correlation id near those that its client uses;
- the beginning of a segment, since a message mostly begins one;
- a frame that ends where a segment ends, and what comes behind it, judged alike.

A place with `CERTAINTY` bits is taken; one against which something speaks is not, whatever its
bits.

Bits count against random bytes, and other protocols are not random: ZooKeeper's requests have sizes
and small numbers where Kafka's have them, SSH frames its key exchange alike. So `weighing` looks
further, where a request decides what its connection carries.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int64, UInt8
from dissector.streams.frame_chain import FrameChains
from dissector.streams.limits import CERTAINTY, FRAME_LIMIT, SEEK_BYTES
from dissector.streams.table import KAFKA, NEVER, UNDECIDED, Bools, ConnectionTable, StreamTable

REQUEST_BITS = 30
"""5 of the size, 9 of the API, 11 of the version, 5 of the client id."""
SIZE_BITS = 6
"""Of a response: its size, and a correlation id that is not negative."""
CORRELATION_BITS = 31
"""Of a correlation id that is known to the last bit, less what `SIZE_BITS` counts of it."""
RESERVED = (1 << 31) - 8
"""From here on Java's clients number what they say for SASL, beside all else (KIP-368)."""
RESERVED_BITS = 18
"""Of such a correlation id: less than 28, since the largest number is a frequent value."""
BORDER_BITS = 10
"""Of a place where a segment begins: one in about 1,448 bytes."""

NEWER = 16
"""Versions beyond the newest known one that a request may have, and APIs beyond the last one: what
is newer than the definitions must be seen, to be reported."""

REQUEST_HEAD = 14
"""Bytes of a request up to its client id, size included."""
RESPONSE_HEAD = 8
SMALLEST_RESPONSE = 6
"""A correlation id and a body, of which none has less than an error code. A smaller one is no
evidence: zeros and small numbers look like it."""
SMALLEST_REQUEST = 10
USUAL_CLIENT_ID = 4096
"""Bytes that a client id has at most, and that are looked at. Kafka allows 32,767."""
ODD_BITS = 10
"""Less for a request whose client id is longer, or has control characters."""
CONTROLLED_SHUTDOWN = 7
"""Version 0 of it has no client id."""

HOPS = 4
"""Frames of a chain that are judged."""
SURE_HOPS = 2
"""Of these, how many headers must not speak against it."""
SURE = CERTAINTY + BORDER_BITS
"""Bits with which a place is taken whatever follows: those of a frame that is also a segment."""
SLACK = 256
"""Correlation ids that a response may be behind the requests at hand."""
LONGEST_STEP = 1 << 16
"""From one response's correlation id to the next one's, up or down: clients count requests as they
make them, and may send a later one first. Also from those of requests to those of responses."""

NO, UNCLEAR, YES = range(3)


class HeaderScorer:
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

    def is_broker(self, rows: Int64) -> Bools:
        """Of both ends of connections: whether it is at a broker's port or address."""
        named: Bools = np.isin(self._table.port[rows], self._ports)
        return named | self.is_known_broker(rows)

    def is_known_broker(self, rows: Int64) -> Bools:
        """The same of addresses that other connections told, whatever the port."""
        table = self._table
        found = np.zeros((len(rows), 2), np.bool_)
        if not len(rows):
            return found
        for high, low, port in self.brokers:
            found |= (
                (table.port[rows] == port)
                & (table.low[rows] == np.uint64(low))
                & (table.high[rows] == np.uint64(high))
            )
        return found

    def begin_block(self, stream: Int64) -> None:
        """Of these streams a block begins: correlation ids seen so far are those of before it."""
        streams = self._streams
        streams.flat("correlation_before")[stream] = streams.flat("correlation")[stream]

    def note_requests(self, stream: Int64, least: Int64, most: Int64, id_regression: Int64) -> None:
        """Keep the range of the correlation ids of requests, and how far below the one that should
        come next they are at most: 0 where they ascend."""
        streams = self._streams
        low, high = streams.flat("correlation_before"), streams.flat("correlation")
        new = ~streams.flat("has_correlation")[stream]
        id_regression = np.maximum(id_regression, np.where(new, 0, high[stream] + 1 - least))
        streams.flat("id_regression")[stream] = np.maximum(
            streams.flat("id_regression")[stream], id_regression
        )
        low[stream] = np.where(new, least, np.minimum(low[stream], least))
        high[stream] = np.where(new, most, np.maximum(high[stream], most))
        streams.flat("has_correlation")[stream] = True

    def note_responses(self, stream: Int64, latest: Int64) -> None:
        """Keep the correlation ids of the latest responses."""
        self._streams.flat("correlation")[stream] = latest
        self._streams.flat("has_correlation")[stream] = True

    def verdicts(
        self, chains: FrameChains, at: Int64, index: Int64, stream: Int64, is_client: Bools
    ) -> Int64:
        """YES, NO or UNCLEAR for each of these beginnings of segments.

        Walks the chain that begins there, for up to `HOPS` frames.
        """
        here, end = at.copy(), chains.end[index]
        score = np.full(len(at), float(BORDER_BITS))
        verdict = np.full(len(at), UNCLEAR)
        before = np.full(len(at), NEVER)
        live = np.arange(len(at))
        for hop in range(HOPS):
            if not len(live):
                break
            size, state, gain = self.headers(
                chains, here[live], end[live], stream[live], is_client[live]
            )
            # What follows two good frames, or a very good one, may be damaged as well.
            if hop < SURE_HOPS:
                verdict[live[(state == NO) & (score[live] < SURE)]] = NO
            score[live] += gain
            step = self._steps(chains, here[live], stream[live], is_client[live], before[live])
            verdict[live[step]] = NO
            state[step] = NO
            live, size = live[state == YES], size[state == YES]
            before[live] = _number(chains, here[live] + 4, "i4")
            here[live] += 4 + size
            inside = here[live] <= end[live]
            live = live[inside]
            piece = chains.piece_of(here[live])
            border = (chains.address[piece] == here[live]) | (here[live] == end[live])
            score[live] += BORDER_BITS * border
            live = live[here[live] < end[live]]
        verdict[(verdict == UNCLEAR) & (score >= CERTAINTY)] = YES
        return verdict

    def headers(
        self, chains: FrameChains, at: Int64, end: Int64, stream: Int64, is_client: Bools
    ) -> tuple[Int64, Int64, NDArray[np.float64]]:
        """Size, verdict, and bits of evidence of the header at each place."""
        size, verdict = np.zeros(len(at), np.int64), np.full(len(at), NO)
        gain = np.zeros(len(at))
        some = np.flatnonzero(is_client)
        size[some], verdict[some], gain[some] = self.requests(
            chains, at[some], end[some], stream[some] >> 1
        )
        some = np.flatnonzero(~is_client)
        size[some], verdict[some], gain[some] = self.responses(
            chains, at[some], end[some], stream[some]
        )
        return size, verdict, gain

    def _steps(
        self, chains: FrameChains, at: Int64, stream: Int64, is_client: Bools, before: Int64
    ) -> Bools:
        """Responses of undecided connections whose correlation id is far from the one `before`, or
        the same: clients count, but for those that always send 0."""
        doubted: Bools = (self._streams.protocol[stream >> 1] == UNDECIDED) & ~is_client
        doubted &= before != NEVER
        if doubted.any():
            step = np.abs(_number(chains, at + 4, "i4") - before)
            doubted &= (step > LONGEST_STEP) | ((step == 0) & (before != 0))
        return doubted

    def requests(
        self, chains: FrameChains, at: Int64, end: Int64, row: Int64, *, any_api: bool = False
    ) -> tuple[Int64, Int64, NDArray[np.float64]]:
        there = np.minimum(chains.gap_after(at), end) - at
        size, api, version, correlation, client = (
            _number(chains, at + offset, dtype)
            for offset, dtype in ((0, "i4"), (4, "i2"), (6, "i2"), (8, "i4"), (12, "i2"))
        )
        newest = self._newest[np.clip(api, 0, len(self._newest) - 1)]
        nameless = (api == CONTROLLED_SHUTDOWN) & (version == 0)
        fits = (client >= -1) & (client <= size - SMALLEST_REQUEST)
        # Zeros are everywhere, so where they alone speak for a request, a broker's port must too.
        blank = (api == 0) & (version == 0) & (client == 0)
        trusted = np.flatnonzero(blank & (correlation != 0))
        blank[trusted] = ~self.is_broker(row[trusted]).any(1)
        bad = (there >= 4) & ((size < SMALLEST_REQUEST) | (size > FRAME_LIMIT))
        known = (api < len(self._newest)) & (version <= newest) | any_api
        bad |= (there >= 6) & (api < 0)
        bad |= (there >= 8) & ((version < 0) | ~known)
        bad |= (there >= REQUEST_HEAD) & ((~fits & ~nameless) | blank)
        verdict = np.where(bad, NO, np.where(there >= REQUEST_HEAD, YES, UNCLEAR))
        odd = np.zeros(len(at), np.bool_)
        named = np.flatnonzero((verdict == YES) & ~nameless)
        odd[named] = self._has_odd_client_id(chains, at[named], there[named], client[named])
        # Elsewhere than in a Kafka connection, all of the request has to confirm it.
        open_ends = odd & (there < size + 4) & (self._streams.protocol[row] != KAFKA)
        verdict[open_ends] = np.where(size[open_ends] < SEEK_BYTES, UNCLEAR, NO)
        return size, verdict, np.where(verdict == YES, REQUEST_BITS - ODD_BITS * odd, 0.0)

    def _has_odd_client_id(
        self, chains: FrameChains, at: Int64, there: Int64, client: Int64
    ) -> Bools:
        """Whether requests have unusual client ids. `client`: their lengths."""
        length = np.minimum(np.minimum(client, USUAL_CLIENT_ID), there - REQUEST_HEAD)
        text, borders = chains.space.take(at + REQUEST_HEAD, np.maximum(length, 0))
        control = np.append(0, np.cumsum((text < 0x20) | (text == 0x7F)))
        odd: Bools = control[borders[1:]] > control[borders[:-1]]
        return odd | (client > USUAL_CLIENT_ID)

    def responses(
        self, chains: FrameChains, at: Int64, end: Int64, stream: Int64
    ) -> tuple[Int64, Int64, NDArray[np.float64]]:
        there = np.minimum(chains.gap_after(at), end) - at
        size, correlation = _number(chains, at, "i4"), _number(chains, at + 4, "i4")
        bad = (there >= 4) & ((size < 4) | (size > FRAME_LIMIT))
        bad |= (there >= RESPONSE_HEAD) & (correlation < 0)
        verdict = np.where(bad, NO, np.where(there >= RESPONSE_HEAD, YES, UNCLEAR))
        low, high, known = self.expected_ids(stream)
        near = known & (correlation >= low) & (correlation <= high)
        bits = SIZE_BITS + near * (CORRELATION_BITS - np.log2(high - low + 1))
        bits += (correlation >= RESERVED) * RESERVED_BITS
        bits *= size >= SMALLEST_RESPONSE
        return size, verdict, np.where(verdict == YES, bits, 0.0)

    def is_sure(
        self, chains: FrameChains, at: Int64, stream: Int64, is_client: Bools, end: Int64
    ) -> tuple[Bools, Bools]:
        """Whether headers alone show that messages begin at these addresses: requests with a usual
        client id, responses with a correlation id that is awaited; and whether they show that none
        does."""
        _, state, bits = self.headers(chains, at, end, stream, is_client)
        least = np.where(is_client, REQUEST_BITS, SIZE_BITS + 1)
        return (state == YES) & (bits >= least), state == NO

    def odd_requests(self, kind: Int64, client: Int64, size: Int64) -> Bools:
        """Requests with impossible headers, or with nothing but zeros in them.

        `kind`: API key and version, as they stand in the header. `client`: length of the client id.
        """
        api, version = kind >> 16, kind & 0xFFFF
        newest = self._newest[np.clip(api, 0, len(self._newest) - 1)]
        odd: Bools = (api < 0) | (api >= len(self._newest)) | (version > newest)
        odd |= (client < -1) | (client > size - SMALLEST_REQUEST) | ((kind == 0) & (client == 0))
        odd &= kind != CONTROLLED_SHUTDOWN << 16
        return odd

    def odd_responses(self, stream: Int64, correlation: Int64, before: Int64) -> Bools:
        """Responses with impossible correlation ids: negative ones, those that are far from all
        that the client used, and those before that of the response `before` (NEVER: none)."""
        id_regression = self.id_regression(stream)
        odd: Bools = (correlation < 0) | self.is_implausible(stream, correlation)
        odd |= (before != NEVER) & (correlation <= before - id_regression) & (before < RESERVED)
        odd &= correlation < RESERVED
        return odd

    def id_regression(self, stream: Int64) -> Int64:
        """How far correlation ids of responses may fall: 0 where each is larger than the one
        before."""
        falls: Int64 = self._streams.flat("id_regression")[stream ^ 1]
        return falls

    def expected_ids(self, stream: Int64) -> tuple[Int64, Int64, Bools]:
        """Range of the correlation ids that may come in these streams; whether it is known.

        A broker answers in the order of requests, so that what it answered does not come again.
        """
        streams, client = self._streams, stream ^ 1
        has, latest = streams.flat("has_correlation"), streams.flat("correlation")
        low, high = streams.flat("correlation_before")[client] - SLACK, latest[client]
        next_one = latest[stream] + 1 - streams.flat("id_regression")[client]
        next_one = np.minimum(np.maximum(low, next_one), high)
        return np.where(has[stream], next_one, low), high, has[client]

    def is_implausible(self, stream: Int64, correlation: Int64) -> Bools:
        """Whether these correlation ids are far from all that the clients of these streams used.

        Near ones may be of requests that are lost, or come later in the capture.
        """
        low, high = self._streams.flat("correlation_before"), self._streams.flat("correlation")
        client = stream ^ 1
        far = correlation < low[client] - LONGEST_STEP
        far |= correlation > high[client] + LONGEST_STEP
        strange: Bools = self._streams.flat("has_correlation")[client] & far
        return strange

    def like_requests(self, window: UInt8) -> Int64:
        """Offsets at which the bytes that are nearly constant in a request are so."""
        count = len(window) - REQUEST_HEAD + 1
        like = window[:count] <= FRAME_LIMIT >> 24
        like &= window[4 : count + 4] == 0
        like &= window[5 : count + 5] < len(self._newest)
        like &= window[6 : count + 6] == 0
        return np.flatnonzero(like)

    def like_responses(self, window: UInt8, stream: int) -> Int64:
        """Offsets at which a correlation id stands that the client may be waiting for."""
        count = len(window) - RESPONSE_HEAD + 1
        number = np.ndarray((count,), ">i4", window, 4, (1,))
        low, high, known = self.expected_ids(np.array([stream]))
        if not known[0]:
            return np.zeros(0, np.int64)
        return np.flatnonzero(
            (number >= low[0]) & (number <= high[0]) & (window[:count] <= FRAME_LIMIT >> 24)
        )


def _number(chains: FrameChains, at: Int64, dtype: str) -> Int64:
    return chains.space.number(np.minimum(at, chains.space.size), dtype).astype(np.int64)
