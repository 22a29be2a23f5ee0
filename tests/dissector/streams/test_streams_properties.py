"""Invariants under reordering, splitting, duplication and loss of packets."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.packets.block import SYN
from tests.dissector.streams.dialogue import (
    Connection,
    Dialogue,
    Packet,
    dissect,
    request,
    response,
    sasl_request,
    sasl_response,
    split,
)


def conversation(
    seed: int, count: int = 3, turns: int = 12, handshake: bool = True
) -> list[Packet]:
    """A dialogue of several connections at once, whose sequence numbers wrap."""
    chance = random.Random(seed)
    dialogue = Dialogue()
    connections = [
        dialogue.connect(
            isn=(2**32 - chance.randrange(1, 3000), 2**32 - chance.randrange(1, 3000)),
            handshake=handshake,
        )
        for _ in range(count)
    ]
    for number in range(turns):
        connection: Connection = chance.choice(connections)
        body = chance.randbytes(chance.choice([0, 1, 30, 200, 900]))
        connection.client(request(chance.choice([0, 1, 3, 12]), 1, number, body))
        connection.broker(response(number, chance.randbytes(chance.choice([0, 5, 300, 1200]))))
    for connection in connections:
        connection.fin()
    return dialogue.packets


def reference(packets: list[Packet]) -> dict[tuple, bytes]:
    """The bytes of each stream, by sender and receiver: the first copy of each byte."""
    streams: dict[tuple, dict[int, int]] = {}
    begins = {(each.source, each.target): each.seq for each in packets if each.flags & SYN}
    for each in packets:
        key = each.source, each.target
        copies = streams.setdefault(key, {})
        for index, byte in enumerate(each.payload):
            copies.setdefault((each.seq + index - begins[key] - 1) % 2**32, byte)
    joined = {}
    for key, copies in streams.items():
        position, joined[key] = 0, bytearray()
        while position in copies:
            joined[key].append(copies[position])
            position += 1
    return {key: bytes(value) for key, value in joined.items()}


def frames_of(stream: bytes) -> list[bytes]:
    frames = []
    while len(stream) >= 4 and len(stream) >= 4 + int.from_bytes(stream[:4], "big"):
        size = int.from_bytes(stream[:4], "big")
        frames.append(stream[4 : 4 + size])
        stream = stream[4 + size :]
    return frames


def expected(packets: list[Packet]) -> dict[tuple, list[bytes]]:
    return {key: frames_of(value) for key, value in reference(packets).items() if value}


def by_endpoints(out) -> dict[tuple, list[bytes]]:
    table, frames = out.streams.connections, {}
    for each in out.frames:
        row, client = each.connection, int(table.client[each.connection])
        ends = [
            (
                (int(table.high[row, end]) << 64) | int(table.low[row, end]),
                int(table.port[row, end]),
            )
            for end in (client, 1 - client)
        ]
        key = tuple(ends if each.is_request else ends[::-1])
        frames.setdefault(key, []).append(each.message)
    return frames


def shuffled(packets: list[Packet], chance: random.Random, window: int) -> list[Packet]:
    """Each packet moved by less than `window` places."""
    order = sorted(range(len(packets)), key=lambda index: index + chance.uniform(0, window))
    return [packets[index] for index in order]


def damaged(packets: list[Packet], chance: random.Random) -> list[Packet]:
    """Split, duplicated, retransmitted in other pieces, and out of order."""
    out = split(packets, chance.choice([7, 50, 300, 700, 5000]))
    sent = []
    for each in out:
        sent.append(each)
        if chance.random() < 0.15:
            sent.append(each)
    for segment, following in pairwise(out):
        joins = (
            segment.source == following.source
            and (segment.seq + len(segment.payload)) % 2**32 == following.seq
        )
        if joins and segment.payload and following.payload and chance.random() < 0.3:
            sent.append(
                replace(
                    segment,
                    payload=segment.payload + following.payload,
                    time=following.time,
                )
            )
    return shuffled(sent, chance, chance.choice([1, 5, 30]))


@given(seed=st.integers(0, 10**9))
@settings(max_examples=60)
def test_frames_do_not_depend_on_segmentation_and_order(seed):
    chance = random.Random(seed)
    packets = conversation(seed)
    out = dissect(damaged(packets, chance))
    assert by_endpoints(out) == expected(packets)
    assert out.problems == []


@given(seed=st.integers(0, 10**9))
@settings(max_examples=60)
def test_blocks_may_end_anywhere(seed):
    chance = random.Random(seed)
    packets = damaged(conversation(seed), chance)
    cuts = sorted(chance.choices(range(len(packets) + 1), k=chance.choice([1, 3, 20])))
    out = dissect(packets, cuts=cuts)
    assert by_endpoints(out) == expected(conversation(seed))
    assert out.problems == []


@given(seed=st.integers(0, 10**9))
@settings(max_examples=40)
def test_messages_inside_messages_are_not_parsed(seed):
    """Requests that contain requests, and responses that contain responses with ids near theirs."""
    chance = random.Random(seed)
    dialogue, connection = Dialogue.connected()
    for number in range(6):
        ids = [number + chance.randrange(4) for _ in range(chance.randrange(12))]
        pad = bytes(chance.randrange(60))
        connection.client(
            sasl_request(number, pad + b"".join(sasl_request(each, b"inner") for each in ids))
        )
        connection.broker(
            sasl_response(number, pad + b"".join(sasl_response(each, b"inner") for each in ids))
        )
    packets = shuffled(split(dialogue.packets, 43), chance, chance.choice([1, 5]))
    cuts = sorted(chance.choices(range(len(packets) + 1), k=chance.choice([0, 3, 60])))
    out = dissect(packets, cuts=cuts)
    assert by_endpoints(out) == expected(dialogue.packets)
    assert out.problems == []


@given(seed=st.integers(0, 10**9))
@settings(max_examples=60)
def test_times_do_not_depend_on_the_order_of_packets(seed):
    packets = split(conversation(seed), 700)
    plain = dissect(packets).frames
    mixed = dissect(shuffled(packets, random.Random(seed), 30)).frames
    key = lambda each: (each.message, each.is_request)  # noqa: E731
    assert [(e.message, e.time, e.end_time, e.packet) for e in sorted(plain, key=key)] == [
        (e.message, e.time, e.end_time, e.packet) for e in sorted(mixed, key=key)
    ]


@given(seed=st.integers(0, 10**9))
@settings(max_examples=60)
def test_the_first_copy_of_a_byte_wins(seed):
    """Copies with different bytes and lengths, in any order."""
    chance = random.Random(seed)
    dialogue, connection = Dialogue.connected(isn=(2**32 - 50, 7))
    stream = b"".join(request(3, 1, number, bytes(chance.randrange(40))) for number in range(5))
    connection.client(stream)
    begin = dialogue.packets[:3]
    whole = dialogue.packets[3]
    segments = []
    for _ in range(chance.randrange(1, 25)):
        low = chance.randrange(14, len(stream))
        high = min(low + chance.randrange(1, 60), len(stream))
        segments.append(
            replace(
                whole, seq=(whole.seq + low) % 2**32, time=whole.time - 1, payload=stream[low:high]
            )
        )
    # Only bytes of bodies differ, so that the chain of sizes stays intact.
    segments = [with_other_bytes(each, stream, whole.seq, chance) for each in segments]
    packets = [*begin, *segments, whole]
    cuts = [chance.randrange(4, len(packets))] if chance.random() < 0.5 and len(packets) > 4 else []
    out = dissect(packets, cuts=cuts)
    assert by_endpoints(out) == expected(packets)


def with_other_bytes(packet: Packet, stream: bytes, begin: int, chance: random.Random) -> Packet:
    """The packet, with random changes in the bytes of bodies."""
    bodies, at = set(), 0
    while at < len(stream):
        size = int.from_bytes(stream[at : at + 4], "big")
        bodies |= set(range(at + 16, at + 4 + size))
        at += 4 + size
    low = (packet.seq - begin) % 2**32
    payload = bytes(
        chance.randrange(256) if low + index in bodies and chance.random() < 0.5 else byte
        for index, byte in enumerate(packet.payload)
    )
    return replace(packet, payload=payload)


@pytest.mark.parametrize("seed", range(25))
def test_a_lost_packet_costs_only_the_frames_it_touches(seed):
    packets = split(conversation(seed, turns=20), 400)
    whole = expected(packets)
    chance = random.Random(seed)
    lost = chance.choice([each for each in packets if each.payload])
    out = by_endpoints(dissect([each for each in packets if each is not lost]))
    key = (lost.source, lost.target)
    begin = next(
        each.seq
        for each in packets
        if each.flags & SYN and each.source == lost.source and each.target == lost.target
    )
    low = (lost.seq - begin - 1) % 2**32
    at, touched = 0, set()
    for index, frame in enumerate(whole[key]):
        if at < low + len(lost.payload) and low < at + 4 + len(frame):
            touched.add(index)
        at += 4 + len(frame)
    for each, frames in whole.items():
        if each != key:
            assert out[each] == frames
    good = [frame for index, frame in enumerate(whole[key]) if index not in touched]
    got = [frame for frame in out.get(key, []) if frame in good]
    assert len(got) >= len(good) - 1
