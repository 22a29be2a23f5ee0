"""Detection of the protocol, and of frames without a known boundary."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dissector.frame_reader import FrameReader
from dissector.packets import open_packets
from dissector.protocol.evidence import evidence
from dissector.streams import Streams
from dissector.streams.connections.table import KAFKA
from dissector.streams.detection.declared import comment
from dissector.streams.streaming import DEFAULT_MEMORY
from tests.captures import recorded
from tests.dissector.records.records_writers import batch
from tests.dissector.streams.dialogue import (
    MS,
    NEWEST,
    NO_ERROR,
    Dialogue,
    body_end,
    dissect,
    framed,
    ipv4,
    request,
    response,
)

ONE, TWO = request(3, 1, 1), request(3, 1, 2)


@pytest.mark.parametrize("cuts", [[], range(1, 140), range(8, 140, 8)])
def test_a_broker_whose_clock_is_behind_closes_before_the_first_request(cuts):
    """Another connection shows the time. Ids around 2^31 are weak evidence of responses."""
    ids = (2**31 - 3, 2**31 - 2, 2**31 - 1, -(2**31), 1 - 2**31)
    dialogue, other = Dialogue(), Dialogue()
    connection = dialogue.connect()
    connection.exchanges(ids, NO_ERROR)
    connection.fin()
    behind = [replace(each, time=each.time - 2000 * MS * (each.source[1] == 9092))
              for each in dialogue.packets]  # fmt: skip
    later = other.connect(client="10.0.0.2")
    later.exchanges(range(60), NO_ERROR)
    spread = [replace(each, time=other.packets[0].time + (20 * index - 1900) * MS)
              for index, each in enumerate(other.packets)]  # fmt: skip
    out = dissect(sorted(behind + spread, key=lambda each: each.time), cuts=cuts)
    assert [len(each) for each in out.messages()] == [65, 65]
    assert out.problems == []


def test_requests_are_found_at_any_offset():
    dialogue, connection = Dialogue.connected()
    connection.client(ONE)
    messages = [request(1, 4, number, bytes(137), "consumer-1") for number in range(2, 60)]
    stream = b"".join(messages)
    for index, at in enumerate(range(0, len(stream), 500)):
        connection.client(stream[at : at + 500], sent=index != 1)
    connection.fin()
    out = dissect(dialogue.packets)
    lost = {index for index in range(58) if (index + 1) * len(messages[0]) > 500
            and index * len(messages[0]) < 1000}  # fmt: skip
    assert out.messages()[0] == [
        each[4:] for index, each in enumerate([ONE, *messages]) if index - 1 not in lost
    ]


def test_responses_are_found_at_any_offset_by_their_correlation_ids():
    dialogue, connection = Dialogue.connected()
    messages = [response(number, bytes(137)) for number in range(1000, 1060)]
    for number in range(1000, 1060):
        connection.client(request(3, 1, number))
    stream = b"".join(messages)
    for index, at in enumerate(range(0, len(stream), 500)):
        connection.broker(stream[at : at + 500], sent=index != 1)
    connection.fin()
    out = dissect(dialogue.packets)
    lost = {index for index in range(60) if (index + 1) * 145 > 500 and index * 145 < 1000}
    assert out.messages()[1] == [
        each[4:] for index, each in enumerate(messages) if index not in lost
    ]


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, (100 << 20) + 1])
@pytest.mark.parametrize("end", [0, 1])
def test_an_impossible_size_is_a_problem_and_the_parser_resynchronises(size, end):
    dialogue, connection = Dialogue.connected()
    connection.exchange(ONE, response(1))
    connection.packet(end, struct.pack(">i", size) + b"what is this")
    connection.exchanges(range(2, 6))
    out = dissect(dialogue.packets)
    assert [len(each) for each in out.messages()] == [5, 5]
    assert out.kinds() == ["bad_size", "resync"]
    assert out.problems[1].bytes == 16


def test_the_largest_size_is_accepted_but_not_allocated():
    dialogue, connection = Dialogue.connected()
    connection.client(struct.pack(">i", 100 << 20) + ONE[4:])
    out = dissect(dialogue.packets)
    assert [(each.size, len(each.message)) for each in out.frames] == [(100 << 20, len(ONE) - 4)]


def test_an_empty_frame():
    """A broker's last SASL token may be empty (KIP-43)."""
    dialogue, connection = Dialogue.connected()
    connection.exchange(request(17, 0, 1, b"\0\5PLAIN"), response(1, bytes(6)))
    connection.exchange(framed(b"\0user\0secret"), framed(b""))
    connection.client(TWO)
    out = dissect(dialogue.packets)
    assert out.messages()[1] == [response(1, bytes(6))[4:], b""]
    assert len(out.messages()[0]) == 3


