"""SQL conditions on rows: ``--where "api = 'Produce' AND latency_ms > 100"``.

DuckDB evaluates them, so they may use all columns and all SQL functions of DuckDB. Times are in
UTC, as in the tables.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from analysis.extras import needed
from dissector.errors import DissectorError
from dissector.tables import EXCHANGES

_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    # A condition needs neither files nor extensions, and the rows are few.
    "autoinstall_known_extensions": "false",
    "enable_external_access": "false",
    "threads": "1",
}


class SqlFilter:
    """Returns the rows of `exchanges` that meet a condition.

    Raises DissectorError if the condition is invalid, or DuckDB is not installed.
    """

    def __init__(self, condition: str) -> None:
        with needed("live"):
            import duckdb
        self._connection = duckdb.connect(config=_CONFIG)
        self._query = f"SELECT row FROM exchanges WHERE ({condition}\n) ORDER BY row"
        self._error = duckdb.Error
        self._condition = condition
        self(pa.RecordBatch.from_pylist([], EXCHANGES.schema))

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Raises DissectorError if the condition fails for a value, such as in a cast."""
        try:
            self._connection.register("exchanges", _for_duckdb(rows))
            matches: Any = self._connection.execute(self._query).fetchnumpy()
        except self._error as error:
            reason = str(error).partition("\n")[0]
            raise DissectorError(f"--where {self._condition!r}: {reason}") from error
        return rows.take(pa.array(np.asarray(matches["row"], np.int64)))


def _for_duckdb(rows: pa.RecordBatch) -> pa.Table:
    """The rows, numbered. Times are without a zone, or DuckDB would cut them to microseconds."""
    columns = [
        column.cast(pa.timestamp("ns")) if pa.types.is_timestamp(column.type) else column
        for column in rows.columns
    ]
    table = pa.Table.from_arrays(columns, names=rows.schema.names)
    return table.append_column("row", pa.array(np.arange(len(rows))))
