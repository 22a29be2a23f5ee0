"""The rows that a condition on exchanges selects.

Exchanges are filtered as they are read. An exchange may come after its rows of other tables (see
`dissector.tables.finalizer`). So those rows, and the keys of the selected exchanges, wait in
temporary files until the last exchange has been read.

A condition on columns that depend on the whole capture, such as ``net_ms``, is evaluated in a pass
before. Its result is the keys of the selected exchanges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.export.parquet import TableFiles, read_batches
from analysis.input.cluster_connections import ClusterConnections
from analysis.names.addresses import Names
from analysis.sql.conditions import Condition, database
from analysis.sql.context import ALL_EXCHANGES, CONTEXT, IS_SELECTED
from analysis.sql.expressions import SOFTWARE, literal
from analysis.sql.intermediate import create_intermediate_tables
from analysis.sql.latency_breakdown import PART_NAMES, exchanges_with_parts
from analysis.sql.stored import connect, stored
from analysis.temporary import temporary_folder
from dissector.tables import EXCHANGES, TABLES
from dissector.tables.finalizer import NamedBatch

INDEPENDENT: Final = frozenset({"topics", "brokers", "clusters", "problems"})
"""Tables that do not follow from exchanges."""

_KEYS: Final = pa.schema(
    [
        EXCHANGES.schema.field(name)
        for name in ("connection_id", "correlation_id", "request_time", "response_time")
    ]
)

COMPUTED_TABLES: Final = ("exchanges", "batches", "connections")
"""The tables that `selected_keys` needs."""
_IDENTITY: Final = (*_KEYS.names, "request_packet", "response_packet")
"""The columns that identify an exchange in another pass over the same capture."""


def selected_keys(
    rows: Iterable[NamedBatch], sql: str, names: Names, clusters: ClusterConnections | None
) -> pa.Table:
    """The keys of the exchanges that meet a condition, which may contain columns of `COMPUTED`.

    `rows`: those of `COMPUTED_TABLES`. Other parameters: as in `Selection`. Raises DissectorError.
    """
    condition = Condition(sql, names, has_computed=True)
    columns = ", ".join((*EXCHANGES.schema.names, *PART_NAMES))
    query = f"""
      select {columns}, client_software as software
      from {exchanges_with_parts()} left join {SOFTWARE} using (connection_id)"""
    schema = _identities(EXCHANGES.schema.empty_table()).schema
    with stored(rows if clusters is None else clusters.rows(rows), COMPUTED_TABLES) as connection:
        create_intermediate_tables(connection, query)
        exchanges = connection.sql(query).to_arrow_reader()
        return pa.Table.from_batches(map(_identities, map(condition, exchanges)), schema)


def _identities(rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    columns = [rows[name].cast(pa.int64()) for name in _IDENTITY]
    return type(rows).from_arrays(columns, names=[*_IDENTITY])


class Selection:
    """A filter of the rows of one pass. It counts exchanges."""

    def __init__(
        self, sql: str, names: Names, keys: pa.Table | None = None,
        clusters: ClusterConnections | None = None,
    ) -> None:  # fmt: skip
        """`sql`: a condition on exchanges, which may use `names`. `keys`: the result of
        `selected_keys`, if the condition contains columns of `COMPUTED`. `clusters`: select only
        rows of their connections, in all tables. Raises DissectorError."""
        self._sql = sql
        self._clusters = clusters
        self._matching = _KeyCondition(keys) if keys is not None else Condition(sql, names)
        self.selected = 0
        """Exchanges that were selected."""
        self.total = 0
        """All exchanges so far."""
        self._ends: list[int] = []

    def __str__(self) -> str:
        sql = " ".join(self._sql.split())
        if self._clusters is not None:
            sql = str(self._clusters) if sql == "true" else f"{self._clusters}, {sql}"
        return f"{sql}: {self.selected:,} of {self.total:,} exchanges"

    @property
    def span(self) -> str:
        """The first and the last time of all exchanges so far, in UTC; empty without exchanges."""
        if not self._ends:
            return ""
        ends = np.array(self._ends, "datetime64[ns]").astype("datetime64[ms]")
        first, last = (str(each).replace("T", " ") for each in ends)
        return f"{first} to {last} UTC"

    def exchanges(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The selected rows of a batch of `exchanges`."""
        rows = self._of_clusters(EXCHANGES.name, rows)
        return rows.take(pa.array(self._matches(rows)))

    def _of_clusters(self, name: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the chosen clusters."""
        if name == EXCHANGES.name:
            self.total += len(rows)
        return rows if self._clusters is None else self._clusters.of_rows(rows)

    def _matches(self, rows: pa.RecordBatch) -> NDArray[np.int64]:
        """The numbers of the selected rows of a batch of `exchanges`."""
        numbers = self._matching.matches(rows)
        self.selected += len(numbers)
        ends = pc.min_max(pc.coalesce(rows["request_time"], rows["response_time"]).cast(pa.int64()))
        known = [*self._ends, *(end for end in ends.as_py().values() if end is not None)]
        self._ends = [min(known), max(known)] if known else []
        return numbers

    def rows(self, rows: Iterable[NamedBatch], names: Collection[str]) -> Iterator[NamedBatch]:
        """The selected rows of the tables `names`. `rows` must contain these and `exchanges`.

        `names` may include a context: see `analysis.sql.context`.
        """
        self.selected = self.total = 0
        self._ends = []
        with temporary_folder() as folder:
            following = [n for n in TABLES if n in {*names} - INDEPENDENT - {EXCHANGES.name}]
            files = {name: Path(folder, name) for name in ("keys", *following)}
            schemas = {name: TABLES[name].schema for name in following} | {"keys": _KEYS}
            with TableFiles(files, schemas) as waiting:
                for name, batch in rows:
                    batch = self._of_clusters(name, batch)
                    if name == EXCHANGES.name:
                        numbers = self._matches(batch)
                        if ALL_EXCHANGES in names:
                            yield ALL_EXCHANGES, _flagged(batch, numbers)
                        batch = batch.take(pa.array(numbers))
                        waiting.add("keys", batch.select(_KEYS.names))
                    elif (context := f"all_{name}") in CONTEXT and context in names:
                        yield context, batch
                    if name in following:
                        waiting.add(name, batch)
                    elif name in names and len(batch):
                        yield name, batch
            with connect(folder) as connection:
                for name in following:
                    for batch in _following(connection, name, files[name], files["keys"]):
                        yield name, batch


class _KeyCondition:
    """Selects rows of `exchanges` by their keys, as `Condition` does by their values."""

    def __init__(self, keys: pa.Table) -> None:
        self._connection = database().cursor()
        self._connection.register("keys", keys)
        same = (f"rows.{name} is not distinct from keys.{name}" for name in _IDENTITY)
        self._query = f"select nth from rows semi join keys on {' and '.join(same)} order by nth"

    def matches(self, rows: pa.RecordBatch) -> NDArray[np.int64]:
        """The numbers of the rows that are among the keys, ascending."""
        numbered = _identities(rows).append_column("nth", pa.array(np.arange(len(rows))))
        self._connection.register("rows", pa.Table.from_batches([numbered]))
        return np.asarray(self._connection.execute(self._query).fetchnumpy()["nth"], np.int64)


def _flagged(exchanges: pa.RecordBatch, numbers: NDArray[np.int64]) -> pa.RecordBatch:
    """The exchanges with the column `IS_SELECTED`; `numbers`: those of the selected rows."""
    is_selected = np.zeros(len(exchanges), np.bool_)
    is_selected[numbers] = True
    return exchanges.append_column(IS_SELECTED, pa.array(is_selected))


def _following(
    connection: duckdb.DuckDBPyConnection, name: str, file: Path, keys: Path
) -> Iterator[pa.RecordBatch]:
    """The rows of a table that belong to the exchanges of `keys`, in their order."""
    query = _numbers(name).format(
        rows=f"read_parquet({literal(str(file))}, file_row_number=true)",
        keys=f"read_parquet({literal(str(keys))})",
    )
    numbers = np.asarray(connection.execute(query).fetchnumpy()["nth"])
    start = 0
    for batch in read_batches(file):
        first, last = np.searchsorted(numbers, [start, start + len(batch)])
        if first < last:
            yield batch.take(pa.array(numbers[first:last] - start)).cast(TABLES[name].schema)
        start += len(batch)


def _numbers(name: str) -> str:
    """SQL for the numbers of the rows of a table that belong to the exchanges."""
    if name == "connections":
        return """
          select file_row_number as nth from {rows}
          where connection_id in (select connection_id from {keys}) order by nth"""
    # Of several exchanges with the same ids, the time selects one: that of the message.
    has_request_time = "response_time" in TABLES[name].schema.names
    time = "coalesce(time, response_time)" if has_request_time else "time"
    return f"""
      select file_row_number as nth from (select *, {time} as at from {{rows}}) as rows
      semi join (
        select connection_id, correlation_id, request_time as at from {{keys}}
        union all select connection_id, correlation_id, response_time from {{keys}}) as keys
      on rows.connection_id = keys.connection_id and rows.at = keys.at
        and rows.correlation_id is not distinct from keys.correlation_id
      order by nth"""
