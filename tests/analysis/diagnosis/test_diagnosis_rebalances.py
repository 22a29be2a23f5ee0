"""The rule `rebalances`, on made rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of, rules
from tests.analysis.made_rows import (
    MS,
    SECOND,
    START,
    connection,
    error,
    exchange,
    exchange_at,
    partition,
)


@pytest.mark.parametrize("name", [None, 'it\'s a "name"', "n" * 300])
@pytest.mark.parametrize(
    ("refused", "seconds", "setting"),
    [("GROUP_MAX_SIZE_REACHED", 3, None), ("GROUP_MAX_SIZE_REACHED", 90, "max.poll.interval.ms"),
     ("UNKNOWN_MEMBER_ID", 3, "max.poll.interval.ms")],
    ids=["refused", "later", "removed"],
)  # fmt: skip
def test_a_rebalance_that_waits_for_a_member_that_was_refused(
    name: str | None, refused: str, seconds: int, setting: str | None
) -> None:
    group = {"group_id": "g", "group_type": "classic", "api": "JoinGroup", "connection_id": 0}
    end = START + 60 * SECOND
    waits = group | {
        "client_id": "a",
        "member_id": "a",
        "time": START,
        "response_time": end,
        "generation": 2,
        "error_code": 0,
        "error": "NONE",
        "correlation_id": 1,
    }
    time = START + seconds * SECOND
    again = group | {"client_id": name, "member_id": "b", "time": time, "response_time": time,
                     "error_code": 81, "error": refused, "correlation_id": 2}  # fmt: skip
    failed = error(
        time=time, api="JoinGroup", client_id=name, error=refused, retriable=False,
        correlation_id=2,
    )  # fmt: skip
    tables = made(
        exchanges=[exchange(), exchange_at(end)], memberships=[waits, again], errors=[failed]
    )
    (finding,) = [
        each for each in findings_of("rebalances", tables) if each.numbers["generation"] == 2
    ]
    of = f"client `{name}`" if name else "a client without id"
    is_refused = f"JoinGroup failed for {of} with GROUP_MAX_SIZE_REACHED." in finding.evidence
    assert (is_refused, finding.setting) == (setting is None, setting)


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


@pytest.mark.parametrize(
    ("names", "shared", "evidence"),
    [
        (("billing", "it's \"odd\""), (), "topic `orders` of client `billing`, topic `mails` of "
         "client `it's \"odd\"`."),
        (("billing", "n" * 300), (), f"topic `mails` of client `{'n' * 300}`."),
        (("billing", "mailer"), ("orders",), ""),
        (("billing", None), (), ""),
        (("a-StreamThread-1-consumer", "a-StreamThread-2-consumer"), (), ""),
    ],
    ids=["other topics", "long", "a common topic", "without id", "Kafka Streams"],
)  # fmt: skip
def test_members_without_a_common_topic(
    names: tuple[str | None, str | None], shared: tuple[str, ...], evidence: str
) -> None:
    """Two applications with the same group.id. An exporter, which is no member, reads all
    offsets."""
    left = {"group_id": "g", "group_type": "classic", "api": "LeaveGroup", "error_code": 0,
            "error": "NONE", "reason": "consumer poll timeout has expired.", "time": START,
            "response_time": START, "member_id": "m"}  # fmt: skip
    members = [left | {"client_id": name} for name in names]
    joined = left | {"api": "JoinGroup", "generation": 2, "time": START + MS, "reason": None}
    members.append(joined | {"client_id": names[0], "response_time": START + SECOND})
    topics = [("orders",), ("mails", *shared), ("orders", "mails")]
    offsets = [
        partition("OffsetFetch", group_id="g", client_id=name, topic=topic)
        for name, read in zip((*names, "exporter"), topics, strict=True) for topic in read
    ]  # fmt: skip
    tables = made(exchanges=[exchange()], memberships=members, partitions=offsets)
    (finding,) = findings_of("rebalances", tables)
    assert finding.evidence.endswith(evidence)
    assert ("different topics" in finding.evidence) == bool(evidence)
    assert ("different applications" in finding.change) == bool(evidence)


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


@pytest.mark.parametrize("name", ["a", 'it\'s a "name"', "n" * 300])
def test_a_member_of_a_group_with_epochs_that_gives_up_its_partitions_late(name: str) -> None:
    """It sends heartbeats with its epoch until onPartitionsRevoked returns (KIP-848)."""
    rows = [
        _beat(name, 0, 0, 1),
        _beat("b", 10, 0, 2),
        _beat(name, 15, 1, 1),
        _beat(name, 25, 1, 2),
    ]
    (finding,) = findings_of("rebalances", made(exchanges=[exchange()], memberships=rows))
    assert finding.sentence == "A rebalance of group `g` took 15.0 s"
    assert f"Client `{name}` reached the new epoch as the last member." in finding.evidence
    assert (finding.clients, finding.setting) == ((name,), "max.poll.records")


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (None, "members do not poll"),
        ("the consumer unsubscribed from all topics", "the application"),
    ],
)
def test_a_member_that_leaves_and_joins_again_on_its_connection(
    reason: str | None, cause: str
) -> None:
    """The reason is that of Kafka's class ConsumerCoordinator (KIP-800)."""
    member = {"group_id": "g", "group_type": "classic", "client_id": "c", "connection_id": 0}
    rows = [
        member | {"api": api, "member_id": f"m{n}", "error_code": 0, "error": "NONE"}
        | {"generation": 2 * n + 1, "time": START + second * SECOND, "protocol": "range"}
        | {"reason": reason if api == "LeaveGroup" else None}
        | {"response_time": START + second * SECOND + MS}
        for n in range(4)
        for api, second in (("JoinGroup", 10 * n), ("LeaveGroup", 10 * n + 9))
    ]  # fmt: skip
    (finding,) = findings_of("rebalances", made(exchanges=[exchange()], memberships=rows))
    assert finding.cause.startswith(cause)
    assert finding.severity == ("note" if reason else "warning")
    assert "Members rejoined 3 times on the connection that they had left." in finding.evidence


