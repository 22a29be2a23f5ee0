"""Matching: which response answers which request.

A broker answers the requests of one connection in their order, and repeats each request's
correlation id (Kafka's protocol guide, "Network"). Most clients count their correlation ids, so
that a join on connection and correlation id is enough. Where an id is used again (a client that
always sends 0, the ids that Java clients reserve for authentication), the order of the two streams
decides, and never the times: the two directions may have been captured by different clocks.

- While no byte is missing, the response behind an answered one answers the next request that wants
  a response. `Responses.rank` and `Requests.ordinal` count them, and `run` changes at each gap.
- Behind missing bytes, acknowledgement numbers bound what a response can answer: its sender had
  received the whole request, and the sender of the request cannot have acknowledged the response.
  The latest request within these bounds is taken. A response that acknowledges bytes which no
  request at hand has waits for them.
- Only where no acknowledgement number is known (in decrypted streams), times decide.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dissector.exchanges.ordering import ordered
from dissector.packets.block import Int64
from dissector.streams.header_evidence import RESERVED

Bools = NDArray[np.bool_]

NO_KEY = np.iinfo(np.int64).min
"""Of a frame that is too short for a correlation id: no request has it."""

LOOKAHEAD = 64
"""Responses behind the first one after missing bytes that are consulted. Clients keep fewer
requests in flight (`max.in.flight.requests.per.connection` is 5, librdkafka limits it by bytes)."""

CHAIN = 32
"""Responses that are compared with requests in one go, at first: the number doubles while all of
them fit, so that the work is linear wherever the first misfit is."""


def keys(connection: NDArray[np.integer], correlation: NDArray[np.integer]) -> Int64:
    """Connection and correlation id as one number."""
    low = correlation.astype(np.int64) & 0xFFFFFFFF
    return (connection.astype(np.int64) << 32) | low


@dataclass(frozen=True, slots=True)
class _Messages:
    """n messages of one direction, those of a connection in stream order; arrays of shape (n,)."""

    key: Int64
    connection: Int64
    run: Int64
    """Of the frame, see `FrameBlock`."""
    acknowledged: Int64
    """Sequence number of the other direction that its sender had received; -1 if not known."""
    time: Int64
    """ns, end of a request or start of a response."""

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True, slots=True)
class Requests(_Messages):
    ordinal: Int64
    """Number among the requests of the connection that want a response, from 1; else 0."""
    end: Int64
    """Sequence number behind the last byte."""
    repeats: Bools
    """A request of an earlier block had the same key, or may have had it."""

    def __getitem__(self, index: Int64) -> Requests:
        return Requests(*(getattr(self, each.name)[index] for each in fields(self)))


@dataclass(frozen=True, slots=True)
class Responses(_Messages):
    rank: Int64
    """Number among the frames of the stream, from 1."""
    begin: Int64
    """Sequence number of the first byte."""
    is_late: Bools
    """It has waited for its request as long as it may."""

    def __getitem__(self, index: Int64) -> Responses:
        return Responses(*(getattr(self, each.name)[index] for each in fields(self)))


class Anchor(NamedTuple):
    """A request and the response that answers it; at first, what both streams begin behind."""

    ordinal: int
    rank: int
    request_run: int
    response_run: int


@dataclass(slots=True)
class Matcher:
    """Pairs requests and responses, block by block. Arrays of shape (connections, ...)."""

    _anchors: Int64 = field(default_factory=lambda: np.zeros((0, len(Anchor._fields)), np.int64))
    """`Anchor` of the last response that was matched."""
    _next: Int64 = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """Correlation id above the highest so far: of ordinary ids, and of those from RESERVED on."""

    def grow(self, count: int) -> None:
        """Make room for so many connections."""
        missing = count - len(self._next)
        if missing > 0:
            self._anchors = np.pad(self._anchors, ((0, missing), (0, 0)))
            self._next = np.pad(self._next, ((0, missing), (0, 0)))

    def forget(self, connections: Int64) -> None:
        self._anchors[connections] = self._next[connections] = 0

    def repeats(self, connection: Int64, correlation: Int64) -> Bools:
        """Whether an earlier block may have had these correlation ids of requests: they are not
        above all of their connection."""
        kind = (correlation >= RESERVED).astype(np.int64)
        repeats: Bools = correlation < self._next[connection, kind]
        np.maximum.at(self._next, (connection, kind), correlation + 1)
        return repeats

    def match(self, asked: Requests, came: Responses) -> tuple[Int64, Int64]:
        """Pairs of indices: requests and their responses, of equal length, by request."""
        if not (len(asked) and len(came)):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        by_request = np.argsort(asked.key, kind="stable")  # in order already, for long stretches
        requests = asked.key[by_request]
        first = np.searchsorted(requests, came.key, side="left")
        found = first < len(requests)
        found[found] = requests[first[found]] == came.key[found]
        repeated = _repeated(requests, came.key, asked.key[asked.repeats])
        in_question = found & np.isin(came.key, repeated) if len(repeated) else found & False
        response = np.flatnonzero(found & ~in_question)
        request = by_request[first[response]]
        if in_question.any():
            more = self._by_order(asked, came, request, response, np.flatnonzero(in_question))
            request = np.concatenate([request, more[0]])
            response = np.concatenate([response, more[1]])
        order = np.argsort(request, kind="stable")
        request, response = request[order], response[order]
        self._keep_anchors(asked, came, request, response)
        return request, response

    def _keep_anchors(
        self, asked: Requests, came: Responses, request: Int64, response: Int64
    ) -> None:
        wanted = asked.ordinal[request] > 0
        request, response = request[wanted], response[wanted]
        connection = came.connection[response]
        order = ordered(connection, came.rank[response])
        last = order[np.flatnonzero(np.diff(connection[order], append=-1))]
        request, response = request[last], response[last]
        self._anchors[connection[last]] = np.stack(
            [asked.ordinal[request], came.rank[response], asked.run[request], came.run[response]],
            axis=1,
        )

    def _by_order(
        self, asked: Requests, came: Responses, request: Int64, response: Int64, open_: Int64
    ) -> tuple[Int64, Int64]:
        """Pairs of the responses `open_`, whose keys are not theirs alone, beside these pairs."""
        taken = np.full(len(came), -1)
        taken[response] = request
        pairs = [np.zeros((2, 0), np.int64)]
        concerned = np.unique(came.connection[open_])
        all_asked = _by_connection(asked.connection, concerned, asked.ordinal > 0)
        all_came = _by_connection(came.connection, concerned, np.ones(len(came), np.bool_))
        is_open = np.zeros(len(came), np.bool_)
        is_open[open_] = True
        for connection, of_asked, of_came in zip(
            concerned.tolist(), all_asked, all_came, strict=True
        ):
            place = np.full(len(asked) + 1, -1)
            place[of_asked] = np.arange(len(of_asked))
            anchor = Anchor(*self._anchors[connection].tolist())
            dialogue = _Dialogue(
                asked[of_asked], came[of_came], place[taken[of_came]], is_open[of_came], anchor
            )
            one, other = dialogue.pairs()
            pairs.append(np.stack([of_asked[one], of_came[other]]))
        both = np.concatenate(pairs, axis=1)
        return both[0], both[1]


def _repeated(requests: Int64, responses: Int64, again: Int64) -> Int64:
    """Keys that occur more than once in one direction, and those of `again`; `requests` sorted."""
    responses = np.sort(responses, kind="stable")
    twice = [each[1:][each[1:] == each[:-1]] for each in (requests, responses)]
    return np.unique(np.concatenate([*twice, again]))


def _by_connection(connection: Int64, wanted: Int64, chosen: Bools) -> list[Int64]:
    """Indices of the chosen messages of each wanted connection, which are ascending."""
    index = np.flatnonzero(chosen & np.isin(connection, wanted))
    index = index[np.argsort(connection[index], kind="stable")]
    return np.split(index, np.searchsorted(connection[index], wanted[1:]))


class _Dialogue:
    """One connection, some of whose keys repeat.

    Most responses are compared with requests many at a time; only behind missing bytes one by one.
    """

    def __init__(
        self, asked: Requests, came: Responses, taken: Int64, is_open: Bools, anchor: Anchor
    ) -> None:
        """`asked`: requests that want a response. `taken`: request of each response that is
        matched, else -1. `is_open`: the responses to match. `anchor`: of earlier blocks."""
        self._asked, self._came = asked, came
        self._open = np.flatnonzero(is_open)
        self._settled = np.flatnonzero(taken >= 0)
        self._request_of_settled = taken[self._settled]
        self._free = np.ones(len(asked), np.bool_)
        self._free[self._request_of_settled] = False
        self._first_anchor = self._last_anchor = anchor
        runs = came.run[self._open]
        self._run_end = np.searchsorted(runs, runs, side="right")
        self._by_key = np.argsort(asked.key, kind="stable")
        self._keys = asked.key[self._by_key]
        self._bounds: _Bounds | None = None

    def pairs(self) -> tuple[Int64, Int64]:
        """Requests and their responses."""
        requests, responses = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        at = 0
        while at < len(self._open) and len(self._asked):
            first = int(self._open[at])
            anchor = self._anchor_before(first)
            request = self._following(at, anchor)
            if not len(request) and self._is_to_come(first, anchor):
                if not self._came.is_late[first]:
                    break
            elif not len(request):
                request = self._behind_gap(at, anchor)
            if not len(request):
                at += 1
                continue
            requests.append(request)
            responses.append(self._open[at : at + len(request)])
            at += len(request)
            self._free[request] = False
            self._last_anchor = self._anchor(int(request[-1]), int(responses[-1][-1]))
        return np.concatenate(requests), np.concatenate(responses)

    def _anchor(self, request: int, response: int) -> Anchor:
        asked, came = self._asked, self._came
        return Anchor(
            int(asked.ordinal[request]), int(came.rank[response]),
            int(asked.run[request]), int(came.run[response]),
        )  # fmt: skip

    def _anchor_before(self, response: int) -> Anchor:
        """The last match before this response, if there is one."""
        place = int(np.searchsorted(self._settled, response)) - 1
        if place >= 0:
            settled = int(self._settled[place])
            if self._last_anchor is self._first_anchor or self._last_anchor.rank < int(
                self._came.rank[settled]
            ):
                return self._anchor(int(self._request_of_settled[place]), settled)
        return self._last_anchor

    def _following(self, at: int, anchor: Anchor) -> Int64:
        """The requests of the responses from `open[at]` on, as far as no byte is missing between
        them and the anchor."""
        asked, came = self._asked, self._came
        found = [np.zeros(0, np.int64)]
        is_same = int(came.run[self._open[at]]) == anchor.response_run
        end = int(self._run_end[at]) if is_same else at
        count = CHAIN
        while at < end:
            response = self._open[at : min(at + count, end)]
            ordinal = anchor.ordinal + came.rank[response] - anchor.rank
            request = np.minimum(np.searchsorted(asked.ordinal, ordinal), len(asked) - 1)
            fits = self._free[request] & (asked.ordinal[request] == ordinal)
            fits &= asked.run[request] == anchor.request_run
            fits &= asked.key[request] == came.key[response]
            fit = len(fits) if fits.all() else int(np.argmin(fits))
            found.append(request[:fit])
            if fit < len(fits):
                break
            at += fit
            count *= 2
        return np.concatenate(found)

    def _is_to_come(self, response: int, anchor: Anchor) -> bool:
        """Whether the request of this response is behind all that are at hand."""
        asked, came = self._asked, self._came
        if int(came.run[response]) == anchor.response_run:
            ordinal = anchor.ordinal + int(came.rank[response]) - anchor.rank
            if int(asked.run[-1]) == anchor.request_run and ordinal > int(asked.ordinal[-1]):
                return True
        return bool(self._known_bounds().is_beyond[response])

    def _behind_gap(self, at: int, anchor: Anchor) -> Int64:
        """The request of the response `open[at]`, before which bytes are missing in either stream:
        the latest one that it and the responses behind it allow. Empty where there is none."""
        asked, came, bounds = self._asked, self._came, self._known_bounds()
        first = int(self._open[at])
        rank = int(came.rank[first])
        low, high = 0, self._settled_behind(first)
        if anchor.rank < rank:
            low = int(np.searchsorted(asked.ordinal, anchor.ordinal, side="right"))
        else:
            high = min(high, int(np.searchsorted(asked.ordinal, anchor.ordinal)))
        latest = min(int(bounds.limit[first]), high) - 1
        if latest < low or bounds.is_lost[first]:
            return np.zeros(0, np.int64)
        ahead = self._open[at : min(at + LOOKAHEAD, int(self._run_end[at]))]
        limit = np.minimum(bounds.limit[ahead], high) - 1
        same = (limit >= low) & ~bounds.is_lost[ahead]
        same &= asked.run[limit] == asked.run[latest]
        if same.any():
            shift = int((asked.ordinal[limit] - came.rank[ahead])[same].min())
            allowed = int(np.searchsorted(asked.ordinal, rank + shift, side="right")) - 1
            latest = min(latest, allowed) if allowed >= low else latest
        return self._latest(int(came.key[first]), low, latest)

    def _latest(self, key: int, low: int, high: int) -> Int64:
        """The last request with this key from index `low` to index `high`, if it is unanswered."""
        begin, end = np.searchsorted(self._keys, [key, key + 1])
        index = self._by_key[begin:end]
        place = int(np.searchsorted(index, high, side="right")) - 1
        if place < 0 or index[place] < low or not self._free[index[place]]:
            return index[:0]
        return index[place : place + 1]

    def _settled_behind(self, response: int) -> int:
        """Index of the request that the next matched response answers."""
        place = int(np.searchsorted(self._settled, response))
        if place == len(self._settled):
            return len(self._asked)
        return int(self._request_of_settled[place])

    def _known_bounds(self) -> _Bounds:
        if self._bounds is None:
            self._bounds = _bounds(self._asked, self._came)
        return self._bounds


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What responses of a connection can answer, by themselves; arrays of shape (responses,)."""

    limit: Int64
    """How many of the requests are early enough."""
    is_beyond: Bools
    """It acknowledges more than the requests that are at hand."""
    is_lost: Bools
    """It acknowledges bytes behind these requests that are not at hand, so the latest request that
    it can answer is not at hand either."""


