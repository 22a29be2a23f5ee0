"""Splits a small recording so that it can be repeated.

A connection is split into head, body and tail. The head opens the connection, the tail ends it. The
body starts with the first payload and ends at the last moment when all requests have responses and
both directions are at the end of a frame. So it can be repeated any number of times in one
connection, if sequence numbers, acknowledgements and correlation ids are advanced.

Recordings must have Ethernet, IPv4 and TCP, without lost packets.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.pcap import RECORD
from dissector.packets import open_packets

IP = RECORD + 14
"""Offset of the IP header in a record, whose header counts."""
ETHERNET = 1
"""Link type (LINKTYPE_ETHERNET)."""
SYN = 0x02
ID_OFFSET = (4, 8)
"""Offset of the correlation id in a frame, including its size: by broker, by client."""


@dataclass(slots=True)
class Segment:
    """One packet of one connection."""

    index: int
    """In `Template.records`."""
    from_client: bool
    tcp: int
    """Offset of the TCP header in the record."""
    payload: int
    """Offset of the payload in the record; its end is the IP packet's."""
    end: int
    seq: int
    flags: int


@dataclass(slots=True)
class Conversation:
    """One connection of the recording."""

    broker_port: int
    segments: list[Segment] = field(default_factory=list)
    body: range = range(0)
    """Range of `segments` of the body."""
    body_bytes: tuple[int, int] = (0, 0)
    """Payload bytes of one body: by broker, by client."""
    exchanges: int = 0
    """Requests in one body, each with its response."""


@dataclass(frozen=True, slots=True)
class Template:
    """The repeatable parts. Arrays have shape (n,) by packet, (m,) by mark."""

    records: list[bytes]
    """Packets with their pcap record headers; times in ns."""
    time: NDArray[np.int64]
    """ns since 1970."""
    from_client: NDArray[np.bool_]
    tcp: NDArray[np.int64]
    """Offset of the TCP header in the record."""
    length: NDArray[np.int64]
    """Bytes of the record."""
    conversations: list[Conversation]
    """Connections with a body."""
    mark_start: NDArray[np.int64]
    """n + 1 offsets of each packet's marks. A mark is one byte of a correlation id."""
    mark_offset: NDArray[np.int64]
    """Offset in the record."""
    mark_shift: NDArray[np.int64]
    """Number of bits of the id below that byte."""
    mark_id: NDArray[np.int64]
    """The whole correlation id."""


def read(path: Path, longest: int = 0) -> Template:
    """Split a recording. Raises ValueError if it cannot be repeated.

    `longest`: most exchanges of a body, which then has no tail; 0: no limit.
    """
    records, times = _packets(path)
    conversations = _conversations(records)
    marks: list[list[tuple[int, int, int]]] = [[] for _ in records]
    for conversation in conversations:
        _find_body(conversation, records, marks, longest)
    conversations = [conversation for conversation in conversations if conversation.body]
    if not conversations:
        raise ValueError(f"{path.name}: no connection has a body that can be repeated")
    from_client = np.zeros(len(records), bool)
    tcp = np.zeros(len(records), np.int64)
    for conversation in conversations:
        for segment in conversation.segments:
            from_client[segment.index] = segment.from_client
            tcp[segment.index] = segment.tcp
    flat = np.array([mark for each in marks for mark in each], np.int64).reshape(-1, 3)
    return Template(
        records=records,
        time=np.array(times, np.int64),
        from_client=from_client,
        tcp=tcp,
        length=np.array([len(record) for record in records], np.int64),
        conversations=conversations,
        mark_start=np.cumsum([0, *(len(each) for each in marks)], dtype=np.int64),
        mark_offset=flat[:, 0].copy(),
        mark_shift=flat[:, 1].copy(),
        mark_id=flat[:, 2].copy(),
    )


def _packets(path: Path) -> tuple[list[bytes], list[int]]:
    """Records of complete TCP packets over IPv4, and their times in ns."""
    records, times = [], []
    source = open_packets([str(path)])
    while (batch := source.read_records()) is not None:
        data, columns = batch[0].data, batch[0].columns
        if (columns.link != ETHERNET).any():
            raise ValueError("only packets with Ethernet can be repeated")
        sizes = zip(columns.captured.tolist(), columns.length.tolist(), strict=True)
        places = zip(columns.start.tolist(), columns.time.tolist(), sizes, strict=True)
        for start, time, (captured, length) in places:
            frame = data[start : start + captured].tobytes()
            if frame[12:14] == b"\x08\x00" and frame[14] >> 4 == 4 and frame[23] == 6:
                if captured < length:
                    raise ValueError("a packet is truncated")
                times.append(time)
                header = struct.pack("<IIII", *divmod(time, 10**9), captured, length)
                records.append(header + frame)
    return records, times


