"""Sequence numbers of a cut without gaps.

A cut lacks the messages between the chosen ones. So the messages after a gap are found by a
search, which needs more evidence than some messages have. Without the gap, each message begins
where the one before it ends.
"""

from __future__ import annotations

import numpy as np

from analysis.cutting.messages import Messages
from dissector.packets.block import Int64

_MASK = (1 << 32) - 1
_HALF = 1 << 31


class ClosedGaps:
    """Numbers the bytes of the chosen messages of a stream one after the other."""

    def __init__(self, origin: int, begin: Int64, length: Int64) -> None:
        """`origin`: sequence number of the first byte of the stream. `begin`, `length`: of the
        messages; their bytes are less than 2 GB apart."""
        self._origin = origin
        low = (begin - origin) & _MASK
        order = np.argsort(low, kind="stable")
        self._low, high = low[order], (low + length)[order]
        # A message that was sent twice counts once.
        until = np.maximum.accumulate(np.append(0, high[:-1])) if len(high) else high
        own = np.maximum(high - np.maximum(self._low, until), 0)
        self._high, self._before = high, np.cumsum(own) - own

    @classmethod
    def of(cls, messages: Messages, stream: int, isn: int | None) -> ClosedGaps:
        """Of the messages of a stream. `isn`: its initial sequence number, if it is known."""
        index = np.flatnonzero(messages.stream == stream)
        index = index[np.argsort(messages.first_time[index], kind="stable")]
        begin = messages.begin[index]
        first = int(begin[0]) if len(index) else 0
        origin = first if isn is None else (isn + 1) & _MASK
        return cls(origin, begin, messages.length[index])

    def number(self, sequence: int) -> int:
        """The new number of a byte; a byte in a gap gets that of the byte after it."""
        position = (sequence - self._origin) & _MASK
        if position >= _HALF:  # a SYN comes before the first byte
            return sequence
        at = int(np.searchsorted(self._low, position, "right")) - 1
        if at < 0:
            return self._origin
        inside = min(position, int(self._high[at])) - int(self._low[at])
        return (self._origin + int(self._before[at]) + inside) & _MASK
