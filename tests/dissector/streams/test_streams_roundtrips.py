"""Round trips, told packet by packet, and as tshark measures them in real captures."""

from __future__ import annotations

import shutil
import subprocess
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
from dissector.streams.roundtrips import RoundTrips
from tests.dissector.streams.dialogue import NEWEST, Connection, Dialogue, Packet, block

CAPTURES = Path(__file__).parents[3] / "captures"
CLIENT, BROKER = 0, 1
ERROR = 0.011
"""Bins are 2 % wide."""


def measured(packets: Sequence[Packet], cuts: Sequence[int] = ()) -> np.ndarray:
    """Median trips of the first connection, to the client and to the broker, ms."""
    trips = RoundTrips()
    streams = Streams(ports=[9092], newest=NEWEST)
    streams.round_trips = trips
    borders = [0, *sorted(cuts), len(packets)]
    for low, high in pairwise(borders):
        streams.feed(block(packets[low:high], streams.reserve))
    return trips.medians(np.arange(streams.connections.count))[0]


def told() -> tuple[Dialogue, Connection]:
    dialogue = Dialogue()
    return dialogue, dialogue.connect()


def test_the_way_to_each_end() -> None:
    dialogue, one = told()
    one.client(b"asked")
    dialogue.wait(6)
    one.packet(BROKER)  # 7 ms later
    one.broker(b"told")
    dialogue.wait(29)
    one.packet(CLIENT)  # 30 ms later
    assert measured(dialogue.packets) == pytest.approx([30, 7], rel=ERROR)


def test_what_does_not_count() -> None:
    dialogue, one = told()
    one.client(b"asked")
    one.broker(b"an answer says that it came, but had to be thought of")
    one.packet(BROKER)
    one.client(b"again")
    one.packet(BROKER, ack=one.seq[CLIENT] - 1)  # not all of it
    one.again(CLIENT, b"again", back=5)
    one.packet(BROKER)  # of the first one, or of the second?
    one.client(b"once more")
    one.packet(BROKER, flags=RST | ACK)
    one.packet(CLIENT, flags=FIN | ACK)
    assert np.isnan(measured(dialogue.packets)).all()


def test_only_the_first_acknowledgement_counts() -> None:
    dialogue, one = told()
    one.client(b"asked")
    one.packet(BROKER)
    dialogue.wait(100)
    one.packet(BROKER)  # its window has grown
    assert measured(dialogue.packets)[BROKER] == pytest.approx(1, rel=ERROR)


def test_the_median_of_an_odd_number_of_trips_and_numbers_that_wrap() -> None:
    dialogue = Dialogue()
    one = dialogue.connect(isn=(2**32 - 8, 2**32 - 1))
    for ms in (50, 3, 900, 10, 11):
        one.client(b"asked")
        dialogue.wait(ms - 1)
        one.packet(BROKER)
    assert measured(dialogue.packets)[BROKER] == pytest.approx(11, rel=ERROR)


def some(chance: Sequence[tuple[int, int, int]]) -> list[Packet]:
    """Payloads, acknowledgements and repeats, at random, on two connections."""
    dialogue = Dialogue()
    both = dialogue.connect(), dialogue.connect()
    for which, what, ms in chance:
        one, end = both[which & 1], which >> 1
        dialogue.wait(ms)
        if what < 2:
            one.packet(end, b"x" * (what + 1))
        elif what == 2 and one.seq[end] > 1100:
            one.again(end, b"x", back=1)
        else:
            one.packet(end)
    return dialogue.packets


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 50)), min_size=2),
    st.sets(st.integers(0, 100)),
)
def test_blocks_may_be_cut_anywhere(chance: list[tuple[int, int, int]], cuts: set[int]) -> None:
    packets = some(chance)
    parts = sorted(cut for cut in cuts if cut < len(packets))
    np.testing.assert_array_equal(measured(packets, parts), measured(packets))


def test_an_end_that_is_full_says_so() -> None:
    dialogue, one = told()
    one.packet(BROKER)
    one.client(b"asked")
    one.packet(BROKER, flags=RST)
    packets = block(dialogue.packets)
    full = np.where(np.isin(np.arange(len(packets)), [3, 5]), 0, packets.window)
    streams = Streams(ports=[9092], newest=NEWEST)
    streams.round_trips = RoundTrips()
    streams.feed(replace(packets, window=full.astype(np.uint16)))
    assert streams.round_trips.zero_windows(np.arange(1)).tolist() == [
        [0, 1]
    ]  # a reset says nothing


@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")
@pytest.mark.parametrize(
    "name",
    [
        "aiokafka-tansu.pcap", "librdkafka-mock-groups.pcap.gz", "kafka-4-net-delay.pcap.zst",
        "kafka-4-net-loss.pcap.zst", "kafka-4-followed.pcap.zst",
    ],
)  # fmt: skip
def test_as_tshark_measures_it(name: str) -> None:
    """Its samples are ours where the acknowledged packet is the last one, and was sent once."""
    rows = open_capture(CAPTURES / name).tables(["connections"])["connections"].to_pylist()
    expected = wireshark(CAPTURES / name)
    compared = 0
    for row in rows:
        ports = {"client": row["client_port"], "broker": row["broker_port"]}
        for end, other in (("client", "broker"), ("broker", "client")):
            samples = expected.get((ports[end], ports[other]))
            if samples:
                compared += 1
                low, high = np.quantile(samples, 0.5, method="lower"), np.median(samples)
                found = row[f"{end}_rtt_ms"]
                assert low * (1 - ERROR) <= found <= high * (1 + ERROR)
    assert compared >= len(rows)


def wireshark(path: Path) -> dict[tuple[int, int], list[float]]:
    """tshark's samples, ms, by the ports of the end that acknowledges and of the other one."""
    fields = (
        "frame.number", "tcp.srcport", "tcp.dstport", "tcp.len", "tcp.analysis.acks_frame",
        "tcp.analysis.ack_rtt", "tcp.analysis.retransmission", "tcp.analysis.duplicate_ack",
        "tcp.analysis.out_of_order",
    )  # fmt: skip
    options = [argument for field in fields for argument in ("-e", field)]
    command = [
        "tshark",
        "-n",
        "-r",
        str(path),
        "-Y",
        "tcp.flags.reset == 0",
        "-T",
        "fields",
        *options,
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    samples = defaultdict(list)
    latest: dict[tuple[str, str], tuple[str, bool]] = {}
    for line in run.stdout.splitlines():
        number, source, target, length, acks, rtt, *odd = line.split("\t")
        frame, once = latest.get((target, source), ("", False))
        if acks and acks == frame and once and length == "0":
            samples[int(source), int(target)].append(float(rtt) * 1000)
        if length != "0":
            latest[source, target] = number, not any(odd)
    return samples
