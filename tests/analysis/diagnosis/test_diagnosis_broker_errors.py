"""Findings about errors that brokers cause, in responses on made rows."""

from __future__ import annotations

import pytest

from analysis.diagnosis.causes.error_advice import FINAL, advice
from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of, rules
from tests.analysis.made_rows import (
    SECOND,
    START,
    advertised,
    connection,
    error,
    exchange,
    exchange_at,
    partition,
)


@pytest.mark.parametrize(
    ("errors", "expected"),
    [(2, ["no_response"]), (3, ["recurring_errors"])],
)
@pytest.mark.parametrize("api", ["Produce", "Metadata"])
def test_a_leader_waits_for_replicas_that_are_gone(
    api: str, errors: int, expected: list[str]
) -> None:
    """Until it removes them from the replicas in sync, producers get no response, also to requests
    behind the Produce."""
    waiting = [
        exchange_at(
            START, api=api, status="unanswered", correlation_id=n, connection_id=n,
        )
        for n in range(3)
    ]  # fmt: skip
    refused = [
        error(api="Produce", error_code=19, error="NOT_ENOUGH_REPLICAS", retriable=True,
              correlation_id=10 + n, broker_ip="10.0.0.9", broker_port=9092)
        for n in range(errors)
    ]  # fmt: skip
    links = [
        connection(connection_id=n, last_time=START + 30 * SECOND, closed="fin") for n in range(3)
    ]
    names = ("no_response", "recurring_errors")
    fired = rules(*names, exchanges=waiting, errors=refused, connections=links)
    assert fired == expected


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


@pytest.mark.parametrize(
    ("count", "wait_s", "period_s", "fires"),
    [(17, 0, 0.8, True), (4, 5, 5, True), (4, 0, 5, False), (17, 0, 5, False), (2, 15, 15, False)],
    ids=["back-off", "slow", "rare", "elections", "two"],
)
def test_errors_that_last_need_not_be_frequent(
    count: int, wait_s: int, period_s: float, fires: bool
) -> None:
    """A client retries once a second (KIP-580), and a coordinator waits for replicas for 5 s."""
    times = [START + int(n * period_s * SECOND) for n in range(1, count + 1)]
    moved = {"error": "NOT_COORDINATOR", "error_code": 16, "retriable": True}
    errors = [error(time=time, correlation_id=n, **moved) for n, time in enumerate(times)]
    rows = [
        exchange(correlation_id=n, request_time=time - wait_s * SECOND, response_time=time)
        for n, time in enumerate(times)
    ]
    fired = rules("recurring_errors", exchanges=rows, errors=errors)
    assert fired == ["recurring_errors"] * fires


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


