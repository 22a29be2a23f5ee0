"""Offsets of produced records are those of the partition: a consumer reads the record there."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import pytest

import dissector
from dissector.packets import open_packets
from dissector.pipeline import Pipeline
from tests.captures.recorded import CAPTURES

READ_AGAIN = (
    "kafka-4-java.pcap.zst",
    "kafka-4-franz-go.pcap.zst",
    "kafka-4-followed.pcap.zst",
    "chatter-mock.pcap.zst",
    "kafka-0-8.pcap.zst",
    "kafka-0-9.pcap.zst",
    "kafka-0-10.pcap.zst",
    "kafka-0-11.pcap.zst",
    "kafka-2-8.pcap.zst",
)
"""Recordings in which consumers read what was produced."""
OLD = "kafka-3-java-0-8.pcap.zst"
"""Message sets, with acks 0 and 1."""

Row = dict[str, Any]


@cache
def tables(name: str) -> dict[str, list[Row]]:
    arrow = dissector.open_capture(CAPTURES / name).tables(["records", "batches", "exchanges"])
    return {table: rows.to_pylist() for table, rows in arrow.items()}


def produced(name: str, table: str = "records") -> list[Row]:
    return [row for row in tables(name)[table] if row["api"] == "Produce"]


@pytest.mark.parametrize("name", READ_AGAIN)
def test_a_produced_record_is_fetched_at_its_offset(name: str) -> None:
    fetched = {
        (row["topic"], row["partition"], row["offset"]): (row["key"], row["value"])
        for row in tables(name)["records"]
        if row["api"] == "Fetch"
    }
    compared = 0
    for row in produced(name):
        place = row["topic"], row["partition"], row["offset"]
        if place in fetched:
            compared += 1
            assert fetched[place] == (row["key"], row["value"])
    assert compared > len(produced(name)) / 2


@pytest.mark.parametrize("name", [*READ_AGAIN, OLD])
def test_batches_and_records_agree(name: str) -> None:
    offsets: dict[tuple[int, int, str, int], list[int | None]] = defaultdict(list)
    for row in produced(name):
        key = row["connection_id"], row["correlation_id"], row["topic"], row["partition"]
        offsets[key].append(row["offset"])
    for row in produced(name, "batches"):
        key = row["connection_id"], row["correlation_id"], row["topic"], row["partition"]
        if row["base_offset"] is not None:
            assert row["base_offset"] in offsets[key]
        if row["last_offset"] is not None:
            assert row["last_offset"] in offsets[key]


def test_without_a_response_there_is_no_offset() -> None:
    silent = {
        (row["connection_id"], row["correlation_id"])
        for row in tables(OLD)["exchanges"]
        if row["api"] == "Produce" and row["acks"] == 0
    }
    assert silent
    for row in produced(OLD):
        is_silent = (row["connection_id"], row["correlation_id"]) in silent
        assert (row["offset"] is None) == is_silent


def test_partitions_that_were_refused_have_no_offsets() -> None:
    """The broker gives -1 with an error (Kafka's protocol guide, Produce API)."""
    refused = [row for row in produced("kafka-4-errors.pcap.zst", "batches") if row["error_code"]]
    assert refused
    assert all(row["base_offset"] is None for row in refused)


@pytest.mark.parametrize(("name", "size"), [("chatter-mock.pcap.zst", 50_000), (OLD, 3_000)])
def test_offsets_do_not_depend_on_blocks(name: str, size: int) -> None:
    """`test_capture_blocks` has other recordings, with all tables."""
    source = open_packets([CAPTURES / name], block_bytes=size)
    rows = Pipeline(source, []).tables(["records"])["records"].to_pylist()
    assert sorted(map(str, rows)) == sorted(map(str, tables(name)["records"]))
