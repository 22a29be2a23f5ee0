"""Export: the rows of one table as a stream of bytes, while the capture is read.

A format is a function from record batches to a binary file. jsonl, csv and arrow write each batch
at once; parquet collects batches into row groups, and holds at most one of them.
`analysis.export.text` defines the text of times, bytes and lists in jsonl and csv. Null is ``null``
in jsonl and an empty field in csv, where an empty string is ``""``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import BinaryIO, Final, TypeAlias

import pyarrow as pa

from analysis.export.parquet import Encoder, ParquetFile

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
    """Parquet with zstd: see `ParquetFile`. Ends readable even if `batches` raise an error."""
    with Encoder() as encoder:
        file = ParquetFile(sink, schema, encoder=encoder)
        try:
            for batch in batches:
                file.add(batch)
        finally:
            file.close()


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
