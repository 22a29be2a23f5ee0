"""The state of connections that moves from one table to another.

The state of several connections is taken from one process and put into another one, where they have
other rows. In between, connections are numbered by their index in the array of rows that was taken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from dissector.arrays import mutable
from dissector.packets.block import Bytes, Int32, Int64
from dissector.streams.connections.rows import chosen, places
from dissector.streams.connections.table import Columns, streams_at
from dissector.streams.segments import Segments

if TYPE_CHECKING:
    from dissector.problems import Problem
    from dissector.tls import TlsFacts
    from dissector.tls.session import TlsSession

TlsState: TypeAlias = "tuple[TlsFacts, TlsSession | None, bool, bool]"
"""See `TlsStreams.take`."""


@mutable
class StreamStates:
    """The state of n connections, numbered from 0: what `take` of each stage returned."""

    connections: Columns
    streams: Columns
    carried: tuple[Segments, Bytes]
    rejected: dict[int, set[int]]
    requests: tuple[Int64, Int64, Int32]
    tls: dict[int, TlsState]
    first_bytes: dict[int, bytes]
    gaps: dict[int, list[Problem]]
    round_trips: tuple[Columns, Int64, Int64, Int64] | None

    def select(self, index: Int64) -> StreamStates:
        """The state of the connections at `index`."""
        streams = streams_at(index)
        segments, data = self.carried
        kept, stream = places(segments.stream, streams)
        trips = self.round_trips
        return StreamStates(
            {name: column[index] for name, column in self.connections.items()},
            {name: column[index] for name, column in self.streams.items()},
            (replace(segments[kept], stream=stream), data),
            chosen(self.rejected, streams),
            _of_streams(self.requests, streams),
            chosen(self.tls, index),
            chosen(self.first_bytes, index),
            chosen(self.gaps, index),
            trips
            and (
                {name: column[index] for name, column in trips[0].items()},
                *_of_streams(trips[1:], streams),
            ),
        )


def _of_streams(columns: tuple[Int64, Any, Any], streams: Int64) -> tuple[Int64, Any, Any]:
    """The rows of these streams. The first column is the stream, as its index in `streams`."""
    index, stream = places(columns[0], streams)
    return stream, columns[1][index], columns[2][index]
