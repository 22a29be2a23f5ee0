"""The tables of a capture on disk, for answers on captures of any size.

One pass over the capture writes each table to a Parquet file in a temporary folder; a small one
stays in memory. DuckDB reads the columns of a query, a few row groups at a time. It spills sorts,
joins and groups that exceed its memory budget to the same folder. So the memory of an answer
depends on its result, and hardly on the capture. Two things stay in memory: the values of an exact
quantile, eight bytes each, and a small part of a sort. If they exceed the budget, it is lifted
(`analysis.sql.databases`).
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa

from analysis.export.parquet import GROUP_ROWS, Encoder, TableFiles
from analysis.sql.context import create_context
from analysis.sql.databases import open_database, within_memory
from analysis.sql.intervals import create_function
from analysis.sql.row_order import (
    BATCH_ROWS,
    NTH,
    RANKS,
    SMALL,
    SMALL_THREADS,
    in_order,
    rank_rows,
    register_numbered,
    row_order,
)
from analysis.sql.views import schema
from analysis.temporary import temporary_folder
from dissector.packets.block import Int64

MEMORY: Final = 256 << 20
"""Memory budget of DuckDB in bytes; beyond it, DuckDB spills to disk."""
THREADS: Final = 4
"""Maximum number of threads of DuckDB; each has buffers of its own."""
_STEP: Final = 1 << 20
"""Difference of the numbers of rows that are in order."""
_MOST_LATE: Final = 1 << 17
"""Maximum late rows of a table; if there are more, the table is sorted. Less than `_STEP`."""

Named: TypeAlias = Iterable[tuple[str, pa.RecordBatch]]
"""Names of tables, each with a batch of its rows."""


@contextmanager
def stored(rows: Named, names: Collection[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to DuckDB with the tables `names`, as views or tables, while the context lasts.

    `rows`: those of `Capture.stream`, whose errors are passed on. `names` may include a context
    (see `analysis.sql.context`). Each has the columns of `analysis.sql.views.schema`, and those
    that answers need (see `analysis.sql.query`). Raises OSError when the folder of temporary files
    is full, DissectorError when memory does not suffice.
    """
    with temporary_folder() as folder:
        files = {name: Path(folder) / f"{name}.parquet" for name in names}
        small = _write(rows, files)
        if len(small) < len(files):
            _release_memory()
        # DuckDB's threads start after reading: a process with threads must not be forked.
        with connect(folder, SMALL_THREADS if len(small) == len(files) else THREADS) as connection:
            for name, file in files.items():
                create = (
                    partial(register_numbered, connection, name, small[name])
                    if name in small
                    else partial(_create_view, connection, name, file)
                )
                within_memory(connection, create)
            create_context(connection, files)
            create_function(connection)
            yield connection


def _write(rows: Named, files: Mapping[str, Path]) -> dict[str, pa.Table]:
    """Write the rows of tables to files; return the tables that are smaller than `SMALL`."""
    small: dict[str, list[pa.RecordBatch]] = {name: [] for name in files}
    large: dict[str, TableFiles] = {}
    sizes: Counter[str] = Counter()
    with ExitStack() as stack:
        encoder = stack.enter_context(Encoder())
        for name, batch in rows:
            if name not in large:
                small[name].append(batch)
                sizes[name] += batch.nbytes
                if sizes[name] < SMALL:
                    continue
                writer = TableFiles({name: files[name]}, {name: schema(name)}, encoder)
                large[name] = stack.enter_context(writer)
            for each in small.pop(name, [batch]):
                large[name].add(name, each)
    return {
        name: pa.Table.from_batches(batches).cast(schema(name))
        if batches else schema(name).empty_table()
        for name, batches in small.items()
    }  # fmt: skip


