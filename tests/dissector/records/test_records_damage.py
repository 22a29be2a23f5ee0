"""Damage is a problem, and does not affect undamaged batches."""

from __future__ import annotations

import os
import struct
import tracemalloc
import zlib

import lz4.frame
import numpy as np
import pytest
import snappy
import xxhash
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.byteview import ContiguousBytes
from dissector.errors import DecodeError
from dissector.records.batch_reader import read_batches
from dissector.records.codecs import Limits, decompress
from dissector.records.decode import Batch, decode_records
from dissector.records.record_reader import read_records
from tests.dissector.records.records_writers import WRITERS, Entry, batch, message, record, written
from tests.kafka_bytes import varint

SOME = [
    Entry(1_000, None, b"value " * 4),
    Entry(1_001, b"key", None, (("a", b"1"), ("a", None), ("", b""))),
    Entry(1_100, b"", b"tail"),
]
CASES = [(magic, name, codec) for magic in (0, 1, 2) for name, codec in written(magic)]
NOT_COVERED = {0: range(8), 1: range(8), 2: [*range(8), *range(12, 16)]}
"""Bytes that no checksum covers: the offset; in a batch also the leader epoch."""


def one_message(magic: int, name: str, codec: int) -> bytes:
    """One batch, or one outermost message."""
    return WRITERS[name](magic, codec, SOME if codec or magic == 2 else SOME[:1])


def at(batches: list[Batch], *positions: int) -> list[Batch]:
    return [each for each in batches if each.position in positions]


@pytest.mark.parametrize(("magic", "name", "codec"), CASES)
def test_a_flipped_bit_damages_only_its_batch(magic: int, name: str, codec: int) -> None:
    good = one_message(magic, name, codec)
    (whole,) = decode_records(good)
    size = len(good)
    for position in range(size):
        for bit in range(8) if (codec, name) == (0, "kafka-python") else [position * 5 % 8]:
            bad = bytearray(good)
            bad[position] ^= 1 << bit
            batches = decode_records(good + bytes(bad) + good)
            others = at(batches, 0, 2 * size)
            assert [each.records for each in others] == [whole.records] * 2, (position, bit)
            assert all(each.crc_ok and each.problem is None for each in others)
            damaged = [each for each in batches if each.crc_ok is False or each.problem]
            assert damaged or position in NOT_COVERED[magic], (position, bit)


@pytest.mark.parametrize("bit", range(32))
def test_a_batch_of_which_only_the_length_is_wrong_is_read_all_the_same(bit: int) -> None:
    good = WRITERS["kafka-python"](2, 0, SOME)
    wrong = struct.pack(">I", struct.unpack(">I", good[8:12])[0] ^ 1 << bit)
    bad = good[:8] + wrong + good[12:]
    for data in (bad, bad + good, good + bad, good + bad + good):
        batches = decode_records(data)
        assert [each.records for each in batches] == [decode_records(good)[0].records] * len(
            batches
        )
        assert len(batches) == len(data) // len(good)
        assert sum(each.problem is not None for each in batches) == 1


@pytest.mark.parametrize(("magic", "name", "codec"), CASES)
def test_cut_at_every_byte(magic: int, name: str, codec: int) -> None:
    good = one_message(magic, name, codec)
    (whole,) = decode_records(good)
    for length in range(len(good)):
        batches = decode_records(good + good[:length])
        assert batches[0] == whole
        assert len(batches) == (2 if length else 1)
        for cut_batch in batches[1:]:
            assert (cut_batch.truncated, cut_batch.records, cut_batch.problem) == (True, (), None)
            assert cut_batch.magic == (magic if length >= 17 else -1)


@given(st.binary(max_size=300), st.integers(0, 200), st.sampled_from(CASES))
@settings(max_examples=80)
def test_garbage_between_batches_costs_no_batch(
    garbage: bytes, cut: int, case: tuple[int, str, int]
) -> None:
    good = one_message(*case)
    batches = decode_records(good + good[cut:] + garbage + good)
    assert at(batches, 0) == decode_records(good)
    last = [each for each in batches if each.records == batches[0].records][-1]
    assert last.position == 2 * len(good) + len(garbage) - min(cut, len(good))


def test_two_damaged_batches_among_good_ones() -> None:
    good = WRITERS["aiokafka"](2, 4, [Entry(1, b"k", b"v" * 100)] * 3)
    short, payload = bytearray(good), bytearray(good)
    short[11] = 60
    payload[-1] ^= 1
    batches = decode_records(bytes(good + short + good + payload + good + good[:40]))
    size = len(good)
    assert [each.position for each in batches if each.crc_ok] == [0, size, 2 * size, 4 * size]
    assert batches[-1].truncated


