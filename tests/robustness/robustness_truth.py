"""The exchanges that damage leaves intact.

An exchange needs the packets with a byte of its request or its response. If the capture lacks its
request, it needs all packets of the broker: only several responses together are recognised.
Exchanges with TLS need all packets of their connection, because the handshake has the keys. A
damaged packet may have the sequence numbers of other bytes. The exchanges with these bytes are
touched, too: it is unknown which packet is right.

Two exchanges are the same if their ends, request, result and times are equal. Bytes are read no
earlier than those before them, and the first copy of retransmitted bytes counts. So times do not
count where a time stamp may be damaged, where packets are in another order, or where bytes are lost
or doubled.
"""

from __future__ import annotations

import ipaddress
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissector import open_capture
from dissector.errors import CaptureError
from dissector.packets import open_packets
from dissector.packets.block import SYN
from tests.captures.recorded import CAPTURES
from tests.robustness.robustness_damage import Damage, Recording

SAME = (
    "client_ip", "client_port", "broker_ip", "broker_port", "api_key", "api_version",
    "correlation_id", "status", "request_bytes", "response_bytes", "error_code",
    "request_time", "response_time",
)  # fmt: skip
_TIMES = 2
"""Columns in which an exchange must not change."""
_SENDER = ("src_low", "src_port", "dst_low", "dst_port")
_RANGE = ("seq", "length")
_PACKETS = ("number", "time", "flags", *_SENDER, *_RANGE)
Row = dict[str, Any]
Exchange = tuple[Any, ...]
"""The columns `SAME` of an exchange."""


