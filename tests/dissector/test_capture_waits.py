"""Late responses match their requests, in blocks of one packet as in a large block."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dissector.packets import open_packets
from dissector.pipeline import Pipeline
from tests.dissector.streams.dialogue import ACK, FIN, Dialogue, ipv4
from tests.dissector.test_capture_nested import batch, fetch, fetched, produce, produced

BLOCKS = [1 << 25, 40]
"""The last is smaller than any packet with its record header: a packet a block."""


def statuses(folder: Path, dialogue: Dialogue, block_bytes: int) -> list[tuple[int, str]]:
    path = dialogue.written(folder / "capture.pcap")
    tables = Pipeline(open_packets([path], block_bytes=block_bytes), []).tables(["exchanges"])
    rows = tables["exchanges"].to_pylist()
    return sorted((row["correlation_id"], row["status"]) for row in rows)


RECORDS = batch(b"value")


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("wait", [900, 6_000, 300_000])
def test_a_response_after_the_client_closed(tmp_path: Path, block_bytes: int, wait: int) -> None:
    """The clock of the broker's interface may be ahead, so that its packets come later. Or the
    broker waits, as for the members of a group, before it reads the FIN."""
    dialogue, connection = Dialogue.connected()
    other = dialogue.connect(client="10.0.0.2")
    connection.client(produce(1, RECORDS, acks=1))
    dialogue.wait(6_000)
    connection.packet(0, flags=FIN | ACK)
    connection.packet(1)
    for _ in range(200):
        dialogue.wait(wait / 200)
        other.packet(0)
    connection.broker(produced(1))
    assert statuses(tmp_path, dialogue, block_bytes) == [(1, "answered")]


@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_a_broker_that_answers_acks_0_is_awaited(tmp_path: Path, block_bytes: int) -> None:
    dialogue, connection = Dialogue.connected()
    connection.client(produce(1, RECORDS, acks=0))
    dialogue.wait(3_500)
    connection.packet(0)
    connection.broker(produced(1))
    connection.client(produce(2, RECORDS, acks=0))
    dialogue.wait(6_500)
    connection.packet(0)
    connection.broker(produced(2))
    assert statuses(tmp_path, dialogue, block_bytes) == [(1, "answered"), (2, "answered")]


@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_a_broker_that_does_not_answer_acks_0_is_not_awaited(
    tmp_path: Path, block_bytes: int
) -> None:
    dialogue, connection = Dialogue.connected()
    connection.client(produce(1, RECORDS, acks=0))
    dialogue.wait(1_500)
    connection.client(produce(2, RECORDS, acks=1))
    connection.broker(produced(2))
    expected = [(1, "no_reply_expected"), (2, "answered")]
    assert statuses(tmp_path, dialogue, block_bytes) == expected


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("hours", [1, 24])
def test_a_response_after_hours(tmp_path: Path, block_bytes: int, hours: int) -> None:
    """A JoinGroup waits for max.poll.interval.ms of the other members, which may be hours."""
    dialogue = Dialogue()
    waiting, other = dialogue.connect(), dialogue.connect()
    waiting.client(produce(1, RECORDS, acks=1))
    waiting.client(produce(2, RECORDS, acks=1))
    for number in range(8):
        dialogue.wait(hours * 3_600_000 // 8)
        other.client(produce(11 + number, RECORDS, acks=1))
        other.broker(produced(11 + number))
    waiting.broker(produced(1))
    dialogue.wait(hours * 3_600_000)
    waiting.broker(produced(2))
    expected = [(number, "answered") for number in (1, 2, *range(11, 19))]
    assert statuses(tmp_path, dialogue, block_bytes) == expected


def in_flight(folder: Path, dialogue: Dialogue) -> list[int]:
    """Number of pending requests after each block."""
    path = dialogue.written(folder / "capture.pcap")
    pipeline = Pipeline(open_packets([path], block_bytes=40), [])
    return [pipeline.in_flight for _ in pipeline.stream(["exchanges"])]


def test_requests_before_an_answered_one_are_not_kept(tmp_path: Path) -> None:
    """Brokers respond in order: the capture lacks their responses."""
    dialogue, connection = Dialogue.connected()
    for number in range(15):
        connection.client(produce(number, RECORDS, acks=1))
        dialogue.wait(180_000)
        if number >= 4:
            connection.broker(produced(number))
    assert set(in_flight(tmp_path, dialogue)[-3:]) <= {0, 1}


def test_requests_of_a_capture_without_responses_are_not_kept(tmp_path: Path) -> None:
    dialogue, connection = Dialogue.connected()
    for number in range(60):
        connection.client(produce(number, RECORDS, acks=1))
        dialogue.wait(60_000)
    assert max(in_flight(tmp_path, dialogue)) < 30


@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_a_broker_whose_clock_is_behind(tmp_path: Path, block_bytes: int) -> None:
    """All it sent on a connection comes before the first packet of the client."""
    large = batch(bytes(1000))
    dialogue, connection = Dialogue.connected(broker=(ipv4("10.0.0.9"), 45_679))
    for number in range(80):
        connection.exchange(fetch(number), fetched(number, large))
    behind = 4_000_000_000
    dialogue.packets = [
        replace(each, time=each.time - behind) if each.source[1] == 45_679 else each
        for each in dialogue.packets
    ]
    dialogue.packets.sort(key=lambda each: each.time)
    expected = [(number, "answered") for number in range(80)]
    assert statuses(tmp_path, dialogue, block_bytes) == expected


def test_a_broker_whose_client_is_not_captured_is_not_held_for_long(tmp_path: Path) -> None:
    """Rows of one direction appear while the capture goes on, not at its end."""
    dialogue, connection = Dialogue.connected()
    for number in range(3000):
        dialogue.wait(4)
        connection.broker(produced(number))
    dialogue.packets = [each for each in dialogue.packets if each.source[1] == 9092]
    path = dialogue.written(tmp_path / "capture.pcap")
    pipeline = Pipeline(open_packets([path], block_bytes=16_000), [])
    batches = [len(rows) for _, rows in pipeline.stream(["exchanges"])]
    assert sum(batches) == 3000
    assert max(batches) < 2000


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("is_set_back", [False, True])
def test_a_wrong_clock_ends_no_wait(tmp_path: Path, block_bytes: int, is_set_back: bool) -> None:
    """One packet is a day late, or all packets after it are a day early."""
    dialogue, connection = Dialogue.connected()
    connection.client(produce(1, RECORDS, acks=1))
    connection.packet(0)
    late = len(dialogue.packets) - 1
    connection.packet(0)
    connection.broker(produced(1))
    connection = dialogue.connect()
    connection.client(produce(2, RECORDS, acks=1))
    connection.packet(0)
    connection.broker(produced(2))
    day = 86_400 * 10**9
    dialogue.packets[:] = [
        replace(each, time=each.time + day * (number <= late if is_set_back else number == late))
        for number, each in enumerate(dialogue.packets)
    ]
    assert statuses(tmp_path, dialogue, block_bytes) == [(1, "answered"), (2, "answered")]
