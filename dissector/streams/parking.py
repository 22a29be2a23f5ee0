"""Parking: rows of connections that carry no data take a few dozen bytes.

A port scan, or a flood of SYNs, makes a connection of each packet, and a connection has sixty
columns. So stretches of rows without any payload are packed while nothing comes for them: of each
column the smallest value is kept, and how far each row is above it, in as few bytes as the largest
difference needs. The memory of the rows goes back to the system, which gives zeros in its place.
Rows are restored before they are read again.

Columns of large tables lie in memory that is mapped for them alone. Where the system cannot take
such memory back in part, nothing is packed.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int64

if TYPE_CHECKING:
    from dissector.streams.table import ConnectionTable, _Rows

STRETCH: Final = 4096
"""Rows that are packed together: with a byte for a row they fill a page."""
MAPPED: Final = 4 * STRETCH
"""Rows from which on a column is mapped."""
READ_WHOLE: Final = frozenset({"number", "client", "closed", "replaced"})
"""Columns of which all rows are read at once, so that they are not packed."""
_IS_RELEASABLE: Final = hasattr(mmap, "MADV_DONTNEED") and hasattr(mmap, "MAP_PRIVATE")

_Column = NDArray[Any]
_Packed = tuple[_Column, list[_Column | None]]
"""The smallest value of each lane of a column, and the differences; None where all are equal."""


def grown(column: _Column, rows: int) -> _Column:
    """A longer copy of a column, with zeros behind it; stretches of zeros take no memory."""
    shape = (rows, *column.shape[1:])
    if rows < MAPPED or not _IS_RELEASABLE:
        longer: _Column = np.zeros(shape, column.dtype)
        longer[: len(column)] = column
        return longer
    size = int(np.prod(shape)) * column.itemsize
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    longer = np.frombuffer(memory, column.dtype).reshape(shape)
    for begin in range(0, len(column), STRETCH):
        part = column[begin : begin + STRETCH]
        if part.any():
            longer[begin : begin + len(part)] = part
    return longer


def _release(column: _Column, begin: int) -> None:
    """Give back the memory of a stretch of rows, which then read as zero."""
    memory: Any = column.base
    while isinstance(memory, np.ndarray):
        memory = memory.base
    memory = getattr(memory, "obj", None)  # of a memoryview
    size = column[:1].nbytes
    if isinstance(memory, mmap.mmap) and begin * size % mmap.PAGESIZE == 0:
        memory.madvise(mmap.MADV_DONTNEED, begin * size, STRETCH * size)


def _pack(rows: _Column) -> _Packed:
    lanes = rows.reshape(len(rows), -1)
    if lanes.dtype == np.bool_:
        lanes = lanes.view(np.uint8)
    smallest = lanes.min(axis=0)
    unsigned = f"u{lanes.itemsize}"
    differences: list[_Column | None] = []
    for lane, least in zip(lanes.T, smallest.view(unsigned), strict=True):
        above = np.ascontiguousarray(lane).view(unsigned) - least
        most = int(above.max())
        differences.append(above.astype(np.min_scalar_type(most)) if most else None)
    return smallest, differences


def _unpack(packed: _Packed, rows: _Column) -> None:
    smallest, differences = packed
    lanes = rows.reshape(len(rows), -1).view(f"u{rows.itemsize}")
    for lane, (least, above) in enumerate(
        zip(smallest.view(lanes.dtype), differences, strict=True)
    ):
        lanes[:, lane] = least if above is None else least + above.astype(lanes.dtype)


class Parking:
    """Packs and restores rows of tables that have the same rows; the first one is `connections`."""

    def __init__(self, connections: ConnectionTable) -> None:
        self._connections = connections
        self._packed: dict[int, list[tuple[_Rows, dict[str, _Packed]]]] = {}
        self._looked = 0  # stretches before it are packed, carry data, or are in _empty
        self._empty: set[int] = set()
        """Stretches that are not packed, and carried no data when they were looked at."""

    def restore(self, rows: Int64) -> None:
        """Have these rows in the tables."""
        if not self._packed:
            return
        for stretch in np.unique(rows // STRETCH).tolist():
            begin = stretch * STRETCH
            for table, columns in self._packed.pop(stretch, ()):
                for name, packed in columns.items():
                    _unpack(packed, getattr(table, name)[begin : begin + STRETCH])
                self._empty.add(stretch)

    def park(self, tables: Sequence[_Rows], recent: Int64) -> None:
        """Pack all stretches that carry no data, and of which no row is a `recent` one."""
        if not _IS_RELEASABLE or self._connections.count < MAPPED:
            return
        whole = min(table.count for table in tables) // STRETCH
        self._empty.update(range(self._looked, whole))
        self._looked = max(self._looked, whole)
        busy = set(np.unique(recent // STRETCH).tolist())
        for stretch in sorted(self._empty - busy):
            self._empty.remove(stretch)
            begin = stretch * STRETCH
            if not self._connections.bytes[begin : begin + STRETCH].any():
                self._packed[stretch] = [(table, _taken(table, begin)) for table in tables]


def _taken(table: _Rows, begin: int) -> dict[str, _Packed]:
    """A stretch of a table, packed; its memory is given back."""
    packed = {}
    for name, column in table.columns.items():
        if name not in READ_WHOLE:
            packed[name] = _pack(column[begin : begin + STRETCH])
            _release(column, begin)
    return packed
