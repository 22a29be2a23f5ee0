"""Weighing: how certain a request is, in bits, by its body and by its surroundings.

What a connection carries, and which end is its client, is decided by a request with `DECISION`
bits. `judging` weighs headers against random bytes. But other protocols have small numbers where
Kafka has them, and so have responses. So a request is also weighed by

- its body, as far as it is there;
- the SYN before it;
- the other end: a response has its correlation id, and comes after the request is complete;
- other connections: where brokers listen, and which endpoint several connections share;
- the port numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from dissector.streams.frame_chain import FrameChains
from dissector.streams.header_evidence import (
    BORDER_BITS,
    REQUEST_BITS,
    SMALLEST_RESPONSE,
    HeaderScorer,
)
from dissector.streams.limits import FRAME_LIMIT, SEEK_BYTES
from dissector.streams.table import HEAD, ConnectionTable, StreamTable

Evidence: TypeAlias = Callable[[bytes, int], int]
"""Bits for a request: takes its first bytes, those of the size not counted, and the size.
`IMPOSSIBLE` or less where they do not begin a request."""

IMPOSSIBLE: Final = -128
"""More than all evidence for a request together."""
DECISION: Final = 50
"""A request has 40 bits by its header, at the beginning of a segment. The rest of these bits must
come from its body or its surroundings."""
HEAD_BITS: Final = 8
"""It is the first that its client sent."""
BROKER_BITS: Final = 16
"""It goes to an address where a broker listens; as many against one that comes from there."""
ANSWERED_BITS: Final = 16
"""The other end sent its correlation id. Less than 32, since small numbers are common."""
EARLY_BITS: Final = -24
"""The other end sent something before the request was complete. A broker waits."""
LARGE_BITS: Final = -8
"""It is the first of its client, incomplete, and has `SEEK_BYTES` or more. Clients begin small."""
ILL_ANSWERED_BITS: Final = -16
"""What the other end sent first is not a response."""
COMMON_END_BITS: Final = -8
"""More connections have the sender's address and port than the receiver's."""
EPHEMERAL_BITS: Final = -4
"""It comes from a port that is not ephemeral, and goes to one that is."""
EPHEMERAL: Final = 32768
"""Lowest ephemeral port of Linux."""


class RequestScorer:
    """Weighs requests in the chains of a block."""

    def __init__(
        self, table: ConnectionTable, streams: StreamTable, scorer: HeaderScorer, evidence: Evidence
    ) -> None:
        self._table = table
        self._streams = streams
        self._scorer = scorer
        self._evidence = evidence

    def bits(self, chains: FrameChains, index: int, stream: int, at: int) -> int:
        """Bits of a request whose header was judged, at the beginning of a segment.

        `stream`: that of the chain at `index`. Negative where it cannot be a request.
        """
        here = np.array([at])
        size, correlation = (int(chains.space.number(here + k, "i4")[0]) for k in (0, 8))
        body, end = at + 4, int(chains.end[index])
        there = min(body + size, end, int(chains.gap_after(here)[0]), body + SEEK_BYTES) - body
        body_bits = self._evidence(chains.space.bytes(body, there), size)
        if body_bits <= IMPOSSIBLE:
            return IMPOSSIBLE
        is_head = bool(self._streams.flat("state")[stream] == HEAD)
        bits = REQUEST_BITS + BORDER_BITS + body_bits + HEAD_BITS * is_head
        bits += self._response_bits(chains, index, correlation, is_head)
        if is_head and body + size > end:
            bits += EARLY_BITS * bool(self._table.bytes.reshape(-1)[stream ^ 1])
            bits += LARGE_BITS * (size >= SEEK_BYTES)
        return bits + self._endpoint_bits(stream >> 1, stream & 1)

    def _response_bits(
        self, chains: FrameChains, index: int, correlation: int, is_head: bool
    ) -> int:
        """What the other end sent: whether a segment there begins a response to the request."""
        slot = int(chains.stream[index]) ^ 1
        other = int(np.searchsorted(chains.stream, slot))
        if other == len(chains.stream) or chains.stream[other] != slot:
            return 0
        at = chains.address[chains.first[other] : chains.first[other + 1]]
        at = at[at + SMALLEST_RESPONSE + 4 <= chains.end[other]]
        size = chains.space.number(at, "i4").astype(np.int64)
        number = chains.space.number(at + 4, "i4").astype(np.int64)
        is_response = (size >= SMALLEST_RESPONSE) & (size <= FRAME_LIMIT) & (number >= 0)
        if (is_response & (number == correlation)).any():
            return ANSWERED_BITS
        return ILL_ANSWERED_BITS if is_head and len(at) and not is_response[0] else 0

    def _endpoint_bits(self, row: int, sender: int) -> int:
        """What the two endpoints are in other connections, and their port numbers."""
        table, one = self._table, np.array([row])
        is_broker = self._scorer.is_broker(one)[0]
        bits = BROKER_BITS * (int(is_broker[1 - sender]) - int(is_broker[sender]))
        if table.client[row] >= 0:
            return max(bits, 0)
        # Servers of other protocols have many connections, too. So this only speaks against.
        if self._connections_of(row, sender) > self._connections_of(row, 1 - sender):
            bits += COMMON_END_BITS
        is_ephemeral = table.port[row] >= EPHEMERAL
        return bits + EPHEMERAL_BITS * bool(is_ephemeral[1 - sender] & ~is_ephemeral[sender])

    def _connections_of(self, row: int, end: int) -> int:
        """How many connections have this endpoint."""
        table, used = self._table, slice(self._table.count)
        same = table.port[used] == table.port[row, end]
        same &= table.low[used] == table.low[row, end]
        same &= table.high[used] == table.high[row, end]
        return int(np.count_nonzero(same))
