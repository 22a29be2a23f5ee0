"""Loops of records: what a plain reader finds, and no byte outside of the data."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dissector import _native
from dissector.packets.block import PAD
from dissector.records.record_columns import make_views, read_views
from tests.dissector.records.records_writers import wrapped
from tests.kafka_bytes import varint

Int64 = NDArray[np.int64]


numbers = st.one_of(
    st.integers(-2, 3), st.integers(-(2**31), 2**31), st.sampled_from([-(2**63), 2**63 - 1])
)
texts = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=60, max_size=300))


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """A record with its length; often with numbers in it that are wrong."""

    def span(null: bool = True) -> bytes:
        text = draw(texts if null else st.binary(max_size=9))
        if text is None:
            return varint(-1)
        length = len(text) if draw(st.integers(0, 30)) else draw(numbers)
        return varint(length) + text

    body = b"\0" + varint(draw(numbers)) + varint(draw(numbers)) + span() + span()
    headers = draw(st.integers(0, 3))
    body += varint(headers if draw(st.integers(0, 30)) else draw(numbers))
    body += b"".join(span(null=False) + span() for _ in range(headers))
    length = len(body) if draw(st.integers(0, 30)) else draw(numbers)
    return varint(length) + body


@st.composite
def rows(draw: st.DrawFn) -> tuple[NDArray[np.uint8], Int64, Int64, Int64]:
    """Batches in a row of bytes: begin and end of their records, and the counts in headers."""
    batches = draw(st.lists(st.lists(records(), max_size=6), min_size=1, max_size=12))
    flat = [b"".join(batch) for batch in batches]
    data = np.frombuffer(b"".join(flat) + bytes(PAD), np.uint8)
    size = np.array([len(each) for each in flat], np.int64)
    count = np.array([len(batch) for batch in batches], np.int64)
    if not draw(st.integers(0, 5)):
        count += np.array(draw(st.lists(numbers, min_size=len(count), max_size=len(count)))) % 9 - 4
    end = np.cumsum(size)
    return data, end - size, end, count


class Reader:
    """Reads the fields of one record, by its definition."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def varint(self) -> int:
        raw = 0
        for index, byte in enumerate(self.data[self.at : self.at + 10]):
            raw |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                self.at += index + 1
                raw &= (1 << 64) - 1
                return raw >> 1 ^ -(raw & 1)
        raise ValueError

    def text(self, least: int = -1) -> bytes | None:
        size = self.varint()
        if not least <= size <= len(self.data) - self.at:
            raise ValueError
        self.at += max(size, 0)
        return None if size < 0 else self.data[self.at - size : self.at]

    def fields(self) -> list[Any]:
        """Both deltas, key, value and headers. ValueError for a damaged record."""
        size = self.varint()
        if not 0 < size <= len(self.data) - self.at:
            raise ValueError
        self.data = self.data[: self.at + size]
        self.at += 1
        fields = [self.varint(), self.varint(), self.text(), self.text()]
        count = self.varint()
        if not 0 <= count <= len(self.data):
            raise ValueError
        headers = [(self.text(0), self.text()) for _ in range(count)]
        if self.at != len(self.data):
            raise ValueError
        return [*fields, headers]


def walk(data: bytes) -> tuple[list[int], int]:
    """Positions of records, by their lengths, and where the walk ended."""
    at, starts = 0, []
    while at < len(data):
        reader = Reader(data[at:])
        try:
            size = reader.varint()
        except ValueError:
            break
        if size < 6:  # attributes, two deltas, two lengths, a count
            break
        starts.append(at)
        at = min(at + reader.at + size, len(data) + 1)
    return starts, at


class Columns:
    """What `read_records` writes for the first records of each batch."""

    def __init__(
        self, data: NDArray[np.uint8], at: Int64, take: Int64, mask: int = -1,
        end: Int64 | None = None,
    ) -> None:  # fmt: skip
        n = int(take.sum())
        number = np.arange(len(at))
        end = np.full_like(at, len(data)) if end is None else end
        self.at = at.copy()
        self.batch, self.offset, self.timestamp, self.header_at, self.header_count = (
            np.zeros(n, np.int64) for _ in range(5)
        )
        self.key, self.value = np.zeros(2 * n, np.uint64), np.zeros(2 * n, np.uint64)
        self.good = np.zeros(n, np.bool_)
        self.headers = _native.read_records(
            data, 0, self.at, end, take, number, 100 * number, 200 * number, np.full(len(at), mask),
            self.batch, self.offset, self.timestamp, self.key, self.value, self.header_at,
            self.header_count, self.good,
        )  # fmt: skip


