"""Link layers, and layers of Ethernet before the IP header, as whole arrays.

Those of a fixed size with the ethertype of the next header are in `headers.ETHERTYPES_AT`; those
that always have the same next header are in `_SKIPPED`. The others have a function each. IEEE
802.11 is read packet by packet: see `by_packet`.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.formats.capture_reader import Fields
from dissector.packets.layers.headers import (
    ETHERTYPES,
    LINKS,
    PPP,
    Kind,
    Layer,
    Next,
    Packets,
    Rows,
    bit,
    reads,
)

LAYERS: dict[Kind, Layer] = {}

_SKIPPED = {
    Kind.BACKBONE: (4, Kind.ETHERNET),  # IEEE 802.1ah: the service tag
    Kind.FABRICPATH: (2, Kind.ETHERNET),
    Kind.MPACKET: (8, Kind.ETHERNET),  # IEEE 802.3br: the preamble
    Kind.NETANALYZER: (4, Kind.ETHERNET),
    Kind.ENCRYPTED_IP: (12, Kind.RAW_IP),  # OpenBSD's enc device: before encryption
    Kind.SOLARIS_IPNET: (24, Kind.RAW_IP),
    Kind.PPP_DIRECTION: (1, Kind.PPP),
    Kind.HDLC_DIRECTION: (1, Kind.CISCO_HDLC),
}
"""Bytes of a header, and the kind of the next header."""

_NFLOG: dict[Kind, Layer] = {}
_NFLOG_PAYLOAD = 9
_NFLOG_FIELDS = 24
"""Maximum number of fields; larger than the number of types."""
_PKTAP_SIZES = range(108, 1025)
_ERF_HEADER = np.dtype([("time", "<u8"), ("type", "u1"), ("-", "V7")])
_ERF_EXTENSION = np.dtype([("type", "u1"), ("-", "V7")])
_ERF_EXTENSIONS = 16
"""Maximum number of extension headers to read; larger than the number of types in use."""
_ERF_TYPES = np.full(128, Kind.OTHER, np.uint8)
_ERF_TYPES[[2, 11, 16, 20]] = Kind.ETHERNET  # also with a colour, or a hash
_ERF_TYPES[[22, 23]] = Kind.IPV4, Kind.IPV6
_LINK_TYPES = len(LINKS)


def _skip(kind: Kind) -> None:
    size, following = _SKIPPED[kind]

    @reads(LAYERS, kind, ("-", f"V{size}"))
    def layer(header: Fields) -> Next:
        return following, size


for _kind in _SKIPPED:
    _skip(_kind)


@reads(LAYERS, Kind.LLC, ("sap", ">u2"), ("control", "u1"))
def _llc(header: Fields) -> Next:
    """IEEE 802.2: IP follows only after SNAP, or as in RFC 948."""
    is_data = header["control"] == 3
    kind = np.select(
        [is_data & (header["sap"] == 0xAAAA), is_data & (header["sap"] == 0x0606)],
        [Kind.SNAP, Kind.IPV4],
        Kind.OTHER,
    )
    return kind, 3


@reads(LAYERS, Kind.SNAP, ("organisation", "u1", 3), ("protocol", ">u2"))
def _snap(header: Fields) -> Next:
    """RFC 1042: ethertypes of organisation 0; 0x0000F8 is for the ethertypes of IEEE 802.1H."""
    organisation = header["organisation"]
    has_ethertype = ~organisation[:, :2].any(axis=1) & np.isin(organisation[:, 2], (0, 0xF8))
    is_ethertype = has_ethertype & (header["protocol"] >= 1536)
    return np.where(is_ethertype, ETHERTYPES[header["protocol"]], Kind.OTHER), 5


@reads(LAYERS, Kind.PPP, ("bytes", "u1", 4))
def _ppp(header: Fields) -> Next:
    """RFC 1661 and 1662: address and control may be absent, the protocol may have one byte.

    pppd replaces the address with a direction. A serial line may have Cisco's HDLC instead of PPP,
    with its own addresses.
    """
    data = header["bytes"].astype(np.int64)
    is_framed = np.isin(data[:, 0], (0xFF, 0, 1)) & (data[:, 1] == 3)
    is_hdlc = np.isin(data[:, 0], (0x0F, 0x8F)) & (data[:, 1] == 0)
    first, second = (np.where(is_framed, data[:, i + 2], data[:, i]) for i in (0, 1))
    is_short = first & 1 == 1
    protocol = np.where(is_short, first, first << 8 | second)
    # The last bit of each protocol is 1.
    kind = np.select([is_hdlc, protocol & 1 == 1], [Kind.CISCO_HDLC, PPP[protocol]], Kind.TUNNEL)
    return kind, np.where(is_hdlc, 0, 2 * is_framed + np.where(is_short, 1, 2))


@reads(LAYERS, Kind.PKTAP, ("size", "<u4"), ("next", "<u4"), ("link", "<u4"))
def _pktap(header: Fields) -> Next:
    """macOS "any" device (bsd/net/pktap.h of its kernel): any other link type follows."""
    size = header["size"].astype(np.int64)
    is_packet = (header["next"] == 1) & (size >= _PKTAP_SIZES.start) & (size < _PKTAP_SIZES.stop)
    link = LINKS[np.minimum(header["link"], _LINK_TYPES - 1)]
    return np.where(is_packet, link, Kind.UNKNOWN_LINK), size


@reads(_NFLOG, Kind.NFLOG, ("family", "u1"), ("version", "u1"), ("resource", ">u2"))
def _nflog_head(header: Fields) -> Next:
    return np.where(header["version"] == 0, Kind.NFLOG_FIELD, Kind.MALFORMED), 4


@reads(_NFLOG, Kind.NFLOG_FIELD, ("size", "u1", 2), ("type", "u1", 2))
def _nflog_field(header: Fields) -> Next:
    """A field has the byte order of the machine. The upper byte of all types is 0."""
    size, kind = (header[name].astype(np.int64) for name in ("size", "type"))
    is_little = kind[:, 1] & 0x7F == 0  # the highest bit: fields in fields
    size = np.where(is_little, size[:, 1] << 8 | size[:, 0], size[:, 0] << 8 | size[:, 1])
    is_payload = np.where(is_little, kind[:, 0], kind[:, 1]) == _NFLOG_PAYLOAD
    following = np.select([is_payload, size >= 4], [Kind.RAW_IP, Kind.NFLOG_FIELD], Kind.MALFORMED)
    return following, np.where(is_payload, 4, (size + 3) // 4 * 4)


def _nflog(packets: Packets, rows: Rows) -> None:
    """Linux's netfilter log: fields; the last one is the IP packet."""
    _NFLOG[Kind.NFLOG](packets, rows)
    for _ in range(_NFLOG_FIELDS):
        _NFLOG[Kind.NFLOG_FIELD](packets, np.flatnonzero(packets.kind == Kind.NFLOG_FIELD))


