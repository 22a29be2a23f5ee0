"""Candidates for requests in connections that are not decided yet: bits, and which are rejected.

The detector finds candidates at the starts of segments, `inner_requests` inside segments.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from dissector.packets.block import Int64
from dissector.streams.connections.rows import chosen
from dissector.streams.connections.state import States
from dissector.streams.connections.table import NEVER, OTHER, ConnectionTable, streams_at
from dissector.streams.frame_chain import FrameChains
from dissector.streams.search.header_evidence import HeaderScorer
from dissector.streams.search.request_evidence import DECISION, RequestScorer

READINGS = 16
"""Maximum number of candidates for requests that are decoded in a stream to decide its connection.
If this many are rejected, the sender is not a Kafka client."""

REJECTED_BITS, MOST_REJECTED = -8, 6
"""Each rejected candidate before a request, up to this number of them, is evidence against it. A
segment of a Kafka client seldom begins with a valid header that has no valid body. Other protocols
with the same header have such a segment each time, and a body that fits by chance now and then."""

HEAD_POSITION = 0
REFUSED_BITS = -32
"""The first bytes of the client, after its SYN, are not a request. In a Kafka connection, they are
damaged; other protocols are likelier, and may have numbers like those of a request anywhere."""


class Candidates:
    """Weighs candidates, and remembers those that were rejected."""

    def __init__(
        self, table: ConnectionTable, states: States, scorer: HeaderScorer, requests: RequestScorer
    ) -> None:
        self._table = table
        self._states = states
        self._scorer = scorer
        self._requests = requests

        self.is_guessing = False
        """Whether a request decides that is not refuted, without evidence for it. Set it if all
        decisions will be verified."""
        self._rejected: dict[int, set[int]] = {}
        """Positions of rejected candidates, by stream."""

    def forget(self, rows: Int64) -> None:
        """Drop the state of these connections; their rows will be reused."""
        for stream in streams_at(rows).tolist():
            self._rejected.pop(stream, None)

    def take(self, rows: Int64) -> dict[int, set[int]]:
        """Rejected candidates of these connections, by stream, numbered like `rows`."""
        return chosen(self._rejected, streams_at(rows))

    def put(self, rows: Int64, rejected: Mapping[int, set[int]]) -> None:
        """Add what `take` returned. `rows`: the row of each connection."""
        streams = streams_at(rows).tolist()
        self._rejected |= {streams[index]: places for index, places in rejected.items()}

    def reject_heads(self, streams: Int64) -> None:
        """The first bytes of these streams, after their SYN, are not requests."""
        for each in streams.tolist():
            self._rejected.setdefault(each, set()).add(HEAD_POSITION)

    def is_head_rejected(self, stream: int) -> bool:
        """Whether the first bytes of a stream, after its SYN, are not a request."""
        return HEAD_POSITION in self._rejected.get(stream, ())

    def weigh(self, chains: FrameChains, index: Int64, at: Int64) -> Int64:
        """Bits of each of these candidates, up to the first one in each stream that decides;
        negative where no request can be."""
        bits, positions = np.zeros(len(at), np.int64), chains.position_of(index, at).tolist()
        header_bits = self._scorer.requests(chains, at, index)[2].astype(np.int64).tolist()
        begin = np.flatnonzero(np.diff(index, prepend=-1))
        for first, last in pairwise(np.append(begin, len(index)).tolist()):
            chain = int(index[first])
            stream = int(chains.stream[chain])
            rejected = self._rejected.setdefault(stream, set())
            for each in range(first, last):
                if positions[each] in rejected or len(rejected) == READINGS:
                    bits[each] = -1
                    continue
                if self.is_guessing and self._table.client[stream >> 1] == stream & 1:
                    bits[each] = DECISION  # to read its body takes longer than to verify later
                    break
                bits[each] = self.bits(chains, chain, int(at[each]), header_bits[each])
                if self.is_guessing and bits[each] >= 0:
                    bits[each] = max(int(bits[each]), DECISION)
                if bits[each] >= DECISION:
                    break
                if bits[each] < 0:
                    rejected.add(positions[each])
            if len(rejected) == READINGS and self._is_hopeless(stream):
                self._states.decide(np.array([stream >> 1]), OTHER)
        return bits

    def bits(self, chains: FrameChains, index: int, at: int, header_bits: int) -> int:
        """Bits of a request after the head of a stream; negative if it is not a request."""
        bits = self._requests.bits(chains, index, at, header_bits)
        stream = int(chains.stream[index])
        has_head = self._table.isn[stream >> 1, stream & 1] != NEVER
        is_refused = has_head and self.is_head_rejected(stream)
        bits += REFUSED_BITS * is_refused
        rejected = len(self._rejected.get(stream, set()) - {HEAD_POSITION})
        # It only delays the decision: the request itself is not rejected.
        return min(bits, max(bits + REJECTED_BITS * min(rejected, MOST_REJECTED), 0))

    def _is_hopeless(self, stream: int) -> bool:
        """Whether a connection has no request, given that this stream of it has none."""
        table, row, opposite = self._table, stream >> 1, stream ^ 1
        return bool(
            table.client[row] >= 0
            or table.packets[row, opposite & 1] == 0
            or len(self._rejected.get(opposite, ())) == READINGS
        )
