"""From captured packets to TCP segments: link, network and transport headers, as whole arrays.

A header says what the next one is, so packets advance header by header, all of a kind at once. Each
packet has a `Kind`, the header that it stands before, and a position; a layer is a function that
reads the header of all packets of its kind, and gives them their next kind and position. LAYERS has
them all. The tables before it say which number on the wire means which kind: a new link type,
tunnel or extension header is a line there and a function here, or only the line.

Some kinds end a packet's way: TCP, which is read last, OTHER, which nobody asked for, and those
that become problems: one row for each kind and block, never one for each packet.

Nothing is read behind a packet's captured bytes, and nothing behind the length that its IP header
states counts as payload (Ethernet pads short frames, and some cards append a check sequence).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Bytes, Int64, PacketBlock, UInt8, UInt64
from dissector.packets.records import PACKET_LIMIT, Records, gather
from dissector.problems import Problem

Rows: TypeAlias = "Int64 | slice"
"""Which packets: indices, or slice(None) for all of them, which spares a gather."""


class Kind(IntEnum):
    """What a packet stands before; the last ones are headers that LAYERS can read."""

    OTHER = 0
    TCP = 1
    CUT = 2
    MALFORMED = 3
    FRAGMENT = 4
    TUNNEL = 5
    UNKNOWN_LINK = 6
    ETHERNET = 7
    COOKED = 8
    COOKED_V2 = 9
    NULL = 10
    RAW_IP = 11
    VLAN = 12
    IPV4 = 13
    IPV6 = 14
    IPV6_OPTIONS = 15
    IPV6_FRAGMENT = 16
    AUTHENTICATION = 17


_PROBLEMS = {
    Kind.CUT: ("cut_headers", "were captured too short for their headers to be read"),
    Kind.MALFORMED: ("malformed_headers", "have headers that contradict themselves"),
    Kind.FRAGMENT: ("fragment", "are fragments of IP packets, which are not put together"),
    Kind.TUNNEL: ("tunnel", "are inside a tunnel, which is not looked into"),
    Kind.UNKNOWN_LINK: ("unknown_link", "are of a link type that is not known"),
}
_FIRST_LAYER = Kind.ETHERNET
_MAX_LAYERS = 16
"""Headers before TCP; no packet has as many, and one that does is malformed."""


def _table(size: int, kinds: dict[int, Kind], default: Kind = Kind.OTHER) -> UInt8:
    table = np.full(size, default, np.uint8)
    table[list(kinds)] = list(kinds.values())
    return table


_LINKS = _table(
    512,
    {
        0: Kind.NULL,
        1: Kind.ETHERNET,
        12: Kind.RAW_IP,  # as BSD numbers it
        14: Kind.RAW_IP,  # as OpenBSD does
        101: Kind.RAW_IP,
        108: Kind.NULL,
        113: Kind.COOKED,
        228: Kind.IPV4,
        229: Kind.IPV6,
        276: Kind.COOKED_V2,
        511: Kind.OTHER,  # stands for interfaces that the file does not describe
    },
    default=Kind.UNKNOWN_LINK,
)
_ETHERTYPES = _table(
    1 << 16,
    {
        0x0800: Kind.IPV4,
        0x86DD: Kind.IPV6,
        0x8100: Kind.VLAN,
        0x88A8: Kind.VLAN,
        0x9100: Kind.VLAN,
        0x8847: Kind.TUNNEL,  # MPLS
        0x8848: Kind.TUNNEL,
        0x8864: Kind.TUNNEL,  # PPPoE
    },
)
_PROTOCOLS = _table(
    256,
    {
        0: Kind.IPV6_OPTIONS,  # hop by hop
        4: Kind.TUNNEL,  # IPv4 in IP
        6: Kind.TCP,
        41: Kind.TUNNEL,  # IPv6 in IP
        43: Kind.IPV6_OPTIONS,  # routing
        44: Kind.IPV6_FRAGMENT,
        47: Kind.TUNNEL,  # GRE
        51: Kind.AUTHENTICATION,
        60: Kind.IPV6_OPTIONS,  # destination
    },
)
# AF_INET is 2 everywhere; AF_INET6 is 10 on Linux, 23 on Windows, 24, 28 and 30 on the BSDs.
_FAMILIES = _table(256, {2: Kind.IPV4, **dict.fromkeys((10, 23, 24, 28, 30), Kind.IPV6)})

_ETHERNET = np.dtype([("addresses", "V12"), ("ethertype", ">u2")])
_COOKED = np.dtype([("-", "V14"), ("ethertype", ">u2")])
_COOKED_V2 = np.dtype([("ethertype", ">u2"), ("-", "V18")])
_NULL = np.dtype([("family", "u1", 4)])
_RAW_IP = np.dtype([("version", "u1")])
_VLAN = np.dtype([("tag", ">u2"), ("ethertype", ">u2")])
_IPV4 = np.dtype(
    [
        *[("version", "u1"), ("service", "u1"), ("length", ">u2"), ("id", ">u2")],
        *[("fragment", ">u2"), ("ttl", "u1"), ("protocol", "u1"), ("checksum", ">u2")],
        *[("src", ">u4"), ("dst", ">u4")],
    ]
)
_IPV6 = np.dtype(
    [
        *[("version", "u1"), ("flow", "V3"), ("length", ">u2"), ("protocol", "u1"), ("hops", "u1")],
        *[("src_high", ">u8"), ("src_low", ">u8"), ("dst_high", ">u8"), ("dst_low", ">u8")],
    ]
)
_EXTENSION = np.dtype([("protocol", "u1"), ("size", "u1"), ("fragment", ">u2"), ("-", "V4")])
_TCP = np.dtype(
    [
        *[("src_port", ">u2"), ("dst_port", ">u2"), ("seq", ">u4"), ("ack", ">u4")],
        *[("offset", "u1"), ("flags", "u1"), ("window", ">u2"), ("checksum", ">u2")],
        ("urgent", ">u2"),
    ]
)
_MAPPED = np.uint64(0xFFFF_0000_0000)


class _Packets:
    """Where each packet of a stretch stands; all arrays of shape (n,)."""

    def __init__(self, records: Records) -> None:
        columns = records.columns
        count = len(columns.start)
        self.data: Bytes = records.data
        self.kind: UInt8 = _LINKS[np.clip(columns.link, -1, 510)]
        self.at: Int64 = columns.start.copy()
        self.end: Int64 = columns.start + columns.captured
        """Behind the last captured byte."""
        # A length on the wire that no packet can have is damage, and worth no more than that.
        length = np.maximum(np.minimum(columns.length, PACKET_LIMIT), columns.captured)
        self.wire_end: Int64 = columns.start + length
        """Where the last byte on the wire would end, if all of it had been captured."""
        self.src_high: UInt64 = np.zeros(count, np.uint64)
        self.src_low: UInt64 = np.zeros(count, np.uint64)
        self.dst_high: UInt64 = np.zeros(count, np.uint64)
        self.dst_low: UInt64 = np.zeros(count, np.uint64)

    def header(self, rows: Rows, layout: np.dtype[np.void]) -> tuple[Rows, NDArray[np.void]]:
        """The headers that begin where the packets stand; packets that end within one fall out."""
        at = self.at[rows]
        whole = at + layout.itemsize <= self.end[rows]
        if not whole.all():
            rows = np.arange(len(self.kind))[rows]
            was_sent = at + layout.itemsize <= self.wire_end[rows]
            self.kind[rows[~whole & was_sent]] = Kind.CUT
            self.kind[rows[~was_sent]] = Kind.MALFORMED
            rows, at = rows[whole], at[whole]
        return rows, gather(self.data, at, layout)

    def groups(self) -> list[tuple[Kind, Rows]]:
        """The packets that stand before a layer, by kind."""
        counts = np.bincount(self.kind, minlength=len(Kind))
        kinds = [kind for kind in LAYERS if counts[kind]]
        if len(kinds) == 1 and counts[kinds[0]] == len(self.kind):
            return [(kinds[0], slice(None))]
        return [(kind, np.flatnonzero(self.kind == kind)) for kind in kinds]


def _ethernet(packets: _Packets, rows: Rows) -> None:
    """IEEE 802.3; a length instead of a type is no ethertype in the table."""
    _ethertype(packets, rows, _ETHERNET)


def _cooked(packets: _Packets, rows: Rows) -> None:
    """Linux "any" device, LINKTYPE_LINUX_SLL."""
    _ethertype(packets, rows, _COOKED)


def _cooked_v2(packets: _Packets, rows: Rows) -> None:
    """Linux "any" device, LINKTYPE_LINUX_SLL2."""
    _ethertype(packets, rows, _COOKED_V2)


def _vlan(packets: _Packets, rows: Rows) -> None:
    """IEEE 802.1Q and 802.1ad: tags may be stacked."""
    _ethertype(packets, rows, _VLAN)


def _ethertype(packets: _Packets, rows: Rows, layout: np.dtype[np.void]) -> None:
    rows, header = packets.header(rows, layout)
    packets.kind[rows] = _ETHERTYPES[header["ethertype"]]
    packets.at[rows] += layout.itemsize


def _null(packets: _Packets, rows: Rows) -> None:
    """BSD loopback: an address family, in the byte order of whoever captured, or of the network.

    No family is larger than a byte, so that it is the first byte or the last.
    """
    rows, header = packets.header(rows, _NULL)
    family = header["family"]
    packets.kind[rows] = _FAMILIES[family[:, 0] | family[:, 3]]
    packets.at[rows] += _NULL.itemsize


def _raw_ip(packets: _Packets, rows: Rows) -> None:
    """No link header at all: the IP version is the first thing there is."""
    rows, header = packets.header(rows, _RAW_IP)
    version = header["version"] >> 4
    packets.kind[rows] = np.select(
        [version == 4, version == 6], [Kind.IPV4, Kind.IPV6], Kind.MALFORMED
    )


def _ipv4(packets: _Packets, rows: Rows) -> None:
    """RFC 791. A total length of 0 comes from a card that cut the packet up later (TSO)."""
    rows, header = packets.header(rows, _IPV4)
    version = header["version"]
    size = ((version & 15) * 4).astype(np.int64)
    total = header["length"].astype(np.int64)
    at = packets.at[rows]
    kind = _PROTOCOLS[header["protocol"]]
    kind[((header["fragment"] & 0x3FFF) != 0) & (kind != Kind.OTHER)] = Kind.FRAGMENT
    kind[(version >> 4 != 4) | (size < 20) | ((total < size) & (total != 0))] = Kind.MALFORMED
    packets.kind[rows] = kind
    _trim(packets, rows, np.where(total == 0, packets.wire_end[rows], at + total))
    packets.at[rows] = at + size  # last: `at` is no copy where all packets are meant
    packets.src_low[rows] = header["src"] | _MAPPED
    packets.dst_low[rows] = header["dst"] | _MAPPED


def _ipv6(packets: _Packets, rows: Rows) -> None:
    """RFC 8200. A payload length of 0 is that of a jumbogram (RFC 2675) or of TSO."""
    rows, header = packets.header(rows, _IPV6)
    payload = header["length"].astype(np.int64)
    at = packets.at[rows] + _IPV6.itemsize
    kind = _PROTOCOLS[header["protocol"]]
    kind[header["version"] >> 4 != 6] = Kind.MALFORMED
    packets.kind[rows] = kind
    packets.at[rows] = at
    _trim(packets, rows, np.where(payload == 0, packets.wire_end[rows], at + payload))
    packets.src_high[rows], packets.src_low[rows] = header["src_high"], header["src_low"]
    packets.dst_high[rows], packets.dst_low[rows] = header["dst_high"], header["dst_low"]


def _trim(packets: _Packets, rows: Rows, wire_end: Int64) -> None:
    """The packet is as long as its IP header says, whatever the frame around it has."""
    packets.wire_end[rows] = wire_end
    packets.end[rows] = np.minimum(packets.end[rows], wire_end)


def _ipv6_options(packets: _Packets, rows: Rows) -> None:
    """RFC 8200, 4.3, 4.4 and 4.6: sizes count 8 bytes, without the first 8."""
    rows, header = packets.header(rows, _EXTENSION)
    packets.kind[rows] = _PROTOCOLS[header["protocol"]]
    packets.at[rows] += (header["size"].astype(np.int64) + 1) * 8


def _authentication(packets: _Packets, rows: Rows) -> None:
    """RFC 4302, 2.2: the size counts 4 bytes, without the first 8."""
    rows, header = packets.header(rows, _EXTENSION)
    packets.kind[rows] = _PROTOCOLS[header["protocol"]]
    packets.at[rows] += (header["size"].astype(np.int64) + 2) * 4


def _ipv6_fragment(packets: _Packets, rows: Rows) -> None:
    """RFC 8200, 4.5; one that is both first and last (RFC 6946) is a whole packet."""
    rows, header = packets.header(rows, _EXTENSION)
    kind = _PROTOCOLS[header["protocol"]]
    kind[((header["fragment"] & 0xFFF9) != 0) & (kind != Kind.OTHER)] = Kind.FRAGMENT
    packets.kind[rows] = kind
    packets.at[rows] += _EXTENSION.itemsize


LAYERS: dict[Kind, Callable[[_Packets, Rows], None]] = {
    Kind.ETHERNET: _ethernet,
    Kind.COOKED: _cooked,
    Kind.COOKED_V2: _cooked_v2,
    Kind.NULL: _null,
    Kind.RAW_IP: _raw_ip,
    Kind.VLAN: _vlan,
    Kind.IPV4: _ipv4,
    Kind.IPV6: _ipv6,
    Kind.IPV6_OPTIONS: _ipv6_options,
    Kind.IPV6_FRAGMENT: _ipv6_fragment,
    Kind.AUTHENTICATION: _authentication,
}


def segments(records: Records, capture: int, name: str) -> PacketBlock:
    """The TCP packets among `records`, which are of the file `name`, with index `capture`."""
    packets = _Packets(records)
    for _ in range(_MAX_LAYERS):
        groups = packets.groups()
        for kind, rows in groups:
            LAYERS[kind](packets, rows)
        if not groups:
            break
    packets.kind[packets.kind >= _FIRST_LAYER] = Kind.MALFORMED
    return _tcp(packets, records, capture, name)


def _tcp(packets: _Packets, records: Records, capture: int, name: str) -> PacketBlock:
    """RFC 9293, 3.1. Options may be cut: where the payload begins is known without them."""
    is_tcp = packets.kind == Kind.TCP
    rows: Rows = slice(None) if is_tcp.all() else np.flatnonzero(is_tcp)
    rows, header = packets.header(rows, _TCP)
    size = (header["offset"] >> 4).astype(np.int64) * 4
    payload = packets.at[rows] + size
    sound = (size >= 20) & (payload <= packets.wire_end[rows])
    if not sound.all():
        rows = np.arange(len(packets.kind))[rows]
        packets.kind[rows[~sound]] = Kind.MALFORMED
        rows, header, payload = rows[sound], header[sound], payload[sound]
    columns = records.columns
    end = packets.end[rows]
    time = columns.time[rows]
    return PacketBlock(
        data=records.data,
        reserve=records.reserve,
        capture=np.full(len(time), capture, np.int32),
        number=records.number[rows],
        time=time,
        src_high=packets.src_high[rows],
        src_low=packets.src_low[rows],
        dst_high=packets.dst_high[rows],
        dst_low=packets.dst_low[rows],
        src_port=header["src_port"].astype(np.uint16),
        dst_port=header["dst_port"].astype(np.uint16),
        seq=header["seq"].astype(np.uint32),
        ack=header["ack"].astype(np.uint32),
        flags=header["flags"].copy(),
        window=header["window"].astype(np.uint16),
        payload=np.minimum(payload, end),
        captured=np.maximum(end - payload, 0).astype(np.int32),
        length=(packets.wire_end[rows] - payload).astype(np.int32),
        packets_seen=len(packets.kind),
        bytes_read=records.bytes_read,
        problems=records.problems + _problems(packets, records, name),
    )


def _problems(packets: _Packets, records: Records, name: str) -> list[Problem]:
    """One row for each kind of packet that could not be read."""
    problems = []
    for kind, (title, what) in _PROBLEMS.items():
        rows = np.flatnonzero(packets.kind == kind)
        if len(rows):
            problems.append(
                Problem(
                    "packets",
                    title,
                    f"{len(rows)} packets {what}",
                    time=int(records.columns.time[rows[0]]),
                    capture=name,
                    packet=int(records.number[rows[0]]),
                    bytes=int(records.columns.captured[rows].sum()),
                )
            )
    return problems
