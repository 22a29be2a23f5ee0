"""Writes TCP dialogues line by line, as the packet blocks of a capture.

    dialogue, connection = Dialogue.connected()  # SYN, SYN-ACK, ACK
    connection.client(request(3, 1, 7))          # a segment from the client
    connection.broker(response(7), cut=10)       # a segment truncated to 10 bytes
    connection.fin()
    frames = dissect(dialogue.packets)           # as one block, or cut into several

Packets are plain values in a list. Tests drop, duplicate, split and shuffle them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dissector.errors import UnknownVersion
from dissector.packets.block import ACK, FIN, PAD, RST, SYN, PacketBlock
from dissector.problems import Problem
from dissector.protocol import body_end as message_end
from dissector.streams import Streams
from dissector.streams.frames import FrameBlock
from tests.kafka_bytes import text

MS = 10**6
SECOND = 10**9
BEGINNING = 1_700_000_000 * SECOND
MAPPED = 0xFFFF << 32
NEWEST = dict.fromkeys(range(93), 15)
NO_ERROR = bytes(2)
"""The smallest body of a response: an error code."""

SASL_AUTHENTICATE = 36

Endpoint = tuple[int, int]
"""Address, 128 bits, and port."""


def ipv4(text: str) -> int:
    return MAPPED | int.from_bytes(bytes(map(int, text.split("."))), "big")


@dataclass(frozen=True)
class Packet:
    source: Endpoint
    target: Endpoint
    seq: int
    ack: int
    flags: int
    payload: bytes
    time: int
    cut: int | None = None
    """Captured payload bytes; None for all."""
    number: int = 0


@dataclass
class Dialogue:
    """Packets in order of time, one per millisecond; `wait` adds a pause."""

    packets: list[Packet] = field(default_factory=list)
    now: int = BEGINNING
    _connections: int = 0

    def connect(
        self, *, handshake: bool = True, port: int | None = None, broker: Endpoint | None = None,
        client: str = "10.0.0.1", isn: tuple[int, int] = (1000, 5000),
    ) -> Connection:  # fmt: skip
        self._connections += 1
        client_end = ipv4(client), port or 40000 + self._connections
        broker_end = broker or (ipv4("10.0.0.9"), 9092)
        opened = Connection(self, (client_end, broker_end), list(isn))
        if handshake:
            opened.packet(0, flags=SYN, ack=0)
            opened.packet(1, flags=SYN | ACK)
            opened.packet(0)
        else:
            opened.seq = [isn[0] + 1, isn[1] + 1]
        return opened

    @classmethod
    def connected(cls, **options: Any) -> tuple[Dialogue, Connection]:
        """A dialogue, and its connection: see `connect`."""
        dialogue = cls()
        return dialogue, dialogue.connect(**options)

    def wait(self, ms: float) -> None:
        self.now += int(ms * MS)

    def written(self, path: Path) -> Path:
        """Write the packets to a file."""
        path.write_bytes(pcap(self.packets))
        return path


@dataclass
class Connection:
    dialogue: Dialogue
    ends: tuple[Endpoint, Endpoint]
    seq: list[int]

    def client(self, payload: bytes, *, cut: int | None = None, sent: bool = True) -> None:
        """A segment from the client; `sent`: False if it is missing in the capture."""
        self.packet(0, payload, cut=cut, sent=sent)

    def broker(self, payload: bytes, *, cut: int | None = None, sent: bool = True) -> None:
        self.packet(1, payload, cut=cut, sent=sent)

    def client_segments(self, payload: bytes, size: int) -> None:
        """Segments of at most `size` bytes from the client."""
        for at in range(0, len(payload), size):
            self.client(payload[at : at + size])

    def broker_segments(self, payload: bytes, size: int) -> None:
        for at in range(0, len(payload), size):
            self.broker(payload[at : at + size])

    def exchanges(self, correlation_ids: Iterable[int], body: bytes = b"") -> None:
        """Exchanges of Metadata; `body`: of the responses."""
        for number in correlation_ids:
            self.exchange(request(3, 1, number), response(number, body))

    def exchange(self, request_bytes: bytes, response_bytes: bytes) -> None:
        """A segment from the client, and one from the broker."""
        self.client(request_bytes)
        self.broker(response_bytes)

    def retransmit(self, end: int, payload: bytes, back: int) -> None:
        """A segment that begins `back` bytes before the next sequence number."""
        self.seq[end] -= back
        self.packet(end, payload)
        self.seq[end] += back - len(payload)

    def fin(self) -> None:
        self.packet(0, flags=FIN | ACK)
        self.packet(1, flags=FIN | ACK)
        self.packet(0)

    def rst(self, end: int = 0) -> None:
        self.packet(end, flags=RST)

    def packet(
        self, end: int, payload: bytes = b"", *, flags: int = ACK, ack: int | None = None,
        cut: int | None = None, sent: bool = True,
    ) -> None:  # fmt: skip
        dialogue = self.dialogue
        dialogue.now += MS
        acknowledged = self.seq[1 - end] if ack is None else ack
        if sent:
            dialogue.packets.append(
                Packet(
                    self.ends[end], self.ends[1 - end], self.seq[end] % 2**32,
                    acknowledged % 2**32, flags, payload, dialogue.now, cut,
                    len(dialogue.packets) + 1,
                )
            )  # fmt: skip
        self.seq[end] += len(payload) + (flags & (SYN | FIN) != 0)


def spoken(client: bytes, *broker: bytes) -> Dialogue:
    """A connection with a segment from the client, and then some from the broker."""
    dialogue, connection = Dialogue.connected()
    connection.client(client)
    for each in broker:
        connection.broker(each)
    return dialogue


def request(
    api_key: int, version: int, correlation: int, body: bytes = b"", client: str = "me"
) -> bytes:
    """A request, size included."""
    return framed(struct.pack(">hhi", api_key, version, correlation) + text(client) + body)


def response(correlation: int, body: bytes = b"") -> bytes:
    """A response, size included."""
    return framed(struct.pack(">i", correlation) + body)


def framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def split(packets: Sequence[Packet], size: int) -> list[Packet]:
    """Split all segments into segments of at most `size` bytes."""
    return [
        replace(each, payload=each.payload[at : at + size], seq=(each.seq + at) % 2**32)
        for each in packets
        for at in range(0, max(len(each.payload), 1), size)
    ]


def block(packets: Sequence[Packet], reserve: int = 0) -> PacketBlock:
    """The packets as a block of the packets stage, with other bytes between the payloads."""
    data = bytearray(reserve)
    offsets = []
    for each in packets:
        data += b"\xee" * 40
        offsets.append(len(data))
        data += each.payload[: each.cut]
    data += bytes(PAD)

    def column(values: Iterable[int], dtype: type[np.generic]) -> np.ndarray:
        return np.array(list(values), dtype)

    low = (1 << 64) - 1
    return PacketBlock(
        data=np.frombuffer(data, np.uint8), reserve=reserve,
        capture=column((0 for _ in packets), np.int32),
        number=column((each.number for each in packets), np.int64),
        time=column((each.time for each in packets), np.int64),
        src_high=column((each.source[0] >> 64 for each in packets), np.uint64),
        src_low=column((each.source[0] & low for each in packets), np.uint64),
        dst_high=column((each.target[0] >> 64 for each in packets), np.uint64),
        dst_low=column((each.target[0] & low for each in packets), np.uint64),
        src_port=column((each.source[1] for each in packets), np.uint16),
        dst_port=column((each.target[1] for each in packets), np.uint16),
        seq=column((each.seq for each in packets), np.uint32),
        ack=column((each.ack for each in packets), np.uint32),
        flags=column((each.flags for each in packets), np.uint8),
        window=column((64240 for _ in packets), np.uint16),
        payload=column(offsets, np.int64),
        captured=column((len(each.payload[: each.cut]) for each in packets), np.int32),
        length=column((len(each.payload) for each in packets), np.int32),
        packets_seen=len(packets), bytes_read=len(data),
    )  # fmt: skip


@dataclass(frozen=True)
class Frame:
    """One frame of a `FrameBlock`."""

    connection: int
    is_request: bool
    message: bytes
    size: int
    packet: int
    time: int
    end_time: int


@dataclass
class Dissected:
    """The results of all blocks."""

    streams: Streams
    frames: list[Frame]
    problems: list[Problem]
    reserved: int
    """Largest number of bytes that were carried from one block to the next."""

    def messages(self, connection: int | None = None) -> tuple[list[bytes], list[bytes]]:
        """Complete messages of the client, and of the broker, without sizes."""
        chosen = [
            each
            for each in self.frames
            if connection in (None, each.connection) and len(each.message) == each.size
        ]
        return (
            [each.message for each in chosen if each.is_request],
            [each.message for each in chosen if not each.is_request],
        )

    def kinds(self) -> list[str]:
        return [each.kind for each in self.problems]


def sasl_request(number: int, data: bytes) -> bytes:
    """A SaslAuthenticate v0 request, size included."""
    return request(SASL_AUTHENTICATE, 0, number, struct.pack(">i", len(data)) + data)


def sasl_response(number: int, data: bytes) -> bytes:
    """A SaslAuthenticate v0 response, size included."""
    return response(number, struct.pack(">hhi", 0, -1, len(data)) + data)


def body_end(data: bytes, size: int, request: tuple[int, int] | None) -> int:
    """The end of a body. Only SaslAuthenticate is known: the bodies of other APIs are arbitrary."""
    api = int.from_bytes(data[:2], "big") if request is None else request[0]
    if api != SASL_AUTHENTICATE:
        raise UnknownVersion("any body", offset=0)
    return message_end.body_end(data, size, request)


def dissect(
    packets: Sequence[Packet], *, cuts: Iterable[int] = (), packets_per_block: int = 0,
    ports: Sequence[int] = (9092,), memory: int = 512 << 20, streams: Streams | None = None,
) -> Dissected:  # fmt: skip
    """Dissect the packets, in blocks that end at the `cuts`, or that have this many packets."""
    if packets_per_block:
        cuts = range(packets_per_block, len(packets), packets_per_block)
    streams = streams or Streams(ports=ports, newest=NEWEST, memory=memory, body_end=body_end)
    out = Dissected(streams, [], [], 0)
    borders = [0, *sorted(cuts), len(packets)]
    for low, high in pairwise(borders):
        out.reserved = max(out.reserved, streams.reserve)
        frames = streams.feed(block(packets[low:high], streams.reserve))
        for each in [*streams.decrypted, frames]:
            collect(out, each)
    frames = streams.finish()
    for each in [*streams.decrypted, frames]:
        collect(out, each)
    return out


def pcap(packets: Iterable[Packet]) -> bytes:
    """The packets as a capture file: IP without a link layer, times in ns."""
    parts = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 101)]
    for each in packets:
        (source_address, source), (target_address, target) = each.source, each.target
        tcp = struct.pack(
            ">HHIIBBHHH", source, target, each.seq, each.ack, 5 << 4, each.flags, 512, 0, 0
        )
        size = 40 + len(each.payload)
        ip = struct.pack(
            ">BBHHHBBHII", 0x45, 0, size, 0, 0, 64, 6, 0,
            source_address & 0xFFFFFFFF, target_address & 0xFFFFFFFF,
        )  # fmt: skip
        data = ip + tcp + each.payload
        kept = data if each.cut is None else data[: 40 + each.cut]
        second, fraction = divmod(each.time, SECOND)
        parts += [struct.pack("<IIII", second, fraction, len(kept), len(data)), kept]
    return b"".join(parts)


def collect(out: Dissected, frames: FrameBlock) -> None:
    """Add the frames of a block. If a frame is contiguous, both ways to read it must agree."""
    for index in range(len(frames)):
        start, readable = int(frames.start[index]), int(frames.readable[index])
        message = frames.space.bytes(start, readable)
        position = int(frames.position[index])
        if position >= 0:
            assert frames.data[position : position + readable].tobytes() == message
        out.frames.append(
            Frame(
                int(frames.connection[index]), index < frames.requests, message,
                int(frames.size[index]), int(frames.packet[index]), int(frames.time[index]),
                int(frames.end_time[index]),
            )
        )  # fmt: skip
    out.problems += frames.problems
