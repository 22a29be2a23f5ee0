"""Tunnels: headers that carry packets of another network, as whole arrays.

A packet without the form that its number or port implies is not a tunnel (a port may be used for
anything), and ends as OTHER. Known but unsupported forms of a tunnel end as TUNNEL.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.formats.capture_reader import Fields
from dissector.packets.layers.headers import (
    ETHERTYPES,
    PAYLOADS,
    PORTS,
    PPP,
    PROTOCOLS,
    SERVER_PORTS,
    Kind,
    Layer,
    Next,
    Packets,
    Rows,
    bit,
    reads,
)

LAYERS: dict[Kind, Layer] = {}
_AFTER_LABELS = np.dtype([("words", ">u2", 10)])
_TRAILER = 64
"""Maximum number of bytes after an IP packet: padding of Ethernet, and a check sequence."""
# Next protocols of NSH and VXLAN-GPE (RFC 8300, 2.2).
_SERVICE = np.full(256, Kind.OTHER, np.uint8)
_SERVICE[1:6] = [Kind.IPV4, Kind.IPV6, Kind.ETHERNET, Kind.NSH, Kind.MPLS]


@reads(LAYERS, Kind.PPPOE, ("version", "u1"), ("code", "u1"), ("-", "V4"), ("protocol", ">u2"))
def _pppoe(header: Fields) -> Next:
    """RFC 2516: session data has code 0, and a PPP protocol follows."""
    is_data = (header["version"] == 0x11) & (header["code"] == 0)
    return np.where(is_data, PPP[header["protocol"]], Kind.OTHER), 8


@reads(LAYERS, Kind.MPLS, ("label", ">u4"))
def _mpls(header: Fields) -> Next:
    """RFC 3032: labels up to the one with the bottom-of-stack bit."""
    return np.where(header["label"] & 0x100, Kind.PSEUDOWIRE, Kind.MPLS), 4


def _pseudowire(packets: Packets, rows: Rows) -> None:
    """After the last label: IP, or Ethernet with or without a control word (RFC 4448).

    No field shows which one it is. IP begins with its version, and a control word with 4 zero bits
    (RFC 4928). But an Ethernet address may begin with any of these (RFC 8469). So a frame is
    recognised by its ethertype, and IP must also have a length that fits the packet.
    """
    rows, header = packets.header(rows, _AFTER_LABELS)
    words = header["words"].astype(np.int64)
    version, types = words[:, 0] >> 12, words[:, 6:9]
    is_known = (types >= 1536) & (ETHERTYPES[types] != Kind.OTHER)
    plain = is_known[:, 0]
    controlled = (version == 0) & is_known[:, 2]
    length = np.where(version == 4, words[:, 1], words[:, 2] + 40)
    surplus = packets.wire_end[rows] - packets.at[rows] - length
    next_version = np.select([types[:, 0] == 0x0800, types[:, 0] == 0x86DD], [4, 6], -1)
    is_frame = (words[:, 7] >> 12 == next_version) | ((next_version < 0) & plain & is_known[:, 2])
    is_ip = ((surplus >= 0) & (surplus <= _TRAILER)) | ~is_frame
    packets.kind[rows] = np.select(
        [(version == 4) & is_ip, (version == 6) & is_ip, plain | controlled],
        [Kind.IPV4, Kind.IPV6, Kind.ETHERNET],
        Kind.OTHER,
    )
    packets.at[rows] += np.where((packets.kind[rows] == Kind.ETHERNET) & ~plain, 4, 0)


LAYERS[Kind.PSEUDOWIRE] = _pseudowire


@reads(LAYERS, Kind.UDP, ("src_port", ">u2"), ("dst_port", ">u2"), ("-", "V4"))
def _udp(header: Fields) -> Next:
    """RFC 768. Only tunnels matter: most use the same destination port in both directions."""
    kind = PORTS[header["dst_port"]]
    return np.where(kind == Kind.OTHER, SERVER_PORTS[header["src_port"]], kind), 8


@reads(LAYERS, Kind.GRE, ("flags", ">u2"), ("protocol", ">u2"))
def _gre(header: Fields) -> Next:
    """RFC 2784 and 2890: checksum, key and sequence number are optional, with 4 bytes each.

    ERSPAN I has ERSPAN's number, but no sequence number and no header of its own. PPTP's version
    (RFC 2637) may also have an acknowledgement number.
    """
    flags = header["flags"]
    kind = PAYLOADS[header["protocol"]]
    has_sequence = (flags & 0x1000) != 0
    kind[(kind == Kind.ERSPAN_II) & ~has_sequence] = Kind.ETHERNET
    kind[(flags & 0x4007) != 0] = Kind.TUNNEL  # source routes (RFC 1701)
    is_pptp = (flags & 0x400F == 1) & (header["protocol"] == 0x880B)
    kind[is_pptp] = np.where(has_sequence[is_pptp], Kind.PPP, Kind.OTHER)  # or only an ACK
    words = bit(flags, 0x8000) + bit(flags, 0x2000) + has_sequence
    return kind, 4 + 4 * (words + is_pptp * bit(flags, 0x80))


@reads(LAYERS, Kind.ERSPAN_II, ("head", ">u4"), ("index", ">u4"))
def _erspan_ii(header: Fields) -> Next:
    """draft-foschiano-erspan, 4.2: version 1."""
    return np.where(header["head"] >> 28 == 1, Kind.ETHERNET, Kind.TUNNEL), 8


@reads(
    LAYERS, Kind.ERSPAN_III, ("head", ">u4"), ("time", ">u4"), ("group", ">u2"), ("flags", ">u2")
)
def _erspan_iii(header: Fields) -> Next:
    """draft-foschiano-erspan, 4.3: version 2; the last flag adds 8 bytes."""
    frame_type = header["flags"] >> 10 & 31
    kind = np.select(
        [header["head"] >> 28 != 2, frame_type == 0, frame_type == 2],
        [Kind.TUNNEL, Kind.ETHERNET, Kind.RAW_IP],
        Kind.TUNNEL,
    )
    return kind, 12 + 8 * bit(header["flags"], 1)


@reads(LAYERS, Kind.VXLAN, ("flags", "u1"), ("-", "V7"))
def _vxlan(header: Fields) -> Next:
    """RFC 7348: the flag that the network identifier is valid must be set."""
    return np.where(header["flags"] & 0x08, Kind.ETHERNET, Kind.OTHER), 8


@reads(LAYERS, Kind.GENEVE, ("options", "u1"), ("flags", "u1"), ("protocol", ">u2"), ("-", "V4"))
def _geneve(header: Fields) -> Next:
    """RFC 8926: version 0, options of 4 bytes each; control packets have no payload."""
    is_data = (header["options"] >> 6 == 0) & (header["flags"] & 0x80 == 0)
    kind = np.where(is_data, PAYLOADS[header["protocol"]], Kind.OTHER)
    return kind, 8 + 4 * (header["options"] & 63).astype(np.int64)


@reads(LAYERS, Kind.GTP, ("flags", "u1"), ("type", "u1"), ("-", "V6"))
def _gtp(header: Fields) -> Next:
    """3GPP TS 29.281, 5.1: version 1; message 255 carries a user's packet.

    Any of three flags adds 4 bytes; the last of them is the type of the next extension header.
    """
    flags = header["flags"]
    is_data = (flags & 0xF0 == 0x30) & (header["type"] == 255)
    has_extension = (flags & 4) != 0
    kind = np.select([~is_data, has_extension], [Kind.OTHER, Kind.GTP_EXTENSION], Kind.RAW_IP)
    return kind, np.where(has_extension, 11, 8 + 4 * bit(flags, 3))


@reads(LAYERS, Kind.GTP_EXTENSION, ("type", "u1"), ("size", "u1"))
def _gtp_extension(header: Fields) -> Next:
    """3GPP TS 29.281, 5.2: the position is at the type of the next header; 0 if there is none.

    Sizes count 4 bytes; the last byte of a header is the type of the next one.
    """
    size = header["size"].astype(np.int64)
    is_last = header["type"] == 0
    kind = np.select([is_last, size == 0], [Kind.RAW_IP, Kind.MALFORMED], Kind.GTP_EXTENSION)
    return kind, np.where(is_last, 1, 4 * size)


@reads(LAYERS, Kind.ETHERIP, ("version", "u1"), ("-", "u1"))
def _etherip(header: Fields) -> Next:
    """RFC 3378: version 3, and Ethernet."""
    return np.where(header["version"] >> 4 == 3, Kind.ETHERNET, Kind.OTHER), 2


@reads(LAYERS, Kind.NSH, ("flags", ">u2"), ("metadata", "u1"), ("next", "u1"), ("path", "V4"))
def _nsh(header: Fields) -> Next:
    """RFC 8300, 2.2: sizes count 4 bytes."""
    is_known = header["flags"] >> 14 == 0
    kind = np.where(is_known, _SERVICE[header["next"]], Kind.OTHER)
    return kind, 4 * (header["flags"].astype(np.int64) & 63)


@reads(LAYERS, Kind.VXLAN_GPE, ("flags", "u1"), ("-", "V2"), ("next", "u1"), ("network", "V4"))
def _vxlan_gpe(header: Fields) -> Next:
    """draft-ietf-nvo3-vxlan-gpe, 3: a flag announces a next protocol; otherwise Ethernet."""
    flags = header["flags"]
    kind = np.select(
        [flags & 0x08 == 0, flags & 0x04 != 0],
        [Kind.OTHER, _SERVICE[header["next"]]],
        Kind.ETHERNET,
    )
    return kind, 8


@reads(LAYERS, Kind.WCCP, ("first", "u1"), ("-", "V3"))
def _wccp(header: Fields) -> Next:
    """draft-wilson-wrec-wccp-v2, 4.12: version 2 has a header of 4 bytes before the packet."""
    return Kind.IPV4, np.where(header["first"] >> 4 == 4, 0, 4)


@reads(LAYERS, Kind.L2TP, ("flags", ">u2"), ("-", "V4"))
def _l2tp(header: Fields) -> Next:
    """RFC 2661, 3.1: version 2; each flag adds a field."""
    flags = header["flags"]
    is_data = flags & 0x800F == 2
    size = 6 + 2 * bit(flags, 0x4000) + 4 * bit(flags, 0x0800) + 2 * bit(flags, 0x0200)
    has_offset = is_data & (flags & 0x0200 != 0)
    kind = np.select([~is_data, has_offset], [Kind.OTHER, Kind.L2TP_OFFSET], Kind.PPP)
    return kind, np.where(has_offset, size - 2, size)


@reads(LAYERS, Kind.L2TP_OFFSET, ("size", ">u2"))
def _l2tp_offset(header: Fields) -> Next:
    """RFC 2661, 3.1: the size of the padding, then the padding."""
    return Kind.PPP, 2 + header["size"].astype(np.int64)


@reads(LAYERS, Kind.TEREDO, ("indicator", ">u2"), ("client", "u1"), ("key", "u1"), ("-", "V4"))
def _teredo(header: Fields) -> Next:
    """RFC 4380, 5.1.1: IPv6, optionally after indications of authentication and origin."""
    is_ipv6 = header["indicator"] >> 12 == 6
    has_origin = header["indicator"] == 0
    has_key = header["indicator"] == 1
    key_size = 13 + header["client"].astype(np.int64) + header["key"]
    kind = np.select([is_ipv6, has_origin | has_key], [Kind.IPV6, Kind.TEREDO], Kind.OTHER)
    return kind, np.select([has_origin, has_key], [8, key_size], 0)


@reads(
    LAYERS,
    Kind.AYIYA,
    ("identity", "u1"),
    ("signature", "u1"),
    ("operation", "u1"),
    ("next", "u1"),
    ("time", "V4"),
)
def _ayiya(header: Fields) -> Next:
    """draft-massar-v6ops-ayiya, 3: identity and signature have sizes, and IPv6 follows."""
    is_data = (header["operation"] & 15 == 1) & (header["next"] == 41)
    identity = 1 << (header["identity"].astype(np.int64) >> 4)
    kind = np.where(is_data, PROTOCOLS[header["next"]], Kind.OTHER)
    return kind, 8 + identity + 4 * (header["signature"].astype(np.int64) >> 4)


@reads(LAYERS, Kind.CAPWAP, ("flags", ">u4"), ("fragment", "V4"))
def _capwap(header: Fields) -> Next:
    """RFC 5415, 4.3: frames of IEEE 802.11 or 802.3, unless they are fragments or keep-alives."""
    flags = header["flags"]
    is_frame = (flags >> 24 == 0) & (flags & 0x88 == 0)
    is_native = flags & 0x100 != 0
    is_wlan = is_native & (flags >> 9 & 31 == 1)
    kind = np.select(
        [is_frame & is_wlan, is_frame & ~is_native], [Kind.WLAN, Kind.ETHERNET], Kind.OTHER
    )
    return kind, 4 * (flags.astype(np.int64) >> 19 & 31)


@reads(LAYERS, Kind.TZSP, ("version", "u1"), ("type", "u1"), ("protocol", ">u2"))
def _tzsp(header: Fields) -> Next:
    """TaZmen sniffer protocol, version 1: fields up to a field of type 1, then the frame."""
    is_frame = (header["version"] == 1) & (header["type"] < 2)
    link = np.select([header["protocol"] == 1, header["protocol"] == 18], [1, 2], 0)
    kind = np.select(
        [is_frame & (link == 1), is_frame & (link == 2)],
        [Kind.TZSP_ETHERNET, Kind.TZSP_WLAN],
        Kind.OTHER,
    )
    return kind, 4


def _tzsp_field(kind: Kind, following: Kind) -> None:
    @reads(LAYERS, kind, ("type", "u1"), ("size", "u1"))
    def layer(header: Fields) -> Next:
        """Padding and the last field have no size."""
        size = np.where(header["type"] < 2, 1, 2 + header["size"].astype(np.int64))
        return np.where(header["type"] == 1, following, kind), size


_tzsp_field(Kind.TZSP_ETHERNET, Kind.ETHERNET)
_tzsp_field(Kind.TZSP_WLAN, Kind.WLAN)


@reads(LAYERS, Kind.LISP, ("head", "V8"), ("version", "u1"))
def _lisp(header: Fields) -> Next:
    """RFC 6830, 5: 8 bytes, then IP."""
    version = header["version"] >> 4
    return np.where((version == 4) | (version == 6), Kind.RAW_IP, Kind.OTHER), 8
