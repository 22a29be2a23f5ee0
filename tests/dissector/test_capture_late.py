"""Captures that begin late, or lack a handshake: which end is the client, and which responses are
there. No port is known to be a broker's.

`python -m tests.robustness.late_start` begins every recording at every packet.
"""

from __future__ import annotations

import gzip
import struct
from collections import Counter
from pathlib import Path

import pytest

import dissector
from dissector.packets import open_packets
from dissector.pipeline import Pipeline
from tests.captures import recorded
from tests.captures.recorded import CAPTURES, RECORDINGS
from tests.dissector.records import records_writers
from tests.dissector.streams.dialogue import Dialogue, ipv4, pcap, request, response
from tests.robustness.late_start import NO_BROKER, survey

FIN, SYN, ACK = 0x01, 0x02, 0x10
SWAPPED = {
    "kafka-3-kafka-python.pcap.zst": (191,),
    "kafka-4-cut-responses.pcap.zst": (21,),
    "kafka-4-followed.pcap.zst": (141, 171),
    "kafka-4-group-consumer.pcap.zst": (91,),
    "kafka-4-group-static.pcap.zst": (101,),
    "kafka-4-net-delay.pcap.zst": (51,),
    "kafka-4-quotas.pcap.zst": (131,),
    "kafka-4-sasl.pcap.zst": (71,),
    "kafka-4-transactions-old.pcap.zst": (91,),
}
"""Numbers of packets that once, left out, turned a connection round."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_no_broker_is_the_client(path: Path) -> None:
    starts = [*SWAPPED.get(path.name, ()), len(path.name) % 5 + 1, 40 + len(path.name)]
    figures = survey(path, starts, window=150, verbose=False)
    assert figures.swapped == 0


def test_late_starts_lose_no_exchange() -> None:
    """As many exchanges are there as where the ports of brokers are known."""
    for name in ("kafka-4-java.pcap.zst", "kafka-4-followed.pcap.zst", "kafka-3-java-0-8.pcap.zst"):
        figures = survey(CAPTURES / name, range(5, 200, 60), window=300, verbose=False)
        assert figures.exchanges == figures.known > 100


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("kafka-4-cut-snaplen.pcap.zst", range(70, 90)),  # bodies of responses are not captured
        ("kafka-4-net-delay.pcap.zst", range(276, 290)),  # a response of 70 kB comes first
        ("kafka-4-steady-quota.pcap.zst", range(8280, 8300)),  # segments begin inside requests
    ],
)
def test_exchanges_behind_a_late_start(name: str, starts: range) -> None:
    """The ports of brokers are known."""
    figures = survey(CAPTURES / name, starts, window=300, verbose=False)
    assert figures.missing == 0
    assert figures.expected > 250


FETCH_RESPONSE = bytes.fromhex("0000000e 00000001 0006") + b"plain2"
"""Correlation id 14, one topic: reads as Produce v14 with correlation id 1 and client id plain2."""


def dialogue(tmp_path: Path, *messages: tuple[int, bytes]) -> Path:
    """A connection without handshake, between ports 48122 (0) and 29092 (1)."""
    seq, packets = [1000, 5000], []
    for number, (sender, message) in enumerate(messages):
        ports = (48122, 29092) if sender == 0 else (29092, 48122)
        tcp = struct.pack(">HHIIBBHHH", *ports, seq[sender], seq[1 - sender], 80, ACK, 512, 0, 0)
        size = 20 + len(tcp) + len(message)
        ends = bytes([10, 0, 0, 1 + sender, 10, 0, 0, 2 - sender])
        ip = struct.pack(">BBHHHBBH", 69, 0, size, 0, 0, 64, 6, 0) + ends
        time = recorded.BEGINNING + number * 10**6
        frame = bytes(12) + b"\x08\0" + ip + tcp + message
        packets.append(recorded.Packet(time, frame))
        seq[sender] += len(message)
    return recorded.write(tmp_path / "late.pcap", packets)


def test_a_response_that_reads_as_a_request_of_an_unknown_version(tmp_path: Path) -> None:
    partition = struct.pack(">iihqi", 1, 0, 0, 3, 0)
    body = FETCH_RESPONSE + partition
    path = dialogue(tmp_path, (1, struct.pack(">i", len(body)) + body))
    tables = dissector.open_capture(path, ports=NO_BROKER).tables(["connections"])
    assert tables["connections"]["protocol"].to_pylist() == ["unknown"]


def test_requests_behind_such_a_response_show_the_client(tmp_path: Path) -> None:
    partition = struct.pack(">iihqi", 1, 0, 0, 3, 0)
    answers = [struct.pack(">i", number) + FETCH_RESPONSE[4:] + partition for number in (14, 15)]
    fetch = struct.pack(">hhih", 1, 0, 15, 5) + b"afkak" + struct.pack(">iiii", -1, 100, 1, 1)
    fetch += struct.pack(">h", 6) + b"plain2" + struct.pack(">iiqi", 1, 0, 3, 4096)
    messages = [(1, answers[0]), (0, fetch), (1, answers[1])]
    path = dialogue(tmp_path, *((end, struct.pack(">i", len(m)) + m) for end, m in messages))
    rows = dissector.open_capture(path, ports=NO_BROKER).tables(["exchanges"])["exchanges"]
    answered = [each for each in rows.to_pylist() if each["status"] == "answered"]
    assert [(each["client_port"], each["correlation_id"]) for each in answered] == [(48122, 15)]
    assert {each["client_port"] for each in rows.to_pylist()} == {48122}


def test_a_late_capture_of_a_client_that_sends_byte_by_byte(tmp_path: Path) -> None:
    """The timeout and the topic of a Produce request read as the header of another one."""
    produce = struct.pack(">hii", 1, 30_000, 1) + b"\0\1t" + struct.pack(">iii", 1, 0, 60)
    requests = [
        struct.pack(">ihhih", 14, 16, 0, number, 4) + b"name" for number in range(1000, 1008)
    ]
    sent = produce + b"\xff" * 60 + b"".join(requests)
    answers = [(1, struct.pack(">iihi", 10, number, 0, 0)) for number in range(1000, 1008)]
    path = dialogue(tmp_path, *((0, sent[at : at + 1]) for at in range(len(sent))), *answers)
    rows = dissector.open_capture(path, ports=(29092,)).tables(["exchanges"])["exchanges"]
    assert rows["api_key"].to_pylist() == [16] * len(requests)
    assert set(rows["status"].to_pylist()) == {"answered"}


def test_compressed_messages_that_read_as_a_request(tmp_path: Path) -> None:
    """The message set at the end of a Produce v2 request begins with its size and an offset. They
    read as a Produce v0 request without client id that ends where the next request begins."""
    records = records_writers.message(
        1, gzip.compress(bytes(range(256))), offset=4, attributes=1, timestamp=0
    )
    produce = b"orders" + struct.pack(">iii", 1, 0, len(records)) + records
    heartbeats = [request(12, 0, n, b"\0\1g\0\0\0\1\0\1m") for n in range(10, 20)]
    responses = [response(n, b"\0\0") for n in range(10, 20)]
    messages = [(0, produce + heartbeats[0]), (1, responses[0])]
    for each in zip(heartbeats[1:], responses[1:], strict=True):
        messages += enumerate(each)
    path = dialogue(tmp_path, *messages)
    rows = dissector.open_capture(path, ports=[29092]).tables(["exchanges"])["exchanges"]
    assert [(each["api"], each["correlation_id"]) for each in rows.to_pylist()] == [
        ("Heartbeat", number) for number in range(10, 20)
    ]


Key = tuple[int, str, int]
HALF_OPEN = (
    "aiokafka-tansu.pcap",
    "kafka-3-admin.pcap.zst",
    "kafka-3-java-2-4.pcap.zst",
    "kafka-4-aiokafka.pcap.zst",
    "kafka-4-platformatic.pcap.zst",
)


def exchanges(path: Path) -> list[dict]:
    rows: list[dict] = (
        dissector.open_capture(path, ports=NO_BROKER).tables()["exchanges"].to_pylist()
    )
    return rows


def expected(rows: list[dict], packets: list[recorded.Packet]) -> Counter[Key]:
    """The exchanges whose bytes are all in these packets."""
    times = {each.time for each in packets}
    columns = ("request_time", "request_end_time", "response_time", "response_end_time")
    return Counter(
        (row["client_port"], row["api"], row["correlation_id"])
        for row in rows
        if row["status"] == "answered" and times.issuperset(row[name].value for name in columns)
    )


def half_open(
    packets: list[recorded.Packet], handshake: str, lost: int, *, has_fin: bool, has_ack: bool
) -> list[recorded.Packet]:
    """Connections without a part of the handshake and without the client's first segments."""
    clients = {each.stream for each in packets if each.flags & (SYN | ACK) == SYN}
    sent: Counter[bytes] = Counter()
    kept = []
    for each in packets:
        is_client = each.stream in clients
        if each.flags & SYN:
            if handshake in ("none", "syn-ack" if is_client else "syn"):
                continue
        elif is_client and each.payload:
            sent[each.stream] += 1
            if sent[each.stream] <= lost:
                continue
        flags = each.flags if has_fin else each.flags & ~FIN
        if not has_ack and not flags & SYN:
            flags &= ~ACK
        kept.append(each.segment(each.seq, flags, each.payload))
    return kept


