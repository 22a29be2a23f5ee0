"""FrameBlock: the result of the package, frames as arrays.

A frame is one length-prefixed message of one direction of one connection. Its bytes are read
through a view (see `byteview`): `start` is the address of the first byte after the 4-byte size.
The arrays of a `FrameBlock` have the same length n: the frames of clients, then those of brokers.
The frames of a stream are in stream order.
"""

from __future__ import annotations

import numpy as np

from dissector import _native
from dissector.arrays import arrays
from dissector.byteview import ByteView
from dissector.packets.block import Bytes, Int64
from dissector.problems import Problem
from dissector.streams.connections.table import ConnectionTable, StreamTable
from dissector.streams.frame_chain import ChainFrames, FrameChains


@arrays
class FrameBlock:
    """All frames that a block of packets completed, as int64 arrays of shape (n,)."""

    data: Bytes
    """The block's bytes; `position` points into it."""
    space: ByteView
    """The view that `start` is an address in; valid as long as this object exists."""
    problems: list[Problem]
    requests: int
    """Number of the frames that clients sent, which are the first ones."""
    connection: Int64
    """Row of the connection in the connection table."""
    capture: Int64
    """Index of the file of the first byte's packet."""
    start: Int64
    """Address in `space` of the first byte after the size."""
    position: Int64
    """Position of that byte in `data` if the bytes of the frame are contiguous; else -1."""
    size: Int64
    """Value of the 4-byte size: the bytes after it."""
    readable: Int64
    """Bytes from `start` to the first missing byte; `size` if the frame is complete."""
    correlation_id: Int64
    """0 if the frame is too short to have one, or its bytes are missing."""
    packet: Int64
    """Number of the packet with the first byte of the size."""
    time: Int64
    """ns; when the first byte of the size became readable."""
    end_time: Int64
    """ns; when the last byte became readable."""
    sequence: Int64
    """Sequence number of the first byte of the size (modulo 2^32)."""
    acknowledged: Int64
    """Acknowledgement number of the packet with that byte: the bytes that the sender had received
    when it sent the frame. -1 if unknown."""
    rank: Int64
    """Number of the frame in its stream, from 1."""
    run: Int64
    """Number of gaps between frames of the stream up to here; 0 only if all frames since the first
    byte of the stream follow each other."""

    def __len__(self) -> int:
        return len(self.size)


def frame_block(
    chains: FrameChains, parts: list[ChainFrames], table: ConnectionTable, streams: StreamTable,
    problems: list[Problem],
) -> FrameBlock:  # fmt: skip
    """The frames of a block, in parts."""
    frames = ChainFrames.joined(parts or [ChainFrames.empty()])
    pieces, stream_ids = chains.pieces, chains.stream_ids
    end = np.zeros(len(stream_ids), np.int64)
    end[chains.slot] = chains.end
    columns = streams.framed_until, streams.frame_count, streams.gap_count
    until, count, gaps = (column[stream_ids] for column in columns)
    origin = streams.origin[stream_ids].astype(np.int64)
    row = stream_ids >> 1
    client = np.where(table.is_client(stream_ids), row, -1 - row)
    numbers = [np.empty(len(frames), np.int64) for _ in range(14)]
    requests = _native.describe_frames(
        chains.address, pieces.stream, pieces.at, pieces.length, pieces.source, pieces.time,
        pieces.capture, pieces.number, pieces.acknowledged, end, origin, client,
        frames.start.argsort(kind="stable"), frames.start, frames.size, frames.piece, frames.first,
        frames.second, until, count, gaps, *numbers,
    )  # fmt: skip
    for column, latest in zip(columns, (until, count, gaps), strict=True):
        column[stream_ids] = latest
    return FrameBlock(chains.data, chains.space, problems, requests, *numbers)