def _create_view(connection: duckdb.DuckDBPyConnection, name: str, file: Path) -> None:
    """Give queries a view of the file of a table, with the column `NTH`.

    Rows are stored almost in order: an exchange is late if its response is. So the number of a row
    is its place in the file, times `_STEP`. A late row has a number after that of the row before it
    in the order.
    """
    stored, late = f"stored_{name}", f"late_{name}"
    _open_file(connection, stored, file)
    rank_rows(connection, name, stored)
    numbers = _late_numbers(connection)
    connection.execute(f"drop table {RANKS}")
    if numbers is None:
        file = _ordered(connection, name, file)
        _open_file(connection, stored, file)
    if not numbers:
        query = f"select * exclude (row), row * {_STEP} as {NTH} from {stored}"
    else:
        connection.register(f"given_{late}", numbers)
        connection.execute(f"create temp table {late} as from given_{late}")
        connection.unregister(f"given_{late}")
        # Groups have no equal rows, so DuckDB leaves out the join if a query does not need NTH.
        query = f"""
          select {stored}.* exclude (row), coalesce({NTH}, row * {_STEP}) as {NTH}
          from {stored} left join (
            select row, any_value({NTH}) as {NTH} from {late} group by row) using (row)"""
    connection.execute(f"create temp view {name} as {query}")


def _late_numbers(connection: duckdb.DuckDBPyConnection) -> pa.Table | None:
    """The late rows of `RANKS` with their numbers; None if there are more than `_MOST_LATE`."""
    nothing = np.zeros(0, np.int64)
    late = [(nothing, nothing)]
    count, latest = 0, -1
    for row, place in _by_row(connection):
        highest = np.maximum(np.maximum.accumulate(place), latest)
        latest = highest[-1]
        is_late = place < highest
        late.append((row[is_late], place[is_late]))
        count += len(late[-1][0])
        if count > _MOST_LATE:
            return None
    rows, places = map(np.concatenate, zip(*late, strict=True))
    order = places.argsort()
    rows, places = rows[order], places[order]
    row_before, place_before = np.full((2, len(rows)), -1)
    for row, place in _by_row(connection) if len(rows) else ():
        is_in_order = ~np.isin(place, places)
        row, place = row[is_in_order], place[is_in_order]
        index = place.searchsorted(places) - 1
        has_row = index >= 0
        row_before[has_row] = row[index[has_row]]
        place_before[has_row] = place[index[has_row]]
    return pa.table({"row": rows, NTH: row_before * _STEP + places - place_before})


def _by_row(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[Int64, Int64]]:
    """Row and place of `RANKS`, in order of the rows."""
    query = f"select row, rowid as place from {RANKS} order by row"
    for batch in connection.sql(query).to_arrow_reader(BATCH_ROWS):
        if len(batch):
            yield batch["row"].to_numpy(), batch["place"].to_numpy()


def _open_file(connection: duckdb.DuckDBPyConnection, name: str, file: Path) -> None:
    """A view of a file, with the place of a row in the file as `row`."""
    rows = connection.read_parquet(str(file), file_row_number=True)
    rows.project("* rename (file_row_number as row)").create_view(name)


def _ordered(connection: duckdb.DuckDBPyConnection, name: str, file: Path) -> Path:
    """Replace the file of a table by one with its rows in `row_order`."""
    ordered = file.with_suffix(".ordered.parquet")
    rows = connection.read_parquet(str(file)).order(row_order(name))
    with in_order(connection):
        rows.to_parquet(str(ordered), compression="zstd", row_group_size=GROUP_ROWS)
    file.unlink()
    return ordered


def _release_memory() -> None:
    """Return the memory of reading to the system before queries run."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError):  # only in the GNU C library
        ctypes.CDLL(None).malloc_trim(0)


def connect(folder: str, threads: int = THREADS) -> duckdb.DuckDBPyConnection:
    """A connection to DuckDB with a memory budget, which spills to a folder.

    `threads`: at most; DuckDB uses no more than there are processors.
    """
    return open_database(
        temp_directory=folder,
        memory_limit=f"{MEMORY}B",
        threads=min(os.cpu_count() or 1, threads),
        preserve_insertion_order=False,  # every query orders its rows itself
        parquet_metadata_cache=True,  # each query reads a table several times
    )
