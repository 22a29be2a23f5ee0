"""Many connections at once, and packets that are seen from two places."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import dissector
from tests.captures import recorded

MS = 10**6
LEFT_OUT = {"capture", "request_packet", "response_packet", "connection_id", "client_port"}


def exchanges(*paths: Path) -> list[dict]:
    return dissector.open_capture(paths).tables(["exchanges"])["exchanges"].to_pylist()


def first_connection(name: str) -> list[recorded.Packet]:
    packets = recorded.read(name)
    ports = {packets[0].tcp[:2], packets[0].tcp[2:4]}
    return [each for each in packets if {each.tcp[:2], each.tcp[2:4]} == ports]


def test_ten_thousand_connections_open_at_once(tmp_path: Path):
    packets = first_connection("kafka-3-java-0-8.pcap.zst")[:14]
    alone = exchanges(recorded.write(tmp_path / "one.pcap", packets))
    assert len(alone) > 1
    begin, step = packets[0].time, max(b.time - a.time for a, b in pairwise(packets))
    # All send their first packet, then all their second: so all are open until the end.
    together = [
        recorded.moved(replace(each, time=begin + at * step), turn, turn * step // 10_000)
        for at, each in enumerate(packets)
        for turn in range(10_000)
    ]
    rows = exchanges(recorded.write(tmp_path / "many.pcap", together))
    assert len(rows) == 10_000 * len(alone)
    assert len({row["client_port"] for row in rows}) == 10_000
    assert {row["status"] for row in rows} == {row["status"] for row in alone}
    columns = ("api", "request_bytes", "response_bytes", "correlation_id")
    contents = {tuple(row[name] for name in columns) for row in rows}
    assert contents == {tuple(row[name] for name in columns) for row in alone}


@settings(max_examples=5)
@given(late=st.integers(0, 20 * MS))
def test_the_same_packets_on_two_interfaces(tmp_path_factory, late: int):
    """Two captures, one of them later: each exchange has one row, with the times of the first."""
    folder = tmp_path_factory.mktemp("two")
    packets = recorded.read("kafka-4-kafkajs.pcap.zst")
    again = [replace(each, time=each.time + late) for each in packets]
    near = recorded.write(folder / "near.pcap", packets)
    far = recorded.write(folder / "far.pcap", again)
    alone, both = exchanges(near), exchanges(near, far)

    def bare(rows: list[dict]) -> list[str]:
        kept = ({k: v for k, v in row.items() if k not in LEFT_OUT} for row in rows)
        return sorted(map(str, kept))

    assert bare(both) == bare(alone)


def test_months_between_packets(tmp_path: Path):
    packets = recorded.read("kafka-4-kafkajs.pcap.zst")
    whole = exchanges(recorded.write(tmp_path / "whole.pcap", packets))
    month = 30 * 86_400 * 10**9
    slow = [replace(each, time=each.time + at * month) for at, each in enumerate(packets[:60])]
    rows = exchanges(recorded.write(tmp_path / "slow.pcap", slow))
    assert 5 < len(rows) <= len(whole)
    assert {row["api"] for row in rows} <= {row["api"] for row in whole}
