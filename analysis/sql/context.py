"""What the rows of a filter depend on: exchanges and batches that the filter does not select.

The time that a request waited for earlier requests of its connection, or a Fetch for records of a
producer, is that of the capture, whichever exchanges are selected. So SQL for such times reads the
tables `CONTEXT`. Without a filter, they are views of the tables themselves.
"""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import duckdb

ALL_EXCHANGES: Final = "all_exchanges"
ALL_BATCHES: Final = "all_batches"
CONTEXT: Final = MappingProxyType({ALL_EXCHANGES: "exchanges", ALL_BATCHES: "batches"})
"""All rows of tables, by the name of the context."""
IS_SELECTED: Final = "is_selected"
"""Column of `all_exchanges`: whether the filter selects the exchange."""


def has_context(names: Collection[str]) -> bool:
    """Whether these are the tables that SQL with a context needs."""
    return {*CONTEXT.values()} <= {*names}


def create_context(connection: duckdb.DuckDBPyConnection, names: Collection[str]) -> None:
    """Create the context that is not among the tables `names`, which the connection has."""
    if not has_context(names):
        return
    for name, table in CONTEXT.items():
        if name not in names:
            added = f", true as {IS_SELECTED}" if name == ALL_EXCHANGES else ""
            connection.execute(
                f"create or replace temp view {name} as select *{added} from {table}"
            )
