"""Detection in connections that are joined midway: the capture begins behind their SYN."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import pytest

from dissector.packets.block import Int64, UInt8
from dissector.protocol import body_end as message_end
from dissector.protocol.evidence import evidence
from dissector.streams import Streams
from dissector.streams.detection.detector import FIRST_GROUP
from dissector.streams.detection.inner_requests import INNER_BYTES
from dissector.streams.search.header_evidence import HeaderScorer
from dissector.streams.search.request_evidence import IMPOSSIBLE
from tests.dissector.records.records_writers import batch, message
from tests.dissector.streams.dialogue import (
    NEWEST,
    NO_ERROR,
    Dialogue,
    body_end,
    dissect,
    framed,
    ipv4,
    request,
    response,
    split,
)
from tests.kafka_bytes import text

EMPTY_BATCH = bytes.fromhex(
    "000000000000000300000031"
    "00000001021f960a7a000000000005ffffffffffffffff0000018bcfe56800"
    "00000000000003d600030000004400000000"
)
"""Written by Kafka's `DefaultRecordBatch.writeEmptyHeader`."""


def test_a_capture_that_begins_in_the_middle_of_a_frame():
    dialogue, connection = Dialogue.connected(handshake=False)
    connection.exchange(random.Random(1).randbytes(700), random.Random(2).randbytes(700))
    connection.exchanges(range(10, 15), bytes(40))
    out = dissect(dialogue.packets)
    assert [len(each) for each in out.messages()] == [5, 5]
    skipped = [each for each in out.problems if each.kind == "resync"]
    assert [each.bytes for each in skipped] == [700, 700]


@pytest.mark.parametrize("missing", [0, 1, 3])
def test_pipelined_requests_in_a_segment_that_begins_inside_another_request(missing: int):
    """A client that does not wait: one segment has many requests, and another one their responses.
    The first `missing` responses belong to requests before the capture."""
    dialogue, connection = Dialogue.connected(handshake=False)
    sent = [request(3, 1, number, bytes(4)) for number in range(10, 20)]
    received = [response(number, bytes(40)) for number in range(10 - missing, 20)]
    connection.client(request(3, 1, 9, bytes(90))[50:] + b"".join(sent))
    connection.broker(b"".join(received))
    out = dissect(dialogue.packets)
    assert out.messages() == ([each[4:] for each in sent], [each[4:] for each in received])


@pytest.mark.parametrize("port", [9092, 31090])
def test_pipelined_requests_of_which_none_begins_a_segment(port: int):
    """At an unknown port, responses whose correlation ids count show the broker."""
    dialogue, connection = Dialogue.connected(handshake=False, broker=(ipv4("10.0.0.9"), port))
    sizes = random.Random(7).choices(range(2_000, 30_000), k=30)
    sent = [request(3, 1, number, bytes(size)) for number, size in enumerate(sizes, 70)]
    received = [response(number, bytes(40)) for number in range(70, 100)]
    stream, answered = b"".join(sent)[11:], 0
    for at in range(0, len(stream), 1448):
        connection.client(stream[at : at + 1448])
        while answered < 25 and sum(map(len, sent[: answered + 5])) - 11 <= at:
            connection.broker(received[answered])
            answered += 1
    for each in received[answered:]:
        connection.broker(each)
    out = dissect(dialogue.packets)
    assert out.messages() == ([each[4:] for each in sent[1:]], [each[4:] for each in received])


