"""Packets as pcapng (draft-ietf-opsawg-pcapng): the blocks of a file, little-endian, times in ns.

A file is one section: its header, a description of each interface before its first packet, and an
enhanced packet block for each packet. The counterpart, which reads them, is `pcapng`.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Bytes, Int64
from dissector.packets.capture_reader import PACKET_LIMIT, PacketColumns
from dissector.packets.pcapng import ENHANCED, INTERFACE, SECTION

SECTION_HEADER: Final = struct.pack(
    "<IIIHHqI", SECTION, 28, 0x1A2B3C4D, 1, 0, -1, 28
)  # the length of the section is not known
_NAME, _RESOLUTION = 2, 9
_NANOSECONDS = 9
_UNKNOWN_LINK = 147  # USER0
_HEAD = np.dtype(
    [(name, "<u4") for name in ("kind", "size", "interface", "high", "low", "captured", "length")]
)


def interface_block(name: str, link: int) -> bytes:
    """Describes an interface; they are numbered from 0, in order."""
    options = _option(_NAME, name.encode()) + _option(_RESOLUTION, bytes([_NANOSECONDS]))
    body = struct.pack("<HxxI", link if link >= 0 else _UNKNOWN_LINK, PACKET_LIMIT) + options
    body += bytes(4)  # the end of the options
    size = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", INTERFACE) + size + body + size


def packet_blocks(
    data: Bytes, columns: PacketColumns, interface: NDArray[np.integer]
) -> tuple[bytearray, Int64]:
    """A block for each packet, and where each ends; `interface`: its number, shape (n,)."""
    size = 32 + (columns.captured + 3) // 4 * 4
    end = np.cumsum(size)
    at = end - size
    head = np.empty(len(at), _HEAD)
    head["kind"], head["size"], head["interface"] = ENHANCED, size, interface
    head["high"], head["low"] = columns.time >> 32, columns.time & 0xFFFFFFFF
    head["captured"], head["length"] = columns.captured, columns.length
    blocks = bytearray(int(end[-1]) if len(end) else 0)
    out = np.frombuffer(blocks, np.uint8)
    out[at[:, None] + np.arange(28)] = head.view(np.uint8).reshape(-1, 28)
    out[(end - 4)[:, None] + np.arange(4)] = head["size"].copy().view(np.uint8).reshape(-1, 4)
    source = data.data
    for here, there, length in zip(
        columns.start.tolist(), (at + 28).tolist(), columns.captured.tolist(), strict=True
    ):
        blocks[there : there + length] = source[here : here + length]
    return blocks, end


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)
