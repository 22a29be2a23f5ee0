"""Named ports: connections to a port that the user named, but that do not carry Kafka.

The user expects Kafka at these ports. So each such connection gets one problem with the reason why
it gives no rows. A connection without payload has nothing to decode, and gets no problem.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from dissector.packets.block import Bytes, Int64
from dissector.problems import NO_KEY_LOG, Problem
from dissector.streams.connections.rows import chosen
from dissector.streams.connections.table import KAFKA, NEVER, TLS, Bools, ConnectionTable
from dissector.streams.limits import USUAL_FRAME
from dissector.streams.proxies.handshakes import REFUTED, client_length, has_gssapi
from dissector.streams.search.header_evidence import SMALLEST_REQUEST
from dissector.streams.segments import Segments

if TYPE_CHECKING:
    from dissector.tls import TlsFacts

Refusal: TypeAlias = Callable[[bytes], str]
"""Returns the reason why bytes, without the size, cannot be decoded as a request."""

FIRST_BYTES: Final = 512
"""First bytes of each client that are kept. The first request is mostly shorter."""


class NamedPorts:
    """Keeps the first bytes of clients at these ports, and reports connections without Kafka."""

    def __init__(self, table: ConnectionTable, ports: Collection[int], refusal: Refusal) -> None:
        self._table = table
        self._ports = np.array(sorted(ports), np.uint16)
        self._refusal = refusal
        self._first: dict[int, bytes] = {}
        """First bytes of the client, by row. Only if its SYN was seen: bytes from the middle of a
        stream may be anything, even a password."""

    def keep_first_bytes(self, data: Bytes, stream_ids: Int64, ready: Segments) -> None:
        """Keep the first bytes of clients from these segments.

        `stream_ids`: the stream of each slot.
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

    def problems(
        self, rows: Int64, explained: Container[int], tls: Mapping[int, TlsFacts]
    ) -> list[Problem]:
        """A problem for each of these connections that does not carry Kafka, with the time of its
        last packet.

        `explained`: connections with another problem that gives the reason why they are not
        decrypted. `tls`: facts of those with TLS.
        """
        table = self._table
        has_payload = table.bytes[rows].any(1)
        rows = rows[has_payload & self._is_named(rows) & (table.protocol[rows] != KAFKA)]
        decrypted = {row for row in rows.tolist() if row in tls and tls[row].is_decrypted}
        return [
            self._problem(row, is_decrypted=row in decrypted)
            for row in rows.tolist()
            if row in decrypted or row not in explained
        ]

    def forget(self, rows: Int64) -> None:
        """Drop the state of these connections."""
        for row in rows.tolist():
            self._first.pop(row, None)

    def take(self, rows: Int64) -> dict[int, bytes]:
        """The first bytes of the clients of these connections, by index in `rows`."""
        return chosen(self._first, rows)

    def put(self, rows: Int64, taken: Mapping[int, bytes]) -> None:
        """Add what `take` returned. `rows`: the row of each connection."""
        self._first |= {int(rows[index]): first for index, first in taken.items()}

    def _is_named(self, rows: Int64) -> Bools:
        """Whether one end of each connection has a named port."""
        named = np.isin(self._table.port[rows], self._ports)
        either: Bools = named[:, 0] | named[:, 1]
        return either

    def _problem(self, row: int, *, is_decrypted: bool) -> Problem:
        table = self._table
        size = int(table.bytes[row].sum())
        stage, kind = "streams", "not_kafka"
        reason = f"no Kafka was recognised: {self._reason(row)}"
        if is_decrypted:
            reason = "no Kafka was recognised in its decrypted bytes"
        elif table.protocol[row] == TLS:
            stage, kind, reason = "tls", "tls_no_keys", NO_KEY_LOG
        ports = [port for port in table.port[row].tolist() if port in self._ports]
        detail = f"connection to port {ports[0]}: {reason}"
        time = int(table.last_time[row])
        return Problem(stage, kind, detail, time=time, connection_id=row, offset=0, bytes=size)

    def _reason(self, row: int) -> str:
        client = int(self._table.client[row])
        if client < 0 or self._table.isn[row, client] == NEVER:
            is_one_way = not self._table.packets[row].all()
            missing = "the packets of one end are" if is_one_way else "its beginning is"
            return f"{missing} not in the capture, and no later bytes look like a request"
        first = self._first.get(row, b"")
        if first and client_length(first) != REFUTED:
            return "the client's first bytes address a proxy (SOCKS, CONNECT); no request follows"
        if has_gssapi(first):
            return "the client uses a SOCKS proxy with GSSAPI, which may encrypt all bytes"
        if len(first) < 4:
            return f"the client sent {self._table.bytes[row, client]} bytes"
        size = int.from_bytes(first[:4], signed=True)
        if not SMALLEST_REQUEST <= size <= USUAL_FRAME:
            text = first[:4].decode("ascii", "replace")
            shown = f" ({text!r})" if first[:4].isascii() and text.isprintable() else ""
            begin = first[:4].hex(" ") + shown
            return f"the client's first bytes are {begin}, which is not the size of a request"
        if len(first) < 4 + size:
            return f"the client's first message announces {size} bytes and cannot be confirmed"
        return f"the client's first message: {self._refusal(first[4 : 4 + size])}"


def _joined(data: Bytes, ready: Segments, index: int) -> bytes:
    """The first bytes of the stream that begins with the segment at `index`."""
    first, stream = b"", ready.stream[index]
    while len(first) < FIRST_BYTES and index < len(ready):
        if ready.stream[index] != stream or ready.at[index] != len(first):
            break
        source, length = int(ready.source[index]), int(ready.length[index])
        first += data[source : source + length].tobytes()
        index += 1
    return first[:FIRST_BYTES]
