"""Encapsulations of a frame, layer by layer: literal headers."""

from __future__ import annotations

import struct
from collections.abc import Callable

from tests.dissector.packets.packet_bytes import MAC, ethernet, ipv4

H = bytes.fromhex
Wrap = Callable[[bytes], bytes]
"""Puts a header before an Ethernet frame, or before the IP packet in it."""


def ip_of(frame: bytes) -> bytes:
    return frame[14:]


def ethertype(frame: bytes) -> bytes:
    return frame[12:14]


def in_ethernet(number: int, header: bytes) -> Wrap:
    """A header, then the ethertype of the packet."""
    return lambda frame: ethernet(header + frame[12:], number)


def whole(number: int, header: bytes) -> Wrap:
    """A header, then the whole frame."""
    return lambda frame: ethernet(header + frame, number)


def checked(header: bytes) -> bytes:
    """An IPv4 header with its checksum."""
    total = sum(struct.unpack(">10H", header[:20]))
    total = (total & 0xFFFF) + (total >> 16)
    return (
        header[:10] + struct.pack(">H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + header[12:]
    )


def outer(payload: bytes, protocol: int) -> bytes:
    return ethernet(checked(ipv4(payload, protocol=protocol)))


def udp(payload: bytes, *, src: int = 50000, dst: int) -> bytes:
    return outer(struct.pack(">HHHH", src, dst, 8 + len(payload), 0) + payload, 17)


def in_udp(port: int, header: bytes, *, whole: bool = False) -> Wrap:
    return lambda frame: udp(header + (frame if whole else ip_of(frame)), dst=port)


def in_gre(header: bytes) -> Wrap:
    return lambda frame: outer(header + ip_of(frame), 47)


def snap(frame: bytes) -> bytes:
    return H("aaaa03 000000") + frame[12:]


def ppp(frame: bytes) -> bytes:
    return (H("0057") if ethertype(frame) == H("86dd") else H("0021")) + ip_of(frame)


def pptp(frame: bytes) -> bytes:
    body = H("ff03") + ppp(frame)
    return outer(
        H("3081 880b") + struct.pack(">HH", len(body), 9) + H("00000001 00000001") + body, 47
    )


def l2tp(frame: bytes) -> bytes:
    size = 10 + len(ppp(frame))
    return udp(H("4002") + struct.pack(">H", size) + H("0001 0002 ff03") + ppp(frame), dst=1701)


def wlan(frame: bytes, control: str = "0801", *, options: bytes = b"") -> bytes:
    """To the access point (RFC 1042)."""
    header = H(control) + H("0000 020000000009") + frame[6:12] + frame[:6] + H("1000")
    return header + options + snap(frame)


def radiotap(frame: bytes) -> bytes:
    return H("0000 0d00 04800200 02 00 0000 00") + frame


def nflog(frame: bytes) -> bytes:
    fields = [(1, H("0800 01 00")), (10, b"kafka\0"), (5, H("00000002"))]
    body = b"".join(
        struct.pack("<HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
        for kind, value in [*fields, (9, ip_of(frame))]
    )
    family = 10 if ethertype(frame) == H("86dd") else 2
    return bytes([family, 0, 0, 0]) + body


def erf(kind: int, header: bytes) -> Wrap:
    """A record of Endace. `header`: the bytes before Ethernet."""

    def wrap(frame: bytes) -> bytes:
        body = header + frame
        return bytes(8) + struct.pack(">BBHHH", kind, 4, 16 + len(body), 0, len(frame)) + body

    return wrap


def nflog_of_big_endian(frame: bytes) -> bytes:
    payload = struct.pack(">HH", 4 + len(ip_of(frame)), 9) + ip_of(frame)
    return H("02000000") + struct.pack(">HH", 8, 3 | 0x8000) + bytes(4) + payload


def pktap(link: int) -> Callable[[bytes], bytes]:
    head = struct.pack("<III", 108, 1, link) + b"en0".ljust(24, b"\0") + bytes(72)
    return lambda packet: head + packet


def sgt(frame: bytes) -> bytes:
    return ethernet(H("0101 0001 0007") + frame[12:], 0x8909)


LAYERS: dict[str, tuple[int, Wrap]] = {
    "802.3 SNAP": (1, lambda frame: MAC + struct.pack(">H", len(snap(frame))) + snap(frame)),
    "802.3 SNAP in a VLAN": (
        1, lambda frame: ethernet(struct.pack(">H", len(snap(frame))) + snap(frame), 0x8100)[:14]
        + H("0005") + struct.pack(">H", len(snap(frame))) + snap(frame),
    ),
    "VN-Tag": (1, in_ethernet(0x8926, H("c0010002"))),
    "HSR": (1, in_ethernet(0x892F, H("10000001"))),
    "Cisco MetaData": (1, sgt),
    "PBB": (1, whole(0x88E7, H("00002a00"))),
    "PBB with a backbone tag": (
        1, lambda frame: ethernet(H("0005 88e7 00002a00") + frame, 0x88A8)),
    "FabricPath": (1, lambda frame: ethernet(H("0f41") + frame + H("01020304"), 0x8903)),
    "TRILL": (1, whole(0x22F3, H("0014 0001 0002"))),
    "TRILL, options": (1, whole(0x22F3, H("0054 0001 0002 00000000"))),
    "MACsec": (1, in_ethernet(0x88E5, H("00 00 00000001"))),
    "MACsec, SCI": (1, in_ethernet(0x88E5, H("20 00 00000001 0200000000010001"))),
    "batman-adv": (1, whole(0x4305, H("40 0f 32 01 020000000007"))),
    "batman-adv, 4 addresses": (1, whole(0x4305, H("42 0f 32 01 020000000007 020000000008 0100"))),
    "NSH": (1, whole(0x894F, H("0fc6 01 03 00000101") + bytes(16))),
    "VXLAN-GPE": (1, in_udp(4790, H("0c000003 00002a00"), whole=True)),
    "VXLAN-GPE with IPv4": (1, in_udp(4790, H("0c000001 00002a00"))),
    "VXLAN-GPE with NSH": (1, in_udp(4790, H("0c000004 00002a00 0fc2 02 03 00000101"), whole=True)),
    "GRE in UDP": (1, in_udp(4754, H("0000 0800"))),
    "GRE in UDP with Ethernet": (1, in_udp(4754, H("2000 6558 0000002a"), whole=True)),
    "MPLS in UDP": (1, in_udp(6635, H("00064140"))),
    "LISP": (1, in_udp(4341, H("80000001 00000000"))),
    "TZSP": (1, in_udp(37008, H("01 00 0001 00 0d010a 01"), whole=True)),
    "CAPWAP": (1, in_udp(5247, H("00100000 00000000"), whole=True)),
    "CAPWAP with 802.11": (
        1, lambda frame: udp(H("00100300 00000000") + wlan(frame), dst=5247)),
    "CAPWAP with 802.11 of Cisco": (
        1, lambda frame: udp(H("00100300 00000000") + H("0108") + wlan(frame)[2:], dst=5247)),
    "CAPWAP, from the controller": (
        1, lambda frame: udp(H("00100000 00000000") + frame, src=5247, dst=40001)),
    "L2TP": (1, l2tp),
    "L2TP, sequence and offset": (
        1, lambda frame: udp(H("0a02 0001 0002 00010001 0003 000000") + ppp(frame), dst=1701)),
    "PPP in GRE": (1, pptp),
    "WCCP": (1, in_gre(H("0000 883e 01020304"))),
    "WCCP, version 1": (1, in_gre(H("0000 883e"))),
    "802.11 in GRE": (1, lambda frame: outer(H("0000 8200") + wlan(frame), 47)),
    "EtherIP": (1, lambda frame: outer(H("3000") + frame, 97)),
    "MPLS in IP": (1, lambda frame: outer(H("00064140") + ip_of(frame), 137)),
    "PPP": (9, ppp),
    "PPP, framed": (50, lambda frame: H("ff03") + ppp(frame)),
    "PPP, short protocol": (9, lambda frame: H("21") + ip_of(frame)),
    "PPP of pppd": (166, lambda frame: H("0103") + ppp(frame)),
    "PPP with direction": (204, lambda frame: H("01ff03") + ppp(frame)),
    "Cisco HDLC": (104, lambda frame: H("0f00") + frame[12:]),
    "Cisco HDLC on a serial line": (50, lambda frame: H("0f00") + frame[12:]),
    "PPPoE": (51, lambda frame: H("1100 0001") + struct.pack(">H", len(ppp(frame))) + ppp(frame)),
    "802.11": (105, wlan),
    "802.11, QoS": (105, lambda frame: wlan(frame, "8801", options=H("0000"))),
    "802.11, HT control": (105, lambda frame: wlan(frame, "8881", options=H("0000 00000000"))),
    "802.11, 4 addresses": (105, lambda frame: wlan(frame, "0803", options=H("020000000008"))),
    "802.11, one frame aggregated": (
        105, lambda frame: wlan(frame, "8801", options=H("8000"))[:26] + frame[:12]
        + struct.pack(">H", len(snap(frame))) + snap(frame)),
    "radiotap": (127, lambda frame: radiotap(wlan(frame))),
    "radiotap, padded": (
        127, lambda frame: radiotap(wlan(frame, "8801", options=H("0000 0000")))),
    "radiotap, one frame aggregated, padded": (
        127, lambda frame: radiotap(wlan(frame, "8801", options=H("8000 0000"))[:28]
        + frame[:12] + struct.pack(">H", len(snap(frame))) + snap(frame))),
    "PPI": (192, lambda frame: H("0000 0800 69000000") + wlan(frame)),
    "PKTAP": (258, pktap(1)),
    "PKTAP, raw": (258, lambda frame: pktap(12)(ip_of(frame))),
    "PKTAP, loopback": (258, lambda frame: pktap(0)(H("02000000") + ip_of(frame))),
    "PKTAP, as macOS numbered it": (149, pktap(1)),
    "NFLOG": (239, nflog),
    "NFLOG, big-endian": (239, nflog_of_big_endian),
    "PFLOG": (117, lambda frame: bytes([61, 2]) + bytes(62) + ip_of(frame)),
    "ERF": (197, erf(2, bytes(2))),
    "ERF, colour, two extensions": (197, erf(0x80 | 11, H("8400000000000000 05") + bytes(9))),
    "enc": (109, lambda frame: H("00000002") + bytes(8) + ip_of(frame)),
    "Juniper Ethernet": (178, lambda frame: H("4d474381 0006 010203040506") + frame),
    "Juniper PPP": (179, lambda frame: H("4d474301 ff03") + ppp(frame)),
    "netANALYZER": (240, lambda frame: H("00000000") + frame),
    "mPacket": (274, lambda frame: H("555555555555 55d5") + frame),
    "Linux cooked, LLC": (113, lambda frame: bytes(14) + H("0004") + snap(frame)),
    "ATM": (100, snap),
}  # fmt: skip
