"""FrameBlock: the result of the package, frames as arrays.

A frame is one length-prefixed message of one direction of one connection. Its bytes are read
through a view (see `byteview`): `start` is the address of the first byte after the 4-byte size.
The arrays of a `FrameBlock` have the same length n; the frames of a stream are in stream order.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from dissector.arrays import arrays
from dissector.packets.block import Bytes, Int32, Int64
from dissector.problems import Problem
from dissector.streams.byteview import ByteView
from dissector.streams.frame_chain import ChainFrames, FrameChains
from dissector.streams.segments import last_of_each
from dissector.streams.sequence import numbers
from dissector.streams.table import ConnectionTable, StreamTable


@arrays
class FrameBlock:
    """All frames that a block of packets completed, as arrays of shape (n,)."""

    data: Bytes
    """The block's bytes; `position` points into it."""
    space: ByteView
    """The view that `start` is an address in; valid as long as this object exists."""
    connection: Int32
    """Row of the connection in the connection table."""
    is_request: NDArray[np.bool_]
    """The client sent the frame."""
    start: Int64
    """Address in `space` of the first byte after the size."""
    position: Int64
    """Position of that byte in `data` if the bytes of the frame are contiguous; else -1."""
    size: Int64
    """Value of the 4-byte size: the bytes after it."""
    readable: Int64
    """Bytes from `start` to the first missing byte; `size` if the frame is complete."""
    capture: Int32
    """Index of the file of the first byte's packet."""
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
    problems: list[Problem] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.size)


def frame_block(
    chains: FrameChains, frames: ChainFrames, stream_ids: Int64, table: ConnectionTable,
    streams: StreamTable, problems: list[Problem],
) -> FrameBlock:  # fmt: skip
    """The frames of a block. `stream_ids`: the stream of each slot."""
    pieces = chains.pieces
    start, size, first = frames.start, frames.size, frames.piece
    slot = pieces.stream[first]
    stream = stream_ids[slot]
    body, behind = start + 4, start + 4 + size
    # Most frames are in one piece. For others, the pieces of body and end are looked up.
    holder, last = first.copy(), first.copy()
    edge = chains.address[first] + pieces.length[first] if len(first) else start
    several = np.flatnonzero(behind > edge)
    holder[several] = chains.piece_of(body[several])
    end = chains.end[np.searchsorted(chains.stream, slot[several])]
    last[several] = chains.piece_of(np.minimum(behind[several], end) - 1)
    inside = body - chains.address[holder] if len(first) else body
    flat = inside + size <= pieces.length[holder] if len(first) else body.astype(np.bool_)
    readable_end = behind.copy()
    readable_end[several] = np.minimum(chains.gap_after(body[several]), end)
    position = pieces.at[first] + start - chains.address[first] if len(first) else start
    rank, run = _numbered(streams, stream, position, position + 4 + size)
    return FrameBlock(
        data=chains.data,
        space=chains.space,
        connection=(stream >> 1).astype(np.int32),
        is_request=(stream & 1) == table.client[stream >> 1],
        start=body,
        position=np.where(flat, pieces.source[holder] + inside, -1),
        size=size,
        readable=np.clip(readable_end - body, 0, size),
        capture=pieces.capture[first].astype(np.int32),
        packet=pieces.number[first],
        time=pieces.time[first],
        end_time=pieces.time[last],
        sequence=numbers(position, streams.flat("origin")[stream]).astype(np.int64),
        acknowledged=pieces.acknowledged[first],
        rank=rank,
        run=run,
        problems=problems,
    )


def _numbered(streams: StreamTable, stream: Int64, begin: Int64, end: Int64) -> tuple[Int64, Int64]:
    """Rank and run of frames (see `FrameBlock`). `begin` and `end`: their positions."""
    last = last_of_each(stream)
    framed_until, frame_count, gap_count = (
        streams.flat(each) for each in ("framed_until", "frame_count", "gap_count")
    )
    first = np.append(0, last[:-1] + 1)[: len(last)]
    before = np.append(0, end[:-1])[: len(end)]
    before[first] = framed_until[stream[first]]
    gaps = np.cumsum(begin != before)
    count = last + 1 - first
    earlier = gaps[first] - (begin[first] != before[first])
    rank = np.arange(len(stream)) + np.repeat(frame_count[stream[first]] + 1 - first, count)
    run = gaps + np.repeat(gap_count[stream[first]] - earlier, count)
    framed_until[stream[last]], frame_count[stream[last]] = end[last], rank[last]
    gap_count[stream[last]] = run[last]
    return rank, run