@pytest.mark.sampled(6)
@pytest.mark.parametrize("handshake", ["all", "syn", "syn-ack", "none"])
@pytest.mark.parametrize("has_fin", [True, False])
@pytest.mark.parametrize("name", HALF_OPEN)
def test_half_open_connections_lose_no_response(
    tmp_path: Path, name: str, handshake: str, has_fin: bool
) -> None:
    packets = recorded.read(name)
    whole = exchanges(recorded.write(tmp_path / "whole.pcap", packets))
    for lost, has_ack in ((0, True), (1, False)):
        kept = half_open(packets, handshake, lost, has_fin=has_fin, has_ack=has_ack)
        there = expected(whole, kept)
        assert there.total() > 5
        rows = exchanges(recorded.write(tmp_path / "half.pcap", kept))
        answered = Counter(
            (row["client_port"], row["api"], row["correlation_id"])
            for row in rows
            if row["status"] == "answered"
        )
        assert there - answered == Counter(), (lost, has_ack)


@pytest.mark.parametrize("block_bytes", [20_000, 32 << 20])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_producer_of_large_batches_with_little_text(
    tmp_path: Path, block_bytes: int, is_late: bool
) -> None:
    """No block contains a whole request: the batches show that the connection carries Kafka."""
    dialogue, connection = Dialogue.connected(broker=(ipv4("10.0.0.9"), 19092))
    content = struct.pack(">qiiB", 0, 300_000 - 12, -1, 2) + bytes(300_000 - 17)
    for number in range(3):
        body = bytes.fromhex("ffff 0001 00000bb8 00000001 0001 74 00000001 00000000 000493e0")
        sent = request(0, 3, number + 5, body + content)
        connection.client_segments(sent, 9_000)
        connection.broker(response(number + 5, bytes(20)))
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(dialogue.packets[3 * is_late :]))
    source = open_packets([path], block_bytes=block_bytes)
    rows = Pipeline(source, ports=[9092]).tables(["exchanges"])["exchanges"]
    assert rows["correlation_id"].to_pylist() == [5, 6, 7]
    assert rows["response_packet"].null_count == 0
