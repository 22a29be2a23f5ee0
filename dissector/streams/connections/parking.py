"""Parking: a connection without data takes a few dozen bytes.

In a port scan, or a flood of SYNs, each packet opens a connection, and a connection has sixty
columns. So chunks of rows without payload are packed while no packet arrives for them. A packed
column consists of its smallest value, and of the difference of each row from it, in as few bytes as
the largest difference needs. The memory of the rows is returned to the system; they then read as
zeros. Rows are restored before they are read again.

If the system cannot release a part of a column's memory (see `mapped`), nothing is packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dissector.packets.block import Int64
from dissector.streams.connections.mapped import CHUNK, IS_RELEASABLE, MAPPED, Column, release
from dissector.streams.connections.table import ConnectionTable, Rows

NEVER_PACKED: Final = frozenset({"number", "client", "closed", "replaced"})
"""Columns whose rows are all read at once."""

_Packed = tuple[Column, list[Column | None]]
"""The smallest value of each lane of a column, and the differences; None if all are equal."""


def _pack(rows: Column) -> _Packed:
    lanes = rows.reshape(len(rows), -1)
    if lanes.dtype == np.bool_:
        lanes = lanes.view(np.uint8)
    smallest = lanes.min(axis=0)
    unsigned = f"u{lanes.itemsize}"
    differences: list[Column | None] = []
    for lane, least in zip(lanes.T, smallest.view(unsigned), strict=True):
        above = np.ascontiguousarray(lane).view(unsigned) - least
        most = int(above.max())
        differences.append(above.astype(np.min_scalar_type(most)) if most else None)
    return smallest, differences


def _unpack(packed: _Packed, rows: Column) -> None:
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
        self._packed: dict[int, list[tuple[Rows, dict[str, _Packed]]]] = {}
        self._inspected = 0  # earlier chunks are packed, carry data, or are in _empty
        self._empty: set[int] = set()
        """Chunks that are not packed, and carried no data when they were inspected."""

    def restore(self, rows: Int64) -> None:
        """Restore the chunks of these rows."""
        if not self._packed:
            return
        for chunk in np.unique(rows // CHUNK).tolist():
            begin = chunk * CHUNK
            for table, packed in self._packed.pop(chunk, ()):
                for name, column, _ in table.columns:
                    if name in packed:
                        _unpack(packed[name], column[begin : begin + CHUNK])
                self._empty.add(chunk)

    def park(self, tables: Sequence[Rows], recent: Int64) -> None:
        """Pack all chunks that carry no data and contain no `recent` row."""
        if not IS_RELEASABLE or self._connections.count < MAPPED:
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


def _pack_chunk(table: Rows, begin: int) -> dict[str, _Packed]:
    """Pack a chunk of a table, and return its memory to the system."""
    packed = {}
    for name, column, _ in table.columns:
        if name not in NEVER_PACKED:
            packed[name] = _pack(column[begin : begin + CHUNK])
            release(column, begin)
    return packed
