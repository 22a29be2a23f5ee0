"""Helpers for the Arrow arrays of all tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissector.exchanges.columns import CUT, as_array, dictionary_codes, masked, take_rows, unmasked
from dissector.packets.block import Int64
from dissector.tables.schema import TEXT
from dissector.tables.table import Table

MANY_CODES = 1 << 10
"""Codes in a larger range are looked up by a hash."""
DICTIONARY = pa.dictionary(pa.int32(), pa.string())

MOST_TEXT: Final = 1 << 28
"""Characters in one column of a batch; Arrow's limit is 2 GiB. One message can repeat a client id
of 32 kB in 100,000 rows."""

NS_PER_MS = 10**6
MAX_MS = (1 << 63) // NS_PER_MS - 1
"""Later times, after the year 2262, do not fit into ns."""
MIN_MS = -(1 << 62) // NS_PER_MS
"""Earlier times, before the year 1823, are so far away that the time since then might not fit."""


def rows_where(table: pa.Table, condition: pc.Expression) -> pa.Table:
    """The rows that meet an expression, in their order.

    Found by this thread. `Table.filter` uses threads of Arrow for an expression: if one of them
    frees an array of NumPy while the interpreter ends, the process aborts.
    """
    from pyarrow import acero  # few commands need it

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    kept = acero.Declaration("filter", acero.FilterNodeOptions(condition), [source])
    return kept.to_table(use_threads=False)


def to_batch(
    table: Table, columns: Mapping[str, Any], *, dictionaries: bool = False
) -> pa.RecordBatch:
    """A batch of these columns (Arrow or NumPy arrays) in the order and types of `table`.

    `dictionaries`: texts are of type DICTIONARY instead, with distinct words.
    """
    arrays = []
    for field in table.schema:
        array = columns[field.name]
        if not isinstance(array, pa.Array):
            array = as_array(array) if isinstance(array, pa.ChunkedArray) else pa.array(array)
        if dictionaries and field.type == TEXT:
            arrays.append(_as_dictionary(array))
            continue
        if pa.types.is_dictionary(array.type):
            array = without_dictionary(array)
        if array.type != field.type:
            is_empty = array.null_count == len(array)
            # Integers fit into the narrower type of their column.
            options = pc.CastOptions(field.type, allow_int_overflow=True)
            array = (
                pa.nulls(len(array), field.type) if is_empty else pc.cast(array, options=options)
            )
        arrays.append(array)
    schema = with_dictionaries(table.schema) if dictionaries else table.schema
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def with_dictionaries(schema: pa.Schema) -> pa.Schema:
    """The schema with dictionaries in place of texts."""
    fields = [each.with_type(DICTIONARY) if each.type == TEXT else each for each in schema]
    return pa.schema(fields)


def _as_dictionary(array: pa.Array) -> pa.DictionaryArray:
    if array.type == DICTIONARY:
        words = array.dictionary
        if not words.null_count and len(words.unique()) == len(words):
            return array
    return array.cast(TEXT).dictionary_encode()


def empty_batch(table: Table) -> pa.RecordBatch:
    """An empty batch."""
    return to_batch(table, {name: pa.nulls(0) for name in table.schema.names})


class SelectedRows(dict[str, pa.Array]):
    """The columns of selected rows of a table; only those that are used are built."""

    def __init__(self, table: pa.Table, row: Int64) -> None:
        """`row`: index of each row, -1 for a row of nulls."""
        self._table, self._row = table, row

    def __missing__(self, name: str) -> pa.Array:
        self[name] = take_rows(as_array(self._table[name]), self._row)
        return self[name]


def take_words(words: pa.Array, index: NDArray[np.integer]) -> pa.DictionaryArray:
    """The word at each index; null for a negative index."""
    codes = masked(index.astype(np.int32), index < 0)
    return pa.DictionaryArray.from_arrays(codes, words, safe=False)


def without_dictionary(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The column with its values in place of dictionary codes.

    Long texts are cut, and end with …, if the values had more than `MOST_TEXT` characters.
    """
    if not pa.types.is_dictionary(column.type):
        return column
    column = as_array(column)
    words = column.dictionary
    most = MOST_TEXT // max(len(column), 1)
    if words.type == TEXT and (pc.max(pc.binary_length(words)).as_py() or 0) > most:
        codes = dictionary_codes(column)
        length = np.append(pc.fill_null(pc.binary_length(words), 0).to_numpy(), 0)
        if length[codes].sum() > MOST_TEXT:
            cut = pc.binary_join_element_wise(pc.utf8_slice_codeunits(words, 0, most), CUT, "")
            words = pc.if_else(pc.greater(pc.utf8_length(words), most), cut, words)
            column = take_words(words, codes)
    return column.cast(words.type)


def map_codes(code: Any, meaning: Callable[[Any], object], type: pa.DataType) -> pa.Array:
    """The meaning of each code, with one call for each distinct code."""
    encoded = encode(code, meaning, type)
    return encoded.dictionary.take(encoded.indices)


def encode(
    code: Any, meaning: Callable[[Any], object], type: pa.DataType = TEXT
) -> pa.DictionaryArray:
    """The meaning of each code, as a dictionary."""
    words: dict[object, int] = {}

    def number(each: object) -> int:
        word = meaning(each)
        return -1 if word is None else words.setdefault(word, len(words))

    code = as_array(code)
    values, is_null = unmasked(code) if pa.types.is_integer(code.type) else (np.zeros(0), None)
    low = int(values.min(initial=0))
    if len(values) and int(values.max()) - low < MANY_CODES:
        values = values - low
        counts = enumerate(np.bincount(values).tolist(), low)
        numbers = [number(each) if count else -1 for each, count in counts]
    else:
        encoded = code.dictionary_encode()
        values, is_null = unmasked(encoded.indices)
        numbers = [*map(number, encoded.dictionary.to_pylist()), -1]
    index = np.array(numbers, np.int32)[values]
    if is_null is not None:
        index = np.where(is_null, np.int32(-1), index)
    return take_words(pa.array([*words], type), index)


def unless_empty(text: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The texts; null if empty, which is Kafka's null in many fields."""
    text = as_array(text)
    if not pa.types.is_dictionary(text.type):
        return pc.if_else(pc.equal(text, ""), None, text)
    empty = pc.index(text.dictionary, "").as_py()
    if empty < 0:
        return text
    if len(text.dictionary) == 1:
        return pa.nulls(len(text), text.type)
    codes = dictionary_codes(text)
    return take_words(text.dictionary, np.where(codes == empty, -1, codes))


def unless_negative(number: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The numbers; null if negative, which is Kafka's null."""
    return pc.if_else(pc.less(number, 0), None, number)


def with_times(rows: pa.Table | pa.RecordBatch, type: pa.DataType) -> pa.Table | pa.RecordBatch:
    """The rows with their times in this type; integers are ns since 1970."""
    fields = [
        field.with_type(type) if pa.types.is_timestamp(field.type) else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))


def row_keys(*columns: Any) -> pa.Array:
    """The columns of each row as one text, which identifies equal rows."""
    parts = [as_array(column).cast(pa.string()) for column in columns]
    return pc.binary_join_element_wise(*parts, "/", null_handling="replace")


def milliseconds(value: Int64) -> pa.Array:
    """Kafka's times in ms as ns; null for -1, which is Kafka's null, and for times out of range.

    Brokers store other negative times, which are those before 1970.
    """
    is_null = (value == -1) | (value < MIN_MS) | (value > MAX_MS)
    return pa.array(np.where(is_null, 0, value) * NS_PER_MS, mask=is_null)
