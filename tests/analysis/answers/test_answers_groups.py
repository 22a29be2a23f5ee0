"""Rebalances are those of the coordinator's log: their times, triggers and members."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

import analysis
from tests.analysis.answering import capture, made
from tools.record.kafka.truth import read

MS = 1_000_000
LOG_MS = 100
"""A request is on the wire before the coordinator comes to it, and the log has whole ms."""
HEARTBEAT_MS = 3000
LOADING_MS = 1000
"""A coordinator that has just begun comes to a request later, and answers later."""

PREPARING = re.compile(
    r"Preparing to rebalance group (?P<group>\S+) .* generation (?P<old>\d+) "
    r"\(reason: (?P<why>.*)\)"
)
STABLE = re.compile(r"Stabilized group (?P<group>\w+) generation (?P<new>\d+) with (?P<count>\d+)")
EMPTY = re.compile(r"Group (?P<group>\S+) with generation (?P<new>\d+) is now empty")
ASSIGNED = re.compile(
    r"Assignment received .* for group (?P<group>\w+) for generation (?P<new>\d+)"
)
MOVED = re.compile(r"\[GroupId (?P<group>\w+)\] Member (?P<member>\S+) (?P<what>joins|left)")
BUMPED = re.compile(r"\[GroupId (?P<group>\w+)\] Bumped group epoch to (?P<new>\d+)")
NEW_EPOCH = re.compile(r"(?:group epoch to|target assignment for epoch) (?P<new>\d+)")
NEWER = re.compile(
    r"[Mm]ember(?:Id)? (?P<member>[\w-]{22})\]?(?: Member(?:'s)?)? (?P<what>joins|left|fenced|"
    r"new assignment state: epoch=(?P<epoch>\d+), previousEpoch=(?P<previous>\d+))"
)
WHAT = {"joins": "joined", "left": "left", "fenced": "timed out"}
WHY = {"Adding new member": "joined", "explicit `LeaveGroup`": "left", "expiration": "timed out"}


def rebalances(name: str, *tables: str) -> pd.DataFrame:
    return analysis.groups(capture(name, ("memberships", *tables)))


def coordinator_log(name: str, *patterns: re.Pattern[str]) -> Iterator[tuple[int, re.Match[str]]]:
    """The time and the match of each matching line in the log of the coordinators."""
    for row in read(name):
        for pattern in patterns:
            if row["source"] == "coordinator" and (match := pattern.search(row["message"])):
                yield row["time"], match


def ms(span: Any, column: str, since: int) -> float:
    """From a time of the log to one of ours."""
    return (span[column].value - since) / MS


def test_a_classic_group() -> None:
    spans = rebalances("kafka-4-followed").query("group_id == 'workers'").set_index("generation")
    assert len(spans) == 5
    for time, match in coordinator_log("kafka-4-followed", PREPARING):
        if int(match["old"]) == 5:
            continue  # the last member has left: no rebalance follows
        span = spans.loc[int(match["old"]) + 1]
        expected = next(name for words, name in WHY.items() if words in match["why"])
        assert span["trigger"] == expected
        assert span["trigger_member_id"] in match["why"]
        if expected == "timed out":  # the others learn of it by their next heartbeat
            assert 0 <= ms(span, "start_time", time) <= HEARTBEAT_MS
        else:
            assert -LOG_MS <= ms(span, "start_time", time) <= 1
    for _, match in coordinator_log("kafka-4-followed", STABLE):
        assert spans.loc[int(match["new"]), "member_count"] == int(match["count"])
    for time, match in coordinator_log("kafka-4-followed", ASSIGNED):
        assert abs(ms(spans.loc[int(match["new"])], "end_time", time)) <= LOG_MS
    assert spans["completed"].all()


def test_groups_of_kafka_connect_that_are_empty_for_a_time() -> None:
    """A task that fails leaves its group empty; it may fail before it has an assignment."""
    spans = rebalances("kafka-4-connect").set_index(["group_id", "generation"])
    empty = set()
    for time, match in coordinator_log("kafka-4-connect", PREPARING, EMPTY):
        if match.re is EMPTY:
            empty.add((match["group"], int(match["new"])))
            continue
        generation = (match["group"], int(match["old"]) + 1)
        if generation in spans.index:
            span = spans.loc[generation]
            reasons = [name for words, name in WHY.items() if words in match["why"]]
            assert [span["trigger"]] == (reasons or ["rejoined"])
            assert span["trigger_member_id"] in match["why"]
            assert -LOADING_MS <= ms(span, "start_time", time) <= 1
    assert len(empty) > 2
    assert not empty & {*spans.index}


def test_a_group_with_epochs() -> None:
    spans = rebalances("kafka-4-followed").query("group_id == 'modern'").set_index("generation")
    bumps = {int(match["new"]): time for time, match in coordinator_log("kafka-4-followed", BUMPED)}
    assert set(spans.index) == set(bumps) - {max(bumps)}  # the last one has no members
    moves = [match for _, match in coordinator_log("kafka-4-followed", MOVED)]
    for (epoch, span), move in zip(spans.iterrows(), moves, strict=False):
        assert span["trigger"] == {"joins": "joined", "left": "left"}[move["what"]]
        assert span["trigger_member_id"] == move["member"]
        assert -LOG_MS <= ms(span, "start_time", bumps[epoch]) <= 1
        assert span["end_time"].value > bumps[epoch]
    assert spans["member_count"].tolist() == [1, 2, 1]


def test_the_cost_is_what_the_members_log() -> None:
    """From the last record that a member received until the next owner had its assignment."""
    costs = analysis.groups(
        capture("kafka-4-followed", ("memberships", "partitions", "exchanges")), show="cost"
    )
    log = pd.DataFrame(
        row for row in read("kafka-4-followed")
        if row["source"] == "client"
    )  # fmt: skip
    members = {"workers": ["a", "b", "c"], "modern": ["d", "e"]}
    for trigger, group, tolerance in (("timed out", "workers", 600), ("left", "modern", 250)):
        chosen = costs[(costs["trigger"] == trigger) & (costs["group_id"] == group)]
        (cost,) = chosen.to_dict("records")
        mine = log[log["client_id"].isin(members[group])]
        since = cost["start_time"].value
        resumed = mine.query(f"event == 'assigned' and time > {since}")["time"].min()
        received = mine.query(f"event == 'received' and time < {resumed}")
        last = received.groupby("partition")["time"].max()
        last = last if trigger == "timed out" else last[[2]]  # the partition that moved
        assert cost["partitions"] == len(last)
        assert cost["unread_ms"] == pytest.approx((resumed - last.min()) / MS, abs=tolerance)
        produced = log.query(f"event == 'produced' and time < {resumed}")
        missed = (produced["time"] > produced["partition"].map(last)).sum()
        # The last Fetch of a member that pauses or dies brings records that it does not log.
        assert cost["lag_growth"] == pytest.approx(missed, abs=5)


def test_members_that_join_a_cooperative_group_interrupt_nothing() -> None:
    name, needed = "kafka-4-group-cooperative", ("memberships", "partitions", "exchanges")
    costs = analysis.groups(capture(name, needed), show="cost")
    assert len(costs) > 3
    assert set(costs["partitions"]) == {0}


@pytest.mark.parametrize("kind", ["eager", "consumer"])
def test_members_that_come_one_by_one_and_one_that_is_killed(kind: str) -> None:
    """As the scenario does: m1, m2, m3 come, m2 is killed, m1 leaves."""
    spans = rebalances(f"kafka-4-group-{kind}")
    assert spans["trigger"].tolist() == ["joined", "joined", "joined", "timed out", "left"]
    assert spans["trigger_client_id"].tolist() == ["m1", "m2", "m3", "m2", "m1"]
    assert spans["member_count"].tolist() == [1, 2, 3, 2, 1]


def test_a_cooperative_group_joins_again_to_hand_over() -> None:
    spans = rebalances("kafka-4-group-cooperative")
    again = spans[spans["trigger"] == "rejoined"]
    assert again["reason"].tolist() == ["need to revoke partitions and re-join"]


def test_a_static_member_that_comes_back_is_no_rebalance() -> None:
    spans = rebalances("kafka-4-group-static").query("group_type == 'classic'")
    assert spans["trigger_client_id"].tolist() == ["first"]


@pytest.mark.parametrize("kind", ["share", "streams"])
def test_a_group_of_a_newer_kind(kind: str) -> None:
    """The epochs: cause, members and times."""
    spans = rebalances(f"kafka-4-group-{kind}")
    expected = epochs(f"kafka-4-group-{kind}")
    assert set(spans["group_type"]) == {kind}
    assert spans["generation"].tolist() == [*expected]
    for (_, span), epoch in zip(spans.iterrows(), expected.values(), strict=True):
        trigger, member = epoch["cause"]
        assert span["trigger"] == trigger
        assert span["trigger_member_id"] == member or trigger == "changed"
        assert span["member_count"] == epoch["members"]
        # Members are answered when the group's own topic has what the coordinator decided.
        assert -1 <= ms(span, "end_time", epoch["end"]) <= LOADING_MS
        if span["trigger"] == "timed out":  # the others learn of it by their next heartbeat
            assert 0 <= ms(span, "start_time", epoch["begin"]) <= HEARTBEAT_MS
        else:
            assert -LOADING_MS <= ms(span, "start_time", epoch["begin"]) <= 1
    assert spans["trigger"].value_counts()[["joined", "timed out"]].tolist() == [2, 1]
    assert spans["completed"].all()


def epochs(name: str) -> dict[int, dict[str, Any]]:
    """The cause, times and member count of each epoch in the log of the coordinator."""
    members: set[str] = set()
    by_epoch: dict[int, dict[str, Any]] = {}
    cause: tuple[str, str] | None = None
    begin = current = 0
    for time, log in coordinator_log(name, NEW_EPOCH, NEWER):
        if log.re is NEW_EPOCH:
            current = int(log["new"])
        elif log["epoch"] is None:
            (members.add if log["what"] == "joins" else members.remove)(log["member"])
            if cause is None:
                begin, cause = time, (WHAT[log["what"]], log["member"])
        elif log["epoch"] != log["previous"] and (epoch := int(log["epoch"])) > 0:
            if epoch not in by_epoch:
                known = {"begin": begin, "cause": cause} if cause else {"begin": time}
                by_epoch[epoch] = {"cause": ("changed", ""), **known}
                cause = None
            elif epoch < current:
                continue  # a new member first gets the current epoch
            by_epoch[epoch] |= {"end": time, "members": len(members)}
    return by_epoch


DONE = {"error": "NONE", "error_code": 0}
JOINS = {"classic": "JoinGroup", "consumer": "ConsumerGroupHeartbeat"}
LEAVES = JOINS | {"classic": "LeaveGroup"}


def last_rebalance(kind: str, *steps: dict[str, Any]) -> Any:
    """The last rebalance of a group whose members send these requests, one in a microsecond."""
    rows = [
        {"time": 1000 * n, "response_time": 1000 * n + 1, "group_id": "g", "group_type": kind}
        | DONE | step | {"client_id": step["member_id"]}
        for n, step in enumerate(steps, 1)
    ]  # fmt: skip
    return analysis.groups(made(memberships=rows)).iloc[-1]


def joined(kind: str, member: str, generation: int, since: int = 0) -> dict[str, Any]:
    row = {"api": JOINS[kind], "member_id": member, "generation": generation}
    return row | {"request_generation": since}


def left(kind: str, member: str) -> dict[str, Any]:
    return {"api": LEAVES[kind], "member_id": member, "request_generation": -1}


@pytest.mark.parametrize("kind", ["classic", "consumer"])
@pytest.mark.parametrize("missing", [0, 1, 3, 4], ids=lambda count: f"without {count} requests")
def test_a_group_without_members_does_not_rebalance(kind: str, missing: int) -> None:
    """Both members leave, and a third one comes much later, as after a deployment. The capture may
    begin when the members had joined, or when one had left."""
    steps = [joined(kind, "a", 1), joined(kind, "b", 2), joined(kind, "a", 2, since=1)]
    steps += [left(kind, "a"), left(kind, "b"), joined(kind, "c", 5)]
    last = last_rebalance(kind, *steps[missing:])
    assert (last["trigger"], last["trigger_client_id"]) == ("joined", "c")
    assert last["start_time"].value == 1000 * (6 - missing)


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_member_that_stays_has_to_rebalance(kind: str) -> None:
    """The capture begins after the joins of two members; one leaves, and a third one comes."""
    notice = {"api": "Heartbeat", "error": "REBALANCE_IN_PROGRESS", "error_code": 27}
    notices = [notice | {"member_id": "b"}] if kind == "classic" else []
    after = [joined(kind, "c", 3), joined(kind, "b", 3, since=2)]
    last = last_rebalance(kind, left(kind, "a"), *notices, *after)
    assert (last["trigger"], last["trigger_client_id"]) == ("left", "a")
    assert last["start_time"].value == 1000


def test_a_dead_member_is_a_member_until_its_session_ends() -> None:
    """Member c is killed, b leaves before the session of c ends, and its end causes an epoch."""
    steps = [joined("consumer", member, epoch) for epoch, member in enumerate("abc", 1)]
    steps += [joined("consumer", member, 3, since=epoch) for epoch, member in enumerate("ab", 1)]
    steps += [left("consumer", "b"), joined("consumer", "a", 4, since=3)]
    last = last_rebalance("consumer", *steps)
    assert (last["trigger"], last["trigger_client_id"]) == ("left", "b")
    assert (last["member_count"], last["completed"]) == (2, True)
    last = last_rebalance("consumer", *steps, joined("consumer", "a", 5, since=4))
    assert (last["trigger"], last["trigger_client_id"]) == ("timed out", "c")
    assert (last["member_count"], last["completed"]) == (1, True)


def test_a_member_that_leaves_while_it_waits_for_the_others() -> None:
    """The coordinator reads its LeaveGroup after the response to its JoinGroup, when the other
    member has joined, too."""
    rows = [
        DONE | {"group_id": "g", "group_type": "classic", "api": api, "member_id": member,
                "client_id": member, "generation": generation, "time": start, "response_time": end}
        for api, member, generation, start, end in (
            ("JoinGroup", "stays", 1, 0, 1), ("JoinGroup", "leaves", 2, 10, 30),
            ("LeaveGroup", "leaves", None, 20, 31), ("JoinGroup", "stays", 2, 29, 30),
            ("JoinGroup", "stays", 3, 40, 41),
        )
    ]  # fmt: skip
    notice = {"api": "Heartbeat", "error": "REBALANCE_IN_PROGRESS", "error_code": 27}
    rows.append(rows[0] | notice | {"time": 33, "response_time": 34, "generation": None})
    spans = analysis.groups(made(memberships=rows)).to_dict("records")
    assert [(each["trigger"], each["start_time"].value) for each in spans[1:]] == [
        ("joined", 10), ("left", 30),
    ]  # fmt: skip
    assert spans[-1]["trigger_client_id"] == "leaves"


def test_a_join_that_the_capture_does_not_see_answered() -> None:
    row = {"time": 5, "api": "JoinGroup", "group_id": "g", "group_type": "classic"}
    (span,) = analysis.groups(made(memberships=[row])).to_dict("records")
    assert (span["group_id"], span["completed"]) == ("g", False)
    assert span["end_time"] is pd.NaT


def test_a_request_without_a_group() -> None:
    assert analysis.groups(made(memberships=[{"time": 1, "api": "JoinGroup"}])).empty
