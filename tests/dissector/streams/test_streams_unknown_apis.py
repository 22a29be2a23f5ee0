"""Requests of unknown APIs and versions."""

from __future__ import annotations

import pytest

from dissector.protocol.evidence import evidence
from dissector.streams import Streams
from tests.dissector.streams.dialogue import (
    NEWEST,
    NO_ERROR,
    Dialogue,
    body_end,
    dissect,
    ipv4,
    request,
    response,
)


@pytest.mark.parametrize("size", [5, 40])
def test_a_segment_begins_behind_the_size_of_an_unknown_request(size):
    """Its API, read as a size, and its correlation id look like a request of 65 MB. In blocks of
    one packet, its end is not known yet."""
    known, unknown = request(3, 1, 7, bytes(300)), request(999, 0, 8, bytes(300))
    assert len(known) % size == size - 4
    dialogue, connection = Dialogue.connected()
    sent = known + unknown
    connection.client_segments(sent, size)
    connection.fin()
    for cuts in ((), range(len(dialogue.packets))):
        out = dissect(dialogue.packets, cuts=cuts)
        assert out.messages()[0] == [known[4:], unknown[4:]]
        assert out.kinds() == []


def test_requests_of_unknown_versions_are_frames():
    dialogue, connection = Dialogue.connected()
    connection.client(request(0, 20, 1))
    connection.client(request(95, 0, 2))
    assert len(dissect(dialogue.packets).frames) == 2


@pytest.mark.parametrize("sent", range(1, 25, 2))
def test_the_first_request_has_an_unknown_api_and_is_complete_in_a_later_block(sent):
    """A header is recognised by its first 14 bytes. A block ends after `sent` bytes."""
    dialogue, first = Dialogue(), request(999, 0, 1, bytes(8))
    connection = dialogue.connect()
    connection.client(first[:sent])
    connection.client(first[sent:])
    connection.fin()
    cuts = range(len(dialogue.packets))
    assert dissect(dialogue.packets, cuts=cuts).messages()[0] == [first[4:]]


@pytest.mark.parametrize("kind", [(1, 99), (999, 0), (3, 4)])
@pytest.mark.parametrize("segment", [1, 3, 11, 12, 14, 20, 1 << 20])
def test_the_decision_does_not_depend_on_the_segments_of_the_first_request(kind, segment):
    """With the evidence of the protocol: little for an unknown version, much for a known one."""
    dialogue, first = Dialogue(), request(*kind, 3, bytes(12), "stranger")
    connection = dialogue.connect()
    connection.client_segments(first, segment)
    connection.fin()
    streams = Streams(ports=(9092,), newest=NEWEST, evidence=evidence, body_end=body_end)
    assert dissect(dialogue.packets, streams=streams).messages()[0] == [first[4:]]


@pytest.mark.parametrize("kind", [(1, 99), (999, 0)])
@pytest.mark.parametrize("segment", [5, 9, 1 << 20])
@pytest.mark.parametrize("packets_per_block", [1, 7, 1 << 20])
def test_a_later_connection_shows_that_the_first_request_went_to_a_broker(
    kind, segment, packets_per_block
):
    """The first request has an unknown API or version, at an unknown port."""
    broker, dialogue, first = (ipv4("10.0.0.9"), 8000), Dialogue(), request(*kind, 3, bytes(12))
    early, later = dialogue.connect(broker=broker), dialogue.connect(broker=broker)
    early.client_segments(first, segment)
    early.broker(response(3, bytes(20)))
    later.exchange(request(18, 0, 7), response(7, NO_ERROR))
    early.exchange(request(18, 0, 4), response(4, NO_ERROR))
    packets = dialogue.packets
    streams = Streams(ports=(9092,), newest=NEWEST, evidence=evidence, body_end=body_end)
    out = dissect(packets, packets_per_block=packets_per_block, streams=streams)
    assert [len(each) for each in out.messages(0)] == [2, 2]
    assert [len(each) for each in out.messages(1)] == [1, 1]


UNKNOWN = (999, 0), (10005, 3), (3, 40)
"""APIs and versions far from the known ones; brokers of vendors have APIs of their own."""


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("segment", [1 << 20, 40, 5])
def test_requests_of_unknown_apis_between_known_ones_are_frames(segment, cut):
    """All in one segment, or divided: correlation ids that follow each other show the borders."""
    kinds = [(3, 1), *UNKNOWN, (3, 1), *UNKNOWN]
    requests = [request(*kind, number, bytes(9)) for number, kind in enumerate(kinds, 7)]
    dialogue, data = Dialogue(), b"".join(requests)
    connection = dialogue.connect()
    connection.client_segments(data, segment)
    connection.fin()
    cuts = range(len(dialogue.packets)) if cut else ()
    assert dissect(dialogue.packets, cuts=cuts).messages()[0] == [each[4:] for each in requests]


@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_request_of_an_unknown_api_in_a_segment_of_its_own_is_a_frame(kind):
    """A client may number requests in another order than it sends them."""
    requests = [request(3, 1, 7), request(*kind, 6), request(3, 1, 8)]
    dialogue, connection = Dialogue.connected()
    for each in requests:
        connection.client(each)
    connection.fin()
    assert dissect(dialogue.packets).messages()[0] == [each[4:] for each in requests]


@pytest.mark.parametrize("segment", [1 << 20, 40, 5])
def test_requests_of_unknown_apis_before_a_known_one_are_frames(segment):
    """A client may use any correlation ids: the known request behind shows where they end."""
    ids = 0x5DE3_0291, 0x1B77_4C05, 0x0345_9A12, 0x7A00_61FE
    kinds = (3, 1), (10005, 3), (999, 0), (3, 1)
    requests = [request(*each, number, bytes(9)) for each, number in zip(kinds, ids, strict=True)]
    dialogue, data = Dialogue(), b"".join(requests)
    connection = dialogue.connect()
    connection.client_segments(data, segment)
    connection.fin()
    assert dissect(dialogue.packets).messages()[0] == [each[4:] for each in requests]
