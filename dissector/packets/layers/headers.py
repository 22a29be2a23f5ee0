"""The next header of each packet, and the numbers on the wire that select headers.

A packet has a `Kind`, which is its next header, and a position. The tables map numbers to kinds: a
new link type, tunnel or extension header is a line here and a function in `layers` or `tunnels`, or
only the line. Some kinds are final: TCP, which is read last; OTHER, for packets that are not TCP;
and the kinds that become problems.

No byte after a packet's captured bytes is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dissector import _native
from dissector.packets.block import HEADER_COLUMNS, Bytes, Int64, UInt8
from dissector.packets.formats.capture_reader import WIRE_LIMIT, Fields, PacketRecords, gather

Rows: TypeAlias = "Int64 | slice"
"""Indices of packets, or slice(None) for all packets, which avoids a gather."""
Names: TypeAlias = "Sequence[str] | Mapping[int, str]"
"""Names of files by index."""


class Kind(IntEnum):
    """The next part of a packet: a final state, a fragment, or a header.

    The loops in `_native` use the numbers, so a new kind is the last one.
    """

    (
        OTHER, TCP, CUT, MALFORMED, TUNNEL, UNKNOWN_LINK, FRAGMENT, FRAGMENT_V6, ETHERNET, COOKED,
        COOKED_V2, NULL, RAW_IP, VLAN, PPPOE, MPLS, PSEUDOWIRE, IPV4, IPV6, IPV6_OPTIONS,
        IPV6_FRAGMENT, AUTHENTICATION, UDP, GRE, ERSPAN_II, ERSPAN_III, VXLAN, GENEVE, GTP,
        GTP_EXTENSION, ETHERTYPE, TAG, CISCO_HDLC, LISP, IP_1394, BACKBONE, FABRICPATH, ETHERIP,
        MPACKET, NETANALYZER, ENCRYPTED_IP, SOLARIS_IPNET, PPP_DIRECTION, HDLC_DIRECTION, LLC, SNAP,
        PPP, PKTAP, NFLOG, NFLOG_FIELD, PFLOG, JUNIPER_ETHERNET, JUNIPER_PPP, JUNIPER_HDLC, PPI,
        RADIOTAP, WLAN, MACSEC, TRILL, BATMAN, NSH, VXLAN_GPE, L2TP_OFFSET, WCCP, L2TP, TEREDO,
        AYIYA, CAPWAP, TZSP, TZSP_ETHERNET, TZSP_WLAN, METADATA, ERF,
    ) = range(73)  # fmt: skip


MAX_LAYERS = 24
"""Maximum number of headers before TCP; a packet with that many is malformed."""
FIRST_HEADER = Kind.FRAGMENT
"""The first kind that is not final: packets of these kinds at the end have too many headers."""


def _table(size: int, kinds: dict[int, Kind], default: Kind = Kind.OTHER) -> UInt8:
    table = np.full(size, default, np.uint8)
    table[list(kinds)] = list(kinds.values())
    return table


LINKS = _table(
    512,
    {
        0: Kind.NULL,
        1: Kind.ETHERNET,
        9: Kind.PPP,
        12: Kind.RAW_IP,  # as BSD numbers it
        14: Kind.RAW_IP,  # as OpenBSD does
        50: Kind.PPP,
        51: Kind.PPPOE,
        100: Kind.LLC,
        101: Kind.RAW_IP,
        104: Kind.CISCO_HDLC,
        105: Kind.WLAN,
        108: Kind.NULL,
        109: Kind.ENCRYPTED_IP,
        113: Kind.COOKED,
        117: Kind.PFLOG,
        127: Kind.RADIOTAP,
        138: Kind.IP_1394,
        149: Kind.PKTAP,  # for private use; macOS wrote PKTAP with it
        166: Kind.PPP,
        178: Kind.JUNIPER_ETHERNET,
        179: Kind.JUNIPER_PPP,
        181: Kind.JUNIPER_HDLC,
        192: Kind.PPI,
        197: Kind.ERF,
        204: Kind.PPP_DIRECTION,
        205: Kind.HDLC_DIRECTION,
        226: Kind.SOLARIS_IPNET,
        228: Kind.IPV4,
        229: Kind.IPV6,
        239: Kind.NFLOG,
        240: Kind.NETANALYZER,
        258: Kind.PKTAP,
        274: Kind.MPACKET,
        276: Kind.COOKED_V2,
        511: Kind.OTHER,  # for interfaces that the file does not describe
    },
    default=Kind.UNKNOWN_LINK,
)
ETHERTYPES = _table(
    1 << 16,
    {
        **dict.fromkeys(range(1501), Kind.LLC),  # IEEE 802.3: a length
        0x0800: Kind.IPV4,
        0x22F3: Kind.TRILL,
        0x4305: Kind.BATMAN,
        0x86DD: Kind.IPV6,
        0x8100: Kind.VLAN,
        0x88A8: Kind.VLAN,
        0x9100: Kind.VLAN,
        0x9200: Kind.VLAN,
        0x8847: Kind.MPLS,
        0x8848: Kind.MPLS,
        0x8864: Kind.PPPOE,
        0x88E5: Kind.MACSEC,
        0x88E7: Kind.BACKBONE,
        0x8903: Kind.FABRICPATH,
        0x8909: Kind.METADATA,  # of Cisco: security groups
        0x8926: Kind.TAG,  # VN-Tag
        0x892F: Kind.TAG,  # HSR
        0x894F: Kind.NSH,
    },
)
PROTOCOLS = _table(
    256,
    {
        0: Kind.IPV6_OPTIONS,  # hop by hop
        4: Kind.IPV4,  # in IP
        6: Kind.TCP,
        17: Kind.UDP,
        41: Kind.IPV6,  # in IP
        43: Kind.IPV6_OPTIONS,  # routing
        44: Kind.IPV6_FRAGMENT,
        47: Kind.GRE,
        51: Kind.AUTHENTICATION,
        60: Kind.IPV6_OPTIONS,  # destination
        94: Kind.IPV4,  # in IP, as KA9Q numbered it
        97: Kind.ETHERIP,
        137: Kind.MPLS,
        143: Kind.ETHERNET,  # RFC 8986
    },
)
# Payloads of GRE and GENEVE: ethertypes, and numbers of their own.
PAYLOADS = ETHERTYPES.copy()
PAYLOADS[:1536] = Kind.OTHER
PAYLOADS[[0x6400, 0x6558]] = Kind.ETHERNET
PAYLOADS[[0x88BE, 0x22EB]] = Kind.ERSPAN_II, Kind.ERSPAN_III
PAYLOADS[[0x880B, 0x883E]] = Kind.PPP, Kind.WCCP
PAYLOADS[0x8200:0x8380:16] = Kind.WLAN  # Aruba's access points
# Payloads of PPP (RFC 1332, 5072, 3032).
PPP = _table(1 << 16, {0x0021: Kind.IPV4, 0x0057: Kind.IPV6, 0x0281: Kind.MPLS})
# UDP ports that tunnels send to.
PORTS = _table(
    1 << 16,
    {
        1701: Kind.L2TP,
        2152: Kind.GTP,
        3544: Kind.TEREDO,
        4341: Kind.LISP,
        4754: Kind.GRE,
        4789: Kind.VXLAN,
        4790: Kind.VXLAN_GPE,
        5072: Kind.AYIYA,
        5247: Kind.CAPWAP,
        6081: Kind.GENEVE,
        6635: Kind.MPLS,
        8472: Kind.VXLAN,  # Linux's first
        37008: Kind.TZSP,
    },
)
# Those of servers, whose clients have other ports.
SERVER_PORTS = _table(
    1 << 16,
    {1701: Kind.L2TP, 3544: Kind.TEREDO, 5072: Kind.AYIYA, 5247: Kind.CAPWAP},
)
ETHERTYPES_AT = {
    Kind.ETHERNET: (14, 12),
    Kind.COOKED: (16, 14),  # Linux "any" device, LINKTYPE_LINUX_SLL
    Kind.COOKED_V2: (20, 0),  # LINKTYPE_LINUX_SLL2
    Kind.VLAN: (4, 2),  # IEEE 802.1Q and 802.1ad: tags may be stacked
    Kind.ETHERTYPE: (2, 0),
    Kind.TAG: (6, 4),
    Kind.METADATA: (8, 6),
    Kind.CISCO_HDLC: (4, 2),
    Kind.IP_1394: (18, 16),
}
"""Bytes of a header, and the offset of the ethertype in it."""
COMMON = (*ETHERTYPES_AT, Kind.NULL, Kind.RAW_IP, Kind.IPV4, Kind.IPV6)
"""The kinds of headers that the loop in `_native` reads."""
# AF_INET is 2 everywhere; AF_INET6 is 10 on Linux, 23 on Windows, 24, 28 and 30 on the BSDs.
FAMILIES = _table(256, {2: Kind.IPV4, **dict.fromkeys((10, 23, 24, 28, 30), Kind.IPV6)})


def _by_kind(values: Mapping[int, int]) -> UInt8:
    """A table of numbers by kind; 0 for the others."""
    return np.array([values.get(kind, 0) for kind in range(max(Kind) + 1)], np.uint8)


_TABLES = [
    ETHERTYPES,
    PROTOCOLS,
    FAMILIES,
    _by_kind({kind: size for kind, (size, _) in ETHERTYPES_AT.items()}),
    _by_kind({kind: type_at for kind, (_, type_at) in ETHERTYPES_AT.items()}),
]
"""What the loop in `_native` knows of headers."""


class Packets:
    """Next header and position of each packet; all arrays have shape (n,)."""

    def __init__(self, records: PacketRecords) -> None:
        columns = records.columns
        count = len(columns.start)
        self.data: Bytes = records.data
        self.kind: UInt8 = LINKS[np.clip(columns.link, -1, 510)]
        self.at: Int64 = columns.start.copy()
        self.end: Int64 = columns.start + columns.captured
        """Position after the last captured byte."""
        # An impossible length on the wire is damage, so it is limited.
        length = np.maximum(np.minimum(columns.length, WIRE_LIMIT), columns.captured)
        self.wire_end: Int64 = columns.start + length
        """Position after the last byte on the wire, as if the whole packet had been captured."""
        self.columns: dict[str, Any] = {
            name: np.zeros(count, dtype) for name, dtype in HEADER_COLUMNS.items()
        }
        """Columns of a `PacketBlock`: addresses of the last IP header; those of the TCP header, of
        packets whose kind is TCP."""

    def read_headers(self, rows: Int64, layers: int) -> None:
        """Read the common headers of these packets, up to `layers`, and their TCP header."""
        columns = [self.kind, self.at, self.end, self.wire_end, *self.columns.values()]
        _native.read_headers(self.data, _TABLES, rows, layers, columns)

    def header(self, rows: Rows, layout: np.dtype[np.void]) -> tuple[Rows, Fields]:
        """The headers at the packets' positions. Packets with an incomplete header are excluded."""
        at = self.at[rows]
        whole = at + layout.itemsize <= self.end[rows]
        if not whole.all():
            rows = np.arange(len(self.kind))[rows]
            was_sent = at + layout.itemsize <= self.wire_end[rows]
            self.kind[rows[~whole & was_sent]] = Kind.CUT
            self.kind[rows[~was_sent]] = Kind.MALFORMED
            rows, at = rows[whole], at[whole]
        return rows, gather(self.data, at, layout)

    def groups(self, layers: Iterable[Kind]) -> list[tuple[Kind, Rows]]:
        """The packets whose next header is one of `layers`, by kind."""
        counts = np.bincount(self.kind, minlength=len(Kind))
        kinds = [kind for kind in layers if counts[kind]]
        if len(kinds) == 1 and counts[kinds[0]] == len(self.kind):
            return [(kinds[0], slice(None))]
        return [(kind, np.flatnonzero(self.kind == kind)) for kind in kinds]


Layer: TypeAlias = Callable[[Packets, Rows], None]
"""Reads the headers of packets of one kind, and sets their next kind and position."""
Next: TypeAlias = "tuple[NDArray[np.integer] | int, NDArray[np.integer] | int]"
"""The next kind of packets, and the bytes of their header."""
Read: TypeAlias = Callable[[Fields], Next]


def reads(
    layers: dict[Kind, Layer], kind: Kind, *fields: tuple[str, str] | tuple[str, str, int]
) -> Callable[[Read], Read]:
    """Adds a function of headers of a kind, which have these fields, to `layers`."""
    layout = np.dtype(list(fields))

    def add(read: Read) -> Read:
        def layer(packets: Packets, rows: Rows) -> None:
            rows, header = packets.header(rows, layout)
            packets.kind[rows], size = read(header)
            packets.at[rows] += size

        layers[kind] = layer
        return read

    return add


def bit(flags: NDArray[np.integer], mask: int) -> Int64:
    """1 where any bit of `mask` is set, otherwise 0."""
    set_: Int64 = ((flags & mask) != 0).astype(np.int64)
    return set_
