"""Packets without a part of their payload, as scapy reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

from dissector.packets import open_packets
from dissector.packets.trimming import Segment, trimmed
from tests.dissector.packets.packet_bytes import pcap

PAYLOAD = bytes(range(200))
V4 = IP(src="10.0.0.1", dst="10.0.0.2", ttl=9)
V6 = IPv6(src="2001:db8::1", dst="2001:db8::2")
TUNNEL = Ether() / IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=50000, dport=4789) / VXLAN()
LAYERS = {
    "ethernet": Ether() / V4,
    "vlan": Ether() / Dot1Q(vlan=5) / V4,
    "options": Ether() / IP(src="10.0.0.1", dst="10.0.0.2", options=b"\x01\x01\x01\x00"),
    "ipv6": Ether() / V6,
    "vxlan": TUNNEL / Ether() / V4,
}


def tcp(flags: str = "PA", payload: bytes = PAYLOAD) -> Packet:
    return (
        TCP(sport=40000, dport=9092, seq=2**32 - 50, ack=77, flags=flags, options=[("NOP", None)])
        / Raw(payload)
    )  # fmt: skip


def segment_of(tmp_path: Path, packet: bytes) -> Segment:
    """The segment as the dissector reads it."""
    (tmp_path / "one.pcap").write_bytes(pcap([packet]))
    block = open_packets([tmp_path / "one.pcap"]).read(0)
    assert block is not None
    return Segment(
        (int(block.src_high[0]), int(block.src_low[0])),
        (int(block.dst_high[0]), int(block.dst_low[0])),
        int(block.src_port[0]), int(block.dst_port[0]), int(block.seq[0]), int(block.ack[0]),
        int(block.length[0]),
    )  # fmt: skip


@pytest.mark.parametrize("layers", LAYERS)
def test_headers_describe_what_remains(tmp_path: Path, layers: str) -> None:
    packet = bytes(LAYERS[layers] / tcp())
    result = trimmed(packet, segment_of(tmp_path, packet), 60, 90)
    assert result is not None
    (tmp_path / "one.pcap").write_bytes(pcap([result]))
    block = open_packets([tmp_path / "one.pcap"]).read(0)
    assert block is not None
    at = int(block.payload[0])
    assert bytes(block.data[at : at + int(block.captured[0])]) == PAYLOAD[60:90]
    assert (int(block.length[0]), int(block.seq[0]), int(block.ack[0])) == (30, 10, 77)
    # scapy computes lengths and checksums that are deleted.
    inner = Ether(result)
    inner = inner[VXLAN].payload if layers == "vxlan" else inner
    again = inner.copy()
    for header, names in ((IP, ("len", "chksum")), (IPv6, ("plen",)), (TCP, ("chksum",))):
        for name in names if header in again else ():
            delattr(again[header], name)
    assert bytes(again) == bytes(inner)


def test_a_packet_gets_other_sequence_numbers(tmp_path: Path) -> None:
    packet = bytes(LAYERS["ipv6"] / tcp())
    result = trimmed(packet, segment_of(tmp_path, packet), 0, 200, (5, 6))
    expected = Ether(packet)
    expected[TCP].seq, expected[TCP].ack = 5, 6
    del expected[TCP].chksum
    assert result == bytes(expected)


def test_a_fin_belongs_to_the_last_byte(tmp_path: Path) -> None:
    packet = bytes(LAYERS["ethernet"] / tcp("FPA"))
    segment = segment_of(tmp_path, packet)
    flags = [str(Ether(trimmed(packet, segment, *part))[TCP].flags) for part in ((0, 9), (9, 200))]
    assert flags == ["PA", "FPA"]


def test_a_truncated_packet_keeps_what_was_captured(tmp_path: Path) -> None:
    packet = bytes(LAYERS["ethernet"] / tcp())
    result = trimmed(packet[:-150], segment_of(tmp_path, packet), 30, 120)
    assert result is not None
    assert bytes(Ether(result)[TCP].payload) == PAYLOAD[30:50]
    assert Ether(result)[IP].len == 20 + 24 + 90


def test_headers_that_are_elsewhere(tmp_path: Path) -> None:
    """A reassembled segment is not in the packet of its last fragment."""
    packet = bytes(LAYERS["ethernet"] / tcp())
    segment = segment_of(tmp_path, packet)
    assert trimmed(packet[60:], segment, 1, 2) is None
    assert trimmed(packet[34:], segment, 1, 2) is None


@given(st.binary(max_size=120), st.integers(0, 150), st.integers(0, 150))
@settings(max_examples=200)
def test_arbitrary_bytes_raise_nothing(data: bytes, begin: int, end: int) -> None:
    segment = Segment((0, 0xFFFF0A000001), (0, 0xFFFF0A000002), 40000, 9092, 1, 7, 150)
    packet = bytes(V4 / TCP(sport=40000, dport=9092, seq=1, ack=7))[:32] + data
    trimmed(packet, segment, min(begin, end), max(begin, end))
