"""Detection: which protocol a connection carries, and which end is the client.

If the SYN was seen, the first bytes of the client decide. TLS has a known record header (RFC 8446,
section 5.1). A connection that is joined midway is decided by a request: the detector tries the
starts of segments, in all streams at once. A request that decodes to its last byte makes a
connection Kafka. Responses decide only if no request can be in the capture. The detector keeps
bytes for a while if only later bytes can confirm a request.

Clients of Kafka 0.9 send GSSAPI tokens before their first request, without SaslHandshake. Other
protocols frame tokens in the same way. So the first request after them decides.

In connections that are known to be Kafka, `resync` finds the messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int64
from dissector.streams.connections.state import HEAD_LOST, States
from dissector.streams.connections.table import (
    HEAD,
    KAFKA,
    OTHER,
    TLS,
    UNDECIDED,
    Bools,
    ConnectionTable,
    Endpoint,
    StreamTable,
)
from dissector.streams.detection.candidates import Candidates
from dissector.streams.detection.gssapi import first_requests
from dissector.streams.detection.inner_requests import INNER_BYTES, InnerRequests, first_of
from dissector.streams.frame_chain import FrameChains
from dissector.streams.limits import SEEK_BYTES, USUAL_FRAME, WAITING_BYTES
from dissector.streams.search.bodies import BodyCheck
from dissector.streams.search.header_evidence import (
    NO,
    REQUEST_BITS,
    SMALLEST_RESPONSE,
    UNCLEAR,
    UNUSUAL_BITS,
    YES,
    HeaderScorer,
)
from dissector.streams.search.places import segment_starts, verdicts
from dissector.streams.search.request_evidence import DECISION, EPHEMERAL, Evidence, RequestScorer

STEPS = 3
"""Fewest increases of the correlation id by one in a stream that is treated as responses."""

FIRST_GROUP, GROWTH = 32, 8
"""Connections that are joined midway are decided in groups, each larger than the one before. The
brokers of one group show which end is the client in the next ones."""


def looks_like_tls(head: Int64) -> Bools:
    """Whether 4 bytes, read as a number, begin a TLS record: type 20 to 23, version 3.0 to 3.4, and
    the first byte of a length up to 2^14 + 2048."""
    kind, major, minor, length = (head >> shift & 0xFF for shift in (24, 16, 8, 0))
    tls: Bools = (kind >= 20) & (kind <= 23) & (major == 3) & (minor <= 4) & (length <= 0x48)
    return tls


@dataclass(frozen=True)
class _Heads:
    """The first messages of clients, which may be requests; arrays of shape (n,)."""

    index: Int64
    """Their chains."""
    at: Int64
    """Their addresses."""
    verdict: Int64
    bits: NDArray[np.float64]
    """Bits of the header of each, if it is a request."""
    is_last: Bools
    """Whether no more bytes are awaited to decide."""


class ProtocolDetector:
    """Decides the protocol of connections, by the evidence of `scorer`."""

    def __init__(
        self, table: ConnectionTable, streams: StreamTable, states: States, scorer: HeaderScorer,
        bodies: BodyCheck, evidence: Evidence,
    ) -> None:  # fmt: skip
        self._table = table
        self._streams = streams
        self._states = states
        self._scorer = scorer
        self._requests = RequestScorer(table, streams, scorer, bodies, evidence)
        self.candidates = Candidates(table, states, scorer, self._requests)
        self._inner = InnerRequests(table, scorer, self.candidates)

    # Connections

    def identify_sides(self, rows: Int64) -> None:
        """Set the client of connections without handshake whose other end is a broker's address."""
        rows = rows[self._table.client[rows] < 0]
        if len(rows):
            broker = self._scorer.is_broker(rows)
            is_clear = broker[:, 0] != broker[:, 1]
            self._table.client[rows[is_clear]] = broker[is_clear, 0]

    def _correct_sides(self, chains: FrameChains) -> None:
        """Correct the sides of connections in which only a port shows the broker: a client may have
        the port of a broker. The other end is a known broker, or requests show the sides."""
        table = self._table
        row = np.unique(chains.stream >> 1)
        is_open = (self._streams.protocol[row] == UNDECIDED) & (table.client[row] >= 0)
        row = row[is_open & ~table.opened[row]]
        is_known = self._scorer.is_known_broker(row)
        index, client = np.arange(len(row)), table.client[row]
        by_port = ~is_known[index, 1 - client]
        is_swapped = by_port & is_known[index, client]
        table.client[row[is_swapped]] ^= 1
        by_port &= ~is_swapped & (table.port[row] < EPHEMERAL).all(axis=1)
        row = row[by_port & (table.packets[row] > 0).all(axis=1)]
        if not len(row):
            return
        client, index = table.client[row], np.flatnonzero(np.isin(chains.stream >> 1, row))
        self._requests.recount()
        table.client[row] = -1
        at, owner = segment_starts(chains, index, chains.first[index])
        good = verdicts(chains, self._scorer, at, index[owner]) == YES
        at, owner = at[good], owner[good]
        bits = self.candidates.weigh(chains, index[owner], at)
        is_sure = bits >= DECISION
        self._accept(chains.stream[index], first_of(len(index), owner[is_sure], bits[is_sure]))
        table.client[row] = np.where(table.client[row] < 0, client, table.client[row])

    def decide(self, chains: FrameChains, finished: Bools) -> None:
        """Decide the protocol of connections by the client's first bytes. `finished`: whether the
        stream of each chain has ended."""
        self._correct_sides(chains)
        index = self._client_heads(chains)
        if not len(index):
            return
        stream, row = chains.stream[index], chains.stream[index] >> 1
        first, end = chains.address[chains.first[index]], chains.end[index]
        at_server = np.arange(len(row)), 1 - self._table.client[row]
        at, is_token = first_requests(chains, index, self._scorer)
        size, verdict, bits = self._scorer.requests(chains, at, index, any_size=True)
        heads = _Heads(index, at, verdict, bits, finished[index] | (end - first >= SEEK_BYTES))
        verdict[is_token & ~heads.is_last] = UNCLEAR
        has_gap = chains.gap_after(at) < end
        is_lost = (verdict == UNCLEAR) & has_gap
        # A server of another protocol may have a broker's address before or after it. The first
        # bytes of other protocols look like headers of large requests, or have odd client ids.
        is_usual = ((size < SEEK_BYTES) | (at + 4 + size <= end)) & (bits >= REQUEST_BITS)
        is_trusted = is_usual & self._scorer.is_known_broker(row)[at_server]
        self._weigh_heads(chains, heads, np.flatnonzero((verdict == YES) & ~is_trusted), is_usual)
        at_broker = self._scorer.is_broker(row)[at_server]
        is_lost |= has_gap & self._weigh_unknown(chains, heads, at_broker)
        protocol = np.where(looks_like_tls(chains.space.number(first, "i4")), TLS, OTHER)
        protocol[verdict == YES] = KAFKA
        protocol[verdict == UNCLEAR] = UNDECIDED
        # A first request that is damaged, or lost in part, does not decide. Later requests do, as
        # in a connection whose SYN was not seen.
        refused = (protocol == OTHER) & at_broker
        self.candidates.reject_heads(stream[refused])
        damaged = np.flatnonzero(refused | is_lost)
        protocol[damaged] = UNDECIDED
        self._states.advance(stream[damaged], HEAD_LOST)
        self._states.advance(stream[damaged] ^ 1, HEAD_LOST)
        self._streams.was_undecided[row[protocol != KAFKA]] = True
        decided = protocol != UNDECIDED
        self._states.decide(row[decided], protocol[decided])

    def _client_heads(self, chains: FrameChains) -> Int64:
        """The chains that begin with the first bytes of a client, in undecided connections."""
        stream, row = chains.stream, chains.stream >> 1
        is_head = self._streams.protocol[row] == UNDECIDED
        is_head &= self._streams.state[stream] == HEAD
        client = self._table.client[row]
        # If both ends opened the connection, each stream may be that of the client.
        self._states.advance(stream[is_head & (client < 0)], HEAD_LOST)
        return np.flatnonzero(is_head & (client == stream & 1))

    def _weigh_heads(
        self, chains: FrameChains, heads: _Heads, doubtful: Int64, is_usual: Bools
    ) -> None:
        """Weigh the doubtful ones of the first requests. With enough evidence, the receiver is a
        broker. Else the verdict becomes UNCLEAR while more bytes may come, then NO.

        `is_usual`: whether each request needs no evidence if its receiver is a known broker.
        """
        servers = self.servers(chains.stream[heads.index[doubtful]] >> 1)
        for each, server in zip(doubtful.tolist(), servers, strict=True):
            if is_usual[each] and server in self._scorer.brokers:
                continue
            bits = self._requests.bits(
                chains, int(heads.index[each]), int(heads.at[each]), int(heads.bits[each])
            )
            if bits >= DECISION:
                self._scorer.brokers.add(server)
            else:
                heads.verdict[each] = NO if bits < 0 or heads.is_last[each] else UNCLEAR

    def _weigh_unknown(self, chains: FrameChains, heads: _Heads, at_broker: Bools) -> Bools:
        """Weigh first messages that are no requests of known APIs and versions. At a broker, such a
        request is likelier than another protocol. Returns where bytes are missing to decide."""
        unknown = np.flatnonzero(heads.verdict == NO)
        size, state, bits = self._scorer.requests(
            chains, heads.at[unknown], heads.index[unknown], any_api=True
        )
        heads.bits[unknown] = bits
        # A later connection may show that the receiver is a broker.
        is_usual = bits > REQUEST_BITS - UNUSUAL_BITS
        may_be = (state == UNCLEAR) | ((state == YES) & is_usual)
        may_be &= (size < SEEK_BYTES) & ~heads.is_last[unknown]
        is_open = np.where(at_broker[unknown], state == UNCLEAR, may_be)
        heads.verdict[unknown[is_open]] = UNCLEAR
        is_request = at_broker[unknown] & (state == YES)
        heads.verdict[unknown[is_request]] = YES
        nothing = np.zeros(len(heads.index), np.bool_)
        self._weigh_heads(chains, heads, unknown[is_request], nothing)
        is_incomplete = np.zeros(len(heads.index), np.bool_)
        is_incomplete[unknown] = is_open & (state == UNCLEAR)
        return is_incomplete

    def servers(self, rows: Int64) -> list[Endpoint]:
        """The servers of these connections."""
        return self._table.endpoints(rows, 1 - self._table.client[rows])

    # Connections that are joined midway

    def seek(self, chains: FrameChains, index: Int64, peer_waits: Bools) -> Int64:
        """Decide connections by a request after the boundary of each of these streams. Returns the
        first address in each stream where later bytes may confirm a request, or -1.

        `index`: in order. `peer_waits`: the opposite stream has bytes that cannot be read yet.
        """
        self._requests.recount()
        pending = np.empty(len(index), np.int64)
        for group in _groups(chains.stream[index] >> 1):
            pending[group] = self._seek_group(chains, index[group], peer_waits[group])
        return pending

    def _seek_group(self, chains: FrameChains, index: Int64, peer_waits: Bools) -> Int64:
        """`seek` for a group of connections, with the brokers of earlier groups."""
        self.identify_sides(np.unique(chains.stream[index] >> 1))
        table, stream, row = self._table, chains.stream[index], chains.stream[index] >> 1
        may_be_client = self._scorer.may_be_client(stream)
        begin = chains.address_of(index, self._streams.boundary[stream])
        begin = np.maximum(begin, chains.address[chains.first[index]])  # bytes may be missing there
        at, owner = segment_starts(chains, index, chains.address.searchsorted(begin))
        verdict = verdicts(chains, self._scorer, at, index[owner])
        good, unclear = verdict == YES, verdict == UNCLEAR
        self._streams.was_undecided[row] = True
        is_one_way = ~self._table.has_bytes(stream ^ 1)
        may_decide = may_be_client | (is_one_way & self._scorer.is_broker(row).any(1))
        unclear |= good & ~may_decide[owner]  # a later request may decide
        good &= may_decide[owner]
        requests = np.flatnonzero(good & may_be_client[owner])
        bits = np.zeros(len(at), np.int64)
        bits[requests] = self.candidates.weigh(chains, index[owner[requests]], at[requests])
        good[requests], unclear[requests] = bits[requests] >= DECISION, bits[requests] >= 0
        self._accept(stream, first_of(len(index), owner[good], bits[good]))
        tls = row[owner[looks_like_tls(chains.space.number(at, "i4"))]]
        self._states.decide(tls[self._streams.protocol[tls] == UNDECIDED], TLS)
        pending = first_of(len(index), owner[unclear], at[unclear])
        at_broker = self._scorer.is_broker(row)[np.arange(len(row)), 1 - (stream & 1)]
        at_broker &= (table.client[row] == stream & 1) & (self._streams.protocol[row] == UNDECIDED)
        is_searched = at_broker | self._has_responses(chains, index)
        is_open = is_one_way & may_be_client & (self._streams.protocol[row] == UNDECIDED)
        left = np.flatnonzero(is_searched | is_open)
        end = chains.end[index[left]]
        near = chains.address_of(index[left], np.full(len(left), INNER_BYTES))
        end = np.where(is_searched[left], end, np.minimum(end, near))
        bits, inner = self._inner.find(chains, index[left], begin[left], end, at_broker[left])
        self._accept(stream[left], bits)
        is_first = (pending[left] < 0) | ((inner >= 0) & (inner < pending[left]))
        pending[left] = np.where(is_first, inner, pending[left])
        # Responses may show that messages of these streams are requests; and requests that cannot
        # be read or confirmed yet, that they are responses.
        opposite = stream.searchsorted(stream ^ 1)
        has_opposite = np.append(stream, -1)[opposite] == stream ^ 1
        waits = is_searched | peer_waits
        waits |= has_opposite & (np.append(pending, -1)[opposite] >= 0)
        pending[waits] = chains.address[chains.first[index[waits]]]
        return pending

    def _has_responses(self, chains: FrameChains, index: Int64) -> Bools:
        """Whether the other end of each undecided stream seems to send responses: correlation ids
        increase by one from segment to segment, or between the first two messages of a segment."""
        row = chains.stream[index] >> 1
        is_open: Bools = self._table.client[row] < 0
        is_open &= self._streams.protocol[row] == UNDECIDED
        opposite = chains.stream.searchsorted(chains.stream[index] ^ 1)
        is_open &= np.append(chains.stream, -1)[opposite] == chains.stream[index] ^ 1
        chain = np.unique(opposite[is_open])
        at, owner = segment_starts(chains, chain, chains.first[chain])
        size, number = chains.number(at, "i4"), chains.number(at + 4, "i4")
        fits = (size >= SMALLEST_RESPONSE) & (size <= USUAL_FRAME)
        at, owner, size, number = at[fits], owner[fits], size[fits], number[fits]
        counts = (np.diff(number) == 1) & (np.diff(owner) == 0)
        inner = chains.number(at + size + 8, "i4") - number == 1
        steps = np.bincount(owner[1:][counts], minlength=len(chain))
        steps += np.bincount(owner[inner], minlength=len(chain))
        is_open[is_open] = steps[chain.searchsorted(opposite[is_open])] >= STEPS
        return is_open

    def _accept(self, stream: Int64, bits: Int64) -> None:
        """Decide connections by their first good candidates; -1: a stream has none. If both ends
        have one, the client is the end whose candidate has more bits."""
        table, row = self._table, stream >> 1
        accepted = np.flatnonzero(bits >= 0)
        accepted = accepted[np.argsort(-bits[accepted], kind="stable")]
        accepted = accepted[np.unique(row[accepted], return_index=True)[1]]
        self._states.decide(row[accepted], KAFKA)
        unknown = accepted[table.client[row[accepted]] < 0]
        table.client[row[unknown]] = stream[unknown] & 1
        self._scorer.brokers.update(self.servers(row[accepted]))

    def move_on(self, chains: FrameChains, index: Int64, pending: Int64, peer_waits: Bools) -> None:
        """Where no frame was found: move the boundary to the first bytes that may become a frame,
        at most SEEK_BYTES before the end, or WAITING_BYTES where `peer_waits`; see `seek`.

        Boundaries go to the starts of segments, since these are evidence.
        """
        end, stream = chains.end[index], chains.stream[index]
        keep = np.where(pending < 0, end, pending)
        keep = np.maximum(keep, end - np.where(peer_waits, WAITING_BYTES, SEEK_BYTES))
        kept = chains.address[chains.piece_of(np.minimum(keep, end - 1))]
        kept = np.where(keep >= end, end, kept)
        boundary = self._streams.boundary
        boundary[stream] = np.maximum(boundary[stream], chains.position_of(index, kept))


def _groups(row: Int64) -> Iterator[slice]:
    """Slices of streams, by the rows of their connections: first few connections, then more."""
    begin = np.append(np.flatnonzero(np.diff(row, prepend=-1)), len(row)).tolist()
    done, size = 0, FIRST_GROUP
    while done < len(begin) - 1:
        last = min(done + size, len(begin) - 1)
        yield slice(begin[done], begin[last])
        done, size = last, size * GROWTH
