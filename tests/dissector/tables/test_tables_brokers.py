"""Brokers are those of the cluster's configuration."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from dissector.capture import open_capture
from tests.captures.truth import CAPTURES
from tests.dissector.streams.dialogue import Dialogue, request, response


def endpoints(name: str) -> set[tuple[str, int, str, int, str | None]]:
    rows = open_capture(CAPTURES / f"{name}.pcap.zst").tables(["brokers"])["brokers"].to_pylist()
    names = ("api", "broker_id", "host", "port", "rack")
    return {tuple(row[name] for name in names) for row in rows}


def test_metadata_has_the_racks_of_brokers() -> None:
    """broker.rack of tools/record/kafka/scenarios/racks.py."""
    rows = endpoints("kafka-4-racks")
    assert {row[1:] for row in rows if row[0] == "Metadata"} == {
        (1, "10.1.0.1", 9092, "rack-1"), (2, "10.2.0.1", 9093, "rack-2")
    }  # fmt: skip
    # FindCoordinator has no racks; followers of the metadata log learn the leader from Fetch.
    assert ("FindCoordinator", 2, "10.2.0.1", 9093, None) in rows
    assert ("Fetch", 1, "10.1.0.1", 19092, None) in rows


def test_brokers_without_racks() -> None:
    """A response without a coordinator has the id -1, which is not a row."""
    rows = endpoints("kafka-4-errors")
    assert {row[1] for row in rows} == {1, 2}
    assert {row[4] for row in rows} == {None}


@pytest.mark.parametrize("port", [-(1 << 31), -1, 0, 9092, 65535, 65536, (1 << 31) - 1])
def test_the_port_of_a_broker_is_any_int32(port: int, tmp_path: Path) -> None:
    """Other connections go to brokers that responses name; no port is out of range for that."""
    dialogue = Dialogue()
    connection, other = dialogue.connect(), dialogue.connect()
    host = b"10.0.0.7"
    body = struct.pack(f">iih{len(host)}sih", 1, 7, len(host), host, port, -1)
    connection.client(request(3, 1, 1, struct.pack(">i", -1)))
    connection.broker(response(1, body + struct.pack(">ii", 7, 0)))
    other.client(request(3, 1, 1, struct.pack(">i", -1)))
    path = dialogue.written(tmp_path / "ports.pcap")
    tables = open_capture(path).tables(["brokers", "exchanges"])
    assert tables["brokers"]["port"].to_pylist() == [port]
    assert len(tables["exchanges"]) == 2
