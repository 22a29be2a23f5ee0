"""The timeline of a connection: its packets in order of time, and what each of them means.

As `analysis.timeline.exchange` for many exchanges of one connection: a segment is described by the
messages whose bytes it has.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from analysis.input.passes import check_files, open_pass
from analysis.timeline.exchange import (
    MARGIN,
    ConnectionPackets,
    Event,
    Packet,
    Side,
    acknowledges,
    described,
    part_text,
    span,
)
from dissector.arrays import value
from dissector.capture import Paths
from dissector.exchanges.exchange import Exchange

MOST_PACKETS: Final = 50_000
"""Maximum number of packets of a timeline; the first ones."""
NAMED: Final = 3
"""Maximum number of messages that the text of a segment names."""


@value
class Message:
    """A request or response in the bytes of one end."""

    name: str
    begin: int
    """Position of its first byte."""
    size: int

    @property
    def end(self) -> int:
        return self.begin + self.size


@dataclass(slots=True)
class _End(Side):
    """One end of a connection; positions count from its first message."""

    messages: list[Message] = field(default_factory=list)

    def content(self, low: int, high: int) -> list[str]:
        inside = self._between(low, high)
        if not inside:
            return [f"{self.other_content}, {high - low:,} bytes"]
        if len(inside) > NAMED:
            return [f"{len(inside)} messages, {inside[0].name} to {inside[-1].name}"]
        return [
            f"{message.name}, {part_text(begin, end, message.size)}"
            for message in inside
            for begin, end in [
                (max(low - message.begin, 0), min(high - message.begin, message.size))
            ]
        ]

    def acknowledged(self, packet: Packet) -> str:
        position = acknowledges(packet, self)
        index = bisect_right(self.messages, position - 1, key=lambda message: message.begin) - 1
        if index < 0 or position > self.messages[index].end:
            return "earlier bytes"
        message = self.messages[index]
        if position == message.end:
            return message.name
        return f"{position - message.begin:,} bytes of {message.name}"

    def follows(self, low: int, packet: Packet, other: Side) -> list[str]:
        return []

    def _between(self, low: int, high: int) -> list[Message]:
        """The messages with bytes in a range."""
        first = max(bisect_right(self.messages, low, key=lambda message: message.begin) - 1, 0)
        last = bisect_right(self.messages, high - 1, key=lambda message: message.begin)
        return [message for message in self.messages[first:last] if message.end > low]


def connection_timeline(paths: Paths, exchanges: Sequence[Exchange], **options: Any) -> list[Event]:
    """The packets around exchanges of one connection. `options`: of `open_pass`.

    The exchanges must have less than 1 GB together. Raises CaptureError.
    """
    files = check_files(paths)
    times = [time for exchange in exchanges for time in span(exchange)]
    connection = exchanges[0].connection_id
    spans = {connection: [(min(times) - MARGIN, max(times) + MARGIN)]}
    collected = ConnectionPackets(exchanges[:1], files, spans, MOST_PACKETS)
    pipeline = open_pass(files, **options)
    pipeline.observe_packets(collected.observe)
    return _events(exchanges, collected.packets[connection], pipeline.encrypted_connections)


def _events(
    exchanges: Sequence[Exchange], packets: Sequence[Packet], encrypted: Collection[int]
) -> list[Event]:
    is_encrypted = exchanges[0].connection_id in encrypted
    ends = {
        is_client: _end(exchanges, is_client=is_client, is_encrypted=is_encrypted)
        for is_client in (True, False)
    }

    def begun() -> Iterator[Packet]:
        """The packets. An end without messages begins with its first packet."""
        for packet in packets:
            own = ends[packet.is_from_client]
            own.begin = packet.seq if own.begin is None else own.begin
            yield packet

    return [event for event, _, _ in described(begun(), ends)]


def _end(exchanges: Sequence[Exchange], *, is_client: bool, is_encrypted: bool) -> _End:
    """The messages of one end. Sequence numbers of decrypted messages are not those of TCP."""
    kind = "request" if is_client else "response"
    places = [
        (begin, size, f"{exchange.api or 'Unknown API'} {kind} {exchange.correlation_id}")
        for exchange in exchanges
        for begin, size in [
            (exchange.request_sequence, exchange.request_bytes)
            if is_client
            else (exchange.response_sequence, exchange.response_bytes)
        ]
        if begin is not None and size is not None and not is_encrypted
    ]
    end = _End(kind, "TLS" if is_encrypted else "other message", None, 0)
    if places:
        end.begin = places[0][0]
        messages = [Message(name, end.position(begin), size) for begin, size, name in places]
        end.messages = sorted(messages, key=lambda message: message.begin)
    return end