LAYERS[Kind.NFLOG] = _nflog


@reads(LAYERS, Kind.PFLOG, ("size", "u1"), ("family", "u1"))
def _pflog(header: Fields) -> Next:
    """OpenBSD's packet filter log: its size is padded to 4 bytes."""
    return Kind.RAW_IP, (header["size"].astype(np.int64) + 3) // 4 * 4


def _juniper(kind: Kind, following: Kind) -> None:
    @reads(LAYERS, kind, ("magic", "u1", 3), ("flags", "u1"), ("extensions", ">u2"))
    def layer(header: Fields) -> Next:
        """Junos: one flag for extensions, one for a missing link header."""
        flags = header["flags"]
        extensions = np.where(flags & 0x80, 2 + header["extensions"].astype(np.int64), 0)
        is_sound = (header["magic"] == (0x4D, 0x47, 0x43)).all(axis=1)
        has_no_link = flags & 0x02 != 0
        kind = np.select([~is_sound, has_no_link], [Kind.MALFORMED, Kind.RAW_IP], following)
        return kind, 4 + extensions + 4 * has_no_link


_juniper(Kind.JUNIPER_ETHERNET, Kind.ETHERNET)
_juniper(Kind.JUNIPER_PPP, Kind.PPP)
_juniper(Kind.JUNIPER_HDLC, Kind.CISCO_HDLC)


@reads(LAYERS, Kind.PPI, ("version", "u1"), ("flags", "u1"), ("size", "<u2"), ("link", "<u4"))
def _ppi(header: Fields) -> Next:
    """Per-packet information: its size, and the link type that follows."""
    return LINKS[np.minimum(header["link"], _LINK_TYPES - 1)], header["size"]


def _erf(packets: Packets, rows: Rows) -> None:
    """Endace's records (erf_record.h of Wireshark): a header, then 8 bytes for each extension, if
    the highest bit of the type before is set, then 2 bytes before Ethernet."""
    read, header = packets.header(np.arange(len(packets.kind))[rows], _ERF_HEADER)
    whole = np.asarray(read)
    following = _ERF_TYPES[header["type"] & 0x7F]
    packets.kind[whole] = following
    packets.at[whole] += _ERF_HEADER.itemsize
    extended = whole
    for _ in range(_ERF_EXTENSIONS):
        read, header = packets.header(extended[header["type"] > 0x7F], _ERF_EXTENSION)
        extended = np.asarray(read)
        packets.at[extended] += _ERF_EXTENSION.itemsize
    packets.at[whole] += 2 * (following == Kind.ETHERNET)


LAYERS[Kind.ERF] = _erf


@reads(LAYERS, Kind.RADIOTAP, ("version", "u1"), ("-", "u1"), ("size", "<u2"))
def _radiotap(header: Fields) -> Next:
    """radiotap.org: fields of the radio, then IEEE 802.11."""
    return np.where(header["version"] == 0, Kind.WLAN, Kind.MALFORMED), header["size"]


@reads(LAYERS, Kind.MACSEC, ("flags", "u1"), ("-", "V5"))
def _macsec(header: Fields) -> Next:
    """IEEE 802.1AE, 9.3: an ethertype follows unless the data is encrypted or changed."""
    flags = header["flags"]
    return np.where(flags & 0x8C == 0, Kind.ETHERTYPE, Kind.OTHER), 6 + 8 * bit(flags, 0x20)


@reads(LAYERS, Kind.TRILL, ("flags", ">u2"), ("-", "V4"))
def _trill(header: Fields) -> Next:
    """RFC 6325, 3: options of 4 bytes each."""
    kind = np.where(header["flags"] >> 14 == 0, Kind.ETHERNET, Kind.OTHER)
    return kind, 6 + 4 * (header["flags"].astype(np.int64) >> 6 & 31)


@reads(LAYERS, Kind.BATMAN, ("type", "u1"), ("version", "u1"))
def _batman(header: Fields) -> Next:
    """batman-adv, version 15: a broadcast, and frames for one node."""
    kind = header["type"]
    size = np.select([kind == 0x01, kind == 0x40, kind == 0x42], [14, 10, 18], 0)
    is_frame = (size > 0) & (header["version"] == 15)
    return np.where(is_frame, Kind.ETHERNET, Kind.OTHER), size
