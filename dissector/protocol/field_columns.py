"""What a column walker finds: the fields that were asked for, as columns of many messages.

Elements of arrays are rows of a `Level`; level 0 holds the messages. A column names the row of each
of its values, so that optional fields cost nothing, and the address, which orders what one message
has several of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int64
from dissector.protocol.notation import Field

WIDTHS = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
    "float64": 8, "uuid": 16,
}  # fmt: skip
"""Bytes of the types of fixed width."""

DTYPES = {
    "bool": "u1", "int8": "i1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
    "int64": "i8", "float64": "f8",
}  # fmt: skip
"""NumPy's name of each numeric type; a uuid has none, and is kept as a range of bytes."""


@dataclass(slots=True)
class Level:
    """The elements of one array, over all messages; without a parent, the messages themselves.

    Arrays of shape (rows,). Rows stand in the order in which they were walked, which is not the
    order on the wire where messages have several.
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


@dataclass(slots=True)
class FieldColumn:
    """One field of the layout that was asked for, with a value for each row that has it.

    Values stand in the order of their messages, those of a message in the order on the wire.
    """

    field: Field
    path: tuple[str, ...]
    """Names from the body down to the field."""
    level: Level
    row: Int64
    """Row of `level` of each value."""
    at: Int64
    """Address of the value: of the first content byte for strings, bytes, records and uuids."""
    values: NDArray[np.generic] | None
    """The numbers; None for strings, bytes, records and uuids."""
    length: Int64 | None
    """Content bytes of each string, bytes, records or uuid; -1 is null. None for numbers."""

    @property
    def message(self) -> Int64:
        """Index of the message of each value."""
        return self.level.message[self.row]

    def rows_in(self, target: Level) -> Int64 | None:
        """Row of `target` that encloses each value; None where it does not enclose them."""
        level, row = self.level, self.row
        while level is not target:
            if level.parent is None:
                return None
            level, row = level.parent, level.owner[row]
        return row

    def only(self, wanted: NDArray[np.bool_] | Int64) -> FieldColumn:
        """The column with some of its values, by a mask, or by their indices in any order."""
        return replace(
            self,
            row=self.row[wanted],
            at=self.at[wanted],
            values=None if self.values is None else self.values[wanted],
            length=None if self.length is None else self.length[wanted],
        )


@dataclass(frozen=True, slots=True)
class DecodedColumns:
    """The result of one walk: arrays of shape (n,), and the columns of the good messages.

    Of cut messages, columns of level 0 have what is there.
    """

    good: NDArray[np.bool_]
    """Messages that have all fields of their layout, and no more surplus than is accepted."""
    surplus: Int64
    """Bytes behind the last field of each good message; 0 for the others."""
    columns: list[FieldColumn]

    def by_role(self, role: str) -> Iterator[FieldColumn]:
        """The columns whose field has this role."""
        return (column for column in self.columns if role in column.field.roles)
