"""The tables of a capture on disk, for questions that need not have them in memory.

One pass over the capture writes each table that is wanted to a Parquet file in a temporary folder.
DuckDB reads of a file what a query names, some row groups at a time, and writes what a sort, a join
or groups need beyond its budget to the same folder. So what a question takes of memory depends on
its answer, and hardly on the capture: only the values of an exact quantile are held, eight bytes
each.
"""

from __future__ import annotations

import ctypes
import gc
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.parquet

from analysis.export import repeating
from analysis.sql.query import NTH
from analysis.sql.views import schema

MEMORY: Final = 256 << 20
"""Bytes that DuckDB may take before it writes to disk."""
THREADS: Final = 4
"""Threads of DuckDB, at most: each has buffers of its own."""
GROUP_ROWS: Final = 1 << 15
"""Rows of a row group, about."""

Named: TypeAlias = Iterable[tuple[str, pa.RecordBatch]]
"""Name of a table, and rows of it."""


@contextmanager
def stored(rows: Named, names: Collection[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to DuckDB with a view for each of the tables `names`, while the context lasts.

    `rows`: those of `Capture.stream`, whose errors are passed on. A view has the columns of
    `analysis.sql.views.schema`, and those that answers need (see `analysis.sql.query`). Raises
    OSError when the folder of temporary files is full.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-dissector-") as folder:
        files = {name: Path(folder) / f"{name}.parquet" for name in names}
        _write(rows, files)
        _give_back()
        # DuckDB's threads start when all is read: a process that has any should not be forked.
        with duckdb.connect(config=_config(folder)) as connection:
            for name, file in files.items():
                table = connection.read_parquet(str(file), file_row_number=True)
                table.project(f"* rename (file_row_number as {NTH})").create_view(name)
            yield connection


def _give_back() -> None:
    """Return the memory that reading took to the system, before questions take theirs."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError):  # of the GNU C library alone
        ctypes.CDLL(None).malloc_trim(0)


def _config(folder: str) -> dict[str, str | bool | int | float | list[str]]:
    return {
        "temp_directory": folder,
        "memory_limit": f"{MEMORY}B",
        "threads": min(os.cpu_count() or 1, THREADS),
        # Every query says in what order it wants its rows.
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
    }


def _write(rows: Named, files: dict[str, Path]) -> None:
    schemas = {name: schema(name) for name in files}
    waiting: dict[str, list[pa.RecordBatch]] = {name: [] for name in files}
    writers = {
        name: pa.parquet.ParquetWriter(
            file, schemas[name], compression="zstd", use_dictionary=repeating(schemas[name])
        )
        for name, file in files.items()
    }
    try:
        for name, batch in rows:
            waiting[name].append(batch)
            if sum(map(len, waiting[name])) >= GROUP_ROWS:
                _write_group(writers[name], waiting[name])
        for name, batches in waiting.items():
            _write_group(writers[name], batches)
        for writer in writers.values():
            writer.close()
    except OSError:
        for writer in writers.values():
            writer.is_open = False  # where there is no room, none is for the end of a file either
        raise


def _write_group(writer: pa.parquet.ParquetWriter, batches: list[pa.RecordBatch]) -> None:
    """Write the rows that wait, if any, as a row group."""
    if batches:
        writer.write_table(pa.Table.from_batches(batches).cast(writer.schema))
        batches.clear()
        gc.collect()  # what reading left in cycles
