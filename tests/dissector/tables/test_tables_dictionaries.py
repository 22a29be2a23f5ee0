"""Texts of `exchanges` as dictionaries."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dissector.capture import open_capture
from dissector.tables import arrow
from dissector.tables.arrow import DICTIONARY, encode, without_dictionary
from dissector.tables.schema import EXCHANGES, TEXT
from tests.captures.recorded import CAPTURES


@pytest.mark.parametrize("name", ["kafka-4-group-cooperative", "kafka-4-cut-midway"])
def test_the_rows_are_the_same(name: str) -> None:
    capture = open_capture([CAPTURES / f"{name}.pcap.zst"])
    expected = capture.tables(["exchanges"])["exchanges"]
    batches = [rows for _, rows in capture.stream(["exchanges"], dictionaries=True)]
    for field in batches[0].schema:
        is_text = EXCHANGES.schema.field(field.name).type == TEXT
        assert (field.type == DICTIONARY) == is_text
    for column in (column for rows in batches for column in rows.columns):
        if column.type == DICTIONARY:  # Parquet needs distinct words
            words = column.dictionary.to_pylist()
            assert None not in words
            assert len(words) == len({*words})
    assert pa.Table.from_batches(batches).cast(EXCHANGES.schema).equals(expected)


@pytest.mark.parametrize(
    "codes", [[], [None], [3, None, 4, 3], [-2, 7], [-(2**15), 2**15 - 1, None, 0]]
)
@pytest.mark.parametrize("type", [pa.int16(), pa.int64()])
def test_meanings_of_codes(codes: list[int | None], type: pa.DataType) -> None:
    def meaning(code: int) -> str | None:
        return None if code == 4 else str(code > 0)

    encoded = encode(pa.array(codes, type), meaning)
    assert encoded.to_pylist() == [None if code is None else meaning(code) for code in codes]
    assert len(encoded.dictionary.unique()) == len(encoded.dictionary)


def test_long_texts_are_cut_if_a_column_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    column = pa.array(["ä" * 50, "b" * 30, None, "c" * 10, "b" * 30]).dictionary_encode()
    assert without_dictionary(column).equals(column.cast(TEXT))
    monkeypatch.setattr(arrow, "MOST_TEXT", 100)
    assert without_dictionary(column).to_pylist() == [
        "ä" * 20 + "…", "b" * 20 + "…", None, "c" * 10, "b" * 20 + "…",
    ]  # fmt: skip
    few_long = pa.array(["b" * 30, "c", "c", "c", "c"]).dictionary_encode()
    assert without_dictionary(few_long).equals(few_long.cast(TEXT))
    assert without_dictionary(few_long[:0]).to_pylist() == []