@pytest.mark.parametrize("returns", [False, True])
def test_a_member_that_did_not_poll_in_time_may_not_return(returns: bool) -> None:
    member = {"group_id": "g", "group_type": "classic", "error": "NONE", "error_code": 0}
    left = {"api": "LeaveGroup", "client_id": "c", "member_id": "m"}
    left["reason"] = "consumer poll timeout has expired."
    joined = {"api": "JoinGroup", "client_id": "c" if returns else "d", "member_id": "n"}
    rows = [
        member | left | {"time": START, "response_time": START + MS},
        member | joined | {"time": START + SECOND, "response_time": START + SECOND + MS}
        | {"generation": 2},
    ]  # fmt: skip
    requests = [exchange(), exchange_at(START + 30 * SECOND)]
    (finding,) = findings_of("rebalances", made(exchanges=requests, memberships=rows))
    is_away = "Client `c` did not join again in the 30.0 s until the end" in finding.evidence
    assert is_away != returns


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


@pytest.mark.parametrize("name", [None, 'it\'s a "name"', "n" * 300])
@pytest.mark.parametrize(
    ("last", "ends", "instance", "setting"),
    [
        ("Heartbeat", 1, None, "session.timeout.ms"),
        ("JoinGroup", 1, None, "session.timeout.ms"),
        ("LeaveGroup", 1, None, "max.poll.interval.ms"),
        ("Heartbeat", 90, None, "max.poll.interval.ms"),
        ("Heartbeat", None, None, "max.poll.interval.ms"),
        ("Heartbeat", 1, "i-1", "max.poll.interval.ms"),
    ],
    ids=["killed", "killed in the rebalance", "left", "later", "open", "static"],
)
def test_a_rebalance_that_waits_for_a_member_that_was_killed(
    name: str | None, last: str, ends: int | None, instance: str | None, setting: str
) -> None:
    """The other member joins when it has gone."""
    group = {"group_id": "g", "group_type": "classic", "protocol": "range"}
    gone = group | {"api": last, "client_id": name, "member_id": "gone", "connection_id": 1,
                    "group_instance_id": instance, "time": START, "error_code": None}  # fmt: skip
    join = group | {"api": "JoinGroup", "client_id": "stays", "member_id": "stays", "time": START,
                    "connection_id": 0, "response_time": START + 60 * SECOND, "error_code": 0,
                    "error": "NONE", "generation": 2}  # fmt: skip
    closed = {"closed": None} if ends is None else {"last_time": START + ends * SECOND}
    tables = made(
        exchanges=[exchange(), exchange_at(START + 60 * SECOND)], memberships=[gone, join],
        connections=[connection(closed=None), connection(connection_id=1) | closed],
    )  # fmt: skip
    (finding,) = [
        each for each in findings_of("rebalances", tables) if each.numbers["generation"] == 2
    ]
    assert finding.setting == setting
    of = f"client `{name}`" if name else "a client without id"
    is_killed = f"ended without a LeaveGroup: 1 of {of}." in finding.evidence
    assert is_killed == (setting == "session.timeout.ms")


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
