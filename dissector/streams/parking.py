"""Parking: a connection without data takes a few dozen bytes.

In a port scan, or a flood of SYNs, each packet opens a connection, and a connection has sixty
columns. So chunks of rows without payload are packed while no packet arrives for them. A packed
column consists of its smallest value, and of the difference of each row from it, in as few bytes as
the largest difference needs. The memory of the rows is returned to the system; they then read as
zeros. Rows are restored before they are read again.

Columns of large tables have their own memory mapping. If the system cannot release such memory in
part, nothing is packed.
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

CHUNK: Final = 4096
"""Rows that are packed together. With one byte per row they fill a page."""
MAPPED: Final = 4 * CHUNK
"""Number of rows from which on a column is mapped."""
NEVER_PACKED: Final = frozenset({"number", "client", "closed", "replaced"})
"""Columns whose rows are all read at once."""
_IS_RELEASABLE: Final = hasattr(mmap, "MADV_DONTNEED") and hasattr(mmap, "MAP_PRIVATE")

_Column = NDArray[Any]
_Packed = tuple[_Column, list[_Column | None]]
"""The smallest value of each lane of a column, and the differences; None if all are equal."""


def grown(column: _Column, rows: int) -> _Column:
    """A longer copy of a column, padded with zeros; chunks of zeros take no memory."""
    shape = (rows, *column.shape[1:])
    if rows < MAPPED or not _IS_RELEASABLE:
        longer: _Column = np.zeros(shape, column.dtype)
        longer[: len(column)] = column
        return longer
    size = int(np.prod(shape)) * column.itemsize
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    longer = np.frombuffer(memory, column.dtype).reshape(shape)
    for begin in range(0, len(column), CHUNK):
        part = column[begin : begin + CHUNK]
        if part.any():
            longer[begin : begin + len(part)] = part
    return longer


def _release(column: _Column, begin: int) -> None:
    """Return the memory of a chunk of rows to the system; the rows then read as zero."""
    memory: Any = column.base
    while isinstance(memory, np.ndarray):
        memory = memory.base
    memory = getattr(memory, "obj", None)  # of a memoryview
    size = column[:1].nbytes
    if isinstance(memory, mmap.mmap) and begin * size % mmap.PAGESIZE == 0:
        memory.madvise(mmap.MADV_DONTNEED, begin * size, CHUNK * size)


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
    """Packs and restores the rows of parallel tables; `connections` is the first of them."""

    def __init__(self, connections: ConnectionTable) -> None:
        self._connections = connections
        self._packed: dict[int, list[tuple[_Rows, dict[str, _Packed]]]] = {}
        self._inspected = 0  # earlier chunks are packed, carry data, or are in _empty
        self._empty: set[int] = set()
        """Chunks that are not packed, and carried no data when they were inspected."""

    def restore(self, rows: Int64) -> None:
        """Restore the chunks of these rows."""
        if not self._packed:
            return
        for chunk in np.unique(rows // CHUNK).tolist():
            begin = chunk * CHUNK
            for table, columns in self._packed.pop(chunk, ()):
                for name, packed in columns.items():
                    _unpack(packed, getattr(table, name)[begin : begin + CHUNK])
                self._empty.add(chunk)

    def park(self, tables: Sequence[_Rows], recent: Int64) -> None:
        """Pack all chunks that carry no data and contain no `recent` row."""
        if not _IS_RELEASABLE or self._connections.count < MAPPED:
            return
        whole = min(table.count for table in tables) // CHUNK
        self._empty.update(range(self._inspected, whole))
        self._inspected = max(self._inspected, whole)
        busy = set(np.unique(recent // CHUNK).tolist())
        for chunk in sorted(self._empty - busy):
            self._empty.remove(chunk)
            begin = chunk * CHUNK
            if not self._connections.bytes[begin : begin + CHUNK].any():
                self._packed[chunk] = [(table, _pack_chunk(table, begin)) for table in tables]


def _pack_chunk(table: _Rows, begin: int) -> dict[str, _Packed]:
    """Pack a chunk of a table, and return its memory to the system."""
    packed = {}
    for name, column in table.columns.items():
        if name not in NEVER_PACKED:
            packed[name] = _pack(column[begin : begin + CHUNK])
            _release(column, begin)
    return packed
