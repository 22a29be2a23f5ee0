"""Columns of `exchanges` that SQL has beside those of the table.

``client`` and ``broker`` are made of the row itself. The others need more tables, and are looked up
by the number of the row when a query uses them: a function in DuckDB stands in the view for such a
column, and DuckDB does not call functions whose result nobody needs. So a query that uses none of
them costs nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from analysis.sql.expressions import BROKER, CLIENT, SOFTWARE, SOFTWARE_OF_CLIENT, endpoint
from analysis.sql.latency_breakdown import WAIT_COLUMNS, WAITED
from analysis.sql.query import NTH
from dissector.tables import TableColumn

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class Lookup:
    """Columns that are looked up together."""

    name: str
    """Of the function in DuckDB."""
    columns: tuple[TableColumn, ...]
    tables: tuple[str, ...]
    """Names of the tables that the query needs."""
    query: str
    """SQL for `columns` of all exchanges, in order of `NTH`."""

    @property
    def key(self) -> str:
        """Hidden column of `exchanges` with the number of the row."""
        return f"{self.name}_row"


LOOKUPS: Final = (
    Lookup(
        "kafka_software",
        (SOFTWARE_OF_CLIENT,),
        ("exchanges", "connections"),
        f"""
        select told_software as software from exchanges left join {SOFTWARE} using (connection_id)
        order by {NTH}""",
    ),
    Lookup(
        "kafka_waits",
        WAIT_COLUMNS,
        ("exchanges", "batches"),
        f"select {', '.join(c.name for c in WAIT_COLUMNS)} from {WAITED} order by {NTH}",
    ),
)

COLUMNS: Final = (CLIENT, BROKER, *(column for each in LOOKUPS for column in each.columns))
"""What the view `exchanges` has beside the columns of the table."""

PROJECTION: Final = ", ".join(
    (
        f"* exclude ({', '.join(lookup.key for lookup in LOOKUPS)})",
        f"client_ip as {CLIENT.name}",
        f"{endpoint('broker')} as {BROKER.name}",
        *(f"{e.name}({e.key}).{c.name} as {c.name}" for e in LOOKUPS for c in e.columns),
    )
)
"""SQL: from rows with the keys of `LOOKUPS` to those of the view."""


def with_keys(schema: pa.Schema) -> pa.Schema:
    """The schema of `exchanges` with the keys of `LOOKUPS`."""
    for lookup in LOOKUPS:
        schema = schema.append(pa.field(lookup.key, pa.int64()))
    return schema


def keyed(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches of `exchanges`, in the schema that `with_keys` gives."""
    start = 0
    for batch in batches:
        rows = pa.array(np.arange(start, start + len(batch)))
        start += len(batch)
        yield pa.RecordBatch.from_arrays([*batch.columns, *[rows] * len(LOOKUPS)], schema=schema)


def struct(lookup: Lookup) -> dict[str, Any]:
    """The type of what a lookup gives, as DuckDB's `struct_type` takes it."""
    return {c.name: "VARCHAR" if pa.types.is_string(c.type) else "DOUBLE" for c in lookup.columns}


def tables_used(relation: duckdb.DuckDBPyRelation) -> set[str]:
    """Names of the tables that lookups of a query need: its plan shows which keys are scanned."""
    scanned = set(_scanned(json.loads(relation.explain(format="json"))))
    return {table for each in LOOKUPS if each.key in scanned for table in each.tables}


def _scanned(nodes: Iterable[dict[str, Any]]) -> Iterator[str]:
    for node in nodes:
        if "SCAN" in node["name"]:
            columns = node["extra_info"].get("Projections", [])
            yield from [columns] if isinstance(columns, str) else columns
        yield from _scanned(node["children"])
