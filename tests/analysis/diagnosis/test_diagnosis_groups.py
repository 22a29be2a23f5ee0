"""Rules about groups, `rebalances` and `growing_lag`, and made rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of, rules
from tests.analysis.made_rows import (
    MS,
    SECOND,
    START,
    batch,
    connection,
    error,
    exchange,
    exchange_at,
    fetched,
)


@pytest.mark.parametrize("reason", ["consumer poll timeout has expired.", "the consumer is closed"])
def test_one_member_that_did_not_poll_in_time(reason: str) -> None:
    """The reason is that of Kafka's class ConsumerCoordinator (KIP-800)."""
    group = {"group_id": "g", "group_type": "classic", "client_id": "c"}
    done = group | {"error_code": 0, "error": "NONE", "response_time": START + SECOND}
    left = done | {"api": "LeaveGroup", "time": START, "member_id": "m", "reason": reason}
    joined = done | {"api": "JoinGroup", "time": START + 1, "member_id": "n", "generation": 2}
    later = done | {"api": "Heartbeat", "time": START, "response_time": START + 9 * SECOND}
    for rows, severity in (([left, joined], "critical"), ([left, joined, later], "warning")):
        findings = findings_of("rebalances", made(exchanges=[exchange()], memberships=rows))
        assert [each.setting for each in findings] == ["max.poll.interval.ms"] * ("poll" in reason)
        assert [each.severity for each in findings] == [severity] * ("poll" in reason)


@pytest.mark.parametrize(
    ("protocol", "span", "setting"),
    [("sessioned", 60, []), ("cooperative-sticky", 60, []), ("range", 60, [""]),
     ("sessioned", 6, [""])],
    ids=["Connect", "cooperative", "eager", "most of the time"],
)  # fmt: skip
def test_members_that_rejoin(protocol: str, span: int, setting: list[str]) -> None:
    """A member of Connect rejoins when a connector changes (KIP-415)."""
    member = {"group_id": "g", "group_type": "classic", "client_id": "c", "member_id": "m"}
    done = member | {"error_code": 0, "error": "NONE", "protocol": protocol}
    joins = [
        done | {"api": "JoinGroup", "time": START + n * SECOND, "generation": n + 1}
        | {"response_time": START + (n + 1) * SECOND}
        for n in range(5)
    ]  # fmt: skip
    last = START + span * SECOND
    alive = done | {"api": "Heartbeat", "time": last, "response_time": last}
    rows = made(exchanges=[exchange()], memberships=[*joins, alive])
    findings = findings_of("rebalances", rows)
    assert [each.setting for each in findings] == setting
    assert all("subscription" in each.cause for each in findings)


_MEMBER = {"group_id": "g", "group_type": "consumer", "api": "ConsumerGroupHeartbeat"}


def _beat(
    name: str, seconds: int, epoch: int, new_epoch: int, error: str = "NONE"
) -> dict[str, Any]:
    """A heartbeat of a member, and the epoch in the response."""
    time = START + seconds * SECOND
    return _MEMBER | {
        "client_id": name, "member_id": name, "time": time, "response_time": time + MS,
        "request_generation": epoch, "generation": new_epoch, "error": error,
        "error_code": 25 if error != "NONE" else 0,
    }  # fmt: skip


def _rejoins(*, is_removed: bool) -> list[dict[str, Any]]:
    """A group whose member `a` joins again and again; because it was removed, or by itself."""
    rows = [_beat("a", 0, 0, 1), _beat("b", 0, 0, 1)]
    for n in range(4):
        rows.append(_beat("b", 10 * n + 5, 2 * n + 1, 2 * n + 2))
        if is_removed:
            rows.append(_beat("a", 10 * n + 8, 2 * n + 1, 0, "UNKNOWN_MEMBER_ID"))
        rows += [
            _beat("a", 10 * n + 9, 0, 2 * n + 3),
            _beat("b", 10 * n + 10, 2 * n + 2, 2 * n + 3),
        ]
    rows += [_beat("a", 60, 9, 9), _beat("b", 60, 9, 9)]
    return rows


