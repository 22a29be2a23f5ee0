"""Gaps of connections whose protocol is not known yet.

A stream is followed until it is known not to be Kafka. How many gaps it has until then depends on
the size of the blocks. So gaps are reported once the connection is known to carry Kafka, or if it
ends undecided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from dissector.packets.block import Int64
from dissector.problems import Problem
from dissector.streams.connections.rows import chosen
from dissector.streams.connections.table import KAFKA, OTHER, UNDECIDED, ConnectionTable

MOST_GAPS: Final = 1000
"""Gaps of a connection that wait for its protocol; later ones are reported at once."""


class UndecidedGaps:
    """Keeps the problems of gaps until the protocol of their connection is known."""

    def __init__(self, table: ConnectionTable) -> None:
        self._table = table
        self._gaps: dict[int, list[Problem]] = {}

    def decided(self, gaps: list[Problem]) -> list[Problem]:
        """Those of these new gaps, and of earlier ones, that can be reported now."""
        reported: list[Problem] = []
        for gap in gaps:
            assert gap.connection_id is not None
            waiting = self._gaps.setdefault(gap.connection_id, [])
            (waiting if len(waiting) < MOST_GAPS else reported).append(gap)
        rows = np.fromiter(self._gaps, np.int64, len(self._gaps))
        protocol = self._table.protocol[rows]
        for row in rows[protocol == KAFKA].tolist():
            reported += self._gaps.pop(row)
        self.forget(rows[protocol == OTHER])
        return reported

    def undecided(self, rows: Int64) -> list[Problem]:
        """The gaps of those of these connections that ended undecided."""
        undecided = rows[self._table.protocol[rows] == UNDECIDED] if self._gaps else rows[:0]
        return [gap for row in undecided.tolist() for gap in self._gaps.get(row, [])]

    def forget(self, rows: Int64) -> None:
        """Drop the gaps of these connections."""
        for row in rows.tolist() if self._gaps else ():
            self._gaps.pop(row, None)

    def take(self, rows: Int64) -> dict[int, list[Problem]]:
        """The gaps of these connections, by index in `rows`."""
        return chosen(self._gaps, rows)

    def put(self, rows: Int64, taken: Mapping[int, list[Problem]]) -> None:
        """Add what `take` returned. `rows`: the row of each connection."""
        for index, gaps in taken.items():
            row = int(rows[index])
            self._gaps[row] = [replace(gap, connection_id=row) for gap in gaps]
