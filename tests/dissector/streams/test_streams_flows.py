"""Which packet belongs to which connection, and what the table says of them."""

from __future__ import annotations

import random
from dataclasses import replace

from dissector.streams import Streams
from dissector.tls import KeyLog
from tests.dissector.streams.dialogue import (
    BEGINNING,
    MS,
    NEWEST,
    NO_ERROR,
    SECOND,
    Dialogue,
    block,
    dissect,
    ipv4,
    request,
    response,
)  # fmt: skip

ONE, TWO = request(3, 1, 1), request(3, 1, 2)


def reused(times: int, isn) -> Dialogue:
    told = Dialogue()
    for number in range(times):
        one = told.connect(port=41000, isn=isn(number))
        one.client(request(3, 1, number))
        one.broker(response(number))
        one.fin()
    return told


def test_a_port_pair_that_is_used_a_thousand_times():
    told = reused(1000, lambda number: (1000 + number * 70_000, 9 + number * 65_536))
    out = dissect(told.packets)
    assert out.streams.connections.count == 1000
    assert [len(each) for each in out.messages()] == [1000, 1000]
    assert [each.connection for each in out.frames] == sorted(list(range(1000)) * 2)


def test_reuse_is_told_by_sequence_numbers_where_packets_are_out_of_order():
    chance = random.Random(5)
    starts = [(chance.randrange(2**32), chance.randrange(2**32)) for _ in range(300)]
    told = reused(300, lambda number: starts[number])
    order = sorted(range(len(told.packets)), key=lambda index: index + chance.uniform(0, 5))
    packets = [told.packets[index] for index in order]
    for cuts in ([], [len(packets) // 2]):
        out = dissect(packets, cuts=cuts)
        assert out.streams.connections.count == 300
        assert [len(each) for each in out.messages()] == [300, 300]


def test_connections_are_numbered_by_their_first_packets_however_blocks_are_cut():
    told = Dialogue()
    for number in range(4):
        again = told.connect(port=41000, isn=(1000 + number * 70_000, 9 + number * 65_536))
        other = told.connect(port=42000 + number)
        again.client(request(3, 1, number))
        other.client(request(3, 1, number))
        again.fin()
    ports = [port for number in range(4) for port in (41000, 42000 + number)]
    for cut in range(len(told.packets)):
        table = dissect(told.packets, cuts=[cut]).streams.connections
        assert table.port[: table.count].max(axis=1).tolist() == ports


def test_a_syn_that_comes_again_is_the_same_connection():
    told = Dialogue()
    one = told.connect()
    told.packets[1:1] = [replace(told.packets[0], time=told.packets[0].time + 1)] * 2
    one.client(ONE)
    out = dissect(told.packets)
    assert out.streams.connections.count == 1
    assert out.messages()[0] == [ONE[4:]]


def test_reuse_seen_from_the_broker_alone():
    told = reused(5, lambda number: (number * 100_000, number * 100_000))
    packets = [each for each in told.packets if each.source[1] == 9092]
    out = dissect(packets)
    table = out.streams.connections
    assert table.count == 5
    assert (table.port[0, int(table.client[0])], table.opened[0]) == (41000, True)


def test_reuse_without_a_syn_after_the_connection_was_closed():
    told = Dialogue()
    one = told.connect(isn=(10, 10))
    one.client(ONE)
    one.fin()
    cut = len(told.packets)
    told.now += SECOND
    two = told.connect(port=40001, isn=(2**31 + 5, 2**31 + 7), handshake=False)
    for number in range(5):
        two.client(request(3, 1, number))
        two.broker(response(number))
    out = dissect(told.packets, cuts=[cut])
    assert out.streams.connections.count == 2
    assert [len(each) for each in out.messages(1)] == [5, 5]


def test_months_between_packets():
    told = Dialogue()
    one = told.connect()
    one.client(ONE)
    told.now += 90 * 86_400 * SECOND
    one.seq = [one.seq[0] + 3 * 2**30, one.seq[1] + 2**31]
    for number in range(5):
        one.client(request(3, 1, number))
        one.broker(response(number))
    out = dissect(told.packets, cuts=[4])
    assert [len(each) for each in out.messages()] == [6, 5]


def test_what_the_table_says():
    told = Dialogue()
    one = told.connect()
    one.client(ONE)
    told.wait(7)
    one.broker(response(1))
    one.fin()
    table = dissect(told.packets).streams.connections
    client = int(table.client[0])
    assert (table.count, table.port[0, client], table.port[0, 1 - client]) == (1, 40001, 9092)
    assert int(table.low[0, client]) == ipv4("10.0.0.1")
    assert (table.first_time[0], table.last_time[0]) == (BEGINNING + MS, told.now)
    assert (table.opened[0], table.closed[0], table.protocol[0]) == (True, 1, 1)
    assert table.handshake[0] == 2 * MS, "from the SYN to the client's ACK"
    assert table.packets[0].tolist()[client] == 5
    assert table.packets[0].tolist()[1 - client] == 3
    assert table.bytes[0, client] == len(ONE)
    assert (table.capture[0], table.packet[0]) == (0, 1)


def test_six_addresses_and_the_same_ports_are_other_connections():
    told = Dialogue()
    for number in range(50):
        broker = (0x20010DB8 << 96) | number, 9092
        one = told.connect(port=5000, broker=broker)
        one.client(request(3, 1, number))
    out = dissect(told.packets, cuts=[77])
    assert out.streams.connections.count == 50
    assert len(out.messages()[0]) == 50
    table = out.streams.connections
    addresses = {
        (int(table.high[row, 1 - table.client[row]]), int(table.low[row, 1 - table.client[row]]))
        for row in range(50)
    }
    assert addresses == {(0x20010DB8 << 32, number) for number in range(50)}


def test_ten_thousand_connections_open_at_once():
    told = Dialogue()
    every = [told.connect(client=f"10.1.{number >> 8}.{number & 255}") for number in range(10_000)]
    for number, one in enumerate(every):
        one.client(request(3, 1, number)[:9])
    for number, one in enumerate(every):
        one.client(request(3, 1, number)[9:])
    out = dissect(told.packets, cuts=range(5_000, len(told.packets), 5_000))
    assert len(out.messages()[0]) == 10_000
    assert out.problems == []


def test_the_broker_is_the_server_of_the_handshake():
    told = Dialogue()
    one = told.connect(port=9092, broker=(ipv4("10.0.0.9"), 7777))
    one.client(ONE)
    one.broker(response(1))
    assert dissect(told.packets).messages() == ([ONE[4:]], [response(1)[4:]])


def test_else_the_broker_is_at_a_known_port_or_address_and_else_structure_tells():
    told = Dialogue()
    one = told.connect(handshake=False, broker=(ipv4("10.0.0.9"), 7777))
    one.broker(response(1, NO_ERROR))
    one.client(ONE)
    one.broker(response(1, NO_ERROR))
    one.client(TWO)
    one.broker(response(2, NO_ERROR))
    for ports in ((7777,), (9092,), (40001, 7777)):
        out = dissect(told.packets, ports=ports)
        assert out.messages()[0] == [ONE[4:], TWO[4:]]
        assert [response(1, NO_ERROR)[4:], response(2, NO_ERROR)[4:]] == out.messages()[1][-2:]


def test_a_learned_broker_tells_the_sides_of_a_connection():
    told = Dialogue()
    one = told.connect(handshake=False, broker=(ipv4("10.0.0.9"), 7777))
    one.broker(response(1)[:3])
    streams = Streams(ports=(9092,), newest=NEWEST)
    streams.learn_broker(0, ipv4("10.0.0.9"), 7777)
    streams.feed(block(told.packets, streams.reserve))
    table = streams.connections
    assert table.port[0, int(table.client[0])] == 40001


def test_one_direction_only():
    told = Dialogue()
    one = told.connect()
    for number in range(5):
        one.client(request(3, 1, number))
        one.broker(response(number, b"some more"))
    for port, at in ((40001, 0), (9092, 1)):
        packets = [each for each in told.packets if each.source[1] == port]
        assert len(dissect(packets).messages()[at]) == 5


def test_a_handshake_without_its_first_packet():
    told = Dialogue()
    one = told.connect()
    one.client(ONE)
    one.broker(response(1, NO_ERROR))
    for missing in range(3):
        packets = told.packets[:missing] + told.packets[missing + 1 :]
        out = dissect(packets)
        assert out.messages() == ([ONE[4:]], [response(1, NO_ERROR)[4:]])


def test_a_brokers_answer_and_end_may_come_before_the_request():
    told = Dialogue()
    one = told.connect()
    one.client(ONE)
    one.broker(response(1))
    one.fin()
    late = told.packets.pop(3)
    told.packets.append(replace(late, time=told.packets[-1].time + MS))
    for cut in range(len(told.packets)):
        out = dissect(told.packets, cuts=[cut])
        assert [len(each) for each in out.messages()] == [1, 1], cut
        assert not out.problems


def test_an_answer_without_a_request_does_not_wait_for_ever():
    told = Dialogue()
    one = told.connect()
    one.broker(b"220 ready\r\n")
    one.fin()
    told.wait(2000)
    other = told.connect()
    other.client(ONE)
    out = dissect(told.packets, cuts=range(len(told.packets)))
    assert out.reserved == len(b"220 ready\r\n")
    assert out.streams.reserve == 0
    assert len(out.frames) == 1


def test_what_tls_connections_wait_with_has_a_budget():
    told = Dialogue()
    record = b"\x16\x03\x01\x40\x00" + bytes(16_000)  # of a record of 16,384 bytes
    every = [told.connect() for _ in range(40)]
    for one in every:
        one.client(record)
    keys = KeyLog(grows=True)
    streams = Streams(ports=(9092,), newest=NEWEST, memory=1 << 20, keys=keys)
    out = dissect(told.packets, cuts=range(0, len(told.packets), 10), streams=streams)
    given_up = [each for each in out.problems if each.kind == "memory"]
    assert len(given_up) >= 30
    assert {each.bytes for each in given_up} == {len(record)}
    order = [each.connection_id for each in given_up]
    assert order == sorted(order), "those that wait longest come first"
    assert not out.frames