@pytest.mark.parametrize("is_removed", [True, False])
def test_members_of_a_group_with_epochs_that_rejoin(is_removed: bool) -> None:
    """The coordinator removes a member without heartbeats, which then joins with its id (KIP-848).
    A member that it did not remove has changed its subscription."""
    rows = _rejoins(is_removed=is_removed)
    findings = findings_of("rebalances", made(exchanges=[exchange()], memberships=rows))
    assert ["heartbeats" in each.cause for each in findings] == [is_removed]


@pytest.mark.parametrize("has_group", [True, False])
def test_errors_of_removed_members_belong_to_the_finding_about_their_group(has_group: bool) -> None:
    """The capture may not contain the heartbeats, which go to the coordinator."""
    errors = [
        error(
            client_id="a", api="OffsetCommit", error="UNKNOWN_MEMBER_ID", error_code=25,
            correlation_id=n, time=START + n * SECOND,
        )
        for n in range(3)
    ]  # fmt: skip
    sent = [
        exchange_at(START + n * SECOND, client_id="a", api="OffsetCommit", correlation_id=n)
        for n in range(4)
    ]
    names = rules(
        "rebalances", "recurring_errors",
        exchanges=sent, errors=errors, memberships=_rejoins(is_removed=True) if has_group else [],
    )  # fmt: skip
    assert names == (["rebalances"] if has_group else ["recurring_errors"])


def test_a_member_that_leaves_an_empty_group_behind_because_it_did_not_poll() -> None:
    """Its return is no reaction to its leave."""
    member = {"group_id": "g", "group_type": "classic", "client_id": "c", "error": "NONE"}
    steps = [
        ("JoinGroup", "m", 1, "need to re-join with the given member-id"),
        ("LeaveGroup", "m", None, "consumer poll timeout has expired."),
        ("JoinGroup", "n", 3, "need to re-join with the given member-id"),
    ]
    rows = [
        member | {"api": api, "member_id": name, "generation": generation, "reason": reason}
        | {"time": START + n * SECOND, "response_time": START + n * SECOND + MS, "error_code": 0}
        for n, (api, name, generation, reason) in enumerate(steps)
    ]  # fmt: skip
    (finding,) = findings_of("rebalances", made(exchanges=[exchange()], memberships=rows))
    assert finding.setting == "max.poll.interval.ms"
    assert "Reasons: consumer poll timeout has expired" in finding.evidence
    assert "the longest takes 1 ms" in finding.evidence


@pytest.mark.parametrize(
    ("lasts", "last_join", "early", "clients", "setting"),
    [
        (9, 8, "early", [], []),
        (10, 8, "early", [("late",)], ["max.poll.records"]),
        (60, 2, "early", [("early",)], ["max.poll.interval.ms"]),  # a third member did not come
        (None, 2, "early", [("early",)], ["max.poll.interval.ms"]),  # at the end of the capture
        (60, 2, "a-StreamThread-1", [("a-StreamThread-1",)], ["session.timeout.ms"]),
    ],
)
def test_a_rebalance_that_takes_long(
    lasts: int | None, last_join: int, early: str, clients: list[tuple[str]], setting: list[str]
) -> None:
    member = {"group_id": "g", "group_type": "classic", "api": "JoinGroup", "protocol": "range"}
    ended = {"error_code": 0, "error": "NONE", "generation": 2} if lasts else {}
    if lasts:
        ended["response_time"] = START + lasts * SECOND
    joins = [
        member | ended | {"client_id": name, "member_id": name, "time": START + second * SECOND}
        for name, second in ((early, 0), ("late", last_join))
    ]
    requests = [exchange(), exchange_at(START + 30 * SECOND)]
    findings = findings_of("rebalances", made(exchanges=requests, memberships=joins))
    assert [each.clients for each in findings] == clients
    assert [each.setting for each in findings] == setting


