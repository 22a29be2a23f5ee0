"""What no order, cut, doubling or loss of packets may change."""

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
    answer,
    asked,
    dissect,
    request,
    response,
    split,
)


def tell(seed: int, connections: int = 3, turns: int = 12, handshake: bool = True) -> list[Packet]:
    """A dialogue of several connections at once, over the wrap of sequence numbers."""
    chance = random.Random(seed)
    told = Dialogue()
    every = [
        told.connect(
            isn=(2**32 - chance.randrange(1, 3000), 2**32 - chance.randrange(1, 3000)),
            handshake=handshake,
        )
        for _ in range(connections)
    ]
    for turn in range(turns):
        one: Connection = chance.choice(every)
        body = chance.randbytes(chance.choice([0, 1, 30, 200, 900]))
        one.client(request(chance.choice([0, 1, 3, 12]), 1, turn, body))
        one.broker(response(turn, chance.randbytes(chance.choice([0, 5, 300, 1200]))))
    for one in every:
        one.fin()
    return told.packets


def reference(packets: list[Packet]) -> dict[tuple, bytes]:
    """Bytes of each stream, by sender and receiver: the first copy of each byte, one by one."""
    streams: dict[tuple, dict[int, int]] = {}
    begins = {(each.source, each.target): each.seq for each in packets if each.flags & SYN}
    for each in packets:
        key = each.source, each.target
        known = streams.setdefault(key, {})
        for index, byte in enumerate(each.payload):
            known.setdefault((each.seq + index - begins[key] - 1) % 2**32, byte)
    joined = {}
    for key, known in streams.items():
        here, joined[key] = 0, bytearray()
        while here in known:
            joined[key].append(known[here])
            here += 1
    return {key: bytes(value) for key, value in joined.items()}


def frames_of(stream: bytes) -> list[bytes]:
    found = []
    while len(stream) >= 4 and len(stream) >= 4 + int.from_bytes(stream[:4], "big"):
        size = int.from_bytes(stream[:4], "big")
        found.append(stream[4 : 4 + size])
        stream = stream[4 + size :]
    return found


def expected(packets: list[Packet]) -> dict[tuple, list[bytes]]:
    return {key: frames_of(value) for key, value in reference(packets).items() if value}


def by_endpoints(out) -> dict[tuple, list[bytes]]:
    table, found = out.streams.connections, {}
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
        found.setdefault(key, []).append(each.message)
    return found


def shuffled(packets: list[Packet], chance: random.Random, window: int) -> list[Packet]:
    """Each packet moved by less than `window` places."""
    order = sorted(range(len(packets)), key=lambda index: index + chance.uniform(0, window))
    return [packets[index] for index in order]


def damaged(packets: list[Packet], chance: random.Random) -> list[Packet]:
    """Split, doubled, sent again in other pieces, and out of order."""
    out = split(packets, chance.choice([7, 50, 300, 700, 5000]))
    again = []
    for each in out:
        again.append(each)
        if chance.random() < 0.15:
            again.append(each)
    for one, other in pairwise(out):
        joins = one.source == other.source and (one.seq + len(one.payload)) % 2**32 == other.seq
        if joins and one.payload and other.payload and chance.random() < 0.3:
            again.append(replace(one, payload=one.payload + other.payload, time=other.time))
    return shuffled(again, chance, chance.choice([1, 5, 30]))


@given(seed=st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_damage_changes_nothing(seed):
    chance = random.Random(seed)
    packets = tell(seed)
    out = dissect(damaged(packets, chance))
    assert by_endpoints(out) == expected(packets)
    assert out.problems == []


@given(seed=st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_blocks_may_end_anywhere(seed):
    chance = random.Random(seed)
    packets = damaged(tell(seed), chance)
    cuts = sorted(chance.choices(range(len(packets) + 1), k=chance.choice([1, 3, 20])))
    out = dissect(packets, cuts=cuts)
    assert by_endpoints(out) == expected(tell(seed))
    assert out.problems == []


@given(seed=st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_what_a_message_contains_is_never_taken_for_a_message(seed):
    """Requests that contain requests, and responses that contain responses with ids near theirs."""
    chance = random.Random(seed)
    dialogue = Dialogue()
    one = dialogue.connect()
    for number in range(6):
        ids = [number + chance.randrange(4) for _ in range(chance.randrange(12))]
        pad = bytes(chance.randrange(60))
        one.client(asked(number, pad + b"".join(asked(each, b"inner") for each in ids)))
        one.broker(answer(number, pad + b"".join(answer(each, b"inner") for each in ids)))
    packets = shuffled(split(dialogue.packets, 43), chance, chance.choice([1, 5]))
    cuts = sorted(chance.choices(range(len(packets) + 1), k=chance.choice([0, 3, 60])))
    out = dissect(packets, cuts=cuts)
    assert by_endpoints(out) == expected(dialogue.packets)
    assert out.problems == []


@given(seed=st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_times_do_not_depend_on_the_order_of_packets(seed):
    packets = split(tell(seed), 700)
    plain = dissect(packets).frames
    mixed = dissect(shuffled(packets, random.Random(seed), 30)).frames
    key = lambda each: (each.message, each.is_request)  # noqa: E731
    assert [(e.message, e.time, e.end_time, e.packet) for e in sorted(plain, key=key)] == [
        (e.message, e.time, e.end_time, e.packet) for e in sorted(mixed, key=key)
    ]


@given(seed=st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_the_first_copy_of_a_byte_is_right(seed):
    """Copies with other bytes, of other lengths, in any order: as the reference has it."""
    chance = random.Random(seed)
    told = Dialogue()
    one = told.connect(isn=(2**32 - 50, 7))
    stream = b"".join(request(3, 1, number, bytes(chance.randrange(40))) for number in range(5))
    one.client(stream)
    begin = told.packets[:3]
    whole = told.packets[3]
    segments = []
    for _ in range(chance.randrange(1, 25)):
        low = chance.randrange(14, len(stream))
        high = min(low + chance.randrange(1, 60), len(stream))
        segments.append(
            replace(
                whole, seq=(whole.seq + low) % 2**32, time=whole.time - 1, payload=stream[low:high]
            )
        )
    # Bytes of bodies only differ, so that the chain of sizes stays whole.
    segments = [with_other_bytes(each, stream, whole.seq, chance) for each in segments]
    packets = [*begin, *segments, whole]
    cuts = [chance.randrange(4, len(packets))] if chance.random() < 0.5 and len(packets) > 4 else []
    out = dissect(packets, cuts=cuts)
    assert by_endpoints(out) == expected(packets)


def with_other_bytes(packet: Packet, stream: bytes, begin: int, chance: random.Random) -> Packet:
    """The packet, with bodies' bytes changed."""
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
    packets = split(tell(seed, turns=20), 400)
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
