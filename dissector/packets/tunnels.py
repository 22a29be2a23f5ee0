"""Tunnels: headers that have another network's packets behind them, as whole arrays.

What is not of the form that its number or port promises is nobody's tunnel (a port may be used for
anything), and ends as OTHER; forms of a tunnel that are known but not read end as TUNNEL.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int64
from dissector.packets.headers import ETHERTYPES, PAYLOADS, PORTS, PPP, Kind, Packets, Rows

_PPPOE = np.dtype([("version", "u1"), ("code", "u1"), ("-", "V4"), ("protocol", ">u2")])
_MPLS = np.dtype([("label", ">u4"), ("next", "u1")])
_PSEUDOWIRE = np.dtype([("first", "u1"), ("-", "V11"), ("types", ">u2", 3)])
_UDP = np.dtype([("src_port", ">u2"), ("dst_port", ">u2"), ("length", ">u2"), ("checksum", ">u2")])
_GRE = np.dtype([("flags", ">u2"), ("protocol", ">u2")])
_ERSPAN_II = np.dtype([("head", ">u4"), ("index", ">u4")])
_ERSPAN_III = np.dtype([("head", ">u4"), ("time", ">u4"), ("group", ">u2"), ("flags", ">u2")])
_VXLAN = np.dtype([("flags", "u1"), ("-", "V7")])
_GENEVE = np.dtype([("options", "u1"), ("flags", "u1"), ("protocol", ">u2"), ("-", "V4")])
_GTP = np.dtype([("flags", "u1"), ("type", "u1"), ("-", "V6")])
_GTP_EXTENSION = np.dtype([("type", "u1"), ("size", "u1")])


def _pppoe(packets: Packets, rows: Rows) -> None:
    """RFC 2516: a session's data has code 0, and a PPP protocol behind it."""
    rows, header = packets.header(rows, _PPPOE)
    is_data = (header["version"] == 0x11) & (header["code"] == 0)
    packets.kind[rows] = np.where(is_data, PPP[header["protocol"]], Kind.OTHER)
    packets.at[rows] += _PPPOE.itemsize


def _mpls(packets: Packets, rows: Rows) -> None:
    """RFC 3032. Behind the last label nothing says what follows but its first bits (RFC 4928)."""
    rows, header = packets.header(rows, _MPLS)
    is_last = (header["label"] & 0x100) != 0
    version = header["next"] >> 4
    packets.kind[rows] = np.select(
        [~is_last, version == 4, version == 6], [Kind.MPLS, Kind.IPV4, Kind.IPV6], Kind.PSEUDOWIRE
    )
    packets.at[rows] += 4


def _pseudowire(packets: Packets, rows: Rows) -> None:
    """RFC 4448: Ethernet, with or without a control word before it.

    Both may begin with zero bits: it is there where the ethertype makes sense only behind it.
    """
    rows, header = packets.header(rows, _PSEUDOWIRE)
    types = header["types"]
    plain = ETHERTYPES[types[:, 0]] != Kind.OTHER
    controlled = (header["first"] >> 4 == 0) & (ETHERTYPES[types[:, 2]] != Kind.OTHER)
    packets.kind[rows] = np.where(plain | controlled, Kind.ETHERNET, Kind.OTHER)
    packets.at[rows] += np.where(plain, 0, 4)


def _udp(packets: Packets, rows: Rows) -> None:
    """RFC 768. Only tunnels are looked for, and those have a port of their own to go to."""
    rows, header = packets.header(rows, _UDP)
    packets.kind[rows] = PORTS[header["dst_port"]]
    packets.at[rows] += _UDP.itemsize


def _gre(packets: Packets, rows: Rows) -> None:
    """RFC 2784 and 2890: checksum, key and sequence number take 4 bytes each, where they are.

    ERSPAN I is what has ERSPAN's number, but no sequence number, and no header of its own.
    """
    rows, header = packets.header(rows, _GRE)
    flags = header["flags"]
    kind = PAYLOADS[header["protocol"]]
    has_sequence = (flags & 0x1000) != 0
    kind[(kind == Kind.ERSPAN_II) & ~has_sequence] = Kind.ETHERNET
    kind[(flags & 0x4007) != 0] = Kind.TUNNEL  # source routes (RFC 1701), PPTP (RFC 2637)
    packets.kind[rows] = kind
    packets.at[rows] += 4 + 4 * (_bit(flags, 0x8000) + _bit(flags, 0x2000) + has_sequence)


