"""Link layers, and layers of Ethernet before the IP header, as whole arrays.

Those of a fixed size with the ethertype of the next header are in `headers.ETHERTYPES_AT`; those
that always have the same next header are in `_SKIPPED`. The others have a function each. IEEE
802.11 is read packet by packet: see `by_packet`.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.headers import ETHERTYPES, LINKS, PPP, Kind, Layer, Packets, Rows, bit

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

_LLC = np.dtype([("sap", ">u2"), ("control", "u1")])
_SNAP = np.dtype([("organisation", "u1", 3), ("protocol", ">u2")])
_PPP = np.dtype([("bytes", "u1", 4)])
_PKTAP = np.dtype([("size", "<u4"), ("next", "<u4"), ("link", "<u4")])
_NFLOG = np.dtype([("family", "u1"), ("version", "u1"), ("resource", ">u2")])
_NFLOG_FIELD = np.dtype([("size", "u1", 2), ("type", "u1", 2)])
_PFLOG = np.dtype([("size", "u1"), ("family", "u1")])
_JUNIPER = np.dtype([("magic", "u1", 3), ("flags", "u1"), ("extensions", ">u2")])
_PPI = np.dtype([("version", "u1"), ("flags", "u1"), ("size", "<u2"), ("link", "<u4")])
_RADIOTAP = np.dtype([("version", "u1"), ("-", "u1"), ("size", "<u2")])
_MACSEC = np.dtype([("flags", "u1"), ("-", "V5")])
_TRILL = np.dtype([("flags", ">u2"), ("-", "V4")])
_BATMAN = np.dtype([("type", "u1"), ("version", "u1")])

_NFLOG_PAYLOAD = 9
_NFLOG_FIELDS = 24
"""Maximum number of fields; larger than the number of types."""
_PKTAP_SIZES = range(108, 1025)
_LINK_TYPES = len(LINKS)


def _skipped(kind: Kind) -> Layer:
    size, following = _SKIPPED[kind]
    layout = np.dtype([("-", f"V{size}")])

    def layer(packets: Packets, rows: Rows) -> None:
        rows, _ = packets.header(rows, layout)
        packets.kind[rows] = following
        packets.at[rows] += size

    return layer


def _llc(packets: Packets, rows: Rows) -> None:
    """IEEE 802.2: IP follows only after SNAP, or as in RFC 948."""
    rows, header = packets.header(rows, _LLC)
    is_data = header["control"] == 3
    packets.kind[rows] = np.select(
        [is_data & (header["sap"] == 0xAAAA), is_data & (header["sap"] == 0x0606)],
        [Kind.SNAP, Kind.IPV4],
        Kind.OTHER,
    )
    packets.at[rows] += _LLC.itemsize


def _snap(packets: Packets, rows: Rows) -> None:
    """RFC 1042: ethertypes of organisation 0; 0x0000F8 is for the ethertypes of IEEE 802.1H."""
    rows, header = packets.header(rows, _SNAP)
    organisation = header["organisation"]
    has_ethertype = ~organisation[:, :2].any(axis=1) & np.isin(organisation[:, 2], (0, 0xF8))
    is_ethertype = has_ethertype & (header["protocol"] >= 1536)
    packets.kind[rows] = np.where(is_ethertype, ETHERTYPES[header["protocol"]], Kind.OTHER)
    packets.at[rows] += _SNAP.itemsize


def _ppp(packets: Packets, rows: Rows) -> None:
    """RFC 1661 and 1662: address and control may be absent, the protocol may have one byte.

    pppd replaces the address with a direction. A serial line may have Cisco's HDLC instead of PPP,
    with its own addresses.
    """
    rows, header = packets.header(rows, _PPP)
    data = header["bytes"].astype(np.int64)
    is_framed = np.isin(data[:, 0], (0xFF, 0, 1)) & (data[:, 1] == 3)
    is_hdlc = np.isin(data[:, 0], (0x0F, 0x8F)) & (data[:, 1] == 0)
    first, second = (np.where(is_framed, data[:, i + 2], data[:, i]) for i in (0, 1))
    is_short = first & 1 == 1
    protocol = np.where(is_short, first, first << 8 | second)
    # The last bit of each protocol is 1.
    packets.kind[rows] = np.select(
        [is_hdlc, protocol & 1 == 1], [Kind.CISCO_HDLC, PPP[protocol]], Kind.TUNNEL
    )
    packets.at[rows] += np.where(is_hdlc, 0, 2 * is_framed + np.where(is_short, 1, 2))


def _pktap(packets: Packets, rows: Rows) -> None:
    """macOS "any" device (bsd/net/pktap.h of its kernel): any other link type follows."""
    rows, header = packets.header(rows, _PKTAP)
    size = header["size"].astype(np.int64)
    is_packet = (header["next"] == 1) & (size >= _PKTAP_SIZES.start) & (size < _PKTAP_SIZES.stop)
    link = LINKS[np.minimum(header["link"], _LINK_TYPES - 1)]
    packets.kind[rows] = np.where(is_packet, link, Kind.UNKNOWN_LINK)
    packets.at[rows] += size


def _nflog(packets: Packets, rows: Rows) -> None:
    """Linux's netfilter log: fields; the last one is the IP packet."""
    rows, header = packets.header(rows, _NFLOG)
    packets.kind[rows] = np.where(header["version"] == 0, Kind.NFLOG_FIELD, Kind.MALFORMED)
    packets.at[rows] += _NFLOG.itemsize
    for _ in range(_NFLOG_FIELDS):
        _nflog_field(packets, np.flatnonzero(packets.kind == Kind.NFLOG_FIELD))


