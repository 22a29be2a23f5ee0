"""Which response answers which request, and how many requests wait."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dissector.conversation.matching import in_flight, keys, match


def pairs(
    requests: list[tuple[int, int]], responses: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Requests and responses as (key, time)."""
    sent = np.array(requests, np.int64).reshape(-1, 2)
    came = np.array(responses, np.int64).reshape(-1, 2)
    one, other = match(sent[:, 0], sent[:, 1], came[:, 0], came[:, 1])
    return list(zip(one.tolist(), other.tolist(), strict=True))


def test_by_key() -> None:
    assert pairs([(7, 1), (8, 2), (9, 3)], [(8, 5), (7, 6)]) == [(0, 1), (1, 0)]


def test_a_response_without_request_and_a_request_without_response() -> None:
    assert pairs([(1, 1)], [(2, 2)]) == []
    assert pairs([], [(2, 2)]) == []
    assert pairs([(1, 1)], []) == []


def test_a_client_that_always_sends_the_same_id() -> None:
    assert pairs([(0, 1), (0, 3)], [(0, 2), (0, 4)]) == [(0, 0), (1, 1)]


def test_the_same_id_pipelined() -> None:
    assert pairs([(0, 1), (0, 2)], [(0, 3), (0, 4)]) == [(0, 0), (1, 1)]


def test_the_same_id_with_a_lost_response() -> None:
    # The first response is lost: what comes after the second request answers the second.
    assert pairs([(0, 1), (0, 3)], [(0, 4)]) == [(1, 0)]


def test_the_same_id_with_a_lost_request() -> None:
    assert pairs([(0, 3)], [(0, 2), (0, 4)]) == [(0, 1)]


def test_an_answer_that_was_captured_before_its_question() -> None:
    # Clocks of two captures differ; an id that is there once needs no clock.
    assert pairs([(5, 10)], [(5, 9)]) == [(0, 0)]


def test_keys_tell_connections_and_negative_ids_apart() -> None:
    found = keys(np.array([0, 1, 1]), np.array([-1, -1, 1], np.int32))
    assert len(set(found.tolist())) == 3


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=40), st.data())
def test_answers_in_order_find_their_requests(
    sent: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Each connection asks and is answered in order, whatever its ids; nothing is lost."""
    requests, responses, truth = [], [], []
    time = 0
    waiting: dict[int, list[int]] = {}
    for connection, correlation in sent:
        time += 1
        key = connection << 32 | correlation
        waiting.setdefault(connection, []).append(len(requests))
        requests.append((key, time))
        if data.draw(st.booleans()):
            for index in waiting.pop(connection):
                time += 1
                truth.append((index, len(responses)))
                responses.append((requests[index][0], time))
    for indices in waiting.values():
        for index in indices:
            time += 1
            truth.append((index, len(responses)))
            responses.append((requests[index][0], time))
    assert pairs(requests, responses) == sorted(truth)


def test_in_flight_counts_those_that_wait() -> None:
    # Connection 0 sends at 1, 2 and 5; the first two are answered at 3 and 4.
    waits = in_flight(
        connection=np.array([0, 0, 0]),
        ordinal=np.array([1, 2, 3]),
        time=np.array([1, 2, 5]),
        answered_connection=np.array([0, 0]),
        answered_ordinal=np.array([1, 2]),
        answered_time=np.array([3, 4]),
        answered_before=np.zeros(1, np.int64),
    )
    assert waits.tolist() == [1, 2, 1]


def test_in_flight_forgets_a_lost_response_with_the_next_answer() -> None:
    waits = in_flight(
        connection=np.array([1, 1]),
        ordinal=np.array([3, 4]),
        time=np.array([10, 20]),
        answered_connection=np.array([1]),
        answered_ordinal=np.array([3]),
        answered_time=np.array([15]),
        answered_before=np.array([0, 1]),
    )
    assert waits.tolist() == [2, 1]


def test_in_flight_does_not_care_how_far_apart_times_are() -> None:
    near, far = np.array([10, 20, 30]), np.array([-(2**62), 0, 2**62])
    for time in (near, far):
        waits = in_flight(
            np.zeros(3, np.int64), np.array([1, 2, 3]), time,
            np.zeros(1, np.int64), np.array([1]), time[1:2], np.zeros(1, np.int64),
        )  # fmt: skip
        assert waits.tolist() == [1, 1, 2]  # what is answered at the time of a request is answered
