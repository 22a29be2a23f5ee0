"""The rule `growing_lag`, on made rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
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
    commit: str = "OffsetCommit",
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
    ends = [fetched(second, 0) | {"api": commit, "offset": 20} | offset for second in commits]
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


@pytest.mark.parametrize("commit", ["OffsetCommit", "TxnOffsetCommit"])
def test_a_group_that_commits_in_transactions_is_not_without_commits(commit: str) -> None:
    """Those of Kafka Streams are aborted, for example: other rules report why (KIP-98)."""
    tables = restarted([0, 10, 20], [20] * 3, [20] * 3, commits=(25,), commit=commit)
    assert len(findings_of("growing_lag", tables)) == (commit == "OffsetCommit")


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


def test_a_group_of_which_the_capture_has_only_commits() -> None:
    """The leader from which it fetches may be elsewhere."""
    tables = slow_group()
    tables = {name: [row for row in rows if row["api"] != "Fetch"]
              for name, rows in tables.items()}  # fmt: skip
    member = {"group_id": "g", "client_id": "reader", "api": "Heartbeat", "error_code": 0}
    tables["memberships"] = [member | {"time": START + 12 * SECOND}]
    (finding,) = findings_of("growing_lag", made(**tables))
    assert "does not contain its Fetches" in finding.cause
    assert "not fetched" not in finding.evidence


@pytest.mark.parametrize(
    ("transfer_s", "rtt_ms", "is_waiting"),
    [(0, 0.1, False), (8, 0.1, True), (0, 8000.0, True), (-8, 0.1, False)],
    ids=["at once", "transfer", "distance", "clock set back"],
)
def test_a_reader_that_waits_while_its_fetch_is_on_the_way(
    transfer_s: int, rtt_ms: float, is_waiting: bool
) -> None:
    """The capture is taken at the broker, which responds at once."""
    tables = slow_group()
    fetch = tables["exchanges"][0]
    fetch["response_end_time"] = fetch["response_time"] + transfer_s * SECOND
    tables["connections"] = [connection(handshake_rtt_ms=rtt_ms) | {"client_rtt_ms": rtt_ms}]
    (finding,) = findings_of("growing_lag", made(**tables))
    assert finding.cause.startswith("the consumer always waits for a Fetch") == is_waiting


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


@pytest.mark.parametrize(
    ("joins", "closed", "fires"), [(5, None, False), (5, "fin", True), (15, None, True)]
)
def test_a_group_that_waits_for_the_end_of_a_rebalance(
    joins: int, closed: str | None, fires: bool
) -> None:
    """The response to the JoinGroup comes when all members have joined: see `rebalances`."""
    tables = read_for_a_while(5, 5)
    member = {"group_id": "g", "client_id": "reader", "connection_id": 0, "error_code": None}
    tables["memberships"] = [member | {"api": "JoinGroup", "time": START + joins * SECOND}]
    tables["connections"] = [connection(closed=closed)]
    assert len(findings_of("growing_lag", made(**tables))) == fires


@pytest.mark.parametrize("topic", ["t", 'it\'s a "name"', "n" * 249])
@pytest.mark.parametrize(("partitions", "is_enough"), [(2, True), (3, False), (0, False)])
def test_further_members_would_get_no_partition(
    topic: str, partitions: int, is_enough: bool
) -> None:
    """Two members join; the topic has one, two or three partitions, or is not in Metadata."""
    tables = read_for_a_while(13, 13)
    for rows in tables.values():
        rows[:] = [
            row | ({"topic": topic} if "topic" in row else {"topics": [topic]}) for row in rows
        ]
    for row in tables["partitions"]:
        if row["api"] == "Fetch" and row["high_watermark"]:  # it keeps up, but does not commit
            row |= {"offset": row["high_watermark"] - 50, "last_offset": row["high_watermark"] - 1}
    member = {"group_id": "g", "group_type": "classic", "api": "JoinGroup", "generation": 1}
    done = {"time": START, "response_time": START + MS, "error_code": 0, "error": "NONE"}
    tables["memberships"] = [
        member | done | {"client_id": name, "member_id": name, "member_count": count}
        for name, count in (("reader", 2), ("idle", 0))
    ]
    tables["topics"] = [{"topic": topic, "partition": n} for n in range(partitions)]
    (finding,) = findings_of("growing_lag", made(**tables))
    assert ("or add partitions" in finding.change) == is_enough
    assert finding.evidence.endswith(" The group has 2 members, and the topic 2 partitions.") == (
        is_enough
    )


@pytest.mark.parametrize("seconds", [5, 13])
def test_a_group_without_members_falls_behind(seconds: int) -> None:
    (finding,) = findings_of("growing_lag", made(**read_for_a_while(seconds, seconds)))
    is_gone = (
        finding.cause == "the group has no members any more: they left, crashed, or are blocked"
    )
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


@pytest.mark.parametrize(
    ("last", "api", "cause"),
    [(16, "Heartbeat", "the application has worked"), (5, "Heartbeat", "the group has no members"),
     (5, "LeaveGroup", "the consumer")],
    ids=["heartbeats", "blocked", "left"],
)  # fmt: skip
def test_a_member_that_does_not_fetch_any_more(last: int, api: str, cause: str) -> None:
    """While the application works on a record, franz-go sends heartbeats, and KafkaJS does not."""
    tables = read_for_a_while(5, 5)
    for rows in tables.values():
        rows[:] = [row for row in rows if row["api"] != "OffsetFetch"]  # of the administrator
    member = {"group_id": "g", "client_id": "reader", "error_code": 0}
    tables["memberships"] = [
        member | {"api": api if second == last else "Heartbeat"}
        | {"time": START + second * SECOND, "response_time": START + second * SECOND}
        for second in range(last + 1)
    ]  # fmt: skip
    (finding,) = findings_of("growing_lag", made(**tables))
    assert finding.cause.startswith(cause)
    assert ("has not fetched or committed since" in finding.evidence) == (last == 16)
    assert ("sent nothing after" in finding.evidence) == (cause == "the group has no members")


def test_a_member_of_which_only_responses_were_captured() -> None:
    tables = read_for_a_while(13, 13)
    tables["memberships"] = [{"group_id": "g", "client_id": "other", "api": "Heartbeat"}]
    (finding,) = findings_of("growing_lag", made(**tables))
    assert finding.cause.startswith("the consumer")


@pytest.mark.parametrize("is_member", [False, True])
def test_a_group_whose_offsets_only_an_administrator_reads(is_member: bool) -> None:
    """It reads the committed offset of each partition once a second, as exporters do."""
    tables = read_for_a_while(0, 0)
    offset = {"group_id": "g", "offset": 20, "high_watermark": None, "connection_id": 1}
    produced = [row for row in tables["partitions"] if row["api"] == "Produce"]
    reads = [fetched(n, 0) | {"api": "OffsetFetch"} | offset for n in range(17)]
    tables = {"exchanges": tables["exchanges"][-1:], "partitions": [*produced, *reads]}
    if is_member:
        tables["memberships"] = [
            {"group_id": "g", "client_id": None, "api": "Heartbeat", "time": START + 16 * SECOND}
        ]
    (finding,) = findings_of("growing_lag", made(**tables))
    assert ("neither members of the group" in finding.evidence) == (not is_member)
    assert finding.cause.startswith("the group has no members, or they are") == (not is_member)
    assert "not fetched" not in finding.evidence


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
