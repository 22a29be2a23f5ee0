"""RequestScorer: how certain a request is, in bits, by its body and its context.

A request with `DECISION` bits decides the protocol of its connection, and which end is the client.
The bits of `header_evidence` hold for random bytes. But other protocols have small numbers in the
same places, and so have responses. So a request is also scored by

- its body, as far as it is captured;
- the SYN before it;
- the next message, which has the next correlation id;
- the other end: a response has its correlation id and a body that fits, and comes after the
  complete request;
- other connections: addresses of brokers, and endpoints that several connections share;
- the port numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from dissector import _native
from dissector.packets.block import Int64
from dissector.streams.connections.table import HEAD, Bools, ConnectionTable, StreamTable
from dissector.streams.frame_chain import FrameChains
from dissector.streams.limits import SEEK_BYTES, USUAL_FRAME
from dissector.streams.search.bodies import BodyCheck
from dissector.streams.search.header_evidence import (
    BORDER_BITS,
    SMALLEST_RESPONSE,
    YES,
    HeaderScorer,
    border_bits,
)

Evidence: TypeAlias = Callable[[bytes, int], int]
"""Returns the bits of a request. Takes its first bytes, without the size, and the size.
`IMPOSSIBLE` or less if no request begins with these bytes."""

IMPOSSIBLE: Final = -128
"""The bytes are not the beginning of a request: outweighs all evidence."""
DECISION: Final = 50
"""The header of a request at the start of a segment has 40 bits. The body or the context must give
the other bits."""
HEAD_BITS: Final = 8
"""The request is the first of its client."""
BROKER_BITS: Final = 16
"""The receiver has a broker's address; negative if the sender has one."""
RESPONSE_BITS: Final = 16
"""The other end sent its correlation id. Less than 32, since small numbers are common."""
NEXT_BITS: Final = 16
"""The next message of the client is a request with the next correlation id. As many as a response
has, which a request with acks=0 lacks."""
MOST_RESPONSES: Final = 64
"""Maximum number of responses of a segment that are read. A broker sends several in one segment to
a client that sends requests without waiting."""
MOST_BODIES: Final = 8
"""Maximum number of responses with the correlation id of a request whose bodies are read."""
EARLY_BITS: Final = -24
"""The other end sent bytes before the request was complete. A broker waits."""
LARGE_BITS: Final = -8
"""The request is the first of its client, incomplete, and has `SEEK_BYTES` or more. The first
requests of clients are small."""
NO_RESPONSE_BITS: Final = -16
"""The first bytes of the other end are not a response, or not one to the first request."""
SHARED_SENDER_BITS: Final = -8
"""More connections have the sender's address and port than the receiver's."""
EPHEMERAL_BITS: Final = -4
"""The receiver's port is ephemeral, and the sender's is not."""
EPHEMERAL: Final = 32768
"""Lowest ephemeral port of Linux."""
MOST_SCANS: Final = 32
"""Maximum number of scans of the table of connections for one endpoint. After them, all endpoints
are counted, so that the time does not grow with the square of the number of connections."""


