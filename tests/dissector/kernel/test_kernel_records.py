"""The compiled loops of records: the arrays that NumPy gives, and no byte outside of the data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dissector import kernel
from dissector.packets.block import PAD
from dissector.records.arrow import _view
from dissector.records.record_fields import RecordFields, read_fields
from dissector.records.record_offsets import walk_records

pytestmark = pytest.mark.skipif(not kernel.COMPILED, reason="no compiled loops")

Int64 = NDArray[np.int64]


def varint(value: int) -> bytes:
    """In zigzag form."""
    raw = (value << 1) ^ (value >> 63)
    groups = bytearray()
    while raw > 0x7F:
        groups.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*groups, raw])


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


@settings(deadline=None)
@given(rows())
def test_chain_and_fields_are_those_of_numpy(
    row: tuple[NDArray[np.uint8], Int64, Int64, Int64],
) -> None:
    data, begin, end, count = row
    compiled = walk_records(data, begin, end, count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "COMPILED", False)
        pure = walk_records(data, begin, end, count)
    assert compiled.start.tolist() == pure.start.tolist()
    assert compiled.count.tolist() == pure.count.tolist()
    assert compiled.reached.tolist() == pure.reached.tolist()

    whole = np.repeat(pure.reached <= end, pure.count)
    whole[np.cumsum(pure.count)[pure.reached > end] - 1] = False
    start = pure.start[whole]
    ours = read_fields(data, start)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "COMPILED", False)
        theirs = read_fields(data, start)
    assert ours.good.tolist() == theirs.good.tolist()
    assert _contents(ours, data) == _contents(theirs, data)


def _contents(fields: RecordFields, data: NDArray[np.uint8]) -> list[object]:
    """The fields of good records."""

    def texts(at: Int64, length: Int64) -> list[bytes | None]:
        return [
            None if size < 0 else bytes(data[place : place + size])
            for place, size in zip(at.tolist(), length.tolist(), strict=True)
        ]

    good = fields.good
    headers = fields.headers
    theirs = np.repeat(good, headers.count)
    return [
        fields.timestamp_delta[good].tolist(),
        fields.offset_delta[good].tolist(),
        texts(*(column[good] for column in fields.key)),
        texts(*(column[good] for column in fields.value)),
        headers.count[good].tolist(),
        texts(*(column[theirs] for column in headers.key)),
        texts(*(column[theirs] for column in headers.value)),
    ]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=20))
def test_views_are_those_of_numpy(strings: list[bytes]) -> None:
    """Arrow's rules are tested in test_records_columns; here that both write the same bytes."""
    length = np.array([len(each) for each in strings], np.int64)
    at = 4 + np.cumsum(length) - length
    row = np.frombuffer(b"1234" + b"".join(strings) + bytes(PAD), np.uint8)
    compiled = _view(row, 3, at, length)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "COMPILED", False)
        assert compiled.tobytes() == _view(row, 3, at, length).tobytes()


def test_arrays_that_do_not_fit_are_refused() -> None:
    """Whatever calls them: nothing is read or written outside of the arrays."""
    data, zero = np.zeros(4, np.uint8), np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="shorter"):
        kernel.loops.read_fields(data, zero, np.zeros(0, np.bool_), *[zero.copy()] * 7)
    with pytest.raises(ValueError, match="outside"):
        kernel.loops.make_views(data, 0, zero, zero + 5, np.zeros((1, 2), np.uint64))
    with pytest.raises(ValueError, match="no such headers"):
        kernel.loops.read_headers(data, zero + 9, zero + 1, *(zero.copy() for _ in range(4)))
    frozen = np.frombuffer(bytes(16), np.uint64)
    with pytest.raises((BufferError, ValueError), match="read-only"):
        kernel.loops.make_views(data, 0, zero, zero, frozen)


@settings(deadline=None)
@given(st.binary(max_size=80), st.lists(st.integers(-5, 100), min_size=1, max_size=8))
def test_any_positions_at_all(data: bytes, places: list[int]) -> None:
    row = np.frombuffer(data, np.uint8)
    at = np.array(places, np.int64)
    good = np.empty(len(at), np.bool_)
    kernel.loops.read_fields(row, at, good, *(np.empty_like(at) for _ in range(7)))
    start, right = np.zeros(3 * len(at), np.int64), np.empty(len(at), np.bool_)
    kernel.loops.walk_records(row, at, at + 40, np.full_like(at, 3), start, right)
    assert not good[(at < 0) | (at >= len(row))].any()
