"""Named ports: connections to a port that the user named, and that carry something else than Kafka.

The user expects Kafka there. So each such connection gets one problem that says why it gives no
rows. A connection without any payload has nothing to decode, and gets none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from typing import Final, TypeAlias

import numpy as np

from dissector.packets.block import Bytes, Int64
from dissector.problems import Problem
from dissector.streams.header_evidence import SMALLEST_REQUEST
from dissector.streams.limits import FRAME_LIMIT
from dissector.streams.segments import Segments
from dissector.streams.table import KAFKA, NEVER, TLS, Bools, ConnectionTable

Refusal: TypeAlias = Callable[[bytes], str]
"""Why bytes, those of the size not counted, cannot be read as a request."""

FIRST_BYTES: Final = 512
"""Bytes of a client that are kept. The first request is mostly shorter."""


class NamedPorts:
    """Keeps the first bytes of clients at these ports, and explains what is not Kafka."""

    def __init__(self, table: ConnectionTable, ports: Collection[int], refusal: Refusal) -> None:
        self._table = table
        self._ports = np.array(sorted(ports), np.uint16)
        self._refusal = refusal
        self._first: dict[int, bytes] = {}
        """First bytes of the client, by row. Only where its SYN was seen: what comes later may
        begin anywhere, even in a password."""

    def note(self, data: Bytes, stream_ids: Int64, ready: Segments) -> None:
        """Keep the first bytes of clients that are among these segments.

        `stream_ids`: the stream of each local number.
        """
        if not len(self._ports):
            return
        index = np.flatnonzero(ready.at == 0)
        stream = stream_ids[ready.stream[index]]
        row, end = stream >> 1, stream & 1
        wanted = (self._table.protocol[row] != KAFKA) & self._is_named(row)
        wanted &= (self._table.client[row] == end) & (self._table.isn[row, end] != NEVER)
        for first, client in zip(index[wanted].tolist(), row[wanted].tolist(), strict=True):
            self._first[client] = _joined(data, ready, first)

    def problems(self, rows: Int64, explained: Container[int]) -> list[Problem]:
        """A problem for each of these connections that carries something else than Kafka, with the
        time of its last packet.

        `explained`: connections that have another problem which says why.
        """
        table = self._table
        has_payload = table.bytes[rows].any(1)
        rows = rows[has_payload & self._is_named(rows) & (table.protocol[rows] != KAFKA)]
        return [self._problem(row) for row in rows.tolist() if row not in explained]

    def forget(self, rows: Int64) -> None:
        """Let go of these connections."""
        for row in rows.tolist():
            self._first.pop(row, None)

    def _is_named(self, rows: Int64) -> Bools:
        """Whether an end of these connections has a port that was named."""
        named = np.isin(self._table.port[rows], self._ports)
        either: Bools = named[:, 0] | named[:, 1]
        return either

    def _problem(self, row: int) -> Problem:
        table = self._table
        size = int(table.bytes[row].sum())
        stage, kind = "streams", "not_kafka"
        why = f"nothing was recognised as Kafka: {self._why(row)}"
        if table.protocol[row] == TLS:
            stage, kind = "tls", "tls_no_keys"
            why = "it is TLS, and there is no key log to decrypt it with"
        ports = [port for port in table.port[row].tolist() if port in self._ports]
        detail = f"a connection to port {ports[0]}: {why}"
        time = int(table.last_time[row])
        return Problem(stage, kind, detail, time=time, connection_id=row, offset=0, bytes=size)

    def _why(self, row: int) -> str:
        client = int(self._table.client[row])
        if client < 0 or self._table.isn[row, client] == NEVER:
            return "its beginning is not in the capture, and no later bytes look like a request"
        first = self._first.get(row, b"")
        if len(first) < 4:
            return f"the client sent {self._table.bytes[row, client]} bytes"
        size = int.from_bytes(first[:4], signed=True)
        if not SMALLEST_REQUEST <= size <= FRAME_LIMIT:
            text = first[:4].decode("ascii", "replace")
            shown = f" ({text!r})" if first[:4].isascii() and text.isprintable() else ""
            begin = first[:4].hex(" ") + shown
            return f"the client begins with {begin}, which is not the size of a request"
        if len(first) < 4 + size:
            return f"the client's first message announces {size} bytes and cannot be confirmed"
        return f"the client's first message: {self._refusal(first[4 : 4 + size])}"


def _joined(data: Bytes, ready: Segments, index: int) -> bytes:
    """The first bytes of a stream, of which the segment at `index` is the first."""
    first, stream = b"", ready.stream[index]
    while len(first) < FIRST_BYTES and index < len(ready):
        if ready.stream[index] != stream or ready.at[index] != len(first):
            break
        source, length = int(ready.source[index]), int(ready.length[index])
        first += data[source : source + length].tobytes()
        index += 1
    return first[:FIRST_BYTES]
