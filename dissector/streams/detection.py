"""Seeking: which protocol a connection carries, and which end is the client.

Where the SYN was seen, the first bytes of the client decide. TLS is known by its record header (RFC
8446, section 5.1). A connection that is joined midway is decided by a request: the beginnings of
segments are tried, in all streams together. A request that can be read to its last byte makes a
connection Kafka. Responses decide only where no request could be seen. A place that only bytes to
come can confirm is kept for a while.

In connections that are known to be Kafka, `resync` finds the messages.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from dissector.packets.block import Int64
from dissector.streams.byteview import ranges
from dissector.streams.frame_chain import FrameChains
from dissector.streams.header_evidence import NO, UNCLEAR, YES, HeaderScorer
from dissector.streams.limits import SEEK_BYTES
from dissector.streams.request_evidence import DECISION, Evidence, RequestScorer
from dissector.streams.state import HEAD_LOST, States
from dissector.streams.table import (
    HEAD,
    KAFKA,
    OTHER,
    TLS,
    UNDECIDED,
    Bools,
    ConnectionTable,
    StreamTable,
)

READINGS = 16
"""Places of a stream that look like a request and are read to decide its connection. Where none of
so many can be one, its sender is not a Kafka client."""

FIRST_PLACES, EVERY_PLACE = 8, 1 << 62
"""Beginnings of segments to try: most often, one of the first is a frame."""


def looks_like_tls(head: Int64) -> Bools:
    """Whether 4 bytes, as a number, begin a TLS record: type 20 to 23, version 3.0 to 3.4, and the
    first byte of a length up to 2^14 + 2048."""
    kind, major, minor, length = (head >> shift & 0xFF for shift in (24, 16, 8, 0))
    tls: Bools = (kind >= 20) & (kind <= 23) & (major == 3) & (minor <= 4) & (length <= 0x48)
    return tls


class ProtocolDetector:
    """Decides what connections carry, by the evidence of `scorer`."""

    def __init__(
        self, table: ConnectionTable, streams: StreamTable, states: States, scorer: HeaderScorer,
        evidence: Evidence,
    ) -> None:  # fmt: skip
        self._table = table
        self._streams = streams
        self._states = states
        self._scorer = scorer
        self._requests = RequestScorer(table, streams, scorer, evidence)
        self._rejected: dict[int, set[int]] = {}
        """Positions in each stream that looked like a request, and are none."""

    def forget(self, rows: Int64) -> None:
        """Let go of these connections; their rows will serve others."""
        for stream in np.concatenate([2 * rows, 2 * rows + 1]).tolist():
            self._rejected.pop(stream, None)

    # Connections

    def identify_sides(self, rows: Int64) -> None:
        """Which end is the client, of connections without handshake: by the broker's port."""
        rows = rows[self._table.client[rows] < 0]
        if len(rows):
            broker = self._scorer.is_broker(rows)
            told = broker[:, 0] != broker[:, 1]
            self._table.client[rows[told]] = broker[told, 0]

    def decide(self, chains: FrameChains, stream: Int64, finished: Bools) -> None:
        """Decide what connections carry whose first bytes are there.

        `stream`: that of each chain. `finished`: whether nothing more comes in it.
        """
        table, row = self._table, stream >> 1
        index = np.flatnonzero(
            (self._streams.protocol[row] == UNDECIDED)
            & (self._streams.flat("state")[stream] == HEAD)
            & (table.client[row] == stream & 1)
        )
        if not len(index):
            return
        row, stream = row[index], stream[index]
        at, end = chains.address[chains.first[index]], chains.end[index]
        servers = np.arange(len(row)), 1 - table.client[row]
        given_up = finished[index] | (end - at >= SEEK_BYTES)
        verdict = self._scorer.requests(chains, at, end, row)[1]
        lost = (verdict == UNCLEAR) & (chains.there_until(at) < end)
        doubted = np.flatnonzero((verdict == YES) & ~self._scorer.is_known_broker(row)[servers])
        self._weigh_heads(chains, index, stream, verdict, doubted, given_up, self._scorer.brokers)
        # An API or version that nobody knows is likelier at a broker than another protocol.
        at_broker = self._scorer.is_broker(row)[servers]
        strange = np.flatnonzero((verdict == NO) & at_broker)
        places = at[strange], end[strange], row[strange]
        strange = strange[self._scorer.requests(chains, *places, any_api=True)[1] == YES]
        verdict[strange] = YES
        self._weigh_heads(chains, index, stream, verdict, strange, given_up)
        head = chains.space.number(at, "i4").astype(np.int64)
        protocol = np.where(looks_like_tls(head), TLS, OTHER)
        protocol[verdict == YES] = KAFKA
        protocol[verdict == UNCLEAR] = UNDECIDED
        # What is damaged, or lost in part, may be the first request: others tell, as where the SYN
        # was not seen.
        damaged = np.flatnonzero(((protocol == OTHER) & at_broker) | lost)
        protocol[damaged] = UNDECIDED
        self._states.advance(stream[damaged], HEAD_LOST)
        self._states.advance(stream[damaged] ^ 1, HEAD_LOST)
        decided = protocol != UNDECIDED
        self._states.decide(row[decided], protocol[decided])

    def _weigh_heads(
        self, chains: FrameChains, index: Int64, stream: Int64, verdict: Int64, doubted: Int64,
        given_up: Bools, trusted: Collection[tuple[int, int, int]] = (),
    ) -> None:  # fmt: skip
        """Change the verdict on doubted requests, which begin their streams, where evidence is
        missing: UNCLEAR while more may come, then NO. The receivers of the others are brokers.

        `trusted`: receivers of which no evidence is needed.
        """
        brokers, servers = self._scorer.brokers, self._servers(stream[doubted] >> 1)
        for each, server in zip(doubted.tolist(), servers, strict=True):
            if server in trusted:
                continue
            at = int(chains.address[chains.first[index[each]]])
            bits = self._requests.bits(chains, int(index[each]), int(stream[each]), at)
            if bits >= DECISION:
                brokers.add(server)
            else:
                verdict[each] = NO if bits < 0 or given_up[each] else UNCLEAR

    def _servers(self, rows: Int64) -> list[tuple[int, int, int]]:
        """Where the servers of these connections listen: high, low and port."""
        table, end = self._table, 1 - self._table.client[rows]
        ends = (table.high[rows, end], table.low[rows, end], table.port[rows, end])
        return list(zip(*(each.tolist() for each in ends), strict=True))

    # Places

    def seek(self, chains: FrameChains, index: Int64, stream: Int64, peer_waits: Bools) -> Int64:
        """Address of a frame in each of these streams of undecided connections, or -1.

        `stream`: of each one at `index`. What is found decides the connection. Where nothing is
        found, the stream's `boundary` moves on to what may still become something. `peer_waits`:
        the other end sent bytes that cannot be read yet.
        """
        found, pending = self._try(chains, index, stream, FIRST_PLACES)
        missed = np.flatnonzero((found < 0) & ~self._is_answered_later(stream))
        found[missed], pending[missed] = self._try(
            chains, index[missed], stream[missed], EVERY_PLACE
        )
        later = (found < 0) & self._is_answered_later(stream)
        # Requests that cannot be read yet may show that what is here are responses.
        waits = peer_waits & (self._streams.protocol[stream >> 1] == UNDECIDED)
        pending[waits] = chains.address[chains.first[index[waits]]]
        self.move_on(chains, index, stream, np.flatnonzero((found < 0) & ~later), pending)
        return found

    def _is_answered_later(self, stream: Int64) -> Bools:
        """Which streams are those of brokers whose connections were decided meanwhile. Correlation
        ids of their requests recognise the responses."""
        row = stream >> 1
        decided: Bools = self._streams.protocol[row] == KAFKA
        decided &= self._table.client[row] == 1 - (stream & 1)
        return decided

    def _try(
        self, chains: FrameChains, index: Int64, stream: Int64, places: int
    ) -> tuple[Int64, Int64]:
        """Try the beginnings of segments, no more than `places` of each stream.

        Returns the addresses of the first that is good and of the first that is unclear, or -1.
        """
        table, row = self._table, stream >> 1
        client = table.client[row]
        is_client = (client < 0) | (client == stream & 1)
        boundary = chains.address_of(index, self._streams.flat("boundary")[stream])
        first = np.searchsorted(chains.address, boundary)
        first = np.maximum(first, chains.first[index])
        count = np.clip(chains.first[index + 1] - first, 0, places)
        at = chains.address[ranges(first, count)[0]]
        owner = np.repeat(np.arange(len(index)), count)
        verdict = self._scorer.verdicts(chains, at, index[owner], stream[owner], is_client[owner])
        good, unclear = verdict == YES, verdict == UNCLEAR
        undecided = self._streams.protocol[row] == UNDECIDED
        if undecided.any():
            alone = table.packets[row, 1 - (stream & 1)] == 0
            may = (~undecided | is_client | (alone & self._scorer.is_broker(row).any(1)))[owner]
            unclear |= good & ~may  # its requests may yet tell
            good &= may
            some = np.flatnonzero(good & (undecided & is_client)[owner])
            bits = np.zeros(len(at), np.int64)
            bits[some] = self._weighed(chains, index[owner[some]], stream[owner[some]], at[some])
            good[some], unclear[some] = bits[some] >= DECISION, bits[some] >= 0
        found = _first(len(index), owner[good], at[good])
        if undecided.any():
            weight = _first(len(index), owner[good], bits[good])
            self._take(chains, stream, found, weight, undecided, owner, at)
        return found, _first(len(index), owner[unclear], at[unclear])

    def _weighed(self, chains: FrameChains, index: Int64, stream: Int64, at: Int64) -> Int64:
        """Bits of each of these places, up to the first in each stream that decides; negative where
        no request can be.

        `stream`: that of the chain at `index`.
        """
        bits = np.zeros(len(at), np.int64)
        for one in np.unique(stream).tolist():
            rejected = self._rejected.setdefault(one, set())
            for each in np.flatnonzero(stream == one).tolist():
                one_index, place = index[each : each + 1], at[each : each + 1]
                position = int(chains.position_of(one_index, place)[0])
                if position in rejected or len(rejected) == READINGS:
                    bits[each] = -1
                    continue
                bits[each] = self._requests.bits(chains, int(index[each]), one, int(place[0]))
                if bits[each] >= DECISION:
                    break
                if bits[each] < 0:
                    rejected.add(position)
            if len(rejected) == READINGS and self._is_hopeless(one):
                self._states.decide(np.array([one >> 1]), OTHER)
        return bits

    def _is_hopeless(self, stream: int) -> bool:
        """Whether no request will be found in a connection, since there is none in this stream."""
        table, row, other = self._table, stream >> 1, stream ^ 1
        return bool(
            table.client[row] >= 0
            or table.packets[row, other & 1] == 0
            or len(self._rejected.get(other, ())) == READINGS
        )

    def _take(
        self, chains: FrameChains, stream: Int64, found: Int64, weight: Int64, undecided: Bools,
        owner: Int64, at: Int64,
    ) -> None:  # fmt: skip
        """Decide connections by what was found in them. One end of each can be the client: the one
        with the more certain request, by its `weight` in bits."""
        table, row = self._table, stream >> 1
        some = np.flatnonzero((found >= 0) & undecided)
        some = some[np.argsort(-weight[some], kind="stable")]
        _, first = np.unique(row[some], return_index=True)
        doubled = np.setdiff1d(some, some[first])
        found[doubled] = -1
        some = some[first]
        self._states.decide(row[some], KAFKA)
        unknown = some[table.client[row[some]] < 0]
        table.client[row[unknown]] = stream[unknown] & 1
        self._scorer.brokers.update(self._servers(row[some]))
        head = chains.space.number(at, "i4").astype(np.int64)
        tls = row[owner[looks_like_tls(head) & undecided[owner]]]
        self._states.decide(tls[self._streams.protocol[tls] == UNDECIDED], TLS)

    def move_on(
        self, chains: FrameChains, index: Int64, stream: Int64, some: Int64, pending: Int64
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


def _first(count: int, owner: Int64, at: Int64) -> Int64:
    """The first of the places, which ascend, for each of `count` owners; -1 where there is none."""
    first = np.full(count, -1)
    first[owner[::-1]] = at[::-1]
    return first
