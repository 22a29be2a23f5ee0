"""Streams that OpenSSL encrypted: results do not depend on the blocks of packets."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed")

from dissector.streams import Streams
from dissector.tls import KeyLog
from tests.dissector.streams.dialogue import NEWEST, Dialogue, Packet, body_end, dissect, request
from tests.dissector.tls.tls_made import CLIENT, SERVER, contexts, talk


@pytest.fixture(scope="module")
def late_response(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Packet], bytes]:
    """A broker's stream ends with bytes that are no response; then the first request is sent."""
    folder: Path = tmp_path_factory.mktemp("tls")
    noise = [(SERVER, random.Random(each).randbytes(16_000)) for each in range(20)]
    requests = [(CLIENT, request(3, 1, number)) for number in range(5)]
    made = talk(folder, contexts(folder, "TLSv1_3"), noise + requests)
    dialogue, connection = Dialogue.connected()
    for end, data in made.wire:
        connection.packet(end, data)
    return dialogue.packets, made.keys


@pytest.mark.parametrize("packets_per_block", [1, 4, 100])
def test_skipped_bytes_at_the_end_of_a_stream(
    late_response: tuple[list[Packet], bytes], packets_per_block: int
) -> None:
    packets, keys = late_response
    streams = Streams(ports=(9092,), newest=NEWEST, body_end=body_end, keys=KeyLog(keys))
    out = dissect(packets, packets_per_block=packets_per_block, streams=streams)
    assert [len(each) for each in out.messages()] == [5, 0]
    skipped = [(each.offset, each.bytes) for each in out.problems if each.kind == "resync"]
    assert skipped == [(0, 320_000)]


@pytest.mark.parametrize("packets_per_block", [1, 100])
def test_segments_behind_a_hole_when_the_connection_has_ended(
    tmp_path: Path, packets_per_block: int
) -> None:
    """The acknowledgment of the lost bytes is missing, too: the hole stays open for longer than
    the connection."""
    requests = [(CLIENT, request(3, 1, number)) for number in range(5)]
    made = talk(tmp_path, contexts(tmp_path, "TLSv1_3"), requests)
    dialogue = Dialogue()
    connection, other = dialogue.connect(), dialogue.connect()
    lost = len(made.wire) - 3
    for number, (end, data) in enumerate(made.wire):
        connection.packet(end, data, sent=number != lost)
    connection.fin()
    dialogue.wait(5000)
    other.client(request(3, 1, 0))
    packets = [
        replace(each, ack=1001) if each.target[1] == 40001 else each for each in dialogue.packets
    ]
    cuts = range(packets_per_block, len(packets), packets_per_block)
    streams = Streams(ports=(9092,), newest=NEWEST, body_end=body_end, keys=KeyLog(made.keys))
    out = dissect(packets, cuts=cuts, streams=streams)
    assert len(out.messages(0)[0]) == 4


@pytest.mark.parametrize("packets_per_block", [1, 100])
def test_lost_records_of_connections_without_kafka_are_not_reported(
    tmp_path: Path, packets_per_block: int
) -> None:
    messages = [(end, b"GET / HTTP/1.1\r\n\r\n") for _ in range(9) for end in (CLIENT, SERVER)]
    made = talk(tmp_path, contexts(tmp_path, "TLSv1_3"), messages)
    dialogue, connection = Dialogue.connected()
    for number, (end, data) in enumerate(made.wire):
        connection.packet(end, data, sent=number != len(made.wire) - 5)
        dialogue.wait(2000)  # then the hole is final
    cuts = range(packets_per_block, len(dialogue.packets), packets_per_block)
    streams = Streams(ports=(), newest=NEWEST, body_end=body_end, keys=KeyLog(made.keys))
    assert dissect(dialogue.packets, cuts=cuts, streams=streams).problems == []


@pytest.mark.parametrize("packets_per_block", [1, 4, 100])
def test_the_time_of_skipped_bytes_while_another_connection_has_the_last_bytes(
    tmp_path: Path, packets_per_block: int
) -> None:
    """The other connection ends in a message, at a later position."""
    noise = [(SERVER, random.Random(each).randbytes(16_000)) for each in range(10)]
    requests = [request(3, 1, number) for number in range(11_000)]
    other = b"".join(requests)[:-5]
    assert len(other) > 160_000
    dialogue, keys = Dialogue(), b""
    for messages in ([*noise, (CLIENT, requests[0])], [(CLIENT, other)]):
        made = talk(tmp_path, contexts(tmp_path, "TLSv1_3"), messages)
        keys, connection = made.keys, dialogue.connect()
        for end, data in made.wire:
            connection.packet(end, data)
    cuts = range(packets_per_block, len(dialogue.packets), packets_per_block)
    streams = Streams(ports=(9092,), newest=NEWEST, body_end=body_end, keys=KeyLog(keys))
    out = dissect(dialogue.packets, cuts=cuts, streams=streams)
    skipped = [each for each in out.problems if each.kind == "resync"]
    last = max(each.time for each in dialogue.packets if each.target[1] == 40001)
    assert [(each.offset, each.bytes, each.time) for each in skipped] == [(0, 160_000, last)]
