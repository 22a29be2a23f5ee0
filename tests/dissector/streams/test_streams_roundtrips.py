"""Round trips in dialogues, and compared with tshark in real captures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.capture import open_capture
from dissector.packets.block import ACK, FIN, RST
from dissector.streams import Streams
from dissector.streams.connections.roundtrips import RoundTrips
from tests.captures.recorded import CAPTURES
from tests.dissector.streams.dialogue import NEWEST, Dialogue, Packet, block, body_end
from tests.tshark import needs_tshark, tshark

CLIENT, BROKER = 0, 1
ERROR = 0.011
"""Bins are 2 % wide."""


def measured(packets: Sequence[Packet], cuts: Sequence[int] = ()) -> np.ndarray:
    """Median round trips of the first connection, to the client and to the broker, ms."""
    trips = RoundTrips()
    streams = Streams(ports=[9092], newest=NEWEST, body_end=body_end)
    streams.round_trips = trips
    borders = [0, *sorted(cuts), len(packets)]
    for low, high in pairwise(borders):
        streams.feed(block(packets[low:high], streams.reserve))
    return trips.medians(np.arange(streams.connections.count))[0]


def test_the_round_trip_to_each_end() -> None:
    dialogue, connection = Dialogue.connected()
    connection.client(b"query")
    dialogue.wait(6)
    connection.packet(BROKER)  # 7 ms later
    connection.broker(b"data")
    dialogue.wait(29)
    connection.packet(CLIENT)  # 30 ms later
    assert measured(dialogue.packets) == pytest.approx([30, 7], rel=ERROR)


def test_packets_that_are_not_samples() -> None:
    dialogue, connection = Dialogue.connected()
    connection.exchange(b"query", b"a response acknowledges the request, but took time")
    connection.packet(BROKER)
    connection.client(b"again")
    connection.packet(BROKER, ack=connection.seq[CLIENT] - 1)  # not all of it
    connection.retransmit(CLIENT, b"again", back=5)
    connection.packet(BROKER)  # of the first copy, or of the second?
    connection.client(b"once more")
    connection.packet(BROKER, flags=RST | ACK)
    connection.packet(CLIENT, flags=FIN | ACK)
    assert np.isnan(measured(dialogue.packets)).all()


def test_only_the_first_acknowledgement_is_a_sample() -> None:
    dialogue, connection = Dialogue.connected()
    connection.client(b"query")
    connection.packet(BROKER)
    dialogue.wait(100)
    connection.packet(BROKER)  # its window has grown
    assert measured(dialogue.packets)[BROKER] == pytest.approx(1, rel=ERROR)


def test_the_median_of_round_trips_with_numbers_that_wrap() -> None:
    dialogue, connection = Dialogue.connected(isn=(2**32 - 8, 2**32 - 1))
    for ms in (50, 3, 900, 10, 11):
        connection.client(b"query")
        dialogue.wait(ms - 1)
        connection.packet(BROKER)
    assert measured(dialogue.packets)[BROKER] == pytest.approx(11, rel=ERROR)


def random_packets(chance: Sequence[tuple[int, int, int]]) -> list[Packet]:
    """Random payloads, acknowledgements and retransmissions on two connections."""
    dialogue = Dialogue()
    connections = dialogue.connect(), dialogue.connect()
    for choice, action, ms in chance:
        connection, end = connections[choice & 1], choice >> 1
        dialogue.wait(ms)
        if action < 2:
            connection.packet(end, b"x" * (action + 1))
        elif action == 2 and connection.seq[end] > 1100:
            connection.retransmit(end, b"x", back=1)
        else:
            connection.packet(end)
    return dialogue.packets


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 50)), min_size=2),
    st.sets(st.integers(0, 100)),
)
def test_medians_do_not_depend_on_blocks(
    chance: list[tuple[int, int, int]], cuts: set[int]
) -> None:
    packets = random_packets(chance)
    parts = sorted(cut for cut in cuts if cut < len(packets))
    np.testing.assert_array_equal(measured(packets, parts), measured(packets))


def test_zero_windows_are_counted() -> None:
    dialogue, connection = Dialogue.connected()
    connection.packet(BROKER)
    connection.client(b"query")
    connection.packet(BROKER, flags=RST)
    packets = block(dialogue.packets)
    window = np.where(np.isin(np.arange(len(packets)), [3, 5]), 0, packets.window)
    streams = Streams(ports=[9092], newest=NEWEST, body_end=body_end)
    streams.round_trips = RoundTrips()
    streams.feed(replace(packets, window=window.astype(np.uint16)))
    assert streams.round_trips.zero_windows(np.arange(1)).tolist() == [
        [0, 1]
    ]  # a reset is not counted


@needs_tshark
@pytest.mark.parametrize(
    "name",
    [
        "aiokafka-tansu.pcap", "librdkafka-mock-groups.pcap.gz", "kafka-4-net-delay.pcap.zst",
        "kafka-4-net-loss.pcap.zst", "kafka-4-followed.pcap.zst",
    ],
)  # fmt: skip
def test_round_trips_equal_those_of_tshark(name: str) -> None:
    """tshark has the same samples if the acknowledged packet is the last one and was sent once."""
    rows = open_capture(CAPTURES / name).tables(["connections"])["connections"].to_pylist()
    expected = wireshark(CAPTURES / name)
    compared = 0
    for row in rows:
        ports = {"client": row["client_port"], "broker": row["broker_port"]}
        for end, opposite in (("client", "broker"), ("broker", "client")):
            samples = expected.get((ports[end], ports[opposite]))
            if samples:
                compared += 1
                low, high = np.quantile(samples, 0.5, method="lower"), np.median(samples)
                median = row[f"{end}_rtt_ms"]
                assert low * (1 - ERROR) <= median <= high * (1 + ERROR)
    assert compared >= len(rows)


def wireshark(path: Path) -> dict[tuple[int, int], list[float]]:
    """tshark's samples, ms, by the ports of the end that acknowledges and of the opposite end."""
    fields = (
        "frame.number", "tcp.srcport", "tcp.dstport", "tcp.len", "tcp.analysis.acks_frame",
        "tcp.analysis.ack_rtt", "tcp.analysis.retransmission", "tcp.analysis.duplicate_ack",
        "tcp.analysis.out_of_order",
    )  # fmt: skip
    samples = defaultdict(list)
    latest: dict[tuple[str, str], tuple[str, bool]] = {}
    for row in tshark(path, fields, "-Y", "tcp.flags.reset == 0"):
        number, source, target, length, acks, rtt, *odd = row
        frame, is_unique = latest.get((target, source), ("", False))
        if acks and acks == frame and is_unique and length == "0":
            samples[int(source), int(target)].append(float(rtt) * 1000)
        if length != "0":
            latest[source, target] = number, not any(odd)
    return samples
