"""Columns as text represent all values."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.export.text import (
    base64_text,
    json_lines,
    json_text,
    plain_text,
    text_bytes,
    without_controls,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
HOSTILE = st.text('a"\\\x00\x07\b\t\n\f\r\x1b\x7f\x85\x9b\u2028\u2029é€😀', max_size=8)


def lines(batch: pa.RecordBatch) -> list[str]:
    return text_bytes(json_lines(batch)).tobytes().decode().splitlines()


def nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values, max_size=12)


def array(values: list[Any], type: pa.DataType, start: int) -> pa.Array:
    """With `start` values before it in its buffers, as a slice has."""
    return pa.array([*values[:start], *values], type)[start:] if values else pa.array([], type)


@given(nullable(HOSTILE | TEXT), st.integers(0, 3))
def test_strings_are_json(values: list[str | None], start: int) -> None:
    column = array(values, pa.string(), min(start, len(values)))
    assert [json.loads(each.as_py()) for each in json_text(column)] == values


@given(st.lists(HOSTILE, min_size=1))
def test_a_row_is_one_line_and_moves_no_cursor(values: list[str]) -> None:
    batch = pa.record_batch({"name": pa.array(values)})
    text = text_bytes(json_lines(batch)).tobytes().decode()
    assert text.count("\n") == len(values) == len(text.splitlines())
    assert all(line.isprintable() for line in text.split("\n"))


@given(nullable(st.binary(max_size=9)), st.integers(0, 3))
def test_bytes_are_base64(values: list[bytes | None], start: int) -> None:
    column = array(values, pa.binary(), min(start, len(values)))
    expected = [None if each is None else base64.b64encode(each).decode() for each in values]
    assert base64_text(column).to_pylist() == expected


@given(nullable(st.floats()))
def test_floats_are_json_to_the_last_bit_but_for_those_that_json_lacks(
    values: list[float | None],
) -> None:
    column = pa.array(values, pa.float64(), from_pandas=False)
    expected = [each if each is not None and math.isfinite(each) else None for each in values]
    assert [json.loads(each.as_py()) for each in json_text(column)] == expected


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_times_have_nanoseconds_and_utc(ns: int) -> None:
    (text,) = plain_text(pa.array([ns], pa.timestamp("ns", "UTC"))).to_pylist()
    whole, _, fraction = text.removesuffix("Z").partition(".")
    second, nanoseconds = divmod(ns, 10**9)
    assert text.endswith("Z")
    assert datetime.fromisoformat(f"{whole}+00:00") == datetime.fromtimestamp(second, UTC)
    assert fraction == f"{nanoseconds:09d}"


def test_a_time_is_written_as_iso_8601() -> None:
    column = pa.array([0, None, 1], pa.timestamp("ns", "UTC"))
    assert json_text(column).to_pylist() == [
        '"1970-01-01T00:00:00.000000000Z"',
        "null",
        '"1970-01-01T00:00:00.000000001Z"',
    ]


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@settings(max_examples=50)
@given(
    nullable(nullable(TEXT)),
    nullable(st.lists(st.none() | st.tuples(st.none() | HOSTILE, st.none() | st.binary()))),
    st.integers(0, 2),
)
def test_lists_are_json_arrays(
    names: list[list[str | None] | None], pairs: list[list[Any] | None], start: int
) -> None:
    column = array(names, pa.list_(pa.string()), min(start, len(names)))
    assert [json.loads(each.as_py()) for each in json_text(column)] == names
    made = [each and [p and {"key": p[0], "value": p[1]} for p in each] for each in pairs]
    column = array(made, HEADERS, min(start, len(made)))
    assert [json.loads(each.as_py(), object_hook=unpacked) for each in json_text(column)] == made


def unpacked(header: dict[str, str | None]) -> dict[str, Any]:
    value = header["value"]
    return header | {"value": None if value is None else base64.b64decode(value)}


def test_a_row_has_every_column_by_name() -> None:
    batch = pa.record_batch(
        {
            'odd "name"': pa.array([1, None], pa.int16()),
            "flag": pa.array([True, None]),
            "nothing": pa.nulls(2, pa.string()),
            "topics": pa.array([[], None], pa.list_(pa.string())),
        }
    )
    assert lines(batch) == [
        '{"odd \\"name\\"":1,"flag":true,"nothing":null,"topics":[]}',
        '{"odd \\"name\\"":null,"flag":null,"nothing":null,"topics":null}',
    ]
    assert lines(batch.slice(1)) == lines(batch)[1:]
    assert lines(batch.slice(2)) == []


@pytest.mark.parametrize("value", ["plain", 'a "quoted" \\ word', "é€😀"])
def test_printable_characters_are_not_escaped(value: str) -> None:
    batch = pa.record_batch({"name": pa.array([value, None]), "number": pa.array([1, 2])})
    assert without_controls(batch).equals(batch)


def test_control_characters_are_escaped() -> None:
    batch = pa.record_batch({"name": pa.array(["\x1b[2J", "\x9b2J", "a\nb"])})
    assert without_controls(batch)["name"].to_pylist() == ["\\u001b[2J", "\\u009b2J", "a\\nb"]
