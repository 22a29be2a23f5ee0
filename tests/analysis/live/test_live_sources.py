"""The filter of `sniff --port`, as the kernel applies it."""

from __future__ import annotations

import socket
import struct

import pytest

from analysis.live.sources import Origin
from dissector.packets.af_packet import BUFFER_BYTES, PacketRing
from dissector.packets.live import LiveSource
from tests.dissector.packets.packet_bytes import ethernet, frame, ipv6, rows_of, tcp
from tests.dissector.packets.test_packets_live import NEEDS_LIBPCAP, blocks, in_a_network

HOP_BY_HOP, IPV6 = 0, 0x86DD


def big_tcp(payload: bytes, **ports: int) -> bytes:
    """A frame of BIG TCP: the size of its payload is in a hop-by-hop header, a jumbo option (RFC
    2675, section 2)."""
    segment = tcp(payload, **ports)
    option = struct.pack(">BBBBI", 6, 0, 0xC2, 4, 8 + len(segment))
    return ethernet(ipv6(option + segment, protocol=HOP_BY_HOP, length=0), IPV6)


@NEEDS_LIBPCAP
@in_a_network
def test_a_port_selects_segments_behind_a_hop_by_hop_header() -> None:
    pytest.importorskip("scapy")
    origin = Origin(None, ["lo"], [9092, 9093], "", BUFFER_BYTES)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        source = LiveSource([PacketRing("lo", expression=origin.kernel_filter)])
        raw.bind(("lo", 0))
        raw.send(frame(b"IPv4"))
        raw.send(ethernet(ipv6(tcp(b"IPv6")), IPV6))
        raw.send(big_tcp(b"other", dst=80))
        raw.send(big_tcp(b"request"))
        raw.send(big_tcp(b"response", src=9093, dst=40000))
        payloads = [row.payload for block in blocks(source) for row in rows_of(block)]
    assert payloads == [b"IPv4", b"IPv6", b"request", b"response"]
