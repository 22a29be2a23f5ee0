"""Conditions in SQL on rows of `exchanges`: ``api = 'Produce' AND latency_ms > 100``.

DuckDB evaluates them, so they may use all of its functions. Times are in UTC, as in the tables.
Besides the columns of `exchanges` there are ``client`` and ``broker``, and the lists
``client_names`` and ``broker_names`` (see `analysis.names.addresses`), and if the rows have them,
the columns `COMPUTED`. A condition cannot contain a subquery: its result would depend on which rows
are read together.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.names.addresses import Names
from analysis.sql.databases import open_database
from analysis.sql.exchange_columns import LOOKUPS
from analysis.sql.expressions import BROKER, CLIENT, endpoint
from dissector.errors import DissectorError, did_you_mean
from dissector.tables import EXCHANGES
from dissector.tables.arrow import with_times

_NAMES: Final = ("client_names", "broker_names")
_LISTS: Final = pa.list_(pa.string())
COMPUTED: Final = pa.schema([(c.name, c.type) for lookup in LOOKUPS for c in lookup.columns])
"""Columns that depend on the whole capture: waits, and the software of clients."""
COLUMNS: Final = (
    *EXCHANGES.schema.names, CLIENT.name, BROKER.name, *_NAMES, *COMPUTED.names,
)  # fmt: skip

_ROWS: Final = f"""(
  select *, client_ip as {CLIENT.name}, {endpoint("broker")} as {BROKER.name} from batch)"""
_REFERENCE: Final = re.compile(r'"column_names":\[(?:"[^"]*",)*"([^"]*)"\]')
"""A column in the JSON of a parsed condition; the last name is that of the column."""
_EXPECTED: Final = "expected one condition, such as \"api = 'Fetch'\""
_ABSENT: Final = re.compile(r'Referenced column "(.+?)" not found')


@cache
def database() -> duckdb.DuckDBPyConnection:
    """The database of all conditions, which has no thread; each condition has a cursor.

    A condition needs no files, and the rows are few.
    """
    return open_database(enable_external_access=False, threads=1)


class Condition:
    """Returns the rows of `exchanges` that meet a condition.

    Raises DissectorError if the condition is invalid.
    """

    def __init__(
        self, condition: str, names: Names | None = None, *, has_computed: bool = False
    ) -> None:
        """`names`: for the lists of names, which are empty without them. `has_computed`: the rows
        have the columns `COMPUTED`."""
        self._names = names or Names()
        self._connection = database().cursor()
        # A comment in the condition ends with its line.
        self._query = f"select nth from {_ROWS} as exchanges where ({condition}\n) order by nth"
        self._condition = condition
        self.computed = sorted({*COMPUTED.names}.intersection(self._check()))
        """The columns of `COMPUTED` in the condition."""
        if self.computed and not has_computed:
            raise self._error(
                f"{self.computed[0]} depends on the whole capture, which is not known here; use "
                "latency_ms"
            )
        schema = pa.schema([*EXCHANGES.schema, *(COMPUTED if has_computed else ())])
        self(pa.RecordBatch.from_pylist([], schema))

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that meet the condition. Raises as `matches`."""
        return rows.take(pa.array(self.matches(rows)))

    def matches(self, rows: pa.RecordBatch) -> NDArray[np.int64]:
        """The numbers of the rows that meet the condition, ascending.

        Raises DissectorError if the condition fails for a value, such as in a cast.
        """
        try:
            self._connection.register("batch", self._with_names(_numbered(rows)))
            matches: Any = self._connection.execute(self._query).fetchnumpy()
        except duckdb.Error as error:
            raise self._error(str(error)) from error
        return np.asarray(matches["nth"], np.int64)

    def _with_names(self, rows: pa.Table) -> pa.Table:
        """The rows with the lists of names of both ends; an end occurs in many rows."""
        if not self._names:
            nothing = pa.nulls(len(rows), _LISTS)
            return rows.append_column(_NAMES[0], nothing).append_column(_NAMES[1], nothing)
        broker_port = pc.cast(rows["broker_port"], pa.string())
        broker = pc.binary_join_element_wise("[", rows["broker_ip"], "]:", broker_port, "")
        for name, ends in zip(_NAMES, (rows["client_ip"], broker), strict=True):
            encoded = ends.combine_chunks().dictionary_encode()
            names = [self._names.all_names(each) for each in encoded.dictionary.to_pylist()]
            lists = pa.array(names, _LISTS).take(encoded.indices)
            rows = rows.append_column(name, lists)
        return rows

    def _check(self) -> list[str]:
        """The names of columns in the condition.

        Raises DissectorError unless the text is one expression without a subquery.
        """
        if not self._condition.strip():
            raise self._error(_EXPECTED)
        query = f"select {self._condition}\n"
        ((text,),) = self._connection.execute(
            "select json_serialize_sql(?::varchar)", [query]
        ).fetchall()
        parsed = json.loads(text)
        if parsed["error"] and parsed["error_type"] == "parser":
            raise self._error(parsed["error_message"])
        nodes = [statement["node"] for statement in parsed.get("statements", ())]
        is_expression = len(nodes) == 1 and nodes[0]["from_table"]["type"] == "EMPTY"
        if not is_expression or len(nodes[0]["select_list"]) != 1:
            raise self._error(_EXPECTED)
        compact = text.replace(" ", "")
        if '"class":"SUBQUERY"' in compact:
            raise self._error("a condition cannot contain a subquery; use the command sql")
        return [name.lower() for name in _REFERENCE.findall(compact)]

    def _error(self, message: str) -> DissectorError:
        reason = message.partition("\n")[0].partition(" Error: ")
        # DuckDB's name of the type of times and of integers.
        detail = (reason[2] or reason[0]).replace("to INT64", "to a time or an integer")
        if "type VARCHAR[]" in detail:
            detail = "topics, client_names and broker_names are lists: list_contains(topics, 'x')"
        if absent := _ABSENT.search(message):
            name = absent[1]
            detail = f"exchanges has no column {name}"
            suggestion = did_you_mean(name, COLUMNS)
            if f'"{name}"' in self._condition or not suggestion:
                detail += f"; for text use single quotes: '{name}'"
            detail += suggestion
        return DissectorError(f"--where {self._condition!r}: {detail}")


def _numbered(rows: pa.RecordBatch) -> pa.Table:
    """The rows, numbered. Times are without a zone, or DuckDB would cut them to microseconds."""
    table = pa.Table.from_batches([with_times(rows, pa.timestamp("ns"))])
    return table.append_column("nth", pa.array(np.arange(len(rows))))
