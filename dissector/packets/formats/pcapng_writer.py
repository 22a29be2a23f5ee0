"""Packets as pcapng (draft-ietf-opsawg-pcapng): the blocks of a file, little-endian.

A file is one section: its header, a description of each interface before its first packet, and an
enhanced packet block for each packet. TLS secrets come before the packets that need them. The
counterpart, which reads them, is `pcapng`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Bytes, Int64
from dissector.packets.formats.capture_reader import (
    PACKET_LIMIT,
    Interface,
    PacketColumns,
    PacketRecords,
)
from dissector.packets.formats.pcapng import (
    COMMENT,
    ENHANCED,
    INTERFACE,
    NAME,
    OFFSET,
    RESOLUTION,
    SECRETS,
    SECTION,
    TLS_KEY_LOG,
    read_options,
)

Options: TypeAlias = Iterable[tuple[int, bytes]]
"""Codes and values of options."""

_MOST: Final = 0xFFFF
"""Bytes of an option."""
_APPLICATION: Final = 4
_NANOSECONDS: Final = 9
_UNKNOWN_LINK: Final = 147  # USER0
_INTERFACE_NUMBERS: Final = (8, 10, 16, 17)
"""Options of interfaces that are numbers: if_speed, if_tzone, if_txspeed, if_rxspeed."""
_PACKET_NUMBERS: Final = (2, 4, 5, 6)
"""Those of packets: epb_flags, epb_dropcount, epb_packetid, epb_queue."""
_HEAD = np.dtype(
    [(name, "<u4") for name in ("kind", "size", "interface", "high", "low", "captured", "length")]
)


def section_header(application: str = "", comments: Iterable[str] = ()) -> bytes:
    """The header of the file's section. Its length is not declared."""
    options = [comment_option(comment) for comment in comments]
    options += [(_APPLICATION, application.encode())] if application else []
    return _block(SECTION, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + _options(options))


def comment_option(text: str) -> tuple[int, bytes]:
    """A comment. The end of a text that is longer than an option may be is left out."""
    encoded = text.encode(errors="backslashreplace")
    if len(encoded) > _MOST:
        encoded = encoded[: _MOST - 3].decode(errors="ignore").encode() + "…".encode()
    return COMMENT, encoded


def interface_block(interface: Interface) -> bytes:
    """Describes an interface; they are numbered from 0, in order."""
    link = interface.link if interface.link >= 0 else _UNKNOWN_LINK
    options = [
        (code, value)
        for code, value in _ordered(interface.options, interface.order, _INTERFACE_NUMBERS)
        if code not in (RESOLUTION, OFFSET)
    ]
    options.append((RESOLUTION, bytes([_power(interface)])))
    if interface.origin:
        options.append((OFFSET, struct.pack("<q", interface.origin // 10**9)))
    return _block(INTERFACE, struct.pack("<HxxI", link, interface.snaplen) + _options(options))


def named_interface(name: str, link: int) -> Interface:
    """An interface with a name, whose times are in ns."""
    return Interface(link, PACKET_LIMIT, _NANOSECONDS, ((NAME, name.encode()),))


def secrets_block(keylog: bytes) -> bytes:
    """TLS secrets in the NSS key log format."""
    size = struct.pack("<II", TLS_KEY_LOG, len(keylog))
    return _block(SECRETS, size + keylog + bytes(-len(keylog) % 4))


def packet_block(
    number: int, interface: Interface, time: int, data: bytes, length: int, options: Options
) -> bytes:
    """One packet. `number`: of its interface. `time`: ns. `length`: bytes on the wire."""
    ticks = (time - interface.origin) // 10 ** (_NANOSECONDS - _power(interface))
    head = struct.pack("<IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), length)
    return _block(ENHANCED, head + data + bytes(-len(data) % 4) + _options(options))


def packet_options(records: PacketRecords, row: int, interface: Interface) -> Options:
    """The options of a packet in a pcapng file, in little-endian order."""
    if interface.order is None:
        return []
    start, captured = int(records.columns.start[row]), int(records.columns.captured[row])
    words = struct.Struct(interface.order + "II")
    kind, size = words.unpack_from(records.data.data, start - 28) if start >= 28 else (0, 0)
    at, end = start + (captured + 3) // 4 * 4, start - 28 + (size + 3) // 4 * 4 - 4
    # Other blocks have no options.
    if kind != ENHANCED or not at < end <= len(records.data) - 4:
        return []
    options = read_options(records.data[at:end].tobytes(), interface.order)
    return _ordered(options, interface.order, _PACKET_NUMBERS)


def packet_blocks(
    data: Bytes, columns: PacketColumns, interface: NDArray[np.integer]
) -> tuple[bytearray, Int64]:
    """A block for each packet, and where each ends; times in ns.

    `interface`: number of its interface, shape (n,).
    """
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


def _power(interface: Interface) -> int:
    """The resolution of times as written: that of the interface, if it is decimal, at most ns."""
    return min(interface.resolution, _NANOSECONDS)


def _ordered(options: Options, order: str | None, numbers: tuple[int, ...]) -> Options:
    """Options with their numbers in little-endian order."""
    return [
        (code, value[::-1] if order == ">" and code in numbers else value)
        for code, value in options
    ]


def _options(options: Options) -> bytes:
    encoded = b"".join(
        struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)
        for code, value in options
    )
    return encoded and encoded + bytes(4)


def _block(kind: int, body: bytes) -> bytes:
    size = len(body) + 12
    return struct.pack("<II", kind, size) + body + struct.pack("<I", size)
