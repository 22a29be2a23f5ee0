"""Builds frame blocks from a list of messages, for tests of the correlator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dissector.byteview import ByteView
from dissector.packets.block import PAD
from dissector.streams.frames import FrameBlock
from tests.kafka_bytes import text

MS = 10**6


@dataclass(frozen=True)
class SentFrame:
    """One message: connection, direction, bytes and time."""

    connection: int
    is_request: bool
    frame: bytes
    ms: int
    readable: int | None = None
    lost: int = 0
    """Number of missing bytes before the message."""
    received: int = -1
    """Bytes of the other direction that its sender had received; -1: no acknowledgement number."""


def sent_request(frame: bytes, ms: int, connection: int = 0) -> SentFrame:
    return SentFrame(connection, True, frame, ms)


def sent_response(frame: bytes, ms: int, connection: int = 0) -> SentFrame:
    return SentFrame(connection, False, frame, ms)


@dataclass
class Stream:
    """Position of a stream."""

    bytes: int = 0
    frames: int = 0
    runs: int = 0

    def add(self, sent: SentFrame) -> tuple[int, int, int]:
        """Sequence number, rank and run of the next message."""
        begin = self.bytes + sent.lost
        self.bytes = begin + 4 + len(sent.frame)
        self.frames += 1
        self.runs += sent.lost > 0
        return begin, self.frames, self.runs


def block(*sent: SentFrame, streams: dict[tuple[int, bool], Stream] | None = None) -> FrameBlock:
    """The messages as one block; the frames of a stream keep their order.

    `streams`: positions of the streams after earlier blocks.
    """
    streams = {} if streams is None else streams
    ordered = sorted(sent, key=lambda each: (not each.is_request, each.connection))
    data = bytearray()
    start = []
    for each in ordered:
        data += len(each.frame).to_bytes(4, "big")
        start.append(len(data))
        data += each.frame
    array = np.frombuffer(bytes(data) + bytes(PAD), np.uint8)
    sizes = [len(each.frame) for each in ordered]
    readable = [
        size if each.readable is None else each.readable
        for each, size in zip(ordered, sizes, strict=True)
    ]
    ids = [
        int.from_bytes(each.frame[4 * each.is_request :][:4], "big", signed=True)
        if size >= 4 + 4 * each.is_request
        else 0
        for each, size in zip(ordered, readable, strict=True)
    ]
    places = [
        streams.setdefault((each.connection, each.is_request), Stream()).add(each)
        for each in ordered
    ]
    sequence, rank, run = np.array(places, np.int64).reshape(-1, 3).T.copy()
    zero, whole = np.zeros(1, np.int64), np.array([len(data)])
    time = np.array([each.ms * MS for each in ordered], np.int64)
    return FrameBlock(
        data=array,
        space=ByteView(array, zero, zero, whole),
        problems=[],
        requests=sum(each.is_request for each in ordered),
        connection=np.array([each.connection for each in ordered], np.int64),
        capture=np.zeros(len(ordered), np.int64),
        start=np.array(start, np.int64),
        position=np.array(start, np.int64),
        size=np.array(sizes, np.int64),
        readable=np.array(readable, np.int64),
        correlation_id=np.array(ids, np.int64),
        packet=np.arange(1, len(ordered) + 1),
        time=time,
        end_time=time,
        sequence=sequence,
        acknowledged=np.array([each.received for each in ordered], np.int64),
        rank=rank,
        run=run,
    )


def request(
    api_key: int, version: int, correlation: int, body: bytes = b"", *, client: str = "me",
    flexible: bool = False,
) -> bytes:  # fmt: skip
    header = api_key.to_bytes(2, "big") + version.to_bytes(2, "big")
    header += correlation.to_bytes(4, "big", signed=True)
    return header + text(client) + (b"\0" if flexible else b"") + body


def response(correlation: int, body: bytes = b"") -> bytes:
    return correlation.to_bytes(4, "big", signed=True) + body
