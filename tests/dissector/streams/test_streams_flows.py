"""The connection of each packet, and the columns of the connection table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dissector.packets.block import ACK, FIN, RST, SYN
from dissector.streams import Streams
from dissector.streams.connections.table import NEVER
from dissector.tls import KeyLog
from tests.dissector.streams.dialogue import (
    BEGINNING,
    MS,
    NEWEST,
    Dialogue,
    body_end,
    dissect,
    ipv4,
    request,
    response,
)  # fmt: skip

ONE, TWO = request(3, 1, 1), request(3, 1, 2)


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
