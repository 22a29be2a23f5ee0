"""Messages that contain the bytes of other messages: the content of a topic makes no rows.

A producer can write captured requests into a topic. No byte of these captures is missing, so their
frames follow the sizes, in blocks of any size. `tests/analysis/live/test_live_sniff.py` captures
the same dialogues on an interface.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from dissector.packets import open_packets
from dissector.pipeline import Pipeline
from tests.dissector.streams.dialogue import framed, request
from tests.kafka_bytes import text
from tests.rewriting.cases import write
from tests.rewriting.flows import Chunk, Flow, Recording
from tests.rewriting.network import Options, packets

CLIENT, BROKER = (bytes([10, 0, 0, 1]), 40_001), (bytes([10, 0, 0, 9]), 9092)
SEGMENT = 1448
BLOCKS = [1 << 25, 16_000, 40]
"""The last is smaller than any packet with its record header: a packet a block."""


def metadata(correlation: int) -> bytes:
    """A Metadata v1 request for one topic, as long as a segment."""
    empty = request(3, 1, correlation, struct.pack(">i", 1) + text(b""))
    return request(3, 1, correlation, struct.pack(">i", 1) + text(b"t" * (SEGMENT - len(empty))))


def metadata_response(correlation: int) -> bytes:
    """The Metadata v1 response without brokers and topics, to its request."""
    return framed(struct.pack(">iiii", correlation, 0, 1, 0))


def batch(value: bytes) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=False, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 30,
    )  # fmt: skip
    builder.append(0, 1_700_000_000_000, None, value, [])
    return bytes(builder.build())


def produce(correlation: int, records: bytes, acks: int = 1) -> bytes:
    """A Produce v8 request."""
    head = struct.pack(">hhi", -1, acks, 30_000) + struct.pack(">i", 1) + text(b"captured")
    body = head + struct.pack(">iii", 1, 0, len(records)) + records
    return request(0, 8, correlation, body)


def produced(correlation: int) -> bytes:
    """The Produce v8 response."""
    partition = struct.pack(">ihqqqih", 0, 0, 7, -1, 0, 0, -1)
    topics = struct.pack(">i", 1) + text(b"captured") + struct.pack(">i", 1) + partition
    return framed(struct.pack(">i", correlation) + topics + struct.pack(">i", 0))


def fetch(correlation: int) -> bytes:
    """A Fetch v4 request."""
    body = struct.pack(">iiiib", -1, 500, 1, 1 << 20, 0) + struct.pack(">i", 1) + text(b"captured")
    return request(1, 4, correlation, body + struct.pack(">iiqi", 1, 0, 0, 1 << 20))


def fetched(correlation: int, records: bytes) -> bytes:
    """The Fetch v4 response."""
    partition = struct.pack(">ihqqi", 0, 0, 100, 100, 0)
    topics = struct.pack(">i", 1) + text(b"captured") + struct.pack(">i", 1) + partition
    body = struct.pack(">ii", correlation, 0) + topics + struct.pack(">i", len(records)) + records
    return framed(body)


def padding(message: bytes, value: bytes) -> bytes:
    """Bytes to put before a value, so that the value begins a segment of its message."""
    return bytes(-message.index(value) % SEGMENT)


Dialogue = list[tuple[int, bytes]]
"""Messages of one connection in order: the end that sends it, 0 for the client, and its bytes."""


def capture(path: Path, dialogue: Dialogue) -> list[Path]:
    flow, chunks, at = Flow((CLIENT, BROKER), True, 0), [], [0, 0]
    for end, data in dialogue:
        chunks.append(Chunk(0, end, at[end], data, 0, at[1 - end]))
        at[end] += len(data)
    flow.sizes = at
    return write(path, packets(Recording("", [flow], chunks), Options(), random.Random(0)))


COLUMNS = ("api", "correlation_id", "status")
"""Columns of the expected rows."""
Expected = Counter[tuple[str, int, str]]


def counted(rows: list[dict[str, Any]]) -> Expected:
    return Counter(tuple(row[name] for name in COLUMNS) for row in rows)


def exchanges(paths: list[Path], block_bytes: int) -> Expected:
    tables = Pipeline(open_packets(paths, block_bytes=block_bytes), []).tables(
        ["exchanges", "problems"]
    )
    assert tables["problems"].to_pylist() == []
    return counted(tables["exchanges"].to_pylist())


def captured_requests() -> tuple[Dialogue, Expected]:
    """A topic that holds captured requests: each begins a segment."""
    inner = b"".join(metadata(number) for number in range(100, 140))
    pad = padding(produce(0, batch(inner)), inner)
    dialogue = []
    for number in range(3):
        dialogue += [(0, produce(number, batch(pad + inner))), (1, produced(number))]
    return dialogue, Counter(("Produce", number, "answered") for number in range(3))


def captured_responses(*, is_last_cut: bool = False) -> tuple[Dialogue, Expected]:
    """A topic that holds captured responses, with the correlation ids that the consumer uses next.

    `is_last_cut`: the connection ends inside the last response.
    """
    answer = metadata_response(0)
    dialogue = []
    for number in range(1, 6):
        inner = b"".join(
            metadata_response(number + turn % 3) + bytes(SEGMENT - len(answer))
            for turn in range(12)
        )
        pad = padding(fetched(number, batch(inner)), inner)
        response = fetched(number, batch(pad + inner))
        if is_last_cut and number == 5:
            response = response[: len(response) - 3000]
        dialogue += [(0, fetch(number)), (0, fetch(number + 100)), (1, response)]
        dialogue += [] if is_last_cut and number == 5 else [(1, fetched(number + 100, b""))]
    numbers = [*range(1, 6), *range(101, 106)]
    return dialogue, Counter(("Fetch", number, "answered") for number in numbers)


def near_numbers() -> tuple[Dialogue, Expected]:
    """Metadata v8 of 1,000 partitions on brokers 1001 to 1010, correlation ids 1000 to 1004."""
    chance = random.Random(1)
    partitions = b""
    for number in range(1000):
        leader = 1001 + number % 10
        replicas = struct.pack(">iiii", 3, leader, *chance.sample(range(1001, 1011), 2))
        partitions += struct.pack(">hiii", 0, number, leader, 5) + 2 * replicas
        partitions += struct.pack(">i", 0)
    topic = struct.pack(">h", 0) + text(b"large") + b"\0" + struct.pack(">i", 1000) + partitions
    body = struct.pack(">ii", 0, 0) + text(b"cluster") + struct.pack(">ii", 1001, 1)
    body += topic + struct.pack(">ii", -(2**31), -(2**31))
    ask = struct.pack(">i", 1) + text(b"large") + b"\0\0\0"
    dialogue = []
    for number in range(1000, 1005):
        dialogue.append((0, request(3, 8, number, ask)))
        dialogue.append((1, framed(struct.pack(">i", number) + body)))
    return dialogue, Counter(("Metadata", number, "answered") for number in range(1000, 1005))


DIALOGUES = {
    "requests": captured_requests, "responses": captured_responses, "numbers": near_numbers
}  # fmt: skip


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("name", DIALOGUES)
def test_no_row_is_made_of_the_content_of_a_message(
    tmp_path: Path, name: str, block_bytes: int
) -> None:
    dialogue, expected = DIALOGUES[name]()
    assert exchanges(capture(tmp_path, dialogue), block_bytes) == expected


@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_a_connection_that_ends_inside_captured_responses(tmp_path: Path, block_bytes: int) -> None:
    paths = capture(tmp_path, captured_responses(is_last_cut=True)[0])
    tables = Pipeline(open_packets(paths, block_bytes=block_bytes), []).tables(["exchanges"])
    rows = tables["exchanges"].to_pylist()
    assert {row["api"] for row in rows} == {"Fetch"}
    assert sum(row["status"] == "answered" for row in rows) == 9
