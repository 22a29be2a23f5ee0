"""Each format contains the exported rows."""

from __future__ import annotations

import base64
import io
import json
import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import startup
from analysis.export.files import output_file, partial
from analysis.export.formats import FORMATS
from dissector.tables import TABLES

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
NULL = st.none()
TIME = pa.timestamp("ns", "UTC")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): NULL | TEXT,
    pa.bool_(): NULL | st.booleans(),
    pa.int8(): NULL | st.integers(-(2**7), 2**7 - 1),
    pa.int16(): NULL | st.integers(-(2**15), 2**15 - 1),
    pa.int32(): NULL | st.integers(-(2**31), 2**31 - 1),
    pa.int64(): NULL | st.integers(-(2**63), 2**63 - 1),
    pa.float64(): NULL | st.floats(allow_nan=False, allow_infinity=False),
    TIME: NULL | st.integers(-(2**63) + 1, 2**63 - 1),
    pa.large_binary(): NULL | st.binary(max_size=4),
    pa.list_(pa.string()): NULL | st.lists(NULL | TEXT, max_size=2),
    pa.list_(pa.int32()): NULL | st.lists(NULL | st.integers(0, 9), max_size=2),
    HEADERS: NULL
    | st.lists(
        st.fixed_dictionaries({"key": NULL | TEXT, "value": NULL | st.binary(max_size=4)}),
        max_size=2,
    ),
}
"""Any value of each type that a table has."""
SCHEMA = pa.schema([(str(type), type) for type in VALUES])
ROWS = st.lists(st.lists(st.tuples(*VALUES.values()), max_size=3), max_size=3)
"""Batches of rows."""


def test_every_type_of_the_tables_is_among_these() -> None:
    assert {column.type for table in TABLES.values() for column in table.columns} <= VALUES.keys()


def batches(rows: list[list[tuple[Any, ...]]]) -> list[pa.RecordBatch]:
    return [
        pa.RecordBatch.from_arrays(
            [pa.array([row[i] for row in batch], f.type) for i, f in enumerate(SCHEMA)],
            schema=SCHEMA,
        )
        for batch in rows
    ]


def written(form: str, rows: list[list[tuple[Any, ...]]]) -> bytes:
    sink = io.BytesIO()
    FORMATS[form](batches(rows), SCHEMA, sink)
    return sink.getvalue()


@settings(max_examples=50)
@given(ROWS)
def test_parquet_is_exact(rows: list[list[tuple[Any, ...]]]) -> None:
    table = pq.read_table(io.BytesIO(written("parquet", rows)))
    assert table.equals(pa.Table.from_batches(batches(rows), SCHEMA))


@settings(max_examples=50)
@given(ROWS)
def test_texts_of_parquet_may_be_dictionaries(rows: list[list[tuple[Any, ...]]]) -> None:
    plain, text = batches(rows), SCHEMA.get_field_index("string")
    coded_type = pa.dictionary(pa.int32(), pa.string())
    coded = [batch.set_column(text, "string", batch[text].dictionary_encode()) for batch in plain]
    sink, schema = io.BytesIO(), SCHEMA.set(text, pa.field("string", coded_type))
    FORMATS["parquet"](coded, schema, sink)
    assert pq.read_table(sink).equals(pa.Table.from_batches(plain, SCHEMA))


@settings(max_examples=50)
@given(ROWS)
def test_arrow_is_exact(rows: list[list[tuple[Any, ...]]]) -> None:
    table = pa.ipc.open_stream(written("arrow", rows)).read_all()
    assert table.equals(pa.Table.from_batches(batches(rows), SCHEMA))


@settings(max_examples=50)
@given(ROWS)
def test_jsonl_has_every_value(rows: list[list[tuple[Any, ...]]]) -> None:
    objects = [json.loads(line) for line in written("jsonl", rows).decode().splitlines()]
    assert objects == [
        {f.name: plain(value, f.type) for f, value in zip(SCHEMA, row, strict=True)}
        for batch in rows
        for row in batch
    ]


def plain(value: Any, type: pa.DataType) -> Any:
    """The expected JSON of a value, by the standard library and pandas."""
    if value is None:
        return None
    if pa.types.is_timestamp(type):
        return pd.Timestamp(value).isoformat(timespec="nanoseconds") + "Z"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if pa.types.is_list(type):
        return [plain(each, type.value_type) for each in value]
    if pa.types.is_struct(type):
        return {field.name: plain(value[field.name], field.type) for field in type}
    return value


