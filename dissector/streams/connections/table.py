"""The connection table: one row for each TCP connection, as arrays that grow.

A connection has two ends. Ends are numbered 0 and 1, by address and port. A stream is one direction
of a connection: end `end` sends stream 2 * row + end. So `stream >> 1` is the row, `stream & 1` the
end, and `stream ^ 1` the opposite stream. The handshake, a known port, or the messages show which
end is the client; -1 until it is known.

All packages may read `ConnectionTable`; only this package uses `StreamTable`, its state of each
stream from block to block.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dissector.arrays import mutable
from dissector.packets.block import Int8, Int32, Int64, UInt16, UInt32, UInt64
from dissector.streams import sequence
from dissector.streams.connections.mapped import grown

UNDECIDED, KAFKA, TLS, OTHER = range(4)
"""Protocols of a connection."""

OPEN, FIN_SEEN, RST_SEEN = range(3)
"""How a connection was closed; the sum if FIN and RST were seen."""

NEW, HEAD, SEARCHING, FRAMED, RESUMED, ENCRYPTED, IGNORED = range(7)
"""States of a stream, which `state` changes.

NEW        the position of the first byte is not known yet
HEAD       the first byte is at `boundary`; the protocol of the connection is not decided
SEARCHING  no message boundary is known
FRAMED     a message begins at `boundary`
RESUMED    a search found that a message begins at `boundary`; since then no message has ended where
           a segment ends
