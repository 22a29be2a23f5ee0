"""Parquet files, to which rows are added batch by batch, and from which they are read so."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa

GROUP_ROWS: Final = 1 << 15
GROUP_BYTES: Final = 32 << 20
"""A row group is written when it has this many rows or bytes."""


def read_batches(file: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file. Raises OSError or pa.ArrowException if the file is damaged."""
    from pyarrow.parquet import ParquetFile as Reader

    # With pre_buffer, PyArrow keeps the bytes of the whole file until it is read.
    yield from Reader(file, pre_buffer=False).iter_batches(GROUP_ROWS)


class RowGroup:
    """Batches that become a row group when they have many rows or bytes."""

    def __init__(self, most_rows: int | None = None) -> None:
        """`most_rows`: default `GROUP_ROWS`."""
        self._most_rows = most_rows or GROUP_ROWS
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Whether the group is large enough now."""
        self._batches.append(batch)
        self._rows += len(batch)
        self._bytes += batch.nbytes
        return self._rows >= self._most_rows or self._bytes >= GROUP_BYTES

    def take(self) -> pa.Table | None:
        """Empty the group, and return its rows; None without rows."""
        group = pa.Table.from_batches(self._batches) if self._rows else None
        self._batches, self._rows, self._bytes = [], 0, 0
        return group


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """The arguments of ParquetWriter for a table.

    Columns of texts, lists and small numbers have dictionaries. Their statistics would not help
    readers: rows are in order of time, so most groups contain all frequent values. Times and 64-bit
    numbers are stored as differences, which are shorter.
    """
    types = {field.name: field.type for field in schema}
    repeating = [
        name
        for name, type in types.items()
        if pa.types.is_string(type)
        or pa.types.is_list(type)
        or (pa.types.is_integer(type) and type.bit_width < 64)
    ]
    others = [name for name in types if name not in repeating]
    is_number = (pa.types.is_integer, pa.types.is_timestamp)
    return {
        "compression": "zstd",
        "use_dictionary": [
            f"{name}.list.element" if pa.types.is_list(types[name]) else name for name in repeating
        ],
        "column_encoding": {
            name: "DELTA_BINARY_PACKED"
            for name in others
            if any(test(types[name]) for test in is_number)
        },
        "write_statistics": others,
    }


class ParquetFile:
    """A Parquet file for rows that come batch by batch. The caller opens and closes the sink."""

    def __init__(self, sink: Any, schema: pa.Schema, most_rows: int | None = None) -> None:
        """`sink`: a path or a file. `schema`: to which batches are cast. `most_rows`: as in
        `RowGroup`."""
        from pyarrow.parquet import ParquetWriter

        self._writer = ParquetWriter(sink, schema, **parquet_options(schema))
        self._pending = RowGroup(most_rows)
        self.rows = 0
        """Rows that are written."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises OSError when the disk is full."""
        if self._pending.add(batch):
            self._write_group()

    def close(self) -> None:
        """Write the pending rows and the footer."""
        self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        """Write nothing more: a full disk has no room for the footer either."""
        self._writer.is_open = False

    def _write_group(self) -> None:
        if (group := self._pending.take()) is not None:
            self._writer.write_table(group.cast(self._writer.schema), row_group_size=len(group))
            self.rows += len(group)


class TableFiles:
    """Parquet files, which get the rows of tables batch by batch."""

    def __init__(self, files: Mapping[str, Path], schemas: Mapping[str, pa.Schema]) -> None:
        """`files`: a path for each table; batches are cast to `schemas`."""
        self._paths = files
        self._files = {name: ParquetFile(file, schemas[name]) for name, file in files.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Complete the files; after an error, leave them incomplete."""
        if kind is not None:
            self._abandon()
            return
        try:
            for name, file in self._files.items():
                with self._named_errors(name):
                    file.close()
        except OSError:
            self._abandon()
            raise

    def add(self, name: str, batch: pa.RecordBatch) -> None:
        """Add rows of a table. Raises OSError when the disk is full."""
        with self._named_errors(name):
            self._files[name].add(batch)

    @contextmanager
    def _named_errors(self, name: str) -> Iterator[None]:
        """A context whose errors name the file; those of Arrow do not."""
        try:
            yield
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(error.errno, reason, str(self._paths[name])) from error

    def _abandon(self) -> None:
        for file in self._files.values():
            file.abandon()
