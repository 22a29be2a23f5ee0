"""Captures of the beginnings of packets: headers, and the readable part of bodies."""

from __future__ import annotations

import struct
from operator import itemgetter
from pathlib import Path

import pytest

import dissector
from dissector.packets import open_packets
from dissector.pipeline import Pipeline
from tests.captures import recorded
from tests.dissector.streams.dialogue import Dialogue, request, response

RECORDINGS = (
    "aiokafka-tansu.pcap",
    "kafka-4-sasl.pcap.zst",
    "kafka-4-transactions.pcap.zst",
    "kafka-4-group-eager.pcap.zst",
    "kafka-3-java-2-8.pcap.zst",
)
SAME = (
    *("api", "api_version", "client_ip", "client_port", "broker_ip", "broker_port"),
    *("request_bytes", "response_bytes", "request_time", "response_time", "latency_ms"),
)
SAME_OR_UNKNOWN = (
    *(
        "throttle_time_ms",
        "acks",
        "max_wait_ms",
        "min_bytes",
        "max_bytes",
        "isolation_level",
        "client_rack",
        "group_id",
        "member_id",
        "transactional_id",
    ),
    *("record_count", "record_bytes"),
)


def exchanges(path: Path) -> dict[tuple, dict]:
    """The rows of `exchanges`, by a unique key."""
    rows = dissector.open_capture(path).tables(["exchanges"])["exchanges"].to_pylist()
    by_key = {
        (row["client_port"], row["request_packet"], row["correlation_id"]): row for row in rows
    }
    assert len(by_key) == len(rows)
    return by_key


@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.parametrize("snaplen", [80, 96, 160])
def test_every_request_is_listed(tmp_path: Path, name: str, snaplen: int):
    packets = recorded.read(name)
    whole = exchanges(recorded.write(tmp_path / "whole.pcap", packets))
    cut = exchanges(recorded.write(tmp_path / "cut.pcap", packets, snaplen))
    assert cut.keys() == whole.keys()
    known = 0
    for key, row in cut.items():
        assert {each: row[each] for each in SAME} == {each: whole[key][each] for each in SAME}
        assert row["status"] != "undecoded"
        for each in SAME_OR_UNKNOWN:
            assert row[each] in (None, whole[key][each])
            known += row[each] is not None
        client, _, behind = (row["client_id"] or "").partition("…")
        assert not behind
        assert (whole[key]["client_id"] or "").startswith(client)
    assert known > len(cut) / 4
    assert {row["client_id"] for row in cut.values()} != {None}


def test_an_error_at_the_top_of_a_cut_message_is_reported(tmp_path: Path):
    packets = recorded.read("kafka-4-group-eager.pcap.zst")
    whole = exchanges(recorded.write(tmp_path / "whole.pcap", packets))
    cut = exchanges(recorded.write(tmp_path / "cut.pcap", packets, 96))
    codes = {key: row["error_code"] for key, row in cut.items() if row["error_count"] is None}
    assert {codes[key] for key in codes} > {None}
    assert all(code in (None, whole[key]["error_code"]) for key, code in codes.items())


def test_a_transaction_needs_no_more_than_its_name(tmp_path: Path):
    """This size cuts the producer ids of some requests."""
    packets = recorded.read("kafka-4-transactions.pcap.zst")
    path = recorded.write(tmp_path / "cut.pcap", packets, 98)
    whole = dissector.open_capture(path).tables(["transactions"])["transactions"]
    blocks = Pipeline(open_packets([path], block_bytes=600), []).tables(["transactions"])
    rows = whole.to_pylist()
    assert sum(row["producer_id"] is None and row["api"] == "EndTxn" for row in rows) == 3
    key = itemgetter("connection_id", "correlation_id", "time")
    assert sorted(blocks["transactions"].to_pylist(), key=key) == sorted(rows, key=key)


def test_a_request_behind_the_cut_of_a_segment_is_lost_alone(tmp_path: Path):
    """A card divides large segments after the capture (TSO)."""
    dialogue, connection = Dialogue.connected()
    topics = struct.pack(">ih", 1, 2000) + b"t" * 2000
    first, second, third, fourth = (request(3, 1, number, topics) for number in (1, 2, 3, 4))
    answers = [response(number, bytes(12)) for number in (1, 2, 3, 4)]
    connection.client(first, cut=60)
    connection.broker(answers[0])
    connection.client(second + third[:500], cut=60)
    connection.client(third[500:], cut=60)
    connection.client(fourth, cut=60)
    for answer in answers[1:]:
        connection.broker(answer)
    capture = dissector.open_capture(dialogue.written(tmp_path / "cut.pcap"))
    tables = capture.tables(["exchanges", "problems"])
    status = {row["correlation_id"]: row["status"] for row in tables["exchanges"].to_pylist()}
    assert status == dict.fromkeys((1, 2, 4), "answered") | {3: "request_missing"}
    assert tables["problems"]["kind"].to_pylist() == ["resync", "cut_packets"]