def _conversations(records: list[bytes]) -> list[Conversation]:
    """Connections that start in the recording, with their segments."""
    conversations: list[Conversation] = []
    current: dict[frozenset[bytes], tuple[Conversation, bytes]] = {}
    for index, record in enumerate(records):
        tcp = IP + (record[IP] & 15) * 4
        source = record[IP + 12 : IP + 16] + record[tcp : tcp + 2]
        target = record[IP + 16 : IP + 20] + record[tcp + 2 : tcp + 4]
        key = frozenset((source, target))
        flags = record[tcp + 13]
        if flags & 0x12 == SYN and (
            key not in current or current[key][0].segments[-1].flags != SYN
        ):
            conversation = Conversation(int.from_bytes(target[4:], "big"))
            current[key] = conversation, source
            conversations.append(conversation)
        if key not in current:
            continue
        conversation, client = current[key]
        payload = tcp + (record[tcp + 12] >> 4) * 4
        end = IP + int.from_bytes(record[IP + 2 : IP + 4], "big")
        seq = int.from_bytes(record[tcp + 4 : tcp + 8], "big")
        segment = Segment(index, source == client, tcp, payload, end, seq, flags)
        conversation.segments.append(segment)
    return conversations


def _find_body(
    conversation: Conversation,
    records: list[bytes],
    marks: list[list[tuple[int, int, int]]],
    longest: int,
) -> None:
    """Find the body, and mark the correlation ids of the connection."""
    segments = conversation.segments
    streams = (bytearray(), bytearray())
    base: dict[bool, int] = {}
    pending: dict[int, None] = {}
    framed = [0, 0]
    exchanges = 0
    first = None
    for number, segment in enumerate(segments):
        side = segment.from_client
        start = (segment.seq + (segment.flags & SYN > 0)) & 0xFFFFFFFF
        base.setdefault(side, start)
        payload = records[segment.index][segment.payload : segment.end]
        if not payload:
            continue
        first = number if first is None else first
        at = (start - base[side]) & 0xFFFFFFFF
        stream = streams[side]
        if at > len(stream):
            return  # a hole: leave this connection out
        stream[at : at + len(payload)] = payload
        exchanges += _follow_frames(stream, side, framed, pending)
        quiet = not pending and framed == [len(streams[0]), len(streams[1])]
        if quiet and exchanges <= (longest or exchanges):
            conversation.body = range(first, number + 1)
            conversation.body_bytes = len(streams[0]), len(streams[1])
            conversation.exchanges = exchanges
    if longest:
        del segments[conversation.body.stop :]
    for side in (False, True):
        _mark(segments, side, base.get(side, 0), bytes(streams[side]), marks)


def _follow_frames(
    stream: bytearray, side: bool, framed: list[int], pending: dict[int, None]
) -> int:
    """Follow complete frames; returns the number of responses."""
    answered = 0
    while framed[side] + 4 <= len(stream):
        at = framed[side]
        end = at + 4 + int.from_bytes(stream[at : at + 4], "big")
        if end > len(stream):
            break
        identity = at + ID_OFFSET[side]
        correlation_id = int.from_bytes(stream[identity : identity + 4], "big")
        if side:
            pending[correlation_id] = None
        elif correlation_id in pending:
            del pending[correlation_id]
            answered += 1
        framed[side] = end
    return answered


def _mark(
    segments: list[Segment],
    side: bool,
    base: int,
    stream: bytes,
    marks: list[list[tuple[int, int, int]]],
) -> None:
    """Mark the bytes of correlation ids in packets of one direction."""
    ids: dict[int, tuple[int, int]] = {}
    at = 0
    while (identity := at + ID_OFFSET[side]) + 4 <= len(stream):
        correlation_id = int.from_bytes(stream[identity : identity + 4], "big")
        for byte in range(4):
            ids[identity + byte] = (24 - 8 * byte, correlation_id)
        at += 4 + int.from_bytes(stream[at : at + 4], "big")
    places = np.array(sorted(ids), np.int64)
    for segment in segments:
        if segment.from_client is not side or segment.end <= segment.payload:
            continue
        start = (segment.seq + (segment.flags & SYN > 0) - base) & 0xFFFFFFFF
        low, high = np.searchsorted(places, [start, start + segment.end - segment.payload])
        for place in places[low:high].tolist():
            marks[segment.index].append((segment.payload + place - start, *ids[place]))
