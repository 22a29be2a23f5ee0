"""Matching: which response answers which request.

A broker answers the requests of one connection in order, and repeats each request's correlation id.
So a join on connection and correlation id is all that most captures need. Where an id comes more
than once among what is at hand (a client that always sends 0, an id that wrapped), order and time
settle it: as many responses as requests are paired in order; otherwise a response takes the latest
request that had been sent by then and that comes after the one its predecessor took, because a
request that was passed over has lost its response.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dissector.conversation.ordering import ordered
from dissector.packets.block import Int64

NO_KEY = np.iinfo(np.int64).min
"""Of a frame that is too short for a correlation id: no request has it."""


def keys(connection: NDArray[np.integer], correlation: NDArray[np.integer]) -> Int64:
    """Connection and correlation id as one number."""
    low = correlation.astype(np.int64) & 0xFFFFFFFF
    return (connection.astype(np.int64) << 32) | low


def match(
    request_key: Int64, request_time: Int64, response_key: Int64, response_time: Int64
) -> tuple[Int64, Int64]:
    """Pairs of indices: requests and their responses, of equal length, in order of request.

    Requests and responses stand in the order of their streams; times are in ns, the end of each
    request and the start of each response.
    """
    by_request = np.argsort(request_key, kind="stable")  # in order already, for long stretches
    by_response = np.argsort(response_key, kind="stable")
    requests, responses = request_key[by_request], response_key[by_response]
    first = np.searchsorted(requests, responses, side="left")
    found = first < len(requests)
    found[found] = requests[first[found]] == responses[found]
    once = np.ones(len(responses), np.bool_)
    repeated = requests[1:][requests[1:] == requests[:-1]]
    again = responses[1:][responses[1:] == responses[:-1]]
    several = np.union1d(repeated, again)
    if len(several):
        once = ~np.isin(responses, several)
    plain = found & once
    request = [by_request[first[plain]]]
    response = [by_response[plain]]
    for key in several[np.isin(several, responses[found & ~once])]:
        low, high = np.searchsorted(requests, [key, key + 1])
        sent = by_request[low:high]
        low, high = np.searchsorted(responses, [key, key + 1])
        came = by_response[low:high]
        pairs = _in_order(request_time[sent], response_time[came])
        request.append(sent[pairs[0]])
        response.append(came[pairs[1]])
    one, other = np.concatenate(request), np.concatenate(response)
    order = np.argsort(one, kind="stable")
    return one[order], other[order]


def _in_order(sent: Int64, came: Int64) -> tuple[Int64, Int64]:
    """Pairs among the requests and responses of one key, by their times."""
    if len(sent) == len(came) and (sent <= came).all():
        both = np.arange(len(sent))
        return both, both
    taken: list[int] = []
    answering: list[int] = []
    after = 0
    for index, time in enumerate(came):
        candidates = np.flatnonzero(sent[after:] <= time)
        if len(candidates):
            after += int(candidates[-1]) + 1
            taken.append(after - 1)
            answering.append(index)
    return np.array(taken, np.int64), np.array(answering, np.int64)


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
