"""The connection table: one row for each TCP connection, as arrays that grow.

A connection has two ends, and each stream is what one end sends. Ends are numbered 0 and 1, by
address and port; stream 2 * row + end is what that end sends. Which end is the client is told by
the handshake, by a known port, or by what was sent; -1 until it is known.

`ConnectionTable` is what everybody may read; `StreamTable` is what only this room remembers of each
stream from block to block.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int8, Int32, Int64, UInt16, UInt32, UInt64
from dissector.streams.parking import grown

UNDECIDED, KAFKA, TLS, OTHER = range(4)
"""What a connection carries."""

OPEN, FIN_SEEN, RST_SEEN = range(3)
"""How far a connection has come to its end."""

NEW, HEAD, SEARCHING, FRAMED, RESUMED, ENCRYPTED, IGNORED = range(7)
"""States of a stream, which `state` changes.

NEW        the first byte is not known yet
HEAD       what is at `boundary` is the first byte, and what the connection carries is not decided
SEARCHING  no message is known to begin anywhere
FRAMED     a message begins at `boundary`
RESUMED    the same, by a search; no message has ended with a segment since
ENCRYPTED  the bytes are decrypted
IGNORED    the bytes are not read
"""

NEVER = -1
"""A time that is not known."""

FIRST_TIME, LAST_TIME = np.iinfo(np.int64).min, np.iinfo(np.int64).max

Bools = NDArray[np.bool_]


def _column(dtype: type[np.generic], width: int, fill: int = 0) -> Any:
    shape = (0, width) if width else (0,)
    return field(default_factory=lambda: np.full(shape, fill, dtype), metadata={"fill": fill})


@dataclass(slots=True)
class _Rows:
    """Arrays that grow together, by doubling. Only the first `count` rows are in use.

    Rows of zeros that nothing was written to take no memory; see `parking`.
    """

    count: int = 0

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """All arrays by name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.metadata}

    def add(self, rows: int) -> int:
        """Make room for more rows; the first of them."""
        first, self.count = self.count, self.count + rows
        for each in fields(self):
            if each.metadata:
                column = getattr(self, each.name)
                if self.count > len(column):
                    column = grown(column, max(64, 2 * len(column), self.count))
                    setattr(self, each.name, column)
                if each.metadata["fill"]:
                    column[first : self.count] = each.metadata["fill"]
        return first

    def forget(self, rows: Int64) -> None:
        """Make these rows as if they had never been used."""
        rows = rows[rows < self.count]
        for each in fields(self):
            if each.metadata:
                getattr(self, each.name)[rows] = each.metadata["fill"]

    def reorder(self, rows: Int64) -> None:
        """Put these rows, the last ones of all, in this order."""
        for each in fields(self):
            if each.metadata:
                column = getattr(self, each.name)
                column[self.count - len(rows) : self.count] = column[rows]


@dataclass(slots=True)
class ConnectionTable(_Rows):
    """Arrays of shape (rows,) or, by end, (rows, 2).

    A row that was forgotten serves another connection, so that what lasts is `number`.
    """

    free: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Rows that were forgotten."""
    known: int = 0
    """Connections so far."""
    number: Int64 = _column(np.int64, 0, NEVER)
    """Of the connection among all, from 0; -1 for a row that is not in use."""

    high: UInt64 = _column(np.uint64, 2)
    """Addresses, as in `PacketBlock`."""
    low: UInt64 = _column(np.uint64, 2)
    port: UInt16 = _column(np.uint16, 2)
    client: Int8 = _column(np.int8, 0, -1)
    """Which end is the client: 0, 1, or -1 for not known."""
    protocol: Int8 = _column(np.int8, 0)
    opened: Bools = _column(np.bool_, 0)
    """A SYN was seen."""
    closed: Int8 = _column(np.int8, 0)
    replaced: Bools = _column(np.bool_, 0)
    """The same pair of ports was opened anew."""
    first_time: Int64 = _column(np.int64, 0, LAST_TIME)
    """ns; earliest packet."""
    last_time: Int64 = _column(np.int64, 0, FIRST_TIME)
    """ns; latest packet."""
    capture: Int32 = _column(np.int32, 0)
    """File and number of the first packet."""
    packet: Int64 = _column(np.int64, 0)
    syn_time: Int64 = _column(np.int64, 0, NEVER)
    """ns, of the client's latest SYN."""
    handshake: Int64 = _column(np.int64, 0, NEVER)
    """ns, from the SYN to the client's ACK that ends the handshake: one round trip, wherever
    between the two the capture was taken."""
    isn: Int64 = _column(np.int64, 2, NEVER)
    """Initial sequence number of each end, -1 where its SYN was not seen."""
    packets: Int64 = _column(np.int64, 2)
    bytes: Int64 = _column(np.int64, 2)
    """Payload bytes on the wire, repeated ones too."""
    retransmitted: Int64 = _column(np.int64, 2)
    """Packets with payload and nothing new in it. These and what follows are not counted in
    connections that are known not to be Kafka."""
    out_of_order: Int64 = _column(np.int64, 2)
    """Packets that came after one that follows them in the stream."""
    lost: Int64 = _column(np.int64, 2)
    """Bytes that the capture misses."""
    cut: Int64 = _column(np.int64, 2)
    """Bytes that the capture's snap length left out."""

    def claim(self, count: int) -> Int64:
        """Rows for new connections, which have no number yet."""
        used, self.free = self.free[:count], self.free[count:]
        fresh = count - len(used)
        return np.concatenate([used, self.add(fresh) + np.arange(fresh)])

    def forget(self, rows: Int64) -> None:
        _Rows.forget(self, rows)
        self.free = np.concatenate([self.free, rows])

    @property
    def in_use(self) -> Int64:
        """The rows that connections have, in order of their numbers."""
        rows = np.flatnonzero(self.number[: self.count] != NEVER)
        return rows[np.argsort(self.number[rows])]