def test_a_batch_inside_a_value_is_not_a_batch() -> None:
    inner = batch(record(value=b"inside"), 1)
    outer = batch(record(value=inner) + record(1, value=b"more"), 2)
    bad = bytearray(outer)
    bad[-3] ^= 1
    for data in (outer + bytes(bad) + outer, outer + outer[:-3], outer + outer[:-9]):
        assert all(
            value.value != b"inside" for each in decode_records(data) for value in each.records
        )


@pytest.mark.parametrize("codec", [1, 2, 3])
@pytest.mark.parametrize("magic", [0, 1])
def test_stored_messages_inside_a_cut_message_are_not_batches(magic: int, codec: int) -> None:
    values = [os.urandom(600) for _ in range(3)]  # codecs store them as they are
    inner = [message(magic, value, offset=n) for n, value in enumerate(values)]
    outer = message(magic, compressed(codec, b"".join(inner)), attributes=codec, offset=2)
    before = message(magic, b"before")
    for length in range(30, len(outer), 7):
        batches = decode_records(before + outer[:length])
        assert [(each.position, each.truncated, each.problem) for each in batches] == [
            (0, False, None),
            (len(before), True, None),
        ]
    damaged = bytearray(outer)
    damaged[-700] ^= 1
    batches = decode_records(before + bytes(damaged) + message(magic, b"after", offset=3))
    ends = [0, len(before), len(before) + len(outer)]
    assert [each.position for each in batches] == ends


def test_bytes_between_batches_have_their_place() -> None:
    good = batch(record(), 1)
    unknown = good[:16] + b"\x03" + good[17:]
    first, middle, last = decode_records(good + unknown + good)
    assert (first.problem, last.problem) == (None, None)
    assert middle.problem == f"not a batch: magic 3, length {len(good) - 12}"
    assert (middle.position, middle.size, middle.magic) == (len(good), len(good), -1)
    (_, zeros) = decode_records(good + bytes(1000))
    assert (zeros.position, zeros.size) == (len(good), 1000)
    assert zeros.problem == "zeros at the expected start of a batch"


def test_damage_in_a_record_keeps_the_others() -> None:
    bad = record(1, value=b"x" * 10).replace(b"\x14xxx", b"\x18xxx")  # 12 bytes, where 10 are
    (decoded,) = decode_records(batch(record(0) + bad + record(2), 3))
    assert [each.offset for each in decoded.records] == [0, 2]
    assert "1 records have fields that do not match their length" in (decoded.problem or "")


def test_a_broken_chain_keeps_the_batches_before() -> None:
    for broken in (b"\x01" + bytes(20), b"\xff" * 12, varint(100) + bytes(30), bytes(9)):
        (decoded,) = decode_records(batch(record(0) + record(1) + broken, 3))
        assert [each.offset for each in decoded.records] == [0, 1]
        assert decoded.problem is not None


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_wrong_count_costs_no_record(count: int) -> None:
    (decoded,) = decode_records(batch(record(0) + record(1), count))
    assert [each.offset for each in decoded.records] == [0, 1]
    assert decoded.problem == f"batch at offset 0: 2 records, but the header announces {count}" or (
        f"2 records, but the header announces {count}" in (decoded.problem or "")
    )


def test_a_count_beyond_one_long_record_gives_it_once() -> None:
    (decoded,) = decode_records(batch(record(key=b"0123456789"), 4))
    assert [entry.key for entry in decoded.records] == [b"0123456789"]
    assert decoded.problem is not None


def test_a_length_near_the_largest_number_is_damage() -> None:
    """It exceeds the end by more than a position can hold."""
    payload = record(key=b"k") + varint(2**63 - 1) + bytes(20)
    (decoded,) = decode_records(batch(payload, 2))
    assert [entry.key for entry in decoded.records] == [b"k"]
    assert decoded.problem is not None


@pytest.mark.parametrize(
    "body",
    [
        varint(-2) + b"abc",  # a negative length that is not null
        varint(1 << 31),
        varint(1 << 62),
        varint(-1) + varint((1 << 63) - 1),
        varint(-1) + varint(-1) + varint(5),  # headers that are not there
        varint(-1) + varint(-1) + varint(-1),
        varint(-1) + varint(-1) + varint(1 << 40),
        varint(-1) + varint(-1) + varint(1) + varint(-1) + varint(0),  # a header without a key
        varint(-1) + varint(-1) + varint(1) + varint(1 << 62) + varint(0),
        b"\xff" * 30,
    ],
)
def test_impossible_fields(body: bytes) -> None:
    fields = b"\x00\x00\x00" + body
    bad = varint(len(fields)) + fields
    for before in (0, 1, 40):
        payload = b"".join(map(record, range(before))) + bad + record(before + 1)
        (decoded,) = decode_records(batch(payload, before + 2))
        wanted = [*range(before), before + 1]
        assert [each.offset for each in decoded.records] == wanted
        assert decoded.problem is not None


