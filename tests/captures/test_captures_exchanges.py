"""`exchanges` agrees with the logs of clients, request by request, for all captures with such logs.

The requests of each connection in the log, in order, are those of one connection in the capture.
Sizes agree exactly where the log contains them, and always with Wireshark's framing. Times agree
within the precision of the log: it rounds, and a client reads its clock later than the packet
passed, when it is scheduled again.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from analysis.cli import main
from dissector.capture import open_capture
from tests.captures.truth import Fact, by_connection, client_logs, facts, ledger
from tests.tshark import needs_tshark, tshark

NAMES = client_logs()
MS = 1_000_000
ROUNDING_MS = {"librdkafka": 0.005, "kafka-python": 0.0005, "aiokafka": 0.0015}
"""Half of the log's last digit; aiokafka's is the difference of two times in µs."""
SCHEDULING_MS = 10.0
"""Maximum delay between a packet and the clock of a client, on two busy cores."""
BENT = {
    ("ApiVersions", 3),  # error 35 with a body of neither v0 nor v3
    ("ApiVersions", 4),
    ("Produce", 5),  # log_start_offset is missing
}
"""Responses of the mock cluster that no definition of Kafka's describes: read by hand."""
SURPLUS = {("Metadata", 13), ("ShareGroupHeartbeat", 1)}
"""Responses of the mock cluster with a surplus byte; kio reports it, too."""
BENT_WITH_AN_ERROR = {("FindCoordinator", 2), ("JoinGroup", 5), ("SyncGroup", 3)}
"""Responses of the mock cluster with null in a field that is not nullable."""
Row = dict[str, Any]
Pair = tuple[Fact, Row]


@cache
def tables(name: str) -> dict[str, list[Row]]:
    """The tables of one capture as rows, times as ns."""
    ports = sorted({fact.broker_port for fact in facts(name)})
    wanted = ("exchanges", "problems", "connections")
    arrow = open_capture([ledger()[name].path], ports=ports).tables(wanted)
    return {table: rows(arrow[table]) for table in wanted}


def rows(table: pa.Table) -> list[Row]:
    """An Arrow table as dicts, times as ns."""
    plain = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    result: list[Row] = pa.Table.from_arrays(plain, names=table.column_names).to_pylist()
    return result


def pairs(name: str) -> list[Pair]:
    """Each fact with its exchange; AssertionError where a connection has no counterpart.

    A log without connections is compared request by request.
    """
    logged = [tuple(lane) for lane in by_connection(facts(name))]
    alone = facts(name)[0].connection is None
    lanes: dict[object, list[Row]] = defaultdict(list)
    for number, row in enumerate(
        sorted(tables(name)["exchanges"], key=lambda r: r["request_time"])
    ):
        lanes[number if alone else row["connection_id"]].append(row)
    captured = [tuple(lane) for lane in lanes.values()]
    logged_lanes = index((log_key(lane), lane[0].time, lane) for lane in logged)
    captured_lanes = index((capture_key(lane), lane[0]["request_time"], lane) for lane in captured)
    assert {key: len(group) for key, group in logged_lanes.items()} == {
        key: len(group) for key, group in captured_lanes.items()
    }
    return [
        pair
        for key, group in logged_lanes.items()
        for lane, exchanges in zip(group, captured_lanes[key], strict=True)
        for pair in zip(lane, exchanges, strict=True)
    ]


def log_key(lane: tuple[Fact, ...]) -> object:
    requests = tuple((fact.api, fact.version, fact.correlation_id) for fact in lane)
    return lane[0].client_id, lane[0].broker_port, requests


def capture_key(lane: tuple[Row, ...]) -> object:
    """The same in the capture."""
    requests = tuple((row["api"], row["api_version"], row["correlation_id"]) for row in lane)
    return lane[0]["client_id"], lane[0]["broker_port"], requests


def index(lanes: Iterable[tuple[object, int, Any]]) -> dict[object, list[Any]]:
    """Lanes by key; those with the same key in order of time."""
    lanes_by_key: dict[object, list[Any]] = defaultdict(list)
    for key, _, lane in sorted(lanes, key=lambda each: each[1]):
        lanes_by_key[key].append(lane)
    return lanes_by_key


@pytest.mark.parametrize("name", NAMES)
def test_every_request_and_no_other(name: str) -> None:
    assert len(pairs(name)) == len(facts(name)) == len(tables(name)["exchanges"])


@pytest.mark.parametrize("name", NAMES)
def test_sizes_exactly(name: str) -> None:
    for fact, row in pairs(name):
        if fact.request_bytes is not None:
            assert row["request_bytes"] == fact.request_bytes, fact
        if fact.response_bytes is not None:
            assert row["response_bytes"] == fact.response_bytes, fact


