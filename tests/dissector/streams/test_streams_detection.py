"""What a connection carries, and where frames begin when nothing tells but the bytes."""

from __future__ import annotations

import random
import struct

import pytest

from tests.dissector.streams.dialogue import NO_ERROR, Dialogue, dissect, framed, request, response

ONE, TWO = request(3, 1, 1), request(3, 1, 2)
TLS = 2


def middle(told: Dialogue):
    return told.connect(handshake=False)


def test_a_capture_that_begins_in_the_middle_of_a_frame():
    told = Dialogue()
    one = middle(told)
    one.client(random.Random(1).randbytes(700))
    one.broker(random.Random(2).randbytes(700))
    for number in range(10, 15):
        one.client(request(3, 1, number))
        one.broker(response(number, bytes(40)))
    out = dissect(told.packets)
    assert [len(each) for each in out.messages()] == [5, 5]
    skipped = [each for each in out.problems if each.kind == "resync"]
    assert [each.bytes for each in skipped] == [700, 700]


def test_requests_are_found_at_any_offset():
    told = Dialogue()
    one = told.connect()
    one.client(ONE)
    every = [request(1, 4, number, bytes(137), "consumer-1") for number in range(2, 60)]
    stream = b"".join(every)
    for index, at in enumerate(range(0, len(stream), 500)):
        one.client(stream[at : at + 500], sent=index != 1)
    one.fin()
    out = dissect(told.packets)
    lost = {index for index in range(58) if (index + 1) * len(every[0]) > 500
            and index * len(every[0]) < 1000}  # fmt: skip
    assert out.messages()[0] == [
        each[4:] for index, each in enumerate([ONE, *every]) if index - 1 not in lost
    ]


def test_responses_are_found_at_any_offset_by_their_correlation_ids():
    told = Dialogue()
    one = told.connect()
    every = [response(number, bytes(137)) for number in range(1000, 1060)]
    for number in range(1000, 1060):
        one.client(request(3, 1, number))
    stream = b"".join(every)
    for index, at in enumerate(range(0, len(stream), 500)):
        one.broker(stream[at : at + 500], sent=index != 1)
    one.fin()
    out = dissect(told.packets)
    lost = {index for index in range(60) if (index + 1) * 145 > 500 and index * 145 < 1000}
    assert out.messages()[1] == [each[4:] for index, each in enumerate(every) if index not in lost]


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, (100 << 20) + 1])
@pytest.mark.parametrize("end", [0, 1])
def test_a_size_that_cannot_be_is_a_problem_and_the_chain_is_taken_up_again(size, end):
    told = Dialogue()
    one = told.connect()
    one.client(ONE)
    one.broker(response(1))
    one.packet(end, struct.pack(">i", size) + b"what is this")
    for number in range(2, 6):
        one.client(request(3, 1, number))
        one.broker(response(number))
    out = dissect(told.packets)
    assert [len(each) for each in out.messages()] == [5, 5]
    assert out.kinds() == ["bad_size", "resync"]
    assert out.problems[1].bytes == 16


def test_the_largest_size_is_taken_and_not_allocated():
    told = Dialogue()
    one = told.connect()
    one.client(struct.pack(">i", 100 << 20) + ONE[4:])
    out = dissect(told.packets)
    assert [(each.size, len(each.message)) for each in out.frames] == [(100 << 20, len(ONE) - 4)]


def test_an_empty_frame_is_a_frame():
    """A broker's last SASL token may be empty (KIP-43)."""
    told = Dialogue()
    one = told.connect()
    one.client(request(17, 0, 1, b"\0\5PLAIN"))
    one.broker(response(1, bytes(6)))
    one.client(framed(b"\0user\0secret"))
    one.broker(framed(b""))
    one.client(TWO)
    out = dissect(told.packets)
    assert out.messages()[1] == [response(1, bytes(6))[4:], b""]
    assert len(out.messages()[0]) == 3


OTHERS = {
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
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_kafka_gives_no_frames_and_is_not_kept(name, handshake):
    told = Dialogue()
    one = told.connect(handshake=handshake, broker=(1, 7777))
    for _ in range(40):
        one.client(OTHERS[name][0] * 20)
        one.broker(OTHERS[name][1] * 20)
    out = dissect(told.packets, cuts=range(5, len(told.packets), 5))
    assert out.frames == []
    assert out.problems == []
    longest = max(len(each.payload) for each in told.packets)
    assert out.reserved <= 64 * longest, "only until an earlier packet cannot come any more"


def test_random_bytes_are_not_kafka():
    told = Dialogue()
    chance = random.Random(7)
    for number in range(30):
        one = told.connect(handshake=number % 2 == 0)
        for _ in range(60):
            one.client(chance.randbytes(1400))
            one.broker(chance.randbytes(1400))
    out = dissect(told.packets, cuts=range(300, len(told.packets), 300))
    assert out.frames == []


@pytest.mark.parametrize("handshake", [True, False])
def test_tls_is_told_by_its_record_header(handshake):
    told = Dialogue()
    one = told.connect(handshake=handshake)
    record = 22 if handshake else 23
    for _ in range(100):
        one.client(bytes([record, 3, 1, 2, 0]) + bytes(512))
        one.broker(bytes([record, 3, 3, 2, 0]) + bytes(512))
    out = dissect(told.packets, cuts=range(10, 200, 10))
    assert out.frames == []
    assert out.streams.connections.protocol[0] == TLS
    assert out.reserved <= 64 * 517


def test_a_server_that_speaks_first_is_not_kept_without_bound():
    told = Dialogue()
    one = told.connect()
    for _ in range(300):
        one.broker(bytes(30_000))
    out = dissect(told.packets, cuts=range(5, 303, 5))
    assert out.frames == []
    assert out.reserved < 1 << 20


def test_a_client_of_a_newer_version_is_still_seen():
    told = Dialogue()
    one = told.connect()
    one.client(request(0, 20, 1))
    one.client(request(95, 0, 2))
    assert len(dissect(told.packets).frames) == 2


def test_many_broken_places_in_one_block_end_in_time():
    told = Dialogue()
    one = told.connect()
    for number in range(3000):
        one.client(request(3, 1, number) + request(3, 1, number) + b"\xff\xff\xff\xff")
    out = dissect(told.packets)
    assert len(out.messages()[0]) >= 2000
    assert out.kinds().count("bad_size") >= 1000


def test_every_second_packet_lost():
    told = Dialogue()
    one = told.connect()
    for number in range(1000):
        one.client(request(3, 1, number), sent=number % 2 == 0)
        one.broker(response(number, NO_ERROR), sent=number % 2 == 0)
    out = dissect(told.packets)
    assert [len(each) for each in out.messages()] == [500, 500]
