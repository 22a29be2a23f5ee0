"""BlockProblems: the problems of a block of packets, with times that do not depend on the block.

The time of a problem is the time at which the byte at its position became readable. If that byte is
missing, the next byte counts.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.block import Int64
from dissector.problems import Problem
from dissector.streams.connections.table import (
    FIRST_TIME,
    KAFKA,
    NEVER,
    SEARCHING,
    ConnectionTable,
    StreamTable,
)
from dissector.streams.segments import NO_SEGMENTS, Segments


class BlockProblems:
    """Collects the problems of a block."""

    def __init__(self, table: ConnectionTable, streams: StreamTable) -> None:
        self.problems: list[Problem] = []
        self._table = table
        self._streams = streams
        self._senders: dict[int, str] = {}
        self.set_segments(np.zeros(0, np.int64), NO_SEGMENTS)

    def set_segments(self, stream_ids: Int64, segments: Segments) -> None:
        """Use the times of these segments, which are in order. `stream_ids`: the stream of each
        slot, ascending."""
        self._segments, self._stream_ids = segments, stream_ids
        self._behind = segments.at + segments.length
        self._first = np.searchsorted(segments.stream, np.arange(len(stream_ids) + 1)).tolist()

    def add(
        self, stage: str, kind: str, detail: str, stream: int, offset: int | None, size: int,
        *, time: int | None = None, seen_at: int | None = None,
    ) -> None:  # fmt: skip
        """The sender is appended to `detail`: its address, since the client may be unknown yet.

        `offset`: a position in the stream. `time`: ns; default: that of the byte at position
        `seen_at`, which is `offset` by default.
        """
        if stream not in self._senders:
            self._senders[stream] = self._table.endpoint(stream)
        if time is None:
            time = self._time(stream, offset if seen_at is None else seen_at)
        self.problems.append(
            Problem(
                stage, kind, f"{detail} (sent by {self._senders[stream]})", time=time,
                connection_id=stream >> 1, offset=offset, bytes=size,
            )
        )  # fmt: skip

    def add_skipped(self, stream: int, offset: int, size: int) -> None:
        """Report bytes without frames. The time is that of the frame after them.

        A capture that starts in a connection may begin with a keep-alive: one byte before the next
        one (RFC 9293, section 3.8.4), which is not data.
        """
        if size == 1 and offset <= 0 and self._table.isn.reshape(-1)[stream] == NEVER:
            return
        self.add(
            "frames", "resync", "no frame was recognised in these bytes", stream, offset, size,
            seen_at=offset + size,
        )  # fmt: skip

    def add_skipped_ends(self, stream_ids: Int64) -> None:
        """Report skipped bytes of Kafka connections from before the protocol was decided, apart
        from these streams, which have bytes in this block."""
        streams = self._streams
        skipped = streams.state == SEARCHING
        skipped &= streams.boundary > streams.search_from
        skipped &= np.repeat(streams.protocol == KAFKA, 2)
        for stream in np.setdiff1d(np.flatnonzero(skipped), stream_ids).tolist():
            since, until = int(streams.search_from[stream]), int(streams.boundary[stream])
            self.add_skipped(stream, since, until - since)

    def add_memory(self, streams: Int64, offsets: Int64, sizes: Int64) -> None:
        """Report streams that stop waiting at these positions, because memory is exhausted."""
        for stream, at, size in zip(
            streams.tolist(), offsets.tolist(), sizes.tolist(), strict=True
        ):
            self.add(
                "streams", "memory",
                "the memory budget is exceeded, so the stream does not wait for missing bytes",
                stream, at, size, time=self._last_time(stream),
            )  # fmt: skip

    def _time(self, stream: int, position: int | None) -> int:
        """When the byte at a position, or the next byte that is not missing, became readable."""
        index = None if position is None else self._segment(stream, position)
        return self._last_time(stream) if index is None else int(self._segments.time[index])

    def _segment(self, stream: int, position: int) -> int | None:
        """Index of the segment with the byte at a position, or with the next byte; None if there
        is none."""
        slot = int(self._stream_ids.searchsorted(stream))
        if slot == len(self._stream_ids) or self._stream_ids[slot] != stream:
            return None
        first, end = self._first[slot], self._first[slot + 1]
        index = first + int(self._behind[first:end].searchsorted(position, "right"))
        return index if index < end else None

    def _last_time(self, stream: int) -> int:
        """When the latest byte of the stream that is in order became readable, ns."""
        time = int(self._streams.readable_time[stream])
        return time if time != FIRST_TIME else int(self._table.last_time[stream >> 1])