@given(rows())
def test_chain_and_fields(row: tuple[NDArray[np.uint8], Int64, Int64, Int64]) -> None:
    data, begin, end, _ = row
    count, reached = np.empty((2, len(begin)), np.int64)
    _native.walk_records(data, begin, end, count, reached)
    ranges = [*zip(begin.tolist(), end.tolist(), strict=True)]
    expected = [walk(bytes(data[low:high])) for low, high in ranges]
    pairs = [*zip(begin.tolist(), expected, strict=True)]
    assert count.tolist() == [len(starts) for starts, _ in expected]
    assert reached.tolist() == [low + at for low, (_, at) in pairs]

    count -= reached > end  # the last record of these is not complete
    columns = Columns(data, begin, count, end=end)
    assert columns.at.tolist() == np.where(reached > end, columns.at, reached).tolist()
    good: list[bool] = []
    contents = []
    for number, (low, (starts, _)) in enumerate(pairs):
        for at in starts[: int(count[number])]:
            try:
                fields = Reader(bytes(data[low + at :])).fields()
            except ValueError:
                good.append(False)
                continue
            good.append(True)
            sums = [wrapped(200 * number + fields[0]), wrapped(100 * number + fields[1])]
            contents.append([number, *sums, *fields[2:]])
    assert columns.good.tolist() == good
    assert _contents(columns, data) == contents


def _contents(columns: Columns, data: NDArray[np.uint8]) -> list[list[object]]:
    """The fields of good records."""
    key, value = np.zeros((2, 2 * columns.headers), np.uint64)
    _native.read_record_headers(data, 0, columns.header_at, columns.header_count, key, value)

    def texts(views: NDArray[np.uint64]) -> list[bytes | None]:
        return [*read_views([data], views.reshape(-1, 2))]

    pairs = iter([*zip(texts(key), texts(value), strict=True)])
    headers = [[*islice(pairs, size)] for size in columns.header_count.tolist()]
    rows = zip(
        columns.batch.tolist(), columns.timestamp.tolist(), columns.offset.tolist(),
        texts(columns.key), texts(columns.value), headers, strict=True,
    )  # fmt: skip
    return [[*row] for row, is_good in zip(rows, columns.good, strict=True) if is_good]


def test_timestamps_without_their_deltas() -> None:
    body = b"\0" + varint(7) + varint(3) + varint(-1) + varint(-1) + varint(0)
    data = np.frombuffer(varint(len(body)) + body, np.uint8)
    at, take = np.zeros(1, np.int64), np.ones(1, np.int64)
    assert Columns(data, at, take).timestamp.tolist() == [7]
    assert Columns(data, at, take, mask=0).timestamp.tolist() == [0]


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_views_are_those_of_arrow(strings: list[bytes]) -> None:
    length = np.array([len(each) for each in strings], np.int64)
    at = 4 + np.cumsum(length) - length
    row = np.frombuffer(b"1234" + b"".join(strings) + bytes(PAD), np.uint8)
    views = make_views(row, 0, (at, length))
    buffers = [None, pa.py_buffer(views), pa.py_buffer(row)]
    array = pa.Array.from_buffers(pa.binary_view(), len(strings), buffers)
    array.validate(full=True)
    assert array.to_pylist() == strings
    assert [*read_views([row], views)] == strings


def test_arrays_that_do_not_fit_are_refused() -> None:
    """No call reads or writes outside of the arrays."""
    data, zero = np.zeros(4, np.uint8), np.zeros(1, np.int64)
    views = np.zeros(2, np.uint64)
    with pytest.raises(ValueError, match="outside"):
        Columns(data, zero, zero + 1, end=zero + 5)
    with pytest.raises(ValueError, match="outside"):
        Columns(data, zero - 1, zero + 1)
    with pytest.raises(ValueError, match="outside"):
        _native.make_views(data, 0, zero, zero + 5, views)
    with pytest.raises(ValueError, match="header"):
        _native.read_record_headers(data, 0, zero + 9, zero + 1, views, views.copy())
    with pytest.raises(IndexError):
        _native.make_views(data, 0, zero, zero, views[:1])
    with pytest.raises((BufferError, TypeError, ValueError), match="read-only"):
        _native.make_views(data, 0, zero, zero, np.frombuffer(bytes(16), np.uint64))


places = st.integers(-9, 100)


@given(st.binary(max_size=80), st.lists(st.tuples(places, places), min_size=1, max_size=8))
def test_any_positions_at_all(data: bytes, pairs: list[tuple[int, int]]) -> None:
    """A range outside of the data is refused; else the reader stays inside of the range."""
    row = np.frombuffer(data, np.uint8)
    at, end = np.array(pairs, np.int64).T.copy()
    is_inside = ((at >= 0) & (end <= len(row))).all()
    try:
        columns = Columns(row, at, np.ones_like(at), end=end)
    except ValueError:
        assert not is_inside
    else:
        assert is_inside
        assert ((columns.at == at) | (columns.at <= end)).all()
