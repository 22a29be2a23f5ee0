"""Captures from an interface through memory shared with the Linux kernel.

A packet socket (packet(7)) has a receive ring of version 3 (Documentation/networking/
packet_mmap.rst in Linux). The ring consists of blocks. The kernel fills a block with packets, each
after a header with its time, length and interface. Then it hands the block over by a word in the
block's header. So no packet needs a system call, and none is cut: frames of 64 KiB, from loopback
and from cards that merge segments, fit too. A block returns to the kernel once its bytes are
copied.

    block     version, -, status, packets, first packet, used bytes, …     48 bytes
    packet    next, seconds, ns, captured, length, status, link header, network header, …, address

The filter is compiled by libpcap, through scapy's binding, for each type of interface. It is
attached before the ring is created, which discards earlier packets. Loopback shows each packet
twice, outgoing and incoming; the outgoing one is skipped.

An interface may go down and return, even as a different interface with the same name. `watch`
reports that, and continues with it. Only opening needs the right to capture.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import socket
import struct
import time
from typing import Final

import numpy as np

from dissector.arrays import value
from dissector.errors import CaptureError, DissectorError
from dissector.packets.block import Bytes, Int32, Int64
from dissector.packets.formats.capture_reader import WIRE_LIMIT, PacketColumns, gather
from dissector.problems import Problem, drop_problem

ANY: Final = "any"
"""Name of all interfaces together, as in tcpdump."""
BUFFER_BYTES: Final = 32 << 20
BLOCK_BYTES: Final = 1 << 20
_RETIRE_MS = 50
"""The kernel hands over a block when it is full, or after this time."""

_ETH_P_ALL = 3
_SOL_PACKET = 263
_ADD_MEMBERSHIP, _RX_RING, _STATISTICS, _VERSION = 1, 5, 6, 10
_MR_PROMISC = 1
_TPACKET_V3 = 2
_ATTACH_FILTER = 26
_GET_FLAGS, _GET_INDEX, _IS_UP = 0x8913, 0x8933, 1
_OUTGOING = 4

_OURS = 1  # status of a block that was handed over; 0 gives it back
_BLOCK = struct.Struct("=8xIII")  # status, packets, first packet
_NEXT = struct.Struct("=I")
_PACKET = np.dtype(
    {
        "names": ["seconds", "ns", "captured", "length", "link", "interface", "hardware", "kind"],
        "formats": ["u4", "u4", "u4", "u4", "u2", "i4", "u2", "u1"],
        "offsets": [4, 8, 12, 16, 24, 52, 56, 58],  # the address begins at byte 48
        "itemsize": 68,
    }
)

_ETHERNET, _RAW_IP = 1, 101
_LOOPBACK = 772
_LINKS = {
    **dict.fromkeys((1, _LOOPBACK), _ETHERNET),
    **dict.fromkeys((519, 768, 769, 776, 778, 823, 65534), _RAW_IP),
    801: 105,
    802: 119,
    803: 127,
}
"""Link type by the interface's ARPHRD_… number: Ethernet and loopback; raw IP, tunnels and tun
devices; 802.11 in monitor mode, without a header, with Prism's and with radiotap's."""
_LIBPCAP_TYPES = {_RAW_IP: 12}
"""The numbers that libpcap itself uses where they differ (pcap/dlt.h)."""

# Instructions of the kernel's filters (linux/filter.h).
_INSTRUCTION = struct.Struct("=HBBI")  # code, jump if true, jump if false, operand
_LOAD, _JUMP, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x05, 0x15, 0x06
_INTERFACE_TYPE = 0xFFFFF000 + 28  # SKF_AD_OFF + SKF_AD_HATYPE


@value
class LivePackets:
    """Packets in order of arrival, with their bytes."""

    data: Bytes
    """uint8; `columns.start` counts from its first byte."""
    columns: PacketColumns
    interface: Int32
    """The system's index of each packet's interface; shape (n,), 0 for a pipe."""
    bytes_read: int = 0
    problems: tuple[Problem, ...] = ()


class PacketRing:
    """The packets of one interface, or of all (`ANY`).

    `expression`: capture filter in tcpdump's syntax; empty for all packets. `buffer_bytes`: size of
    the ring, rounded down to whole blocks. Packets for other machines are captured, too.

    Raises CaptureError if the interface does not exist, the filter is invalid, or the right to
    capture is missing; DissectorError if compiling the filter needs scapy or libpcap, which is not
    installed.
    """

    def __init__(
        self, name: str, *, expression: str = "", buffer_bytes: int = BUFFER_BYTES
    ) -> None:
        if not hasattr(socket, "AF_PACKET"):
            raise CaptureError("capturing from an interface needs Linux: read a pipe from tcpdump")
        self.name = name
        self.ended = False
        self.dropped = 0
        """Packets dropped so far because the ring was full."""
        self._is_up = True
        self._index = 0 if name == ANY else _index(name)
        program = filter_program(expression) if expression else None
        try:
            self._socket = socket.socket(
                socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL) if name == ANY else 0
            )
        except PermissionError as error:
            raise CaptureError(
                "capturing from an interface needs root or the capability CAP_NET_RAW: "
                "run it with sudo, or read a pipe from tcpdump"
            ) from error
        try:
            self._open(program, max(buffer_bytes // BLOCK_BYTES, 4))
        except OSError as error:
            self._socket.close()
            raise CaptureError(f"cannot capture from {name}: {error.strerror}") from error

    def _open(self, program: bytes | None, blocks: int) -> None:
        opened = self._socket
        if program:  # the option takes the number of instructions, and their address
            held = ctypes.create_string_buffer(program, len(program))
            attached = struct.pack("HL", len(program) // _INSTRUCTION.size, ctypes.addressof(held))
            opened.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, attached)
        opened.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V3)
        ring = struct.pack("7I", BLOCK_BYTES, blocks, BLOCK_BYTES, blocks, _RETIRE_MS, 0, 0)
        opened.setsockopt(_SOL_PACKET, _RX_RING, ring)
        self._memory = mmap.mmap(opened.fileno(), BLOCK_BYTES * blocks)
        self._blocks: Bytes = np.frombuffer(self._memory, np.uint8).reshape(blocks, -1)
        self._at = 0  # the block that is handed over next
        self._taken = 0
        if self.name != ANY:
            self._bind(self._index)

    def _bind(self, index: int) -> None:
        """Capture from the interface that has the name now, in promiscuous mode."""
        self._socket.bind((self.name, _ETH_P_ALL))
        self._index = index
        wish = struct.pack("iHH8s", index, _MR_PROMISC, 0, b"")
        self._socket.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, wish)

    def close(self) -> None:
        """Close the socket. The ring is freed with the last array that refers to it."""
        self.ended = True
        self._socket.close()

    def name_of(self, interface: int) -> str:
        """The name of an interface; a substitute if the interface no longer exists."""
        if self.name != ANY:
            return self.name
        try:
            return socket.if_indextoname(interface)
        except OSError:
            return f"interface {interface}"

    def time(self) -> int:
        """System time minus the maximum delay of a block in the ring."""
        return time.time_ns() - 2 * _RETIRE_MS * 10**6

    @property
    def is_pressing(self) -> bool:
        """At least a quarter of the ring is full."""
        return self._status(self._at + len(self._blocks) // 4) != 0

    def take(self) -> list[LivePackets]:
        """The packets that have arrived; their bytes may change after `release`."""
        pieces = []
        while self._taken < len(self._blocks) and self._status(self._at + self._taken):
            pieces.append(_piece(self._blocks[(self._at + self._taken) % len(self._blocks)]))
            self._taken += 1
        return pieces

    def release(self) -> None:
        """Return all taken blocks to the kernel."""
        for _ in range(self._taken):
            self._blocks[self._at, 8:12] = 0
            self._at = (self._at + 1) % len(self._blocks)
        self._taken = 0

    def watch(self) -> list[Problem]:
        """Changes of the interface, and dropped packets, since the last call."""
        problems = []
        counts = self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 12)
        _, dropped, _ = struct.unpack("3I", counts)
        if dropped:
            self.dropped += dropped
            problems.append(drop_problem(self.name, "the kernel", dropped, capture=self.name))
        if self.name != ANY:
            is_up = self._look()
            if is_up != self._is_up:
                self._is_up = is_up
                kind = "interface_up" if is_up else "interface_down"
                detail = "is up again" if is_up else "is down; waiting for it"
                problems.append(self._problem(kind, detail))
        return problems

    def _look(self) -> bool:
        """Whether the interface is up. Binds to an interface that returned with a new index."""
        self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # clears ENETDOWN
        request = struct.pack("16s16x", self.name.encode())
        try:
            (index,) = struct.unpack_from("i", fcntl.ioctl(self._socket, _GET_INDEX, request), 16)
            if index != self._index:
                self._bind(index)
            answer = fcntl.ioctl(self._socket, _GET_FLAGS, request)
        except OSError as error:
            if error.errno in (errno.ENODEV, errno.ENXIO, errno.ENETDOWN):
                return False
            raise
        return bool(struct.unpack_from("H", answer, 16)[0] & _IS_UP)

    def _problem(self, kind: str, detail: str) -> Problem:
        return Problem("packets", kind, f"{self.name}: {detail}", capture=self.name)

    def _status(self, block: int) -> int:
        return int(self._blocks[block % len(self._blocks), 8]) & _OURS


def filter_program(expression: str) -> bytes:
    """A filter in libpcap's syntax, compiled to instructions for the kernel of 8 bytes each.

    Headers depend on the type of the interface. So the program begins with jumps to a part for each
    link type, by the type of the packet's interface; unknown types have the part of Ethernet. An
    expression that a link type does not have, such as an Ethernet address, matches no packet of it.

    Raises CaptureError if the filter is invalid, DissectorError without scapy or libpcap.
    """
    ethernet = _compiled(expression, _ETHERNET)
    others = {link: _part(expression, link) for link in _LINKS.values() if link != _ETHERNET}
    hardware = [number for number, link in _LINKS.items() if link != _ETHERNET]
    begin = {}
    end = 1 + 2 * len(hardware) + len(ethernet) // _INSTRUCTION.size
    for link, part in others.items():
        begin[link] = end
        end += len(part) // _INSTRUCTION.size
    program = _INSTRUCTION.pack(_LOAD, 0, 0, _INTERFACE_TYPE)
    for position, number in enumerate(hardware):
        following = 3 + 2 * position  # jumps count from the next instruction
        program += _INSTRUCTION.pack(_JUMP_IF_EQUAL, 0, 1, number)
        program += _INSTRUCTION.pack(_JUMP, 0, 0, begin[_LINKS[number]] - following)
    return program + ethernet + b"".join(others.values())


def _part(expression: str, link: int) -> bytes:
    """`_compiled`, or a program that matches no packet if the link type has no such expression."""
    try:
        return _compiled(expression, link)
    except CaptureError:
        return _INSTRUCTION.pack(_RETURN, 0, 0, 0)


def _compiled(expression: str, link: int) -> bytes:
    """A filter of packets of a link type."""
    try:
        from scapy.libs import winpcapy
        from scapy.libs.structures import bpf_program
    except ImportError as error:
        raise DissectorError(
            "a filter needs the package scapy: pip install 'kafka-dissector[live]'"
        ) from error
    except OSError as error:
        raise DissectorError("a filter needs libpcap (Debian: libpcap0.8)") from error
    program = bpf_program()
    # The filter truncates packets to this size.
    handle = winpcapy.pcap_open_dead(_LIBPCAP_TYPES.get(link, link), WIRE_LIMIT)
    try:
        text = expression.encode()
        if winpcapy.pcap_compile(handle, ctypes.byref(program), text, 1, 0xFFFFFFFF) != 0:
            reason = ctypes.string_at(winpcapy.pcap_geterr(handle)).decode(errors="replace")
            raise CaptureError(f"the filter {expression!r} is invalid: {reason}")
        return ctypes.string_at(program.bf_insns, _INSTRUCTION.size * program.bf_len)
    finally:
        winpcapy.pcap_freecode(ctypes.byref(program))
        winpcapy.pcap_close(handle)


def _index(name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError as error:
        there = ", ".join([*(each for _, each in socket.if_nameindex()), ANY])
        raise CaptureError(f"there is no interface {name!r}; choose from {there}") from error


def _piece(block: Bytes) -> LivePackets:
    """The packets of a block of the ring."""
    _, packets, first = _BLOCK.unpack_from(block.data)
    at = _chain(block, packets, first)
    header = gather(block, at, _PACKET)
    # On loopback, each outgoing packet also arrives.
    kept = (header["kind"] != _OUTGOING) | (header["hardware"] != _LOOPBACK)
    if not kept.all():
        at, header = at[kept], header[kept]
    hardware, index = np.unique(header["hardware"], return_inverse=True)
    links = np.array([_LINKS.get(each, -1) for each in hardware.tolist()], np.int32)
    columns = PacketColumns(
        start=at + header["link"],
        captured=header["captured"].astype(np.int64),
        length=header["length"].astype(np.int64),
        time=header["seconds"].astype(np.int64) * 10**9 + header["ns"],
        link=links[index],
        interface=np.full(len(at), -1, np.int32),
    )
    end = int(columns.start[-1] + columns.captured[-1]) if len(at) else 0
    return LivePackets(block[:end], columns, header["interface"].astype(np.int32))


def _chain(block: Bytes, packets: int, first: int) -> Int64:
    """Positions of the headers of packets. Each header has the distance to the next one, so this
    is a loop over packets."""
    unpack, view = _NEXT.unpack_from, block.data
    positions = []
    at = first
    for _ in range(packets):
        positions.append(at)
        at += unpack(view, at)[0]
    return np.array(positions, np.int64)
