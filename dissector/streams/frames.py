"""What the streams stage hands on: frames, as arrays, and the connections they belong to.

A frame is one length-prefixed message of one direction of one connection. Its bytes are read
through a space (see `bytespace`): `start` is the address of the first byte after the 4-byte size.
Arrays of one `FrameBlock` have the same length n; the frames of one stream stand in stream order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Bytes, Int32, Int64
from dissector.problems import Problem
from dissector.streams.byteview import ByteView


@dataclass(frozen=True, slots=True)
class FrameBlock:
    """All frames that a block of packets completed, as arrays of shape (n,)."""

    data: Bytes
    """The block's bytes; `position` points into it."""
    space: ByteView
    """Where `start` is an address; valid as long as this object lives."""
    connection: Int32
    """Id of the connection: its row in the connection table."""
    is_request: NDArray[np.bool_]
    """Sent by the client."""
    start: Int64
    """Address in `space` of the first byte after the size."""
    position: Int64
    """Position of that byte in `data` where the whole frame lies in one row; else -1."""
    size: Int64
    """Bytes after the 4-byte size, as the size says."""
    readable: Int64
    """How many of them are there, from the start on; `size` where the frame is whole."""
    capture: Int32
    """Index of the file of the first byte's packet."""
    packet: Int64
    """Number of the packet that brought the first byte of the size."""
    time: Int64
    """ns; when the first byte of the size could be read."""
    end_time: Int64
    """ns; when the last byte could be read."""
    sequence: Int64
    """Sequence number of the first byte of the size (modulo 2^32)."""
    acknowledged: Int64
    """Acknowledgement number of the packet that brought that byte: what its sender had received
    when it sent the frame. -1 where that is not known."""
    rank: Int64
    """Number of the frame in its stream, from 1."""
    run: Int64
    """How often bytes were missing between frames of the stream up to here; 0 only from the first
    byte of the stream on."""
    problems: list[Problem] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.size)
