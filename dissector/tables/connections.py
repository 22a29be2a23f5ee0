"""Connections: what the stages learned of each, as text and as rows.

Streams know addresses as numbers, and which end is the client; the conversation knows who spoke.
Here both come together, for the columns that every table has, and for the `connections` table.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.correlator import Turn
from dissector.exchanges.decoded_fields import distinct
from dissector.packets.block import Int64, UInt64
from dissector.streams.roundtrips import RoundTrips
from dissector.streams.table import NEVER, OTHER, TLS, ConnectionTable
from dissector.tables.arrow import batch, spread
from dissector.tables.schema import CONNECTIONS
from dissector.tls import TlsFacts

MAPPED = 0xFFFF << 32
"""High part of the low 64 bits of an IPv4-mapped IPv6 address."""

PROTOCOLS = pa.array(["unknown", "kafka", "tls", "unknown"])
_NO_TLS = TlsFacts()
_OCTETS = pa.array([str(octet) for octet in range(256)])
CLOSED = pa.array([None, "fin", "rst"])


class Heard(NamedTuple):
    """What the conversation tells of connections."""

    requests: Int64
    """How many, by row of the connection."""
    responses: Int64
    said: Mapping[str, Mapping[int, str]]
    """What clients say of themselves, by role and row."""


class Connections:
    """The connection table, with what the conversation adds."""

    def __init__(
        self, table: ConnectionTable, tls: Mapping[int, TlsFacts] = MappingProxyType({})
    ) -> None:
        """`tls`: what TLS handshakes told, by connection; it grows."""
        self._table = table
        self._tls = tls
        self._requests = np.zeros(0, np.int64)
        self._responses = np.zeros(0, np.int64)
        self._said: dict[str, dict[int, str]] = {
            "software_name": {}, "software_version": {}, "sasl_mechanism": {},
        }  # fmt: skip

    def learn(self, turn: Turn) -> Iterator[tuple[int, int, int]]:
        """Count messages, note what clients say of themselves; give the brokers that are named.

        Of each broker that a response names by address: high, low and port, as in `PacketBlock`.
        """
        self._requests = _added(self._requests, turn.request.heads.connection)
        self._responses = _added(self._responses, turn.response.heads.connection)
        self._responses = _added(self._responses, turn.orphans.connection)
        for role, said in self._said.items():
            for group, column in turn.request.facts.columns(role):
                speaker = turn.request.heads.connection[group.message(column)].tolist()
                every = np.arange(len(column.row), dtype=np.int64)
                said |= zip(
                    speaker, group.texts_beside(column, role, every).to_pylist(), strict=True
                )
        return self._brokers(turn)

    @property
    def heard(self) -> Heard:
        """All that was learned."""
        return Heard(self._requests, self._responses, self._said)

    def add(self, heard: Heard) -> None:
        """Take what was learned elsewhere, of other connections."""
        self._requests = _sum(self._requests, heard.requests)
        self._responses = _sum(self._responses, heard.responses)
        for role, said in heard.said.items():
            self._said[role] |= said

    @property
    def mechanisms(self) -> Mapping[int, str]:
        """SASL mechanism of each connection that named one, by connection_id."""
        return self._said["sasl_mechanism"]

    def columns(self, connection: Int64) -> dict[str, pa.Array]:
        """client_ip, client_port, broker_ip, broker_port of each of n connections."""
        table = self._table
        speaks = np.zeros(table.count, np.bool_)
        speaks[connection] = True
        rows, index = np.flatnonzero(speaks), (np.cumsum(speaks) - 1)[connection]
        client = np.where(table.client[rows] < 0, 0, table.client[rows]).astype(np.int64)
        found = {}
        for name, end in (("client", client), ("broker", 1 - client)):
            words = _texts(table.high[rows, end], table.low[rows, end])
            found[f"{name}_ip"] = spread(words, index)
            found[f"{name}_port"] = pa.array(table.port[rows, end].astype(np.int32)[index])
        return found

    def forget(self, rows: Int64) -> None:
        """Let go of these connections."""
        for counts in (self._requests, self._responses):
            counts[rows[rows < len(counts)]] = 0
        for said in self._said.values():
            for row in rows.tolist():
                said.pop(row, None)

    @property
    def numbers(self) -> Int64:
        """Number of the connection of each row."""
        return self._table.number[: self._table.count]

    def rows(self, trips: RoundTrips, every: Int64) -> pa.RecordBatch:
        """Rows of the `connections` table: of these connections."""
        table = self._table
        client = np.where(table.client[every] < 0, 0, table.client[every]).astype(np.int64)
        rtt = table.handshake[every]
        columns = {
            "connection_id": every,
            **self.columns(every),
            "first_time": table.first_time[every],
            "last_time": table.last_time[every],
            "protocol": PROTOCOLS.take(pa.array(table.protocol[every])),
            "opened": table.opened[every],
            "closed": CLOSED.take(pa.array(table.closed[every])),
            "handshake_rtt_ms": pa.array(rtt / 1e6, mask=rtt == NEVER),
            "requests": _of(self._requests, every),
            "responses": _of(self._responses, every),
        }
        # Streams are followed until they are known not to be Kafka: what was counted by then
        # depends on how much of the capture was read at once, and says nothing.
        left = np.isin(table.protocol[every], (OTHER, TLS))
        for name, end in (("client", client), ("broker", 1 - client)):
            for what, counts in (("packets", table.packets), ("bytes", table.bytes)):
                columns[f"{name}_{what}"] = counts[every, end]
            for what, counts in (
                ("retransmitted", table.retransmitted), ("out_of_order", table.out_of_order),
                ("lost_bytes", table.lost),
            ):  # fmt: skip
                columns[f"{name}_{what}"] = pa.array(counts[every, end], mask=left)
        index = np.arange(len(every))
        zero_windows, round_trip = trips.zero_windows(every), trips.medians(every)
        for name, end in (("client", client), ("broker", 1 - client)):
            columns[f"{name}_zero_windows"] = zero_windows[index, end]
            columns[f"{name}_rtt_ms"] = pa.array(round_trip[index, end], from_pandas=True)
        facts = [self._tls.get(row, _NO_TLS) for row in every.tolist()] if self._tls else []
        for name in ("version", "cipher", "sni", "alpn", "subject"):
            texts = [getattr(each, name) for each in facts] or [None] * len(every)
            columns[f"tls_{name}"] = pa.array(texts, pa.string())
        for role, said in self._said.items():
            texts = [said.get(row) for row in every.tolist()] if said else [None] * len(every)
            columns[role] = pa.array(texts, pa.string())
        return batch(CONNECTIONS, columns)

    def _brokers(self, turn: Turn) -> Iterator[tuple[int, int, int]]:
        for group, column in turn.response.facts.columns("port"):
            hosts = group.texts_beside(column, "host", np.arange(len(column.row)))
            for host, port in distinct(hosts, pa.array(column.values)):
                try:
                    address = ipaddress.ip_address((host or "").strip("[]"))
                except ValueError:
                    continue  # a name: which address it had is not in the capture
                number = int(address)
                if address.version == 4:
                    number |= MAPPED
                yield number >> 64, number & (1 << 64) - 1, port


def _texts(high: UInt64, low: UInt64) -> pa.Array:
    """Addresses as text; shape (n,)."""
    is_plain = (high == 0) & (low >> np.uint64(32) == 0xFFFF)
    numbers = np.where(is_plain, low, 0).astype(">u4").view(np.uint8).reshape(-1, 4)
    octets = [_OCTETS.take(pa.array(np.ascontiguousarray(each))) for each in numbers.T]
    texts = pc.binary_join_element_wise(*octets, ".")
    if is_plain.all():
        return texts
    other = np.flatnonzero(~is_plain)
    both = zip(high[other].tolist(), low[other].tolist(), strict=True)
    long = [str(ipaddress.IPv6Address(high << 64 | low)) for high, low in both]
    return pc.replace_with_mask(texts, pa.array(~is_plain), pa.array(long, pa.string()))


def _added(counts: Int64, connection: Int64) -> Int64:
    more = np.bincount(connection, minlength=len(counts))
    more[: len(counts)] += counts
    return more.astype(np.int64)


def _of(counts: Int64, connection: Int64) -> Int64:
    """The counts of these connections; 0 for those beyond the last one that has a count."""
    found = np.zeros(len(connection), np.int64)
    known = connection < len(counts)
    found[known] = counts[connection[known]]
    return found


def _sum(one: Int64, other: Int64) -> Int64:
    total = np.zeros(max(len(one), len(other)), np.int64)
    for counts in (one, other):
        total[: len(counts)] += counts
    return total
