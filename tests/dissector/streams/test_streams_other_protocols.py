"""Connections that do not carry Kafka."""

from __future__ import annotations

import random
import struct

import pytest

from dissector.protocol import body_end as message_end
from dissector.protocol.evidence import evidence
from dissector.streams import Streams
from dissector.streams.limits import SHORT_GRACE
from tests.dissector.streams.dialogue import (
    MS,
    NEWEST,
    Dialogue,
    body_end,
    dissect,
    framed,
    request,
    response,
)

TLS = 2
LIKE_PRODUCE = (
    b"\xff" * 5 + bytes.fromhex("00080000" "0000" "0006" "00000000" "0006") + b"client"
    + bytes.fromhex("2400") + b"\x18\x03" * 21
)  # fmt: skip
"""Like a Produce 6 with correlation id 0, but for the records."""


@pytest.mark.parametrize("zeros", [0, 8])
def test_zeros_are_not_the_response_to_a_request_with_the_id_0(zeros):
    dialogue, connection = Dialogue.connected(handshake=False, broker=(1, 7777))
    for at in range(len(LIKE_PRODUCE)):
        connection.client(LIKE_PRODUCE[at : at + 1])
    connection.broker(framed(bytes(zeros) + b"\1" * 16))
    streams = Streams(ports=(), newest=NEWEST, evidence=evidence, body_end=body_end)
    assert dissect(dialogue.packets, streams=streams).frames == []


PROTOCOLS = {
    "http": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"),
    "http2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", b"\0\0\0\4\0\0\0\0\0"),
    "redis": (b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"),
    "postgresql": (
        struct.pack(">ii", 41, 196608) + b"user\0postgres\0database\0postgres\0\0",
        b"R\0\0\0\x08\0\0\0\0",
    ),
    "zookeeper": (
        struct.pack(">iiqiqi", 45, 0, 0, 30000, 0, 16) + bytes(17),
        struct.pack(">iiiqi", 37, 0, 30000, 1, 16) + bytes(17),
    ),
    "mqtt": (b"\x10\x0c\0\4MQTT\4\2\0<\0\0", b"\x20\2\0\0"),
    "zeros": (bytes(4000), bytes(4000)),
    "letters": (b"hello world, this is text\n" * 10, b"so it is\n" * 10),
}


@pytest.mark.parametrize("handshake", [True, False])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_other_protocols_give_no_frames_and_are_not_buffered(name, handshake):
    dialogue, connection = Dialogue.connected(handshake=handshake, broker=(1, 7777))
    for _ in range(100):
        connection.exchange(PROTOCOLS[name][0] * 20, PROTOCOLS[name][1] * 20)
    out = dissect(dialogue.packets, packets_per_block=5)
    assert out.frames == []
    assert out.problems == []
    longest = max(len(each.payload) for each in dialogue.packets)
    packets = SHORT_GRACE // MS + 5
    assert out.reserved <= packets * longest, "only while an earlier packet may still arrive"


def test_random_bytes_are_not_kafka():
    dialogue = Dialogue()
    chance = random.Random(7)
    for number in range(30):
        connection = dialogue.connect(handshake=number % 2 == 0)
        for _ in range(60):
            connection.exchange(chance.randbytes(1400), chance.randbytes(1400))
    out = dissect(dialogue.packets, packets_per_block=300)
    assert out.frames == []


def test_a_protocol_with_the_header_of_kafka_is_not_kafka_if_bodies_do_not_fit():
    """Now and then, a body fits by chance: ApiVersions has none before version 3."""
    streams = Streams(ports=(), newest=NEWEST, evidence=evidence, body_end=body_end)
    dialogue = Dialogue()
    for seed in range(10):
        chance = random.Random(seed)
        connection = dialogue.connect(handshake=False, broker=(1, 7777))
        for number in range(1, 101):
            body, reply = (chance.randbytes(chance.randrange(20, 200)) for _ in range(2))
            api, version = chance.randrange(20), chance.randrange(4)
            connection.exchange(request(api, version, number, body), response(number, reply))
    assert dissect(dialogue.packets, streams=streams).frames == []


@pytest.mark.parametrize("seed", range(10))
def test_the_first_response_does_not_fit_a_request_of_a_protocol_with_the_header_of_kafka(seed):
    """On the port of a broker. Of the body of the request, the first bytes fit."""
    chance = random.Random(seed)
    streams = Streams(
        ports=(9092,), newest=NEWEST, evidence=evidence, body_end=message_end.body_end
    )
    dialogue, connection = Dialogue.connected()
    for number in range(1, 20):
        body, reply = (chance.randbytes(chance.randrange(20, 200)) for _ in range(2))
        connection.exchange(request(7, 1, number, body), response(number, reply))
    assert dissect(dialogue.packets, streams=streams).frames == []


@pytest.mark.parametrize("reply", [b'{"response": 1}', b""])
@pytest.mark.parametrize("size", [500, 40_000])
def test_texts_that_follow_their_sizes_are_not_kafka(size, reply):
    """On the port of a broker. Long texts look like requests of an unknown API whose version and
    client id's length are letters."""
    streams = Streams(
        ports=(9092,), newest=NEWEST, evidence=evidence, body_end=message_end.body_end
    )
    dialogue, connection = Dialogue.connected()
    for number in range(1, 5):
        document = b'{"request": %d, "text": "%s"}' % (number, b"lorem ipsum " * (size // 12))
        connection.client_segments(framed(document), 1448)
        if reply:
            connection.broker(framed(reply))
    connection.fin()
    assert dissect(dialogue.packets, streams=streams).frames == []


@pytest.mark.parametrize("handshake", [True, False])
def test_tls_is_recognised_by_its_record_header(handshake):
    dialogue, connection = Dialogue.connected(handshake=handshake)
    record = 22 if handshake else 23
    for _ in range(100):
        connection.client(bytes([record, 3, 1, 2, 0]) + bytes(512))
        connection.broker(bytes([record, 3, 3, 2, 0]) + bytes(512))
    out = dissect(dialogue.packets, cuts=range(10, 200, 10))
    assert out.frames == []
    assert out.streams.connections.protocol[0] == TLS
    assert out.reserved <= (SHORT_GRACE // MS + 10) * 517


def test_the_buffer_of_a_server_that_sends_first_is_bounded():
    dialogue, connection = Dialogue.connected()
    for _ in range(300):
        connection.broker(bytes(30_000))
    out = dissect(dialogue.packets, cuts=range(5, 303, 5))
    assert out.frames == []
    assert out.reserved < 1 << 20
