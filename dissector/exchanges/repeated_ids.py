"""Matching on connections that use correlation ids again: see `matching`.

The columns of requests and responses that matching reads are declared here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dissector.arrays import arrays
from dissector.packets.block import Int64
from dissector.parallel_arrays import ParallelArrays
from dissector.streams.connections.table import Bools

Floats = NDArray[np.float64]
Decodes: TypeAlias = Callable[[Int64, Int64], Bools]
"""Whether responses have a valid body, given their requests. Indices of both; shape (n,)."""

LOOKAHEAD = 64
"""Number of responses after missing bytes that are compared to find the first one's request.
Clients keep fewer requests in flight (`max.in.flight.requests.per.connection` is 5, librdkafka
limits it by bytes)."""

RESPONSE_WAIT = 5 * 10**9
"""ns of capture time for which a response waits for its request. Reassembly waits less than this
for a byte that was acknowledged."""

DECODED = 8
"""Number of responses after missing bytes whose bodies are compared, too."""

NOTHING = np.zeros(0, np.int64)

CHAIN = 32
"""Number of responses that are compared with requests at first. It doubles while all of them match,
so that the work is linear wherever the first mismatch is."""


@arrays
class _Messages(ParallelArrays):
    """n messages of one direction, those of a connection in stream order; arrays of shape (n,)."""

    key: Int64
    connection: Int64
    run: Int64
    """Run of the frame, see `FrameBlock`."""
    acknowledged: Int64
    """Acknowledgement number at the time of sending; -1 if not known."""
    time: Int64
    """ns, end of a request or start of a response."""
    size: Int64
    """Bytes, including the 4-byte length."""


@arrays
class Requests(_Messages):
    ordinal: Int64
    """Number among the requests of the connection that expect a response, from 1; else 0."""
    end: Int64
    """Sequence number after the last byte."""
    repeats: Bools
    """A request of an earlier block had, or may have had, the same key."""


@arrays
class Responses(_Messages):
    rank: Int64
    """Number among the frames of the stream, from 1."""
    begin: Int64
    """Sequence number of the first byte."""
    is_late: Bools
    """It has waited for its request for the allowed time."""


class Anchor(NamedTuple):
    """A matched request and response; at first, the start of both streams."""

    ordinal: int
    rank: int
    request_run: int
    response_run: int
    request_end: int
    """Sequence number after the request; likewise `response_end`."""
    response_end: int


def anchor_columns(
    requests: Requests, responses: Responses, request: Int64 | int, response: Int64 | int
) -> tuple[Any, ...]:
    """The columns of `Anchor` for these requests and their responses."""
    return (
        requests.ordinal[request], responses.rank[response], requests.run[request],
        responses.run[response], requests.end[request],
        responses.begin[response] + responses.size[response],
    )  # fmt: skip


class ConnectionMatcher:
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
        ends: Int64,
        decodes: Decodes,
    ) -> None:
        """`requests`: those that expect a response. `request_of_response`: the request of each
        matched response, else -1. `is_ambiguous`: the responses to match. `anchor`: the last match
        of earlier blocks. `ends`: sequence number after each request and after those that follow it
        and expect no response. `decodes`: see `Decodes`."""
        self._requests, self._responses = requests, responses
        self._ambiguous = np.flatnonzero(is_ambiguous)
        self._matched = np.flatnonzero(request_of_response >= 0)
        self._request_of_matched = request_of_response[self._matched]
        self._free = np.ones(len(requests), np.bool_)
        self._free[self._request_of_matched] = False
        self._first_anchor = self._last_anchor = anchor
        runs = responses.run[self._ambiguous]
        self._run_end = np.searchsorted(runs, runs, side="right")
        self._ends = ends
        self._decodes = decodes

    def pairs(self) -> tuple[Int64, Int64]:
        """Requests and their responses."""
        request_parts, response_parts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        at = 0
        while at < len(self._ambiguous) and len(self._requests):
            first = int(self._ambiguous[at])
            anchor = self._anchor_before(first)
            request = self._following(at, anchor)
            if not len(request):
                request = self._following(at, self._anchor_after(first))
            if not len(request):
                follows = self._request_follows(first, anchor)
                request = request if follows else self._after_gap(at, anchor)
                if (follows or len(request) > 1) and not self._responses.is_late[first]:
                    break
                request = self._likeliest(request, at, anchor)
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
        columns = anchor_columns(self._requests, self._responses, request, response)
        return Anchor(*map(int, columns))

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

    def _anchor_after(self, response: int) -> Anchor:
        """The next match, if it is early enough in small blocks, too; else the last one."""
        position = int(np.searchsorted(self._matched, response))
        if position < len(self._matched):
            matched = int(self._matched[position])
            if self._responses.time[matched] - self._responses.time[response] <= RESPONSE_WAIT:
                return self._anchor(int(self._request_of_matched[position]), matched)
        return self._last_anchor

    def _following(self, at: int, anchor: Anchor) -> Int64:
        """The requests of the responses from `ambiguous[at]` on, up to the first missing byte
        between them and the anchor, or after it."""
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
        return bool(self._bounds.is_beyond[response])

    def _after_gap(self, at: int, anchor: Anchor) -> Int64:
        """The requests that the response `ambiguous[at]` may belong to, before which bytes are
        missing in either stream."""
        requests, responses, bounds = self._requests, self._responses, self._bounds
        first = int(self._ambiguous[at])
        rank = int(responses.rank[first])
        if rank < anchor.rank or (not anchor.rank and bounds.is_lost[first]):
            return NOTHING  # its request was missing when a later response matched, or is missing
        low = int(np.searchsorted(requests.ordinal, anchor.ordinal, side="right"))
        high = min(int(bounds.limit[first]), self._next_matched_request(first))
        candidate = np.arange(max(low, high - LOOKAHEAD), high)
        is_possible = self._free[candidate] & (requests.key[candidate] == responses.key[first])
        lacks_requests = requests.run[candidate] != anchor.request_run
        surplus = requests.ordinal[candidate] - rank - (anchor.ordinal - anchor.rank)
        if anchor.rank:
            # If only requests are missing, the request is nearer to the anchor than the response;
            # if only responses are missing, it is further behind. But bytes inside a message whose
            # start is missing, or whose size is damaged, may have been taken for a message.
            only_requests = int(responses.run[first]) == anchor.response_run
            is_usual = (
                ~lacks_requests | (surplus < 0) if only_requests else lacks_requests | (surplus > 0)
            )
            fitting = self._fitting(at, candidate[is_possible & is_usual])
            if len(fitting):
                return fitting
            if only_requests:
                is_possible &= surplus == 0
        return self._fitting(at, candidate[is_possible])

    def _fitting(self, at: int, candidate: Int64) -> Int64:
        """The candidates for the response `ambiguous[at]` that fit the responses after it, too: up
        to the next missing byte, each response belongs to the next request."""
        if not len(candidate):
            return candidate
        requests, responses, bounds = self._requests, self._responses, self._bounds
        ahead = self._ambiguous[at : min(at + LOOKAHEAD, int(self._run_end[at]))]
        step = responses.rank[ahead] - responses.rank[ahead[0]]
        end = np.searchsorted(requests.run, requests.run[candidate], side="right")[:, None]
        index = np.searchsorted(requests.ordinal, requests.ordinal[candidate][:, None] + step)
        index = np.minimum(index, end)
        is_known = index < end
        request = np.minimum(index, len(requests) - 1)
        fits = (requests.key[request] == responses.key[ahead]) & self._free[request]
        fits &= index < bounds.limit[ahead]
        fits |= ~is_known & ((end < len(requests)) | bounds.is_beyond[ahead])
        row, column = np.nonzero(is_known[:, :DECODED] & fits.all(axis=1)[:, None])
        fits[row, column] = self._decodes(request[row, column], ahead[column])
        chosen: Int64 = candidate[fits.all(axis=1)]
        return chosen

    def _likeliest(self, candidate: Int64, at: int, anchor: Anchor) -> Int64:
        """The candidate that comes as many messages after the anchor as the response
        `ambiguous[at]`, if missing messages have the mean size of the others. Empty if that shows
        that its request is missing, unless the next response does not fit the candidate. The latest
        candidate if no response has matched yet."""
        if not len(candidate) or not anchor.rank:
            return candidate[-1:]
        asked, came = self._numbers
        distance = asked[candidate] - _number_at(self._requests.ordinal, asked, anchor.ordinal)
        number = came[int(self._ambiguous[at])]
        distance -= number - _number_at(self._responses.rank, came, anchor.rank)
        nearest = int(np.abs(distance).argmin())
        chosen, off = candidate[nearest : nearest + 1], float(distance[nearest])
        run = np.pad(self._requests.run, 1, mode="edge")[int(chosen[0]) : int(chosen[0]) + 3]
        is_missing = (off > 0.5 and run[0] != run[1]) or (off < -0.5 and run[1] != run[2])
        if is_missing and at + 1 < int(self._run_end[at]):
            is_missing = len(self._fitting(at + 1, chosen)) > 0
        return NOTHING if is_missing else chosen

    def _next_matched_request(self, response: int) -> int:
        """Index of the request of the next matched response."""
        position = int(np.searchsorted(self._matched, response))
        if position == len(self._matched):
            return len(self._requests)
        return int(self._request_of_matched[position])

    @cached_property
    def _numbers(self) -> tuple[Floats, Floats]:
        """Estimated numbers of the requests, and of the responses."""
        requests, responses, anchor = self._requests, self._responses, self._first_anchor
        asked = _numbers(
            requests, requests.ordinal, requests.end - requests.size, self._ends,
            (anchor.ordinal, anchor.request_end, anchor.request_run),
        )  # fmt: skip
        came = _numbers(
            responses, responses.rank, responses.begin, responses.begin + responses.size,
            (anchor.rank, anchor.response_end, anchor.response_run),
        )  # fmt: skip
        return asked, came

    @cached_property
    def _bounds(self) -> _Bounds:
        return _bounds(self._requests, self._responses, self._ends)


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


def _bounds(requests: Requests, responses: Responses, ends: Int64) -> _Bounds:
    """`ends`: see `ConnectionMatcher`."""
    base, begin = int(requests.end[0]), int(responses.begin[0])
    end, behind = (np.maximum.accumulate(_positions(each, base)) for each in (requests.end, ends))
    received = _positions(responses.acknowledged, base)
    is_known = responses.acknowledged >= 0
    limit = np.searchsorted(end, received, side="right")
    run = np.append(requests.run, -1)
    is_lost = is_known & (run[limit] != run[limit - 1])
    is_lost &= received > np.append(base, behind)[limit]
    time = np.maximum.accumulate(requests.time)
    limit = np.where(is_known, limit, np.searchsorted(time, responses.time, side="right"))
    seen = _positions(requests.acknowledged, begin)
    seen = np.maximum.accumulate(np.where(requests.acknowledged < 0, np.iinfo(np.int64).min, seen))
    limit = np.minimum(
        limit, np.searchsorted(seen, _positions(responses.begin, begin), side="right")
    )
    return _Bounds(limit, is_known & (received > behind[-1]), is_lost)


def _numbers(
    messages: _Messages, count: Int64, begin: Int64, behind: Int64, before: tuple[int, int, int]
) -> Floats:
    """Estimated numbers of messages in their stream: `count`, and the missing ones before it.

    `begin`, `behind`: sequence numbers of the messages and of those after them. `before`: count,
    `behind` and run of an earlier message.
    """
    counts, ends, runs = (
        np.append(*each) for each in zip(before, (count, behind, messages.run), strict=True)
    )
    missing = (begin - ends[:-1]) % (1 << 32) / messages.size.mean() - np.diff(counts) + 1
    numbers: Floats = count + np.cumsum(np.maximum(missing, 1) * (np.diff(runs) != 0))
    return numbers


def _number_at(count: Int64, numbers: Floats, wanted: int) -> float:
    """The number of the message with this count; of one in an earlier block, the count."""
    index = int(np.searchsorted(count, wanted))
    is_here = index < len(count) and int(count[index]) == wanted
    return float(numbers[index]) if is_here else wanted


def _positions(number: Int64, base: int) -> Int64:
    """Positions of sequence numbers relative to `base`, each nearest to the position before it.
    Those of unknown numbers (-1) have no meaning."""
    known = np.maximum.accumulate(np.where(number >= 0, np.arange(len(number)), -1))
    number = np.where(known >= 0, number[known], base)
    step = np.diff(number, prepend=base)
    positions: Int64 = np.cumsum((step + (1 << 31)) % (1 << 32) - (1 << 31))
    return positions
