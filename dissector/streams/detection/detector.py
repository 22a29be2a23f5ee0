"""Detection: which protocol a connection carries, and which end is the client.

If the SYN was seen, the first bytes of the client decide. TLS has a known record header (RFC 8446,
section 5.1). A connection that is joined midway is decided by a request: the detector tries the
starts of segments, in all streams at once. A request that decodes to its last byte makes a
connection Kafka. Responses decide only if no request can be in the capture. The detector keeps
bytes for a while if only later bytes can confirm a request.

Clients of Kafka 0.9 send GSSAPI tokens before their first request, without SaslHandshake. Other
protocols frame tokens in the same way. So the first request behind them decides.

In connections that are known to be Kafka, `resync` finds the messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int64
from dissector.streams.connections.rows import chosen
from dissector.streams.connections.state import HEAD_LOST, States
from dissector.streams.connections.table import (
    HEAD,
    KAFKA,
    NEVER,
    OTHER,
    TLS,
    UNDECIDED,
    Bools,
    ConnectionTable,
    Endpoint,
    StreamTable,
    streams_at,
)
from dissector.streams.detection.gssapi import first_requests
from dissector.streams.frame_chain import FrameChains
from dissector.streams.limits import SEEK_BYTES, USUAL_FRAME, WAITING_BYTES
from dissector.streams.search.bodies import BodyCheck
from dissector.streams.search.header_evidence import (
    BORDER_BITS,
    NO,
    REQUEST_BITS,
    REQUEST_HEAD,
    SMALLEST_RESPONSE,
    UNCLEAR,
    YES,
    HeaderScorer,
)
from dissector.streams.search.places import segment_starts, verdicts
from dissector.streams.search.request_evidence import (
    DECISION,
    EPHEMERAL,
    Evidence,
    RequestScorer,
    opposite_responses,
)

READINGS = 16
"""Most candidates for requests that are decoded in a stream to decide its connection. If this many
are rejected, the sender is not a Kafka client."""

INNER_BYTES = 2 << 20
"""Bytes of a stream at an unknown port that are searched for requests inside segments: twice the
largest request of a producer by default (max.request.size). Other protocols may have a place in
each few bytes that looks like a request."""

FIRST_SLICE, SLICE_GROWTH = 1 << 10, 2
"""Bytes of each stream that are searched for such requests first, and the growth of later slices.
Arrays of numbers have `READINGS` candidates in a few bytes."""

STEPS = 3
"""Fewest times that the correlation id increases by one in a stream that is taken for responses."""

HEAD_POSITION = 0
REFUSED_BITS = -32
"""The first bytes of the client, behind its SYN, are not a request. In a Kafka connection, they are
damaged; other protocols are likelier, and may have numbers like those of a request anywhere."""

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
        bits = self._weighed(chains, index[owner], at)
        is_sure = bits >= DECISION
        self._accept(chains.stream[index], _first(len(index), owner[is_sure], bits[is_sure]))
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
        for each in stream[refused].tolist():
            self._rejected.setdefault(each, set()).add(HEAD_POSITION)
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
        may_be = (state == UNCLEAR) | ((state == YES) & (bits >= REQUEST_BITS))
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
        """Decide connections by a request behind the boundary of each of these streams. Returns the
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
        is_one_way = self._is_silent(stream ^ 1)
        may_decide = may_be_client | (is_one_way & self._scorer.is_broker(row).any(1))
        unclear |= good & ~may_decide[owner]  # a later request may decide
        good &= may_decide[owner]
        requests = np.flatnonzero(good & may_be_client[owner])
        bits = np.zeros(len(at), np.int64)
        bits[requests] = self._weighed(chains, index[owner[requests]], at[requests])
        good[requests], unclear[requests] = bits[requests] >= DECISION, bits[requests] >= 0
        self._accept(stream, _first(len(index), owner[good], bits[good]))
        tls = row[owner[looks_like_tls(chains.space.number(at, "i4"))]]
        self._states.decide(tls[self._streams.protocol[tls] == UNDECIDED], TLS)
        pending = _first(len(index), owner[unclear], at[unclear])
        at_broker = self._scorer.is_broker(row)[np.arange(len(row)), 1 - (stream & 1)]
        at_broker &= (table.client[row] == stream & 1) & (self._streams.protocol[row] == UNDECIDED)
        is_searched = at_broker | self._has_responses(chains, index)
        is_open = is_one_way & may_be_client & (self._streams.protocol[row] == UNDECIDED)
        left = np.flatnonzero(is_searched | is_open)
        end = chains.end[index[left]]
        near = chains.address_of(index[left], np.full(len(left), INNER_BYTES))
        end = np.where(is_searched[left], end, np.minimum(end, near))
        bits, inner = self._inside_segments(chains, index[left], begin[left], end, at_broker[left])
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

    def _is_silent(self, stream: Int64) -> Bools:
        """Whether no bytes of these streams are known."""
        is_silent: Bools = self._table.bytes.reshape(-1)[stream] == 0
        return is_silent

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

    def _inside_segments(
        self, chains: FrameChains, index: Int64, begin: Int64, end: Int64, at_broker: Bools
    ) -> tuple[Int64, Int64]:
        """Bits of the first request of each stream, anywhere from `begin` to `end`, that the other
        end has answered, or to which it need not respond (acks=0); and the first address where
        later bytes may confirm one. -1 if there is none.

        A client that does not wait for responses, or whose window was closed, sends requests in
        segments that begin inside of them. `at_broker`: the receiver is a broker. Any byte of a
        stream to another receiver that sent no bytes may begin a request, so it needs more bits.
        """
        bits, pending = np.full((2, len(index)), -1)
        readings = np.zeros(len(index), np.int64)
        is_any = self._is_silent(chains.stream[index] ^ 1) & ~at_broker
        is_done = np.zeros(len(index), np.bool_)
        for at, owner in self._inner_places(chains, index, begin, end, is_done):
            verdict = verdicts(chains, self._scorer, at, index[owner])
            is_open = verdict != NO
            first = _first(len(index), owner[is_open], at[is_open])
            pending = np.where(pending < 0, first, pending)
            good = verdict == YES
            at, owner = at[good], owner[good]
            rank = readings[owner] + np.arange(len(owner)) - owner.searchsorted(owner)
            at, owner = at[rank < READINGS], owner[rank < READINGS]
            readings += np.bincount(owner, minlength=len(readings))
            header_bits = self._scorer.requests(chains, at, index[owner])[2].astype(np.int64)
            known_bits = header_bits - BORDER_BITS * is_any[owner]
            for place, each, known in zip(
                at.tolist(), owner.tolist(), known_bits.tolist(), strict=True
            ):
                if bits[each] < 0:
                    score = self._bits(chains, int(index[each]), place, known)
                    bits[each] = score if score >= DECISION else -1
            is_done |= (bits >= 0) | (readings == READINGS)
        return bits, pending

    def _inner_places(
        self, chains: FrameChains, index: Int64, begin: Int64, end: Int64, is_done: Bools
    ) -> Iterator[tuple[Int64, Int64]]:  # fmt: skip
        """Places from `begin` to `end` that may begin a request whose correlation id the other end
        sent, or any request if it sent no bytes and the first bytes of the stream are not known to
        be those of another protocol; and the position in `index` of each. In parts of at most twice
        `SEEK_BYTES` places, since each byte of a stream may be one: a slice of each stream, then
        longer ones of those that are not done. `is_done`: set it between the parts.
        """
        expected: dict[int, Int64 | None] = {}
        silent = self._is_silent(chains.stream[index] ^ 1)
        for each, chain in enumerate(index.tolist()):
            _, number, fits = opposite_responses(chains, chain)
            rejected = self._rejected.get(int(chains.stream[chain]), ())
            if silent[each] and HEAD_POSITION not in rejected:
                expected[each] = None
            elif fits.any():
                expected[each] = number[fits]
        slice_bytes = FIRST_SLICE
        while expected:
            parts: list[Int64] = []
            owners: list[int] = []
            count = 0
            for each, numbers in [*expected.items()]:
                until = min(int(begin[each]) + slice_bytes, int(end[each]))
                if begin[each] >= until or is_done[each]:
                    del expected[each]
                    continue
                behind = min(until + REQUEST_HEAD - 1, int(end[each]))
                window, address = chains.bytes_between(int(index[each]), int(begin[each]), behind)
                at = address(self._scorer.candidate_requests(window))
                if numbers is not None:
                    at = at[np.isin(chains.number(at + 8, "i4"), numbers)]
                parts.append(at)
                owners.append(each)
                count += len(at)
                if count >= SEEK_BYTES:
                    yield _joined(parts, owners)
                    parts, owners, count = [], [], 0
            yield _joined(parts, owners)
            begin = begin + slice_bytes
            slice_bytes = min(SLICE_GROWTH * slice_bytes, SEEK_BYTES)

    def _weighed(self, chains: FrameChains, index: Int64, at: Int64) -> Int64:
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
                bits[each] = self._bits(chains, chain, int(at[each]), header_bits[each])
                if self.is_guessing and bits[each] >= 0:
                    bits[each] = max(int(bits[each]), DECISION)
                if bits[each] >= DECISION:
                    break
                if bits[each] < 0:
                    rejected.add(positions[each])
            if len(rejected) == READINGS and self._is_hopeless(stream):
                self._states.decide(np.array([stream >> 1]), OTHER)
        return bits

    def _bits(self, chains: FrameChains, index: int, at: int, header_bits: int) -> int:
        """Bits of a request behind the head of a stream; negative if it is not a request."""
        bits = self._requests.bits(chains, index, at, header_bits)
        stream = int(chains.stream[index])
        has_head = self._table.isn[stream >> 1, stream & 1] != NEVER
        is_refused = has_head and HEAD_POSITION in self._rejected.get(stream, ())
        return bits + REFUSED_BITS * is_refused

    def _is_hopeless(self, stream: int) -> bool:
        """Whether a connection has no request, given that this stream of it has none."""
        table, row, opposite = self._table, stream >> 1, stream ^ 1
        return bool(
            table.client[row] >= 0
            or table.packets[row, opposite & 1] == 0
            or len(self._rejected.get(opposite, ())) == READINGS
        )

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


def _first(count: int, owner: Int64, value: Int64) -> Int64:
    """The first value of each of `count` owners; -1 if it has none."""
    first = np.full(count, -1)
    first[owner[::-1]] = value[::-1]
    return first


def _joined(parts: list[Int64], owners: list[int]) -> tuple[Int64, Int64]:
    """All parts in one array, and the owner of each element."""
    counts = np.array([len(each) for each in parts], np.int64)
    places = np.concatenate([*parts, np.zeros(0, np.int64)])
    return places, np.repeat(np.array(owners, np.int64), counts)