@pytest.mark.parametrize(
    ("error", "lasts", "fires"),
    [
        ("NOT_COORDINATOR", 30, True),
        ("NOT_COORDINATOR", 0, False),
        ("UNKNOWN_MEMBER_ID", 30, False),
    ],
)
def test_a_rebalance_that_ends_when_the_coordinator_stops(
    error: str, lasts: int, fires: bool
) -> None:
    join = {"group_id": "g", "group_type": "classic", "api": "JoinGroup", "client_id": "c"}
    ended = {"member_id": "m", "error_code": 16, "error": error, "time": START}
    rows = [join | ended | {"response_time": START + lasts * SECOND}]
    findings = findings_of("rebalances", made(exchanges=[exchange()], memberships=rows))
    sentence = "A rebalance of group `g` ended after 30.0 s without an assignment"
    assert [each.sentence for each in findings] == [sentence] * fires
    assert all("Client `c` sent the first JoinGroup." in each.evidence for each in findings)


@pytest.mark.parametrize("again", [2, 3])
def test_a_group_that_does_not_get_past_a_record(again: int) -> None:
    """A record is produced each second; the group fetches from its committed offset `again` times,
    and then from the next ones."""
    starts = [20] * again + [400 + n for n in range(20)]
    rows = [
        fetched(n, 0) | {"offset": start, "last_offset": start + 100, "high_watermark": 600 + n}
        for n, start in enumerate(starts, 1)
    ]
    commit = fetched(0, 0) | {"api": "OffsetCommit", "group_id": "g", "offset": 20}
    exchanges = [
        exchange(
            api="OffsetCommit", client_id="reader", group_id="g", topics=["t"],
            request_time=START, response_time=START,
        )
    ]  # fmt: skip
    tables = made(exchanges=exchanges, partitions=[commit, *rows])
    (finding,) = findings_of("growing_lag", tables)
    if again == 3:
        assert (
            finding.sentence == "Group `g` does not get past offset 20 of partition 0 of topic `t`"
        )
    else:
        assert finding.sentence == "Group `g` falls behind in topic `t`"


def restarted(
    seconds: list[int],
    committed: list[int | None],
    starts: list[int],
    commits: tuple[int, ...] = (),
    reason: str | None = None,
) -> dict[str, Any]:
    """A member joins at each of these times, gets the committed offset, reads ten records, and
    commits offset 20 at other times. It leaves for a reason before it joins again."""
    offset = {"group_id": "g", "high_watermark": None}
    begins = [
        fetched(second, 0) | {"api": "OffsetFetch", "offset": known} | offset
        for second, known in zip(seconds, committed, strict=True)
    ]
    reads = [
        fetched(second + 1, 0) | {"offset": start, "last_offset": start + 9, "high_watermark": 99}
        for second, start in zip(seconds, starts, strict=True)
    ]
    ends = [
        fetched(second, 0) | {"api": "OffsetCommit", "offset": 20} | offset for second in commits
    ]
    exchanges = [
        exchange_at(
            START + second * SECOND, api=api, client_id="reader", group_id="g",
            correlation_id=second, topics=["t"],
        )
        for second in seconds
        for api in ("JoinGroup", "OffsetFetch")
    ]  # fmt: skip
    member = {"api": "JoinGroup", "group_id": "g", "group_type": "classic", "client_id": "reader"}
    members = [
        member | {"connection_id": 0, "error_code": 0, "time": START + second * SECOND}
        for second in seconds
    ]
    members += [
        row | {"api": "LeaveGroup", "reason": reason, "time": row["time"] - MS}
        for row in members[1:] if reason
    ]  # fmt: skip
    return made(exchanges=exchanges, partitions=[*begins, *reads, *ends], memberships=members)


@pytest.mark.parametrize(
    ("reason", "setting"),
    [(None, "enable.auto.commit"), ("consumer poll timeout has expired.", "max.poll.interval.ms")],
)
def test_members_that_leave_before_they_commit(reason: str | None, setting: str) -> None:
    tables = restarted([0, 10, 20], [None] * 3, [0, 0, 0], reason=reason)
    (finding,) = findings_of("growing_lag", tables)
    assert finding.setting == setting
    assert finding.sentence.endswith("again and again, because it does not commit offsets")


