"""Parquet files, to which rows are added batch by batch, and from which they are read so."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from analysis.export.files import writer

if TYPE_CHECKING:
    from concurrent.futures import Future

GROUP_ROWS: Final = 1 << 15
GROUP_BYTES: Final = 16 << 20
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


class Encoder:
    """A thread that encodes row groups, without Python's lock, while the next one is collected.

    A context manager, which waits for the thread.
    """

    def __init__(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._thread = ThreadPoolExecutor(1)
        self._running: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def run(self, encode: Callable[[], None]) -> None:
        """Start to encode a row group after the one before. Raises the error of that one."""
        self.wait()
        self._running = self._thread.submit(encode)

    def wait(self) -> None:
        """Wait for the last row group. Raises its error."""
        running, self._running = self._running, None
        if running is not None:
            running.result()


class ParquetFile:
    """A Parquet file for rows that come batch by batch. The caller opens and closes the sink."""

    def __init__(
        self, sink: Any, schema: pa.Schema, most_rows: int | None = None,
        encoder: Encoder | None = None,
    ) -> None:  # fmt: skip
        """`sink`: a path or a file. `schema`: to which batches are cast; texts may be dictionaries.
        `most_rows`: as in `RowGroup`. `encoder`: default is the thread of the caller."""
        from pyarrow.parquet import ParquetWriter

        plain = pa.schema(
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in schema
        )
        self._writer = ParquetWriter(sink, schema, store_schema=False, **parquet_options(plain))
        # PyArrow would store the type of dictionaries, and return dictionaries to readers.
        self._writer.add_key_value_metadata({"ARROW:schema": base64.b64encode(plain.serialize())})
        self._pending = RowGroup(most_rows)
        self._encoder = encoder
        self.rows = 0
        """Rows that are written."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises OSError when the disk is full, with an encoder at a later call."""
        if self._pending.add(batch):
            self._write_group()

    def close(self) -> None:
        """Write the pending rows and the footer."""
        self._write_group()
        if self._encoder is not None:
            self._encoder.wait()
        self._writer.close()

    def abandon(self) -> None:
        """Write nothing more: a full disk has no room for the footer either."""
        self._writer.is_open = False

    def _write_group(self) -> None:
        if (group := self._pending.take()) is None:
            return
        self.rows += len(group)
        if self._encoder is None:
            self._encode(group)
        else:
            self._encoder.run(partial(self._encode, group))

    def _encode(self, group: pa.Table) -> None:
        group = group.cast(self._writer.schema).unify_dictionaries()
        self._writer.write_table(group, row_group_size=len(group))


class TableFiles:
    """Parquet files, which get the rows of tables batch by batch. Their errors name the file."""

    def __init__(
        self, files: Mapping[str, Path], schemas: Mapping[str, pa.Schema],
        encoder: Encoder | None = None,
    ) -> None:  # fmt: skip
        """`files`: a path for each table; batches are cast to `schemas`. `encoder`: default is a
        new one."""
        self._stack = ExitStack()
        self._encoder = encoder or self._stack.enter_context(Encoder())
        self._sinks = {name: writer(str(path), str(path)) for name, path in files.items()}
        self._files = {
            name: ParquetFile(sink, schemas[name], encoder=self._encoder)
            for name, sink in self._sinks.items()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Complete the files; after an error, leave them incomplete."""
        with self._stack:
            if kind is not None:
                self._abandon()
                return
            try:
                for name, file in self._files.items():
                    file.close()
                    self._sinks[name].close()
            except OSError:
                self._abandon()
                raise

    def add(self, name: str, batch: pa.RecordBatch) -> None:
        """Add rows of a table. Raises OSError when the disk is full."""
        self._files[name].add(batch)

    def _abandon(self) -> None:
        with suppress(OSError):
            self._encoder.wait()
        for name, file in self._files.items():
            file.abandon()
            self._sinks[name].raw.close()  # writes nothing
