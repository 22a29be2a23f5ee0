"""The connection of each packet, and the columns of the connection table."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from dissector.packets.block import ACK, FIN, RST, SYN
from dissector.protocol.evidence import evidence
from dissector.streams import Streams
from dissector.streams.connections.incarnations import Incarnation, Pairs, closes_of
from dissector.streams.connections.table import FIN_SEEN, NEVER, OPEN, RST_SEEN
from dissector.tls import KeyLog
from tests.dissector.streams.dialogue import (
    BEGINNING,
    MS,
    NEWEST,
    NO_ERROR,
    SECOND,
    Dialogue,
    block,
    body_end,
    dissect,
    ipv4,
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


def test_a_connection_goes_on_after_a_damaged_rst():
    """The flags of its SYN-ACK are damaged. Each message is in two blocks."""
    dialogue, connection = Dialogue.connected()
    dialogue.packets[1] = replace(dialogue.packets[1], flags=FIN | RST)
    for number in range(20):
        dialogue.wait(400)
        connection.client(request(3, 1, number))
        whole = response(number, bytes(100))
        connection.broker(whole[:50])
        connection.broker(whole[50:])
    out = dissect(dialogue.packets, cuts=range(5, len(dialogue.packets), 3))
    assert out.messages()[1] == [response(number, bytes(100))[4:] for number in range(20)]
    assert not out.problems


def test_an_end_may_go_on_after_the_fin_of_the_other():
    """RFC 9293, section 3.6: the broker sends for a minute."""
    dialogue, connection = Dialogue.connected()
    for number in range(60):
        connection.client(request(3, 1, number))
    connection.packet(0, flags=FIN | ACK)
    for number in range(60):
        dialogue.wait(1000)
        whole = response(number, bytes(100))
        connection.broker(whole[:50])
        connection.broker(whole[50:])
    for cuts in ([], range(len(dialogue.packets))):
        out = dissect(dialogue.packets, cuts=cuts)
        assert [len(each) for each in out.messages()] == [60, 60]
        assert not out.problems


def test_bytes_behind_a_fin_show_that_it_was_damaged():
    dialogue, connection = Dialogue.connected()
    for number in range(20):
        whole = request(3, 1, number, bytes(100))
        connection.client(whole[:50])
        connection.client(whole[50:])
    damaged = dialogue.packets[10]
    assert len(damaged.payload) != 50
    dialogue.packets[10] = replace(damaged, flags=FIN | ACK)
    for cuts in ([], range(len(dialogue.packets))):
        out = dissect(dialogue.packets, cuts=cuts)
        assert len(out.messages()[0]) == 20
        assert not out.problems


@pytest.mark.parametrize("distance", [-1, 0, 5])
@pytest.mark.parametrize("has_other_fin", [False, True])
def test_bytes_behind_an_acknowledged_fin_are_ignored(distance: int, has_other_fin: bool):
    """RFC 9293, section 3.10.7.4: the receiver ignores them, too. Another FIN may have any
    number. The peer may go on."""
    dialogue, connection = Dialogue.connected()
    connection.client(request(3, 1, 1))
    connection.packet(0, flags=FIN | ACK)
    connection.packet(1)
    end = connection.seq[0]
    connection.seq[0] += distance
    connection.client(request(3, 1, 2))
    if has_other_fin:
        connection.packet(0, flags=FIN | ACK)
    connection.seq[0] = end
    connection.broker(response(1))
    for cuts in ([], range(len(dialogue.packets))):
        out = dissect(dialogue.packets, cuts=cuts)
        assert [len(each) for each in out.messages()] == [1, 1]
        assert [(each.kind, each.bytes) for each in out.problems] == [
            ("stray", len(request(3, 1, 2)))
        ]


def test_connection_numbers_do_not_depend_on_blocks():
    dialogue = Dialogue()
    for number in range(4):
        reused_pair = dialogue.connect(
            port=41000, isn=(1000 + number * 70_000, 9 + number * 65_536)
        )
        new_pair = dialogue.connect(port=42000 + number)
        reused_pair.client(request(3, 1, number))
        new_pair.client(request(3, 1, number))
        reused_pair.fin()
    ports = [port for number in range(4) for port in (41000, 42000 + number)]
    for cut in range(len(dialogue.packets)):
        table = dissect(dialogue.packets, cuts=[cut]).streams.connections
        assert table.port[: table.count].max(axis=1).tolist() == ports


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


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_a_connection_goes_on_after_a_syn_that_no_end_accepts(block: int):
    """A forged SYN: the broker acknowledges what it received before (RFC 9293, 3.10.7.4)."""
    dialogue, connection = Dialogue.connected()
    for number in range(60):
        if number == 10:
            dialogue.packets.append(
                replace(dialogue.packets[0], seq=3 << 30, time=dialogue.packets[-1].time)
            )
            connection.packet(1)
        connection.exchange(request(3, 1, number), response(number))
    out = dissect(dialogue.packets, packets_per_block=block)
    assert [len(each) for each in out.messages(0)] == [60, 60]
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


def test_the_columns_of_the_connection_table():
    dialogue, connection = Dialogue.connected()
    connection.client(ONE)
    dialogue.wait(7)
    connection.broker(response(1))
    connection.fin()
    table = dissect(dialogue.packets).streams.connections
    client = int(table.client[0])
    assert (table.count, table.port[0, client], table.port[0, 1 - client]) == (1, 40001, 9092)
    assert int(table.low[0, client]) == ipv4("10.0.0.1")
    assert (table.first_time[0], table.last_time[0]) == (BEGINNING + MS, dialogue.now)
    assert (table.opened[0], table.closed[0], table.protocol[0]) == (True, 1, 1)
    assert table.handshake[0] == 2 * MS, "from the SYN to the client's ACK"
    assert table.packets[0].tolist()[client] == 5
    assert table.packets[0].tolist()[1 - client] == 3
    assert table.bytes[0, client] == len(ONE)
    assert (table.capture[0], table.packet[0]) == (0, 1)


def test_ipv6_addresses_separate_connections_with_the_same_ports():
    dialogue = Dialogue()
    for number in range(50):
        broker = (0x20010DB8 << 96) | number, 9092
        connection = dialogue.connect(port=5000, broker=broker)
        connection.client(request(3, 1, number))
    out = dissect(dialogue.packets, cuts=[77])
    assert out.streams.connections.count == 50
    assert len(out.messages()[0]) == 50
    table = out.streams.connections
    addresses = {
        (int(table.high[row, 1 - table.client[row]]), int(table.low[row, 1 - table.client[row]]))
        for row in range(50)
    }
    assert addresses == {(0x20010DB8 << 32, number) for number in range(50)}


def test_ten_thousand_connections_open_at_once():
    dialogue = Dialogue()
    connections = [
        dialogue.connect(client=f"10.1.{number >> 8}.{number & 255}") for number in range(10_000)
    ]
    for number, connection in enumerate(connections):
        connection.client(request(3, 1, number)[:9])
    for number, connection in enumerate(connections):
        connection.client(request(3, 1, number)[9:])
    out = dissect(dialogue.packets, packets_per_block=5_000)
    assert len(out.messages()[0]) == 10_000
    assert out.problems == []


def test_the_broker_is_the_server_of_the_handshake():
    dialogue, connection = Dialogue.connected(port=9092, broker=(ipv4("10.0.0.9"), 7777))
    connection.exchange(ONE, response(1))
    assert dissect(dialogue.packets).messages() == ([ONE[4:]], [response(1)[4:]])


def test_without_a_handshake_a_known_port_or_the_messages_identify_the_broker():
    dialogue, connection = Dialogue.connected(handshake=False, broker=(ipv4("10.0.0.9"), 7777))
    connection.broker(response(1, NO_ERROR))
    connection.exchange(ONE, response(1, NO_ERROR))
    connection.exchange(TWO, response(2, NO_ERROR))
    for ports in ((7777,), (9092,), (40001, 7777)):
        out = dissect(dialogue.packets, ports=ports)
        assert out.messages()[0] == [ONE[4:], TWO[4:]]
        assert [response(1, NO_ERROR)[4:], response(2, NO_ERROR)[4:]] == out.messages()[1][-2:]


@pytest.mark.parametrize("block", [1, 3, 1 << 20])
@pytest.mark.parametrize("broker", [19092, 9092])
def test_without_a_handshake_the_messages_show_a_client_with_the_port_of_a_broker(broker, block):
    body = struct.pack(">ih", 1, 6) + b"orders"
    sent = [request(3, 1, number, body, "app") for number in range(5, 9)]
    dialogue, connection = Dialogue.connected(
        handshake=False, port=9092, broker=(ipv4("10.0.0.9"), broker)
    )
    received = [response(number, bytes(8)) for number in range(5, 9)]
    for each, answer in zip(sent, received, strict=True):
        connection.exchange(each, answer)
    streams = Streams(ports=(9092,), newest=NEWEST, evidence=evidence, body_end=body_end)
    out = dissect(dialogue.packets, cuts=range(block, 8, block), streams=streams)
    assert out.messages() == ([each[4:] for each in sent], [each[4:] for each in received])
    assert out.problems == []


@pytest.mark.parametrize("block", [1, 3, 1 << 20])
def test_a_known_broker_shows_a_client_with_the_port_of_another_broker(block):
    """A short request without a response is too little evidence."""
    dialogue, broker = Dialogue(), (ipv4("10.0.0.9"), 19092)
    first = dialogue.connect(handshake=False, port=9092, broker=broker)
    first.client(request(18, 0, 5))
    first.packet(1)
    second = dialogue.connect(broker=broker)
    second.exchange(request(18, 0, 5), response(5, NO_ERROR))
    dialogue.wait(3000)
    second.exchange(request(18, 0, 6), response(6, NO_ERROR))
    streams = Streams(ports=(9092,), newest=NEWEST, evidence=evidence, body_end=body_end)
    out = dissect(dialogue.packets, packets_per_block=block, streams=streams)
    assert [len(each) for each in out.messages(0)] == [1, 0]
    assert streams.connections.port[0, int(streams.connections.client[0])] == 9092


def test_a_learned_broker_identifies_the_client():
    dialogue, connection = Dialogue.connected(handshake=False, broker=(ipv4("10.0.0.9"), 7777))
    connection.broker(response(1)[:3])
    streams = Streams(ports=(9092,), newest=NEWEST, body_end=body_end)
    streams.brokers.add((0, ipv4("10.0.0.9"), 7777))
    streams.feed(block(dialogue.packets, streams.reserve))
    table = streams.connections
    assert table.port[0, int(table.client[0])] == 40001


def test_one_direction_only():
    dialogue, connection = Dialogue.connected()
    connection.exchanges(range(5), b"some more")
    for port, at in ((40001, 0), (9092, 1)):
        packets = [each for each in dialogue.packets if each.source[1] == port]
        assert len(dissect(packets).messages()[at]) == 5


@pytest.mark.parametrize("block", [1, 4, 1 << 20])
def test_responses_to_a_client_that_only_acknowledges_them(block):
    """Its requests came before the capture, or their packets are not in it."""
    dialogue, connection = Dialogue.connected(handshake=False)
    received = [response(number, bytes(40)) for number in range(5, 9)]
    for each in received:
        connection.broker(each)
        connection.packet(0)
    connection.fin()
    out = dissect(dialogue.packets, cuts=range(block, 11, block))
    assert out.messages() == ([], [each[4:] for each in received])
    assert out.problems == []


def test_responses_without_requests_may_have_descending_ids():
    """A client numbers requests when it creates them, and may send them in another order."""
    dialogue, connection = Dialogue.connected()
    for number in (8, 7, 9, 11, 10, 12):
        connection.broker(response(number, b"some more"))
    packets = [each for each in dialogue.packets if each.source[1] == 9092]
    assert len(dissect(packets).messages()[1]) == 6


def test_a_handshake_without_its_first_packet():
    dialogue, connection = Dialogue.connected()
    connection.exchange(ONE, response(1, NO_ERROR))
    for missing in range(3):
        packets = dialogue.packets[:missing] + dialogue.packets[missing + 1 :]
        out = dissect(packets)
        assert out.messages() == ([ONE[4:]], [response(1, NO_ERROR)[4:]])


def test_a_response_and_a_fin_may_arrive_before_the_request():
    dialogue, connection = Dialogue.connected()
    connection.exchange(ONE, response(1))
    connection.fin()
    late = dialogue.packets.pop(3)
    dialogue.packets.append(replace(late, time=dialogue.packets[-1].time + MS))
    for cut in range(len(dialogue.packets)):
        out = dissect(dialogue.packets, cuts=[cut])
        assert [len(each) for each in out.messages()] == [1, 1], cut
        assert not out.problems


def test_bytes_of_a_server_do_not_wait_forever_for_a_request():
    dialogue, connection = Dialogue.connected()
    connection.broker(b"220 ready\r\n")
    connection.fin()
    dialogue.wait(2000)
    later_connection = dialogue.connect()
    later_connection.client(ONE)
    out = dissect(dialogue.packets, cuts=range(len(dialogue.packets)))
    assert out.reserved == len(b"220 ready\r\n")
    assert out.streams.reserve == 0
    assert len(out.frames) == 1


def test_the_buffers_of_tls_connections_have_a_budget():
    dialogue = Dialogue()
    record = b"\x16\x03\x01\x40\x00" + bytes(16_000)  # of a record of 16,384 bytes
    connections = [dialogue.connect() for _ in range(40)]
    for connection in connections:
        connection.client(record)
    keys = KeyLog(grows=True)
    streams = Streams(ports=(9092,), newest=NEWEST, body_end=body_end, memory=1 << 20, keys=keys)
    out = dissect(dialogue.packets, cuts=range(0, len(dialogue.packets), 10), streams=streams)
    evicted = [each for each in out.problems if each.kind == "memory"]
    assert len(evicted) >= 30
    assert {each.bytes for each in evicted} == {len(record)}
    order = [each.connection_id for each in evicted]
    assert order == sorted(order), "the oldest pending data first"
    assert not out.frames


def test_a_syn_with_data():
    """TCP Fast Open (RFC 7413): the SYN-ACK acknowledges the data of the SYN."""
    dialogue, connection = Dialogue.connected(handshake=False)
    connection.seq[0] -= 1
    connection.packet(0, ONE, flags=SYN, ack=0)
    connection.packet(1, flags=SYN | ACK)
    connection.broker(response(1))
    connection.exchange(TWO, response(2))
    for cuts in ([], range(1, 5)):
        out = dissect(dialogue.packets, cuts=cuts)
        assert out.streams.connections.count == 1
        assert [len(each) for each in out.messages()] == [2, 2]
        assert out.problems == []


@pytest.mark.parametrize("has_cuts", [False, True])
@pytest.mark.parametrize(
    ("order", "gap", "expected"),
    [
        ((0, 1, 2), MS, 2 * MS),
        ((0, 1, 0, 1, 2), MS, 2 * MS),  # a repeated SYN
        ((0, 1, 2, 0), MS, 2 * MS),  # a late copy of the SYN
        ((2, 0, 1), 0, NEVER),  # an ACK that arrives before the SYN, with the same time
    ],
)
def test_a_handshake_lasts_as_long_wherever_a_block_ends(order, gap, expected, has_cuts):
    dialogue = Dialogue()
    dialogue.connect()
    packets = [
        replace(dialogue.packets[index], time=BEGINNING + place * gap)
        for place, index in enumerate(order)
    ]
    out = dissect(packets, cuts=list(range(1, len(packets))) if has_cuts else [])
    assert out.streams.connections.handshake[0] == expected


@pytest.mark.parametrize("packets_per_block", [1, 3, 100])
@pytest.mark.parametrize(
    ("broker_port", "is_broker_first"), [(9092, False), (9092, True), (2181, False)]
)
def test_a_simultaneous_open(
    packets_per_block: int, broker_port: int, is_broker_first: bool
) -> None:
    """RFC 9293, section 3.5. The packets of the broker come first if its clock is behind."""
    dialogue = Dialogue()
    connection = dialogue.connect(
        handshake=False, port=50_000, broker=(ipv4("10.0.0.9"), broker_port)
    )
    for flags in (SYN, SYN | ACK):
        for end in (0, 1):
            connection.seq[end] = (1000, 5000)[end]
            connection.packet(end, flags=flags, ack=(5001, 1001)[end] if flags & ACK else 0)
    connection.exchanges(range(10, 14), bytes(40))
    packets = dialogue.packets
    if is_broker_first:
        packets = sorted(packets, key=lambda each: each.source != connection.ends[1])
    out = dissect(packets, packets_per_block=packets_per_block)
    assert [len(each) for each in out.messages()] == [4, 4]
    assert not out.problems
    assert out.streams.connections.client[0] == 0
    assert out.streams.connections.handshake[0] == NEVER


@pytest.mark.parametrize("packets_per_block", [1, 3, 100])
def test_the_packets_of_the_broker_alone_show_no_syn_of_the_client(packets_per_block: int) -> None:
    dialogue, connection = Dialogue.connected()
    for number in range(3):
        connection.client(request(3, 1, number))
        connection.packet(1)
        connection.broker(response(number, NO_ERROR))
    sent = [each for each in dialogue.packets if each.source[1] == 9092]
    out = dissect(sent, packets_per_block=packets_per_block)
    assert out.streams.connections.isn[0].tolist() == [NEVER, 5000]
    assert len(out.messages()[1]) == 3
