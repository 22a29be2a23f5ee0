"""Captures of other protocols give no Kafka row, wherever they begin and whatever the port."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import rewriting

import dissector

OTHERS = sorted(path.name.partition(".")[0] for path in (rewriting.CAPTURES / "other").iterdir())
LARGEST = 60_000


def test_the_ledger_has_every_capture():
    rows = {}
    _, _, section = (rewriting.CAPTURES / "README.md").read_text().partition("\n| other | ")
    for line in section.partition("\n\n")[0].splitlines()[2:]:
        cells = [cell.strip(" `") for cell in line.split("|")[1:-1]]
        rows[cells[0]] = int(cells[-1])
    assert rows == {name: len(read(name)) for name in OTHERS}
    sizes = [path.stat().st_size for path in (rewriting.CAPTURES / "other").iterdir()]
    assert max(sizes) <= LARGEST


def read(name: str) -> list[rewriting.Packet]:
    return rewriting.read(f"other/{name}.pcap.zst")


@pytest.mark.parametrize("name", OTHERS)
def test_no_row_is_kafka(tmp_path: Path, name: str):
    packets = read(name)
    port = int.from_bytes(packets[0].tcp[2:4], "big")
    chance = random.Random(name)
    starts = [0, 1, 2, 3, 5, *sorted(chance.sample(range(4, len(packets)), 4))]
    for start in starts:
        path = rewriting.write(tmp_path / "other.pcap", packets[start:])
        for ports in ((9092,), (port,)):
            tables = dissector.open_capture(path, ports=ports).tables()
            found = tables["connections"]["protocol"].to_pylist()
            assert set(found) <= {"tls", "unknown"}, (start, ports)
            kafka = ("exchanges", "errors", "batches", "topics")
            assert {table: len(tables[table]) for table in kafka} == dict.fromkeys(kafka, 0)
            assert {each["stage"] for each in tables["problems"].to_pylist()} <= {"streams", "tls"}


def test_kafka_is_found_from_any_packet_on(tmp_path: Path):
    """The other side of it: in the same way cut, Kafka is still Kafka."""
    packets = rewriting.read("kafka-4-java.pcap.zst")
    for start in range(1, len(packets) - 40, 29):
        path = rewriting.write(tmp_path / "kafka.pcap", packets[start:])
        for ports in ((9092,), (1,)):
            tables = dissector.open_capture(path, ports=ports).tables(["exchanges", "connections"])
            requests = [
                each
                for each in tables["connections"].to_pylist()
                if each["client_bytes"] and each["broker_bytes"]
            ]
            assert {each["protocol"] for each in requests} == {"kafka"}, (start, ports)
