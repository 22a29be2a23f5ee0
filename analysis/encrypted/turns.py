"""Turns of encrypted connections: a client sends, then its broker.

A client of Kafka sends requests, and a broker only sends responses. So a turn is one request and
its response if the client waits for each response. The response time is the time from the last
packet of the client to the first packet of the broker. If the client sends more requests meanwhile,
the turn begins with the last one, and the response time is too short.

The headers of TLS records are not encrypted (RFC 8446, section 5.1). They show which packets have
only an alert or a ChangeCipherSpec, and which turns belong to the handshake: the client's part of
it begins with such a record, or is directly before or after the ServerHello. What precedes the
first TLS record is a handshake with a proxy. Retransmissions, keep-alives and acknowledgements have
no new bytes, and are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissector.arrays import mutable
from dissector.packets.block import Int64, PacketBlock, UInt32
from dissector.streams import sequence
from dissector.streams.connections.flows import Assignment
from dissector.streams.connections.table import (
    KAFKA,
    NEVER,
    Bools,
    ConnectionTable,
    Rows,
    by_connection,
)
from dissector.tls.record_layer import (
    ALERT,
    APPLICATION_DATA,
    CHANGE_CIPHER_SPEC,
    HANDSHAKE,
    HEADER,
    HEARTBEAT,
)
from dissector.tls.unkeyed import PADDED_ALERT

SCHEMA: Final = pa.schema(
    [
        ("stream", pa.int64()), ("request_time", pa.timestamp("ns")),
        ("response_time", pa.timestamp("ns")), ("request_packet", pa.int64()),
        ("capture", pa.int32()), ("sent_bytes", pa.int64()), ("received_bytes", pa.int64()),
    ]
)  # fmt: skip
"""`stream`: that of the end that sends first. `request_time`, `request_packet` and `capture`, the
index of the file: of its last packet. `response_time`: of the first packet of the other end. Bytes
are those of TCP payload."""

SMALLEST_MESSAGE: Final = 10 + 17
"""The smallest message of Kafka is the response to Heartbeat 0, and TLS 1.3 adds 17 bytes. Alerts
and key updates are smaller."""

_STREAM, _FIRST, _LAST, _PACKET, _CAPTURE, _BYTES, _IS_MESSAGE, _IS_HELLO, _IS_TLS = range(9)
"""Rows of an array of bursts: packets of one end without a packet of the other one in between.
Stream; times of the first and of the last packet, ns; number and file of the last packet; payload
bytes; whether the first packet is not part of a handshake; whether it begins with a ServerHello;
whether this packet, or the first one of an earlier burst, may begin with a TLS record."""
_SERVER_HELLO: Final = 2
"""Type of a handshake message (RFC 8446, section 4)."""

_FAR: Final = np.int64(1) << 33
"""More than the distance of two positions in a block."""


@mutable
class _State(Rows):
    """State of each connection from block to block."""

    has_sent: Bools = by_connection(np.bool_, 2)
    sent_end: UInt32 = by_connection(np.uint32, 2)
    """Sequence number after the last byte of each end."""
    burst: Int64 = by_connection(np.int64, 9)
    """The last burst, which may continue; zeros without one."""


class Turns:
    """Finds turns; `observe` is a `PacketObserver` of `Pipeline`.

    Which end is the client may be known only at the end of the capture. So a turn of each end
    counts, until `clients` selects those of clients.
    """

    def __init__(self, add: Callable[[pa.RecordBatch], None]) -> None:
        """`add`: called with the turns of each block, whose schema is `SCHEMA`."""
        self._add = add
        self._state = _State()
        self._connections = ConnectionTable()

    def observe(
        self, block: PacketBlock, assignment: Assignment, connections: ConnectionTable
    ) -> None:
        """Add the turns that end in a block, apart from those of unencrypted Kafka."""
        self._connections = connections
        self._state.grow(connections.count)
        stream = assignment.streams[assignment.slot]
        packets = np.flatnonzero((block.length > 0) & (connections.protocol[stream >> 1] != KAFKA))
        has_new = self._have_new_bytes(stream[packets], block, packets)
        is_alert, *kinds = _record_kinds(block, packets)
        chosen = np.flatnonzero(has_new & ~is_alert)
        chosen = chosen[np.argsort(stream[packets[chosen]] >> 1, kind="stable")]
        packets = packets[chosen]
        stream = stream[packets]
        first, last = _runs(stream)
        times = block.time[packets]
        bursts = np.array(
            [
                stream[first], times[first], times[last], block.number[packets[last]],
                block.capture[packets[last]], _sums(block.length[packets], first),
                *(kind[chosen[first]] for kind in kinds),
            ],
            np.int64,
        )  # fmt: skip
        self._add(_turns(self._continued(bursts)))

    def _continued(self, bursts: Int64) -> Int64:
        """The last burst of each connection in earlier blocks, and those of this block."""
        state, row = self._state, np.unique(bursts[_STREAM] >> 1)
        earlier = state.burst[row].T
        bursts = _merged(np.concatenate([earlier[:, earlier[_BYTES] > 0], bursts], axis=1))
        first, last = _runs(bursts[_STREAM] >> 1)
        latest = np.maximum.accumulate(bursts[_IS_TLS] * np.arange(1, bursts.shape[1] + 1))
        bursts[_IS_TLS] = latest > np.repeat(first, last - first + 1)
        bursts[_IS_MESSAGE] &= bursts[_IS_TLS]
        # Before a ServerHello is a ClientHello, which may follow a PROXY header. A client that has
        # sent ChangeCipherSpec before, or sends none (RFC 8446, appendix D.4), responds to it with
        # encrypted records.
        is_hello = bursts[_IS_HELLO] == 1
        is_before, is_after = np.roll(is_hello, -1), np.roll(is_hello, 1)
        is_before[last] = is_after[first] = False
        bursts[_IS_MESSAGE, is_before | is_after] = 0
        state.burst[row] = bursts[:, last].T
        return bursts

    def clients(self) -> pa.Table:
        """The stream that the client of each connection sends, and the `connection_id`."""
        table = self._connections
        rows = np.flatnonzero((table.number != NEVER) & (table.client >= 0))
        return pa.table(
            {"connection_id": table.number[rows], "stream": 2 * rows + table.client[rows]}
        )

    def _have_new_bytes(self, stream: Int64, block: PacketBlock, packets: Int64) -> Bools:
        """Whether each packet has bytes after all earlier ones of its stream."""
        order = np.argsort(stream, kind="stable")
        stream = stream[order]
        first, last = _runs(stream)
        begin = block.seq[packets[order]]
        end = begin + block.length[packets[order]].astype(np.uint32)
        group = np.repeat(np.arange(len(first)), last - first + 1)
        of_group = np.arange(len(first)) * _FAR
        has_sent, sent_end = self._state.has_sent.reshape(-1), self._state.sent_end.reshape(-1)
        origin: UInt32 = np.where(has_sent[stream[first]], sent_end[stream[first]], begin[first])
        position = np.maximum(sequence.ahead(end, origin[group]), 0)
        latest = np.maximum.accumulate(position + of_group[group])
        earlier = np.roll(latest, 1)
        earlier[first] = of_group
        has_new = np.zeros(len(stream), np.bool_)
        has_new[order] = latest > earlier
        sent_end[stream[first]] = sequence.numbers(latest[last] - of_group, origin)
        has_sent[stream[first]] = True
        return has_new


def _turns(bursts: Int64) -> pa.RecordBatch:
    """The turns of bursts in order of their connections: `SCHEMA`."""
    row = bursts[_STREAM] >> 1
    request = np.flatnonzero((row[:-1] == row[1:]) & (bursts[_IS_MESSAGE, :-1] == 1))
    columns = [
        *bursts[[_STREAM, _LAST], request[:, None]].T, bursts[_FIRST, request + 1],
        *bursts[[_PACKET, _CAPTURE, _BYTES], request[:, None]].T, bursts[_BYTES, request + 1],
    ]  # fmt: skip
    arrays = [pa.array(each).cast(type) for each, type in zip(columns, SCHEMA.types, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)


def _record_kinds(block: PacketBlock, packets: Int64) -> tuple[Bools, Bools, Bools, Bools]:
    """Whether each packet is one TLS record with an alert, a key update or ChangeCipherSpec, which
    Java clients send while the broker still sends its part of the handshake; whether it does not
    begin with a handshake record; whether it begins with a ServerHello; and whether it may begin
    with a TLS record, as far as it was captured."""
    at, length = block.payload[packets], block.length[packets]
    kind = block.data[at]
    size = block.data[at + 3].astype(np.int64) << 8 | block.data[at + 4]
    captured = block.captured[packets]
    is_record = (captured >= HEADER) & (block.data[at + 1] == 3) & (kind >= CHANGE_CIPHER_SPEC)
    is_record &= kind <= HEARTBEAT
    has_alert_size = (size < SMALLEST_MESSAGE) | (size == PADDED_ALERT)
    is_alert = np.isin(kind, (ALERT, CHANGE_CIPHER_SPEC)) | (
        (kind == APPLICATION_DATA) & has_alert_size
    )
    is_alert &= is_record & (length == HEADER + size)
    is_hello = is_record & (kind == HANDSHAKE) & (captured > HEADER)
    is_hello &= block.data[at + HEADER] == _SERVER_HELLO
    is_message = ~(is_record & np.isin(kind, (CHANGE_CIPHER_SPEC, HANDSHAKE)))
    return is_alert, is_message, is_hello, is_record | (captured < np.minimum(length, HEADER))


def _merged(bursts: Int64) -> Int64:
    """Bursts by connection; one that the end of a block divides is put together."""
    bursts = bursts[:, np.argsort(bursts[_STREAM] >> 1, kind="stable")]
    first, last = _runs(bursts[_STREAM])
    merged: Int64 = bursts[:, first]
    of_last = [_LAST, _PACKET, _CAPTURE]
    merged[of_last] = bursts[of_last][:, last]
    merged[_BYTES] = _sums(bursts[_BYTES], first)
    return merged


def _runs(values: Int64) -> tuple[Int64, Int64]:
    """Index of the first and of the last item of each run of equal values."""
    return np.flatnonzero(np.diff(values, prepend=-1)), np.flatnonzero(np.diff(values, append=-1))


def _sums(values: NDArray[np.integer], first: Int64) -> Int64:
    """Sums of runs of values that begin at `first`."""
    sums: Int64 = np.add.reduceat(values.astype(np.int64), first) if len(first) else first
    return sums
