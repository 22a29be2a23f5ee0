"""Rows of the table `connections`, and the addresses that all tables have.

Streams know addresses as numbers, and which end is the client. Messages show the client software,
the SASL mechanism and the addresses of brokers. Both are combined here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.columns import dictionary_codes
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.decoded_fields import distinct_pairs
from dissector.packets.block import Int64, UInt64
from dissector.streams.connections.roundtrips import RoundTrips
from dissector.streams.connections.rows import chosen
from dissector.streams.connections.table import NEVER, OTHER, TLS, ConnectionTable
from dissector.streams.detection.declared import endpoint
from dissector.tables.arrow import take_words, to_batch
from dissector.tables.schema import CONNECTIONS
from dissector.tls import TlsFacts

PROTOCOLS = pa.array(["unknown", "kafka", "tls", "unknown"])
_NO_TLS = TlsFacts()
_OCTETS = pa.array([str(octet) for octet in range(256)])
CLOSED = pa.array([None, "fin", "rst", "fin"])
"""By `closed` of `ConnectionTable`. A RST after a FIN closes nothing: a host resets data that
arrives after its program has closed the connection (RFC 1122, section 4.2.2.13)."""


ClientInfo: TypeAlias = dict[str, dict[int, str]]
"""Software and SASL mechanism of clients, by role and row of the connection."""


def selected_info(info: ClientInfo, rows: Int64) -> ClientInfo:
    """The information about these connections, by index in `rows`."""
    return {role: chosen(texts, rows) for role, texts in info.items()}


class Connections:
    """The connection table of the streams, with the information from messages."""

    def __init__(
        self, table: ConnectionTable, tls: Mapping[int, TlsFacts] = MappingProxyType({})
    ) -> None:
        """`tls`: facts from TLS handshakes, by connection; it grows."""
        self._table = table
        self._tls = tls
        self.client_info: ClientInfo = {
            "software_name": {}, "software_version": {}, "sasl_mechanism": {},
        }  # fmt: skip

    def learn(self, block: CorrelatedBlock) -> Iterator[tuple[int, int, int]]:
        """Count messages, learn about clients, and return the brokers in responses.

        Of each broker with an IP address: high, low and port, as in `PacketBlock`.
        """
        table = self._table
        for counts, headers in (
            (table.requests, block.request.headers),
            (table.responses, block.response.headers),
            (table.responses, block.unmatched_responses),
        ):
            np.add.at(counts, headers.connection, 1)
        for role, info in self.client_info.items():
            newest: dict[int, int] = {}  # the last message of each connection, of several versions
            for group, column in block.request.fields.columns(role):
                message = group.message(column)
                connection = block.request.headers.connection[message].tolist()
                texts = group.sibling_texts(column, role)
                codes = zip(message.tolist(), dictionary_codes(texts).tolist(), strict=True)
                words = [*texts.dictionary.to_pylist(), None]  # also at the index -1
                for row, (index, code) in dict(zip(connection, codes, strict=True)).items():
                    if index > newest.get(row, -1):
                        newest[row], info[row] = index, words[code]
        return self._brokers(block)

    def put(self, rows: Int64, info: ClientInfo) -> None:
        """Add information about clients. `rows`: the row of each connection."""
        for role, texts in info.items():
            self.client_info[role] |= {int(rows[index]): text for index, text in texts.items()}

    @property
    def mechanisms(self) -> Mapping[int, str]:
        """SASL mechanism by connection_id, from SaslHandshake."""
        return self.client_info["sasl_mechanism"]

    def columns(self, connection: Int64) -> dict[str, pa.Array]:
        """client_ip, client_port, broker_ip, broker_port of each of n connections."""
        table = self._table
        is_used = np.zeros(table.count, np.bool_)
        is_used[connection] = True
        rows, index = np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[connection]
        client = np.maximum(table.client[rows], 0).astype(np.int64)
        columns = {}
        texts = _texts(table.high[rows].reshape(-1), table.low[rows].reshape(-1))
        for name, end in (("client", client), ("broker", 1 - client)):
            of_end = texts.take(pa.array(2 * np.arange(len(rows)) + end)).dictionary_encode()
            code, port = of_end.indices.to_numpy(), table.port[rows, end].astype(np.int32)
            columns[f"{name}_ip"] = take_words(of_end.dictionary, code.take(index))
            columns[f"{name}_port"] = pa.array(port.take(index))
        return columns

    def forget(self, rows: Int64) -> None:
        """Drop the information about these clients."""
        for info in self.client_info.values():
            for row in rows.tolist():
                info.pop(row, None)

    @property
    def numbers(self) -> Int64:
        """Connection number of each row."""
        return self._table.number[: self._table.count]

    def rows(self, trips: RoundTrips, rows: Int64) -> pa.RecordBatch:
        """Rows of the table `connections` for these rows of the streams' table."""
        table = self._table
        client = np.maximum(table.client[rows], 0).astype(np.int64)
        rtt = table.handshake[rows]
        columns = {
            "connection_id": rows,
            **self.columns(rows),
            "first_time": table.first_time[rows],
            "last_time": table.last_time[rows],
            "protocol": PROTOCOLS.take(pa.array(table.protocol[rows])),
            "opened": table.opened[rows],
            "closed": CLOSED.take(pa.array(table.closed[rows])),
            "handshake_rtt_ms": pa.array(rtt / 1e6, mask=rtt == NEVER),
            "requests": table.requests[rows],
            "responses": table.responses[rows],
        }
        # A stream is followed until it is known not to be Kafka. The counts until then depend on
        # the size of the blocks, so they are left out.
        is_ignored = np.isin(table.protocol[rows], (OTHER, TLS))
        index = np.arange(len(rows))
        zero_windows, round_trip = trips.zero_windows(rows), trips.medians(rows)
        for name, end in (("client", client), ("broker", 1 - client)):
            for metric, counts in (("packets", table.packets), ("bytes", table.bytes)):
                columns[f"{name}_{metric}"] = counts[rows, end]
            for metric, counts in (
                ("retransmitted", table.retransmitted), ("out_of_order", table.out_of_order),
                ("lost_bytes", table.lost),
            ):  # fmt: skip
                columns[f"{name}_{metric}"] = pa.array(counts[rows, end], mask=is_ignored)
            columns[f"{name}_zero_windows"] = zero_windows[index, end]
            columns[f"{name}_rtt_ms"] = pa.array(round_trip[index, end], from_pandas=True)
        fields = [self._tls.get(row, _NO_TLS) for row in rows.tolist()] if self._tls else []
        for name in ("version", "cipher", "sni", "alpn", "subject"):
            texts = [getattr(each, name) for each in fields] or [None] * len(rows)
            columns[f"tls_{name}"] = pa.array(texts, pa.string())
        for role, info in self.client_info.items():
            texts = [info.get(row) for row in rows.tolist()] if info else [None] * len(rows)
            columns[role] = pa.array(texts, pa.string())
        return to_batch(CONNECTIONS, columns)

    def _brokers(self, block: CorrelatedBlock) -> Iterator[tuple[int, int, int]]:
        for group, column in block.response.fields.columns("port"):
            hosts = group.sibling_texts(column, "host")
            for host, port in distinct_pairs(hosts, pa.array(column.values)):
                with suppress(ValueError):  # a host name, whose address is unknown, or no port
                    yield endpoint((host or "").strip("[]"), port)


def _texts(high: UInt64, low: UInt64) -> pa.Array:
    """Addresses as text; shape (n,)."""
    is_ipv4 = (high == 0) & (low >> np.uint64(32) == 0xFFFF)
    numbers = np.where(is_ipv4, low, 0).astype(">u4").view(np.uint8).reshape(-1, 4)
    octets = [_OCTETS.take(pa.array(np.ascontiguousarray(each))) for each in numbers.T]
    texts = pc.binary_join_element_wise(*octets, ".")
    if is_ipv4.all():
        return texts
    index = np.flatnonzero(~is_ipv4)
    halves = zip(high[index].tolist(), low[index].tolist(), strict=True)
    ipv6 = [str(ipaddress.IPv6Address(high << 64 | low)) for high, low in halves]
    return pc.replace_with_mask(texts, pa.array(~is_ipv4), pa.array(ipv6, pa.string()))