@dataclass(slots=True)
class Counts:
    """Figures of copies: numbers that are added."""

    def add(self, other: Self) -> None:
        """Add the figures of other copies."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass(frozen=True, slots=True)
class Truth:
    """The exchanges of a recording that is whole."""

    name: str
    connections: list[Row]
    exchanges: pa.Table
    rows: list[Exchange]
    """Those of `exchanges`."""
    needed: list[NDArray[np.int64]]
    """Which packets each needs, from 0 on."""
    packets: Packets

    def untouched(self, damage: Damage) -> Counter[Exchange]:
        """The exchanges that must still be there."""
        touched = damage.touched
        if damage.kind == "flipped":
            with capture_file(damage.data) as path, suppress(CaptureError):
                touched = touched | self.packets.under(packets_of(path), touched)
        return self._counted(
            (
                row
                for row, needed in zip(self.rows, self.needed, strict=True)
                if not touched[needed].any()
            ),
            damage,
        )

    def remaining(self, damage: Damage) -> Counter[Exchange]:
        """The exchanges that are there in a damaged copy."""
        with capture_file(damage.data) as path, suppress(CaptureError):
            return self._counted(rows(read(self.name, path, "exchanges")["exchanges"]), damage)
        return Counter()

    def _counted(self, rows: Iterable[Exchange], damage: Damage) -> Counter[Exchange]:
        times = damage.times
        if damage.kind == "lost":
            times = self.packets.go_in_order(damage.touched)
        return Counter(row if times else row[:-_TIMES] for row in rows)


@contextmanager
def capture_file(data: bytes) -> Iterator[str]:
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(data)
        file.flush()
        yield file.name


def read(
    name: str, path: str, *tables: str, ports: Collection[int] | None = None
) -> dict[str, pa.Table]:
    """Tables of a copy of the capture `name`."""
    keys = CAPTURES / f"{name.partition('.')[0]}.keys.log"
    return open_capture(path, keylog=keys if keys.exists() else None, ports=ports).tables(tables)


def rows(table: pa.Table) -> list[Exchange]:
    columns = []
    for name in SAME:
        column = table[name]
        columns.append(
            (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        )
    return list(zip(*columns, strict=True))


def truth(whole: Recording) -> Truth:
    """The exchanges of an undamaged recording."""
    with capture_file(whole.data) as path:
        tables = read(whole.name, path, "exchanges", "connections")
        packets = packets_of(path)
    table = tables["exchanges"]
    connections = tables["connections"].to_pylist()
    tls = {row["connection_id"] for row in connections if row["tls_version"]}
    needed = []
    for row in table.to_pylist():
        if row["connection_id"] in tls:
            needed.append(packets.between(row))
        else:
            needed.append(
                np.concatenate([packets.of(row, "client", "request"),
                                packets.of(row, "broker", "response")])
            )  # fmt: skip
    return Truth(whole.name, connections, table, rows(table), needed, packets)


class Packets:
    """The packets of a capture by sender."""

    def __init__(self, columns: dict[str, NDArray[Any]]) -> None:
        self._column = columns
        senders = np.stack([columns[name].astype(np.uint64) for name in _SENDER])
        kinds, index = np.unique(senders, axis=1, return_inverse=True)
        self._sent = {
            tuple(kind): np.flatnonzero(index == number)
            for number, kind in enumerate(kinds.T.tolist())
        }

    def under(self, others: Packets, which: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether packets share sequence numbers with those of `others`; shape (packets,)."""
        is_under = np.zeros(len(which), np.bool_)
        for row in others._rows(which):
            is_under[self.sharing(others.fields(row))] = True
        return is_under

    def sharing(self, packet: Mapping[str, int]) -> NDArray[np.int64]:
        """The packets, from 0 on, that share sequence numbers with one that has these `fields`."""
        sent, ahead, length = self._beside(packet)
        is_shared = (length > 0) & (ahead < packet["length"]) & (ahead + length > 0)
        shared: NDArray[np.int64] = self._column["number"][sent[is_shared]] - 1
        return shared

    def go_in_order(self, which: NDArray[np.bool_]) -> bool:
        """Whether no byte of these packets came twice, or behind bytes that follow it."""
        for row in self._rows(which):
            packet = self.fields(row)
            sent, ahead, length = self._beside(packet)
            later = (ahead < packet["length"]) | (sent < row)
            if ((length > 0) & (sent != row) & (ahead + length > 0) & later).any():
                return False
        return True

    def row_of(self, number: int) -> int | None:
        """The row of the packet with this number, if it is a TCP packet."""
        row = int(self._column["number"].searchsorted(number))
        is_there = row < len(self._column["number"]) and self._column["number"][row] == number
        return row if is_there else None

    def fields(self, row: int) -> dict[str, int]:
        """Sender, receiver and sequence numbers of a packet."""
        return {name: int(self._column[name][row]) for name in (*_SENDER, *_RANGE)}

    def _rows(self, which: NDArray[np.bool_]) -> list[int]:
        """The positions of these packets."""
        return np.flatnonzero(np.isin(self._column["number"] - 1, np.flatnonzero(which))).tolist()

    def _beside(
        self, packet: Mapping[str, int]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """What the sender of a packet sent: where, how far ahead of the packet, and how long."""
        sent = self._sent.get(tuple(packet[name] for name in _SENDER), np.empty(0, np.int64))
        seq, length = (self._column[name][sent].astype(np.int64) for name in _RANGE)
        return sent, _ahead(seq, packet["seq"]), length

    def between(self, row: Row) -> NDArray[np.int64]:
        """All packets of both ends of an exchange."""
        sent = [self._stream(row, end) for end in ("client", "broker")]
        return self._column["number"][np.concatenate(sent)] - 1

    def of(self, row: Row, end: str, message: str) -> NDArray[np.int64]:
        """The packets with bytes of one message, which that end sent."""
        first, size = row[f"{message}_packet"], row[f"{message}_bytes"]
        if first is None:
            others = self._stream(row, "broker")[: None if message == "request" else 0]
            return self._column["number"][others] - 1
        sent = self._stream(row, end)
        number, seq, length, time = (
            self._column[name][sent].astype(np.int64)
            for name in ("number", "seq", "length", "time")
        )
        begin = number == first
        # The begin of the message in its first packet is unknown: it may be the last byte.
        ahead = _ahead(seq, seq[begin][0])
        reach = int(length[begin].max()) + (size or 0)
        there = (length > 0) & (ahead < reach) & (ahead + length > 0)
        ended = row[f"{message}_end_time"]
        if ended is not None:
            there &= time <= ended.value
        return number[there] - 1

    def _stream(self, row: Row, end: str) -> NDArray[np.int64]:
        other = "broker" if end == "client" else "client"
        key = (
            _low(row[f"{end}_ip"]), row[f"{end}_port"],
            _low(row[f"{other}_ip"]), row[f"{other}_port"],
        )  # fmt: skip
        return self._sent.get(key, np.empty(0, np.int64))


def _ahead(seq: NDArray[np.int64], begin: int) -> NDArray[np.int64]:
    """Signed distance of sequence numbers from `begin`."""
    ahead: NDArray[np.int64] = (seq - begin + (1 << 31)) % (1 << 32) - (1 << 31)
    return ahead


def _low(address: str) -> int:
    """The lower half, as in a `PacketBlock`."""
    ip = ipaddress.ip_address(address)
    return (int(ip) | (0xFFFF << 32 if ip.version == 4 else 0)) & (1 << 64) - 1


def packets_of(path: str | Path) -> Packets:
    source = open_packets([path])
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in _PACKETS}
    while (block := source.read(0)) is not None:
        for name, each in parts.items():
            each.append(getattr(block, name).copy())
    columns = {name: np.concatenate(each) for name, each in parts.items()}
    columns["seq"] = columns["seq"] + (columns["flags"] & SYN != 0)  # a SYN comes before its bytes
    return Packets(columns)
