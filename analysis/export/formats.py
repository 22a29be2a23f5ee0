"""Export: the rows of one table as a stream of bytes, while the capture is read.

A format is a function from record batches to a binary file. jsonl, csv and arrow write each batch
at once; parquet collects batches into row groups, and holds at most one of them.
`analysis.export.text` defines the text of times, bytes and lists in jsonl and csv. Null is ``null``
in jsonl and an empty field in csv, where an empty string is ``""``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, BinaryIO, Final, TypeAlias

import pyarrow as pa

from analysis.export.parquet import RowGroup, parquet_options

Batches: TypeAlias = Iterable[pa.RecordBatch]
Export: TypeAlias = Callable[[Batches, pa.Schema, BinaryIO], None]

TEXT_BYTES: Final = 4 << 20
"""Bytes of a batch (in Arrow) that are converted to text at once; few, to stay in the cache."""


def jsonl(batches: Batches, schema: pa.Schema, sink: BinaryIO) -> None:
    """A JSON object per line."""
    from analysis.export.text import json_lines, text_bytes

    for batch in batches:
        for piece in _pieces(batch):
            sink.write(text_bytes(json_lines(piece)))
        sink.flush()


def csv(batches: Batches, schema: pa.Schema, sink: BinaryIO) -> None:
    """Comma-separated values with a header line (RFC 4180, with the newline of Unix)."""
    from pyarrow.csv import CSVWriter

    from analysis.export.text import TEXT, plain_text

    as_is = [_is_plain(field.type) for field in schema]
    fields = [f if plain else f.with_type(TEXT) for f, plain in zip(schema, as_is, strict=True)]
    columns = pa.schema(fields)
    with CSVWriter(pa.PythonFile(sink, "w"), columns) as writer:
        for batch in batches:
            for piece in _pieces(batch):
                arrays = [
                    column if plain else plain_text(column)
                    for column, plain in zip(piece.columns, as_is, strict=True)
                ]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=columns))


def parquet(batches: Batches, schema: pa.Schema, sink: BinaryIO) -> None:
    """Parquet with zstd: see `parquet_options`. Types of texts in `schema` may be dictionaries.

    A thread encodes a row group, without Python's lock, while the next one is collected.
    """
    from concurrent.futures import Future, ThreadPoolExecutor

    from pyarrow.parquet import ParquetWriter

    plain = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in schema
    ]
    options = parquet_options(pa.schema(plain)) | {"store_schema": False}
    with ParquetWriter(sink, schema, **options) as writer, ThreadPoolExecutor(1) as encoder:
        # PyArrow would store the type of dictionaries, and return dictionaries to readers.
        stored = base64.b64encode(pa.schema(plain).serialize())
        writer.add_key_value_metadata({"ARROW:schema": stored})

        writing: Future[None] | None = None
        for group in _groups(batches):
            if writing:
                writing.result()
            writing = encoder.submit(_encode, writer, schema, group)
            del group  # so that its memory is free once it is encoded
        if writing:
            writing.result()


def _encode(writer: Any, schema: pa.Schema, group: pa.Table) -> None:
    """Write a row group to a ParquetWriter."""
    group = group.cast(schema).unify_dictionaries()
    writer.write_table(group, row_group_size=len(group))


def arrow(batches: Batches, schema: pa.Schema, sink: BinaryIO) -> None:
    """Arrow's IPC stream."""
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


FORMATS: Final[Mapping[str, Export]] = MappingProxyType(
    {"jsonl": jsonl, "csv": csv, "parquet": parquet, "arrow": arrow}
)


def _is_plain(type: pa.DataType) -> bool:
    """Whether Arrow writes values of this type as `plain_text` would."""
    tests = (pa.types.is_string, pa.types.is_integer, pa.types.is_floating)
    return any(test(type) for test in tests)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = max(TEXT_BYTES * len(batch) // max(batch.nbytes, 1), 1)
    for start in range(0, len(batch), rows):
        yield batch.slice(start, rows)


def _groups(batches: Batches) -> Iterator[pa.Table]:
    pending = RowGroup()
    for batch in batches:
        if pending.add(batch):
            yield pending.take()
    if (group := pending.take()) is not None:
        yield group
