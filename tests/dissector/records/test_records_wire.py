"""Batches as clients and brokers put them on the wire, against kafka-python's reader of them."""

from __future__ import annotations

import io
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dpkt
import pytest
from kafka.record.memory_records import MemoryRecords

from dissector import decode_request, decode_response
from dissector.records.decode import Record, decode_records
from tests.captures.recorded import CAPTURES, unpacked

PRODUCE, FETCH = 0, 1
READ_WHOLE = [
    "kafka-4-java", "kafka-4-librdkafka", "kafka-4-aiokafka", "kafka-4-kafka-python",
    "kafka-4-sarama", "kafka-4-franz-go", "kafka-4-kafka-go", "kafka-4-kafkajs",
    "kafka-4-platformatic", "kafka-4-rskafka",
    "kafka-3-java-0-11", "kafka-3-java-1-1", "kafka-3-java-2-4", "kafka-3-java-2-8",
]  # fmt: skip
"""Recordings in which everything that is produced is fetched, once."""
OLD = [
    "kafka-3-java-0-8", "kafka-3-java-0-9", "kafka-3-java-0-10-0", "kafka-3-java-0-10",
    "kafka-3-kafka-python", "kafka-3-pykafka",
]  # fmt: skip
"""Message sets of magic 0 and 1, on their way to the broker and, down-converted, back."""


def streams(path: Path) -> dict[tuple[Any, ...], bytes]:
    """The bytes of each direction of each connection; on loopback they came in order, and once."""
    data_by_ends: dict[tuple[Any, ...], bytearray] = defaultdict(bytearray)
    following: dict[tuple[Any, ...], int] = {}
    for _, packet in dpkt.pcap.Reader(io.BytesIO(unpacked(path))):
        ip = dpkt.ethernet.Ethernet(packet).data
        tcp = getattr(ip, "data", None)
        if not isinstance(tcp, dpkt.tcp.TCP):
            continue
        ends = (ip.src, tcp.sport, ip.dst, tcp.dport)
        if tcp.flags & dpkt.tcp.TH_SYN:
            following[ends] = (tcp.seq + 1) % (1 << 32)
        elif tcp.data and following.get(ends) == tcp.seq:
            data_by_ends[ends] += tcp.data
            following[ends] = (tcp.seq + len(tcp.data)) % (1 << 32)
    return {ends: bytes(payload) for ends, payload in data_by_ends.items()}


def frames(data: bytes) -> Iterator[bytes]:
    """The whole messages of a stream."""
    at = 0
    while at + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, at)
        at += 4 + size
        if at <= len(data):
            yield data[at - size : at]


def record_fields(body: Any) -> Iterator[bytes]:
    """Every `records` of a message."""
    if isinstance(body, dict):
        for name, value in body.items():
            if name == "records" and isinstance(value, bytes):
                yield value
            else:
                yield from record_fields(value)
    elif isinstance(body, list):
        for value in body:
            yield from record_fields(value)


def carried(path: Path) -> tuple[list[bytes], list[bytes]]:
    """The `records` fields that were produced, and those that were fetched."""
    produced: list[bytes] = []
    fetched: list[bytes] = []
    by_ends = streams(path)
    for ends, data in by_ends.items():
        if ends[1] < ends[3]:
            continue  # the broker's side: its port is the lower one
        asked: dict[int, tuple[int, int]] = {}
        for frame in frames(data):
            key, version, correlation = struct.unpack_from(">hhi", frame)
            asked[correlation] = key, version
            if key == PRODUCE:
                produced += record_fields(decode_request(frame).body)
        for frame in frames(by_ends.get((*ends[2:], *ends[:2]), b"")):
            key, version = asked.get(struct.unpack_from(">i", frame)[0], (-1, -1))
            if key == FETCH:
                fetched += record_fields(decode_response(frame, key, version).body)
    return produced, fetched


def records_of(data: bytes) -> list[Record]:
    batches = decode_records(data)
    assert all(batch.problem is None for batch in batches)
    assert all(batch.crc_ok for batch in batches if not batch.truncated)
    return [record for batch in batches for record in batch.records]


@pytest.mark.parametrize("name", READ_WHOLE + OLD)
def test_as_kafka_python_reads_them(name: str) -> None:
    produced, fetched = carried(CAPTURES / f"{name}.pcap.zst")
    assert produced
    for data in produced + fetched:
        expected = []
        reader = MemoryRecords(data)
        while (batch := reader.next_batch()) is not None:
            for each in batch:
                headers = tuple((key, value) for key, value in each.headers)
                timestamp = -1 if each.timestamp is None else each.timestamp
                expected.append((each.offset, timestamp, each.key, each.value, headers))
        actual = [
            (each.offset, each.timestamp, each.key, each.value, each.headers)
            for each in records_of(data)
        ]
        assert actual == expected


@pytest.mark.parametrize("name", READ_WHOLE)
def test_produced_records_are_fetched(name: str) -> None:
    sides = carried(CAPTURES / f"{name}.pcap.zst")
    produced, fetched = (
        Counter((each.key, each.value, each.headers) for data in side for each in records_of(data))
        for side in sides
    )
    assert produced == fetched
    assert produced.total() >= 40
