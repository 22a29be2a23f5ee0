"""Which response answers which request, and how many requests wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.exchanges.matching import Matcher, in_flight, keys
from dissector.exchanges.repeated_ids import RESPONSE_WAIT, Bools, Decodes, Requests, Responses
from dissector.packets.block import Int64


@dataclass(frozen=True)
class Message:
    """One message of a connection; the others are before it."""

    key: int
    time: int
    received: int = -1
    """Bytes of the other stream that its sender had received."""
    lost: float = 0
    """Messages of its stream that are missing before it, in units of `SIZE`."""


SIZE = 10
"""Bytes of each message."""


def any_body(request: Int64, response: Int64) -> Bools:
    """All responses have a valid body."""
    return np.ones(len(request), np.bool_)


def pairs(
    requests: Sequence[Message], responses: Sequence[Message], matcher: Matcher | None = None,
    ordinals: Sequence[int] | None = None, decodes: Decodes = any_body,
) -> list[tuple[int, int]]:  # fmt: skip
    """Pairs among messages of several connections, whose first bytes are captured.

    A key is `connection << 32 | correlation id`. Nothing waits. `ordinals`: see `Requests`.
    """
    matcher = matcher or Matcher()
    columns = asked_and_came(requests, responses, matcher, ordinals)
    request, response = matcher.match(*columns, decodes)
    return list(zip(request.tolist(), response.tolist(), strict=True))


def asked_and_came(
    requests: Sequence[Message], responses: Sequence[Message], matcher: Matcher,
    ordinals: Sequence[int] | None = None, *, late: bool = True,
) -> tuple[Requests, Responses]:  # fmt: skip
    """The columns of these messages. `late`: the responses do not wait."""
    matcher.grow(4)
    asked, came = _columns(requests), _columns(responses)
    connection, correlation = asked["key"] >> 32, asked["key"] & 0xFFFFFFFF
    return Requests(
        asked["key"], connection, asked["run"], asked["received"], asked["time"], asked["size"],
        asked["rank"] if ordinals is None else np.array(ordinals), asked["begin"] + SIZE,
        matcher.repeats(connection, correlation),
    ), Responses(
        came["key"], came["key"] >> 32, came["run"], came["received"], came["time"],
        came["size"], came["rank"], came["begin"], np.full(len(responses), late),
    )  # fmt: skip


def _columns(messages: Sequence[Message]) -> dict[str, Int64]:
    count: dict[int, tuple[int, float, int]] = {}
    rows = []
    for each in messages:
        rank, place, run = count.get(each.key >> 32, (0, 0, 0))
        rank, place, run = rank + 1, place + each.lost, run + (each.lost > 0)
        rows.append((each.key, each.time, each.received, SIZE, rank, place * SIZE, run))
        count[each.key >> 32] = rank, place + 1, run
    table = np.array(rows, np.int64).reshape(-1, 7)
    names = ("key", "time", "received", "size", "rank", "begin", "run")
    return dict(zip(names, table.T, strict=True))


BOTH = np.ones(2, np.bool_)


def ints(*columns: list[int]) -> list[Int64]:
    return [np.array(each, np.int64) for each in columns]


def messages_of(*messages: tuple[float, ...]) -> list[Message]:
    return [Message(*each) for each in messages]


def test_by_key() -> None:
    assert pairs(messages_of((7, 1), (8, 2), (9, 3)), messages_of((8, 5), (7, 6))) == [
        (0, 1),
        (1, 0),
    ]


@pytest.mark.parametrize(
    ("repeated", "received", "expected"),
    [
        (1, 30, []), (1, 39, []), (1, 40, [(2, 2)]), (1, -1, [(2, 2)]),
        (0, 30, [(2, 2)]),  # some devices send old acknowledgement numbers
    ],
)  # fmt: skip
def test_behind_missing_requests_the_broker_had_received_the_request_of_a_response(
    repeated: int, received: int, expected: list[tuple[int, int]]
) -> None:
    # The controllers of old brokers send LeaderAndIsr and UpdateMetadata with the same ids.
    requests = [Message(1, 1), Message(2 - repeated, 2), Message(3, 5, lost=1)]
    responses = [Message(1, 2, 20), Message(2 - repeated, 3, 20), Message(3, 4, received)]
    assert pairs(requests, responses) == [(0, 0), (1, 1), *expected]


def test_sequence_numbers_wrap_between_a_request_and_its_response() -> None:
    matcher = Matcher()
    requests, responses = asked_and_came(
        [Message(1, 1, lost=1)], [Message(1, 2, received=5)], matcher
    )
    matcher.repeats_ids[0] = True
    for end, expected in (((1 << 32) - 5, [[0], [0]]), (6, [[], []])):
        pair = matcher.match(replace(requests, end=np.array([end])), responses, any_body)
        assert [each.tolist() for each in pair] == expected


def test_a_response_without_request_and_a_request_without_response() -> None:
    assert pairs(messages_of((1, 1)), messages_of((2, 2))) == []
    assert pairs(messages_of(), messages_of((2, 2))) == []
    assert pairs(messages_of((1, 1)), messages_of()) == []


def test_a_client_that_always_sends_the_same_id() -> None:
    assert pairs(messages_of((0, 1), (0, 3)), messages_of((0, 2), (0, 4))) == [(0, 0), (1, 1)]


def test_the_same_id_pipelined() -> None:
    assert pairs(messages_of((0, 1), (0, 2)), messages_of((0, 3), (0, 4))) == [(0, 0), (1, 1)]


def test_the_same_id_with_a_lost_response() -> None:
    # Without acknowledgement numbers, the response answers the latest request before it.
    assert pairs(messages_of((0, 1), (0, 3)), [Message(0, 4, lost=1)]) == [(1, 0)]
    assert pairs(messages_of((0, 1), (0, 5)), [Message(0, 4, lost=1)]) == [(0, 0)]


def test_the_same_id_with_a_lost_request() -> None:
    assert pairs([Message(0, 3, lost=1)], messages_of((0, 2), (0, 4))) == [(0, 1)]


def test_a_response_that_was_captured_before_its_request() -> None:
    # Clocks of two captures differ; an id that is there once needs no clock.
    assert pairs(messages_of((5, 10)), messages_of((5, 9))) == [(0, 0)]


def test_the_order_of_the_streams_decides_where_no_byte_is_missing() -> None:
    for skew in (-50, 50):
        asked = messages_of(*((0, time + skew) for time in range(100)))
        assert pairs(asked, messages_of(*((0, time) for time in range(60)))) == [
            (index, index) for index in range(60)
        ]


def test_the_order_of_the_streams_goes_on_in_the_next_block() -> None:
    matcher = Matcher()
    assert pairs(messages_of((0, 1), (0, 2)), messages_of((0, 9)), matcher) == [(0, 0)]
    # The second request and a third, the second response: numbers go on.
    matcher.grow(4)
    request, response = matcher.match(
        Requests(
            *ints([0, 0], [0, 0], [0, 0], [-1, -1], [2, 3], [SIZE] * 2, [2, 3], [20, 30]), BOTH
        ),
        Responses(*ints([0], [0], [0], [-1], [1], [SIZE], [2], [10]), BOTH[:1]),
        any_body,
    )
    assert (request.tolist(), response.tolist()) == ([0], [0])


def test_a_response_that_waits_for_its_request_matches_no_other() -> None:
    # A response before it is lost; it acknowledges 30 bytes: the third request, not yet captured.
    matcher = Matcher()
    matcher.grow(1)
    nobody = np.zeros(1, np.bool_)
    asked = Requests(
        *ints([0, 0], [0, 0], [0, 0], [-1, -1], [1, 2], [SIZE] * 2, [1, 2], [10, 20]), BOTH
    )
    early = Responses(*ints([0], [0], [1], [30], [9], [SIZE], [2], [20]), nobody)
    assert matcher.match(asked, early, any_body)[0].tolist() == []
    requests = Requests(
        *ints([0] * 3, [0] * 3, [0] * 3, [-1] * 3, [1, 2, 3], [SIZE] * 3, [1, 2, 3], [10, 20, 30]),
        np.ones(3, np.bool_),
    )
    late = replace(early, is_late=~nobody)
    assert matcher.match(requests, early, any_body)[0].tolist() == []  # more responses may show it
    assert matcher.match(requests, late, any_body)[0].tolist() == [2]


def test_acknowledgement_numbers_decide_after_missing_bytes() -> None:
    asked = messages_of((0, 1), (0, 2), (0, 3))
    for received, answered in ((10, 0), (20, 1), (30, 2)):
        came = [Message(0, 0, received, lost=1)]
        assert pairs(asked, came) == [(answered, 0)]


def test_a_response_that_acknowledges_a_request_without_response() -> None:
    """The last request has acks=0. The response behind missing bytes does not wait for another."""
    requests = messages_of((0, 1), (0, 2), (0, 3))
    response = Message(0, 4, received=3 * SIZE, lost=1)
    assert pairs(requests, [response], ordinals=[1, 2, 0]) == [(1, 0)]
    assert pairs(requests[:2], [response]) == []  # its request is not captured yet


def test_a_request_without_response_before_missing_requests() -> None:
    requests = [*messages_of((0, 1), (0, 2)), Message(0, 5, lost=1)]
    response = Message(0, 4, received=2 * SIZE, lost=1)
    assert pairs(requests, [response], ordinals=[1, 0, 2]) == [(0, 0)]
    response = Message(0, 4, received=3 * SIZE, lost=1)  # the missing request, maybe
    assert pairs(requests, [response], ordinals=[1, 0, 2]) == []


def test_negative_ids_do_not_repeat_those_before_them() -> None:
    matcher = Matcher()
    matcher.grow(1)
    ids = np.array([2**31 - 9, 2**31 - 1, -(2**31), -(2**31) + 1, -1, 0])
    repeats = [bool(matcher.repeats(np.zeros(1, np.int64), ids[[index]])) for index in range(6)]
    assert repeats == [False] * 5 + [True]


def test_a_request_whose_sender_has_the_response_did_not_cause_it() -> None:
    # The second request acknowledges 20 bytes: the response that begins at 10 is among them.
    asked = [Message(0, 1), Message(0, 2, received=20)]
    assert pairs(asked, [Message(0, 9, lost=1)]) == [(0, 0)]


def test_a_response_to_a_lost_request_matches_no_other() -> None:
    # It acknowledges 20 bytes, the second ten of which are not in the capture.
    asked = [Message(0, 1), Message(0, 3, lost=1)]
    assert pairs(asked, [Message(0, 9, received=20, lost=1)]) == []


def test_responses_of_one_run_match_requests_of_one_run() -> None:
    # All requests were sent at once. Of five responses the first is lost, and the last shows it.
    asked = messages_of(*((0, 1) for _ in range(5)))
    came = [Message(0, 9, 50, lost=int(index == 0)) for index in range(4)]
    assert pairs(asked, came) == [(1, 0), (2, 1), (3, 2), (4, 3)]


@pytest.mark.parametrize("lost", [1, 500])
def test_a_repeated_id_before_the_next_match(lost: int) -> None:
    """No byte is missing between the third and the fourth exchange, so the fourth decides."""
    asked = [Message(7, 1), Message(9, 3), Message(7, 5, lost=lost), Message(8, 7)]
    came = messages_of((7, 2), (9, 4), (7, 6), (8, 8))
    assert pairs(asked, came) == [(index, index) for index in range(4)]
    late = replace(came[3], time=came[2].time + RESPONSE_WAIT + 1)
    assert (2, 2) not in pairs(asked, [*came[:3], late])  # in small blocks, it does not wait


def test_bodies_decide_among_pipelined_requests() -> None:
    """All requests arrive before the first response. The second and third response are lost."""
    asked = messages_of(*((0, 1) for _ in range(8)))
    came = [Message(0, 9, 80), *(Message(0, 9, 80, lost=2 * (index == 0)) for index in range(4))]
    truth = [(0, 0), (3, 1), (4, 2), (5, 3), (6, 4)]
    kinds = [0, 1, 0, 0, 1, 1, 0, 1]  # APIs of the requests
    answered = {response: kinds[request] for request, response in truth}

    def decodes(request: Int64, response: Int64) -> Bools:
        pairs = zip(request.tolist(), response.tolist(), strict=True)
        return np.array([kinds[index] == answered[number] for index, number in pairs], np.bool_)

    assert pairs(asked, came, decodes=decodes) == truth


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_missing_bytes_show_how_many_responses_are_lost(lost: int) -> None:
    """All requests arrive before the first response, and no body decides."""
    asked = messages_of(*((0, 1) for _ in range(9)))
    came = [Message(0, 9, 90), *(Message(0, 9, 90, lost=lost * (index == 0)) for index in range(4))]
    after = [(index + lost, index) for index in range(1, 5)]
    assert pairs(asked, came) == [(0, 0), *after]


def test_a_response_to_one_of_several_lost_requests_matches_no_other() -> None:
    """Of eight pipelined requests the third to fifth are lost, but no response."""
    asked = messages_of(*((0, 1) for _ in range(2))) + [
        Message(0, 1, lost=3 * (index == 0)) for index in range(3)
    ]
    came = [Message(0, 9, 80) for _ in range(8)]
    assert pairs(asked, came) == [(0, 0), (1, 1), (2, 5), (3, 6), (4, 7)]


def test_a_lost_request_that_is_larger_than_the_others() -> None:
    """By the number of missing bytes, two requests may be lost. The bodies show that it is one."""
    asked = messages_of((0, 1, 0), (0, 5, 20, 1.6), (0, 7, 30), (0, 9, 40))
    came = messages_of((0, 2, 10), (0, 4, 26), (0, 6, 36), (0, 8, 46), (0, 10, 56))
    kinds, answered = np.array([0, 1, 0, 1]), np.array([0, 2, 1, 0, 1])

    def decodes(request: Int64, response: Int64) -> Bools:
        return kinds[request] == answered[response]

    assert pairs(asked, came, decodes=decodes) == [(0, 0), (1, 2), (2, 3), (3, 4)]


@pytest.mark.parametrize("skipped", [0.5, 1, 2.5])
def test_the_rest_of_a_request_with_a_damaged_size(skipped: float) -> None:
    """The second request was taken for a shorter one, and the bytes behind it were skipped."""
    asked = messages_of((1, 1), (2, 3), (3, 5, -1, skipped), (3, 7), (4, 9), (4, 11))
    came = messages_of((1, 2), (2, 4), (3, 6), (3, 8), (4, 10), (4, 12))
    assert pairs(asked, came) == [(index, index) for index in range(6)]


def test_a_lost_request_with_the_id_of_the_next() -> None:
    asked = messages_of((1, 1), (2, 3), (3, 7, -1, 1), (4, 9), (4, 11))
    came = messages_of((1, 2), (2, 4), (3, 6), (3, 8), (4, 10), (4, 12))
    assert pairs(asked, came) == [(0, 0), (1, 1), (2, 3), (3, 4), (4, 5)]


def test_bytes_of_a_response_that_look_like_one() -> None:
    """The start of the second response is lost. Its other bytes contain a frame without a body."""
    asked = messages_of((0, 1, 0), (0, 3, 10), (0, 6, 30), (0, 8, 40))
    came = [Message(0, 2, 10), Message(0, 4, 20, lost=1), Message(0, 7, 30), Message(0, 9, 40)]

    def decodes(request: Int64, response: Int64) -> Bools:
        return response != 1

    assert pairs(asked, came, decodes=decodes) == [(0, 0), (2, 2), (3, 3)]


def test_an_early_response_matches_no_request_of_a_later_block() -> None:
    """Its request is lost, and a later response matched. Then one request is unanswered."""
    matcher = Matcher()
    asked = [Message(0, 1), Message(0, 2, lost=1), Message(0, 3)]
    came = [Message(0, 4, 10), Message(0, 5, 20), Message(0, 6, 30)]
    requests, responses = asked_and_came(asked, came, matcher, late=False)
    pair = matcher.match(requests, responses, any_body)
    assert [each.tolist() for each in pair] == [[0, 1], [0, 2]]
    last = np.array([2])
    pair = matcher.match(requests[last], responses[np.array([1])], any_body)
    assert pair[0].tolist() == []


def test_sequence_numbers_wrap() -> None:
    top = 1 << 32
    asked = Requests(
        *ints([0] * 2, [0] * 2, [1, 2], [-1] * 2, [1, 2], [SIZE] * 2, [1, 2], [top - 4, 6]), BOTH
    )
    came = Responses(
        *ints([0] * 2, [0] * 2, [1, 2], [top - 4, 6], [0, 0], [SIZE] * 2, [1, 2], [5, 9]), BOTH
    )
    matcher = Matcher()
    matcher.grow(1)
    request, response = matcher.match(asked, came, any_body)
    assert (request.tolist(), response.tolist()) == ([0, 1], [0, 1])


def test_keys_differ_by_connection_and_for_negative_ids() -> None:
    actual = keys(np.array([0, 1, 1]), np.array([-1, -1, 1], np.int32))
    assert len(set(actual.tolist())) == 3


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=40), st.data())
def test_responses_in_order_match_their_requests(
    sent: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Requests and responses of a connection are in order, with any ids, and complete.

    The clock of the responses is another one.
    """
    requests, responses, truth = [], [], []
    time, skew = 0, data.draw(st.integers(-20, 20))
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
                responses.append((requests[index][0], time + skew))
    for indices in waiting.values():
        for index in indices:
            time += 1
            truth.append((index, len(responses)))
            responses.append((requests[index][0], time + skew))
    assert pairs(messages_of(*requests), messages_of(*responses)) == sorted(truth)