def test_several_tokens_without_headers():
    """SCRAM after SaslHandshake v0: no token looks like a request or a response."""
    handshake, tokens = request(17, 0, 1, b"\0\x0dSCRAM-SHA-256"), [b"n,,n=u,r=a", b"c=biws,r=ab"]
    challenges = [b"r=ab,s=c2E=,i=4096", b"v=dg=="]
    dialogue, connection = Dialogue.connected()
    connection.exchange(handshake, response(1, bytes(6)))
    for token, challenge in zip(tokens, challenges, strict=True):
        connection.exchange(framed(token), framed(challenge))
    connection.exchange(TWO, response(2, bytes(6)))
    out = dissect(dialogue.packets)
    expected = (
        [handshake[4:], *tokens, TWO[4:]],
        [response(1, bytes(6))[4:], *challenges, response(2, bytes(6))[4:]],
    )
    assert out.messages() == expected
    assert out.kinds() == []


def test_a_request_in_the_segment_of_the_last_token():
    """The last token of GSSAPI has no response, so the client does not wait. The first token has
    more segments than the search behind a doubtful place."""
    handshake, tokens = request(17, 0, 1, b"\0\6GSSAPI"), [b"\x60" * 800, b"\5\4\4\xff" * 8]
    dialogue, connection = Dialogue.connected()
    connection.exchange(handshake, response(1, bytes(6)))
    for at in range(0, 804, 67):
        connection.client(framed(tokens[0])[at : at + 67])
    connection.broker(framed(b"\x60" * 160))
    connection.exchange(framed(tokens[1]) + TWO, response(2, bytes(6)))
    connection.exchange(request(3, 1, 3), response(3, bytes(6)))
    out = dissect(dialogue.packets)
    assert out.messages()[0] == [handshake[4:], *tokens, TWO[4:], request(3, 1, 3)[4:]]
    assert out.kinds() == []


def test_blocks_of_one_packet_begin_with_unknown_messages():
    """Brokers of 0.9 took GSSAPI tokens without SaslHandshake. In both streams, the messages behind
    them are found, as in one block."""
    dialogue, connection = Dialogue.connected()
    for size in (200, 20):
        connection.exchange(framed(b"\x60" * size), framed(b"\x60" * size))
    connection.exchanges(range(1, 5), bytes(6))
    for cuts in ((), range(1, len(dialogue.packets))):
        requests, responses = dissect(dialogue.packets, cuts=cuts).messages()
        assert requests == [request(3, 1, number)[4:] for number in range(1, 5)]
        assert responses == [response(number, bytes(6))[4:] for number in range(1, 5)]


KERBEROS = bytes.fromhex("06092a864886f712010202")


@pytest.mark.parametrize("port", [9092, 7000])
@pytest.mark.parametrize("packets_per_block", [1, 100])
def test_gssapi_tokens_before_the_first_request(port, packets_per_block):
    """Clients of 0.9 send them without SaslHandshake. The first one begins with its length in DER
    and the mechanism. An empty token and one without a header follow."""
    dialogue, connection = Dialogue.connected(broker=(ipv4("10.0.0.9"), port))
    tokens = [b"\x60\x82\x01\xf4" + KERBEROS + bytes(489), b"", b"\5\4\0\xff" + b"\x99" * 28]
    challenges = [b"\x60\x70" + KERBEROS + b"\2" * 101, b"\5\4\1\xff" + b"\x98" * 28]
    connection.client(framed(tokens[0])[:10])
    connection.client(framed(tokens[0])[10:])
    for token, challenge in zip(tokens[1:], challenges, strict=True):
        connection.broker(framed(challenge))
        connection.client(framed(token))
    connection.exchanges((1, 2), NO_ERROR)
    out = dissect(dialogue.packets, cuts=range(0, len(dialogue.packets), packets_per_block))
    requests, responses = out.messages()
    assert requests == [*tokens, ONE[4:], TWO[4:]]
    assert responses == [*challenges, *(response(each, NO_ERROR)[4:] for each in (1, 2))]
    assert out.kinds() == []


