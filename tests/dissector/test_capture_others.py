"""Captures of other protocols give no Kafka row, for any first packet and any port."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

import dissector
from dissector.packets import open_packets
from dissector.pipeline import Pipeline
from tests.captures import recorded
from tests.dissector.streams.dialogue import Dialogue, framed, ipv4, pcap, request, response, split
from tests.rewriting import flows
from tests.rewriting.network import Options
from tests.rewriting.network import packets as rewritten

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


@pytest.mark.parametrize("seed", [0, 2])
@pytest.mark.parametrize("name", [name for name in OTHERS if name != "redis"])  # it is large
def test_no_row_is_kafka_in_tiny_segments_to_a_named_port(
    tmp_path: Path, name: str, seed: int
) -> None:
    """The first bytes of the client show another protocol; later ones may look like a request."""
    capture = f"other/{name}.pcap.zst"
    options = Options(segments="bytes", merges=True)
    frames = rewritten(flows.recording(capture), options, random.Random(seed))
    path = recorded.write(tmp_path / "tiny.pcap", frames)
    assert_no_kafka(path, sorted(server_ports(read(name))))


FASTCGI = bytes.fromhex("0101000100080000 0001000000000000 0104000100000000")
"""FCGI_BEGIN_REQUEST and FCGI_PARAMS: as a request, OffsetCommit v0 with 16 MiB."""
STARTUP = struct.pack(">iHH", 138, 3, 0) + (
    b"user\0postgres\0database\0test\0client_encoding\0UTF8\0DateStyle\0ISO\0"
    b"TimeZone\0Europe/Berlin\0application_name\0PostgreSQL JDBC Driver\0"
).ljust(130, b"\0")
"""PostgreSQL's StartupMessage: as a request, Metadata v0 with a client id of 112 bytes."""


@pytest.mark.parametrize("port", [9092, 31000])
@pytest.mark.parametrize("client", [FASTCGI, STARTUP], ids=["fastcgi", "postgresql"])
def test_another_protocol_at_the_former_address_of_a_broker(
    tmp_path: Path, client: bytes, port: int
) -> None:
    dialogue, broker = Dialogue(), (ipv4("10.0.0.9"), port)
    kafka, other = dialogue.connect(broker=broker), dialogue.connect(broker=broker)
    for number in range(3):
        kafka.client(request(12, 0, number, b"\0\1g" + bytes(4) + b"\0\1m"))
        kafka.broker(response(number, bytes(2)))
    for _ in range(3):
        other.exchange(client, b"\1\6\0\1" * 9)
    kafka.fin()
    other.fin()
    path = dialogue.written(tmp_path / "other.pcap")
    tables = dissector.open_capture(path).tables(["exchanges", "connections"])
    assert tables["connections"]["protocol"].to_pylist() == ["kafka", "unknown"]
    assert tables["exchanges"]["correlation_id"].to_pylist() == [0, 1, 2]


def old_messages(*values: bytes) -> bytes:
    """Messages of Kafka 0.7: size, magic 0, checksum, value."""
    return b"".join(framed(b"\0" + zlib.crc32(value).to_bytes(4) + value) for value in values)


def old_request(kind: int, topic: bytes, body: bytes) -> bytes:
    """A request of Kafka 0.7: size, kind, topic, partition, body."""
    return framed(struct.pack(">hh", kind, len(topic)) + topic + bytes(4) + body)


@pytest.mark.parametrize("topic", [b"a", b"clicks", b"app.events.page-views"])
@pytest.mark.parametrize("handshake", [True, False])
def test_kafka_0_7(tmp_path: Path, topic: bytes, handshake: bool) -> None:
    """Kinds of requests: 0 Produce, which has no response; 1 Fetch; 4 Offsets."""
    dialogue, rng = Dialogue(), random.Random(7)
    producer, consumer = (dialogue.connect(port=port, handshake=handshake) for port in (7, 8))
    for number in range(30):
        values = [rng.randbytes(rng.randrange(60)) for _ in range(rng.randrange(1, 9))]
        messages = old_messages(*values, b'{"user": 7}', bytes(number))
        producer.client(old_request(0, topic, framed(messages)))
        fetch = struct.pack(">qi", 1000 * number, 300 << 10)
        consumer.exchange(old_request(1, topic, fetch), framed(bytes(2) + messages))
        offsets = struct.pack(">hiq", 0, 1, 1000 * number)
        consumer.exchange(old_request(4, topic, struct.pack(">qi", -1, 1)), framed(offsets))
    path = dialogue.written(tmp_path / "old.pcap")
    for ports in ([], [9092]):
        assert_no_kafka(path, ports)
    tables = Pipeline(open_packets([path]), ports=[9092]).tables()
    assert set(tables["problems"]["kind"].to_pylist()) == {"not_kafka"}


@pytest.mark.parametrize("size", [1, 2, 7])
def test_numbers_in_tiny_segments_are_not_kafka(tmp_path: Path, size: int) -> None:
    """Votes of ZooKeeper's leader election, and a client that writes their bytes one by one."""
    dialogue, connection = Dialogue.connected(handshake=False, broker=(ipv4("10.0.0.9"), 3888))
    connection.client(struct.pack(">qqi", -65536, 2, 20) + b"10.0.0.2:3888".ljust(20, b"\0"))
    vote = struct.pack(">iqqqqi", 0, 2, 1 << 32 | 3, 1, 1, 2) + b"version=0" + bytes(20)
    connection.client(framed(vote))
    for number in range(6):
        for send, state in ((connection.broker, 0), (connection.client, 2)):
            vote = struct.pack(">iqqqqi", state, 3, 1 << 32 | 3, number, 1, 2)
            send(framed(vote + bytes(20)))
    path = tmp_path / "other.pcap"
    path.write_bytes(pcap(split(dialogue.packets, size)))
    assert_no_kafka(path, [NO_BROKER])


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
