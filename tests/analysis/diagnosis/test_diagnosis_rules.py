"""Each rule reports what happens in a recording, and nothing in healthy ones.

The numbers are those of the broker's request log, of the recorder, or of the finding's command.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pandas as pd
import pytest

from analysis.answers import ANSWERS
from analysis.diagnosis.catalog import RULES
from analysis.diagnosis.run import ADVISORY, DIAGNOSIS_TABLES
from analysis.display.terminal import local_date, time_text
from analysis.sql.query import connected
from dissector.tables import TABLES
from tests.analysis.answering import broker_log
from tests.analysis.diagnosis.diagnosing import (
    arrow_tables,
    finding_of,
    findings,
    findings_of,
    rows_of,
    rule_findings,
)
from tools.record.kafka.truth import read

FIRES = {
    "failed_connections": "kafka-4-unbalanced",
    "failed_handshakes": "kafka-4-handshakes",
    "throttling": "kafka-4-quotas",
    "network_time": "kafka-4-net-delay",
    "retransmissions": "kafka-4-net-loss",
    "slow_broker": "kafka-4-paused",
    "queueing": "kafka-4-queued",
    "no_response": "kafka-4-paused",
    "recurring_errors": "kafka-4-errors",
    "stuck_transactions": "kafka-4-misused",
    "fenced_producers": "kafka-4-transactions",
    "rebalances": "kafka-4-misused",
    "growing_lag": "kafka-4-misused",
    "connection_churn": "kafka-4-misused",
    "metadata_storm": "kafka-4-list-topics",
    "small_batches": "kafka-4-misused",
    "fetches": "kafka-4-misused",
    "frequent_commits": "kafka-4-kafka-go",
    "wrong_timestamps": "kafka-4-dated",
    "partition_skew": "kafka-4-misused",
    "removed_versions": "kafka-3-java-0-9",
    "plain_credentials": "kafka-4-sasl",
    "compression": "kafka-4-misused",
    "coverage": "kafka-4-tls",
    "zero_windows": "kafka-4-slow-reader",
    "leader_skew": "kafka-4-unbalanced",
    "late_followers": "kafka-4-replicated",
    "lost_records": "kafka-4-unclean",
}
"""A recording for each rule."""

HEALTHY = (
    "kafka-4-connect", "kafka-4-librdkafka", "kafka-4-franz-go", "kafka-4-group-eager",
    "kafka-4-group-consumer", "kafka-4-group-streams", "kafka-4-cut", "kafka-4-steady",
    "kafka-4-disk", "kafka-3-java-3-5", "bulk-tansu",
)  # fmt: skip


def test_each_rule_has_a_recording() -> None:
    assert FIRES.keys() == RULES.keys()


@pytest.mark.parametrize("rule", FIRES)
def test_a_rule_reports_what_happens(rule: str) -> None:
    assert {row["rule"] for row in rule_findings(FIRES[rule], rule)} == {rule}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_captures_have_notes_only(name: str) -> None:
    assert [row["sentence"] for row in findings(name) if row["severity"] != "note"] == []


@pytest.mark.parametrize(("rule", "name"), [*FIRES.items(), ("network_time", "kafka-4-slow-link")])
def test_numbers_are_in_a_row_of_the_command(rule: str, name: str) -> None:
    with connected(arrow_tables(name), DIAGNOSIS_TABLES) as tables:
        for finding in rule_findings(name, rule):
            rows = rows_of(name, finding["command"], tables)
            numbers = finding["numbers"]
            assert any(
                all(row[column] == pytest.approx(value) for column, value in numbers.items())
                for row in rows
            ), numbers


def test_findings_are_ordered_by_severity_and_share() -> None:
    rows = findings("kafka-4-misused")
    ranks = ["critical", "warning", "note"]
    keys = [
        (ranks.index(row["severity"]), row["rule"] in ADVISORY, -row["share_percent"])
        for row in rows
    ]
    assert keys == sorted(keys)
    assert all(0 <= row["share_percent"] <= 100 for row in rows)


@pytest.mark.parametrize("client", ["producer", "consumer"])
def test_throttle_times_are_those_of_the_broker(client: str) -> None:
    log = broker_log("kafka-4-quotas")
    numbers = finding_of("kafka-4-quotas", "throttling", client)["numbers"]
    throttled = log[(log["client_id"] == client) & (log["throttle_time_ms"] > 0)]
    assert numbers["total_ms"] == throttled["throttle_time_ms"].sum()
    assert numbers["responses"] == len(throttled)
    assert numbers["longest_ms"] == throttled["throttle_time_ms"].max()


def test_brokers_that_refuse_connections_are_those_that_were_stopped() -> None:
    events = [row for row in read("kafka-4-unbalanced") if row["source"] == "recorder"]
    stopped = {row["node"]: row["time"] for row in events if row["event"] == "stopped"}
    rows = rule_findings("kafka-4-unbalanced", "failed_connections")
    ports = {int(row["numbers"]["broker"].rpartition(":")[2]): row for row in rows}
    assert ports.keys() == {9091 + 2, 19091 + 1}  # clients of node 2, and the controller, node 1
    assert {row["severity"] for row in rows} == {"critical"}
    assert ports[9093]["first_time"].value > stopped[2]
    assert "29 attempts came after the last connection that it accepted" in ports[9093]["evidence"]


def test_a_throttled_producer_is_reported_once() -> None:
    rows = [row["rule"] for row in findings("kafka-4-steady-quota") if row["severity"] != "note"]
    assert rows == ["throttling"]
    assert finding_of("kafka-4-steady-quota", "throttling")["clients"] == ("shop",)


def test_zero_windows_are_those_of_the_kernel() -> None:
    """Linux counts all windows that the hosts of a recording closed."""
    (counted,) = (
        row["TCPToZeroWindowAdv"]
        for row in read("kafka-4-slow-reader")
        if row.get("event") == "counted"
    )
    finding = finding_of("kafka-4-slow-reader", "zero_windows", "slow-reader")
    rows = rows_of("kafka-4-slow-reader", finding["command"])
    assert sum(row["client_zero_windows"] + row["broker_zero_windows"] for row in rows) == counted
    assert finding["numbers"]["client_zero_windows"] == counted - 1  # tshark: one is the broker's
    assert finding["side"] == "client"


def test_the_leader_of_all_partitions_is_that_of_an_admin_client() -> None:
    rows = read("kafka-4-unbalanced")
    leaders = Counter(row["leader"] for row in rows if row.get("event") == "described")
    numbers = finding_of("kafka-4-unbalanced", "leader_skew")["numbers"]
    assert leaders == {numbers["broker_id"]: numbers["leads"]} == {1: 12}


def test_the_round_trip_is_that_of_the_network() -> None:
    finding = finding_of("kafka-4-net-delay", "network_time", "producer")
    assert 160 <= finding["numbers"]["rtt_ms"] < 165  # 80 ms each way
    assert finding["side"] == "network"


def test_the_slow_broker_is_the_stopped_one() -> None:
    assert finding_of("kafka-4-paused", "slow_broker")["subject"] == "broker 127.0.0.1:9093"
    finding = finding_of("kafka-4-paused", "no_response")
    assert finding["numbers"]["broker"] == "127.0.0.1:9093"
    assert finding["clients"] == ("hasty",)


def test_a_pause_of_a_broker_is_that_of_the_recorder() -> None:
    events = {row.get("event"): row["time"] for row in read("kafka-4-resent")}
    tables = arrow_tables("kafka-4-resent")
    (finding,) = findings_of("slow_broker", tables, pause_ms=1000)
    assert finding.sentence.startswith("Broker 127.0.0.1:9092 sent no response for 1.5 s")
    assert finding.first_time == pytest.approx(events["paused"], abs=10**8)
    assert finding.last_time == pytest.approx(events["resumed"], abs=10**8)
    assert findings_of("slow_broker", tables, pause_ms=2000) == []


def test_a_slow_disk_is_in_the_log_of_the_broker() -> None:
    log = broker_log("kafka-4-disk-slow")
    logged = log[log["api"] == "PRODUCE"]
    assert logged["local_ms"].sum() > 0.9 * logged["total_ms"].sum()
    numbers = finding_of("kafka-4-disk-slow", "slow_broker")["numbers"]
    assert (numbers["api"], numbers["count"]) == ("Produce", len(logged))
    assert numbers["net_p50_ms"] == pytest.approx(logged["total_ms"].median(), rel=0.01)
    assert numbers["net_p95_ms"] == pytest.approx(logged["total_ms"].quantile(0.95), rel=0.01)


def test_the_time_of_a_slow_broker_is_that_of_its_slow_requests() -> None:
    log = broker_log("kafka-4-disk-slow").query("api == 'PRODUCE' and total_ms >= 100")
    finding = finding_of("kafka-4-disk-slow", "slow_broker")
    ended, last_took = log["time"] / 1e6, log["total_ms"].iloc[0]
    assert finding["first_time"].value / 1e6 == pytest.approx(ended.iloc[0] - last_took, abs=20)
    assert finding["last_time"].value / 1e6 == pytest.approx(ended.iloc[-1], abs=20)


@pytest.mark.parametrize("rule", sorted(FIRES.keys() - {"coverage", "compression", "leader_skew"}))
def test_findings_have_a_time(rule: str) -> None:
    """Except for those about the whole capture."""
    packets = arrow_tables(FIRES[rule])["connections"].to_pandas()
    first, last = packets["first_time"].min(), packets["last_time"].max()
    for row in rule_findings(FIRES[rule], rule):
        begin, end = row["first_time"], row["last_time"]
        assert first <= begin <= last
        assert pd.isna(end) or begin <= end <= last


def test_connections_of_a_client_that_reconnects_open_one_after_the_other() -> None:
    finding = finding_of("kafka-4-misused", "connection_churn")
    log = broker_log("kafka-4-misused").query("client_id == 'reconnecting'")
    assert (log["time"].min() - finding["first_time"].value) / 1e9 == pytest.approx(0, abs=0.1)
    assert (log["time"].max() - finding["last_time"].value) / 1e9 == pytest.approx(0, abs=0.1)


def test_the_controllers_of_a_cluster_are_not_compared_with_its_brokers() -> None:
    rules = {row["rule"] for row in findings("kafka-4-unbalanced")}
    assert rules == {"failed_connections", "leader_skew"}


def test_clients_that_send_message_sets_are_only_old() -> None:
    """Each message has a header of its own; a compressed one of kafka-node has the timestamp 0."""
    assert {row["rule"] for row in findings("kafka-3-node")} == {"removed_versions"}


@pytest.mark.parametrize(
    ("rule", "client", "api", "column"),
    [
        ("small_batches", "hurried", "PRODUCE", "requests"),
        ("fetches", "impatient", "FETCH", "requests"),
        ("fetches", "steady", "FETCH", "requests"),
    ],
)
def test_requests_are_those_that_the_broker_logged(
    rule: str, client: str, api: str, column: str
) -> None:
    log = broker_log("kafka-4-misused")
    logged = log[(log["client_id"] == client) & (log["api"] == api)]
    finding = finding_of("kafka-4-misused", rule, client)
    assert len(logged) - 2 <= finding["numbers"][column] <= len(logged)  # in flight at the end


def test_the_queue_is_what_the_broker_does_not_log() -> None:
    """The broker reads a request when it has sent the response to the one before it."""
    log = broker_log("kafka-4-queued")
    asked = log[(log["client_id"] == "querying") & (log["api"] != "FETCH")]
    finding = finding_of("kafka-4-queued", "queueing", "querying")
    assert finding["requests"] == len(asked)
    assert finding["numbers"]["count"] == (asked["api"] == "LIST_OFFSETS").sum()
    averages = re.search(r"waited ([\d.]+) ms each .* latency of ([\d.]+) ms", finding["evidence"])
    assert averages is not None
    waited, latency = map(float, averages.groups())
    assert waited == pytest.approx(latency - asked["total_ms"].mean(), rel=0.02)


def test_connections_are_those_that_the_broker_logged() -> None:
    log = broker_log("kafka-4-misused")
    ports = log.loc[log["client_id"] == "reconnecting", "client"].nunique()
    finding = finding_of("kafka-4-misused", "connection_churn")
    assert abs(finding["numbers"]["connections"] - ports) <= 2
    assert finding["clients"] == ("reconnecting",)


def test_metadata_requests_are_those_that_the_broker_logged() -> None:
    log = broker_log("kafka-4-list-topics")
    logged = log[(log["client_id"] == "monitor") & (log["api"] == "METADATA")]
    finding = finding_of("kafka-4-list-topics", "metadata_storm")
    assert finding["numbers"]["metadata_requests"] == len(logged)


def test_commits_are_those_that_the_broker_logged() -> None:
    log = broker_log("kafka-4-kafka-go")
    logged = log[(log["client_id"] == "consumer") & (log["api"] == "OFFSET_COMMIT")]
    finding = finding_of("kafka-4-kafka-go", "frequent_commits")
    assert finding["numbers"]["count"] == len(logged) == 100  # as many as records
    assert 0 <= finding["numbers"]["p50_ms"] - logged["total_ms"].median() < 1  # ms in sockets
    assert "after each record" in finding["sentence"]


def test_skipped_records_are_those_that_a_consumer_did_not_read() -> None:
    rows = [row for row in read("kafka-4-expired") if row.get("event") == "received"]
    offsets = [row["offset"] for row in rows]
    ((last, first),) = [each for each in pairwise(offsets) if each[1] != each[0] + 1]
    finding = finding_of("kafka-4-expired", "recurring_errors", "reader")
    skipped = f"skipped up to {first - last - 1} records: from offset {last + 1} to {first} of"
    assert skipped in finding["evidence"]


def test_timestamps_are_those_that_a_reader_printed() -> None:
    rows = [row for row in read("kafka-4-dated") if row.get("event") == "received"]
    created = {row["value"].split()[0]: row["created"] * 1_000_000 for row in rows}
    shown = {row["clients"][0]: row for row in rule_findings("kafka-4-dated", "wrong_timestamps")}
    assert shown.keys() == {"seconds", "ahead"} < created.keys()
    last = time_text(created["ahead"], 3)
    assert f"The latest timestamp is {last} UTC" in shown["ahead"]["evidence"]
    assert shown["ahead"]["sentence"].endswith("`events` that are dated up to 48.0 h in the future")
    assert f"that are dated {local_date(created['seconds'])}" in shown["seconds"]["sentence"]


def test_lost_records_are_those_that_the_broker_truncated() -> None:
    rows = read("kafka-4-unclean")
    messages = [row["message"] for row in rows if row["source"] == "truncation"]
    offset = int(re.findall(r"Truncating partition orders-0 .*offset=(\d+)", messages[-1])[0])
    ends = [int(re.findall(r"topic=orders, .*logEndOffset=(\d+)", each)[0]) for each in
            messages if "topic=orders" in each]  # fmt: skip
    finding = finding_of("kafka-4-unclean", "lost_records", "writer")
    assert finding["sentence"].startswith(f"{ends[-1] - offset} acknowledged records of topic")
    assert f"offsets {offset} to {ends[-1] - 1} until" in finding["evidence"]
    received = [row for row in rows if row.get("event") == "received"]
    assert 300 - len(received) == ends[-1] - offset  # of 300 records that the writer sent
    batches = rows_of("kafka-4-unclean", finding["command"])
    assert {row["base_offset"] for row in batches} == {*range(offset, ends[-1])}


def test_errors_are_those_that_the_broker_logged() -> None:
    log = broker_log("kafka-4-errors")
    logged = Counter(code for codes in log["errors"].dropna() for code in set(codes))
    finding = finding_of("kafka-4-errors", "recurring_errors", "alone")
    assert finding["numbers"]["error"] == "NOT_ENOUGH_REPLICAS"
    assert finding["numbers"]["responses"] == logged[19]


def test_a_consumer_that_skips_records_once() -> None:
    log = broker_log("kafka-4-java").query("client_id == 'out-of-range'")
    finding = finding_of("kafka-4-java", "recurring_errors", "out-of-range")
    assert finding["numbers"]["responses"] == sum(1 in codes for codes in log["errors"].dropna())
    assert "offset 1,000,000 of partition 0, whose last known end is 45" in finding["evidence"]
    assert "after the end" in finding["cause"]  # the application seeks there


def test_a_group_that_exceeds_max_poll_interval() -> None:
    finding = finding_of("kafka-4-misused", "rebalances")
    assert finding["subject"] == "group `workers`"
    assert finding["setting"] == "max.poll.interval.ms"
    rows = read("kafka-4-misused")
    messages = [row["message"] for row in rows if row["source"] == "coordinator"]
    logged = [text for text in messages if "Stabilized group workers generation" in text]
    assert f"rebalanced {len(logged):,} times" in finding["sentence"]


def test_a_group_that_waits_for_a_busy_member() -> None:
    rows = [row for row in read("kafka-4-group-busy") if row["source"] == "coordinator"]
    began, ended = (
        next(row["time"] for row in rows if text in row["message"])
        for text in ("workers in state PreparingRebalance with old generation 1",
                     "for group workers for generation 2")
    )  # fmt: skip
    finding = finding_of("kafka-4-group-busy", "rebalances", "busy")
    assert finding["numbers"]["duration_ms"] == pytest.approx((ended - began) / 1e6, abs=10)
    assert "because client `waiting` joined. Client `busy` joined 12.6 s" in finding["evidence"]
    assert finding["setting"] == "max.poll.records"


def test_the_lag_grows_because_of_the_consumer() -> None:
    finding = finding_of("kafka-4-misused", "growing_lag")
    assert finding["clients"] == ("slow",)
    assert finding["side"] == "client"


def test_commits_to_a_topic_that_was_created_again_fail_until_the_client_gives_up() -> None:
    """commitSync retries for default.api.timeout.ms (60 s), with the id of the old topic."""
    log = broker_log("kafka-4-recreated")
    commits = log[(log["client_id"] == "stayer") & (log["api"] == "OFFSET_COMMIT")]
    failed = [errors for errors in commits["errors"].dropna() if 100 in errors]
    finding = finding_of("kafka-4-recreated", "recurring_errors", "stayer")
    assert finding["numbers"]["error"] == "UNKNOWN_TOPIC_ID"
    assert finding["numbers"]["responses"] == len(failed)
    assert finding["cause"].startswith("the topic was deleted")


def test_a_key_with_one_value() -> None:
    finding = finding_of("kafka-4-misused", "partition_skew")
    log = broker_log("kafka-4-misused")
    hurried = log[(log["client_id"] == "hurried") & (log["api"] == "PRODUCE")]
    assert finding["numbers"]["produced_records"] >= len(hurried)  # one record for each request
    assert finding["numbers"]["topic"] == "orders"


def test_an_open_transaction() -> None:
    finding = finding_of("kafka-4-misused", "stuck_transactions")
    assert finding["severity"] == "critical"
    assert finding["numbers"]["transactional_id"] == "forgetful"
    assert finding["numbers"]["outcome"] == "open"


KIP_896 = {"PRODUCE": 3, "FETCH": 4, "LIST_OFFSETS": 1, "OFFSET_COMMIT": 2}
"""First version that Kafka 4.0 supports."""


def test_versions_are_those_that_the_broker_logged() -> None:
    log = broker_log("kafka-3-java-0-9")
    old = log[(log["api"] == "PRODUCE") & (log["version"] < 3)]
    finding = finding_of("kafka-3-java-0-9", "removed_versions", "producer-none-1")
    assert set(finding["clients"]) == set(old["client_id"])


@pytest.mark.parametrize(
    ("client", "setting"), [("slow", "transaction.timeout.ms"), ("same", "transactional.id")]
)
def test_the_broker_or_a_successor_fences_a_producer(client: str, setting: str) -> None:
    """The recorder lets the transaction of `slow` time out, and starts two producers as `same`."""
    finding = finding_of("kafka-4-transactions-old", "fenced_producers", client)
    assert finding["setting"] == setting
    assert ("the epoch rose" in finding["evidence"]) == (client == "same")


def test_the_sentence_lists_all_effects_on_an_old_client() -> None:
    log = broker_log("kafka-3-pykafka")
    old = log[(log["client_id"] == "pykafka") & (log["version"] < log["api"].map(KIP_896))]
    finding = finding_of("kafka-3-pykafka", "removed_versions", "pykafka")
    assert len(old) == finding["requests"]
    assert set(finding["sentence"].partition(": ")[2].split(", ")) == {
        "cannot produce", "cannot consume", "cannot commit offsets",
        "cannot find the first or last offset of a partition",
    }  # fmt: skip


def test_brokers_with_zookeeper_are_no_old_clients() -> None:
    finding = finding_of("kafka-3-zookeeper", "removed_versions")
    assert finding["clients"] == ("1", "2")  # the ids of the brokers
    assert "ZooKeeper" in finding["cause"]
    assert finding["side"] == "broker"


def test_brokers_with_zookeeper_are_one_finding() -> None:
    """Followers, the controller, and brokers that shut down have different client ids."""
    (finding,) = (
        each for each in rule_findings("kafka-0-8", "removed_versions") if each["side"] == "broker"
    )
    controller = "id_1-host_127.0.0.1-port_9092"
    assert {"ReplicaFetcherThread-0-2", controller} <= {*finding["clients"]}


def test_a_new_client_cannot_use_an_old_broker() -> None:
    """The recorder starts Java clients 4.4 with brokers of 0.10.2."""
    log = broker_log("kafka-0-10").query("client_id in ('newer-producer', 'newer-consumer')")
    assert not len(log.query("api in ('PRODUCE', 'FETCH')"))
    finding = finding_of("kafka-0-10", "removed_versions", "newer-producer")
    assert "can neither produce nor consume" in finding["sentence"]
    assert finding["clients"] == ("newer-consumer", "newer-producer")
    assert finding["requests"] == len(log)
    rows = rule_findings("kafka-2-3", "removed_versions")  # the same clients, with newer brokers
    assert not any("newer-consumer" in row["clients"] for row in rows)


def test_a_broker_closes_the_connection_at_an_api_that_it_does_not_know() -> None:
    """Kafka 0.8 has no JoinGroup (KIP-40): the group does not wait for members."""
    assert "JOIN_GROUP" not in set(broker_log("kafka-0-8")["api"])
    finding = finding_of("kafka-0-8", "no_response", "newer-consumer")
    assert "closes the connection at JoinGroup 0" in finding["sentence"]
    assert finding["numbers"]["connections"] == finding["requests"] == 5
    assert not rule_findings("kafka-0-8", "rebalances")


def test_a_client_without_sasl_is_that_of_the_broker_log() -> None:
    rows = [row for row in read("kafka-4-no-sasl") if row["source"] == "security"]
    closed = [row for row in rows if "Unexpected error from" in row["message"]]
    finding = finding_of("kafka-4-no-sasl", "no_response", "reader")
    assert finding["evidence"].startswith(f"{len(closed)} connections without SASL ended")
    assert finding["setting"] == "security.protocol"
    assert "connection_churn" not in {row["rule"] for row in findings("kafka-4-no-sasl")}


@pytest.mark.parametrize(
    ("client", "rule", "evidence", "setting"),
    [
        ("newcomer", "recurring_errors", "OffsetFetch responses", "auto.offset.reset"),
        ("modern", "recurring_errors", "OffsetFetch responses", "auto.offset.reset"),
        (
            "old",
            "no_response",
            "connections were closed at the first request",
            "connections.max.reauth.ms",
        ),
    ],
)
def test_clients_that_fail_without_an_error_code(
    client: str, rule: str, evidence: str, setting: str
) -> None:
    """Their logs have an exception for each case."""
    (log,) = (row for row in read("kafka-4-silent") if row.get("client_id") == client
              and row["source"] == "recorder")  # fmt: skip
    finding = finding_of("kafka-4-silent", rule, client)
    assert finding["evidence"].startswith(f"{log['exceptions']} {evidence}")
    assert finding["setting"] == setting
    assert "connection_churn" not in {row["rule"] for row in findings("kafka-4-silent")}


def test_the_mechanisms_of_a_listener_are_in_its_response() -> None:
    finding = finding_of("kafka-3-logins", "recurring_errors", "with-other-mechanism")
    packet = finding["first_packet"]
    assert finding["evidence"].endswith(
        " Requested: SCRAM-SHA-512. The response contains the mechanisms of the listener: "
        f"`kafka-dissector show CAPTURE --packet {packet}`."
    )
    assert finding["setting"] == "sasl.mechanism"


def test_records_that_a_share_group_gets_again_are_those_that_its_member_releases() -> None:
    released = [row for row in read("kafka-4-group-poison") if row.get("event") == "released"]
    offsets = {row["offset"] for row in released}
    assert len(released) == 5 * len(offsets)
    finding = finding_of("kafka-4-group-poison", "growing_lag")
    assert finding["evidence"] == (
        f"{len(offsets)} batches have a record that members got at least 5 times; the first batch "
        f"has offset {min(offsets)} of partition 0."
    )


def test_a_response_that_takes_longer_than_the_client_waits() -> None:
    """The broker logs a response when it has passed it to the kernel."""
    log = broker_log("kafka-4-slow-link").query("api == 'FETCH' and record_bytes > 0")
    finding = finding_of("kafka-4-slow-link", "no_response", "reader")
    assert 3 <= finding["requests"] <= len(log)
    assert 0 < finding["numbers"]["response_bytes"] - log["record_bytes"].max() < 200
    assert log["send_ms"].max() < 100  # the broker is not slow
    assert finding["severity"] == "critical"


def test_credentials_in_clear_text() -> None:
    sasl = rule_findings("kafka-4-sasl", "plain_credentials")
    assert {row["severity"] for row in sasl} == {"critical"}
    named = {client for row in sasl for client in row["clients"]}
    assert {"java-PLAIN", "rdkafka-PLAIN", "java-OAUTHBEARER"} <= named
    assert not any("SCRAM" in client for client in named)
    assert rule_findings("kafka-4-tls", "plain_credentials") == []


def test_each_rule_is_documented() -> None:
    for name, rule in RULES.items():
        assert rule.question.endswith("?"), name
        assert {*rule.rests_on} <= {*ANSWERS, *TABLES}
        assert all(each.reason.endswith(".") for each in rule.thresholds), name
    places = [rule.place for rule in RULES.values()]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("rule", FIRES)
def test_a_finding_is_complete(rule: str) -> None:
    for row in rule_findings(FIRES[rule], rule):
        for column in ("sentence", "evidence", "cause", "change", "reference", "command"):
            assert row[column], column
        assert row["evidence"].endswith((".", '"')), row["evidence"]
        assert row["change"].endswith("."), row["change"]
        assert not row["sentence"].endswith("."), row["sentence"]
        assert row["numbers"]
        assert pd.isna(row["first_time"]) or row["first_time"].tzname() == "UTC"
