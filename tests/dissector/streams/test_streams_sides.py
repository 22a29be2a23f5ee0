"""Which end of a connection is the broker."""

from __future__ import annotations

import struct

import pytest

from dissector.packets.block import ACK, SYN
from dissector.protocol.evidence import evidence
from dissector.streams import Streams
from dissector.streams.connections.table import NEVER
from tests.dissector.streams.dialogue import (
    NEWEST,
    NO_ERROR,
    Dialogue,
    block,
    body_end,
    dissect,
    ipv4,
    request,
    response,
)  # fmt: skip

ONE, TWO = request(3, 1, 1), request(3, 1, 2)


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