@dataclass(slots=True)
class _ByEnd(_Rows):
    """Arrays of shape (rows, 2); `flat` gives them by stream."""

    def flat(self, name: str) -> NDArray[Any]:
        """A column by stream, to read and to write."""
        column: NDArray[Any] = getattr(self, name).reshape(-1)
        return column


@dataclass(slots=True)
class TripTable(_ByEnd):
    """What `roundtrips` remembers of each stream."""

    has_sent: Bools = _column(np.bool_, 2)
    """There was a payload."""
    sent_end: UInt32 = _column(np.uint32, 2)
    """Sequence number behind the latest one."""
    sent_time: Int64 = _column(np.int64, 2, NEVER)
    """ns, of that one; -1 where its acknowledgement was seen, or tells nothing."""
    zero_windows: Int64 = _column(np.int64, 2)


@dataclass(slots=True)
class StreamTable(_ByEnd):
    """What the other stages remember of each stream.

    `state` and `protocol` are changed by `States` alone.
    """

    def is_framed(self, streams: Int64) -> Bools:
        """Which of these streams have a known boundary."""
        state = self.flat("state")[streams]
        framed: Bools = (state == FRAMED) | (state == RESUMED)
        return framed

    state: Int8 = _column(np.int8, 2)
    protocol: Int8 = _column(np.int8, 0)
    """What the connection carries, as far as these streams show."""
    # From the first packet.
    has_anchor: Bools = _column(np.bool_, 2)
    anchor: UInt32 = _column(np.uint32, 2)
    """A sequence number that the first packet told, its own or the one that it acknowledged."""
    # Reassembly.
    has_origin: Bools = _column(np.bool_, 2)
    """`origin` is set."""
    origin: UInt32 = _column(np.uint32, 2)
    """Sequence number of position 0."""
    origin_packet: Int64 = _column(np.int64, 2)
    """Number, among all, and time of the packet that told the origin."""
    origin_time: Int64 = _column(np.int64, 2)
    next_position: Int64 = _column(np.int64, 2)
    """Position of the next byte: everything before it has come, or was given up."""
    highest: Int64 = _column(np.int64, 2, FIRST_TIME)
    """Highest position at which a segment began."""
    readable_time: Int64 = _column(np.int64, 2, FIRST_TIME)
    """ns; when the byte before `next_position` could be read."""
    acknowledged: Int64 = _column(np.int64, 2, FIRST_TIME)
    """Highest position that the other end acknowledged while there was a hole."""
    fin: Int64 = _column(np.int64, 2, LAST_TIME)
    """Position behind the last byte, where a FIN told it."""
    close_deadline: Int64 = _column(np.int64, 2, LAST_TIME)
    """ns; from then on nothing more is waited for."""
    # Framing.
    boundary: Int64 = _column(np.int64, 2)
    """FRAMED, RESUMED: position of the next frame. SEARCHING: bytes before it are not read any
    more."""
    frame_end: Int64 = _column(np.int64, 2, NEVER)
    """Position behind the frame at `boundary`; -1 while its size is not known."""
    framed_until: Int64 = _column(np.int64, 2, FIRST_TIME)
    """Position behind the last frame that was given out; at first, that behind the SYN."""
    frame_count: Int64 = _column(np.int64, 2)
    """How many frames were given out."""
    gap_count: Int64 = _column(np.int64, 2)
    """How many of them do not follow the one before, or the SYN."""
    check_from: Int64 = _column(np.int64, 2)
    """FRAMED, RESUMED: position from which on the body of an incomplete message is read again."""
    search_from: Int64 = _column(np.int64, 2)
    """SEARCHING: position from which on no boundary is known."""
    has_correlation: Bools = _column(np.bool_, 2)
    correlation: Int64 = _column(np.int64, 2)
    """Correlation id: the highest of the requests in this stream; that of the latest response."""
    correlation_before: Int64 = _column(np.int64, 2)
    """The same one block earlier."""
    id_regression: Int64 = _column(np.int64, 2)
    """How far below the one that should come next those of requests are at most."""
