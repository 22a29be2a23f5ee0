"""Tunnels: headers that carry packets of another network, as whole arrays.

A packet without the form that its number or port implies is not a tunnel (a port may be used for
anything), and ends as OTHER. Known but unsupported forms of a tunnel end as TUNNEL.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.headers import (
    ETHERTYPES,
    PAYLOADS,
    PORTS,
    PPP,
    PROTOCOLS,
    SERVER_PORTS,
    Kind,
    Layer,
    Packets,
    Rows,
    bit,
)

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
_ETHERIP = np.dtype([("version", "u1"), ("-", "u1")])
_NSH = np.dtype([("flags", ">u2"), ("metadata", "u1"), ("next", "u1"), ("path", "V4")])
_VXLAN_GPE = np.dtype([("flags", "u1"), ("-", "V2"), ("next", "u1"), ("network", "V4")])
_WCCP = np.dtype([("first", "u1"), ("-", "V3")])
_L2TP = np.dtype([("flags", ">u2"), ("-", "V4")])
_L2TP_OFFSET = np.dtype([("size", ">u2")])
_TEREDO = np.dtype([("indicator", ">u2"), ("client", "u1"), ("key", "u1"), ("-", "V4")])
_AYIYA = np.dtype(
    [("identity", "u1"), ("signature", "u1"), ("operation", "u1"), ("next", "u1"), ("time", "V4")]
)
_CAPWAP = np.dtype([("flags", ">u4"), ("fragment", "V4")])
_TZSP = np.dtype([("version", "u1"), ("type", "u1"), ("protocol", ">u2")])
_TZSP_FIELD = np.dtype([("type", "u1"), ("size", "u1")])
_LISP = np.dtype([("head", "V8"), ("version", "u1")])
# Next protocols of NSH and VXLAN-GPE (RFC 8300, 2.2).
_SERVICE = np.full(256, Kind.OTHER, np.uint8)
_SERVICE[1:6] = [Kind.IPV4, Kind.IPV6, Kind.ETHERNET, Kind.NSH, Kind.MPLS]


def _pppoe(packets: Packets, rows: Rows) -> None:
    """RFC 2516: session data has code 0, and a PPP protocol follows."""
    rows, header = packets.header(rows, _PPPOE)
    is_data = (header["version"] == 0x11) & (header["code"] == 0)
    packets.kind[rows] = np.where(is_data, PPP[header["protocol"]], Kind.OTHER)
    packets.at[rows] += _PPPOE.itemsize


def _mpls(packets: Packets, rows: Rows) -> None:
    """RFC 3032. Only the first bits after the last label show what follows (RFC 4928)."""
    rows, header = packets.header(rows, _MPLS)
    is_last = (header["label"] & 0x100) != 0
    version = header["next"] >> 4
    packets.kind[rows] = np.select(
        [~is_last, version == 4, version == 6], [Kind.MPLS, Kind.IPV4, Kind.IPV6], Kind.PSEUDOWIRE
    )
    packets.at[rows] += 4


def _pseudowire(packets: Packets, rows: Rows) -> None:
    """RFC 4448: Ethernet, with or without a control word before it.

    Both may begin with zero bits: there is a control word if only the ethertype after it is known.
    """
    rows, header = packets.header(rows, _PSEUDOWIRE)
    types = header["types"]
    is_known = (types >= 1536) & (ETHERTYPES[types] != Kind.OTHER)
    plain = is_known[:, 0]
    controlled = (header["first"] >> 4 == 0) & is_known[:, 2]
    packets.kind[rows] = np.where(plain | controlled, Kind.ETHERNET, Kind.OTHER)
    packets.at[rows] += np.where(plain, 0, 4)


def _udp(packets: Packets, rows: Rows) -> None:
    """RFC 768. Only tunnels matter: most use the same destination port in both directions."""
    rows, header = packets.header(rows, _UDP)
    kind = PORTS[header["dst_port"]]
    packets.kind[rows] = np.where(kind == Kind.OTHER, SERVER_PORTS[header["src_port"]], kind)
    packets.at[rows] += _UDP.itemsize


def _gre(packets: Packets, rows: Rows) -> None:
    """RFC 2784 and 2890: checksum, key and sequence number are optional, with 4 bytes each.

    ERSPAN I has ERSPAN's number, but no sequence number and no header of its own. PPTP's version
    (RFC 2637) may also have an acknowledgement number.
    """
    rows, header = packets.header(rows, _GRE)
    flags = header["flags"]
    kind = PAYLOADS[header["protocol"]]
    has_sequence = (flags & 0x1000) != 0
    kind[(kind == Kind.ERSPAN_II) & ~has_sequence] = Kind.ETHERNET
    kind[(flags & 0x4007) != 0] = Kind.TUNNEL  # source routes (RFC 1701)
    is_pptp = (flags & 0x400F == 1) & (header["protocol"] == 0x880B)
    kind[is_pptp] = np.where(has_sequence[is_pptp], Kind.PPP, Kind.OTHER)  # or only an ACK
    packets.kind[rows] = kind
    words = bit(flags, 0x8000) + bit(flags, 0x2000) + has_sequence
    packets.at[rows] += 4 + 4 * (words + is_pptp * bit(flags, 0x80))


def _erspan_ii(packets: Packets, rows: Rows) -> None:
    """draft-foschiano-erspan, 4.2: version 1."""
    rows, header = packets.header(rows, _ERSPAN_II)
    packets.kind[rows] = np.where(header["head"] >> 28 == 1, Kind.ETHERNET, Kind.TUNNEL)
    packets.at[rows] += _ERSPAN_II.itemsize


def _erspan_iii(packets: Packets, rows: Rows) -> None:
    """draft-foschiano-erspan, 4.3: version 2; the last flag adds 8 bytes."""
    rows, header = packets.header(rows, _ERSPAN_III)
    frame_type = header["flags"] >> 10 & 31
    packets.kind[rows] = np.select(
        [header["head"] >> 28 != 2, frame_type == 0, frame_type == 2],
        [Kind.TUNNEL, Kind.ETHERNET, Kind.RAW_IP],
        Kind.TUNNEL,
    )
    packets.at[rows] += _ERSPAN_III.itemsize + 8 * bit(header["flags"], 1)


def _vxlan(packets: Packets, rows: Rows) -> None:
    """RFC 7348: the flag that the network identifier is valid must be set."""
    rows, header = packets.header(rows, _VXLAN)
    packets.kind[rows] = np.where(header["flags"] & 0x08, Kind.ETHERNET, Kind.OTHER)
    packets.at[rows] += _VXLAN.itemsize


def _geneve(packets: Packets, rows: Rows) -> None:
    """RFC 8926: version 0, options of 4 bytes each; control packets have no payload."""
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
    packets.at[rows] += np.where(has_extension, 11, 8 + 4 * bit(flags, 3))


def _gtp_extension(packets: Packets, rows: Rows) -> None:
    """3GPP TS 29.281, 5.2: the position is at the type of the next header; 0 if there is none.

    Sizes count 4 bytes; the last byte of a header is the type of the next one.
    """
    rows, header = packets.header(rows, _GTP_EXTENSION)
    size = header["size"].astype(np.int64)
    is_last = header["type"] == 0
    packets.kind[rows] = np.select(
        [is_last, size == 0], [Kind.RAW_IP, Kind.MALFORMED], Kind.GTP_EXTENSION
    )
    packets.at[rows] += np.where(is_last, 1, 4 * size)


def _etherip(packets: Packets, rows: Rows) -> None:
    """RFC 3378: version 3, and Ethernet."""
    rows, header = packets.header(rows, _ETHERIP)
    packets.kind[rows] = np.where(header["version"] >> 4 == 3, Kind.ETHERNET, Kind.OTHER)
    packets.at[rows] += _ETHERIP.itemsize


def _nsh(packets: Packets, rows: Rows) -> None:
    """RFC 8300, 2.2: sizes count 4 bytes."""
    rows, header = packets.header(rows, _NSH)
    is_known = header["flags"] >> 14 == 0
    packets.kind[rows] = np.where(is_known, _SERVICE[header["next"]], Kind.OTHER)
    packets.at[rows] += 4 * (header["flags"].astype(np.int64) & 63)


def _vxlan_gpe(packets: Packets, rows: Rows) -> None:
    """draft-ietf-nvo3-vxlan-gpe, 3: a flag announces a next protocol; otherwise Ethernet."""
    rows, header = packets.header(rows, _VXLAN_GPE)
    flags = header["flags"]
    packets.kind[rows] = np.select(
        [flags & 0x08 == 0, flags & 0x04 != 0],
        [Kind.OTHER, _SERVICE[header["next"]]],
        Kind.ETHERNET,
    )
    packets.at[rows] += _VXLAN_GPE.itemsize


def _wccp(packets: Packets, rows: Rows) -> None:
    """draft-wilson-wrec-wccp-v2, 4.12: version 2 has a header of 4 bytes before the packet."""
    rows, header = packets.header(rows, _WCCP)
    packets.kind[rows] = Kind.IPV4
    packets.at[rows] += np.where(header["first"] >> 4 == 4, 0, 4)


def _l2tp(packets: Packets, rows: Rows) -> None:
    """RFC 2661, 3.1: version 2; each flag adds a field."""
    rows, header = packets.header(rows, _L2TP)
    flags = header["flags"]
    is_data = flags & 0x800F == 2
    size = 6 + 2 * bit(flags, 0x4000) + 4 * bit(flags, 0x0800) + 2 * bit(flags, 0x0200)
    has_offset = is_data & (flags & 0x0200 != 0)
    packets.kind[rows] = np.select([~is_data, has_offset], [Kind.OTHER, Kind.L2TP_OFFSET], Kind.PPP)
    packets.at[rows] += np.where(has_offset, size - 2, size)


def _l2tp_offset(packets: Packets, rows: Rows) -> None:
    """RFC 2661, 3.1: the size of the padding, then the padding."""
    rows, header = packets.header(rows, _L2TP_OFFSET)
    packets.kind[rows] = Kind.PPP
    packets.at[rows] += _L2TP_OFFSET.itemsize + header["size"].astype(np.int64)


def _teredo(packets: Packets, rows: Rows) -> None:
    """RFC 4380, 5.1.1: IPv6, optionally after indications of authentication and origin."""
    rows, header = packets.header(rows, _TEREDO)
    is_ipv6 = header["indicator"] >> 12 == 6
    has_origin = header["indicator"] == 0
    has_key = header["indicator"] == 1
    packets.kind[rows] = np.select(
        [is_ipv6, has_origin | has_key], [Kind.IPV6, Kind.TEREDO], Kind.OTHER
    )
    key_size = 13 + header["client"].astype(np.int64) + header["key"]
    packets.at[rows] += np.select([has_origin, has_key], [8, key_size], 0)


def _ayiya(packets: Packets, rows: Rows) -> None:
    """draft-massar-v6ops-ayiya, 3: identity and signature have sizes, and IPv6 follows."""
    rows, header = packets.header(rows, _AYIYA)
    is_data = (header["operation"] & 15 == 1) & (header["next"] == 41)
    packets.kind[rows] = np.where(is_data, PROTOCOLS[header["next"]], Kind.OTHER)
    identity = 1 << (header["identity"].astype(np.int64) >> 4)
    packets.at[rows] += 8 + identity + 4 * (header["signature"].astype(np.int64) >> 4)


def _capwap(packets: Packets, rows: Rows) -> None:
    """RFC 5415, 4.3: frames of IEEE 802.11 or 802.3, unless they are fragments or keep-alives."""
    rows, header = packets.header(rows, _CAPWAP)
    flags = header["flags"]
    is_frame = (flags >> 24 == 0) & (flags & 0x88 == 0)
    is_native = flags & 0x100 != 0
    is_wlan = is_native & (flags >> 9 & 31 == 1)
    packets.kind[rows] = np.select(
        [is_frame & is_wlan, is_frame & ~is_native], [Kind.WLAN, Kind.ETHERNET], Kind.OTHER
    )
    packets.at[rows] += 4 * (flags.astype(np.int64) >> 19 & 31)


def _tzsp(packets: Packets, rows: Rows) -> None:
    """TaZmen sniffer protocol, version 1: fields up to a field of type 1, then the frame."""
    rows, header = packets.header(rows, _TZSP)
    is_frame = (header["version"] == 1) & (header["type"] < 2)
    link = np.select([header["protocol"] == 1, header["protocol"] == 18], [1, 2], 0)
    packets.kind[rows] = np.select(
        [is_frame & (link == 1), is_frame & (link == 2)],
        [Kind.TZSP_ETHERNET, Kind.TZSP_WLAN],
        Kind.OTHER,
    )
    packets.at[rows] += _TZSP.itemsize


def _tzsp_field(following: Kind) -> Layer:
    def layer(packets: Packets, rows: Rows) -> None:
        """Padding and the last field have no size."""
        rows, header = packets.header(rows, _TZSP_FIELD)
        is_last = header["type"] == 1
        kind = packets.kind[rows]
        packets.kind[rows] = np.where(is_last, following, kind)
        size = 2 + header["size"].astype(np.int64)
        packets.at[rows] += np.where(header["type"] < 2, 1, size)

    return layer


def _lisp(packets: Packets, rows: Rows) -> None:
    """RFC 6830, 5: 8 bytes, then IP."""
    rows, header = packets.header(rows, _LISP)
    version = header["version"] >> 4
    packets.kind[rows] = np.where((version == 4) | (version == 6), Kind.RAW_IP, Kind.OTHER)
    packets.at[rows] += 8


LAYERS: dict[Kind, Layer] = {
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
    Kind.ETHERIP: _etherip,
    Kind.NSH: _nsh,
    Kind.VXLAN_GPE: _vxlan_gpe,
    Kind.WCCP: _wccp,
    Kind.L2TP: _l2tp,
    Kind.L2TP_OFFSET: _l2tp_offset,
    Kind.TEREDO: _teredo,
    Kind.AYIYA: _ayiya,
    Kind.CAPWAP: _capwap,
    Kind.TZSP: _tzsp,
    Kind.TZSP_ETHERNET: _tzsp_field(Kind.ETHERNET),
    Kind.TZSP_WLAN: _tzsp_field(Kind.WLAN),
    Kind.LISP: _lisp,
}
