"""Tables in memory, as `analysis.load` and `Capture.tables` return them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from analysis.sql.query import checked_table
from dissector.errors import DissectorError
from dissector.pipeline import known_tables
from dissector.tables.finalizer import NamedBatch

if TYPE_CHECKING:
    import pandas as pd

Rows: TypeAlias = "pd.DataFrame | pa.Table"


class LoadedTables:
    """Tables as input of a filter."""

    def __init__(self, tables: Mapping[str, Rows]) -> None:
        """Raises DissectorError if one is not a table of the dissector."""
        if not isinstance(tables, Mapping):
            raise DissectorError(f"tables must be those of load(), not {tables!r}")
        self._tables = {name: checked_table(name, tables[name]) for name in known_tables([*tables])}

    def stream(self, names: Collection[str]) -> Iterator[NamedBatch]:
        """The rows of tables. Raises DissectorError if one is missing."""
        for name in names:
            if name not in self._tables:
                raise DissectorError(f"the filter needs the table {name}")
            for batch in self._tables[name].to_batches():
                yield name, batch

    @property
    def first_time(self) -> int | None:
        """The time of the first TCP packet, ns; None without the table `connections`."""
        if "connections" not in self._tables:
            return None
        first: int | None = (
            pc.min(self._tables["connections"]["first_time"]).cast(pa.int64()).as_py()
        )
        return first
