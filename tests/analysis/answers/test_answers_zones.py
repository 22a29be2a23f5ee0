"""Zones agree with the brokers' request logs, and with the replicas that consumers report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import analysis
from analysis.answers import ANSWERS
from dissector.errors import DissectorError
from tests.analysis.answering import broker_log, capture, made
from tests.analysis.made_rows import connection, exchange, partition
from tools.record.kafka.truth import read

NAME = "kafka-4-racks"
ZONES = {"10.1.0.0/24": "near", "10.2.0.0/24": "far"}


def rows(name: str = NAME, **options: Any) -> pd.DataFrame:
    return analysis.zones(capture(name, ANSWERS["zones"].tables), **options)


def consumers(**options: Any) -> dict[str, dict[str, Any]]:
    table = rows(show="consumers", **options)
    return {row["client_id"]: row for row in table.to_dict("records")}


def zone(endpoint: str) -> str:
    return "near" if endpoint.startswith("10.1.0.") else "far"


def test_pairs_of_zones_are_those_of_the_broker_log() -> None:
    log = broker_log(NAME)
    # The controller does not log the Fetches that its end interrupts.
    log = log[log["record_bytes"].notna() & ~log["broker"].str.endswith(":19092")]
    expected = log.groupby([log["client"].map(zone), log["broker"].map(zone)])["record_bytes"].sum()
    table = rows(zones=ZONES, by=("client_zone", "broker_zone", "broker"))
    assert table["percent"].sum() == pytest.approx(100)
    table = table[~table["broker"].str.endswith(":19092")]
    actual = table.groupby(["client_zone", "broker_zone"])["record_bytes"].sum()
    assert actual.to_dict() == expected.to_dict()


def test_consumers_read_from_the_replica_that_they_report() -> None:
    reported = {
        fact["client_id"]: fact["metrics"] for fact in read(NAME) if fact.get("event") == "measured"
    }
    log = broker_log(NAME).query("api == 'FETCH'").groupby("client_id")["record_bytes"].sum()
    actual = consumers(zones=ZONES)
    assert actual.keys() == reported.keys()
    for name, row in actual.items():
        assert row["bytes"] == log[name]
        # The metric is the id of the replica, or -1 for the leader.
        assert (reported[name][f"{row['topic']}-0"] != "-1") == (row["redirected"] > 0)
    assert actual["close-reader"]["far_bytes"] == 0


def test_causes_are_those_of_the_recording() -> None:
    """See tools/record/kafka/scenarios/racks.py."""
    causes = {
        "plain-reader": "no client.rack", "wrong-reader": "unknown rack",
        "early-reader": "not selected",
    }  # fmt: skip
    for zones in (ZONES, {}):
        actual = {name: row["finding"] for name, row in consumers(zones=zones).items()}
        assert {name: finding for name, finding in actual.items() if pd.notna(finding)} == causes
    assert consumers(zones=ZONES)["plain-reader"]["avoidable_bytes"] > 20_000


def test_without_racks_there_is_no_finding() -> None:
    actual = rows("kafka-4-java", show="consumers")
    assert len(actual) > 0
    assert actual["finding"].isna().all()


def test_a_consumer_without_records_has_fetched_no_bytes_from_afar() -> None:
    """Its rack may be unknown all the same."""
    broker = {"broker_id": 7, "host": "10.0.0.9", "port": 9092, "rack": "west", "time": 1}
    for rack, finding in (("west", None), ("east", "unknown rack")):
        tables = made(
            connections=[connection()],
            exchanges=[exchange(client_rack=rack, api="Fetch")],
            partitions=[partition("Fetch")],
            brokers=[broker],
        )
        (row,) = analysis.zones(tables, show="consumers").to_dict("records")
        assert (row["bytes"], row["far_bytes"], row["avoidable_bytes"]) == (0, 0, 0)
        assert (row["finding"] if pd.notna(row["finding"]) else None) == finding


@pytest.mark.parametrize(
    ("isr", "avoidable", "finding"),
    [(None, None, None), ([7], 0, "no replica"), ([7, 8], 90, "no client.rack")],
)
def test_without_metadata_it_is_unknown_whether_a_replica_is_near(
    isr: list[int] | None, avoidable: int | None, finding: str | None
) -> None:
    hosts = {7: connection()["broker_ip"], 8: connection()["client_ip"]}
    tables = made(
        connections=[connection()],
        exchanges=[exchange(api="Fetch")],
        partitions=[partition("Fetch", 2, bytes=90)],
        topics=[{"topic": "t", "partition": 0, "leader": 7, "isr": isr, "time": 1}] if isr else [],
        brokers=[
            {"broker_id": id, "host": host, "port": 9092, "time": 1} for id, host in hosts.items()
        ],
    )
    zones = {hosts[8]: "near", hosts[7]: "far"}
    (row,) = analysis.zones(tables, show="consumers", zones=zones).to_dict("records")
    assert row["far_bytes"] == 90
    assert (None if pd.isna(row["avoidable_bytes"]) else row["avoidable_bytes"]) == avoidable
    assert (None if pd.isna(row["finding"]) else row["finding"]) == finding


def test_tokens_without_headers_are_requests() -> None:
    """Before SaslAuthenticate, SASL tokens had no Kafka header."""
    requests = capture("kafka-3-logins", ("exchanges",))["exchanges"]["request_packet"].count()
    assert rows("kafka-3-logins")["requests"].sum() == requests


def test_a_response_about_two_partitions_is_one_response() -> None:
    tables = made(
        connections=[connection()],
        exchanges=[exchange(api="Fetch")],
        partitions=[partition("Fetch", partition=n, preferred_replica=2) for n in range(2)],
    )
    assert analysis.zones(tables, show="consumers")["redirected"].tolist() == [1]


def test_partitions_identify_hosts_with_names() -> None:
    tables = made(
        connections=[connection()],
        exchanges=[exchange(client_rack="east", api="Fetch", request_bytes=10, response_bytes=90)],
        partitions=[partition("Produce")],
        topics=[{"topic": "t", "partition": 0, "leader": 7, "isr": [7, 8], "time": 1}],
        brokers=[
            {"broker_id": id, "host": f"kafka-{id}", "port": 9092, "rack": rack, "time": 1}
            for id, rack in ((7, "west"), (8, "east"))
        ],
    )
    (pair,) = analysis.zones(tables).to_dict("records")
    assert (pair["client_zone"], pair["broker_zone"], pair["bytes"]) == ("east", "west", 100)


def test_files_of_zones(tmp_path: Path) -> None:
    path = tmp_path / "zones"
    path.write_text("# zones\n10.0.0.0/8, else\n10.1.0.0/24 near\n10.2.0.0/24,far\n")
    assert rows(zones=path).equals(rows(zones=ZONES))
    path.write_text("10.1.0.0/24 near\nfar\n")
    with pytest.raises(DissectorError, match="line 2: 'far' has no name"):
        rows(zones=path)
    with pytest.raises(DissectorError, match="cannot read"):
        rows(zones=tmp_path / "nothing")