def test_gssapi_tokens_of_another_protocol():
    dialogue, connection = Dialogue.connected(broker=(ipv4("10.0.0.9"), 7000))
    connection.client(framed(b"\x60\x70" + KERBEROS + b"\1" * 101))
    connection.broker(framed(b"\x60\x70" + KERBEROS + b"\2" * 101))
    for size in range(20, 120, 7):
        connection.client(framed(b"\5\4\4\xff" + random.Random(size).randbytes(size)))
        connection.broker(framed(b"\5\4\5\xff" + random.Random(-size).randbytes(size)))
    connection.fin()
    for cuts in ((), range(len(dialogue.packets))):
        out = dissect(dialogue.packets, cuts=cuts)
        assert out.messages() == ([], [])
        assert out.kinds() == []


@pytest.mark.slow
def test_many_damaged_places_in_one_block_take_bounded_time():
    dialogue, connection = Dialogue.connected()
    for number in range(600):
        connection.client(request(3, 1, number) + request(3, 1, number) + b"\xff\xff\xff\xff")
    out = dissect(dialogue.packets)
    assert len(out.messages()[0]) >= 400
    assert out.kinds().count("bad_size") >= 200


@pytest.mark.slow
def test_half_of_the_packets_lost():
    dialogue, connection = Dialogue.connected()
    for number in range(1000):
        connection.client(request(3, 1, number), sent=number % 2 == 0)
        connection.broker(response(number, NO_ERROR), sent=number % 2 == 0)
    out = dissect(dialogue.packets)
    assert [len(each) for each in out.messages()] == [500, 500]


@pytest.mark.parametrize("cuts", [(), range(1, 9)], ids=["one block", "packet by packet"])
def test_a_declared_connection_needs_no_evidence(cuts):
    """A response without its request does not show what a connection carries. A comment does."""
    dialogue, alone = Dialogue(), response(7, bytes(18))
    for client in ("10.0.0.1", "10.0.0.2"):
        dialogue.connect(client=client).broker(alone)
    streams = Streams(ports=(), newest=NEWEST, body_end=body_end)
    streams.declared.learn(
        [
            "a comment", comment(("10.0.0.256", 40002), ("10.0.0.9", 9092)),
            comment(("10.0.0.2", 40002), ("10.0.0.9", 9092)),
        ]
    )  # fmt: skip
    out = dissect(dialogue.packets, cuts=cuts, streams=streams)
    assert out.messages(0) == ([], [])
    assert out.messages(1) == ([], [alone[4:]])
    assert streams.connections.client[1] == 0