def test_elections_of_the_metadata_quorum_are_not_those_of_brokers() -> None:
    settings = [
        advice("Fetch", error, True, topic).setting
        for error in ("NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE")
        for topic in ("__cluster_metadata", "orders")
    ]
    quorum = "controller.quorum.fetch.timeout.ms"
    expected = [quorum, "auto.leader.rebalance.enable", quorum, "default.replication.factor"]
    assert settings == expected


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


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(("topic", "names"), [("t", ["app", "lost"]), ("u", ["app"])])
def test_a_log_directory_that_is_offline(topic: str, names: list[str], count: int) -> None:
    """A partition without other replicas has no leader until the broker is restarted."""
    failed = [
        error(api="Produce", error="KAFKA_STORAGE_ERROR", error_code=56, retriable=True,
              correlation_id=n, broker_ip="10.0.0.9", broker_port=9092)
        for n in range(count)
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
        ("t", 9, ["auto.leader.rebalance.enable"]),
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


def test_a_defect_of_the_broker_is_not_an_invalid_request() -> None:
    assert advice("Fetch", "UNKNOWN_SERVER_ERROR", False, None).side == "broker"
    assert advice("Fetch", "INVALID_REQUEST", False, None) == FINAL


def test_a_topic_that_exists_may_be_what_the_client_wants() -> None:
    """A task of MirrorMaker 2 requests the creation of its offsets topic, and goes on."""
    rows = [exchange(api="CreateTopics", correlation_id=n) for n in range(3)]
    errors = [
        error(api="CreateTopics", error="TOPIC_ALREADY_EXISTS", error_code=36, correlation_id=n,
              topic="mm2-offsets.a.internal", retriable=False)
        for n in range(3)
    ]  # fmt: skip
    (finding,) = findings_of("recurring_errors", made(exchanges=rows, errors=errors))
    assert "to be sure that it exists" in finding.cause
    assert "harmless" in finding.change


@pytest.mark.parametrize(
    ("name", "ids", "is_shared", "setting"),
    [
        ("REBOOTSTRAP_REQUIRED", (1, 2), True, "advertised.listeners"),
        ("REBOOTSTRAP_REQUIRED", (1,), False, "advertised.listeners"),
        ("NOT_LEADER_OR_FOLLOWER", (1, 2), True, "advertised.listeners"),
        ("NOT_LEADER_OR_FOLLOWER", (1,), False, "auto.leader.rebalance.enable"),
        ("NOT_COORDINATOR", (1, 2), True, "advertised.listeners"),
        ("NOT_ENOUGH_REPLICAS", (1, 2), False, "min.insync.replicas"),
    ],
)
def test_brokers_that_advertise_one_address(
    name: str, ids: tuple[int, ...], is_shared: bool, setting: str
) -> None:
    """Behind a load balancer, each connection reaches any of them (KIP-1242)."""
    times = [START + n * SECOND for n in range(30)]
    errors = [error(time=time, error=name, correlation_id=n) for n, time in enumerate(times)]
    rows = [exchange(correlation_id=n, request_time=time) for n, time in enumerate(times)]
    brokers = [advertised("kafka.internal", broker_id=id) for id in ids]
    tables = made(exchanges=rows, errors=errors, brokers=brokers)
    (finding,) = findings_of("recurring_errors", tables)
    assert finding.setting == setting
    shared = " Brokers 1, 2 advertise the same address: kafka.internal:9092."
    assert finding.evidence.endswith(shared) == is_shared


@pytest.mark.parametrize(("api", "is_named"), [("InitProducerId", True), ("Heartbeat", False)])
def test_a_broker_without_producer_ids(api: str, is_named: bool) -> None:
    """Kafka's RPCProducerIdManager has this error until the controller gives it a block."""
    given = advice(api, "COORDINATOR_LOAD_IN_PROGRESS", retriable=True, topic=None)
    assert ("no producer ids left" in given.cause) == is_named


@pytest.mark.parametrize(
    ("ids", "changes"),
    [("AB", True), ("AAB", True), ("AABAB", False), ("A", False), ("", False)],
    ids=["created again", "later", "load balancer", "one cluster", "no id"],
)
def test_an_address_that_leads_to_another_cluster(ids: str, changes: bool) -> None:
    """KIP-78: the id of a cluster is that of its log directories."""
    rows = [
        {"connection_id": 0, "broker_ip": "10.0.0.9", "broker_port": 9092, "api": "Metadata",
         "time": START + n * SECOND, "cluster_id": cluster_id}
        for n, cluster_id in enumerate(ids)
    ]  # fmt: skip
    errors = [error(time=START + n * SECOND, correlation_id=n, api="Produce") for n in range(9, 15)]
    topics = [
        {
            "connection_id": 0,
            "correlation_id": n,
            "time": START,
            "topic": "t",
            "topic_id": f"id-{n}",
        }
        for n in range(2)
    ]
    tables = made(exchanges=[exchange()], errors=errors, clusters=rows, topics=topics)
    (finding,) = findings_of("recurring_errors", tables)
    (note,) = findings_of("coverage", tables)
    for each in (finding, note):
        assert ("10.0.0.9:9092 was in cluster A until" in each.evidence) == changes
    assert ("leads to another cluster than before" in finding.cause) == changes


@pytest.mark.parametrize(("replica_id", "count"), [(2, 1), (None, 2)])
@pytest.mark.parametrize("name", ["broker-2-fetcher-0", "it's", None])
def test_a_follower_without_the_right_to_fetch(
    name: str | None, replica_id: int | None, count: int
) -> None:
    """It needs ClusterAction, but the leader names the topics (KafkaApis.handleFetchRequest)."""
    refused = {"api": "Fetch", "client_id": name, "error": "TOPIC_AUTHORIZATION_FAILED"}
    errors = [
        error(time=START + n * SECOND, correlation_id=n, topic=topic, retriable=False, **refused)
        for n in range(3) for topic in ("a", "b")
    ]  # fmt: skip
    rows = [exchange(api="Fetch", client_id=name)]
    fetched = partition("Fetch", client_id=name, replica_id=replica_id)
    findings = findings_of(
        "recurring_errors", made(exchanges=rows, errors=errors, partitions=[fetched])
    )
    settings = [each.setting for each in findings]
    assert settings == (["super.users"] if replica_id else [None] * count)
