"""Matching of responses with requests.

A broker responds to the requests of a connection in order, and repeats each request's correlation
id (Kafka's protocol guide, "Network"). Most clients count their correlation ids, so a join by
connection and correlation id is enough. Some ids are used again: a client may always send 0, and
Java clients reserve ids for authentication. Then the order of both streams decides. Times do not
decide, since the two directions may have been captured with different clocks.

- While no byte is missing, the response after a matched one belongs to the next request that
  expects a response. `Responses.rank` and `Requests.ordinal` count them; `run` changes at each gap.
- After missing bytes, acknowledgement numbers limit the possible requests: the broker had received
  the whole request, and the client cannot have acknowledged the response. If ids repeat, missing
  requests may have had the ids of later ones. The responses up to the next missing byte must fit
  the following requests: ids, limits, and bodies. If several requests remain, the response waits
  for further ones. In the end, the number of missing bytes decides. A response that acknowledges
  bytes after all known requests waits for them.
- Only if no acknowledgement number is known (in decrypted streams), times decide.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dissector import _native
from dissector.arrays import mutable
from dissector.exchanges.ordering import ordered
from dissector.exchanges.repeated_ids import (
    Anchor,
    ConnectionMatcher,
    Decodes,
    Requests,
    Responses,
    anchor_columns,
)
from dissector.packets.block import Int64
from dissector.streams.connections.table import Bools, Rows, by_connection
from dissector.streams.search.header_evidence import RESERVED

NO_KEY = np.iinfo(np.int64).min
"""The key of a frame that is too short for a correlation id: no request has it."""


def keys(connection: NDArray[np.integer], correlation: NDArray[np.integer]) -> Int64:
    """Connection and correlation id as one number."""
    low = correlation.astype(np.int64) & 0xFFFFFFFF
    return (connection.astype(np.int64) << 32) | low


def no_keys(connection: Int64) -> Int64:
    """Keys of requests without correlation id: no response has them. `moved_keys` keeps them."""
    return -1 - (connection << 32 | 0xFFFFFFFF)


def moved_keys(key: Int64, connection: Int64) -> Int64:
    """The keys of requests for other rows of their connections. Those of SASL tokens are negative:
    see `sasl`."""
    low = np.where(key < 0, -1 - key, key) & 0xFFFFFFFF
    moved = connection << 32 | low
    return np.where(key < 0, -1 - moved, moved)


@mutable
class Matcher(Rows):
    """Pairs requests and responses, block by block. Its columns are the state of connections."""

    sent: Int64 = by_connection(np.int64, 0)
    """Number of requests that expect a response."""
    last_answered: Int64 = by_connection(np.int64, 0)
    """Ordinal of the latest request with a response; the first is 1."""
    last_request_time: Int64 = by_connection(np.int64, 0)
    """ns; latest end of a request."""
    last_response_time: Int64 = by_connection(np.int64, 0)
    """ns; end of the latest matched response."""
    answers_all: Bools = by_connection(np.bool_, 0)
    """The broker responded to a request with acks=0, as librdkafka's mock broker does."""
    repeats_ids: Bools = by_connection(np.bool_, 0)
    """A correlation id occurred twice."""
    anchors: Int64 = by_connection(np.int64, len(Anchor._fields))
    """`Anchor` of the last matched response."""
    next_id: Int64 = by_connection(np.int64, 2)
    """One more than the highest correlation id: of ordinary ids, and of those from RESERVED on."""

    def repeats(self, connection: Int64, correlation: Int64) -> Bools:
        """Whether an earlier request may have had each correlation id: it is not higher than all
        earlier ids of its connection. Negative ids follow the highest ones."""
        number = correlation & 0xFFFFFFFF
        place = 2 * connection + ((number >= RESERVED) & (number < 1 << 31))
        repeats: Bools = number < self.next_id.take(place)
        np.maximum.at(self.next_id.reshape(-1), place, number + 1)
        return repeats

    def sent_times(self, connection: Int64, end_time: Int64) -> Int64:
        """When requests, in stream order, count as sent: not before earlier requests of their
        connection, even if the clock of the capture was set back."""
        latest = self.last_request_time
        sent = np.maximum(end_time, latest[connection])
        falls = (np.diff(sent) < 0) & (np.diff(connection) == 0)
        for row in np.unique(connection[1:][falls]).tolist():
            own = np.flatnonzero(connection == row)
            sent[own] = np.maximum.accumulate(sent[own])
        np.maximum.at(latest, connection, sent)
        return sent

    def match(
        self, requests: Requests, responses: Responses, decodes: Decodes
    ) -> tuple[Int64, Int64]:
        """Pairs of indices: requests and their responses, of equal length, by request."""
        if not (len(requests) and len(responses)):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        by_request = np.argsort(requests.key, kind="stable")  # mostly sorted already
        sorted_keys = requests.key.take(by_request)
        first = np.searchsorted(sorted_keys, responses.key, side="left")
        is_known = first < len(sorted_keys)
        is_known[is_known] = sorted_keys[first[is_known]] == responses.key[is_known]
        repeated = _repeated(sorted_keys, responses.key, requests.key[requests.repeats])
        is_ambiguous = np.zeros(len(responses), np.bool_)
        if len(repeated):
            self.repeats_ids[repeated[repeated >= 0] >> 32] = True
            requests.repeats[np.isin(requests.key, repeated)] = True
            is_ambiguous = is_known & np.isin(responses.key, repeated)
        response = np.flatnonzero(is_known & ~is_ambiguous)
        request = by_request.take(first.take(response))
        is_doubtful = self.repeats_ids.take(responses.connection.take(response))
        is_doubtful &= requests.run.take(request) > 0
        if is_doubtful.any():
            is_doubtful &= ~_had_received(
                responses.acknowledged.take(response), requests.end.take(request)
            )
            request, response = request[~is_doubtful], response[~is_doubtful]
        if is_ambiguous.any():
            pairs = self._by_order(
                requests, responses, request, response, np.flatnonzero(is_ambiguous), decodes
            )
            request = np.concatenate([request, pairs[0]])
            response = np.concatenate([response, pairs[1]])
        order = np.argsort(request, kind="stable")
        request, response = request.take(order), response.take(order)
        self._keep_anchors(requests, responses, request, response)
        return request, response

    def _keep_anchors(
        self, requests: Requests, responses: Responses, request: Int64, response: Int64
    ) -> None:
        wanted = requests.ordinal.take(request) > 0
        request, response = request[wanted], response[wanted]
        # Responses of a connection are in order of rank; the last assignment stays.
        request_of = np.full(len(responses), -1)
        request_of[response] = request
        response = np.flatnonzero(request_of >= 0)
        last = np.full(self.count, -1)
        last[responses.connection.take(response)] = response
        response = last[last >= 0]
        request = request_of[response]
        columns = anchor_columns(requests, responses, request, response)
        self.anchors[responses.connection[response]] = np.stack(columns, axis=1)

    def _by_order(
        self,
        requests: Requests,
        responses: Responses,
        request: Int64,
        response: Int64,
        ambiguous: Int64,
        decodes: Decodes,
    ) -> tuple[Int64, Int64]:
        """Pairs for the responses `ambiguous`, whose keys repeat. `request`, `response`: pairs."""
        request_of_response = np.full(len(responses), -1)
        request_of_response[response] = request
        pairs = [np.zeros((2, 0), np.int64)]
        concerned = np.unique(responses.connection[ambiguous])
        expects = requests.ordinal > 0
        request_index = _by_connection(requests.connection, concerned, expects)
        all_index = _by_connection(requests.connection, concerned, np.ones_like(expects))
        response_index = _by_connection(
            responses.connection, concerned, np.ones(len(responses), np.bool_)
        )
        is_ambiguous = np.zeros(len(responses), np.bool_)
        is_ambiguous[ambiguous] = True
        for connection, request_rows, all_rows, response_rows in zip(
            concerned.tolist(), request_index, all_index, response_index, strict=True
        ):
            position = np.full(len(requests) + 1, -1)
            position[request_rows] = np.arange(len(request_rows))
            anchor = Anchor(*self.anchors[connection].tolist())
            matcher = ConnectionMatcher(
                requests[request_rows],
                responses[response_rows],
                position[request_of_response[response_rows]],
                is_ambiguous[response_rows],
                anchor,
                _ends(requests, request_rows, all_rows),
                _of_rows(decodes, request_rows, response_rows),
            )
            request_of, response_of = matcher.pairs()
            pairs.append(np.stack([request_rows[request_of], response_rows[response_of]]))
        both = np.concatenate(pairs, axis=1)
        return both[0], both[1]