def _nflog_field(packets: Packets, rows: Rows) -> None:
    """A field has the byte order of the machine. The upper byte of all types is 0."""
    rows, header = packets.header(rows, _NFLOG_FIELD)
    size, kind = (header[name].astype(np.int64) for name in ("size", "type"))
    is_little = kind[:, 1] & 0x7F == 0  # the highest bit: fields in fields
    size = np.where(is_little, size[:, 1] << 8 | size[:, 0], size[:, 0] << 8 | size[:, 1])
    is_payload = np.where(is_little, kind[:, 0], kind[:, 1]) == _NFLOG_PAYLOAD
    packets.kind[rows] = np.select(
        [is_payload, size >= 4], [Kind.RAW_IP, Kind.NFLOG_FIELD], Kind.MALFORMED
    )
    packets.at[rows] += np.where(is_payload, 4, (size + 3) // 4 * 4)


def _pflog(packets: Packets, rows: Rows) -> None:
    """OpenBSD's packet filter log: its size is padded to 4 bytes."""
    rows, header = packets.header(rows, _PFLOG)
    packets.kind[rows] = Kind.RAW_IP
    packets.at[rows] += (header["size"].astype(np.int64) + 3) // 4 * 4


def _juniper(following: Kind) -> Layer:
    def layer(packets: Packets, rows: Rows) -> None:
        """Junos: one flag for extensions, one for a missing link header."""
        rows, header = packets.header(rows, _JUNIPER)
        flags = header["flags"]
        extensions = np.where(flags & 0x80, 2 + header["extensions"].astype(np.int64), 0)
        is_sound = (header["magic"] == (0x4D, 0x47, 0x43)).all(axis=1)
        has_no_link = flags & 0x02 != 0
        packets.kind[rows] = np.select(
            [~is_sound, has_no_link], [Kind.MALFORMED, Kind.RAW_IP], following
        )
        packets.at[rows] += 4 + extensions + 4 * has_no_link

    return layer


def _ppi(packets: Packets, rows: Rows) -> None:
    """Per-packet information: its size, and the link type that follows."""
    rows, header = packets.header(rows, _PPI)
    packets.kind[rows] = LINKS[np.minimum(header["link"], _LINK_TYPES - 1)]
    packets.at[rows] += header["size"]


def _radiotap(packets: Packets, rows: Rows) -> None:
    """radiotap.org: fields of the radio, then IEEE 802.11."""
    rows, header = packets.header(rows, _RADIOTAP)
    packets.kind[rows] = np.where(header["version"] == 0, Kind.WLAN, Kind.MALFORMED)
    packets.at[rows] += header["size"]


def _macsec(packets: Packets, rows: Rows) -> None:
    """IEEE 802.1AE, 9.3: an ethertype follows unless the data is encrypted or changed."""
    rows, header = packets.header(rows, _MACSEC)
    flags = header["flags"]
    packets.kind[rows] = np.where(flags & 0x8C == 0, Kind.ETHERTYPE, Kind.OTHER)
    packets.at[rows] += _MACSEC.itemsize + 8 * bit(flags, 0x20)


def _trill(packets: Packets, rows: Rows) -> None:
    """RFC 6325, 3: options of 4 bytes each."""
    rows, header = packets.header(rows, _TRILL)
    packets.kind[rows] = np.where(header["flags"] >> 14 == 0, Kind.ETHERNET, Kind.OTHER)
    packets.at[rows] += _TRILL.itemsize + 4 * (header["flags"].astype(np.int64) >> 6 & 31)


def _batman(packets: Packets, rows: Rows) -> None:
    """batman-adv, version 15: a broadcast, and frames for one node."""
    rows, header = packets.header(rows, _BATMAN)
    kind = header["type"]
    size = np.select([kind == 0x01, kind == 0x40, kind == 0x42], [14, 10, 18], 0)
    is_frame = (size > 0) & (header["version"] == 15)
    packets.kind[rows] = np.where(is_frame, Kind.ETHERNET, Kind.OTHER)
    packets.at[rows] += size


LAYERS: dict[Kind, Layer] = {
    **{kind: _skipped(kind) for kind in _SKIPPED},
    Kind.LLC: _llc,
    Kind.SNAP: _snap,
    Kind.PPP: _ppp,
    Kind.PKTAP: _pktap,
    Kind.NFLOG: _nflog,
    Kind.PFLOG: _pflog,
    Kind.JUNIPER_ETHERNET: _juniper(Kind.ETHERNET),
    Kind.JUNIPER_PPP: _juniper(Kind.PPP),
    Kind.JUNIPER_HDLC: _juniper(Kind.CISCO_HDLC),
    Kind.PPI: _ppi,
    Kind.RADIOTAP: _radiotap,
    Kind.MACSEC: _macsec,
    Kind.TRILL: _trill,
    Kind.BATMAN: _batman,
}
