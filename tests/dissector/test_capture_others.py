"""Captures of other protocols give no Kafka row, for any first packet and any port."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import dissector
from dissector.packets import open_packets
from dissector.pipeline import Pipeline
from tests.captures import recorded

OTHERS = sorted(path.name.partition(".")[0] for path in (recorded.CAPTURES / "other").iterdir())
LARGEST = 60_000


def test_the_ledger_has_every_capture():
    rows = {}
    _, _, section = (recorded.CAPTURES / "README.md").read_text().partition("\n| other | ")
    for line in section.partition("\n\n")[0].splitlines()[2:]:
        cells = [cell.strip(" `") for cell in line.split("|")[1:-1]]
        rows[cells[0]] = int(cells[-1])
    assert rows == {name: len(read(name)) for name in OTHERS}
    sizes = [path.stat().st_size for path in (recorded.CAPTURES / "other").iterdir()]
    assert max(sizes) <= LARGEST


def read(name: str) -> list[recorded.Packet]:
    return recorded.read(f"other/{name}.pcap.zst")


NO_BROKER = 1
"""A port where nothing listens, so that no port is known to be a broker's."""


def server_ports(packets: Sequence[recorded.Packet]) -> set[int]:
    """The ports to which SYNs were sent."""
    syn, ack = recorded.SYN, 0x10
    return {target(each) for each in packets if each.flags & (syn | ack) == syn}


def target(packet: recorded.Packet) -> int:
    """The port to which a packet goes."""
    return int.from_bytes(packet.tcp[2:4], "big")


def assert_no_kafka(path: Path, ports: Sequence[int], **options: int) -> None:
    """No row has the protocol Kafka, for any `ports`."""
    tables = Pipeline(open_packets([path], **options), ports=ports).tables()
    assert set(tables["connections"]["protocol"].to_pylist()) <= {"tls", "unknown"}
    kafka = ("exchanges", "errors", "batches", "topics")
    assert {table: len(tables[table]) for table in kafka} == dict.fromkeys(kafka, 0)


def selections(name: str) -> list[tuple[list[recorded.Packet], list[int]]]:
    """Packets of a capture, and the ports to name.

    All packets, those without SYN, and those of each direction. Responses alone do not contradict a
    port that the user names.
    """
    packets = read(name)
    servers = sorted(server_ports(packets))
    plain = [each for each in packets if not each.flags & recorded.SYN]
    sent = [each for each in packets if target(each) in servers]
    received = [each for each in packets if target(each) not in servers]
    ports = [NO_BROKER, *servers]
    return [(packets, ports), (plain, ports), (sent, ports), (received, [NO_BROKER])]


@pytest.mark.parametrize("name", OTHERS)
def test_no_row_is_kafka(tmp_path: Path, name: str) -> None:
    for packets, ports in selections(name):
        path = recorded.write(tmp_path / "other.pcap", packets)
        for port in ports:
            assert_no_kafka(path, [port])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", OTHERS)
def test_no_row_is_kafka_where_a_capture_begins_or_ends_midway(tmp_path: Path, name: str) -> None:
    chance = random.Random(name)
    for packets, ports in selections(name):
        for _ in range(4):
            low, high = sorted(chance.sample(range(len(packets) + 1), 2))
            path = recorded.write(tmp_path / "other.pcap", packets[low:high])
            assert_no_kafka(path, [NO_BROKER])
            assert_no_kafka(path, ports)


@pytest.mark.parametrize("name", OTHERS)
def test_no_single_packet_is_kafka(tmp_path: Path, name: str) -> None:
    """Each packet is the only one of its connection."""
    packets = [each for each in read(name) if each.payload]
    alone = [recorded.moved(each, number, number) for number, each in enumerate(packets)]
    assert_no_kafka(recorded.write(tmp_path / "other.pcap", alone), [NO_BROKER])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", OTHERS)
def test_no_row_is_kafka_packet_by_packet(tmp_path: Path, name: str) -> None:
    for packets, _ in selections(name)[:2]:
        path = recorded.write(tmp_path / "other.pcap", packets[:100])
        assert_no_kafka(path, [NO_BROKER], block_bytes=200)


def test_kafka_is_found_from_any_packet_on(tmp_path: Path):
    """The same cuts leave a capture of Kafka recognisable."""
    packets = recorded.read("kafka-4-java.pcap.zst")
    for start in range(1, len(packets) - 40, 29):
        path = recorded.write(tmp_path / "kafka.pcap", packets[start:])
        for ports in ((9092,), (1,)):
            tables = dissector.open_capture(path, ports=ports).tables(["exchanges", "connections"])
            requests = [
                each
                for each in tables["connections"].to_pylist()
                if each["client_bytes"] and each["broker_bytes"]
            ]
            assert {each["protocol"] for each in requests} == {"kafka"}, (start, ports)
