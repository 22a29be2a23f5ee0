"""What the rows of a filter depend on: exchanges and batches that the filter does not select.

The time that a request waited for earlier requests of its connection, or a Fetch for records of a
producer on another connection, is that of the capture, whichever exchanges are selected. So is the
end of a partition. SQL for such values reads the tables `CONTEXT`. Without a filter, they are views
of the tables.
"""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import duckdb

ALL_EXCHANGES: Final = "all_exchanges"
ALL_BATCHES: Final = "all_batches"
ALL_CONNECTIONS: Final = "all_connections"
ALL_PARTITIONS: Final = "all_partitions"
CONTEXT: Final = MappingProxyType(
    {
        ALL_EXCHANGES: "exchanges",
        ALL_BATCHES: "batches",
        ALL_CONNECTIONS: "connections",
        ALL_PARTITIONS: "partitions",
    }
)
"""All rows of tables, by the name of the context."""
_OF_WAITS: Final = ("exchanges", "batches", "connections")
IS_SELECTED: Final = "is_selected"
"""Column of `all_exchanges`: whether the filter selects the exchange."""


def context_of(names: Collection[str]) -> list[str]:
    """The context of queries on these tables: waits need exchanges, batches and connections."""
    has_waits = {*_OF_WAITS} <= {*names}
    tables = (*_OF_WAITS, "partitions") if has_waits else ("partitions",)
    return [name for name, table in CONTEXT.items() if table in tables and table in names]


def create_context(connection: duckdb.DuckDBPyConnection, names: Collection[str]) -> None:
    """Create the context that is not among the tables `names`, which the connection has."""
    for name in context_of(names):
        if name not in names:
            added = f", true as {IS_SELECTED}" if name == ALL_EXCHANGES else ""
            query = f"select *{added} from {CONTEXT[name]}"
            connection.execute(f"create or replace temp view {name} as {query}")
