"""The compiled loops of packets: what NumPy gives, on every recording, on damage, and on noise."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dissector import kernel
from dissector.packets import open_packets
from dissector.packets.block import PacketBlock
from dissector.packets.headers import ETHERTYPES, FAMILIES, PROTOCOLS, Kind
from dissector.streams.flows import _pair_codes

pytestmark = pytest.mark.skipif(not kernel.COMPILED, reason="no compiled loops")

CAPTURES = Path(__file__).resolve().parents[3] / "captures"
FILES = sorted(
    path for path in CAPTURES.rglob("*") if ".pcap" in path.name and "truth" not in path.name
)


def blocks(path: Path, block_bytes: int) -> list[PacketBlock]:
    source = open_packets([path], block_bytes=block_bytes)
    read = []
    while (block := source.read(reserve=8)) is not None:
        read.append(block)
    return read


def both(path: Path, block_bytes: int = 1 << 20) -> tuple[list[PacketBlock], list[PacketBlock]]:
    compiled = blocks(path, block_bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "COMPILED", False)
        return compiled, blocks(path, block_bytes)


def rows(parts: list[PacketBlock]) -> dict[str, list[object]]:
    """All packets, one block after the other, with their payloads; and what was wrong."""
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_recording(path: Path) -> None:
    compiled, pure = both(path)
    assert rows(compiled) == rows(pure)


@pytest.mark.parametrize("name", ["kafka-python-mock.pcap", "librdkafka-mock-transactions.pcapng"])
@pytest.mark.parametrize("seed", range(8))
def test_damage(tmp_path: Path, name: str, seed: int) -> None:
    chance = random.Random(seed)
    content = bytearray((CAPTURES / name).read_bytes())
    for _ in range(60):
        content[chance.randrange(28, len(content))] = chance.choice([0, 255, chance.randrange(256)])
    path = tmp_path / name
    path.write_bytes(content[: chance.randrange(len(content) // 2, len(content))])
    compiled, pure = both(path)
    assert rows(compiled) == rows(pure)


ADDRESSES = st.sampled_from(
    [(0, 0xFFFF_0A00_0001), (0, 0xFFFF_0A00_0002), (1 << 60, 5), (5, 1 << 60)]
)
ENDS = st.tuples(ADDRESSES, st.sampled_from([9092, 9093, 40000]))


@settings(deadline=None)
@given(st.lists(st.tuples(ENDS, ENDS), max_size=40))
def test_pairs(packets: list[tuple[tuple[tuple[int, int], int], ...]]) -> None:
    def column(end: int, part: int | None, dtype: type[np.generic]) -> NDArray[np.generic]:
        values = [p[end][1] if part is None else p[end][0][part] for p in packets]
        return np.array(values, dtype)

    block = dataclasses.replace(
        PacketBlock.empty(0),
        src_high=column(0, 0, np.uint64), src_low=column(0, 1, np.uint64),
        dst_high=column(1, 0, np.uint64), dst_low=column(1, 1, np.uint64),
        src_port=column(0, None, np.uint16), dst_port=column(1, None, np.uint16),
        time=np.zeros(len(packets), np.int64),
    )  # fmt: skip
    seen: list[frozenset[object]] = []
    for pair in map(frozenset, packets):
        if pair not in seen:
            seen.append(pair)
    expected = [seen.index(frozenset(pair)) for pair in packets]
    first = [expected.index(code) for code in range(len(seen))]
    turned = [pair != packets[first[code]] for pair, code in zip(packets, expected, strict=True)]
    for compiled in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel, "COMPILED", compiled)
            actual = _pair_codes(block)
        assert [each.tolist() for each in actual] == [expected, turned, first]


@settings(deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(-9, 320), min_size=1, max_size=6))
def test_a_chain_through_noise(data: bytes, places: list[int]) -> None:
    """Whatever the bytes and sync points are, positions ascend, and records have room."""
    row = np.frombuffer(data, np.uint8)
    starts = np.array(sorted(places), np.int64)
    positions = kernel.loops.follow(row, starts, 10**6, False, 8, 16, 16, 50, 0, 1000)
    at = np.frombuffer(positions, np.int64)
    assert (np.diff(at) >= 16).all()
    assert ((at >= 0) & (at + 12 <= len(row))).all()


@settings(deadline=None)
@given(st.binary(min_size=60, max_size=120), st.sampled_from(list(Kind)), st.integers(0, 60))
def test_headers_of_noise(data: bytes, kind: Kind, at: int) -> None:
    """No header is read behind the captured bytes."""
    row = np.frombuffer(data, np.uint8)
    kinds, place = np.array([kind], np.uint8), np.array([at], np.int64)
    end, wire = np.array([len(data)], np.int64), np.array([len(data) + 9], np.int64)
    ends = [np.zeros(1, np.uint64) for _ in range(4)]
    kernel.loops.advance(row, ETHERTYPES, PROTOCOLS, FAMILIES, kinds, place, end, wire, *ends)
    assert kinds[0] in list(Kind)
    assert end[0] <= len(data)
    place[0] = -1
    with pytest.raises(ValueError, match="outside"):
        kernel.loops.advance(row, ETHERTYPES, PROTOCOLS, FAMILIES, kinds, place, end, wire, *ends)
