"""The order of rows in answers: by time, connection and correlation id, then by all columns.

The order in which rows are read depends on the size of blocks, and on the files of an export. Spark
has no order at all. So answers number rows in this order, which depends on the rows alone: equal
tables have equal answers, wherever they come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa

from analysis.sql.context import CONTEXT
from analysis.sql.databases import restored_setting
from dissector.tables import TABLES
from dissector.tables.schema import TIMES

NTH: Final = "nth"
"""A number of each row of a table, which increases in the order of rows."""

_FIRST: Final = (
    "request_time", "response_time", "first_time", "time", "packet", "connection_id",
    "correlation_id",
)  # fmt: skip
_IN_MESSAGE: Final = (
    "path", "topic", "topic_id", "partition", "base_offset", "offset", "broker_id",
)  # fmt: skip
RANKS: Final = "ranks"
"""Temporary table of `rank_rows`."""
BATCH_ROWS: Final = 1 << 18
"""Rows of `RANKS` that are read at a time."""
SMALL: Final = 1 << 22
"""Bytes. A smaller table becomes one of DuckDB: the plan of each query would read its schema."""
SMALL_THREADS: Final = 1
"""Threads of DuckDB for small tables. Further threads take a tenth more processor time."""
_GIVEN: Final = "given_rows"


@cache
def row_order(name: str, keys_only: bool = False) -> str:
    """SQL of an ``order by``: the columns of a table, or of the table of a context.

    `keys_only`: only columns that usually differ in two rows, which are the first of the order.
    """
    columns = TABLES[CONTEXT.get(name, name)].schema.names
    times = [column for column in TIMES if column in columns]
    ordered = [*dict.fromkeys([*(column for column in _FIRST if column in columns), *columns])]
    if keys_only:
        last = max(ordered.index(column) for column in (*_FIRST, *_IN_MESSAGE) if column in ordered)
        ordered = ordered[: last + 1]
    return ", ".join([f"coalesce({', '.join(times)})", *(f'"{column}"' for column in ordered)])


def rank_rows(connection: duckdb.DuckDBPyConnection, name: str, rows: str) -> None:
    """Create `RANKS` with the rows of a view in the row order: `rowid` is the place of a row.

    The view has the columns of a table, and `row`, a number. To compare all columns takes long. So
    the columns of `keys_only` are tried first: they suffice unless two rows are equal in them.
    Sorted on disk, unlike a window over all rows, which DuckDB keeps in memory.
    """
    with in_order(connection):
        for keys_only in (True, False):
            order = row_order(name, keys_only)
            connection.execute(f"""
              create or replace temp table {RANKS} as
              select row, hash({order}) as key from {rows} order by {order}""")
            if not _has_ties(connection):
                return


def _has_ties(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether two rows of `RANKS` that follow each other have the same key."""
    latest = np.zeros(0, np.uint64)
    for batch in connection.sql(f"select key from {RANKS}").to_arrow_reader(BATCH_ROWS):
        keys = np.concatenate([latest, batch["key"].to_numpy()])
        if (keys[1:] == keys[:-1]).any():
            return True
        latest = keys[-1:]
    return False


@contextmanager
def in_order(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Let new tables and files have the order of the rows that are written to them."""
    with restored_setting(connection, "preserve_insertion_order"):
        connection.execute("set preserve_insertion_order = true")
        yield


def row_numbers(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> pa.Array:
    """The values of `NTH` for the rows of a table; times without a zone."""
    connection.register(_GIVEN, table.append_column("row", pa.array(np.arange(len(table)))))
    rank_rows(connection, name, _GIVEN)
    places = connection.execute(f"select rowid from {RANKS} order by row").fetchnumpy()["rowid"]
    connection.execute(f"drop table {RANKS}")
    connection.unregister(_GIVEN)
    return pa.array(np.asarray(places, np.int64))


def register_numbered(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Give queries a table with the column `NTH`; times without a zone."""
    if table.nbytes >= SMALL:
        numbers = row_numbers(connection, name, table)
        connection.register(name, table.append_column(NTH, numbers))
        return
    # One statement takes half as long as those of `rank_rows`.
    order = row_order(name)
    number = f"row_number() over (order by {order}) - 1" if len(table) > 1 else "0::bigint"
    connection.register(_GIVEN, table)
    connection.execute(f"create temp table {name} as select *, {number} as {NTH} from {_GIVEN}")
    connection.unregister(_GIVEN)
