"""The columns do not depend on the buffer, or on the batches that are read together."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector import _native
from dissector.byteview import ByteView, ContiguousBytes
from dissector.packets.block import PAD
from dissector.records import record_reader as records_module
from dissector.records.arrow import SCHEMA, records_table
from dissector.records.batch_headers import Batches
from dissector.records.batch_reader import read_batches
from dissector.records.decode import decode_records
from dissector.records.record_reader import read_records
from dissector.records.recovery import check_crc
from tests.dissector.records.records_writers import (
    WRITERS,
    Entry,
    batch,
    entries,
    message,
    record,
    wrapped,
    written,
)
from tests.kafka_bytes import varint

CASES = [(magic, name, codec) for magic in (0, 1, 2) for name, codec in written(magic)]
COLUMNS = [
    "field", "address", "size", "readable", "magic", "base_offset", "last_offset", "record_count",
    "codec", "timestamp_type", "base_timestamp", "max_timestamp", "leader_epoch", "producer_id",
    "producer_epoch", "base_sequence", "is_transactional", "is_control", "has_delete_horizon",
    "crc", "crc_ok", "truncated",
]  # fmt: skip


def rows(space: ByteView, batches: Batches) -> Iterator[dict[str, object]]:
    """All records, from Arrow."""
    for piece in read_records(space, batches):
        assert not piece.problems
        table = records_table(piece, batches)
        table.validate(full=True)
        assert table.schema == SCHEMA
        yield from table.to_pylist()


def in_pieces(data: bytes, borders: list[int], seed: int) -> ByteView:
    """The same bytes, scattered."""
    cuts = sorted({0, len(data), *(border % (len(data) + 1) for border in borders)})
    pieces = list(pairwise(cuts))
    places = list(range(len(pieces)))
    random.Random(seed).shuffle(places)
    scattered = bytearray(b"\xaa" * 3)
    position = [0] * len(pieces)
    for place in places:
        position[place] = len(scattered)
        scattered += data[slice(*pieces[place])] + b"\xaa" * (place % 3)
    array = np.frombuffer(bytes(scattered + bytes(PAD)), np.uint8)
    ints = [np.array(column, np.int64) for column in zip(*pieces, strict=True)]
    return ByteView(array, ints[0], np.array(position, np.int64), ints[1] - ints[0])


def whole(space: ByteView, *lengths: int) -> Batches:
    """The batches of fields that follow upon each other."""
    length = np.array(lengths, np.int64)
    return read_batches(space, np.cumsum(length) - length, length)


fields = st.lists(
    st.lists(st.tuples(st.sampled_from(CASES), entries(most=3)), max_size=3), min_size=1, max_size=3
)


def joined(parts: list[tuple[tuple[int, str, int], list[Entry]]]) -> bytes:
    return b"".join(WRITERS[name](magic, codec, written) for (magic, name, codec), written in parts)


@given(fields, st.lists(st.integers(0, 1 << 16), max_size=12), st.integers(0, 1 << 16))
@settings(max_examples=30)
def test_pieces_are_read_as_one_row(
    parts: list[list[tuple[tuple[int, str, int], list[Entry]]]], borders: list[int], seed: int
) -> None:
    written = [joined(part) for part in parts]
    lengths, data = list(map(len, written)), b"".join(written)
    flat = ContiguousBytes.of(data)
    wanted = whole(flat, *lengths)
    pieced = in_pieces(data, borders, seed) if data else flat
    batches = whole(pieced, *lengths)
    for column in COLUMNS:
        assert getattr(batches, column).tolist() == getattr(wanted, column).tolist(), column
    assert check_crc(pieced, batches).tolist() == [1] * len(batches)
    assert list(rows(pieced, batches)) == list(rows(flat, wanted))


@given(fields)
@settings(max_examples=15)
def test_fields_read_together_and_one_by_one(
    parts: list[list[tuple[tuple[int, str, int], list[Entry]]]],
) -> None:
    data = [joined(part) for part in parts] * 7  # so that some are read together, and some alone
    space = ContiguousBytes.of(b"".join(data))
    together = whole(space, *map(len, data))
    wanted = [
        (index, each.base_offset, each.size, each.crc, each.codec)
        for index, part in enumerate(data)
        for each in decode_records(part)
    ]
    names = ("none", "gzip", "snappy", "lz4", "zstd")
    actual = zip(
        together.field.tolist(), together.base_offset.tolist(), together.size.tolist(),
        together.crc.tolist(), [names[codec] for codec in together.codec], strict=True,
    )  # fmt: skip
    assert list(actual) == wanted
    expected = [
        (each.offset, each.timestamp, each.key, each.value)
        for part in data
        for part_batch in decode_records(part)
        for each in part_batch.records
    ]
    assert [
        (row["offset"], row["timestamp"], row["key"], row["value"]) for row in rows(space, together)
    ] == expected


def test_a_table_of_everything() -> None:
    headers = ((b"a", b"1"), (b"\xff", None), (b"b", b"x" * 40))
    marker = batch(record(key=b"\0\0\0\1", value=b"\0" * 6), 1, base_offset=2, attributes=0x30)
    data = (
        batch(record(0, 1, None, b"v" * 13, headers) + record(1, 2, b"k" * 12), 2)
        + marker
        + message(1, b"old", b"", offset=9, timestamp=5)
    )
    space = ContiguousBytes.of(data)
    assert list(rows(space, whole(space, len(data)))) == [
        {
            "batch": 0, "offset": 0, "timestamp": 1, "key": None, "value": b"v" * 13,
            "headers": [
                {"key": "a", "value": b"1"},
                {"key": "\\xff", "value": None},
                {"key": "b", "value": b"x" * 40},
            ],
            "record_kind": None,
        },
        {
            "batch": 0, "offset": 1, "timestamp": 2, "key": b"k" * 12, "value": b"",
            "headers": [], "record_kind": None,
        },
        {
            "batch": 1, "offset": 2, "timestamp": 0, "key": b"\0\0\0\1", "value": b"\0" * 6,
            "headers": [], "record_kind": "commit",
        },
        {
            "batch": 2, "offset": 9, "timestamp": 5, "key": b"", "value": b"old",
            "headers": [], "record_kind": None,
        },
    ]  # fmt: skip


def test_keys_and_values_are_views_of_the_block() -> None:
    data = batch(b"".join(record(number, value=bytes([number]) * 50) for number in range(9)), 9)
    space = ContiguousBytes.of(data)
    batches = whole(space, len(data))
    (piece,) = read_records(space, batches)
    value = records_table(piece, batches).column("value")
    assert value.type == pa.binary_view()
    block = value.buffers()[2]
    assert block.address == space.data.ctypes.data
    assert value.to_pylist() == [bytes([number]) * 50 for number in range(9)]


@pytest.mark.parametrize("readable", [0, 5, 17, 40, 61, 70, 150])
def test_a_field_of_which_the_end_is_not_there(readable: int) -> None:
    data = batch(record(), 1)
    space = ContiguousBytes.of(data * 3)
    batches = read_batches(space, np.array([0]), np.array([readable]))
    count = readable // len(data)
    assert batches.crc_ok.tolist()[:count] == [1] * count
    assert batches.truncated.tolist()[:count] == [False] * count
    cut_size = readable % len(data)
    assert batches.truncated.tolist()[count:] == ([True] if cut_size >= 17 else [])
    assert batches.readable.tolist()[count:] == ([cut_size] if cut_size >= 17 else [])
    assert not batches.problems


def test_null_and_empty_fields() -> None:
    space = ContiguousBytes.of(batch(record(), 1))
    start, length = np.array([0, 0, 0], np.int64), np.array([-1, 0, 68], np.int64)
    batches = read_batches(space, start, length)
    assert batches.field.tolist() == [2]
    nothing = read_batches(space, start[:0], length[:0])
    assert len(nothing) == 0
    assert list(read_records(space, nothing)) == []


def test_without_verifying_no_checksum_is_looked_at() -> None:
    good = batch(record(), 1)
    bad = bytearray(good)
    bad[-1] ^= 1
    space = ContiguousBytes.of(good + bytes(bad) + b"\x00" * 16 + b"\x09" * 20)
    batches = read_batches(space, np.array([0]), np.array([space.size]), verify=False)
    assert batches.crc_ok.tolist() == [-1, -1]
    assert [problem.kind for _, problem in batches.problems] == ["no_batch"]


@pytest.mark.parametrize("group", [1, 3, 1 << 18])
@pytest.mark.parametrize("inflated", [1, 1 << 12, 1 << 22])
def test_groups_do_not_show(group: int, inflated: int, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [
        (
            (magic, name, codec),
            [Entry(number, b"%d" % number, b"v" * number) for number in range(9)],
        )
        for magic, name, codec in CASES
    ]
    data = joined(parts)
    space = ContiguousBytes.of(data)
    wanted = list(rows(space, whole(space, len(data))))
    monkeypatch.setattr(records_module, "GROUP_RECORDS", group)
    monkeypatch.setattr(records_module, "GROUP_BYTES", inflated)
    assert list(rows(space, whole(space, len(data)))) == wanted
    assert len(wanted) == 9 * len(CASES)


def test_one_batch_of_very_many_records() -> None:
    count = 100_000
    payload = b"".join(record(number, value=b"%d" % number) for number in range(count))
    data = batch(payload, count)
    space = ContiguousBytes.of(data)
    batches = whole(space, len(data))
    offsets = [piece.columns.offset for piece in read_records(space, batches)]
    assert np.array_equal(np.concatenate(offsets), np.arange(count))
    assert max(map(len, offsets)) < 20_000


def test_headers_with_far_too_small_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "MANY_RECORDS", 20)
    lie = batch(b"".join(record(number) for number in range(40_000)), 1)
    data = lie + WRITERS["aiokafka"](2, 4, [Entry(1, None, b"v" * 50)]) + lie
    space = ContiguousBytes.of(data)
    batches = whole(space, len(data))
    pieces = list(read_records(space, batches))
    assert sum(map(len, pieces)) == 80_001
    assert max(map(len, pieces)) <= 20_000
    indexes = [index for piece in pieces for index, _ in piece.problems]
    assert sorted(indexes) == [0, 2]


sizes = st.sampled_from([0, 1, 50, 56, 57, 58, 200, 8_180, 8_190, 9_000])
runs = st.lists(st.tuples(sizes, st.sampled_from([1, 1, 2, 5, 40])), max_size=4)


@given(st.lists(runs, max_size=4), st.integers(0, 60))
@settings(max_examples=60)
def test_chains_of_different_lengths(
    size_runs: list[list[tuple[int, int]]], short_chains: int
) -> None:
    chains = [[size for size, times in each for _ in range(times)] for each in size_runs]
    chains += [
        [number % 7] * (number % 5 * 9) + [3] * (number % 3) for number in range(short_chains)
    ]
    payloads = [[record(value=b"v" * size) for size in chain] for chain in chains]
    data = np.frombuffer(b"".join(map(b"".join, payloads)) + bytes(PAD), np.uint8)
    size = np.array([sum(map(len, payload)) for payload in payloads], np.int64)
    end = np.cumsum(size)
    count, reached = np.empty((2, len(end)), np.int64)
    _native.walk_records(data, end - size, end, count, reached)
    assert count.tolist() == [len(chain) for chain in chains]
    assert reached.tolist() == end.tolist()


NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-9_000, 9_000)


def bare_record(timestamp_delta: bytes, offset_delta: bytes) -> bytes:
    """A record without key, value and headers."""
    body = b"\0" + timestamp_delta + offset_delta + varint(-1) + varint(-1) + varint(0)
    return varint(len(body)) + body


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1))
def test_varints(values: list[tuple[int, int]]) -> None:
    payload = b"".join(bare_record(*map(varint, pair)) for pair in values)
    (read,) = decode_records(batch(payload, len(values), base_offset=0))
    assert read.problem is None
    base = read.base_timestamp
    assert [(each.timestamp, each.offset) for each in read.records] == [
        (wrapped(base + timestamp), wrapped(offset)) for timestamp, offset in values
    ]


@pytest.mark.parametrize("width", [10, 11, 30])
def test_a_varint_has_at_most_ten_bytes(width: int) -> None:
    (read,) = decode_records(batch(bare_record(b"\x80" * (width - 1) + b"\0", b"\0"), 1))
    assert len(read.records) == (1 if width == 10 else 0)