class RequestScorer:
    """Scores requests in the chains of a block."""

    def __init__(
        self, table: ConnectionTable, streams: StreamTable, scorer: HeaderScorer,
        bodies: BodyCheck, evidence: Evidence,
    ) -> None:  # fmt: skip
        self._table = table
        self._streams = streams
        self._scorer = scorer
        self._bodies = bodies
        self._evidence = evidence
        self._scans = 0
        self._counts: Int64 | None = None

    def recount(self) -> None:
        """Connections were added since endpoints were counted."""
        self._scans, self._counts = 0, None

    def bits(self, chains: FrameChains, index: int, at: int, header_bits: int) -> int:
        """Bits of a request in a chain; negative if it is not a request.

        `header_bits`: the bits of its header, which is valid.
        """
        address, stream = np.array([at]), int(chains.stream[index])
        size = int(chains.space.number(address, "i4")[0])
        body, end = at + 4, int(chains.end[index])
        gap = int(chains.gap_after(address)[0])
        readable = min(body + size, end, gap, body + SEEK_BYTES) - body
        body_bits = self._evidence(chains.space.bytes(body, readable), size)
        if body_bits <= IMPOSSIBLE:
            return IMPOSSIBLE
        is_head = bool(self._streams.state[stream] == HEAD)
        bits = header_bits + body_bits
        # The head of a stream begins a segment, however short its segments are.
        behind = np.array([body + size])
        border = BORDER_BITS if is_head else int(border_bits(chains, address, behind)[0])
        bits += border + HEAD_BITS * is_head
        has_next = bool(self._has_next(chains, np.array([index]), address)[0])
        bits += NEXT_BITS * has_next
        bits += self._response_bits(chains, index, at, is_head, has_next)
        if is_head and body + size > end:
            bits += EARLY_BITS * bool(self._table.bytes.reshape(-1)[stream ^ 1])
            bits += LARGE_BITS * (size >= SEEK_BYTES)
        return bits + self._endpoint_bits(stream >> 1, stream & 1)

    def _has_next(self, chains: FrameChains, index: Int64, at: Int64) -> Bools:
        """Whether requests with the next correlation ids begin after these requests."""
        size, correlation = (chains.number(at + offset, "i4") for offset in (0, 8))
        behind = at + 4 + size
        verdict = self._scorer.requests(chains, behind, index, any_api=True)[1]
        has_next: Bools = chains.number(behind + 8, "i4") == _next_id(correlation)
        has_next &= verdict == YES
        return has_next

    def _response_bits(
        self, chains: FrameChains, index: int, request: int, is_head: bool, has_next: bool
    ) -> int:
        """Bits for the opposite stream: whether a segment of it begins the response to the request
        at an address. The first request must have the first response, or the next one has it.
        `has_next`: a request with the next correlation id follows."""
        api, version = (int(chains.number(np.array([request + k]), "i2")[0]) for k in (4, 6))
        correlation = int(chains.number(np.array([request + 8]), "i4")[0])
        at, number, fits = opposite_responses(chains, index)
        begins = fits & (number == correlation)
        if is_head and self._streams.state[int(chains.stream[index]) ^ 1] == HEAD:
            begins = begins[:1]
        responses = at[: len(begins)][begins].tolist()
        if responses:
            opposite = int(chains.stream.searchsorted(chains.stream[index] ^ 1))
            # Zeros are frequent. Only the first request of a client is expected to have the id 0.
            is_answered = (correlation or is_head) and any(
                self._bodies.is_response(chains, opposite, each, (api, version))
                for each in responses[:MOST_BODIES]
            )
            return RESPONSE_BITS if is_answered else NO_RESPONSE_BITS * is_head
        # A counter becomes negative after 2^31 requests; other protocols have any number here.
        is_other = is_head and len(number) and not (fits[0] and number[0] >= 0)
        if has_next and is_other:
            is_other = number[0] != _next_id(np.array(correlation))
        return NO_RESPONSE_BITS if is_other else 0

    def _endpoint_bits(self, row: int, sender: int) -> int:
        """Bits for the two endpoints: their other connections, and their port numbers."""
        table = self._table
        is_broker = self._scorer.is_broker(np.array([row]))[0]
        bits = BROKER_BITS * (int(is_broker[1 - sender]) - int(is_broker[sender]))
        if table.client[row] >= 0:
            return max(bits, 0)
        # Servers of other protocols have many connections, too. So this is only negative evidence.
        if self._connections_of(row, sender) > self._connections_of(row, 1 - sender):
            bits += SHARED_SENDER_BITS
        is_ephemeral = table.port[row] >= EPHEMERAL
        return bits + EPHEMERAL_BITS * bool(is_ephemeral[1 - sender] & ~is_ephemeral[sender])

    def _connections_of(self, row: int, end: int) -> int:
        """Number of connections with this endpoint."""
        if self._counts is not None:
            return int(self._counts[row, end])
        table, used = self._table, slice(self._table.count)
        self._scans += 1
        if self._scans == MOST_SCANS:
            self._counts = _endpoint_counts(table)
        same = table.port[used] == table.port[row, end]
        same &= table.low[used] == table.low[row, end]
        same &= table.high[used] == table.high[row, end]
        return int(np.count_nonzero(same))


def _endpoint_counts(table: ConnectionTable) -> Int64:
    """Number of connections with each endpoint; shape (connections, 2)."""
    used = slice(table.count)
    words = np.stack([table.high[used], table.low[used], table.port[used]], 2, dtype=np.uint64)
    size, count = words.itemsize * 3, 2 * table.count
    code = np.empty(count, np.int32)
    _native.number_words(
        np.append(words.reshape(-1), np.uint64(0)).view(np.uint8), np.arange(count) * size,
        np.full(count, size), _native.HASH_KEY, code, np.empty(count, np.int64),
    )  # fmt: skip
    return np.bincount(code)[code].reshape(-1, 2)


def _next_id(correlation: Int64) -> Int64:
    """The correlation ids that follow: signed numbers of 32 bits."""
    return np.where(correlation == (1 << 31) - 1, -(1 << 31), correlation + 1)


def opposite_responses(chains: FrameChains, index: int) -> tuple[Int64, Int64, Bools]:
    """Where responses may begin in the opposite stream: the address and correlation id of each one,
    and whether its size may be that of a response. First come the starts of all segments, then the
    places after the responses inside them.

    Segments of less than four bytes are left out, since a size has four, apart from the first one,
    which may be the head of the stream.
    """
    stream = int(chains.stream[index]) ^ 1
    opposite = int(np.searchsorted(chains.stream, stream))
    if opposite == len(chains.stream) or chains.stream[opposite] != stream:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_)
    pieces = slice(chains.first[opposite], chains.first[opposite + 1])
    is_whole = chains.pieces.span[pieces] >= 4
    is_whole[:1] = True
    at = chains.address[pieces][is_whole]
    behind = at + chains.pieces.length[pieces][is_whole]
    limit = np.full_like(at, chains.end[opposite])
    places, numbers, fit = [], [], []
    for _ in range(MOST_RESPONSES):
        has_header = at + SMALLEST_RESPONSE + 4 <= limit
        at, behind = at[has_header], behind[has_header]
        size = chains.number(at, "i4")
        fits = (size >= SMALLEST_RESPONSE) & (size <= USUAL_FRAME)
        places.append(at)
        numbers.append(chains.number(at + 4, "i4"))
        fit.append(fits)
        at = at[fits] + 4 + size[fits]
        behind = limit = behind[fits]
        if not len(at):
            break
    return np.concatenate(places), np.concatenate(numbers), np.concatenate(fit)