@pytest.mark.parametrize("segment", [20, 300, 1448, 9000])
@pytest.mark.parametrize("block", [1 << 20, 3])
@pytest.mark.parametrize("port", [9092, 31090])
def test_pipelined_requests_without_responses(segment: int, block: int, port: int):
    """A producer with acks=0: no request begins a segment, and the capture begins inside one."""
    sizes = random.Random(6).choices(range(40, 900), k=60)
    topics = (b"\0\0\0\1" + text("t" * size) for size in sizes)
    sent = [request(3, 1, number, each) for number, each in enumerate(topics)]
    stream = b"".join(sent)[11:]
    dialogue, connection = Dialogue.connected(handshake=False, broker=(ipv4("10.0.0.9"), port))
    for at in range(0, len(stream), segment):
        connection.client(stream[at : at + segment])
        connection.packet(1)
    streams = Streams(ports=[9092], newest=NEWEST, body_end=body_end, evidence=evidence)
    out = dissect(
        dialogue.packets, cuts=range(block, len(dialogue.packets), block), streams=streams
    )
    assert out.messages() == ([each[4:] for each in sent[1:]], [])


@pytest.mark.parametrize("count", [1, 2])
def test_a_request_inside_a_segment_of_another_protocol(count: int):
    """Each byte may begin a request there: one with little text must be followed by the next."""
    heartbeats = [
        request(12, 0, number, text("g") + bytes(4) + text("m"), "c") for number in range(count)
    ]
    dialogue, connection = Dialogue.connected(handshake=False, broker=(ipv4("10.0.0.9"), 31090))
    connection.client(b"\xff" * 100 + b"".join(heartbeats))
    streams = Streams(ports=[9092], newest=NEWEST, body_end=body_end, evidence=evidence)
    out = dissect(dialogue.packets, streams=streams)
    assert len(out.frames) == count * (count == 2)


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of bytes that are searched for requests inside segments."""
    sizes: list[int] = []
    find = HeaderScorer.candidate_requests

    def counted(scorer: HeaderScorer, window: UInt8) -> Int64:
        sizes.append(len(window))
        return find(scorer, window)

    monkeypatch.setattr(HeaderScorer, "candidate_requests", counted)
    return sizes


@pytest.mark.parametrize("block", [40, 1000])
def test_a_long_stream_of_another_protocol_is_searched_at_its_beginning(
    block: int, searched: list[int]
):
    """Small integers, each of which may be the size of a request."""
    dialogue, connection = Dialogue.connected(handshake=False, broker=(ipv4("10.0.0.9"), 31090))
    for _ in range(2 * INNER_BYTES // 60_000):
        connection.client(struct.pack(">q", 70_000) * 7_500)
    streams = Streams(ports=[9092], newest=NEWEST, body_end=body_end, evidence=evidence)
    cuts = range(block, len(dialogue.packets), block)
    assert not dissect(dialogue.packets, cuts=cuts, streams=streams).frames
    assert INNER_BYTES / 2 < sum(searched) < 1.2 * INNER_BYTES


def test_missing_bytes_are_not_searched(searched: list[int]):
    """A hole of 400 MB, in a stream to the port of a broker."""
    dialogue, connection = Dialogue.connected(handshake=False)
    connection.client(bytes(range(100)))
    connection.seq[0] += 400 << 20
    connection.client(bytes(range(100)))
    assert not dissect(dialogue.packets).frames
    assert 1 < len(searched) < 10


def test_a_search_ends_at_the_last_candidate_that_is_read(searched: list[int]):
    """Numbers that read as headers of requests, `READINGS` of them in a few bytes."""
    dialogue, rng = Dialogue(), random.Random(1)
    for _ in range(3):
        connection = dialogue.connect(handshake=False, broker=(ipv4("10.0.0.9"), 31090))
        for _ in range(20):
            connection.client(struct.pack(">15000i", *(rng.randrange(200) for _ in range(15_000))))
    streams = Streams(ports=[9092], newest=NEWEST, body_end=body_end, evidence=evidence)
    assert not dissect(dialogue.packets, streams=streams).frames
    assert sum(searched) < 3 * 20 * 60_000 / 50


def test_streams_of_mostly_zeros():
    """Small numbers read as headers, and control characters behind them as long texts."""
    dialogue, rng = Dialogue(), random.Random(1)
    for _ in range(200):
        connection = dialogue.connect(handshake=False, broker=(ipv4("10.0.0.9"), 31090))
        data = bytes(rng.randrange(60) if rng.random() < 0.2 else 0 for _ in range(4_000))
        connection.client_segments(data, 1_000)
    streams = Streams(ports=[9092], newest=NEWEST, body_end=body_end, evidence=evidence)
    assert not dissect(dialogue.packets, streams=streams).frames


def test_streams_of_mostly_zeros_in_both_directions_at_the_port_of_a_broker():
    """Bodies of zeros end where their sizes say, and any small number has a response."""
    dialogue, rng = Dialogue(), random.Random(1)
    for _ in range(200):
        connection = dialogue.connect(handshake=False)
        for _ in range(20):
            for end in (0, 1):
                data = bytes(rng.randrange(60) if rng.random() < 0.16 else 0 for _ in range(400))
                connection.packet(end, data)
    streams = Streams(ports=[9092], newest=NEWEST, body_end=message_end.body_end, evidence=evidence)
    assert not dissect(dialogue.packets, streams=streams).frames


@pytest.mark.parametrize(
    ("count", "body", "frames"), [(1, NO_ERROR, 2), (1, bytes(4), 0), (2, bytes(4), 4)]
)
def test_numbers_alone_are_requests_if_others_follow_or_the_response_fits(
    count: int, body: bytes, frames: int
):
    """Heartbeats with empty texts inside a segment. Their responses have an error code, and may
    have surplus bytes."""
    dialogue, connection = Dialogue.connected(handshake=False)
    beats = [request(12, 0, 70 + number, bytes(8), "") for number in range(count)]
    connection.client(b"\xff" * 100 + b"".join(beats))
    connection.broker(b"".join(response(70 + number, body) for number in range(count)))
    streams = Streams(ports=[9092], newest=NEWEST, body_end=message_end.body_end, evidence=evidence)
    assert len(dissect(dialogue.packets, streams=streams).frames) == frames


@pytest.mark.parametrize("ids", [range(10, 15), random.Random(3).sample(range(1 << 31), 5)])
@pytest.mark.parametrize(
    "batches",
    [
        batch(bytes(2000), 8),
        batch(bytes(2000), 8) + batch(bytes(900), 3, base_offset=8, leader_epoch=12),
        message(1, random.Random(4).randbytes(2000)),
        message(0, bytes(2000)) + message(0, random.Random(5).randbytes(900), offset=1),
        batch(bytes(2000), 8) + EMPTY_BATCH,
        message(0, bytes(59), offset=19) + bytes.fromhex("ffffffffffffffff 0000003d") + bytes(15),
    ],
    ids=["one batch", "two batches", "one message", "two messages", "no records", "filler"],
)
def test_a_capture_that_begins_inside_a_response_to_a_fetch(batches: bytes, ids: Sequence[int]):
    """The lengths of the records field and of its last batch lead to the next response."""
    dialogue, connection = Dialogue.connected(handshake=False)
    connection.broker(random.Random(2).randbytes(500) + framed(batches))
    connection.exchanges(ids, bytes(40))
    out = dissect(dialogue.packets)
    assert [len(each) for each in out.messages()] == [5, 5]


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("packets_per_block", [1, 100])
def test_a_capture_that_begins_with_keep_alives(end: int, packets_per_block: int):
    """A keep-alive has one byte before the next sequence number, which is not data."""
    dialogue, connection = Dialogue.connected(handshake=False)
    for _ in range(3):
        connection.seq[end] -= 1
        connection.packet(end, b"\0")
        connection.packet(1 - end)
        dialogue.wait(5000)
    connection.exchanges(range(10, 15), bytes(40))
    out = dissect(dialogue.packets, packets_per_block=packets_per_block)
    assert [len(each) for each in out.messages()] == [5, 5]
    assert not out.problems


def test_a_large_response_behind_the_first_request_of_a_late_capture():
    """The stream of the client begins 64 packets after its first one, because an earlier one may
    follow. The response has more bytes than are kept where no request waits."""
    dialogue, large = Dialogue(), response(10, bytes(200_000))
    connection = dialogue.connect(handshake=False)
    for _ in range(200):
        connection.broker(random.Random(2).randbytes(100))
    connection.client(request(3, 1, 10))
    connection.broker_segments(large, 8000)
    out = dissect(dialogue.packets)
    assert out.messages() == ([request(3, 1, 10)[4:]], [large[4:]])
    skipped = [each.bytes for each in out.problems if each.kind == "resync"]
    assert skipped == [20_000]


@pytest.mark.parametrize("packets_per_block", [1, 3, 100])
def test_segments_that_begin_inside_requests(packets_per_block):
    """The window of a client was closed: it sends its requests with the next segment, which begins
    inside of one. Only the responses begin segments."""
    dialogue, connection = Dialogue.connected(handshake=False)
    requests = [request(3, 1, number, bytes(60)) for number in range(10, 16)]
    sent = random.Random(1).randbytes(300) + b"".join(requests)
    connection.client_segments(sent, 250)
    for number in range(9, 16):
        connection.broker(response(number, bytes(40)))
    out = dissect(dialogue.packets, cuts=range(0, len(dialogue.packets), packets_per_block))
    assert out.messages()[0] == [each[4:] for each in requests]
    assert len(out.messages()[1]) == 7


def test_all_requests_are_in_a_segment_that_begins_inside_of_one():
    dialogue, connection = Dialogue.connected(handshake=False)
    requests = [request(3, 1, number, b"\xff" * 60) for number in range(10, 16)]
    connection.client(b"\xff" * 300 + b"".join(requests))
    for number in range(10, 16):
        connection.broker(response(number, bytes(40)))
    assert dissect(dialogue.packets).messages()[0] == [each[4:] for each in requests]


def test_no_segment_of_a_late_capture_can_begin_a_response():
    """The bytes of an earlier one look like a response that ends with the first segment."""
    dialogue, connection = Dialogue.connected(handshake=False)
    for number in (10, 11):
        connection.client(request(3, 1, number))
    connection.broker(bytes.fromhex("00000000 0000000b 00000040 00000000") + b"\x80" * 60)
    connection.broker(bytes.fromhex("00000000 01000000") + b"\x80" * 32)
    requests = [request(3, 1, number)[4:] for number in (10, 11)]
    assert dissect(dialogue.packets).messages()[0] == requests


def test_bytes_of_a_late_capture_that_look_like_two_responses_with_the_same_id():
    """Zeros are frequent, and 0 is a possible id. A client that sends other ids sends it once."""
    dialogue, connection = Dialogue.connected(handshake=False)
    connection.client(request(3, 1, 108))
    lookalike = bytes.fromhex("00000010 00000000") + b"\xff" * 12
    connection.broker(b"\xff" * 11 + lookalike + bytes.fromhex("01000010 00000000") + b"\xff" * 30)
    connection.broker(response(108, bytes(40)))
    assert dissect(dialogue.packets).messages()[1] == [response(108, bytes(40))[4:]]


def test_unanswered_bytes_inside_a_segment_decide_nothing():
    dialogue, connection = Dialogue.connected(handshake=False)
    topic = b"".join(request(3, 1, number, bytes(60)) for number in range(10, 16))
    connection.client(random.Random(1).randbytes(300) + topic + bytes(1000))
    connection.broker(response(9, bytes(40)))
    out = dissect(dialogue.packets)
    assert not out.frames


def test_brokers_show_which_end_is_the_client_in_later_connections():
    """Responses that look like requests are decoded only while no broker is known."""
    dialogue, number = Dialogue(), 3 << 16 | 1
    sent, received = request(3, 1, number, b"sent"), response(number, request(3, 1, 7)[8:])
    for _ in range(300):
        connection = dialogue.connect(handshake=False)
        connection.exchange(sent, received)
    decoded = []

    def evidence(data: bytes, size: int) -> int:
        decoded.append(data)
        return 16 if data == sent[4:] else IMPOSSIBLE

    streams = Streams(ports=(), newest=NEWEST, evidence=evidence, body_end=body_end)
    out = dissect(dialogue.packets, streams=streams)
    assert out.messages() == ([sent[4:]] * 300, [received[4:]] * 300)
    assert decoded.count(sent[4:]) == 300
    assert decoded.count(received[4:]) <= FIRST_GROUP


@pytest.mark.parametrize("packets_per_block", [1, 3, 1 << 20])
def test_a_response_waits_until_its_request_is_confirmed(packets_per_block: int):
    """The request has an unknown version, so only a later connection to the broker confirms it."""
    broker, dialogue = (ipv4("10.0.0.9"), 8000), Dialogue()
    early = dialogue.connect(broker=broker, handshake=False)
    early.exchange(request(3, 20, 3, bytes(12), "m"), response(3, bytes(20)))
    dialogue.wait(3000)
    later = dialogue.connect(broker=broker)
    for number in (7, 8):
        later.exchange(request(18, 0, number), response(number, NO_ERROR))
    streams = Streams(ports=(9092,), newest=NEWEST, evidence=evidence, body_end=body_end)
    out = dissect(dialogue.packets, packets_per_block=packets_per_block, streams=streams)
    assert [[len(each) for each in out.messages(row)] for row in (0, 1)] == [[1, 1], [2, 2]]


@pytest.mark.parametrize("count", [0, 1])
def test_other_bytes_behind_a_missing_beginning_at_a_named_port(count):
    """Alone, and behind a connection with answered requests in the same block."""
    dialogue = Dialogue()
    for _ in range(count):
        kafka = dialogue.connect()
        kafka.exchange(request(3, 1, 7), response(7, NO_ERROR))
    other = dialogue.connect()
    for end in (0, 1):
        other.packet(end, bytes(3000), sent=False)
        other.packet(end, random.Random(end).randbytes(156))
    out = dissect(dialogue.packets)
    assert out.messages() == ([request(3, 1, 7)[4:]] * count, [response(7, NO_ERROR)[4:]] * count)


@pytest.mark.parametrize("begin", range(2, 28, 3))
@pytest.mark.parametrize("segment", [1, 6, 12])
def test_bytes_of_a_response_that_a_broker_sends_in_short_segments(segment: int, begin: int):
    """Numbers of the partitions in a Metadata response read as headers. Where segments are shorter
    than a header, many places are starts of segments."""
    dialogue, connection = Dialogue.connected(handshake=False)
    partitions = [struct.pack(">hiiiiii", 0, index, 0, 1, 0, 1, 0) for index in range(22)]
    connection.broker(b"".join(partitions)[begin:])
    for number in range(3, 8):
        connection.client(request(3, 1, number))
        connection.broker(response(number, bytes(40)))
    out = dissect(split(dialogue.packets, segment))
    assert out.messages()[1] == [response(number, bytes(40))[4:] for number in range(3, 8)]


@pytest.mark.parametrize("packets_per_block", [0, 1])
def test_zeros_in_a_response_whose_beginning_is_missing(packets_per_block: int) -> None:
    """A segment begins with an API of version 0, which looks like a size and the id 0."""
    versions = b"".join(struct.pack(">hhhb", key, 0, 0, 0) for key in range(90))
    begin = 7 * 60 + len(response(2))
    dialogue, connection = Dialogue.connected(handshake=False)
    connection.client(request(18, 3, 2))
    answer = response(2, versions)
    connection.broker(answer[:begin], sent=False)
    connection.broker(answer[begin:])
    connection.client(request(3, 1, 3))
    connection.fin()
    out = dissect(dialogue.packets, packets_per_block=packets_per_block)
    assert [each.message for each in out.frames] == [
        request(18, 3, 2)[4:], request(3, 1, 3)[4:]
    ]  # fmt: skip
