"""A capture without TCP: its packets are counted by their layers, whatever the blocks and runs."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

import pytest

from dissector import open_capture, runs
from dissector.packets import open_packets
from dissector.pipeline import Pipeline
from dissector.runs import planning
from tests.dissector.packets.packet_bytes import ethernet, frame, ipv4, ipv6, pcap


def udp(src: int, dst: int) -> bytes:
    return ethernet(ipv4(struct.pack(">HHHH", src, dst, 24, 0) + bytes(16), protocol=17))


OTHERS = [
    *[ethernet(ipv4(bytes(60), protocol=50))] * 5,
    *[udp(51820, 40000), udp(40000, 51820)] * 2,
    *[ethernet(bytes(28), 0x0806)] * 3,
    *[ethernet(ipv6(bytes(24), protocol=58), 0x86DD), udp(9, 99)],
    ethernet(b"\x2c\0\0\0\0\1" + bytes(60), 0x88E5),
    ethernet(ipv4(bytes(24), fragment=0x2000, protocol=17)),
]
LAYERS = {
    "IP protocol 50 (ESP)": 5,
    "UDP port 51820 (WireGuard)": 4,
    "EtherType 0x0806 (ARP)": 3,
    "IP protocol 58 (ICMPv6)": 1,
    "other UDP ports": 1,
    "an unknown form of MACsec": 1,
    "fragments of IP packets": 1,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "others.pcap"
    path.write_bytes(pcap(OTHERS * 20))
    return path


@pytest.mark.parametrize("block_bytes", [40, 700, 1 << 20])
def test_packets_are_counted_by_layer(path: Path, block_bytes: int) -> None:
    pipeline = Pipeline(open_packets([path], block_bytes=block_bytes), [])
    assert not pipeline.tables(["connections"])["connections"].num_rows
    assert pipeline.without_tcp == {layer: 20 * count for layer, count in LAYERS.items()}
    assert pipeline.without_tcp.total() == pipeline.packets


def test_runs_have_the_same_counts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LEAST_BYTES", 0)
    monkeypatch.setattr(planning, "LEAST_RUN", 3000)
    monkeypatch.setattr(planning, "MOST_RUN", 3000)
    with open_capture(path, jobs=2) as capture:
        capture.tables(["connections"])
        assert capture.without_tcp == {layer: 20 * count for layer, count in LAYERS.items()}


def test_packets_beside_tcp_are_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "capture.pcap"
    path.write_bytes(pcap([*OTHERS, frame(b"hello")]))
    pipeline = Pipeline(open_packets([path]), [])
    pipeline.tables(["connections"])
    assert pipeline.without_tcp == Counter()
