"""The classes that declare a table and its columns."""

from __future__ import annotations

import pyarrow as pa

from dissector.arrays import value


@value
class TableColumn:
    """One column of a table."""

    name: str
    type: pa.DataType
    meaning: str
    unit: str = ""


@value
class Table:
    """One table."""

    name: str
    row: str
    """Meaning of a row."""
    columns: tuple[TableColumn, ...]
    opt_in: bool = False
    """Built only if requested by name."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        return pa.schema([(column.name, column.type) for column in self.columns])
