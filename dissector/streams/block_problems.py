"""BlockProblems: the problems of a block of packets, with a time that does not depend on the block.

The time of a problem is that of a byte of its stream: when the byte at the position in question
could be read or, where that byte is missing, the next one that came.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.block import Int64
from dissector.problems import Problem
from dissector.streams.segments import NO_SEGMENTS, Segments
from dissector.streams.table import FIRST_TIME, ConnectionTable, StreamTable


class BlockProblems:
    """Collects the problems of a block."""

    def __init__(self, table: ConnectionTable, streams: StreamTable) -> None:
        self.problems: list[Problem] = []
        self._table = table
        self._streams = streams
        self._segments = NO_SEGMENTS
        self._numbers = np.zeros(0, np.int64)

    def look_at(self, stream: Int64, segments: Segments) -> None:
        """Take times from these segments, in order. `stream`: the stream of each local number,
        ascending."""
        self._segments, self._numbers = segments, stream

    def add(
        self, stage: str, kind: str, detail: str, stream: int, offset: int | None, size: int,
        *, time: int | None = None, seen_at: int | None = None,
    ) -> None:  # fmt: skip
        """`detail` gets the sender appended; `offset` is a position in the stream.

        `time`: ns; None: that of the byte at position `seen_at`, which is `offset` by default.
        """
        row = stream >> 1
        client = int(self._table.client[row])
        sender = ("broker", "client")[client == stream & 1] if client >= 0 else "one end"
        if time is None:
            time = self._time(stream, offset if seen_at is None else seen_at)
        self.problems.append(
            Problem(
                stage, kind, f"{detail}, in what the {sender} sent", time=time,
                connection_id=row, offset=offset, bytes=size,
            )
        )  # fmt: skip

    def add_skipped(self, stream: int, offset: int, size: int) -> None:
        """Report bytes in which no frame was found. The frame behind them has the time."""
        self.add(
            "frames", "resync", "no frame could be recognised among bytes", stream, offset, size,
            seen_at=offset + size,
        )  # fmt: skip

    def add_memory(self, streams: Int64, offsets: Int64, sizes: Int64) -> None:
        """These streams, from these positions on, do not wait any longer."""
        for stream, at, size in zip(
            streams.tolist(), offsets.tolist(), sizes.tolist(), strict=True
        ):
            self.add(
                "streams", "memory", "memory did not suffice to wait any longer", stream, at, size,
                time=self._last_time(stream),
            )  # fmt: skip

    def _time(self, stream: int, position: int | None) -> int:
        """When the byte at a position could be read, or the next one that is there, ns."""
        segments = self._segments
        if position is None:
            return self._last_time(stream)
        slot = int(np.searchsorted(self._numbers, stream))
        first, end = np.searchsorted(segments.stream, [slot, slot + 1]).tolist()
        behind = segments.at[first:end] + segments.length[first:end]
        index = first + int(np.searchsorted(behind, position, side="right"))
        return int(segments.time[index]) if index < end else self._last_time(stream)

    def _last_time(self, stream: int) -> int:
        """When the latest byte of the stream that is in order could be read, ns."""
        time = int(self._streams.flat("readable_time")[stream])
        return time if time != FIRST_TIME else int(self._table.last_time[stream >> 1])