@pytest.mark.parametrize(
    ("seconds", "committed", "starts", "commits", "fires"),
    [
        ([0, 10, 20], [None] * 3, [0, 0, 0], (), True),
        ([0, 10, 20], [None, 20, 20], [0, 20, 20], (5,), False),
        ([0, 10, 20, 30], [None, 20, 20, 20], [0, 20, 20, 20], (5,), True),
        ([0, 10, 20], [20] * 3, [20] * 3, (15,), False),
        ([0, 10, 20], [None] * 3, [0, 10, 20], (), False),
        ([0, 4, 8], [None] * 3, [0, 0, 0], (), False),
        ([0, 20], [None] * 2, [0, 0], (), False),
    ],
    ids=[
        "never", "one restart since", "not since a commit", "the same offset", "own offsets",
        "short", "one restart",
    ],
)  # fmt: skip
def test_a_group_that_does_not_commit(
    seconds: list[int], committed: list[int | None], starts: list[int], commits: tuple[int, ...],
    fires: bool,
) -> None:  # fmt: skip
    findings = findings_of("growing_lag", restarted(seconds, committed, starts, commits))
    assert [each.setting for each in findings] == ["enable.auto.commit"] * fires
    for each in findings:
        assert f"3 times at offset {starts[-1]} within 20.0 s" in each.evidence
        assert each.clients == ("reader",)


def slow_group() -> dict[str, list[dict[str, Any]]]:
    """It fetches once, works, and commits after 1, 9 and 12 s; 50 records a second are produced."""
    produced = [
        fetched(n, 0)
        | {"api": "Produce", "offset": 50 * n, "last_offset": 50 * n + 49, "high_watermark": None}
        for n in range(14)
    ]
    commits = [
        fetched(n, 0)
        | {"api": "OffsetCommit", "group_id": "g", "offset": n, "high_watermark": None}
        for n in (1, 9, 12)
    ]
    fetch = fetched(0, 0) | {"offset": 0, "last_offset": 20, "high_watermark": 50}
    exchanges = [
        exchange_at(
            START + n * SECOND, api=api, client_id="reader", topics=["t"],
            group_id="g" if api == "OffsetCommit" else None,
        )
        for n, api in ((0, "Fetch"), (1, "OffsetCommit"), (9, "OffsetCommit"), (12, "OffsetCommit"))
    ]  # fmt: skip
    return {"exchanges": exchanges, "partitions": [*produced, *commits, fetch]}


def test_a_group_whose_topic_is_deleted_no_longer_falls_behind() -> None:
    tables = slow_group()
    end = {"response_time": START + 14 * SECOND, "topics": ["t"]}
    tables["exchanges"].append(exchange_at(START + 13 * SECOND, api="DeleteTopics", **end))
    tables["partitions"].append(fetched(15, 0) | {"offset": 650, "high_watermark": 700})
    assert findings_of("growing_lag", made(**tables)) == []


@pytest.mark.parametrize("is_right", [True, False])
def test_a_group_cannot_get_past_a_damaged_batch(is_right: bool) -> None:
    tables = slow_group()
    fetch = tables["exchanges"][0]
    read = batch(
        "Fetch", fetch["response_time"], client_id="reader", base_offset=0, crc_ok=is_right
    )
    read["correlation_id"] = fetch["correlation_id"]
    tables["batches"] = [read]
    assert len(findings_of("growing_lag", made(**tables))) == is_right


def test_a_slow_group_has_no_event_in_a_quarter_of_its_time() -> None:
    tables = slow_group()
    (finding,) = findings_of("growing_lag", made(**tables))
    assert "quarter of its time: 199, 349, 491, 638; at the end 688 records" in finding.evidence
    assert finding.cause.startswith("the consumer is the bottleneck")
    errors = [
        error(time=START + n * SECOND, error="COORDINATOR_NOT_AVAILABLE", client_id="reader")
        for n in range(20)
    ]
    (finding,) = findings_of("growing_lag", made(**tables, errors=errors))
    assert "20 responses with COORDINATOR_NOT_AVAILABLE" in finding.evidence
    assert finding.side == "broker"