ENCRYPTED  the bytes go to the decryption
IGNORED    the bytes are not read
"""

NEVER = -1
"""An unknown time, or an unknown number."""

FIRST_TIME, LAST_TIME = np.iinfo(np.int64).min, np.iinfo(np.int64).max

Bools = NDArray[np.bool_]
Endpoint: TypeAlias = tuple[int, int, int]
"""Address and port: high, low and port as in `PacketBlock`."""


def streams_at(rows: Int64) -> Int64:
    """The two streams of each of these connections."""
    return (2 * rows[:, None] + np.arange(2)).ravel()


def by_connection(dtype: type[np.generic], width: int, fill: int = 0) -> Any:
    """A column of a table, with `width` items for each row, or one."""
    shape = (0, width) if width else (0,)
    metadata = {"fill": fill, "shape": (-1, *shape[1:])}
    return field(default_factory=lambda: np.full(shape, fill, dtype), metadata=metadata)


def _by_stream(dtype: type[np.generic], fill: int = 0) -> Any:
    metadata = {"fill": fill, "shape": (-1, 2)}
    return field(default_factory=lambda: np.full(0, fill, dtype), metadata=metadata)


Columns: TypeAlias = dict[str, NDArray[Any]]
"""Columns of a table by name."""


@mutable
class Rows:
    """Arrays that grow together, by doubling. Only the first `count` rows are in use.

    An array by stream has two items for each row. Rows that were never written take no memory; see
    `mapped`.
    """

    count: int = 0

    @property
    def columns(self) -> list[tuple[str, NDArray[Any], int]]:
        """Name, values and initial value of each column. Values: a view of shape (rows,), or of
        shape (rows, 2) if the column has a value for each end or stream."""
        return [
            (each.name, getattr(self, each.name).reshape(each.metadata["shape"]), fill)
            for each in fields(self)
            if (fill := each.metadata.get("fill")) is not None
        ]

    def add(self, rows: int) -> int:
        """Append rows, and return the index of the first one."""
        first, self.count = self.count, self.count + rows
        for name, column, fill in self.columns:
            if self.count > len(column):
                column = grown(column, max(64, 2 * len(column), self.count))
                setattr(self, name, column.reshape(-1) if getattr(self, name).ndim == 1 else column)
            if fill:
                column[first : self.count] = fill
        return first

    def grow(self, count: int) -> None:
        """Append rows until there are `count`."""
        self.add(max(count - self.count, 0))

    def forget(self, rows: Int64) -> None:
        """Reset these rows to their initial values."""
        rows = rows[rows < self.count]
        for _, column, fill in self.columns:
            column[rows] = fill

    def take(self, rows: Int64) -> Columns:
        """A copy of these rows, column by column."""
        taken, known = {}, rows < self.count
        for name, column, fill in self.columns:
            taken[name] = np.full((len(rows), *column.shape[1:]), fill, column.dtype)
            taken[name][known] = column[rows[known]]
        return taken

    def put(self, rows: Int64, columns: Mapping[str, NDArray[Any]]) -> None:
        """Overwrite these rows; they are added if necessary."""
        self.grow(int(rows.max(initial=-1)) + 1)
        for name, column, _ in self.columns:
            column[rows] = columns[name]

    def reorder(self, rows: Int64) -> None:
        """Reorder the last rows of the table; `rows`: their new order."""
        for _, column, _ in self.columns:
            column[self.count - len(rows) : self.count] = column[rows]


@mutable
class ConnectionTable(Rows):
    """Arrays of shape (rows,) or, by end, (rows, 2).

    A forgotten row is reused for another connection. `number` is unique.
    """

    free: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Forgotten rows."""
    known: int = 0
    """Number of connections so far."""
    number: Int64 = by_connection(np.int64, 0, NEVER)
    """Number of the connection in the capture, from 0; -1 for a row that is not in use."""

    high: UInt64 = by_connection(np.uint64, 2)
    """Addresses, as in `PacketBlock`."""
    low: UInt64 = by_connection(np.uint64, 2)
    port: UInt16 = by_connection(np.uint16, 2)
    client: Int8 = by_connection(np.int8, 0, -1)
    """End of the client: 0, 1, or -1 if unknown."""
    protocol: Int8 = by_connection(np.int8, 0)
    opened: Bools = by_connection(np.bool_, 0)
    """A SYN was seen."""
    closed: Int8 = by_connection(np.int8, 0)
    replaced: Bools = by_connection(np.bool_, 0)
    """A later connection uses the same pair of ports."""
    first_time: Int64 = by_connection(np.int64, 0, LAST_TIME)
    """ns; earliest packet."""
    last_time: Int64 = by_connection(np.int64, 0, FIRST_TIME)
    """ns; latest packet."""
    capture: Int32 = by_connection(np.int32, 0)
    """File and number of the first packet."""
    packet: Int64 = by_connection(np.int64, 0)
    syn_time: Int64 = by_connection(np.int64, 0, NEVER)
    """ns; the client's latest SYN."""
    handshake: Int64 = by_connection(np.int64, 0, NEVER)
    """ns from the SYN to the client's ACK that ends the handshake: one round trip, wherever
    between the two ends the capture was taken."""
    isn: Int64 = by_connection(np.int64, 2, NEVER)
    """Initial sequence number of each end; -1 if its SYN was not seen."""
    packets: Int64 = by_connection(np.int64, 2)
    bytes: Int64 = by_connection(np.int64, 2)
    """Payload bytes on the wire, retransmissions included."""
    # Connections known not to be Kafka are not counted in the next four.
    retransmitted: Int64 = by_connection(np.int64, 2)
    """Packets with payload that contain no new byte."""
    out_of_order: Int64 = by_connection(np.int64, 2)
    """Packets that arrived after a later segment of the stream."""
    lost: Int64 = by_connection(np.int64, 2)
    """Bytes that are missing in the capture."""
    cut: Int64 = by_connection(np.int64, 2)
    """Bytes that the snap length of the capture truncated."""
    # Counted by `dissector.tables.connections`.
    requests: Int64 = by_connection(np.int64, 0)
    responses: Int64 = by_connection(np.int64, 0)

    def claim(self, count: int) -> Int64:
        """Allocate rows for new connections; they have no number yet."""
        used, self.free = self.free[:count], self.free[count:]
        fresh = count - len(used)
        return np.concatenate([used, self.add(fresh) + np.arange(fresh)])

    def forget(self, rows: Int64) -> None:
        Rows.forget(self, rows)
        self.free = np.concatenate([self.free, rows])

    def endpoint(self, stream: int) -> str:
        """The address and port that send a stream, such as ``10.0.0.9:9092``."""
        row, end = stream >> 1, stream & 1
        high, low = int(self.high[row, end]), int(self.low[row, end])
        address = ipaddress.IPv6Address(high << 64 | low)
        host = str(address.ipv4_mapped or f"[{address}]")
        return f"{host}:{self.port[row, end]}"

    def endpoints(self, rows: Int64, end: Int64 | Int8 | int) -> list[Endpoint]:
        """The endpoint of each of these connections at `end`."""
        columns = (self.high[rows, end], self.low[rows, end], self.port[rows, end])
        return list(zip(*(each.tolist() for each in columns), strict=True))

    def is_client(self, streams: Int64) -> Bools:
        """Whether the client sends each stream; false if it is not known which end that is."""
        is_client: Bools = self.client[streams >> 1] == streams & 1
        return is_client

    def has_bytes(self, streams: Int64) -> Bools:
        """Whether a packet of each stream has payload."""
        has_bytes: Bools = self.bytes.reshape(-1)[streams] > 0
        return has_bytes

    @property
    def in_use(self) -> Int64:
        """Rows in use, in order of their numbers."""
        rows = np.flatnonzero(self.number[: self.count] != NEVER)
        return rows[np.argsort(self.number[rows])]


@mutable
class TripTable(Rows):
    """State of `roundtrips`: arrays by stream."""

    has_sent: Bools = _by_stream(np.bool_)
    """A packet with payload was seen."""
    sent_end: UInt32 = _by_stream(np.uint32)
    """Sequence number after the latest payload."""
    sent_time: Int64 = _by_stream(np.int64, NEVER)
    """ns; time of that payload. -1 if its acknowledgement was seen, or cannot be measured."""
    zero_windows: Int64 = _by_stream(np.int64)
    """Packets that announce a receive window of 0."""


