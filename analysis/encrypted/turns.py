"""Turns of encrypted connections: a client sends, then its broker.

A client of Kafka sends requests, and a broker only sends responses. So a turn is one request and
its response if the client waits for each response. The response time is the time from the last
packet of the client to the first packet of the broker. If the client sends more requests meanwhile,
the turn begins with the last one, and the response time is too short.

The headers of TLS records are not encrypted (RFC 8446, section 5.1). They show which packets have
only an alert, and which turns belong to the handshake. Retransmissions, keep-alives and
acknowledgements have no new bytes, and are skipped.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissector.packets.block import Int64, PacketBlock, UInt32
from dissector.streams import sequence
from dissector.streams.flows import Assignment
from dissector.streams.table import KAFKA, Bools, ConnectionTable
from dissector.tables import TIME
from dissector.tls.record_layer import (
    ALERT,
    APPLICATION_DATA,
    CHANGE_CIPHER_SPEC,
    HANDSHAKE,
    HEADER,
)
from dissector.tls.unkeyed import PADDED_ALERT

SCHEMA: Final = pa.schema(
    [
        ("connection_id", pa.int64()), ("request_time", TIME), ("request_packet", pa.int64()),
        ("latency_ms", pa.float64()), ("sent_bytes", pa.int64()), ("received_bytes", pa.int64()),
    ]
)  # fmt: skip
"""`request_time` and `request_packet`: of the last packet of the client. `latency_ms`: from there
to the first packet of the broker. Bytes are those of TCP payload."""

SMALLEST_MESSAGE: Final = 10 + 17
"""The smallest message of Kafka is the response to Heartbeat 0, and TLS 1.3 adds 17 bytes. Alerts
and key updates are smaller."""

_STREAM, _FIRST, _LAST, _PACKET, _BYTES, _IS_MESSAGE = range(6)
"""Rows of an array of bursts: packets of one end without a packet of the other one in between.
Stream; times of the first and of the last packet, ns; number of the last packet; payload bytes;
whether the first packet is not part of a handshake."""

_FAR: Final = np.int64(1) << 33
"""More than the distance of two positions in a block."""


class Turns:
    """Collects turns; `observe` is a `PacketObserver` of `Pipeline`."""

    def __init__(self) -> None:
        self._bursts: list[Int64] = [np.zeros((6, 0), np.int64)]
        self._has_sent = np.zeros(0, np.bool_)
        self._sent_end = np.zeros(0, np.uint32)  # sequence number behind the last byte, by stream
        self._connections = ConnectionTable()

    def observe(
        self, block: PacketBlock, assignment: Assignment, connections: ConnectionTable
    ) -> None:
        """Collect the packets of a block, apart from those of unencrypted Kafka."""
        self._connections = connections
        missing = 2 * connections.count - len(self._has_sent)
        self._has_sent = np.append(self._has_sent, np.zeros(missing, np.bool_))
        self._sent_end = np.append(self._sent_end, np.zeros(missing, np.uint32))
        stream = assignment.streams[assignment.slot]
        packets = np.flatnonzero((block.length > 0) & (connections.protocol[stream >> 1] != KAFKA))
        has_new = self._have_new_bytes(stream[packets], block, packets)
        is_alert, is_message = _record_kinds(block, packets)
        is_chosen = has_new & ~is_alert
        packets, is_message = packets[is_chosen], is_message[is_chosen]
        order = np.argsort(stream[packets] >> 1, kind="stable")
        packets, is_message = packets[order], is_message[order]
        stream = stream[packets]
        first, last = _runs(stream)
        times = block.time[packets]
        self._bursts.append(
            np.array(
                [
                    stream[first], times[first], times[last], block.number[packets[last]],
                    _sums(block.length[packets], first), is_message[first],
                ],
                np.int64,
            )
        )  # fmt: skip

    def _have_new_bytes(self, stream: Int64, block: PacketBlock, packets: Int64) -> Bools:
        """Whether each packet has bytes behind all earlier ones of its stream."""
        order = np.argsort(stream, kind="stable")
        stream = stream[order]
        first, last = _runs(stream)
        begin = block.seq[packets[order]]
        end = begin + block.length[packets[order]].astype(np.uint32)
        group = np.repeat(np.arange(len(first)), last - first + 1)
        of_group = np.arange(len(first)) * _FAR
        known = self._has_sent[stream[first]]
        origin: UInt32 = np.where(known, self._sent_end[stream[first]], begin[first])
        position = np.maximum(sequence.ahead(end, origin[group]), 0)
        latest = np.maximum.accumulate(position + of_group[group])
        earlier = np.roll(latest, 1)
        earlier[first] = of_group
        has_new = np.zeros(len(stream), np.bool_)
        has_new[order] = latest > earlier
        self._sent_end[stream[first]] = sequence.numbers(latest[last] - of_group, origin)
        self._has_sent[stream[first]] = True
        return has_new

    def table(self) -> pa.Table:
        """The turns of connections whose client is known: `SCHEMA`."""
        bursts = _merged(np.concatenate(self._bursts, axis=1))
        stream, table = bursts[_STREAM], self._connections
        row = stream >> 1
        is_request = table.is_client(stream) & bursts[_IS_MESSAGE].astype(np.bool_)
        request = np.flatnonzero(is_request[:-1] & (row[:-1] == row[1:]))
        response = request + 1
        latency = bursts[_FIRST, response] - bursts[_LAST, request]
        columns = [
            table.number[row[request]], bursts[_LAST, request], bursts[_PACKET, request],
            np.maximum(latency, 0) / 1e6, bursts[_BYTES, request], bursts[_BYTES, response],
        ]  # fmt: skip
        arrays = [
            pa.array(column).cast(type) for column, type in zip(columns, SCHEMA.types, strict=True)
        ]
        return pa.table(arrays, schema=SCHEMA)


def _record_kinds(block: PacketBlock, packets: Int64) -> tuple[Bools, Bools]:
    """Whether each packet is one TLS record with an alert or a key update; and whether it does not
    begin with a handshake record."""
    at, length = block.payload[packets], block.length[packets]
    kind = block.data[at]
    size = block.data[at + 3].astype(np.int64) << 8 | block.data[at + 4]
    is_record = (block.captured[packets] >= HEADER) & (block.data[at + 1] == 3)
    has_alert_size = (size < SMALLEST_MESSAGE) | (size == PADDED_ALERT)
    is_alert = (kind == ALERT) | ((kind == APPLICATION_DATA) & has_alert_size)
    is_alert &= is_record & (length == HEADER + size)
    return is_alert, ~(is_record & np.isin(kind, (CHANGE_CIPHER_SPEC, HANDSHAKE)))


def _merged(bursts: Int64) -> Int64:
    """Bursts by connection; those that the end of a block divides are put together."""
    bursts = bursts[:, np.argsort(bursts[_STREAM] >> 1, kind="stable")]
    first, last = _runs(bursts[_STREAM])
    merged: Int64 = bursts[:, first]
    merged[_LAST], merged[_PACKET] = bursts[_LAST, last], bursts[_PACKET, last]
    merged[_BYTES] = _sums(bursts[_BYTES], first)
    return merged


def _runs(values: Int64) -> tuple[Int64, Int64]:
    """Index of the first and of the last item of each run of equal values."""
    return np.flatnonzero(np.diff(values, prepend=-1)), np.flatnonzero(np.diff(values, append=-1))


def _sums(values: NDArray[np.integer], first: Int64) -> Int64:
    """Sums of runs of values that begin at `first`."""
    sums: Int64 = np.add.reduceat(values.astype(np.int64), first) if len(first) else first
    return sums
