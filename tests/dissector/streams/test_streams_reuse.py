"""Connections that follow each other between the same endpoints."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from dissector.packets.block import ACK, FIN, RST, SYN
from dissector.streams.connections.incarnations import Incarnation, Pairs, closes_of
from dissector.streams.connections.table import FIN_SEEN, OPEN, RST_SEEN
from tests.dissector.streams.dialogue import (
    MS,
    SECOND,
    Dialogue,
    block,
    dissect,
    request,
    response,
)  # fmt: skip

ONE, TWO = request(3, 1, 1), request(3, 1, 2)


def reused(times: int, isn) -> Dialogue:
    dialogue = Dialogue()
    for number in range(times):
        connection = dialogue.connect(port=41000, isn=isn(number))
        connection.exchange(request(3, 1, number), response(number))
        connection.fin()
    return dialogue


def test_a_port_pair_that_is_used_a_thousand_times():
    dialogue = reused(1000, lambda number: (1000 + number * 70_000, 9 + number * 65_536))
    out = dissect(dialogue.packets)
    assert out.streams.connections.count == 1000
    assert [len(each) for each in out.messages()] == [1000, 1000]
    assert [each.connection for each in out.frames] == list(range(1000)) * 2


def test_sequence_numbers_separate_connections_if_packets_are_out_of_order():
    chance = random.Random(5)
    starts = [(chance.randrange(2**32), chance.randrange(2**32)) for _ in range(300)]
    dialogue = reused(300, lambda number: starts[number])
    order = sorted(range(len(dialogue.packets)), key=lambda index: index + chance.uniform(0, 5))
    packets = [dialogue.packets[index] for index in order]
    for cuts in ([], [len(packets) // 2]):
        out = dissect(packets, cuts=cuts)
        assert out.streams.connections.count == 300
        assert [len(each) for each in out.messages()] == [300, 300]


def test_times_separate_connections_if_a_file_is_in_any_order():
    """The broker refuses the second connection, so that its packets show no initial number."""
    dialogue, connection = Dialogue.connected(port=41000)
    connection.exchanges(range(100))
    connection.fin()
    dialogue.wait(20_000)
    refused = dialogue.connect(port=41000, isn=(90_000, 70_000), handshake=False)
    refused.seq = [90_000, 0]
    refused.packet(0, flags=SYN, ack=0)
    refused.packet(1, flags=RST | ACK)
    for seed in range(20):
        packets = random.Random(seed).sample(dialogue.packets, len(dialogue.packets))
        out = dissect(packets)
        assert out.streams.connections.count == 2
        assert [len(each) for each in out.messages()] == [100, 100], seed
        assert not out.problems


def test_a_port_pair_that_is_reused_in_time_wait():
    """The broker answers the new SYN with an ACK of the old connection, and the client with a RST
    (RFC 5961, section 4.2; RFC 9293, section 3.10.7.3). The next SYN is accepted."""
    dialogue, old = Dialogue.connected(port=41000)
    old.client(ONE)
    old.fin()
    dialogue.wait(20_000)
    new = dialogue.connect(port=41000, isn=(90_000, 70_000), handshake=False)
    new.seq = [90_000, 70_000]
    new.packet(0, flags=SYN, ack=0)
    old.packet(1)
    old.packet(0, flags=RST)
    new.seq[0] = 90_000
    new.packet(0, flags=SYN, ack=0)
    new.packet(1, flags=SYN | ACK)
    new.packet(0)
    new.client(TWO)
    for cuts in ([], *([cut] for cut in range(14)), range(14)):
        out = dissect(dialogue.packets, cuts=cuts)
        table = out.streams.connections
        assert table.count == 2
        assert table.closed[:2].tolist() == [FIN_SEEN | RST_SEEN, OPEN]
        assert table.packets[:2].sum(axis=1).tolist() == [9, 5]
        assert out.messages(1)[0] == [TWO[4:]]


@pytest.mark.parametrize("packets_per_block", [1, 5, 100])
@pytest.mark.parametrize("skew", [500, 1500, 4900])
def test_two_capture_points_with_different_clocks(packets_per_block, skew):
    """A connection that is closed before the packets of the second point begin."""
    dialogue, connection = Dialogue.connected()
    connection.exchanges(range(3))
    connection.fin()
    packets = dialogue.packets
    packets += [replace(each, time=each.time + skew * MS) for each in packets]
    out = dissect(packets, packets_per_block=packets_per_block)
    assert out.streams.connections.count == 1
    assert [len(each) for each in out.messages()] == [3, 3]


def test_a_retransmitted_syn_is_the_same_connection():
    dialogue, connection = Dialogue.connected()
    dialogue.packets[1:1] = [replace(dialogue.packets[0], time=dialogue.packets[0].time + 1)] * 2
    connection.client(ONE)
    out = dissect(dialogue.packets)
    assert out.streams.connections.count == 1
    assert out.messages()[0] == [ONE[4:]]


@pytest.mark.parametrize("cuts", [[], [7], [8], [9], [16, 17, 18], range(30)])
@pytest.mark.parametrize("flags", [FIN | ACK, RST | ACK, RST])
@pytest.mark.parametrize("ends", [(0, 1), (0,)], ids=["both", "client"])
def test_reuse_with_the_same_initial_sequence_numbers(cuts, flags, ends):
    """Behind a close and silence. The first SYN is sent again after another second."""
    dialogue = Dialogue()
    for number in range(3):
        connection = dialogue.connect(port=41000)
        repeated = replace(dialogue.packets[-3], time=dialogue.now + 1100 * MS)
        dialogue.packets.insert(-2, repeated)
        dialogue.wait(1100)
        for each in range(3):
            connection.exchange(request(3, 1, 10 * number + each), response(10 * number + each))
        connection.packet(0, flags=flags)
        dialogue.wait(5100)
    packets = [each for each in dialogue.packets if (each.source[1] == 9092) in ends]
    out = dissect(packets, cuts=cuts)
    assert out.streams.connections.count == 3
    for end in ends:
        assert [len(out.messages(row)[end]) for row in range(3)] == [3, 3, 3]


def test_a_keep_alive_before_any_data_is_of_the_new_connection():
    dialogue = reused(1, lambda number: (1000, 5000))
    connection = dialogue.connect(port=41000, isn=(20_000_000, 30_000_000))
    connection.retransmit(0, b"", back=1)
    connection.client(ONE)
    connection.packet(1)
    out = dissect(dialogue.packets)
    assert out.streams.connections.packets[:2].tolist() == [[5, 3], [4, 2]]
    assert out.problems == []


def test_a_copy_of_a_connection_is_not_reuse():
    """A second capture point has all packets, 0.3 s later."""
    dialogue = reused(1, lambda number: (1000, 5000))
    copies = [replace(each, time=each.time + 300 * MS) for each in dialogue.packets]
    out = dissect([*dialogue.packets, *copies])
    assert out.streams.connections.count == 1
    assert [len(each) for each in out.messages()] == [1, 1]


def test_reuse_seen_from_the_broker_alone():
    dialogue = reused(5, lambda number: (number * 100_000, number * 100_000))
    packets = [each for each in dialogue.packets if each.source[1] == 9092]
    out = dissect(packets)
    table = out.streams.connections
    assert table.count == 5
    assert (table.port[0, int(table.client[0])], table.opened[0]) == (41000, True)


@pytest.mark.parametrize("cuts", [[5], [7], [4, 9], [20], []])
@pytest.mark.parametrize(("isn", "end"), [
    *product([(2**31 + 5, 2**31 + 7), (2**31 + 5, 2**29), (2**29, 2**31 + 5)],
             ["FIN", "RST", "RST without ACK", "silence"]),
    *product([(2**28, 2**29), (2**25, 2**25)], ["FIN", "RST", "RST without ACK"]),
])  # fmt: skip
def test_reuse_without_a_syn_behind_a_close_or_silence(
    cuts: list[int], isn: tuple[int, int], end: str
):
    dialogue = Dialogue()
    start = (10, 10)
    for row in range(3):
        connection = dialogue.connect(port=40001, isn=start, handshake=not row)
        connection.exchanges(range(5 if row else 1))
        if end == "FIN":
            connection.fin()
        elif end == "RST":
            connection.packet(0, flags=RST | ACK)
        elif end == "RST without ACK":
            connection.rst()
        dialogue.now += 31 * SECOND if end == "silence" else SECOND
        start = (start[0] + isn[0]) % 2**32, (start[1] + isn[1]) % 2**32
    out = dissect(dialogue.packets, cuts=cuts)
    table = out.streams.connections
    assert table.count == 3
    assert (table.packets[:3] > 0).all()
    assert [[len(each) for each in out.messages(row)] for row in range(3)] == [
        [1, 1],
        [5, 5],
        [5, 5],
    ]


def test_a_reset_without_an_acknowledgement_closes_with_one_number():
    """RFC 9293, section 3.5.2: the acknowledgement number is not valid then."""
    dialogue, connection = Dialogue.connected(isn=(2**32 - 2, 5000))
    connection.packet(1, flags=RST | ACK)
    connection.rst()
    packets = block(dialogue.packets, 0)
    zero = np.zeros(1, np.int64)
    pairs = Pairs(zero.astype(np.uint64), np.array([0, 1, 0, 1, 0]), zero, zero)
    closes = closes_of(packets, pairs, np.zeros(2, np.int64))
    assert [numbers for _, numbers, _ in closes[0]] == [(2**32 - 1, -1), (2**32 - 1, 5001)]


def test_closes_and_jumps_take_linear_time(monkeypatch: pytest.MonkeyPatch):
    """Each packet with data jumps behind the close before it."""
    calls = 0
    measure = Incarnation.distance

    def counted(self: Incarnation, numbers: tuple[int, int]) -> int:
        nonlocal calls
        calls += 1
        return measure(self, numbers)

    monkeypatch.setattr(Incarnation, "distance", counted)
    dialogue, connection = Dialogue.connected()
    start = list(connection.seq)
    for number in range(2000):
        connection.seq = [each + (number % 2 << 29) for each in start]
        connection.packet(0, flags=FIN | ACK)
        connection.seq[0] += 5 << 22
        connection.client(ONE)
    dissect(dialogue.packets)
    assert calls < 10 * len(dialogue.packets)


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("ahead", [-100, 0, 1, 100, 1 << 23, 3 << 30])
@pytest.mark.parametrize("block", [1, 7, 1000])
def test_a_connection_goes_on_after_syns_that_no_end_accepts(block: int, ahead: int, end: int):
    """Forged SYNs, also inside the window: the receiver acknowledges what it received before (RFC
    9293, section 3.10.7.4; RFC 5961, section 4). Then the connection is silent for a while."""
    dialogue, connection = Dialogue.connected()
    other = dialogue.connect()
    for number in range(60):
        if number in (10, 15):
            seq = (connection.seq[end] + ahead) % 2**32
            own, time = dialogue.packets[end], dialogue.packets[-1].time
            dialogue.packets.append(replace(own, seq=seq, ack=0, flags=SYN, time=time))
            connection.packet(1 - end)
        if number == 40:
            for each in range(8):
                dialogue.wait(5000)
                other.exchange(request(3, 1, each), response(each))
        connection.exchange(request(3, 1, number), response(number))
    out = dissect(dialogue.packets, packets_per_block=block)
    assert [len(each) for each in out.messages(0)] == [60, 60]
    assert out.problems == []


@pytest.mark.parametrize("has_reset", [True, False])
@pytest.mark.parametrize("ahead", [-5000, 0, 1 << 20])
@pytest.mark.parametrize("block", [1, 7, 1000])
def test_a_restart_without_its_syn_ack(block: int, ahead: int, has_reset: bool):
    """A client that crashed uses the port again. Its numbers are near the earlier ones, as those of
    Linux are within seconds, and the capture dropped the SYN-ACK."""
    dialogue, old = Dialogue.connected(port=41000)
    old.exchanges(range(40))
    isn = tuple(number + ahead for number in old.seq)
    if has_reset:
        old.packet(0, flags=RST)
    new = dialogue.connect(port=41000, handshake=False, isn=isn)
    new.seq = [isn[0], isn[1]]
    new.packet(0, flags=SYN, ack=0)
    new.packet(1, flags=SYN | ACK, sent=False)
    new.packet(0)
    new.exchanges(range(100, 150))
    out = dissect(dialogue.packets, packets_per_block=block)
    assert [[len(each) for each in out.messages(row)] for row in (0, 1)] == [[40, 40], [50, 50]]
    assert out.problems == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("counts", [(60, 60), (60, 5), (5, 60)])
@pytest.mark.parametrize("block", [1, 7, 1000])
@pytest.mark.parametrize("pause", [0, 900])
def test_connections_of_two_networks_with_the_same_addresses(
    counts: tuple[int, int], block: int, pause: int
):
    dialogue = Dialogue()
    isns = ((1000, 5000), (1 << 31, 3 << 30))
    both = [dialogue.connect(port=40001, isn=isn) for isn in isns]
    for number in range(max(counts)):
        dialogue.wait(pause)
        for connection, count in zip(both, counts, strict=True):
            if number < count:
                connection.client(request(3, 1, number))
        for connection, count in zip(both, counts, strict=True):
            if number < count:
                connection.broker(response(number))
            if number + 1 == count:
                connection.fin()
    out = dissect(dialogue.packets, packets_per_block=block)
    for row, count in enumerate(counts):
        assert [len(each) for each in out.messages(row)] == [count, count]
    assert out.problems == []


@pytest.mark.parametrize("order", [(0, 3, 1, 4, 2, 5), (0, 3, 4, 1, 5, 2)])
@pytest.mark.parametrize("block", [1, 2, 3, 100])
def test_handshakes_of_two_networks_at_the_same_time(order: tuple[int, ...], block: int):
    """The packets of one handshake are 0, 1, 2; those of the other one 3, 4, 5."""
    dialogue = Dialogue()
    both = [dialogue.connect(port=40001, isn=isn) for isn in ((1000, 5000), (1 << 31, 3 << 30))]
    for connection in both:
        connection.exchange(request(3, 1, 7), response(7))
    times = (each.time for each in dialogue.packets)
    packets = [dialogue.packets[index] for index in (*order, *range(6, 10))]
    packets = [replace(each, time=time) for each, time in zip(packets, times, strict=True)]
    out = dissect(packets, packets_per_block=block)
    for row in (0, 1):
        assert [len(each) for each in out.messages(row)] == [1, 1]
    assert out.problems == []


@pytest.mark.parametrize("damaged", [(1 << 29, 0), (1 << 31, 0), (0, 1 << 29), (0, 1 << 31)])
def test_a_damaged_packet_after_a_fin_is_not_reuse(damaged: tuple[int, int]):
    dialogue, connection = Dialogue.connected()
    for number in range(20):
        connection.client(request(3, 1, number))
    connection.packet(0, flags=FIN | ACK)
    for number in range(20):
        connection.broker(response(number, bytes(100)))
    packet = dialogue.packets[-10]
    seq, ack = packet.seq ^ damaged[0], packet.ack ^ damaged[1]
    dialogue.packets[-10] = replace(packet, seq=seq, ack=ack)
    out = dissect(dialogue.packets)
    assert out.streams.connections.count == 1
    assert len(out.messages()[1]) == (19 if damaged[0] else 20)


def test_months_between_packets():
    dialogue, connection = Dialogue.connected()
    connection.client(ONE)
    dialogue.now += 90 * 86_400 * SECOND
    connection.seq = [connection.seq[0] + 3 * 2**30, connection.seq[1] + 2**31]
    connection.exchanges(range(5))
    out = dissect(dialogue.packets, cuts=[4])
    assert [len(each) for each in out.messages()] == [6, 5]
