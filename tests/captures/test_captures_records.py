"""Every record that a client wrote is in `records`, once as produced and once as fetched.

The sources in `tools/record/kafka` have the written records: java/ProduceConsume.java and its
equivalents for today's clients, java/OldProducer.java for old clients. Each client wrote one or
several batches for each codec. A member of a group then read until it had all records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from dissector.capture import open_capture
from tests.captures.recorded import CAPTURES

Said = tuple[bytes | None, bytes, tuple[tuple[str, bytes], ...]]
Row = dict[str, Any]

FIVE = ("none", "gzip", "snappy", "lz4", "zstd")
TODAY = {
    "kafka-4-java": FIVE,
    "kafka-4-librdkafka": FIVE,
    "kafka-4-kafka-python": ("None", *FIVE[1:]),
    "kafka-4-aiokafka": ("None", *FIVE[1:]),
    "kafka-4-franz-go": FIVE,
    "kafka-4-sarama": FIVE,
    "kafka-4-kafka-go": ("uncompressed", *FIVE[1:]),
    "kafka-4-rskafka": FIVE,
    "kafka-4-kafkajs": ("0", "1"),
    "kafka-4-platformatic": ("none", "gzip", "lz4"),  # that Node had no zstd
}
"""The values of the header `codec`."""
OLD = {
    "kafka-3-java-0-8": 4,
    "kafka-3-java-0-9": 4,
    "kafka-3-java-0-10-0": 4,
    "kafka-3-java-0-10": 4,
    "kafka-3-java-0-11": 4,
    "kafka-3-java-1-1": 4,
    "kafka-3-java-2-0": 4,
    "kafka-3-java-2-4": 5,
    "kafka-3-java-2-8": 5,
    "kafka-3-java-3-1": 5,
    "kafka-3-java-3-5": 5,
}
"""Number of codecs of each client."""


def written_today(name: str) -> Counter[Said]:
    return Counter(
        (b"key-%d" % number, b"record %d " % number * 4, (("codec", codec.encode()),))
        for codec in TODAY[name]
        for number in range(20)
    )


def written_of_old(name: str) -> Counter[Said]:
    batch: list[Said] = [(None, b"no key", ())]
    batch += [(b"key-%d" % number, b"record %d " % number * 4, ()) for number in range(10)]
    return Counter({contents: 3 * OLD[name] * count for contents, count in Counter(batch).items()})


@cache
def tables(name: str) -> dict[str, list[Row]]:
    """Records and batches of the clients' topic, and problems."""
    wanted = ("records", "batches", "problems")
    arrow = open_capture(CAPTURES / f"{name}.pcap.zst").tables(wanted)
    return {table: list(rows(arrow[table])) for table in wanted}


def rows(table: pa.Table) -> Iterator[Row]:
    for row in table.to_pylist():
        if not (row.get("topic") or "").startswith("__"):
            yield row


def records(name: str, api: str) -> list[Row]:
    return [row for row in tables(name)["records"] if row["api"] == api]


def contents(records: list[Row]) -> Counter[Said]:
    return Counter(
        (row["key"], row["value"], tuple((each["key"], each["value"]) for each in row["headers"]))
        for row in records
    )


@pytest.mark.parametrize("name", TODAY)
def test_clients_of_today(name: str) -> None:
    assert contents(records(name, "Produce")) == written_today(name)
    assert contents(records(name, "Fetch")) == written_today(name)


@pytest.mark.parametrize("name", OLD)
def test_clients_of_old(name: str) -> None:
    assert contents(records(name, "Produce")) == written_of_old(name)
    fetched = contents(records(name, "Fetch"))
    assert fetched <= written_of_old(name)
    if name != "kafka-3-java-0-8":  # it could only write
        # Its consumer left after this number: records written with acks=0 may be missing.
        assert fetched.total() >= 22 * OLD[name]


@pytest.mark.parametrize("name", [*TODAY, *(name for name in OLD if name != "kafka-3-java-0-8")])
def test_every_offset_is_fetched_once(name: str) -> None:
    offsets: dict[tuple[str, int], list[int]] = {}
    for row in records(name, "Fetch"):
        offsets.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    for fetched in offsets.values():
        assert sorted(fetched) == list(range(len(fetched)))


@pytest.mark.parametrize("name", [*TODAY, *OLD])
def test_batches_count_the_same_records(name: str) -> None:
    for api in ("Produce", "Fetch"):
        batches = [row for row in tables(name)["batches"] if row["api"] == api]
        assert all(row["crc_ok"] or row["truncated"] for row in batches)
        if all(row["record_count"] is not None for row in batches):  # no compressed message set
            assert sum(row["record_count"] for row in batches) == len(records(name, api))
    assert not [row for row in tables(name)["problems"] if row["stage"] == "records"]


@pytest.mark.parametrize("name", TODAY)
def test_fetched_timestamps_are_those_produced(name: str) -> None:
    def times(api: str) -> Counter[tuple[Any, ...]]:
        return Counter((row["key"], row["timestamp"]) for row in records(name, api))

    assert times("Produce") == times("Fetch")
