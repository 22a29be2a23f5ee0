"""The product of this package: blocks of arrays with one row per TCP packet.

A block holds the bytes of a part of a capture and, for each TCP packet in it, the header fields
that later stages need, one array per field. All arrays of a block have length n and keep the order
of the capture. Packets that are not TCP are counted, but are not in the arrays.

Bytes stay where they were read: `payload` is the position of a packet's payload in `data`. The
first `reserve` bytes of `data` are free for the next stage, which stores there the bytes that it
carries over from the previous block. So old and new bytes share one array, and nothing is copied
twice. The last `PAD` bytes are padding, so that reading up to sixteen bytes at any payload position
stays inside the array.

Addresses are two uint64, high and low, in network order. An IPv4 address is its IPv4-mapped IPv6
address (RFC 4291, section 2.5.5.2): high 0, low 0x0000ffff_aabbccdd.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dissector.arrays import arrays
from dissector.problems import Problem

Bytes: TypeAlias = NDArray[np.uint8]
Int64: TypeAlias = NDArray[np.int64]
Int32: TypeAlias = NDArray[np.int32]
UInt64: TypeAlias = NDArray[np.uint64]
UInt32: TypeAlias = NDArray[np.uint32]
UInt16: TypeAlias = NDArray[np.uint16]
Int8: TypeAlias = NDArray[np.int8]
UInt8: TypeAlias = NDArray[np.uint8]

Place: TypeAlias = tuple[int, int]
"""Index of the file of a packet, and its number there."""

MAPPED = 0xFFFF << 32
"""High part of the low 64 bits of an IPv4-mapped IPv6 address."""

PAD = 16
"""Bytes of padding at the end of a block's data."""

LAST_PORT = 0xFFFF

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10
"""TCP flags (RFC 9293, section 3.1)."""


@arrays
class PacketBlock:
    """Tens of thousands of TCP packets, as arrays of shape (n,)."""

    data: Bytes
    """uint8; [reserve free bytes | bytes as read | PAD]."""
    reserve: int
    """Number of bytes at the front of `data` that are free for the next stage."""
    capture: Int32
    """Index of the packet's file in the source's `names`."""
    number: Int64
    """Packet number in its file, 1-based."""
    time: Int64
    """ns since 1970, UTC."""
    src_high: UInt64
    src_low: UInt64
    dst_high: UInt64
    dst_low: UInt64
    src_port: UInt16
    dst_port: UInt16
    seq: UInt32
    ack: UInt32
    """Acknowledgement number; meaningful where `flags` has ACK."""
    flags: UInt8
    window: UInt16
    """As on the wire, not scaled."""
    payload: Int64
    """Position in `data` of the first payload byte."""
    captured: Int32
    """Payload bytes that are in the capture."""
    length: Int32
    """Payload bytes that were on the wire; more than `captured` if the packet was truncated. A
    reset has none: its text is not part of the stream (RFC 9293, section 3.5.2)."""
    packets_seen: int
    """Number of packets read for this block, TCP or not."""
    bytes_read: int
    """Bytes of input read for this block, for progress."""
    problems: list[Problem] = field(default_factory=list)
    without_tcp: dict[str, int] = field(default_factory=dict)
    """In a block without TCP: number of packets by the layer at which reading ended, apart from
    those that became problems."""
    fragments: dict[Place, list[Place]] = field(default_factory=dict)
    """All fragments of each packet that was reassembled; its place is that of the last one."""
    until: int | None = None
    """ns since 1970: the time at the end of the block, by the clock of a live capture or by the
    last packets; None: that of the latest packet."""

    def __len__(self) -> int:
        return len(self.time)

    @property
    def latest(self) -> int | None:
        """The time at the end of the block, ns; None if unknown."""
        if self.until is None and len(self.time):
            return int(self.time.max())
        return self.until

    @classmethod
    def empty(cls, reserve: int) -> PacketBlock:
        """A block without packets."""
        columns: dict[str, Any] = {name: np.zeros(0, dtype) for name, dtype in COLUMNS.items()}
        data = np.zeros(reserve + PAD, np.uint8)
        return cls(data=data, reserve=reserve, packets_seen=0, bytes_read=0, **columns)


HEADER_COLUMNS = {
    "src_high": np.uint64, "src_low": np.uint64, "dst_high": np.uint64, "dst_low": np.uint64,
    "src_port": np.uint16, "dst_port": np.uint16, "seq": np.uint32, "ack": np.uint32,
    "flags": np.uint8, "window": np.uint16, "payload": np.int64, "captured": np.int32,
    "length": np.int32,
}  # fmt: skip
"""Columns of a `PacketBlock` that are read from headers, and their types."""
COLUMNS = {"capture": np.int32, "number": np.int64, "time": np.int64, **HEADER_COLUMNS}
"""All columns of a `PacketBlock`."""


class PacketSource(Protocol):
    """Files, a pipe or an interface, as blocks in order of time."""

    names: list[str]
    """Names of the captures seen so far; `PacketBlock.capture` is an index into it. It grows."""

    total_bytes: int | None
    """Size of all input in bytes, the maximum of `bytes_read`; None if unknown."""

    def read(self, reserve: int) -> PacketBlock | None:
        """The next block, with `reserve` free bytes at the front; None at the end."""

    def close(self) -> None:
        """Close files and free buffers."""
