"""HeaderScorer: how much a header looks like the start of a frame, in bits of evidence.

A field that one random value in 2^k would satisfy is worth k bits:

- a request: its size, an API and version that exist, a valid length of the client id. A client id
  that is longer than usual, has control characters, or has another length than earlier ones is
  weaker evidence: brokers accept it, but few clients send it;
- a response: its size, and a correlation id near those of the client's requests.

`places` adds the bits of segment borders and of the frames that follow. A header with an impossible
field is rejected.

The bits hold for random bytes, and other protocols are not random: ZooKeeper's requests have sizes
and small numbers in the same places, and SSH frames its key exchange in the same way. So
`request_evidence` weighs more than the header if a request decides the protocol of its connection.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int64, UInt8
from dissector.streams.connections.table import (
    HEAD,
    KAFKA,
    LAST_TIME,
    NEVER,
    SEARCHING,
    Bools,
    ConnectionTable,
    Endpoint,
    StreamTable,
)
from dissector.streams.frame_chain import FrameChains
from dissector.streams.limits import SEEK_BYTES, USUAL_FRAME
from dissector.streams.search.bodies import RequestLog

REQUEST_BITS = 30
"""Bits of a request: 5 for the size, 9 for the API, 11 for the version, 5 for the client id."""
NEXT_APIS, NEXT_VERSIONS = 1 << 10, 16
"""APIs and versions, known or not, that lose no bits where unknown ones are accepted."""
SIZE_BITS = 6
"""Bits of a response for its size and a correlation id that is not negative."""
CORRELATION_BITS = 31
"""Bits of a response whose correlation id is the only possible one, besides `SIZE_BITS`."""
RESERVED = (1 << 31) - 8
"""Lowest correlation id that Java clients reserve for SASL requests (KIP-368)."""
RESERVED_BITS = 18
"""Bits of a reserved correlation id: less than 28, since the largest number is a frequent value."""
BORDER_BITS = 10
"""Bits of the start of a segment: one in about 1,448 bytes."""

NEWER = 16
"""Versions beyond the newest known one that a request may have, and APIs beyond the last one.
Messages that are newer than the definitions are reported."""

LAST_VERSION = (1 << 15) - 1

REQUEST_HEAD = 14
"""Bytes of a request up to its client id, size included."""
RESPONSE_HEAD = 8
SMALLEST_RESPONSE = 6
"""A correlation id and the smallest body, an error code. Smaller responses have no bits, since
zeros and small numbers look like them."""
SMALLEST_REQUEST = 10
CLIENT_ID_LENGTH = 2
"""Bytes of the length of a client id."""
USUAL_CLIENT_ID = 4096
"""Bytes of a client id that are checked; a longer one is unusual. Kafka allows 32,767."""
SHORT_CLIENT_ID = 64
"""Bytes of a client id that are checked first."""
UNUSUAL_BITS = 10
"""Bits that a request loses if its client id is longer, has control characters, or has another
length than that of the first request of its connection, or if it is empty and all numbers but one
are zero: zeros are frequent."""
LARGE_FRAME_BITS = 5
"""Bits that a message loses if it is larger than `USUAL_FRAME`: its size may be any number."""
CONTROLLED_SHUTDOWN = 7
"""Version 0 of this API has no client id."""

SLACK = 256
"""Distance by which the correlation id of a response may be below those of known requests."""
LONGEST_STEP = 1 << 16
"""Largest difference between the correlation ids of two successive responses, or of requests and
responses. A client numbers requests when it creates them, and may send them in another order."""
SWAPPED_FIRST = 2
"""`id_regression` of a client whose first request is lost: a Java client numbers its first request
before ApiVersions, and sends it after ApiVersions."""

REPEATED = 1
"""`id_regression` of a client that uses an id twice in a row, as controllers of old brokers."""

NEAR = 1 << 7
"""Largest difference between the correlation ids of two requests that count as successive."""
NEAR_BITS = CORRELATION_BITS - 8
"""Bits of a correlation id that is `NEAR` the previous one, but does not follow it."""

SEVERAL = -2
"""Instead of the only correlation id of a client: it has sent different ones."""

NO, UNCLEAR, YES = range(3)


class HeaderScorer:
    """Scores places in the streams of a block. `newest`: newest known version by API key.
    `log`: the latest requests."""

    def __init__(
        self, table: ConnectionTable, streams: StreamTable, ports: Collection[int],
        newest: Mapping[int, int], log: RequestLog, brokers: set[Endpoint],
    ) -> None:  # fmt: skip
        self.brokers = brokers
        """Addresses and ports of brokers: from Kafka connections, and named in responses."""
        self._log = log
        self._table = table
        self._streams = streams
        self._is_port = _port_table(ports)
        self.newest = np.full(max(newest, default=0) + NEWER + 1, NEWER, np.int64)
        """Highest version of a request that is possible, by API key."""
        for key, version in newest.items():
            self.newest[key] += version

    def is_broker(self, rows: Int64) -> Bools:
        """Whether each end of these connections has the port or the address of a broker."""
        named: Bools = self._is_port[self._table.port[rows]]
        return named | self.is_known_broker(rows)

    def is_known_broker(self, rows: Int64) -> Bools:
        """Whether each end of these connections has the address and port of a known broker."""
        table = self._table
        is_known: Bools = np.ones((len(rows), 2), np.bool_)
        if len(self.brokers) < len(rows):  # else, the ports take longer than the search
            is_known = _port_table({port for _, _, port in self.brokers})[table.port[rows]]
        index, end = np.nonzero(is_known)
        endpoints = table.endpoints(rows[index], end)
        is_known[index, end] = [each in self.brokers for each in endpoints]
        return is_known

    def may_be_client(self, stream: Int64) -> Bools:
        """Whether a client sends, or may send, each stream."""
        client = self._table.client[stream >> 1]
        may_be_client: Bools = (client < 0) | (client == stream & 1)
        return may_be_client

    def begin_block(self, stream: Int64) -> None:
        """Begin a block of these streams: their correlation ids become those before the block,
        unless responses to earlier requests may still be found."""
        streams = self._streams
        stream = stream[streams.state[stream ^ 1] != SEARCHING]
        streams.correlation_before[stream] = streams.correlation[stream]

    def record_requests(
        self, stream: Int64, least: Int64, most: Int64, id_regression: Int64, is_head: Bools
    ) -> None:
        """Record the range of the correlation ids of requests, and their `id_regression` (see
        `StreamTable`): 0 if they ascend.

        `is_head`: whether the first of these requests directly follows earlier ones, or the SYN.
        """
        streams = self._streams
        low, high = streams.correlation_before, streams.correlation
        new = ~streams.has_correlation[stream]
        known = np.where(is_head, 0, SWAPPED_FIRST)
        id_regression = np.maximum(id_regression, np.where(new, known, high[stream] + 1 - least))
        streams.id_regression[stream] = np.maximum(streams.id_regression[stream], id_regression)
        low[stream] = np.where(new, least, np.minimum(low[stream], least))
        high[stream] = np.where(new, most, np.maximum(high[stream], most))
        streams.has_correlation[stream] = True

    def record_client_ids(self, stream: Int64, length: Int64) -> None:
        """Record the lengths of the client ids of requests, if no earlier request is known."""
        size = self._streams.client_id_size
        size[stream] = np.where(size[stream], size[stream], length + CLIENT_ID_LENGTH)

    def record_responses(self, stream: Int64, latest: Int64) -> None:
        """Record the correlation ids of the latest responses."""
        self._streams.correlation[stream] = latest
        self._streams.has_correlation[stream] = True

    def headers(
        self, chains: FrameChains, at: Int64, index: Int64, *, any_size: bool = False
    ) -> tuple[Int64, Int64, NDArray[np.float64]]:
        """Size, verdict, and bits of evidence of the header at each place in the chains at `index`.
        `any_size`: see `requests` and `responses`."""
        size, verdict, gain = np.zeros(len(at), np.int64), np.full(len(at), NO), np.zeros(len(at))
        is_client = self.may_be_client(chains.stream[index])
        for each, score in ((is_client, self.requests), (~is_client, self.responses)):
            place = np.flatnonzero(each)
            if not len(place):
                continue
            size[place], verdict[place], gain[place] = score(
                chains, at[place], index[place], any_size=any_size
            )
        return size, verdict, gain

    def requests(
        self, chains: FrameChains, at: Int64, index: Int64, *, any_api: bool = False,
        any_size: bool = False,
    ) -> tuple[Int64, Int64, NDArray[np.float64]]:  # fmt: skip
        """`headers` of requests. `any_api`: accept unknown APIs and versions; `any_size`: sizes
        above `USUAL_FRAME`."""
        row, readable = chains.stream[index] >> 1, chains.readable(at, index)
        size, api, version, correlation, client = (
            chains.number(at + offset, dtype)
            for offset, dtype in ((0, "i4"), (4, "i2"), (6, "i2"), (8, "i4"), (12, "i2"))
        )
        newest = self.newest[np.clip(api, 0, len(self.newest) - 1)]
        has_no_client = (api == CONTROLLED_SHUTDOWN) & (version == 0)
        fits = (client >= -1) & (client <= size - SMALLEST_REQUEST)
        # Zeros are frequent. A request that consists of zeros must go to a broker's port.
        blank = (api == 0) & (version == 0) & (client == 0)
        numbered = np.flatnonzero(blank & (correlation != 0))
        blank[numbered] = ~self.is_broker(row[numbered]).any(1)
        bad = (size < SMALLEST_REQUEST) | ((size > USUAL_FRAME) & (not any_size))
        bad &= readable >= 4
        known = (api < len(self.newest)) & (version <= newest) | any_api
        bad |= (readable >= 6) & (api < 0)
        bad |= (readable >= 8) & ((version < 0) | ~known)
        bad |= (readable >= REQUEST_HEAD) & ((~fits & ~has_no_client) | blank)
        verdict = np.where(bad, NO, np.where(readable >= REQUEST_HEAD, YES, UNCLEAR))
        numbers = (api != 0) + (version != 0).astype(np.int64) + (correlation != 0)
        unusual = (numbers < 2) & (client == 0)
        usual_size = self._streams.client_id_size[chains.stream[index]]
        unusual |= (usual_size > 0) & (client + CLIENT_ID_LENGTH != usual_size) & ~has_no_client
        named = np.flatnonzero((verdict == YES) & ~has_no_client)
        unusual[named] |= self._has_unusual_client_id(
            chains, at[named], readable[named], client[named]
        )
        # Outside of a Kafka connection, such a request must be complete to confirm it. The body of
        # a large first request of usual size is weighed: a producer without client id may begin
        # with a batch.
        incomplete = unusual & (readable < size + 4) & (self._streams.protocol[row] != KAFKA)
        is_weighed = (self._streams.state[chains.stream[index]] == HEAD) & (size <= USUAL_FRAME)
        large = np.where(is_weighed, verdict, NO)
        verdict[incomplete] = np.where(size < SEEK_BYTES, UNCLEAR, large)[incomplete]
        bits = REQUEST_BITS - UNUSUAL_BITS * unusual - LARGE_FRAME_BITS * (size > USUAL_FRAME)
        if any_api:
            versions = np.maximum(newest + 1, NEXT_VERSIONS)
            bits = bits - _lost_bits(api, NEXT_APIS) - _lost_bits(version, versions)
        return size, verdict, np.where(verdict == YES, bits, 0.0)

    def _has_unusual_client_id(
        self, chains: FrameChains, at: Int64, readable: Int64, client: Int64
    ) -> Bools:
        """Whether requests have unusual client ids. `client`: the lengths of the ids."""
        is_unusual: Bools = client > USUAL_CLIENT_ID
        for limit in (SHORT_CLIENT_ID, USUAL_CLIENT_ID):  # most random bytes are refused early
            row = np.flatnonzero(~is_unusual)
            length = np.minimum(np.minimum(client[row], limit), readable[row] - REQUEST_HEAD)
            text, borders = chains.space.take(at[row] + REQUEST_HEAD, np.maximum(length, 0))
            control = np.append(0, np.cumsum((text < 0x20) | (text == 0x7F)))
            is_unusual[row] = control[borders[1:]] > control[borders[:-1]]
            if (client[row] <= limit).all():
                break
        return is_unusual

    def responses(
        self, chains: FrameChains, at: Int64, index: Int64, *, any_size: bool = False
    ) -> tuple[Int64, Int64, NDArray[np.float64]]:
        """`headers` of responses. `any_size`: accept sizes above `USUAL_FRAME`, with an expected
        correlation id."""
        stream, readable = chains.stream[index], chains.readable(at, index)
        size, correlation = chains.number(at, "i4"), chains.number(at + 4, "i4")
        low, high, known = self.expected_ids(stream)
        near = known & (correlation >= low) & (correlation <= high)
        # Zeros are frequent, and clients often count from 0: then only a captured request counts.
        zero = np.flatnonzero(near & (correlation == 0))
        near[zero] = self._log.has(stream[zero] ^ 1, correlation[zero])
        is_large = size > USUAL_FRAME
        bad = (readable >= 4) & ((size < 4) | (is_large & (not any_size)))
        is_far = (correlation < RESERVED) & self.is_implausible(stream, correlation)
        bad |= (readable >= RESPONSE_HEAD) & (is_far | (is_large & ~near))
        verdict = np.where(bad, NO, np.where(readable >= RESPONSE_HEAD, YES, UNCLEAR))
        bits = SIZE_BITS + near * (CORRELATION_BITS - np.log2(high - low + 1))
        bits -= LARGE_FRAME_BITS * is_large
        bits += (correlation >= RESERVED) * RESERVED_BITS
        bits *= size >= SMALLEST_RESPONSE
        return size, verdict, np.where(verdict == YES, bits, 0.0)

    def is_sure(
        self, chains: FrameChains, at: Int64, index: Int64, *, any_size: bool = False
    ) -> tuple[Bools, Bools]:
        """Whether headers alone show that messages begin at these addresses, and whether they show
        the opposite. Certain are requests with a usual client id, and responses with an expected
        correlation id; with `any_size` even if they are larger than usual."""
        size, state, bits = self.headers(chains, at, index, any_size=any_size)
        bits += LARGE_FRAME_BITS * (size > USUAL_FRAME)
        is_client = self.may_be_client(chains.stream[index])
        least = np.where(is_client, REQUEST_BITS, SIZE_BITS + 1)
        return (state == YES) & (bits >= least), state == NO

    def implausible_requests(
        self, kind: Int64, client: Int64, size: Int64, *, any_api: bool = False
    ) -> Bools:
        """Whether requests have impossible headers, or headers of zeros.

        `kind`: API key and version, as one number of the header. `client`: length of the client id.
        `any_api`: accept unknown APIs and versions.
        """
        api, version = kind >> 16, kind & 0xFFFF
        newest = self.newest[np.clip(api, 0, len(self.newest) - 1)]
        known = (api < len(self.newest)) & (version <= newest) | any_api
        implausible: Bools = (api < 0) | (version > LAST_VERSION) | ~known
        implausible |= (client < -1) | (client > size - SMALLEST_REQUEST)
        implausible |= (kind == 0) & (client == 0)
        implausible &= kind != CONTROLLED_SHUTDOWN << 16
        return implausible

    def implausible_responses(
        self, stream: Int64, correlation: Int64, before: Int64, *, are_whole: bool
    ) -> Bools:
        """Whether responses have impossible correlation ids: implausible ones, or too far below
        the id `before` of the previous response (NEVER: no previous), or the same as that although
        the client has sent other ids.

        `are_whole`: the messages are complete. Then the same id is possible if the client uses ids
        twice, or if no later request is known.
        """
        implausible = self.is_implausible(stream, correlation)
        implausible |= (before != NEVER) & self.is_late(stream, correlation, before)
        sole = self.sole_id(stream)
        is_again = (correlation == before) & (correlation != sole) & (sole != NEVER)
        if are_whole:
            is_again &= self.id_regression(stream) != REPEATED
            is_again &= before <= self.newest_id(stream)
        implausible |= is_again
        implausible &= correlation < RESERVED
        return implausible

    def is_late(self, stream: Int64, correlation: Int64, before: Int64) -> Bools:
        """Whether responses have too low ids to follow those with the ids `before`.

        If no request after that of `before` is known, the request may come later in the capture:
        then only the id of a known request is too low.
        """
        is_late: Bools = (correlation <= before - self.id_regression(stream)) & (before < RESERVED)
        is_open = is_late & (before >= self.newest_id(stream))
        early = np.flatnonzero(is_open & (correlation > before - LONGEST_STEP))
        if len(early):
            is_late[early] = self._log.has(stream[early] ^ 1, correlation[early])
        return is_late

    def newest_id(self, stream: Int64) -> Int64:
        """The highest id of the known requests of each stream's client."""
        newest: Int64 = self._streams.correlation[stream ^ 1]
        return newest

    def sole_id(self, stream: Int64) -> Int64:
        """The id that all requests of each stream's client have, which may repeat: some clients
        always send 0. SEVERAL if its ids differ; NEVER if no request is known."""
        streams, client = self._streams, stream ^ 1
        low, high = streams.correlation_before[client], streams.correlation[client]
        sole_id = np.where(low < high, SEVERAL, high)
        return np.where(streams.has_correlation[client], sole_id, NEVER)

    def id_regression(self, stream: Int64) -> Int64:
        """Largest distance by which correlation ids of responses may fall: 0 if they ascend. The
        order is not known without requests."""
        client = stream ^ 1
        has_requests = self._streams.has_correlation[client]
        return np.where(has_requests, self._streams.id_regression[client], LONGEST_STEP)

    def expected_ids(self, stream: Int64) -> tuple[Int64, Int64, Bools]:
        """Range of the correlation ids that are expected in these streams; whether it is known.

        A broker responds in the order of requests. So ids of earlier responses are not expected.
        """
        streams, client = self._streams, stream ^ 1
        has, latest = streams.has_correlation, streams.correlation
        low, high = streams.correlation_before[client] - SLACK, latest[client]
        next_id = latest[stream] + 1 - streams.id_regression[client]
        next_id = np.minimum(np.maximum(low, next_id), high)
        return np.where(has[stream], next_id, low), high, has[client]

    def is_implausible(self, stream: Int64, correlation: Int64) -> Bools:
        """Whether these correlation ids are far from the ids of the clients' requests, or negative
        unless requests have such ids; but no client is known to have sent them."""
        lowest, highest = self.plausible_ids(stream)
        implausible: Bools = (correlation < lowest) | (correlation > highest)
        row = np.flatnonzero(implausible)
        implausible[row] = ~self._log.has(stream[row] ^ 1, correlation[row])
        return implausible

    def plausible_ids(self, stream: Int64) -> tuple[Int64, Int64]:
        """The lowest and the highest correlation id near the ids of the client's requests.

        Near ids may belong to requests that are lost, or come later in the capture. Negative ids
        are plausible only near known ones, of a client that has sent 2^31 requests.
        """
        streams, client = self._streams, stream ^ 1
        is_known = streams.has_correlation[client]
        least = streams.correlation_before[client]
        lowest = np.where(least < 0, least - LONGEST_STEP, np.maximum(least - LONGEST_STEP, 0))
        highest = streams.correlation[client] + LONGEST_STEP
        return np.where(is_known, lowest, 0), np.where(is_known, highest, LAST_TIME)

    def candidate_requests(self, window: UInt8) -> Int64:
        """Offsets where the bytes that hardly vary between requests have their usual values, and
        the size is not zero."""
        count = max(len(window) - REQUEST_HEAD + 1, 0)
        is_candidate = window[:count] <= USUAL_FRAME >> 24
        is_candidate &= reduce(np.bitwise_or, (window[at : count + at] for at in range(4))) > 0
        is_candidate &= window[4 : count + 4] == 0
        is_candidate &= window[5 : count + 5] < len(self.newest)
        is_candidate &= window[6 : count + 6] == 0
        return np.flatnonzero(is_candidate)

    def candidate_responses(self, window: UInt8, stream: Int64) -> Int64:
        """Offsets of possible responses with an expected correlation id. `stream`: of shape
        (1,)."""
        count = len(window) - RESPONSE_HEAD + 1
        number = np.ndarray((count,), ">i4", window, 4, (1,))
        low, high, known = self.expected_ids(stream)
        if not known[0]:
            return np.zeros(0, np.int64)
        return np.flatnonzero(
            (number >= low[0]) & (number <= high[0]) & (window[:count] <= USUAL_FRAME >> 24)
        )


