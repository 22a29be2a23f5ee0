"""The packets of a recording in other files give the same rows, times included.

`tests.rewriting` changes the packets themselves. The changes are drawn at random, the same every
time, unless the environment variable `SEED` is set; a failure prints it.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from dissector.packets import open_packets
from dissector.pipeline import Pipeline
from tests.captures import recorded

RECORDINGS = (
    "aiokafka-tansu.pcap",
    "librdkafka-tansu.pcap.zst",
    "kafka-4-kafkajs.pcap.zst",
    "kafka-3-java-0-8.pcap.zst",
)
WITH_RETRANSMISSIONS = ("kafka-4-java.pcap.zst",)
"""The first copy in the file counts, with its time."""
WITH_REPEATED_IDS = ("kafka-4-sasl.pcap.zst", "kafka-3-pykafka.pcap.zst")
"""Java authenticates again with the same correlation ids, pykafka always sends 0."""
ALL = RECORDINGS + WITH_RETRANSMISSIONS + WITH_REPEATED_IDS
PLACES = ("connection_id", "capture", "request_packet", "response_packet")
"""Columns with positions in a file."""
TIMES = (
    "request_time", "request_end_time", "response_time", "response_end_time", "latency_ms",
    "in_flight",
)  # fmt: skip


@pytest.fixture
def chance() -> random.Random:
    seed = os.environ.get("SEED", "0")
    print(f"SEED={seed}")
    return random.Random(seed)


def rows(*paths: Path, without: tuple[str, ...] = PLACES) -> Counter[str]:
    table = Pipeline(open_packets(paths), []).tables(["exchanges"])["exchanges"]
    return Counter(map(str, table.drop_columns([*without]).to_pylist()))


@cache
def original(name: str, without: tuple[str, ...] = PLACES) -> Counter[str]:
    return rows(recorded.CAPTURES / name, without=without)


@pytest.mark.parametrize("name", ALL)
def test_the_same_packets_in_one_file(tmp_path: Path, name: str) -> None:
    without = ("capture", "request_packet", "response_packet")
    again = rows(recorded.write(tmp_path / "again.pcap", recorded.read(name)), without=without)
    assert again.total() > 10
    assert again == original(name, without)


@pytest.mark.parametrize("name", ALL)
def test_cut_in_two_files_at_any_packet(tmp_path: Path, name: str, chance: random.Random) -> None:
    packets = recorded.read(name)
    border = chance.randrange(1, len(packets))
    parts = [
        recorded.write(tmp_path / "1.pcap", packets[:border]),
        recorded.write(tmp_path / "2.pcap", packets[border:]),
    ]
    assert rows(*parts) == original(name)


@pytest.mark.parametrize("name", ALL)
def test_out_of_order_in_the_file(tmp_path: Path, name: str, chance: random.Random) -> None:
    """Each packet keeps its time, as in a capture on several cores."""
    packets = recorded.read(name)
    order = sorted(range(len(packets)), key=lambda index: index + chance.uniform(0, 30))
    path = recorded.write(tmp_path / "a.pcap", (packets[index] for index in order))
    without = PLACES if name in RECORDINGS else PLACES + TIMES
    assert rows(path, without=without) == original(name, without)


@pytest.mark.parametrize("name", ALL)
def test_repeated_packets(tmp_path: Path, name: str, chance: random.Random) -> None:
    packets = [
        copy for each in recorded.read(name) for copy in [each] * (1 + (chance.random() < 0.3))
    ]
    assert rows(recorded.write(tmp_path / "a.pcap", packets)) == original(name)
