"""Matching of responses with requests.

A broker responds to the requests of a connection in order, and repeats each request's correlation
id (Kafka's protocol guide, "Network"). Most clients count their correlation ids, so a join by
connection and correlation id is enough. Some ids are used again: a client may always send 0, and
Java clients reserve ids for authentication. Then the order of both streams decides. Times do not
decide, since the two directions may have been captured with different clocks.

- While no byte is missing, the response after a matched one belongs to the next request that
  expects a response. `Responses.rank` and `Requests.ordinal` count them; `run` changes at each gap.
- After missing bytes, acknowledgement numbers limit the possible requests: the broker had received
  the whole request, and the client cannot have acknowledged the response. The latest request within
  these limits is taken. A response that acknowledges bytes after all known requests waits for them.
- Only if no acknowledgement number is known (in decrypted streams), times decide.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dissector.arrays import arrays
from dissector.exchanges.ordering import ordered
from dissector.packets.block import Int64
from dissector.streams.header_evidence import RESERVED

Bools = NDArray[np.bool_]

NO_KEY = np.iinfo(np.int64).min
"""The key of a frame that is too short for a correlation id: no request has it."""

LOOKAHEAD = 64
"""Number of responses after missing bytes that are compared to find the first one's request.
Clients keep fewer requests in flight (`max.in.flight.requests.per.connection` is 5, librdkafka
limits it by bytes)."""

ORDINAL_BITS = 40
"""Bits for the ordinal of a request where connection and ordinal are one number."""

CHAIN = 32
"""Number of responses that are compared with requests at first. It doubles while all of them match,
so that the work is linear wherever the first mismatch is."""


def keys(connection: NDArray[np.integer], correlation: NDArray[np.integer]) -> Int64:
    """Connection and correlation id as one number."""
    low = correlation.astype(np.int64) & 0xFFFFFFFF
    return (connection.astype(np.int64) << 32) | low


def moved_keys(key: Int64, connection: Int64) -> Int64:
    """The keys of requests for other rows of their connections. Those of SASL tokens are negative:
    see `sasl`."""
    low = np.where(key < 0, -1 - key, key) & 0xFFFFFFFF
    moved = connection << 32 | low
    return np.where(key < 0, -1 - moved, moved)


@arrays
class _Messages:
    """n messages of one direction, those of a connection in stream order; arrays of shape (n,)."""

    key: Int64
    connection: Int64
    run: Int64
    """Run of the frame, see `FrameBlock`."""
    acknowledged: Int64
    """Acknowledgement number at the time of sending; -1 if not known."""
    time: Int64
    """ns, end of a request or start of a response."""

    def __len__(self) -> int:
        return len(self.key)


@arrays
class Requests(_Messages):
    ordinal: Int64
    """Number among the requests of the connection that expect a response, from 1; else 0."""
    end: Int64
    """Sequence number after the last byte."""
    repeats: Bools
    """A request of an earlier block had, or may have had, the same key."""

    def __getitem__(self, index: Int64) -> Requests:
        return Requests(*(getattr(self, each.name)[index] for each in fields(self)))


@arrays
class Responses(_Messages):
    rank: Int64
    """Number among the frames of the stream, from 1."""
    begin: Int64
    """Sequence number of the first byte."""
    is_late: Bools
    """It has waited for its request for the allowed time."""

    def __getitem__(self, index: Int64) -> Responses:
        return Responses(*(getattr(self, each.name)[index] for each in fields(self)))


class Anchor(NamedTuple):
    """A matched request and response; at first, the start of both streams."""

    ordinal: int
    rank: int
    request_run: int
    response_run: int


@dataclass(slots=True)
class Matcher:
    """Pairs requests and responses, block by block. Arrays of shape (connections, ...)."""

    _anchors: Int64 = field(default_factory=lambda: np.zeros((0, len(Anchor._fields)), np.int64))
    """`Anchor` of the last matched response."""
    _next: Int64 = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """One more than the highest correlation id: of ordinary ids, and of those from RESERVED on."""

    def grow(self, count: int) -> None:
        """Make room for `count` connections."""
        missing = count - len(self._next)
        if missing > 0:
            self._anchors = np.pad(self._anchors, ((0, missing), (0, 0)))
            self._next = np.pad(self._next, ((0, missing), (0, 0)))

    def take(self, connections: Int64) -> tuple[Int64, Int64]:
        """The state of these connections."""
        return self._anchors[connections], self._next[connections]

    def put(self, connections: Int64, taken: tuple[Int64, Int64]) -> None:
        """Set the state of these connections to what `take` returned."""
        self._anchors[connections], self._next[connections] = taken

    def forget(self, connections: Int64) -> None:
        self._anchors[connections] = self._next[connections] = 0

    def repeats(self, connection: Int64, correlation: Int64) -> Bools:
        """Whether an earlier request may have had each correlation id: it is not higher than all
        earlier ids of its connection."""
        kind = (correlation >= RESERVED).astype(np.int64)
        repeats: Bools = correlation < self._next[connection, kind]
        np.maximum.at(self._next, (connection, kind), correlation + 1)
        return repeats

    def match(self, requests: Requests, responses: Responses) -> tuple[Int64, Int64]:
        """Pairs of indices: requests and their responses, of equal length, by request."""
        if not (len(requests) and len(responses)):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        by_request = np.argsort(requests.key, kind="stable")  # mostly sorted already
        sorted_keys = requests.key[by_request]
        first = np.searchsorted(sorted_keys, responses.key, side="left")
        is_known = first < len(sorted_keys)
        is_known[is_known] = sorted_keys[first[is_known]] == responses.key[is_known]
        repeated = _repeated(sorted_keys, responses.key, requests.key[requests.repeats])
        is_ambiguous = np.zeros(len(responses), np.bool_)
        if len(repeated):
            is_ambiguous = is_known & np.isin(responses.key, repeated)
        response = np.flatnonzero(is_known & ~is_ambiguous)
        request = by_request[first[response]]
        if is_ambiguous.any():
            pairs = self._by_order(
                requests, responses, request, response, np.flatnonzero(is_ambiguous)
            )
            request = np.concatenate([request, pairs[0]])
            response = np.concatenate([response, pairs[1]])
        order = np.argsort(request, kind="stable")
        request, response = request[order], response[order]
        self._keep_anchors(requests, responses, request, response)
        return request, response

    def _keep_anchors(
        self, requests: Requests, responses: Responses, request: Int64, response: Int64
    ) -> None:
        wanted = requests.ordinal[request] > 0
        request, response = request[wanted], response[wanted]
        connection = responses.connection[response]
        order = ordered(connection, responses.rank[response])
        last = order[np.flatnonzero(np.diff(connection[order], append=-1))]
        request, response = request[last], response[last]
        self._anchors[connection[last]] = np.stack(
            [
                requests.ordinal[request],
                responses.rank[response],
                requests.run[request],
                responses.run[response],
            ],
            axis=1,
        )

    def _by_order(
        self,
        requests: Requests,
        responses: Responses,
        request: Int64,
        response: Int64,
        ambiguous: Int64,
    ) -> tuple[Int64, Int64]:
        """Pairs for the responses `ambiguous`, whose keys repeat. `request`, `response`: pairs."""
        request_of_response = np.full(len(responses), -1)
        request_of_response[response] = request
        pairs = [np.zeros((2, 0), np.int64)]
        concerned = np.unique(responses.connection[ambiguous])
        request_index = _by_connection(requests.connection, concerned, requests.ordinal > 0)
        response_index = _by_connection(
            responses.connection, concerned, np.ones(len(responses), np.bool_)
        )
        is_ambiguous = np.zeros(len(responses), np.bool_)
        is_ambiguous[ambiguous] = True
        for connection, request_rows, response_rows in zip(
            concerned.tolist(), request_index, response_index, strict=True
        ):
            position = np.full(len(requests) + 1, -1)
            position[request_rows] = np.arange(len(request_rows))
            anchor = Anchor(*self._anchors[connection].tolist())
            matcher = _ConnectionMatcher(
                requests[request_rows],
                responses[response_rows],
                position[request_of_response[response_rows]],
                is_ambiguous[response_rows],
                anchor,
            )
            request_of, response_of = matcher.pairs()
            pairs.append(np.stack([request_rows[request_of], response_rows[response_of]]))
        both = np.concatenate(pairs, axis=1)
        return both[0], both[1]


def _repeated(requests: Int64, responses: Int64, known_repeats: Int64) -> Int64:
    """Keys that occur more than once in a direction, and `known_repeats`; `requests` is sorted."""
    responses = np.sort(responses, kind="stable")
    twice = [each[1:][each[1:] == each[:-1]] for each in (requests, responses)]
    return np.unique(np.concatenate([*twice, known_repeats]))


def _by_connection(connection: Int64, wanted: Int64, chosen: Bools) -> list[Int64]:
    """Indices of the chosen messages of each wanted connection; `wanted` is ascending."""
    index = np.flatnonzero(chosen & np.isin(connection, wanted))
    index = index[np.argsort(connection[index], kind="stable")]
    return np.split(index, np.searchsorted(connection[index], wanted[1:]))


class _ConnectionMatcher:
    """Matches one connection on which keys repeat.

    Most responses are compared with requests many at a time, those after missing bytes one by one.
    """

    def __init__(
        self,
        requests: Requests,
        responses: Responses,
        request_of_response: Int64,
        is_ambiguous: Bools,
        anchor: Anchor,
    ) -> None:
        """`requests`: requests that expect a response. `request_of_response`: the request of each
        matched response, else -1. `is_ambiguous`: the responses to match. `anchor`: the last match
        of earlier blocks."""
        self._requests, self._responses = requests, responses
        self._ambiguous = np.flatnonzero(is_ambiguous)
        self._matched = np.flatnonzero(request_of_response >= 0)
        self._request_of_matched = request_of_response[self._matched]
        self._free = np.ones(len(requests), np.bool_)
        self._free[self._request_of_matched] = False
        self._first_anchor = self._last_anchor = anchor
        runs = responses.run[self._ambiguous]
        self._run_end = np.searchsorted(runs, runs, side="right")
        self._by_key = np.argsort(requests.key, kind="stable")
        self._keys = requests.key[self._by_key]
        self._bounds: _Bounds | None = None

    def pairs(self) -> tuple[Int64, Int64]:
        """Requests and their responses."""
        request_parts, response_parts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        at = 0
        while at < len(self._ambiguous) and len(self._requests):
            first = int(self._ambiguous[at])
            anchor = self._anchor_before(first)
            request = self._following(at, anchor)
            if not len(request) and self._request_follows(first, anchor):
                if not self._responses.is_late[first]:
                    break
            elif not len(request):
                request = self._after_gap(at, anchor)
            if not len(request):
                at += 1
                continue
            request_parts.append(request)
            response_parts.append(self._ambiguous[at : at + len(request)])
            at += len(request)
            self._free[request] = False
            self._last_anchor = self._anchor(int(request[-1]), int(response_parts[-1][-1]))
        return np.concatenate(request_parts), np.concatenate(response_parts)

    def _anchor(self, request: int, response: int) -> Anchor:
        requests, responses = self._requests, self._responses
        return Anchor(
            int(requests.ordinal[request]), int(responses.rank[response]),
            int(requests.run[request]), int(responses.run[response]),
        )  # fmt: skip

    def _anchor_before(self, response: int) -> Anchor:
        """The last match before this response."""
        position = int(np.searchsorted(self._matched, response)) - 1
        if position >= 0:
            matched = int(self._matched[position])
            if self._last_anchor is self._first_anchor or self._last_anchor.rank < int(
                self._responses.rank[matched]
            ):
                return self._anchor(int(self._request_of_matched[position]), matched)
        return self._last_anchor

    def _following(self, at: int, anchor: Anchor) -> Int64:
        """The requests of the responses from `ambiguous[at]` on, up to the first missing byte after
        the anchor."""
        requests, responses = self._requests, self._responses
        parts = [np.zeros(0, np.int64)]
        is_same = int(responses.run[self._ambiguous[at]]) == anchor.response_run
        end = int(self._run_end[at]) if is_same else at
        count = CHAIN
        while at < end:
            response = self._ambiguous[at : min(at + count, end)]
            ordinal = anchor.ordinal + responses.rank[response] - anchor.rank
            request = np.minimum(np.searchsorted(requests.ordinal, ordinal), len(requests) - 1)
            fits = self._free[request] & (requests.ordinal[request] == ordinal)
            fits &= requests.run[request] == anchor.request_run
            fits &= requests.key[request] == responses.key[response]
            fit = len(fits) if fits.all() else int(np.argmin(fits))
            parts.append(request[:fit])
            if fit < len(fits):
                break
            at += fit
            count *= 2
        return np.concatenate(parts)

    def _request_follows(self, response: int, anchor: Anchor) -> bool:
        """Whether the request of this response comes after all known requests."""
        requests, responses = self._requests, self._responses
        if int(responses.run[response]) == anchor.response_run:
            ordinal = anchor.ordinal + int(responses.rank[response]) - anchor.rank
            if int(requests.run[-1]) == anchor.request_run and ordinal > int(requests.ordinal[-1]):
                return True
        return bool(self._known_bounds().is_beyond[response])

    def _after_gap(self, at: int, anchor: Anchor) -> Int64:
        """The request of the response `ambiguous[at]`, before which bytes are missing in either
        stream: the latest one that this response and the following ones allow. Empty if none."""
        requests, responses, bounds = self._requests, self._responses, self._known_bounds()
        first = int(self._ambiguous[at])
        rank = int(responses.rank[first])
        low, high = 0, self._next_matched_request(first)
        if anchor.rank < rank:
            low = int(np.searchsorted(requests.ordinal, anchor.ordinal, side="right"))
        else:
            high = min(high, int(np.searchsorted(requests.ordinal, anchor.ordinal)))
        latest = min(int(bounds.limit[first]), high) - 1
        if latest < low or bounds.is_lost[first]:
            return np.zeros(0, np.int64)
        ahead = self._ambiguous[at : min(at + LOOKAHEAD, int(self._run_end[at]))]
        limit = np.minimum(bounds.limit[ahead], high) - 1
        same = (limit >= low) & ~bounds.is_lost[ahead]
        same &= requests.run[limit] == requests.run[latest]
        if same.any():
            shift = int((requests.ordinal[limit] - responses.rank[ahead])[same].min())
            allowed = int(np.searchsorted(requests.ordinal, rank + shift, side="right")) - 1
            latest = min(latest, allowed) if allowed >= low else latest
        return self._latest(int(responses.key[first]), low, latest)

    def _latest(self, key: int, low: int, high: int) -> Int64:
        """The last request with this key from index `low` to `high`, if it is unanswered."""
        begin, end = np.searchsorted(self._keys, [key, key + 1])
        index = self._by_key[begin:end]
        position = int(np.searchsorted(index, high, side="right")) - 1
        if position < 0 or index[position] < low or not self._free[index[position]]:
            return index[:0]
        return index[position : position + 1]

    def _next_matched_request(self, response: int) -> int:
        """Index of the request of the next matched response."""
        position = int(np.searchsorted(self._matched, response))
        if position == len(self._matched):
            return len(self._requests)
        return int(self._request_of_matched[position])

    def _known_bounds(self) -> _Bounds:
        if self._bounds is None:
            self._bounds = _bounds(self._requests, self._responses)
        return self._bounds


@arrays
class _Bounds:
    """The requests that each response of a connection may belong to; shape (responses,)."""

    limit: Int64
    """Number of requests that are early enough."""
    is_beyond: Bools
    """It acknowledges bytes after all known requests."""
    is_lost: Bools
    """It acknowledges bytes after these requests that are missing. So the latest request that it
    may belong to is missing, too."""


def _bounds(requests: Requests, responses: Responses) -> _Bounds:
    base, begin = int(requests.end[0]), int(responses.begin[0])
    end = np.maximum.accumulate(_positions(requests.end, base))
    received = _positions(responses.acknowledged, base)
    is_known = responses.acknowledged >= 0
    limit = np.searchsorted(end, received, side="right")
    run = np.append(requests.run, -1)
    is_lost = is_known & (received > np.append(base, end)[limit]) & (run[limit] != run[limit - 1])
    time = np.maximum.accumulate(requests.time)
    limit = np.where(is_known, limit, np.searchsorted(time, responses.time, side="right"))
    seen = _positions(requests.acknowledged, begin)
    seen = np.maximum.accumulate(np.where(requests.acknowledged < 0, np.iinfo(np.int64).min, seen))
    limit = np.minimum(
        limit, np.searchsorted(seen, _positions(responses.begin, begin), side="right")
    )
    return _Bounds(limit, is_known & (received > end[-1]), is_lost)


def _positions(number: Int64, base: int) -> Int64:
    """Positions of sequence numbers relative to `base`, each nearest to the position before it.
    Those of unknown numbers (-1) have no meaning."""
    known = np.maximum.accumulate(np.where(number >= 0, np.arange(len(number)), -1))
    number = np.where(known >= 0, number[known], base)
    step = np.diff(number, prepend=base)
    positions: Int64 = np.cumsum((step + (1 << 31)) % (1 << 32) - (1 << 31))
    return positions


def in_flight(
    connection: Int64, ordinal: Int64, time: Int64,
    answered_connection: Int64, answered_ordinal: Int64, answered_time: Int64,
    answered_before: Int64,
) -> Int64:  # fmt: skip
    """Number of pending requests of the connection when each of n requests ends, including itself.

    `ordinal` counts the requests of a connection that expect a response, from 1. A broker responds
    in order, so the highest answered ordinal gives the number of pending requests.
    `answered_*`: the known responses, shape (k,); `answered_before`: by connection, the highest
    ordinal answered earlier.
    """
    connections = np.concatenate([answered_connection, connection])
    times = np.concatenate([answered_time, time])
    highest = np.concatenate([answered_ordinal, answered_before[connection]])
    order = ordered(connections, times)  # at the same time, answered requests come first
    # One running maximum serves all connections: each starts above all values of the one before.
    lift = connections[order] << ORDINAL_BITS
    done = np.maximum.accumulate(highest[order] + lift) - lift
    result = np.empty(len(connections), np.int64)
    result[order] = done
    in_flight: Int64 = np.maximum(ordinal - result[len(answered_connection) :], 1)
    return in_flight