def border_bits(
    chains: FrameChains, at: Int64, behind: Int64, is_response: Bools | None = None
) -> NDArray[np.float64]:
    """Bits of the segments that begin at these addresses.

    `behind`: the ends of the messages that would begin there. A segment that ends inside its
    message, and is shorter than a header, shows that the sender does not write whole messages: then
    many places are starts of segments. But old brokers, such as 2.4, write the header of a Fetch
    response alone. `is_response`: whether a broker sends them; None for requests.
    """
    span = chains.pieces.span[chains.piece_of(at)]
    is_usual = (span >= REQUEST_HEAD) | ((behind >= 0) & (at + span >= behind))
    if is_response is not None:
        is_usual |= is_response & (span == RESPONSE_HEAD)
    bits = np.where(is_usual, BORDER_BITS, np.log2(np.maximum(span, 1)))
    return np.where(chains.is_border(at), bits, 0.0)


def _lost_bits(number: Int64, count: int | Int64) -> NDArray[np.float64]:
    """Bits that a header loses for this API or version: none for the `count` lowest numbers, two
    more for each doubling. Letters, read as numbers, are large."""
    lost: NDArray[np.float64] = 2 * np.log2(np.maximum((number + 1) / count, 1))
    return lost


def _port_table(ports: Collection[int]) -> Bools:
    """Whether each port is one of these."""
    table = np.zeros(1 << 16, np.bool_)
    table[list(ports)] = True
    return table