def _erspan_ii(packets: Packets, rows: Rows) -> None:
    """draft-foschiano-erspan, 4.2: version 1."""
    rows, header = packets.header(rows, _ERSPAN_II)
    packets.kind[rows] = np.where(header["head"] >> 28 == 1, Kind.ETHERNET, Kind.TUNNEL)
    packets.at[rows] += _ERSPAN_II.itemsize


def _erspan_iii(packets: Packets, rows: Rows) -> None:
    """draft-foschiano-erspan, 4.3: version 2, with 8 more bytes where the last flag says so."""
    rows, header = packets.header(rows, _ERSPAN_III)
    frame_type = header["flags"] >> 10 & 31
    packets.kind[rows] = np.select(
        [header["head"] >> 28 != 2, frame_type == 0, frame_type == 2],
        [Kind.TUNNEL, Kind.ETHERNET, Kind.RAW_IP],
        Kind.TUNNEL,
    )
    packets.at[rows] += _ERSPAN_III.itemsize + 8 * _bit(header["flags"], 1)


def _vxlan(packets: Packets, rows: Rows) -> None:
    """RFC 7348: the flag that the network identifier is valid must be set."""
    rows, header = packets.header(rows, _VXLAN)
    packets.kind[rows] = np.where(header["flags"] & 0x08, Kind.ETHERNET, Kind.OTHER)
    packets.at[rows] += _VXLAN.itemsize


def _geneve(packets: Packets, rows: Rows) -> None:
    """RFC 8926: version 0, options of 4 bytes each; control packets carry nobody's data."""
    rows, header = packets.header(rows, _GENEVE)
    is_data = (header["options"] >> 6 == 0) & (header["flags"] & 0x80 == 0)
    packets.kind[rows] = np.where(is_data, PAYLOADS[header["protocol"]], Kind.OTHER)
    packets.at[rows] += 8 + 4 * (header["options"] & 63).astype(np.int64)


def _gtp(packets: Packets, rows: Rows) -> None:
    """3GPP TS 29.281, 5.1: version 1; message 255 carries a user's packet.

    Any of three flags adds 4 bytes; the last of them is the type of the next extension header.
    """
    rows, header = packets.header(rows, _GTP)
    flags = header["flags"]
    is_data = (flags & 0xF0 == 0x30) & (header["type"] == 255)
    has_extension = (flags & 4) != 0
    packets.kind[rows] = np.select(
        [~is_data, has_extension], [Kind.OTHER, Kind.GTP_EXTENSION], Kind.RAW_IP
    )
    packets.at[rows] += np.where(has_extension, 11, 8 + 4 * _bit(flags, 3))


def _gtp_extension(packets: Packets, rows: Rows) -> None:
    """3GPP TS 29.281, 5.2: the packet stands on the type of the header that follows, 0 for none.

    Sizes count 4 bytes; the last byte of a header is the type of the next one.
    """
    rows, header = packets.header(rows, _GTP_EXTENSION)
    size = header["size"].astype(np.int64)
    is_last = header["type"] == 0
    packets.kind[rows] = np.select(
        [is_last, size == 0], [Kind.RAW_IP, Kind.MALFORMED], Kind.GTP_EXTENSION
    )
    packets.at[rows] += np.where(is_last, 1, 4 * size)


def _bit(flags: NDArray[np.integer], mask: int) -> Int64:
    """1 where any bit of `mask` is set."""
    set_: Int64 = ((flags & mask) != 0).astype(np.int64)
    return set_


LAYERS: dict[Kind, Callable[[Packets, Rows], None]] = {
    Kind.PPPOE: _pppoe,
    Kind.MPLS: _mpls,
    Kind.PSEUDOWIRE: _pseudowire,
    Kind.UDP: _udp,
    Kind.GRE: _gre,
    Kind.ERSPAN_II: _erspan_ii,
    Kind.ERSPAN_III: _erspan_iii,
    Kind.VXLAN: _vxlan,
    Kind.GENEVE: _geneve,
    Kind.GTP: _gtp,
    Kind.GTP_EXTENSION: _gtp_extension,
}
