"""Findings about errors that clients cause, in responses on made rows."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.diagnosis.causes.error_advice import ADVICE, AFTER_END, NOT_RESET
from dissector.protocol import registry
from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of, rules
from tests.analysis.made_rows import SECOND, START, connection, error, exchange, exchange_at


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


def test_long_messages_of_the_broker_are_shortened() -> None:
    """A Produce response has a message for each record that the broker refuses (KIP-467)."""
    rows = [
        error(error_code=87, error="INVALID_RECORD", api="Produce", retriable=False,
              error_message=f"record {n}: " + 300 * "x", correlation_id=n)
        for n in range(5)
    ]  # fmt: skip
    tables = made(exchanges=[exchange(api="Produce")], errors=rows)
    (finding,) = findings_of("recurring_errors", tables)
    assert finding.evidence.endswith('x… (310 characters)"')
    assert len(finding.evidence) < 400


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


@pytest.mark.parametrize(
    ("api", "severity"),
    [("SaslHandshake", "critical"), ("SaslAuthenticate", "critical"), ("CreateTopics", "warning")],
)
def test_few_failed_logins_are_critical(api: str, severity: str) -> None:
    """Without a login, a client can do nothing."""
    rows = [exchange(connection_id=n, correlation_id=n, api=api) for n in range(3)]
    errors = [
        error(connection_id=n, correlation_id=n, api=api, error_code=33,
              error="UNSUPPORTED_SASL_MECHANISM", retriable=False)
        for n in range(3)
    ]  # fmt: skip
    (finding,) = findings_of("recurring_errors", made(exchanges=rows, errors=errors))
    assert finding.severity == severity


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


@pytest.mark.parametrize(
    ("failing", "name", "working", "change"),
    [
        ("Produce", "TOPIC_AUTHORIZATION_FAILED", "Produce", "DeleteAcls"),
        ("SaslAuthenticate", "SASL_AUTHENTICATION_FAILED", "Fetch", "AlterUserScramCredentials"),
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION", "Produce", "DeleteTopics"),
        ("Fetch", "UNKNOWN_TOPIC_ID", "Fetch", "DeleteTopics"),
    ],
)
@pytest.mark.parametrize("first", [3, 10], ids=["before", "after"])
def test_requests_that_succeeded_before_a_change(
    failing: str, name: str, working: str, change: str, first: int
) -> None:
    errors = [
        error(time=START + n * SECOND, api=failing, error=name, retriable=False, correlation_id=n,
              client_id="app", topic=None if failing == "SaslAuthenticate" else "t")
        for n in range(5, 9)
    ]  # fmt: skip
    where = {"topics": ["t"], "error_code": 0}
    served = [
        exchange_at(START + (first + n) * SECOND, api=working, client_id="app", **where)
        for n in range(2)
    ]
    changed = exchange_at(START + 4 * SECOND, api=change, client_id="admin", **where)
    later = {"api": "DeleteTopics", "client_id": "admin", "topics": ["other"], "error_code": 0}
    tables = made(
        exchanges=[*served, changed, exchange_at(START + 9 * SECOND // 2, **later)], errors=errors,
        connections=[connection(sasl_mechanism="SCRAM-SHA-256")],
    )  # fmt: skip
    (finding,) = findings_of("recurring_errors", tables)
    assert ("Before, 2 requests succeeded" in finding.evidence) == (first == 3)
    # A DeleteTopics is evidence without earlier successes, too; a CreateAcls is not.
    is_change = first == 3 or change == "DeleteTopics"
    assert (f"`admin` sent {change} at" in finding.evidence) == is_change


@pytest.mark.parametrize("client_id", ["it's", "", None])
@pytest.mark.parametrize("topic", ["it's", "\\", None])
@pytest.mark.parametrize(
    "name", ["TOPIC_AUTHORIZATION_FAILED", "SASL_AUTHENTICATION_FAILED", "UNKNOWN_TOPIC_ID"]
)
def test_names_of_refused_requests_may_be_any_text(
    name: str, topic: str | None, client_id: str | None
) -> None:
    """A capture may contain names that no broker accepts, and requests without a client id."""
    where = {"api": "Produce", "client_id": client_id}
    refused = where | {"error": name, "topic": topic, "retriable": False}
    errors = [error(time=START + n * SECOND, correlation_id=n, **refused) for n in range(5, 9)]
    served = exchange_at(START, topics=[topic] if topic else None, error_code=0, **where)
    (finding,) = findings_of(
        "recurring_errors",
        made(exchanges=[served], errors=errors, connections=[connection(sasl_mechanism="PLAIN")]),
    )
    is_known = client_id is not None and (topic is not None or name.startswith("SASL"))
    assert ("Before, 1 request succeeded" in finding.evidence) == is_known


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


@pytest.mark.parametrize(
    ("member_id", "group", "setting"),
    [(None, "h", "group.id"), ("", "h", "group.id"), ("m", "h", "max.poll.interval.ms"),
     (None, "g", "max.poll.interval.ms")],
)  # fmt: skip
@pytest.mark.parametrize("client_id", ["app", None, 'it\'s a "name"'])
def test_a_client_that_is_not_a_member_commits(
    client_id: str | None, member_id: str | None, group: str, setting: str
) -> None:
    """A consumer with assign() sends no member id. A member that was removed sends other requests
    for its group."""
    sent = {"api": "OffsetCommit", "client_id": client_id, "error_code": 25}
    requests = [
        exchange(correlation_id=n, group_id="g", member_id=member_id, **sent) for n in range(3)
    ]
    errors = [
        error(time=START + n * SECOND, correlation_id=n, error="UNKNOWN_MEMBER_ID", retriable=False,
              **sent)
        for n in range(3)
    ]  # fmt: skip
    beat = {"api": "Heartbeat", "client_id": client_id, "group_id": group, "error_code": 0}
    tables = made(exchanges=requests, errors=errors, memberships=[beat])
    (finding,) = findings_of("recurring_errors", tables)
    if client_id is not None:  # without an id, another client may be the member
        assert finding.setting == setting


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
    assert ("25 responses have an error about 2 topics (`a`, `b`)." in finding.evidence) == (
        failed == 25
    )


@pytest.mark.parametrize(
    ("topics", "names"),
    [(1, ["recurring_errors"]), (50, ["metadata_storm"]), (2, ["recurring_errors"] * 2)],
    ids=["one topic", "many topics", "two topics"],
)
def test_a_storm_is_part_of_the_finding_about_its_topic(topics: int, names: list[str]) -> None:
    times = [START + n * SECOND // 10 for n in range(50)]
    rows = [exchange_at(time, correlation_id=n) for n, time in enumerate(times)]
    errors = [
        error(time=time, correlation_id=n, topic=f"t-{n % topics}", retriable=True)
        for n, time in enumerate(times)
    ]
    reported = rules(
        "metadata_storm", "recurring_errors",
        exchanges=rows, errors=errors, connections=[connection()],
    )  # fmt: skip
    assert reported == names


@pytest.mark.parametrize(
    ("request_packet", "others", "file"),
    [
        (30, "b.pcap", " of a.pcap"),
        (None, "b.pcap", " of a.pcap"),
        (99, "b.pcap", ""),  # the response is in a later file
        (30, "a.pcap", ""),
    ],
)
def test_a_packet_of_several_files_has_the_name_of_its_file(
    request_packet: int | None, others: str, file: str
) -> None:
    """Packet numbers start at 1 in each file: that of the first error is not the smallest."""
    rows, errors = [], []
    for n, (name, packet) in enumerate([("a.pcap", 31), *[(others, 7)] * 9]):
        own = {"correlation_id": n, "api": "SaslHandshake"}
        rows.append(
            exchange_at(START + n * SECOND, capture=name, response_packet=packet,
                        request_packet=packet - 1 if n else request_packet, **own)
        )  # fmt: skip
        errors.append(
            error(time=START + n * SECOND, error="UNSUPPORTED_SASL_MECHANISM", error_code=33,
                  topic=None, retriable=False, **own)
        )  # fmt: skip
    links = [connection(sasl_mechanism="PLAIN")]
    tables = made(exchanges=rows, errors=errors, connections=links)
    (finding,) = findings_of("recurring_errors", tables)
    assert f"; the first is packet 31{file}. " in finding.evidence
    shown = file.removeprefix(" of ") or "CAPTURE"
    assert finding.evidence.endswith(f" `kafka-dissector show {shown} --packet 31`.")


@pytest.mark.parametrize("topic", [None, 'it\'s a "name"', "n" * 249])
@pytest.mark.parametrize("client_id", [None, 'admin\'s "id"', "n" * 300])
def test_the_client_that_deleted_a_topic(topic: str | None, client_id: str | None) -> None:
    """Another topic is deleted later, and of one request only the response was captured."""
    errors = [
        error(error_code=100, error="UNKNOWN_TOPIC_ID", api="Produce", retriable=True, topic=topic,
              time=START + n * SECOND)
        for n in range(1, 4)
    ]  # fmt: skip
    deleted = {"api": "DeleteTopics", "client_id": client_id, "topics": [topic]}
    tables = made(
        errors=errors,
        exchanges=[
            exchange(api="Produce"), exchange_at(START, **deleted),
            exchange_at(START + SECOND, **deleted | {"topics": ["other"]}),
            exchange(**deleted | {"request_time": None, "status": "request_missing"}),
        ],
    )  # fmt: skip
    (finding,) = findings_of("recurring_errors", tables)
    sender = f"Client `{client_id}`" if client_id else "A client without id"
    sent = f" {sender} sent DeleteTopics at "
    assert finding.evidence.count(sent) == (topic is not None)