@settings(max_examples=50)
@given(ROWS)
def test_csv_has_every_value(rows: list[list[tuple[Any, ...]]]) -> None:
    table = pa.csv.read_csv(
        io.BytesIO(written("csv", rows)),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types={name: pa.string() for name in SCHEMA.names},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    assert table.column_names == SCHEMA.names
    read = [
        [None if text is None else from_csv(text, f.type) for text in table[f.name].to_pylist()]
        for f in SCHEMA
    ]
    assert [list(row) for row in zip(*read, strict=True)] == [
        [plain(value, f.type) for f, value in zip(SCHEMA, row, strict=True)]
        for batch in rows
        for row in batch
    ]


def from_csv(text: str, type: pa.DataType) -> Any:
    is_text = pa.types.is_string(type) or pa.types.is_timestamp(type)
    return text if is_text or pa.types.is_large_binary(type) else json.loads(text)


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_without_rows_is_a_valid_file(form: str) -> None:
    text = written(form, [])
    if form == "csv":
        assert text.decode() == ",".join(f'"{name}"' for name in SCHEMA.names) + "\n"
    if form == "jsonl":
        assert text == b""


@pytest.mark.parametrize(
    ("limit", "most", "groups"), [("ROWS", 5, [6, 6, 2]), ("BYTES", 1, [2] * 7)]
)
def test_row_groups_are_gathered(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int, groups: list[int]
) -> None:
    monkeypatch.setattr(f"analysis.export.parquet.GROUP_{limit}", most)
    row = tuple(None for _ in SCHEMA)
    file = pq.ParquetFile(io.BytesIO(written("parquet", [[row, row]] * 7)))
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert sizes == groups


def test_an_output_file_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"the one before")
    with output_file(path) as sink:
        sink.write(b"rows")
        assert path.read_bytes() == b"the one before"
    assert path.read_bytes() == b"rows"
    assert [each.name for each in tmp_path.iterdir()] == ["rows.jsonl"]


def test_an_output_file_that_fails_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"the one before")
    with pytest.raises(OSError), output_file(path) as sink:
        sink.seek(-1)  # OSError
    assert path.read_bytes() == b"the one before"
    assert [each.name for each in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize("form", FORMATS)
def test_an_interrupted_file_is_readable(form: str, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    row = tuple(None for _ in SCHEMA)

    def interrupted() -> Any:
        yield from batches([[row, row]])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), output_file(path, keeps_partial=True) as sink:
        FORMATS[form](interrupted(), SCHEMA, sink)
    assert not path.exists()
    left = partial(path)
    if form == "parquet":
        assert pq.read_table(left).schema.equals(SCHEMA)
        assert pq.read_table(left).num_rows == 2
    elif form == "arrow":
        assert len(pa.ipc.open_stream(left.read_bytes()).read_all()) == 2
    else:
        assert len(left.read_text().splitlines()) == 2 + (form == "csv")


def test_other_files_are_removed_after_an_interrupt(tmp_path: Path) -> None:
    def interrupted() -> Any:
        yield b"<html>"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), output_file(tmp_path / "report.html") as sink:
        sink.writelines(interrupted())
    assert list(tmp_path.iterdir()) == []


def test_a_signal_while_the_file_is_created_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        assert [each.name for each in (tmp_path / "tables").iterdir()] == ["rows.partial"]
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("fcntl.flock", interrupt)
    monkeypatch.setattr(startup, "_received", [])
    before = signal.signal(signal.SIGTERM, startup._interrupt)
    try:
        with pytest.raises(startup.Terminated), output_file(tmp_path / "tables" / "rows"):
            pass
    finally:
        signal.signal(signal.SIGTERM, before)
    assert list(tmp_path.iterdir()) == []


def test_an_output_file_may_be_a_link_or_a_device(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "there" / "rows")
    with output_file(link) as sink:
        sink.write(b"rows")
    assert link.is_symlink()
    assert (tmp_path / "there" / "rows").read_bytes() == b"rows"
    with output_file(Path("/dev/null")) as sink:
        sink.write(b"rows")
    assert Path("/dev/null").is_char_device()