def test_in_flight_counts_pending_requests() -> None:
    # Connection 0 sends at 1, 2 and 5; the first two are answered at 3 and 4.
    waits = in_flight(
        connection=np.array([0, 0, 0]),
        ordinal=np.array([1, 2, 3]),
        time=np.array([1, 2, 5]),
        answers=np.array([[0, 0], [1, 2], [3, 4]]),
        answered_before=np.zeros(1, np.int64),
    )
    assert waits.tolist() == [1, 2, 1]


def test_in_flight_skips_a_lost_response_after_the_next_response() -> None:
    waits = in_flight(
        connection=np.array([1, 1]),
        ordinal=np.array([3, 4]),
        time=np.array([10, 20]),
        answers=np.array([[1], [3], [15]]),
        answered_before=np.array([0, 1]),
    )
    assert waits.tolist() == [2, 1]


def test_in_flight_with_distant_times() -> None:
    near, far = np.array([10, 20, 30]), np.array([-(2**62), 0, 2**62])
    for time in (near, far):
        waits = in_flight(
            np.zeros(3, np.int64), np.array([1, 2, 3]), time, np.array([[0], [1], [time[1]]]),
            np.zeros(1, np.int64),
        )  # fmt: skip
        assert waits.tolist() == [1, 1, 2]  # what is answered at the time of a request is answered


EVENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(-5, 5)), max_size=30)
"""Connection, ordinal and time of messages, in any order."""


@given(EVENTS, EVENTS, st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_in_flight_for_messages_in_any_order(
    requests: list[tuple[int, int, int]], answered: list[tuple[int, int, int]], before: list[int]
) -> None:
    sent, answers = (
        np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, 3).T)
        for rows in (requests, answered)
    )
    waits = in_flight(*sent, answers, np.array(before, np.int64))
    for wait, (connection, ordinal, time) in zip(waits.tolist(), requests, strict=True):
        of = [number for row, number, at in answered if row == connection and at <= time]
        assert wait == max(ordinal - max([before[connection], *of]), 1)
