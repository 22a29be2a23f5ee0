"""The result of the column decoders: the requested fields of many messages, a column per field.

Array elements are rows of a `Level`; level 0 has the messages. A column stores the row of each of
its values, so that an absent optional field takes no memory. It also stores the address of each
value, which gives the order of several values in one message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dissector.arrays import arrays
from dissector.packets.block import Int64
from dissector.protocol.notation import Field


@arrays
class Level:
    """The elements of one array over all messages; without a parent, the messages themselves.

    Arrays of shape (rows,). Rows are in the order of decoding. It differs from the order on the
    wire where messages have several elements.
    """

    path: tuple[str, ...]
    """Names of the arrays from the body down to this one."""
    parent: Level | None
    owner: Int64
    """Row of the parent level that holds the element."""
    ordinal: Int64
    """Index of the element in its array."""
    message: Int64
    """Index of the message."""


@arrays
class FieldColumn:
    """One requested field of the layout, with a value for each row that has it.

    Values are in the order of their messages, and in wire order within a message.
    """

    field: Field
    path: tuple[str, ...]
    """Names from the body down to the field."""
    level: Level
    row: Int64
    """Row of `level` of each value."""
    at: Int64
    """Address of the value; for strings, bytes, records and uuids, of the first content byte."""
    values: NDArray[np.generic] | None
    """The numbers; None for strings, bytes, records and uuids."""
    length: Int64 | None
    """Content bytes of each string, bytes, records or uuid; -1 is null. None for numbers."""

    @property
    def message(self) -> Int64:
        """Index of the message of each value."""
        return self.level.message.take(self.row)

    def rows_in(self, target: Level) -> Int64 | None:
        """Row of `target` that contains each value; None if `target` is not an enclosing level."""
        level, row = self.level, self.row
        while level is not target:
            if level.parent is None:
                return None
            level, row = level.parent, level.owner[row]
        return row

    def only(self, wanted: NDArray[np.bool_] | Int64) -> FieldColumn:
        """The column with the values that `wanted`, a mask or indices in any order, selects."""
        return replace(
            self,
            row=self.row[wanted],
            at=self.at[wanted],
            values=None if self.values is None else self.values[wanted],
            length=None if self.length is None else self.length[wanted],
        )


@arrays
class DecodedColumns:
    """The result for n messages: arrays of shape (n,), and the columns of the good messages.

    Columns of level 0 also have the present fields of cut messages.
    """

    good: NDArray[np.bool_]
    """Messages that have all fields of their layout, and an accepted number of surplus bytes."""
    surplus: Int64
    """Bytes after the last field of each good message; 0 for all other messages."""
    columns: list[FieldColumn]

    def by_role(self, role: str) -> Iterator[FieldColumn]:
        """The columns whose field has this role."""
        return (column for column in self.columns if role in column.field.roles)
