"""Columns of answers, declared without Arrow: ``--help`` reads every declaration.

`resolved` turns them into `TableColumn`, with types of Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dissector.arrays import value

if TYPE_CHECKING:
    from dissector.tables import TableColumn


@value
class Column:
    """A column with its meaning, or one that a table of the dissector declares."""

    name: str
    type: str = ""
    """A name of `pyarrow.type_for_alias`; ``time``: ns in UTC."""
    meaning: str = ""
    """A noun phrase."""
    unit: str = ""
    table: str = ""
    """The table that declares the column; then type, meaning and unit are those of the table."""


def columns_of(table: str, *names: str) -> tuple[Column, ...]:
    """Columns that a table of the dissector declares."""
    return tuple(Column(name, table=table) for name in names)


def first_and_last(thing: str) -> tuple[Column, Column]:
    """The times of the first and of the last of things."""
    return (
        Column("first_time", "time", f"time of the first {thing}"),
        Column("last_time", "time", f"time of the last {thing}"),
    )


def resolved(columns: Iterable[Column]) -> tuple[TableColumn, ...]:
    """The columns, with types of Arrow."""
    return tuple(map(_resolved, columns))


def _resolved(column: Column) -> TableColumn:
    import pyarrow as pa

    from dissector.tables import TABLES, TIME, TableColumn

    if column.table:
        return next(c for c in TABLES[column.table].columns if c.name == column.name)
    type = TIME if column.type == "time" else pa.type_for_alias(column.type)
    return TableColumn(column.name, type, column.meaning, column.unit)
