"""Loops of packets: compiled and as Python, on recordings, on damage, and on noise."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dissector import _native
from dissector.packets import open_packets
from dissector.packets.block import PacketBlock
from dissector.packets.formats.capture_reader import PacketColumns, PacketRecords
from dissector.packets.formats.pcapng import SECTION
from dissector.packets.layers.headers import Kind, Packets
from tests.captures.recorded import CAPTURES
from tests.dissector.conftest import loops_as_python

NAMES = ["kafka-python-mock.pcap", "librdkafka-mock-transactions.pcapng"]


def blocks(path: Path, block_bytes: int) -> list[PacketBlock]:
    source = open_packets([path], block_bytes=block_bytes)
    read = []
    while (block := source.read(reserve=8)) is not None:
        read.append(block)
    return read


def rows(parts: list[PacketBlock]) -> dict[str, list[object]]:
    """All packets of all blocks with their payloads, and the problems."""
    names = [
        field.name
        for field in dataclasses.fields(PacketBlock)
        if isinstance(getattr(parts[0], field.name), np.ndarray)
    ]
    columns: dict[str, list[object]] = {
        name: np.concatenate([getattr(part, name) for part in parts]).tolist()
        for name in names
        if name not in ("data", "payload")
    }
    columns["payload"] = [
        bytes(part.data[at : at + size])
        for part in parts
        for at, size in zip(part.payload.tolist(), part.captured.tolist(), strict=True)
    ]
    columns["seen"] = [sum(part.packets_seen for part in parts)]
    columns["kinds of problems"] = sorted({each.kind for part in parts for each in part.problems})
    return columns


def check(path: Path) -> None:
    """The installed loops and those in Python read the same packets."""
    expected = rows(blocks(path, 1 << 20))
    with loops_as_python():
        assert rows(blocks(path, 1 << 20)) == expected


@pytest.mark.parametrize("name", NAMES)
def test_recordings(name: str) -> None:
    check(CAPTURES / name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_damage(tmp_path: Path, name: str, seed: int) -> None:
    chance = random.Random(seed)
    content = bytearray((CAPTURES / name).read_bytes()[:60_000])
    for _ in range(30):
        content[chance.randrange(28, len(content))] = chance.choice([0, 255, chance.randrange(256)])
    path = tmp_path / name
    path.write_bytes(content[: chance.randrange(len(content) // 2, len(content))])
    check(path)


ADDRESSES = st.sampled_from(
    [(0, 0xFFFF_0A00_0001), (0, 0xFFFF_0A00_0002), (1 << 60, 5), (5, 1 << 60)]
)
ENDS = st.tuples(ADDRESSES, st.sampled_from([9092, 9093, 40000]))


@given(st.lists(st.tuples(ENDS, ENDS), max_size=40))
def test_pairs(packets: list[tuple[tuple[tuple[int, int], int], ...]]) -> None:
    def column(end: int, part: int | None, dtype: type[np.generic]) -> NDArray[np.generic]:
        values = [p[end][1] if part is None else p[end][0][part] for p in packets]
        return np.array(values, dtype)

    columns = [
        column(end, part, dtype)
        for end in (0, 1)
        for part, dtype in ((0, np.uint64), (1, np.uint64), (None, np.uint16))
    ]
    sender, first = np.zeros((2, len(packets)), np.int64)
    hashes, words = np.zeros(len(packets), np.uint64), np.zeros(5 * len(packets), np.uint64)
    count = _native.number_pairs(*columns, _native.HASH_KEY, sender, first, hashes, words)
    seen: list[frozenset[object]] = []
    for pair in map(frozenset, packets):
        if pair not in seen:
            seen.append(pair)
    expected = [seen.index(frozenset(pair)) for pair in packets]
    assert (sender >> 1).tolist() == expected
    assert (sender & 1).tolist() == [int(source > target) for source, target in packets]
    assert first[:count].tolist() == [expected.index(code) for code in range(len(seen))]
    assert len(np.unique(hashes[:count])) == count


def test_more_pairs_than_the_first_table_has_room_for() -> None:
    numbers = np.tile(np.arange(5_000, dtype=np.uint64), 2)
    zero, port = np.zeros(10_000, np.uint64), np.full(10_000, 9092, np.uint16)
    sender, first = np.zeros((2, 10_000), np.int64)
    columns = (zero, numbers + np.uint64(1), port, zero, zero, port)
    arrays = sender, first, np.zeros(10_000, np.uint64), np.zeros(50_000, np.uint64)
    assert _native.number_pairs(*columns, _native.HASH_KEY, *arrays) == 5_000
    assert sender.tolist() == [2 * number + 1 for number in numbers.tolist()]
    assert first[:5_000].tolist() == list(range(5_000))


@given(st.binary(max_size=300), st.integers(0, 320))
def test_a_chain_through_noise(data: bytes, begin: int) -> None:
    """Positions ascend, and blocks have room for type and size, for any bytes."""
    row, positions = np.frombuffer(data, np.uint8), np.zeros(30, np.int64)
    count = _native.follow_blocks(row, begin, 10**6, False, 50, SECTION, positions)
    at = positions[:count]
    assert (np.diff(at) >= 12).all()
    assert ((at >= begin) & (at + 8 <= len(row))).all()


@given(st.binary(min_size=60, max_size=120), st.sampled_from(list(Kind)), st.integers(0, 60))
def test_headers_of_noise(data: bytes, kind: Kind, at: int) -> None:
    """No header is read behind the captured bytes."""
    packets = Packets(one_packet(data, 9))
    packets.kind[0], packets.at[0] = kind, at
    packets.read_headers(np.array([0]), 6)
    assert packets.kind[0] in list(Kind)
    assert packets.end[0] <= len(data)
    packets.kind[0], packets.at[0], packets.end[0] = Kind.IPV4, len(data), len(data) + 20
    with pytest.raises(IndexError):
        packets.read_headers(np.array([0]), 1)


def one_packet(data: bytes, missing: int) -> PacketRecords:
    """All bytes as one packet, `missing` of which were not captured."""
    size = len(data)
    columns = PacketColumns(
        *(np.array([n]) for n in (0, size, size + missing, 0)), np.int32([1]), np.int32([0])
    )
    return PacketRecords(np.frombuffer(data, np.uint8), 0, columns, np.array([1]), size, [])
