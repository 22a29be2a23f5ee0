"""Recordings of old brokers, compared with Wireshark and with tools of the brokers' release.

`test_captures_kafka_truth` compares them with the request logs. Before 1.0, these have no
responses: Wireshark is the reference for error codes.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

import analysis
from dissector.capture import open_capture
from tests.captures.recorded import CAPTURES
from tests.tshark import needs_tshark, tshark
from tools.record.kafka import truth

NAMES = ("kafka-0-8", "kafka-0-9", "kafka-0-10", "kafka-0-11")
WITH_TOOL = (
    *("kafka-0-10", "kafka-0-11", "kafka-1-0", "kafka-1-1", "kafka-2-0", "kafka-2-3"),
    *("kafka-2-4", "kafka-2-8", "kafka-3-4"),
)
PORTS = (9092, 9093)
LISTED = re.compile(r"(?:java +)?orders +(?P<partition>\d) +(?P<committed>\d+) ")
MISREAD = "kafka.response_key == 18 || (kafka.response_key == 1 && kafka.response.version > 1)"
"""What Wireshark 4.0 misreads: ApiVersions with error 35, whose body has version 0 (KIP-511), and
messages with a timestamp, and all that follows them in a Fetch."""


@needs_tshark
@pytest.mark.parametrize("name", NAMES)
def test_error_codes_as_wireshark_reads_them(name: str) -> None:
    path = CAPTURES / f"{name}.pcap.zst"
    decode = [word for port in PORTS for word in ("-d", f"tcp.port=={port},kafka")]
    select = ("-Y", f"kafka.error && !({MISREAD})")
    theirs = Counter[tuple[int, int, int]]()
    for port, client, codes in tshark(
        path, ("tcp.srcport", "tcp.dstport", "kafka.error"), *decode, *select
    ):
        theirs.update((int(port), int(client), int(code)) for code in codes.split(","))
    ours = Counter(
        (row["broker_port"], row["client_port"], row["error_code"])
        for row in open_capture(path).tables(["errors"])["errors"].to_pylist()
        if row["api"] != "ApiVersions" and (row["api"] != "Fetch" or row["api_version"] < 2)
    )
    assert ours
    assert ours == Counter({key: count for key, count in theirs.items() if key[-1]})


@pytest.mark.parametrize("name", WITH_TOOL)
def test_committed_offsets_as_the_tool_of_the_release_lists_them(name: str) -> None:
    """kafka-consumer-groups ran after the only commit of this group."""
    listed = {}
    for fact in truth.read(name):
        if fact["source"] == "tool" and (entry := LISTED.match(fact["line"])):
            listed[int(entry["partition"])] = int(entry["committed"])
    lag = analysis.lag(CAPTURES / f"{name}.pcap.zst").query("group_id == 'java'")
    ours = dict(zip(lag["partition"], lag["committed_offset"], strict=True))
    assert len(listed) == 2
    assert ours == listed


@pytest.mark.parametrize("name", ["kafka-0-8", "kafka-0-10", "kafka-2-3"])
def test_a_stale_epoch_is_that_of_a_leader_that_the_broker_knows(name: str) -> None:
    """Why these errors are normal, see analysis.kafka.normal."""
    commands = [
        each for each in open_capture(CAPTURES / f"{name}.pcap.zst").exchanges()
        if each.api == "LeaderAndIsr" and each.response is not None
    ]  # fmt: skip
    known: dict[tuple[int | None, str, int], int] = {}
    stale = 0
    for each in sorted(commands, key=lambda each: each.request_time):
        assert each.request is not None
        assert each.response is not None
        partitions = each.request.body.get("ungrouped_partition_states") or [
            {**partition, "topic_name": topic["topic_name"]}
            for topic in each.request.body["topic_states"]
            for partition in topic["partition_states"]
        ]
        codes = {
            (partition["topic_name"], partition["partition_index"]): partition["error_code"]
            for partition in each.response.body["partition_errors"]
        }
        for partition in partitions:
            place = partition["topic_name"], partition["partition_index"]
            epoch, before = partition["leader_epoch"], known.get((each.broker_port, *place), -1)
            if codes[place]:
                stale += 1
                assert codes[place] == (13 if name == "kafka-0-8" else 11)
                assert epoch <= before
            known[each.broker_port, *place] = max(epoch, before)
    assert stale