def _bounds(asked: Requests, came: Responses) -> _Bounds:
    base, begin = int(asked.end[0]), int(came.begin[0])
    end = np.maximum.accumulate(_positions(asked.end, base))
    received = _positions(came.acknowledged, base)
    knows = came.acknowledged >= 0
    limit = np.searchsorted(end, received, side="right")
    run = np.append(asked.run, -1)
    is_lost = knows & (received > np.append(base, end)[limit]) & (run[limit] != run[limit - 1])
    time = np.maximum.accumulate(asked.time)
    limit = np.where(knows, limit, np.searchsorted(time, came.time, side="right"))
    seen = _positions(asked.acknowledged, begin)
    seen = np.maximum.accumulate(np.where(asked.acknowledged < 0, np.iinfo(np.int64).min, seen))
    limit = np.minimum(limit, np.searchsorted(seen, _positions(came.begin, begin), side="right"))
    return _Bounds(limit, knows & (received > end[-1]), is_lost)


def _positions(number: Int64, base: int) -> Int64:
    """Positions of sequence numbers behind that of `base`: each the one nearest to that of the
    number before it. Those of unknown ones (-1) mean nothing."""
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
    """Requests of the same connection that wait when each of n requests is there, itself included.

    `ordinal` counts the requests of a connection that want a response, from 1. Because a broker
    answers in order, the highest ordinal answered so far says how many still wait.
    `answered_*`: the responses at hand, shape (k,); `answered_before`: by connection, the highest
    ordinal answered earlier.
    """
    who = np.concatenate([answered_connection, connection])
    when = np.concatenate([answered_time, time])
    highest = np.concatenate([answered_ordinal, answered_before[connection]])
    order = ordered(who, when)  # of one time, what was answered comes first
    # One running maximum serves all connections: each starts above everything of the one before.
    lift = who[order] << 40
    done = np.maximum.accumulate(highest[order] + lift) - lift
    result = np.empty(len(who), np.int64)
    result[order] = done
    waiting: Int64 = np.maximum(ordinal - result[len(answered_connection) :], 1)
    return waiting