@mutable
class StreamTable(Rows):
    """State of the other stages: arrays by stream, but for two that are by connection.

    Only `States` changes `state` and `protocol`.
    """

    def is_framed(self, streams: Int64) -> Bools:
        """Whether each stream has a known boundary."""
        state = self.state[streams]
        framed: Bools = (state == FRAMED) | (state == RESUMED)
        return framed

    def next_sequence(self, streams: Int64) -> UInt32:
        """The sequence number of the next byte of each stream."""
        return sequence.numbers(self.next_position[streams], self.origin[streams])

    def positions(self, streams: Int64, seq: UInt32) -> Int64:
        """The positions of sequence numbers in these streams."""
        origin, near = self.origin[streams], self.next_position[streams]
        return sequence.positions(seq, origin, near)

    state: Int8 = _by_stream(np.int8)
    protocol: Int8 = by_connection(np.int8, 0)
    """Protocol of the connection, as far as these streams show."""
    # From the first packet.
    was_undecided: Bools = by_connection(np.bool_, 0)
    """The first bytes of the client did not decide the protocol, or decided against Kafka."""
    anchor: Int64 = _by_stream(np.int64, NEVER)
    """Sequence or acknowledgement number of the first packet. Of a stream with a SYN: the number of
    an ACK before the first payload, see `origins`. -1 if there is none."""
    has_syn_ack: Bools = _by_stream(np.bool_)
    """`syn_ack` is set. Both are zero in most rows, and then take no memory."""
    syn_ack: UInt32 = _by_stream(np.uint32)
    """Number that the receiver's SYN-ACK acknowledged, if it is not the one after the SYN, until a
    packet shows which of both is right."""
    # Reassembly.
    has_origin: Bools = _by_stream(np.bool_)
    """`origin` is set."""
    origin: UInt32 = _by_stream(np.uint32)
    """Sequence number of position 0."""
    origin_time: Int64 = _by_stream(np.int64)
    """ns; of the packet that `origin` comes from."""
    next_position: Int64 = _by_stream(np.int64)
    """Position of the next byte: all earlier bytes arrived, or are considered lost."""
    highest: Int64 = _by_stream(np.int64, FIRST_TIME)
    """Highest start of a segment."""
    readable_time: Int64 = _by_stream(np.int64, FIRST_TIME)
    """ns; when the byte before `next_position` became readable."""
    acknowledged: Int64 = _by_stream(np.int64, FIRST_TIME)
    """Highest position that the receiver acknowledged while there was a hole."""
    acknowledged_time: Int64 = _by_stream(np.int64, FIRST_TIME)
    """ns; when it first acknowledged bytes of that hole."""
    payload_time: Int64 = _by_stream(np.int64, NEVER)
    """ns; time of the latest payload in the window. Before the first one: the time of the first
    packet of a connection with a SYN, or -1."""
    payload_end: Int64 = _by_stream(np.int64, NEVER)
    """Sequence number after that payload, or after the SYN; -1 before both."""
    receiver_ack: Int64 = _by_stream(np.int64, NEVER)
    """Acknowledgement number of the receiver's latest packet; -1 if there is none."""
    fin: Int64 = _by_stream(np.int64, LAST_TIME)
    """Position after the last byte, from the FIN."""
    close_deadline: Int64 = _by_stream(np.int64, LAST_TIME)
    """ns; from then on the stream does not wait for missing bytes."""
    # Framing.
    boundary: Int64 = _by_stream(np.int64)
    """FRAMED, RESUMED: position of the next frame. SEARCHING: earlier bytes were searched."""
    frame_end: Int64 = _by_stream(np.int64, NEVER)
    """Position after the frame at `boundary`; -1 while its size is not known."""
    framed_until: Int64 = _by_stream(np.int64, FIRST_TIME)
    """Position after the last frame that was returned; initially, the one after the SYN."""
    frame_count: Int64 = _by_stream(np.int64)
    """Number of frames that were returned."""
    gap_count: Int64 = _by_stream(np.int64)
    """Number of frames that do not directly follow the previous frame, or the SYN."""
    check_from: Int64 = _by_stream(np.int64)
    """FRAMED, RESUMED: once the stream reaches this position, the body of the incomplete message
    at `boundary` is checked again."""
    search_from: Int64 = _by_stream(np.int64)
    """SEARCHING: position where the known frames end."""
    client_id_size: Int32 = _by_stream(np.int32)
    """Bytes of the client id of the first request, with the 2 bytes of its length: 1 for null,
    whose length is -1. 0 if no request is known."""
    has_correlation: Bools = _by_stream(np.bool_)
    correlation: Int64 = _by_stream(np.int64)
    """Highest correlation id of the client's requests; correlation id of the latest response."""
    correlation_before: Int64 = _by_stream(np.int64)
    """`correlation` at the start of this block, or a lower id of a request in this block."""
    id_regression: Int64 = _by_stream(np.int64)
    """Largest distance by which a request's correlation id fell below the next expected id."""