def compressed(codec: int, data: bytes) -> bytes:
    if codec == 1:
        packer = zlib.compressobj(9, wbits=31)
        return packer.compress(data) + packer.flush()
    if codec == 2:
        return snappy.compress(data)
    if codec == 3:
        return lz4.frame.compress(data)
    return zstandard.compress(data)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("magic", [1, 2])
def test_a_bomb_stops_at_the_limit(codec: int, magic: int) -> None:
    packed = compressed(codec, bytes(60 << 20))
    if magic == 2:
        bomb = batch(packed, 1, attributes=codec)
    else:
        bomb = message(1, packed, attributes=codec)
    good = batch(record(value=b"good"), 1)
    data = good + bomb + good
    space = ContiguousBytes.of(data)
    batches = read_batches(space, np.array([0]), np.array([len(data)]))
    tracemalloc.start()
    pieces = list(read_records(space, batches, limits=Limits(batch_bytes=1 << 20)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20  # the row that batches are decompressed into, and little else
    assert sum(map(len, pieces)) == 2
    ((index, problem),) = [pair for piece in pieces for pair in piece.problems]
    assert (index, problem.kind) == (1, "decompression")
    assert "more than the limit of 1,048,576 bytes" in problem.detail


def test_a_ratio_is_a_limit_too() -> None:
    limits = Limits(batch_bytes=1 << 40, ratio=10, free_bytes=100)
    assert [limits.of(size) for size in (1, 10, 1000)] == [100, 100, 10_000]
    assert Limits().of(1) == 16 << 20
    assert Limits().of(1 << 30) == 128 << 20


@pytest.mark.parametrize("codec", range(1, 8))
def test_damaged_data_of_each_codec(codec: int) -> None:
    good = batch(record(value=b"good"), 1)
    packed = compressed(codec, record(value=b"v" * 1000)) if codec < 5 else b""
    cases = [b"", b"x", os.urandom(200), packed[:-1], packed[:10]]
    if codec not in (1, 3):  # bytes after gzip and lz4 are ignored
        cases.append(packed + b"\x00more")
    for damaged in cases:
        batches = decode_records(good + batch(damaged, 1, attributes=codec) + good)
        assert [each.records for each in batches[::2]] == [decode_records(good)[0].records] * 2
        assert batches[1].problem is not None, damaged


def test_a_snappy_block_that_lies_about_its_size_allocates_nothing() -> None:
    lies = b"\xff\xff\xff\xff\x0f" + b"x" * 20
    tracemalloc.start()
    (decoded,) = decode_records(batch(lies, 1, attributes=2))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert decoded.problem is not None
    assert peak < 1 << 20


def test_an_lz4_frame_that_lies_about_its_size_allocates_nothing() -> None:
    frame = bytearray(lz4.frame.compress(b"small", store_size=True))
    frame[6:14] = (1 << 62).to_bytes(8, "little")
    frame[14] = xxhash.xxh32(bytes(frame[4:14])).intdigest() >> 8 & 0xFF
    tracemalloc.start()
    with pytest.raises(DecodeError, match="ERROR_frameSize_wrong"):
        decompress(3, memoryview(frame), Limits())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_compressed_inside_compressed() -> None:
    inner = message(1, compressed(1, message(1, b"x")), attributes=1)
    (decoded,) = decode_records(message(1, compressed(1, inner + message(1, b"y")), attributes=1))
    assert [each.value for each in decoded.records] == [b"y"]
    assert "a compressed message inside a compressed message" in (decoded.problem or "")


@given(st.binary(max_size=400))
@settings(max_examples=120)
def test_any_bytes(data: bytes) -> None:
    batches = decode_records(data)
    assert sum(each.size for each in batches) >= len(data)


@given(st.binary(min_size=1, max_size=200), st.sampled_from(range(6)), st.integers(-1, 20))
@settings(max_examples=120)
def test_any_bytes_in_a_batch_whose_checksum_holds(data: bytes, codec: int, count: int) -> None:
    good = batch(record(), 1)
    batches = decode_records(good + batch(data, count, attributes=codec) + good)
    assert len(batches) == 3
    assert batches[0].records == batches[2].records == decode_records(good)[0].records