def _had_received(acknowledged: Int64, end: Int64) -> Bools:
    """Whether the broker had received the bytes before `end` when it sent a response, or may have:
    it is not known what the response acknowledges."""
    received: Bools = (acknowledged - end) & 0xFFFFFFFF < 1 << 31
    return received | (acknowledged < 0)


def _repeated(requests: Int64, responses: Int64, known_repeats: Int64) -> Int64:
    """Keys that occur more than once in a direction, and `known_repeats`; `requests` is sorted."""
    responses = np.sort(responses, kind="stable")
    twice = [each[1:][each[1:] == each[:-1]] for each in (requests, responses)]
    return np.unique(np.concatenate([*twice, known_repeats]))


def _of_rows(decodes: Decodes, requests: Int64, responses: Int64) -> Decodes:
    """`decodes` for the messages of one connection."""
    return lambda request, response: decodes(requests[request], responses[response])


def _ends(requests: Requests, rows: Int64, all_rows: Int64) -> Int64:
    """Sequence number after each of these requests, and after those that follow it and expect no
    response. `all_rows`: these and all others of the connection."""
    follower = np.append(all_rows.searchsorted(rows), len(all_rows))[1:]
    last = all_rows[follower - 1]
    return requests.end[np.where(requests.run[last] == requests.run[rows], last, rows)]


def _by_connection(connection: Int64, wanted: Int64, chosen: Bools) -> list[Int64]:
    """Indices of the chosen messages of each wanted connection; `wanted` is ascending."""
    index = np.flatnonzero(chosen & np.isin(connection, wanted))
    index = index[np.argsort(connection[index], kind="stable")]
    return np.split(index, np.searchsorted(connection[index], wanted[1:]))


def in_flight(
    connection: Int64, ordinal: Int64, time: Int64, answers: Int64, answered_before: Int64
) -> Int64:
    """Number of pending requests of the connection when each of n requests ends, including itself.

    `ordinal` counts the requests of a connection that expect a response, from 1. A broker responds
    in order, so the highest answered ordinal gives the number of pending requests.
    `answers`: connection, ordinal and time of the known responses, shape (3, k); `answered_before`:
    by connection, the highest ordinal answered earlier.
    """
    counts = np.empty(len(connection), np.int64)
    of, number, at = answers
    if _native.count_in_flight(connection, ordinal, time, of, number, at, answered_before, counts):
        return counts
    by_time = answers.take(ordered(of, at), axis=1)
    return in_flight(connection, ordinal, time, by_time, answered_before)
