"""Findings about errors in responses, on made rows."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.diagnosis.causes.error_advice import ADVICE, AFTER_END, FINAL, NOT_RESET, advice
from dissector.protocol import registry
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
)


@pytest.mark.parametrize(
    ("name", "api", "fires"),
    [
        ("MEMBER_ID_REQUIRED", "JoinGroup", False),
        ("NOT_COORDINATOR", "JoinGroup", True),
        ("GROUP_ID_NOT_FOUND", "ConsumerGroupDescribe", False),
        ("GROUP_ID_NOT_FOUND", "DescribeGroups", True),
        ("UNSUPPORTED_VERSION", "ApiVersions", False),
    ],
)
def test_clients_that_join_or_fall_back_often_have_no_recurring_error(
    name: str, api: str, fires: bool
) -> None:
    rows = [exchange(api=api, correlation_id=n, request_time=START + n * SECOND) for n in range(30)]
    errors = [
        error(time=START + n * SECOND, error_code=79, error=name, correlation_id=n, api=api)
        for n in range(30)
    ]
    assert rules("recurring_errors", exchanges=rows, errors=errors) == ["recurring_errors"] * fires


@pytest.mark.parametrize(
    ("changed", "later", "end", "fires"),
    [
        ({}, {}, "fin", True),
        ({}, {"api": "PushTelemetry"}, "fin", True),
        ({}, {"api": "Metadata"}, "fin", False),
        ({}, {"api": "Fetch"}, "fin", False),
        ({}, {"api": "Fetch", "request_time": START + 5 * SECOND}, "fin", True),
        ({}, {}, None, False),
        ({"retriable": True}, {}, "fin", False),
        ({"error": "NOT_COORDINATOR"}, {}, "fin", False),
        ({"api": "JoinGroup", "error": "UNKNOWN_MEMBER_ID"}, {}, "fin", False),
        ({"api": "CreateTopics", "error": "TOPIC_ALREADY_EXISTS"}, {}, "fin", False),
        ({"api": "Heartbeat", "error": "FENCED_INSTANCE_ID"}, {}, "fin", True),
        ({"api": "Heartbeat", "error": "GROUP_AUTHORIZATION_FAILED"}, {}, "fin", False),
        ({"api": "CreateTopics", "error": "TOPIC_AUTHORIZATION_FAILED"}, {}, "fin", True),
        ({"api": "Metadata", "error": "TOPIC_AUTHORIZATION_FAILED"}, {}, "fin", True),
        ({}, {"api": "SaslAuthenticate"}, "fin", True),
    ],
    ids=["fatal", "last metrics", "it goes on", "it reads on", "end of the fetch session", "open",
         "retriable", "normal", "joins again", "admin client", "another instance", "heartbeat",
         "no permission", "no permission in Metadata", "another connection"],
)  # fmt: skip
def test_a_client_that_stops_at_an_error(
    changed: dict[str, Any], later: dict[str, Any], end: str | None, fires: bool
) -> None:
    row = error(
        time=START + SECOND, error_code=50, error="INVALID_TRANSACTION_TIMEOUT", retriable=False,
        api="InitProducerId",
    ) | changed  # fmt: skip
    rows = [exchange(api=row["api"], response_time=row["time"])]
    if later:
        rows.append(exchange(**{"request_time": START + 2 * SECOND, "correlation_id": 8} | later))
    tables = made(exchanges=rows, errors=[row], connections=[connection(closed=end)])
    findings = findings_of("recurring_errors", tables)
    assert len(findings) == fires
    ending = "the first is packet 5. The client stopped after it."
    assert all(each.evidence.endswith(ending) for each in findings)


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("GROUP_AUTHORIZATION_FAILED", "Group: `billing`."),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "Transactional id: `billing`."),
    ],
)
def test_what_a_client_may_not_use(name: str, resource: str) -> None:
    """Two of its requests contain the name."""
    errors = [
        error(correlation_id=n, api="FindCoordinator", error=name, retriable=False, resource=each)
        for n, each in enumerate(("billing", "billing", None))
    ]
    (finding,) = findings_of("recurring_errors", made(exchanges=[exchange()], errors=errors))
    assert finding.evidence.endswith(resource)


@pytest.mark.parametrize(
    ("group", "instance", "is_named"),
    [("g", "pod-0", True), ("g", "pod-1", False), ("h", "pod-0", False)],
)
def test_clients_that_share_a_group_instance_id(group: str, instance: str, is_named: bool) -> None:
    refused = error(error="FENCED_INSTANCE_ID", api="OffsetCommit", retriable=False, resource="g")
    members = [
        {"client_id": "app", "group_id": "g", "group_instance_id": "pod-0"},
        {"client_id": "other", "group_id": group, "group_instance_id": instance},
    ]
    rows = [exchange(api="OffsetCommit")]
    tables = made(exchanges=rows, errors=[refused], connections=[connection()], memberships=members)
    (finding,) = findings_of("recurring_errors", tables)
    named = "In group `g`, 2 clients (`app`, `other`) have the group.instance.id `pod-0`."
    assert finding.evidence.endswith(named) == is_named


@pytest.mark.parametrize(
    ("client", "seconds", "fires"), [("other", 10, True), ("other", 10, False), ("app", 11, False)]
)
def test_a_client_that_keeps_its_connection_and_is_silent_stopped(
    client: str, seconds: int, fires: bool
) -> None:
    """The capture continues for this time after the error, with requests of this client."""
    time = START + SECOND
    failed = error(
        time=time, error_code=53, error="TRANSACTIONAL_ID_AUTHORIZATION_FAILED", retriable=False,
        api="InitProducerId",
    )  # fmt: skip
    last = time + seconds * SECOND - (not fires)
    rows = [
        exchange(api="InitProducerId", response_time=time, response_end_time=time),
        exchange(client_id=client, connection_id=1, request_time=last, response_time=last,
                 response_end_time=last),
    ]  # fmt: skip
    connections = [connection(connection_id=n, closed=None) for n in (0, 1)]
    names = rules("recurring_errors", exchanges=rows, errors=[failed], connections=connections)
    assert names == ["recurring_errors"] * fires


@pytest.mark.parametrize("replica_id", [None, 2])
def test_a_consumer_that_skips_records_is_one_response(replica_id: int | None) -> None:
    """A follower that is new gets the same error, and starts at the start of the log."""
    reset = error(error_code=1, error="OFFSET_OUT_OF_RANGE", api="Fetch", retriable=True)
    fetch = {"api": "Fetch", "client_id": "app", "topic": "t", "partition": 0, "time": START}
    tables = made(
        exchanges=[exchange(api="Fetch")], errors=[reset], connections=[connection()],
        partitions=[fetch | {"replica_id": replica_id, "offset": 3}],
    )  # fmt: skip
    causes = [each.cause for each in findings_of("recurring_errors", tables)]
    assert ["retention" in cause for cause in causes] == [True] * (replica_id is None)


@pytest.mark.parametrize(
    ("later", "evidence"),
    [
        # auto.offset.reset=latest: the leader returns the end, and the consumer continues there.
        ([("ListOffsets", 5_003), ("Fetch", 5_003)],
         "Consumers skipped up to 5,000 records: from offset 3 to 5,003 of partition 0."),
        # The application asks for the end, and seeks to the start.
        ([("ListOffsets", 5_003), ("Fetch", 1)],
         "Consumers went back by up to 2 records: from offset 3 to 1 of partition 0."),
        # KIP-392: the consumer fetches from the leader what a follower does not have yet.
        ([("Fetch", 3)], "Consumers continued at the same offset."),
        ([("ListOffsets", 10)],
         "Consumers skipped up to 7 records: from offset 3 to 10 of partition 0."),
        ([("Fetch", 2**63 - 1)], f"Consumers skipped up to {2**63 - 4:,} records: from offset 3 to "
         f"{2**63 - 1:,} of partition 0."),
        ([], "The consumer requested offset 3 of partition 0. The capture does not contain the "
         "offset at which it continued."),
    ],
    ids=["latest", "seek", "same", "listed", "hostile", "end of the capture"],
)  # fmt: skip
def test_the_records_that_a_consumer_skips(later: list[tuple[str, int]], evidence: str) -> None:
    partition = {"connection_id": 0, "client_id": "app", "topic": "t", "partition": 0}
    refused = partition | {"api": "Fetch", "time": START, "offset": 3, "error_code": 1}
    tables = made(
        exchanges=[exchange(api="Fetch")], connections=[connection()],
        errors=[error(error_code=1, error="OFFSET_OUT_OF_RANGE", api="Fetch", retriable=True)],
        partitions=[refused | {"error": "OFFSET_OUT_OF_RANGE"}] + [
            partition | {"api": api, "time": START + n * SECOND, "offset": offset, "error_code": 0,
                         "last_offset": 2**63 - 1 if offset > 9999 else None}
            for n, (api, offset) in enumerate(later, 1)
        ],
    )  # fmt: skip
    (finding,) = findings_of("recurring_errors", tables)
    assert finding.evidence.endswith(evidence)
    assert ("retention" in finding.cause) == ("back" not in evidence)


@pytest.mark.parametrize(
    ("others", "fires"),
    [
        ([("producer", "Produce")], True),
        ([], False),  # only the coordinator is in the capture: the leader is another broker
        ([("producer", "Produce"), ("app", "ListOffsets")], False),  # the group has just begun
        ([("other", "Fetch"), ("app", "Fetch")], False),
    ],
)
def test_a_consumer_that_reads_no_partition_without_an_offset(
    others: list[tuple[str, str]], fires: bool
) -> None:
    """A new group rebalances some times, and asks for its offsets each time."""
    place: dict[str, Any] = {"topic": "t", "partition": 0, "error_code": 0}
    starts = [START + n * SECOND for n in range(6)]
    asked = [
        place | {"api": "OffsetFetch", "client_id": "app", "group_id": "g", "connection_id": 0,
                 "correlation_id": n, "time": at, "response_time": at + MS}
        for n, at in enumerate(starts)
    ]  # fmt: skip
    rows = [
        place | {"api": api, "client_id": name, "time": START + 6 * SECOND, "connection_id": 1}
        for name, api in others
    ]
    tables = made(
        exchanges=[
            exchange_at(at, at + MS, api="OffsetFetch", correlation_id=n)
            for n, at in enumerate(starts)
        ],
        partitions=asked + rows, connections=[connection(last_time=START + 7 * SECOND)],
        memberships=[{"client_id": "app", "group_id": "g", "connection_id": 0}],
    )  # fmt: skip
    assert len(findings_of("recurring_errors", tables)) == fires


@pytest.mark.parametrize(("offsets", "setting"), [([3, 3, 3], "auto.offset.reset"),
                                                  ([3, 4, 5], "retention.ms")])  # fmt: skip
def test_a_consumer_that_does_not_reset_its_offset(offsets: list[int], setting: str) -> None:
    """The application starts it again, and it requests the committed offset again."""
    rows = [
        {"connection_id": n, "client_id": "app", "topic": "t", "partition": 0, "api": "Fetch"}
        | {"time": START + n, "offset": offset, "error_code": 1, "error": "OFFSET_OUT_OF_RANGE"}
        for n, offset in enumerate(offsets)
    ]
    tables = made(
        exchanges=[exchange(api="Fetch")], connections=[connection()], partitions=rows,
        errors=[error(error_code=1, error="OFFSET_OUT_OF_RANGE", api="Fetch", retriable=True)],
    )  # fmt: skip
    (finding,) = findings_of("recurring_errors", tables)
    assert finding.setting == setting
    assert ("3 times, and did not ask for another one" in finding.evidence) == (
        setting == "auto.offset.reset"
    )


@pytest.mark.parametrize(("elections", "fires"), [(2, False), (6, True)])
def test_elections_that_follow_each_other_do_not_add_up_to_a_long_one(
    elections: int, fires: bool
) -> None:
    """Each takes two seconds, with ten errors a second, and they are a minute apart."""
    times = [
        START + n * 60 * SECOND + each * SECOND // 10
        for n in range(elections)
        for each in range(20)
    ]
    moved = {"error": "NOT_LEADER_OR_FOLLOWER", "error_code": 6, "api": "Fetch", "retriable": True}
    rows = [error(time=time, correlation_id=n, **moved) for n, time in enumerate(times)]
    assert rules("recurring_errors", exchanges=[exchange()], errors=rows) == (
        ["recurring_errors"] * fires
    )


def test_batches_of_one_record_that_are_too_large_are_lost() -> None:
    refused = {"error_code": 10, "error": "MESSAGE_TOO_LARGE", "api": "Produce"}
    batch = {"api": "Produce", "client_id": "app", "topic": "t", "error_code": 10}
    tables = made(
        exchanges=[exchange(api="Produce")],
        errors=[error(**refused, retriable=False, correlation_id=n) for n in range(5)],
        batches=[batch | {"record_count": count} for count in (1, 1, 8, 8, 8)],
    )  # fmt: skip
    (finding,) = findings_of("recurring_errors", tables)
    assert finding.evidence.endswith(
        "2 batches of client `app` consist of one record, which is lost."
    )


def test_each_message_of_the_broker_is_quoted() -> None:
    rows = [
        error(error_code=58, error="SASL_AUTHENTICATION_FAILED", api="SaslAuthenticate",
              retriable=False, client_id=name, error_message=message, correlation_id=n)
        for n, (name, message) in enumerate(
            [*[("a", "expired")] * 3, *[("b", "unknown user")] * 4])
    ]  # fmt: skip
    tables = made(exchanges=[exchange(api="SaslAuthenticate")], errors=rows)
    (finding,) = findings_of("recurring_errors", tables)
    assert finding.evidence.endswith('Messages of the broker: "unknown user", "expired"')


def test_the_setting_of_a_client_is_a_setting_of_clients() -> None:
    """Names in ProducerConfig and ConsumerConfig of Kafka 4.4."""
    of_clients = {
        "auto.offset.reset", "compression.type", "enable.idempotence", "group.instance.id",
        "group.remote.assignor",
        "max.poll.interval.ms", "max.poll.records", "max.request.size",
        "partition.assignment.strategy", "sasl.jaas.config", "sasl.mechanism",
        "security.protocol", "session.timeout.ms", "transaction.timeout.ms",
    }  # fmt: skip
    settings = {
        each.setting for each in (*ADVICE.values(), AFTER_END, NOT_RESET) if each.side == "client"
    }
    assert settings - {None} <= of_clients


@pytest.mark.parametrize(
    ("resent", "fires"),
    [
        ({}, False),
        ({"base_sequence": 0, "producer_epoch": 1}, False),  # with a new epoch (KIP-360)
        ({"error_code": 45}, True),
        ({"base_timestamp": START + 1}, True),  # another batch
        ({"partition": 1}, True),
    ],
)
def test_batches_behind_a_failed_one_are_sent_again(resent: dict[str, Any], fires: bool) -> None:
    batch = {
        "api": "Produce", "client_id": "app", "topic": "t", "partition": 0, "producer_id": 7,
        "producer_epoch": 0, "base_sequence": 5, "base_timestamp": START, "record_count": 1,
    }  # fmt: skip
    batches = [batch | {"time": START, "error_code": 45} for _ in range(3)]
    batches.append(batch | {"time": START + SECOND, "error_code": 0} | resent)
    errors = [
        error(error_code=45, error="OUT_OF_ORDER_SEQUENCE_NUMBER", api="Produce", correlation_id=n)
        for n in range(3)
    ]
    tables = {"exchanges": [exchange(api="Produce")], "errors": errors, "batches": batches}
    assert rules("recurring_errors", **tables) == ["recurring_errors"] * fires


@pytest.mark.parametrize(("last", "fires"), [(0, False), (101, True)])
def test_a_broker_that_starts_again_within_its_session_is_registered_later(
    last: int, fires: bool
) -> None:
    api = {"api": "BrokerRegistration", "client_id": "1"}
    codes = [0, 101, 101, 101, 101, last]
    exchanges = [
        exchange_at(START + n * SECOND, error_code=code, **api) for n, code in enumerate(codes)
    ]
    errors = [
        error(time=START + n * SECOND, error_code=code, error="DUPLICATE_BROKER_REGISTRATION",
              topic=None, correlation_id=n, **api)
        for n, code in enumerate(codes) if code
    ]  # fmt: skip
    tables = {"exchanges": exchanges, "errors": errors}
    assert rules("recurring_errors", **tables) == ["recurring_errors"] * fires


def test_a_partition_without_a_leader_is_named() -> None:
    errors = [
        error(time=START + n * SECOND, error_code=5, error="LEADER_NOT_AVAILABLE", topic="t",
              api="Metadata", correlation_id=n, retriable=True)
        for n in range(30)
    ]  # fmt: skip
    row = {"topic": "t", "partition": 2, "time": START, "replicas": [7, 8], "isr": []}
    topics = [row | {"leader": leader, "partition": n} for n, leader in enumerate((8, -1))]
    topics.append(row | {"leader": -1, "topic": "other"})
    tables = made(exchanges=[exchange()], errors=errors, topics=topics)
    (finding,) = findings_of("recurring_errors", tables)
    assert finding.evidence.endswith(" Without a leader: t-1 (replicas: 7, 8).")
    assert finding.cause.startswith("a partition has no leader")


def test_a_login_with_scram_has_two_requests() -> None:
    """RFC 5802: the server rejects a wrong password in its second message."""
    login = {"api": "SaslAuthenticate", "api_key": 36}
    rows = [
        exchange(connection_id=n, correlation_id=step, **login)
        for n in range(10) for step in range(2)
    ]  # fmt: skip
    errors = [
        error(connection_id=n, correlation_id=1, api="SaslAuthenticate", error_code=58,
              error="SASL_AUTHENTICATION_FAILED", retriable=False)
        for n in range(10)
    ]  # fmt: skip
    (finding,) = findings_of("recurring_errors", made(exchanges=rows, errors=errors))
    assert finding.severity == "critical"
    assert "10 responses, 100 % of the logins of the client" in finding.evidence


def test_elections_of_the_metadata_quorum_are_not_those_of_brokers() -> None:
    settings = [
        advice("Fetch", error, True, topic).setting
        for error in ("NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE")
        for topic in ("__cluster_metadata", "orders")
    ]
    quorum = "controller.quorum.fetch.timeout.ms"
    expected = [quorum, "auto.leader.rebalance.enable", quorum, "default.replication.factor"]
    assert settings == expected


def test_an_error_of_several_clients_lasts_from_its_first_response_to_its_last() -> None:
    errors = [
        error(
            time=START + n * SECOND, error_code=29, error="TOPIC_AUTHORIZATION_FAILED",
            client_id=f"app-{n // 5}", api="Produce", correlation_id=n,
        )
        for n in range(10)
    ]  # fmt: skip
    (finding,) = findings_of("recurring_errors", made(exchanges=[exchange()], errors=errors))
    assert "10 responses" in finding.evidence
    assert "within 9.0 s" in finding.evidence


def test_a_deleted_topic_is_one_finding() -> None:
    """Old versions have the name of a topic in a request, new ones its id (KIP-516)."""
    cases = [
        ("writer", "Produce", "UNKNOWN_TOPIC_ID", "orders", 100, 3),
        ("reader", "Fetch", "UNKNOWN_TOPIC_OR_PARTITION", "orders", 3, 4),
        ("reader", "OffsetCommit", "UNKNOWN_TOPIC_ID", "orders", 100, 1),
        ("writer", "Metadata", "UNKNOWN_TOPIC_OR_PARTITION", "orders", 3, 9),
        ("wrong", "Fetch", "UNKNOWN_TOPIC_OR_PARTITION", "order", 3, 3),
    ]
    errors = [
        error(
            time=START + n * SECOND, client_id=client, api=api, error=name, error_code=code,
            topic=topic, correlation_id=100 * number + n, retriable=True,
        )
        for number, (client, api, name, topic, code, count) in enumerate(cases)
        for n in range(count)
    ]  # fmt: skip
    tables = made(exchanges=[exchange()], errors=errors)
    deleted, wrong = findings_of("recurring_errors", tables)
    assert deleted.sentence == (
        "Requests of 2 clients (`writer`, `reader`) fail with UNKNOWN_TOPIC_ID, "
        "UNKNOWN_TOPIC_OR_PARTITION for topic `orders`"
    )
    assert "17 responses" in deleted.evidence
    assert "9 Metadata with UNKNOWN_TOPIC_OR_PARTITION, 4 Fetch" in deleted.evidence
    assert deleted.cause.startswith("the topic was deleted")
    assert wrong.clients == ("wrong",)


@pytest.mark.parametrize(
    ("api", "topics", "count"),
    [("Produce", ("a", "b"), 1), ("Heartbeat", (None,), 1), ("DeleteRecords", ("a", "b"), 2)],
)
def test_a_leader_or_coordinator_that_moves_is_one_finding_for_all_topics(
    api: str, topics: tuple[str | None, ...], count: int
) -> None:
    names = {"Produce": "NOT_ENOUGH_REPLICAS", "Heartbeat": "UNKNOWN_MEMBER_ID"}
    errors = [
        error(
            time=START + n * SECOND, api=api, error=names.get(api, "OFFSET_OUT_OF_RANGE"),
            topic=topic, correlation_id=n,
        )
        for topic in topics for n in range(3)
    ]  # fmt: skip
    findings = findings_of("recurring_errors", made(exchanges=[exchange()], errors=errors))
    assert len(findings) == count
    assert ("for 2 topics (`a`, `b`)" in findings[0].sentence) == (api == "Produce")


@pytest.mark.parametrize(
    ("name", "fires"), [("INVALID_REPLICATION_FACTOR", True), ("TOPIC_ALREADY_EXISTS", False)]
)
def test_topics_that_a_small_cluster_cannot_have(name: str, fires: bool) -> None:
    """The client tries to create a topic after the other."""
    errors = [
        error(api="CreateTopics", error=name, error_code=38, topic=f"t{n}", correlation_id=n,
              retriable=False)
        for n in range(3)
    ]  # fmt: skip
    rows = [exchange(api="CreateTopics", correlation_id=n) for n in range(3)]
    findings = findings_of("recurring_errors", made(exchanges=rows, errors=errors))
    assert ["for 3 topics (`t0`, `t1`, `t2`)" in each.sentence for each in findings] == [
        True
    ] * fires


@pytest.mark.parametrize(
    ("api", "name", "period_s", "severity"),
    [
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", 2, "critical"),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", 1, "warning"),
        ("OffsetCommit", "COORDINATOR_NOT_AVAILABLE", 2, "warning"),
        ("Produce", "NOT_ENOUGH_REPLICAS", 2, "critical"),
        ("Produce", "REQUEST_TIMED_OUT", 2, "critical"),
        ("DescribeConfigs", "REQUEST_TIMED_OUT", 2, "warning"),
    ],
)
@pytest.mark.parametrize("quick", [0, 40])
def test_brokers_that_do_not_serve_their_clients(
    api: str, name: str, period_s: int, severity: str, quick: int
) -> None:
    """All requests fail, or less than half of them."""
    times = [START + n * period_s * SECOND for n in range(20)]
    errors = [
        error(time=time, api=api, error=name, topic=None, retriable=True, correlation_id=n)
        for n, time in enumerate(times)
    ]  # fmt: skip
    rows = [
        exchange(api=api, correlation_id=n, request_time=time, response_time=time)
        for n, time in enumerate(times + times[:1] * quick)
    ]
    (finding,) = findings_of("recurring_errors", made(exchanges=rows, errors=errors))
    assert finding.severity == ("warning" if quick else severity)
    is_missing = api == "FindCoordinator"
    assert ("3 by default" in finding.cause) == is_missing
    assert ("fewer replicas are in sync" in finding.cause) == (api == "Produce")


@pytest.mark.parametrize(("topic", "names"), [("t", ["app", "lost"]), ("u", ["app"])])
def test_a_log_directory_that_is_offline(topic: str, names: list[str]) -> None:
    """A partition without other replicas has no leader until the broker is restarted."""
    failed = [
        error(api="Produce", error="KAFKA_STORAGE_ERROR", error_code=56, retriable=True,
              correlation_id=n, broker_ip="10.0.0.9", broker_port=9092)
        for n in range(3)
    ]  # fmt: skip
    later = [
        error(
            time=START + n * 2 * SECOND, error="LEADER_NOT_AVAILABLE", error_code=5, topic=topic,
            client_id="lost", retriable=True, correlation_id=n,
        )
        for n in range(20)
    ]  # fmt: skip
    rows = [exchange(api="Produce")] * 200 + [exchange(client_id="lost")] * 20
    findings = findings_of("recurring_errors", made(exchanges=rows, errors=failed + later))
    (finding,) = (each for each in findings if "log.dirs" in str(each.setting))
    assert sorted(finding.clients) == names
    assert finding.severity == ("critical" if topic == "t" else "warning")
    assert finding.evidence.endswith("The error comes from 10.0.0.9:9092.")
    assert len(findings) == 3 - len(names)


@pytest.mark.parametrize(
    ("topic", "number", "settings"),
    [
        ("t", 20, ["default.replication.factor"]),
        ("u", 20, ["auto.leader.rebalance.enable", "default.replication.factor"]),
        ("t", 19, ["auto.leader.rebalance.enable"]),
    ],
    ids=["no leader", "another topic", "an election"],
)
def test_clients_send_requests_to_the_last_leader(
    topic: str, number: int, settings: list[str]
) -> None:
    """The partition has no leader, and the broker that was the leader refuses them."""
    names = {"LEADER_NOT_AVAILABLE": ("Metadata", "t", number)}
    names["FENCED_LEADER_EPOCH"] = ("Fetch", topic, 200)
    errors = [
        error(time=START + n * SECOND, api=api, error=name, topic=about, retriable=True,
              correlation_id=n)
        for name, (api, about, count) in names.items() for n in range(count)
    ]  # fmt: skip
    findings = findings_of("recurring_errors", made(exchanges=[exchange()], errors=errors))
    assert sorted(str(each.setting) for each in findings) == settings


@pytest.mark.parametrize(("requests", "fires"), [(59, True), (60, False)])
def test_a_busy_transactional_producer_gets_concurrent_transactions(
    requests: int, fires: bool
) -> None:
    """Each transaction begins while the markers of the previous one are written (KIP-890)."""
    times = [START + n * SECOND for n in range(30)]
    errors = [
        error(
            time=time, api="AddPartitionsToTxn", error="CONCURRENT_TRANSACTIONS", correlation_id=n,
            retriable=True,
        )
        for n, time in enumerate(times)
    ]  # fmt: skip
    rows = [
        exchange(api="AddPartitionsToTxn", correlation_id=n, response_time=times[n % 30])
        for n in range(requests)
    ]
    findings = findings_of("recurring_errors", made(exchanges=rows, errors=errors))
    assert ["the markers of the previous transaction" in each.cause for each in findings] == [
        True
    ] * fires


@pytest.mark.parametrize("group", ["g", "h"])
def test_a_group_with_another_assignor(group: str) -> None:
    name = "INCONSISTENT_GROUP_PROTOCOL"
    refused = error(error=name, error_code=23, api="JoinGroup", retriable=False, topic=None)
    members = [
        {"client_id": "app", "group_id": "g", "error": name, "error_code": 23},
        {"client_id": "other", "group_id": group, "protocol": "roundrobin", "error_code": 0},
    ]
    tables = made(
        exchanges=[exchange(api="JoinGroup")], errors=[refused], connections=[connection()],
        memberships=members,
    )  # fmt: skip
    (finding,) = findings_of("recurring_errors", tables)
    assert finding.evidence.endswith(" Group `g` uses roundrobin.") == (group == "g")


def test_a_defect_of_the_broker_is_not_an_invalid_request() -> None:
    assert advice("Fetch", "UNKNOWN_SERVER_ERROR", False, None).side == "broker"
    assert advice("Fetch", "INVALID_REQUEST", False, None) == FINAL


def test_advice_is_for_errors_of_kafka() -> None:
    assert ADVICE.keys() <= {error.name for error in registry.error_codes().values()}


@pytest.mark.parametrize(
    ("failed", "cause"), [(25, "the client uses topics"), (24, "the application lists topics")]
)
def test_a_storm_of_requests_for_topics_that_do_not_exist(failed: int, cause: str) -> None:
    """Of 50 responses, some have an error; two have errors of two topics."""
    times = [START + n * SECOND // 10 for n in range(50)]
    rows = [exchange_at(time, correlation_id=n) for n, time in enumerate(times)]
    errors = [
        error(time=time, correlation_id=n, client_ip="10.0.0.1", topic=topic)
        for n, time in enumerate(times[:failed])
        for topic in ("a", "b")[: 1 + (n < 2)]
    ]
    links = [connection()]
    (finding,) = findings_of(
        "metadata_storm", made(exchanges=rows, errors=errors, connections=links)
    )
    assert finding.cause.startswith(cause)
    assert ("25 responses have an error about 2 topics." in finding.evidence) == (failed == 25)