@pytest.mark.parametrize(
    ("seconds", "processed", "falls_behind"),
    [(6, 100, False), (45, 100, False), (66, 100, False), (30, 40, True), (66, 40, True)],
)
def test_a_group_that_keeps_up_has_a_lag_between_its_commits(
    seconds: int, processed: int, falls_behind: bool
) -> None:
    """100 records a second are produced to each partition. Members fetch them at once, and commit
    every 5 s what they have processed; in partition p, they first do so after p quarter seconds."""
    rows = []
    for partition in range(20):
        where = {"partition": partition, "connection_id": partition}
        for n in range(seconds):
            end = 100 * n + 100
            rows.append(fetched(n, 0) | where | {"last_offset": end - 1, "high_watermark": end})
        for quarter in range(partition + 1, 4 * seconds, 20):
            offset = {"offset": processed * (1 + quarter // 4), "high_watermark": None}
            commit = fetched(0, 0) | {"api": "OffsetCommit", "group_id": "g"} | where | offset
            time = START + quarter * SECOND // 4
            rows.append(commit | {"time": time, "response_time": time})
    exchanges = [
        exchange_at(
            START + n * SECOND, api=api, client_id="reader", topics=["t"], connection_id=link,
            group_id="g" if api == "OffsetCommit" else None,
        )
        for link in range(20)
        for n, api in ((0, "Fetch"), (seconds, "OffsetCommit"))
    ]  # fmt: skip
    findings = findings_of("growing_lag", made(exchanges=exchanges, partitions=rows))
    assert [each.subject for each in findings] == ["group `g`"] * falls_behind


@pytest.mark.parametrize(
    ("records", "responses", "fires"), [(1, 5, True), (1, 4, False), (2, 9, True), (2, 8, False)]
)
def test_a_share_group_gets_a_record_again_and_again(
    records: int, responses: int, fires: bool
) -> None:
    """Each response has the whole batch, and delivers at least one record of it."""
    times = [START + n * SECOND for n in range(responses)]
    share = {"api": "ShareFetch", "client_id": "c"}
    exchanges = [
        exchange_at(time, group_id="g", correlation_id=n, **share) for n, time in enumerate(times)
    ]
    batch = share | {"connection_id": 0, "topic": "t", "partition": 0, "base_offset": 7}
    batches = [
        batch | {"time": time, "correlation_id": n, "record_count": records}
        for n, time in enumerate(times)
    ]
    tables = made(exchanges=exchanges, batches=batches)
    assert len(findings_of("growing_lag", tables)) == fires


@pytest.mark.parametrize("copies", [True, False])
def test_offsets_that_are_copied_from_another_cluster_have_no_reader(copies: bool) -> None:
    """MirrorMaker commits the offsets of a group in the target cluster (KIP-545)."""
    produced = [
        fetched(n, 0)
        | {"api": "Produce", "offset": 50 * n, "last_offset": 50 * n + 49, "high_watermark": None}
        for n in range(14)
    ]
    commits = [
        fetched(n, 0) | {"client_id": "mirror", "group_id": "g", "offset": n}
        | {"api": "OffsetCommit", "high_watermark": None}
        for n in (1, 5, 9, 12)
    ]  # fmt: skip
    member = {"group_id": "g", "group_type": "classic", "client_id": "mirror", "time": START}
    memberships = [] if copies else [member | {"api": "Heartbeat", "response_time": START}]
    tables = made(exchanges=[exchange()], partitions=[*produced, *commits], memberships=memberships)
    assert len(findings_of("growing_lag", tables)) == (not copies)


def read_for_a_while(fetches: int, seconds: int) -> dict[str, list[dict[str, Any]]]:
    """A member fetches once a second, commits after a second, and sends its last request later; an
    administrator reads its offset at the end, after 16 s. 50 records are produced each second."""
    produced = [
        fetched(n, 0)
        | {"api": "Produce", "offset": 50 * n, "last_offset": 50 * n + 49, "high_watermark": None}
        for n in range(17)
    ]
    offset = {"group_id": "g", "offset": 20, "high_watermark": None}
    commit = fetched(1, 0) | {"api": "OffsetCommit"} | offset
    read = fetched(16, 0) | {"api": "OffsetFetch", "connection_id": 1} | offset
    reads = [
        fetched(n, 0) | {"offset": 20, "last_offset": None, "high_watermark": 50 * n}
        for n in range(fetches)
    ]
    exchanges = [
        exchange(
            api=api, client_id=name, group_id="g", topics=["t"], connection_id=link,
            request_time=START + n * SECOND, response_time=START + n * SECOND,
        )
        for n, api, name, link in (
            (1, "OffsetCommit", "reader", 0), (seconds, "Fetch", "reader", 0),
            (16, "OffsetFetch", "admin", 1),
        )
    ]  # fmt: skip
    return {"exchanges": exchanges, "partitions": [*produced, commit, *reads, read]}


@pytest.mark.parametrize("seconds", [5, 13])
def test_a_group_without_members_falls_behind(seconds: int) -> None:
    (finding,) = findings_of("growing_lag", made(**read_for_a_while(seconds, seconds)))
    is_gone = finding.cause == "the group has no members any more: they left, or crashed"
    assert is_gone == (seconds == 5)


@pytest.mark.parametrize(
    ("seconds", "other", "cause"),
    [(5, 16, "the reader is paused, was killed"), (13, 16, "the consumer"),
     (8, 16, "the consumer"), (5, 5, "the group has no members")],
    ids=["silent", "active", "for less than 10 s", "no members"],
)  # fmt: skip
def test_a_reader_that_is_silent_while_another_member_is_not(
    seconds: int, other: int, cause: str
) -> None:
    """As after SIGSTOP: it keeps its partitions until its session ends."""
    tables = read_for_a_while(seconds, seconds)
    member = {"group_id": "g", "client_id": "other", "error_code": 0, "api": "Heartbeat"}
    tables["memberships"] = [
        member | {"time": START + second * SECOND, "response_time": START + second * SECOND}
        for second in range(other + 1)
    ]
    (finding,) = findings_of("growing_lag", made(**tables))
    assert finding.cause.startswith(cause)
    assert ("`reader`, sent nothing after" in finding.evidence) == ("paused" in cause)


def test_a_member_of_which_only_responses_were_captured() -> None:
    tables = read_for_a_while(13, 13)
    tables["memberships"] = [{"group_id": "g", "client_id": "other", "api": "Heartbeat"}]
    (finding,) = findings_of("growing_lag", made(**tables))
    assert finding.cause.startswith("the consumer")


@pytest.mark.parametrize(
    ("rebalances", "seconds", "count"),
    [([0], 13, 1), ([0, 1], 13, 1), ([0, 3], 13, 0), ([0, 3], 5, 1)],
    ids=["the first one", "it fetches later", "moved", "no members"],
)
def test_a_partition_that_moves_to_a_member_outside_of_the_capture(
    rebalances: list[int], seconds: int, count: int
) -> None:
    """It is fetched for the last time after 3 s."""
    tables = read_for_a_while(4, seconds)
    member = {"group_id": "g", "group_type": "consumer", "client_id": "reader", "error_code": 0}
    tables["memberships"] = [
        member | {"api": "ConsumerGroupHeartbeat", "generation": generation}
        | {"time": START + second * SECOND, "response_time": START + second * SECOND}
        for generation, second in enumerate(rebalances, 1)
        for _ in range(2)
    ]  # fmt: skip
    assert len(findings_of("growing_lag", made(**tables))) == count


@pytest.mark.parametrize(
    ("link", "waits"),
    [({}, True), ({"broker_packets": 0}, False), ({"broker_lost_bytes": 90}, False)],
    ids=["both directions", "one direction", "lost packets"],
)
def test_the_end_of_a_rebalance_may_be_missing_from_the_capture(
    link: dict[str, int], waits: bool
) -> None:
    """The only member joins at the start, gets no response, and reads for a minute."""
    join = {"api": "JoinGroup", "group_id": "g", "client_id": "c"}
    exchanges = [
        exchange(**join, status="unanswered"),
        exchange_at(START + 60 * SECOND, connection_id=1),
    ]
    member = join | {"group_type": "classic", "member_id": "m", "connection_id": 0, "time": START}
    tables = made(
        exchanges=exchanges, memberships=[member], connections=[connection(closed=None, **link)]
    )
    assert len(findings_of("rebalances", tables)) == waits