@pytest.mark.parametrize("name", ["kafka-3-librdkafka-1-0", "kafka-3-java-2-0", "kafka-3-pykafka"])
def test_a_guess_does_not_take_a_response_for_a_request(name: str, tmp_path: Path) -> None:
    """The port of the broker is not known. A wrong client makes all its messages impossible."""
    packets = recorded.read(f"{name}.pcap.zst")
    sides = []
    for part in (packets, packets[len(packets) // 3 :]):
        source = open_packets([recorded.write(tmp_path / f"{len(part)}.pcap", part)])
        reader = FrameReader(source, ports=(1,), keylog=None, memory=DEFAULT_MEMORY)
        reader.streams.guess(len(part) < len(packets))
        for _ in reader.batches():
            pass
        table = reader.streams.connections
        rows = np.flatnonzero(table.protocol[: table.count] == KAFKA)
        ports = map(tuple, table.port[rows].tolist())
        sides.append(dict(zip(ports, table.client[rows].tolist(), strict=True)))
    whole, late = sides
    known = whole.keys() & late.keys()
    assert len(known) > 2
    assert {ports: whole[ports] for ports in known} == {ports: late[ports] for ports in known}


def test_a_response_has_any_id_that_its_client_has_sent():
    """Counters wrap at 2^31, and clients may draw random ids. A message may contain another one."""
    dialogue, connection = Dialogue.connected()
    inner = response(5, NO_ERROR)
    outer = response(-7, bytes(60) + inner + bytes(60))
    for number in (-7, 5):
        connection.client(request(3, 1, number))
    connection.broker_segments(outer, 4)
    connection.broker(inner)
    out = dissect(dialogue.packets, cuts=range(1, len(dialogue.packets)))
    assert out.messages()[1] == [outer[4:], inner[4:]]
    assert not out.problems


@pytest.mark.parametrize("handshake", [True, False])
@pytest.mark.parametrize("number", [-1, -(2**31)])
def test_a_negative_correlation_id_confirms_the_first_request(number, handshake):
    """The Java client counts the requests of all its connections with one counter."""
    dialogue, connection = Dialogue.connected(handshake=handshake)
    connection.exchange(request(3, 1, number, bytes(4), ""), response(number, NO_ERROR))
    streams = Streams(ports=(), newest=NEWEST, evidence=evidence, body_end=body_end)
    assert [len(each) for each in dissect(dialogue.packets, streams=streams).messages()] == [1, 1]


@pytest.mark.parametrize("packets_per_block", [1, 100])
def test_the_next_request_confirms_the_first_one(packets_per_block):
    """A client asks again if the broker does not know its version of ApiVersions (KIP-511)."""
    dialogue, connection = Dialogue.connected(broker=(ipv4("10.0.0.9"), 19092))
    requests = [framed(struct.pack(">hhih", 18, *each, -1)) for each in ((9, 1), (0, 2))]
    for number, sent in enumerate(requests, 1):
        connection.client(sent)
        connection.broker(response(number, struct.pack(">hihhh", 35, 1, 18, 0, 4)))
    streams = Streams(ports=(), newest={18: 4}, evidence=evidence, body_end=body_end)
    out = dissect(dialogue.packets, packets_per_block=packets_per_block, streams=streams)
    assert out.messages()[0] == [each[4:] for each in requests]
    assert len(out.messages()[1]) == 2


@pytest.mark.parametrize("packets_per_block", [1, 10, 1000])
@pytest.mark.parametrize("size", [60_000, 70_000, 900_000])
def test_a_large_first_request_without_client_id(size, packets_per_block):
    """A producer whose first id is 0: its header is mostly zeros, and a batch follows."""
    dialogue, connection = Dialogue.connected()
    records = batch(random.Random(1).randbytes(size), 1)
    body = struct.pack(">hhiih", -1, -1, 1000, 1, 6) + b"orders"
    sent = request(0, 7, 0, body + struct.pack(">iii", 1, 0, len(records)) + records, "")
    for at in range(0, len(sent), 1448):
        connection.client(sent[at : at + 1448])
    connection.broker(response(0, bytes(40)))
    streams = Streams(ports=[9092], newest=NEWEST, evidence=evidence, body_end=body_end)
    cuts = range(packets_per_block, len(dialogue.packets), packets_per_block)
    out = dissect(dialogue.packets, cuts=cuts, streams=streams)
    assert out.messages() == ([sent[4:]], [response(0, bytes(40))[4:]])


@pytest.mark.parametrize("packets_per_block", [1, 100])
@pytest.mark.parametrize("number", [5, -5, 2**31 - 1])
def test_the_first_request_expects_no_response(number, packets_per_block):
    """The first response is the one to the next request: the broker does not respond to acks=0."""
    dialogue, connection = Dialogue.connected(broker=(ipv4("10.0.0.9"), 19092))
    following = -(2**31) if number == 2**31 - 1 else number + 1
    bodies = [
        struct.pack(">hiih", acks, 1000, 1, 1) + b"t" + struct.pack(">iii", 1, 0, 0)
        for acks in (0, 1)
    ]
    requests = [
        framed(struct.pack(">hhih", 0, 2, each, -1) + body)
        for each, body in zip((number, following), bodies, strict=True)
    ]
    for sent in requests:
        connection.client(sent)
    connection.broker(response(following, bytes(40)))
    streams = Streams(ports=(), newest=NEWEST, evidence=evidence, body_end=body_end)
    out = dissect(dialogue.packets, packets_per_block=packets_per_block, streams=streams)
    assert out.messages()[0] == [each[4:] for each in requests]


@pytest.mark.parametrize("number", [-52, 50])
def test_responses_to_requests_before_the_capture(number):
    """Also of a client that has sent 2^31 requests, so that its ids are negative."""
    dialogue, connection = Dialogue.connected(handshake=False)
    connection.broker(response(number, NO_ERROR))
    connection.exchanges(range(number + 1, number + 6), NO_ERROR)
    out = dissect(dialogue.packets)
    assert [len(each) for each in out.messages()] == [5, 6]
    assert not out.problems
