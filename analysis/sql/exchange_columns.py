"""Columns of `exchanges` in SQL besides those of the table.

``client`` and ``broker`` are computed from the row. The others need more tables. In the view, a
user-defined function stands for such a column and looks up its values by row number. DuckDB does
not call a function whose result is unused, so a query without these columns costs nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from analysis.columns import resolved
from analysis.sql.expressions import BROKER, CLIENT, CLIENT_SOFTWARE, SOFTWARE, endpoint
from analysis.sql.latency_breakdown import PART_NAMES, PARTS, exchanges_with_parts
from analysis.sql.row_order import NTH
from dissector.arrays import value
from dissector.tables import TableColumn

if TYPE_CHECKING:
    import duckdb


@value
class Lookup:
    """Columns that are looked up together."""

    name: str
    """Name of the function in DuckDB."""
    columns: tuple[TableColumn, ...]
    tables: tuple[str, ...]
    """Names of the tables that the query needs."""
    query: str
    """SQL for `columns` of all exchanges, in order of `NTH`."""

    @property
    def key(self) -> str:
        """Name of a hidden column of `exchanges`: the row number."""
        return f"{self.name}_row"


LOOKUPS: Final = (
    Lookup(
        "kafka_software",
        resolved((CLIENT_SOFTWARE,)),
        ("exchanges", "connections"),
        f"""
        select client_software as software from exchanges left join {SOFTWARE} using (connection_id)
        order by {NTH}""",
    ),
    Lookup(
        "kafka_latency_parts",
        resolved(PARTS),
        ("exchanges", "batches", "connections"),
        f"select {', '.join(PART_NAMES)} from {exchanges_with_parts()} order by {NTH}",
    ),
)

COLUMNS: Final = (
    *resolved((CLIENT, BROKER)),
    *(column for lookup in LOOKUPS for column in lookup.columns),
)
"""Columns of the view `exchanges` besides those of the table."""

PROJECTION: Final = ", ".join(
    (
        f"* exclude ({', '.join(lookup.key for lookup in LOOKUPS)})",
        f"client_ip as {CLIENT.name}",
        f"{endpoint('broker')} as {BROKER.name}",
        *(
            f"{lookup.name}({lookup.key}).{c.name} as {c.name}"
            for lookup in LOOKUPS
            for c in lookup.columns
        ),
    )
)
"""SQL: the columns of the view, from rows with the keys of `LOOKUPS`."""


def with_keys(schema: pa.Schema) -> pa.Schema:
    """The schema of `exchanges` with the keys of `LOOKUPS`."""
    for lookup in LOOKUPS:
        schema = schema.append(pa.field(lookup.key, pa.int64()))
    return schema


def keyed(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches of `exchanges`, in the schema of `with_keys`."""
    start = 0
    for batch in batches:
        rows = pa.array(np.arange(start, start + len(batch)))
        start += len(batch)
        yield pa.RecordBatch.from_arrays([*batch.columns, *[rows] * len(LOOKUPS)], schema=schema)


def struct(lookup: Lookup) -> dict[str, Any]:
    """The result type of a lookup, for DuckDB's `struct_type`."""
    return {c.name: "VARCHAR" if pa.types.is_string(c.type) else "DOUBLE" for c in lookup.columns}


def tables_used(relation: duckdb.DuckDBPyRelation) -> set[str]:
    """Names of the tables that the lookups of a query need; its plan names the scanned keys."""
    scanned = set(_scanned(json.loads(relation.explain(format="json"))))
    return {table for each in LOOKUPS if each.key in scanned for table in each.tables}


def _scanned(nodes: Iterable[dict[str, Any]]) -> Iterator[str]:
    for node in nodes:
        if "SCAN" in node["name"]:
            columns = node["extra_info"].get("Projections", [])
            yield from [columns] if isinstance(columns, str) else columns
        yield from _scanned(node["children"])
