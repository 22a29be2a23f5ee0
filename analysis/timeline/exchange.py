"""Timelines: the packets of an exchange in order of time, and what each of them means.

A timeline has the segments of both messages with their retransmissions, and all packets of the
connection between the first byte of the request and the acknowledgement of the response.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from analysis.input.passes import check_files, open_pass
from dissector.arguments import name_text
from dissector.arrays import value
from dissector.capture import Paths
from dissector.exchanges.exchange import Exchange
from dissector.packets.block import ACK, FIN, RST, SYN, PacketBlock
from dissector.streams.connections.flows import Assignment
from dissector.streams.connections.table import ConnectionTable
from dissector.streams.detection.declared import endpoint

MARGIN: Final = 5 * 10**9
"""ns before and after an exchange in which its retransmissions and acknowledgements are found."""

_HALF: Final = 1 << 31
_FLAGS: Final = {SYN: "SYN", FIN: "FIN", RST: "RST"}


@value
class Packet:
    """One packet of the connection of an exchange."""

    time: int
    """ns since 1970."""
    capture: str
    number: int
    is_from_client: bool
    seq: int
    ack: int | None
    length: int
    flags: int
    window: int


@value
class Event:
    """A packet of a timeline."""

    packet: Packet
    text: str
    is_problem: bool
    """It shows loss, reordering, a zero window or a reset."""


@dataclass(slots=True)
class Side:
    """What one end has sent so far."""

    name: str
    other_content: str
    """Name of bytes outside the message."""
    begin: int | None
    """Sequence number of the first byte of its message; None if it sent none."""
    size: int
    sent: int | None = None
    """Position after the highest byte, relative to `begin`."""
    holes: list[tuple[int, int]] = field(default_factory=list)
    """Ranges below `sent` that were not captured so far."""

    def add(self, low: int, high: int) -> None:
        """Record a segment from position `low` to `high`; an empty one shows what was sent, too."""
        if self.sent is not None and low > self.sent:
            self.holes.append((self.sent, low))
        self.holes = [
            part
            for begin, end in self.holes
            for part in ((begin, min(end, low)), (max(begin, high), end))
            if part[0] < part[1]
        ]
        self.sent = high if self.sent is None else max(self.sent, high)

    def position(self, number: int) -> int:
        """A sequence number relative to the first byte of the message."""
        distance = (number - (self.begin or 0)) & 0xFFFFFFFF
        return distance - 2 * _HALF if distance >= _HALF else distance

    def content(self, low: int, high: int) -> list[str]:
        """The messages in the bytes from position `low` to `high`."""
        begin, end = max(low, 0), min(high, self.size)
        if self.begin is None or begin >= end:
            return [f"{self.other_content}, {high - low:,} bytes"]
        return [f"{self.name}, {part_text(begin, end, self.size)}"]

    def acknowledged(self, packet: Packet) -> str:
        """The part of the message that a packet of the other end acknowledges."""
        count = min(acknowledges(packet, self), self.size)
        if count <= 0:
            return "earlier bytes"
        return f"the {self.name}" if count == self.size else f"{count:,} bytes of the {self.name}"

    def follows(self, low: int, packet: Packet, other: Side) -> list[str]:
        """What a segment after the message reports about the message of the other end."""
        if self.begin is None or low < self.size or acknowledges(packet, other) < other.size:
            return []
        return [f"acknowledges the {other.name}"]

    def is_keep_alive(self, low: int, high: int) -> bool:
        """Whether a segment from position `low` to `high` is only the last byte that was sent (RFC
        9293, section 3.8.4)."""
        is_captured = all(end < high for _, end in self.holes)
        return high == self.sent and high - low == 1 and is_captured

    def loss(self, low: int, high: int) -> str:
        """What a segment from position `low` to `high` shows of loss; empty: nothing."""
        if self.sent is None:
            return ""
        if high <= self.sent:
            is_new = any(begin < high and low < end for begin, end in self.holes)
            return "late: sent again or reordered" if is_new else "retransmitted"
        return f"{low - self.sent:,} bytes before it are missing" if low > self.sent else ""


def part_text(begin: int, end: int, size: int) -> str:
    """A range of the bytes of a message."""
    whole = begin == 0 and end == size
    return f"all {size:,} bytes" if whole else f"bytes {begin + 1:,} to {end:,}"


class ConnectionPackets:
    """Collects packets of connections; `observe` is a `PacketObserver` of `Pipeline`."""

    def __init__(
        self, exchanges: Sequence[Exchange], captures: Sequence[str],
        spans: Mapping[int, Sequence[tuple[int, int]]], most: int = sys.maxsize,
    ) -> None:  # fmt: skip
        """`exchanges`: at least one of each connection. `captures`: names of the files. `spans`: by
        connection, times between which its packets are collected: ns, ascending, without overlaps.
        `most`: packets of a connection to collect."""
        self.packets: dict[int, list[Packet]] = {connection: [] for connection in spans}
        """By connection, in the order of the capture."""
        self._clients = {
            each.connection_id: endpoint(each.client_ip, each.client_port) for each in exchanges
        }
        self._captures = captures
        self._spans = {each: np.array(times, np.int64) for each, times in spans.items()}
        self._most = most

    def observe(
        self, block: PacketBlock, assignment: Assignment, connections: ConnectionTable
    ) -> None:
        """Collect the packets of a block."""
        if not len(block):
            return
        row = assignment.rows[assignment.slot >> 1]
        ids = np.array([*self._spans], np.int64)
        index = np.flatnonzero(np.isin(row, ids))
        index = index[np.argsort(row[index], kind="stable")]
        begin, end = np.searchsorted(row[index], [ids, ids + 1])
        for connection, first, last in zip(ids.tolist(), begin.tolist(), end.tolist(), strict=True):
            packets, spans = self.packets[connection], self._spans[connection]
            chosen = index[first:last]
            time = block.time[chosen]
            latest = spans[:, 0].searchsorted(time, side="right") - 1
            chosen = chosen[(latest >= 0) & (time <= spans[latest, 1])]
            for each in chosen[: self._most - len(packets)].tolist():
                packets.append(self._packet(block, each, connection))

    def _packet(self, block: PacketBlock, index: int, connection: int) -> Packet:
        source = (block.src_high[index], block.src_low[index], block.src_port[index])
        flags = int(block.flags[index])
        return Packet(
            int(block.time[index]), name_text(self._captures[int(block.capture[index])]),
            int(block.number[index]), tuple(map(int, source)) == self._clients[connection],
            int(block.seq[index]) + (flags & SYN != 0),
            int(block.ack[index]) if flags & ACK else None,
            int(block.length[index]), flags, int(block.window[index]),
        )  # fmt: skip


def timelines(paths: Paths, exchanges: Sequence[Exchange], **options: Any) -> list[list[Event]]:
    """The timeline of each exchange. `options`: of `open_pass`. Raises CaptureError."""
    files = check_files(paths)
    collected = ConnectionPackets(exchanges, files, _near(exchanges))
    pipeline = open_pass(files, **options)
    pipeline.observe_packets(collected.observe)
    times = {
        connection: np.array([packet.time for packet in packets], np.int64)
        for connection, packets in collected.packets.items()
    }
    events = []
    for exchange in exchanges:
        connection = exchange.connection_id
        first, last = span(exchange)
        is_near = (times[connection] >= first - MARGIN) & (times[connection] <= last + MARGIN)
        packets = [collected.packets[connection][each] for each in np.flatnonzero(is_near)]
        events.append([*_events(exchange, packets, connection in pipeline.encrypted_connections)])
    return events


def _near(exchanges: Sequence[Exchange]) -> dict[int, list[tuple[int, int]]]:
    """The times around the exchanges of each connection, as `ConnectionPackets` takes them."""
    near: dict[int, list[tuple[int, int]]] = {}
    for exchange in sorted(exchanges, key=span):
        first, last = span(exchange)
        begin, end = first - MARGIN, last + MARGIN
        spans = near.setdefault(exchange.connection_id, [])
        if spans and begin <= spans[-1][1]:
            begin, end = spans[-1][0], max(spans.pop()[1], end)
        spans.append((begin, end))
    return near


def span(exchange: Exchange) -> tuple[int, int]:
    """The first and the last time of an exchange, ns."""
    times = (
        exchange.request_time, exchange.request_end_time, exchange.response_time,
        exchange.response_end_time,
    )  # fmt: skip
    known = [time for time in times if time is not None]
    return min(known), max(known)


def _events(exchange: Exchange, packets: Sequence[Packet], is_encrypted: bool) -> Iterator[Event]:
    # Sequence numbers of decrypted messages are not those of TCP.
    begins = (exchange.request_sequence, exchange.response_sequence)
    begins = (None, None) if is_encrypted else begins
    content = "TLS" if is_encrypted else "other message"
    client = Side("request", content, begins[0], exchange.request_bytes or 0)
    broker = Side("response", content, begins[1], exchange.response_bytes or 0)
    first, last = span(exchange)
    has_ended = False
    for event, own, low in described(packets, {True: client, False: broker}):
        packet = event.packet
        is_part = own.begin is not None and low < own.size and low + packet.length > 0
        is_part = is_part and packet.length > 0
        has_response = packet.is_from_client and acknowledges(packet, broker) >= broker.size > 0
        if is_part or first <= packet.time <= last or (has_response and not has_ended):
            yield event
            has_ended |= has_response and packet.time > last


def described(
    packets: Iterable[Packet], sides: Mapping[bool, Side]
) -> Iterator[tuple[Event, Side, int]]:
    """What each packet means, its sender, and the position of its first byte.

    `sides`: the client (True) and the broker, which record what they send.
    """
    previous: dict[bool, Packet] = {}
    for packet in packets:
        own, other = sides[packet.is_from_client], sides[not packet.is_from_client]
        low = own.position(packet.seq)
        text, is_problem = _meaning(packet, own, other, low, previous.get(packet.is_from_client))
        yield Event(packet, text, is_problem), own, low
        previous[packet.is_from_client] = packet
        own.add(low, low + packet.length)


def acknowledges(packet: Packet, side: Side) -> int:
    """Bytes of a message that a packet acknowledges; 0 or less for none of them."""
    return 0 if packet.ack is None or side.begin is None else side.position(packet.ack)


def _meaning(
    packet: Packet, own: Side, other: Side, low: int, previous: Packet | None
) -> tuple[str, bool]:
    """The text of a packet that begins at position `low`, and whether it shows a problem.

    `previous`: the packet before it of the same end.
    """
    parts = [name for flag, name in _FLAGS.items() if packet.flags & flag]
    is_problem = bool(packet.flags & RST)
    high = low + packet.length
    if packet.length and own.is_keep_alive(low, high):
        parts.append("keep-alive")
    elif packet.length:
        parts += own.content(low, high)
        if lost := own.loss(low, high):
            parts.append(lost)
            is_problem = True
        parts += own.follows(low, packet, other)
    elif not parts:
        text = f"acknowledges {other.acknowledged(packet)}"
        same = previous is not None and not previous.length and previous.ack == packet.ack
        if same and previous is not None and previous.window == packet.window:
            text = "duplicate acknowledgement"
        parts.append(text)
    if packet.window == 0 and not packet.flags & (RST | SYN):
        parts.append("zero window")
        is_problem = True
    return ", ".join(parts), is_problem