@pytest.mark.parametrize("name", NAMES)
def test_status(name: str) -> None:
    for fact, row in pairs(name):
        bends = "-mock" in name and (fact.api, fact.version) in BENT | BENT_WITH_AN_ERROR
        assert row["status"] != "undecoded" or bends, fact
        if fact.response_time is not None:
            assert row["status"] in ("answered", "undecoded"), fact
        elif fact.api == "Produce" and fact.client_id == "acks-0":
            # Both brokers answer nevertheless, and that is on the wire.
            assert row["acks"] == 0
            assert row["status"] in ("no_reply_expected", "answered"), fact
        else:
            # A client may have left before the answer came, or could not read it.
            assert row["status"] in ("unanswered", "answered", "undecoded"), fact


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("kafka-python")])
def test_ports_of_clients(name: str) -> None:
    assert all(row["client_port"] == fact.client_port for fact, row in pairs(name))


@pytest.mark.parametrize("name", NAMES)
def test_latency(name: str) -> None:
    late = []
    for fact, row in pairs(name):
        if fact.rtt_ms is not None:
            late.append(row["latency_ms"] - fact.rtt_ms - ROUNDING_MS[fact.source])
            assert row["latency_ms"] >= 0
    assert max(late) <= SCHEDULING_MS
    assert sorted(late)[len(late) * 9 // 10] <= 0.2


@pytest.mark.parametrize("name", NAMES)
def test_times(name: str) -> None:
    """Times in a log are not before those on the wire, within the precision of the log."""
    for fact, row in pairs(name):
        cut = MS if fact.source == "librdkafka" else 1_000
        if fact.source != "kafka-python":  # it logs a request before it is sent
            assert row["request_end_time"] < fact.time + cut, fact
        if fact.response_time is not None:
            assert row["response_end_time"] < fact.response_time + cut, fact
            assert row["request_end_time"] <= row["response_time"] <= row["response_end_time"]


@pytest.mark.parametrize("name", NAMES)
def test_only_deviations_of_the_mock_are_problems(name: str) -> None:
    answers = {
        (row["connection_id"], row["response_packet"]): row for row in tables(name)["exchanges"]
    }
    seen, longer = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for problem in tables(name)["problems"]:
        assert problem["stage"] == "protocol", problem
        row = answers[problem["connection_id"], problem["packet"]]
        if problem["kind"] == "surplus_bytes":
            assert problem["bytes"] == 1, problem
            longer[row["api"], row["api_version"]] += 1
        else:
            assert problem["bytes"] == row["response_bytes"], problem
            seen[row["api"], row["api_version"]] += 1
    assert longer == Counter(
        (row["api"], row["api_version"])
        for row in answers.values()
        if "-mock" in name and row["response_bytes"] and (row["api"], row["api_version"]) in SURPLUS
    )
    bent = Counter(
        (row["api"], row["api_version"])
        for row in answers.values()
        if "-mock" in name and row["response_bytes"] and (row["api"], row["api_version"]) in BENT
    )
    assert bent <= seen
    assert set(seen - bent) <= (BENT_WITH_AN_ERROR if "-mock" in name else set())


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("librdkafka")])
def test_the_command_writes_the_same_rows(name: str, tmp_path: Path) -> None:
    logged = facts(name)
    ports = [f"--port={port}" for port in sorted({fact.broker_port for fact in logged})]
    output = tmp_path / "exchanges.jsonl"
    assert main(["export", str(ledger()[name].path), *ports, "-o", str(output)]) == 0
    exported = [json.loads(line) for line in output.read_text().splitlines()]
    columns = ("client_id", "api", "api_version", "correlation_id", "request_bytes")
    assert Counter(tuple(row[column] for column in columns) for row in exported) == Counter(
        (fact.client_id, fact.api, fact.version, fact.correlation_id, fact.request_bytes)
        for fact in logged
    )


@needs_tshark
@pytest.mark.parametrize("name", NAMES)
def test_sizes_as_wireshark_frames_them(name: str) -> None:
    path = ledger()[name].path
    ports = {fact.broker_port for fact in facts(name)}
    ours = Counter[tuple[int, bool, int, int]]()
    for row in tables(name)["exchanges"]:
        port = row["client_port"]
        ours[port, True, row["correlation_id"], row["request_bytes"]] += 1
        if row["response_bytes"] is not None:
            ours[port, False, row["correlation_id"], row["response_bytes"]] += 1
    assert ours == Counter(wireshark(path, ports))


def wireshark(path: Path, ports: set[int]) -> Iterator[tuple[int, bool, int, int]]:
    """Client port, whether a request, correlation id and size of each message that tshark sees."""
    decode = [argument for port in ports for argument in ("-d", f"tcp.port=={port},kafka")]
    fields = ("tcp.srcport", "tcp.dstport", "kafka.len", "kafka.correlation_id")
    for source, target, lengths, correlations in tshark(path, fields, *decode, "-Y", "kafka"):
        is_request = int(target) in ports
        port = int(source if is_request else target)
        for length, correlation in zip(lengths.split(","), correlations.split(","), strict=True):
            yield port, is_request, int(correlation), int(length) + 4
