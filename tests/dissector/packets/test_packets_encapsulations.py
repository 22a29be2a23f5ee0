"""Encapsulations around a real exchange with a broker: opened, or reported with a count.

The headers are literal bytes, from the specifications that the layers name; tshark reads the same
packets where it has a dissector for the layer.
"""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path

import pytest

import dissector
from dissector.packets.layers import by_packet
from tests.captures.recorded import CAPTURES
from tests.dissector.packets.encapsulations import LAYERS, H, Wrap, checked, ip_of, outer, udp, wlan
from tests.dissector.packets.packet_bytes import (
    MAC,
    Reading,
    ethernet,
    frame,
    ipv4,
    ipv6,
    ng_enhanced,
    ng_interface,
    ng_section,
    pcap,
    pcap_header,
    pcap_record,
    read_bytes,
    tcp,
)
from tests.programs import printed
from tests.robustness.robustness_damage import recording
from tests.tshark import needs_tshark, tshark

RECORDING = CAPTURES / "kafka-python-mock.pcap"
TSHARK_LACKS = {
    "PKTAP, as macOS numbered it", "802.11, one frame aggregated", "mPacket",
    "radiotap, one frame aggregated, padded", "PPP of pppd", "NFLOG, big-endian", "netANALYZER",
    "CAPWAP with 802.11",  # it expects the byte order of Cisco
}  # fmt: skip
layers = pytest.mark.parametrize(("link", "wrap"), LAYERS.values(), ids=LAYERS)


def recorded() -> list[tuple[int, int, bytes]]:
    """Seconds, fraction and Ethernet frame of each packet of the recording.

    It is pcap of Linux's "any" device, whose header ends with an ethertype as that of Ethernet.
    """
    records = recording(RECORDING).packets
    return [(*struct.unpack_from("<II", record), MAC + record[30:]) for record in records]


def rewrapped(wrap: Wrap, link: int) -> bytes:
    """The recording in an encapsulation."""
    records = (
        pcap_record(wrap(frame), seconds=seconds, fraction=fraction)
        for seconds, fraction, frame in recorded()
    )
    return RECORDING.read_bytes()[:20] + struct.pack("<I", link) + b"".join(records)


EXCHANGE = [
    "api", "api_version", "correlation_id", "client_id", "status", "request_bytes",
    "response_bytes", "client_port", "broker_port", "client_ip", "broker_ip",
]  # fmt: skip


@cache
def exchanges(path: Path) -> list[dict[str, object]]:
    return (
        dissector.open_capture([path])
        .tables(["exchanges"])["exchanges"]
        .select(EXCHANGE)
        .to_pylist()
    )


@layers
def test_an_exchange_with_a_broker_is_read(tmp_path: Path, link: int, wrap: Wrap) -> None:
    plain = exchanges(RECORDING)
    assert len(plain) > 5
    path = tmp_path / "capture"
    path.write_bytes(rewrapped(wrap, link))
    capture = dissector.open_capture([path])
    tables = capture.tables(["exchanges", "problems"])
    assert tables["exchanges"].select(EXCHANGE).to_pylist() == plain
    assert "packets" not in tables["problems"]["stage"].to_pylist()


Tcp = tuple[int, int, int, int, int, bytes]
"""Number of a packet, ports, sequence number, length and payload of its innermost TCP."""


def theirs(path: Path) -> list[Tcp]:
    names = ("frame.number", "tcp.srcport", "tcp.dstport", "tcp.seq_raw", "tcp.len", "tcp.payload")
    options = ["-Y", "tcp", "-E", "occurrence=l"]
    options += ["-o", "tcp.desegment_tcp_streams:FALSE", "-o", "wlan.ignore_wep:No"]
    return [
        (int(number), int(src), int(dst), int(seq), int(size), bytes.fromhex(payload))
        for number, src, dst, seq, size, payload in tshark(path, names, *options)
    ]


def ours(reading: Reading) -> list[Tcp]:
    return [(r.number, r.src_port, r.dst_port, r.seq, r.length, r.payload) for r in reading.rows]


COMPARED = sorted(LAYERS.keys() - TSHARK_LACKS)
PACKETS = 5
"""Packets of each layer that is compared."""


def sent(wrap: Wrap) -> list[bytes]:
    return [wrap(frame(bytes([65 + n]) * n, seq=n)) for n in range(1, 1 + PACKETS)]


@pytest.fixture(scope="module")
def of_tshark(tmp_path_factory: pytest.TempPathFactory) -> list[Tcp]:
    """The packets of all layers in one capture: each layer has an interface."""
    links, wraps = zip(*(LAYERS[name] for name in COMPARED), strict=True)
    path = tmp_path_factory.mktemp("layers") / "capture.pcapng"
    blocks = [ng_section(), *(ng_interface(link=link) for link in links)]
    for number, wrap in enumerate(wraps):
        blocks += [ng_enhanced(packet, interface=number) for packet in sent(wrap)]
    path.write_bytes(b"".join(blocks))
    return theirs(path)


@needs_tshark
@pytest.mark.parametrize("name", COMPARED)
def test_equal_to_tshark(tmp_path: Path, name: str, of_tshark: list[Tcp]) -> None:
    link, wrap = LAYERS[name]
    reading = read_bytes(tmp_path, pcap(sent(wrap), link=link))
    assert len(reading.rows) == PACKETS
    before = PACKETS * COMPARED.index(name)
    expected = [row for row in of_tshark if before < row[0] <= before + PACKETS]
    assert ours(reading) == [(number - before, *fields) for number, *fields in expected]


@layers
def test_what_is_cut_is_read_as_far_as_it_goes(tmp_path: Path, link: int, wrap: Wrap) -> None:
    packet = wrap(frame(bytes(range(200))))
    begin = packet.index(bytes(range(200)))
    content = pcap_header(link=link)
    content += b"".join(pcap_record(packet[:n], length=len(packet)) for n in range(len(packet)))
    reading = read_bytes(tmp_path, content)
    whole = [row for row in reading.rows if row.number > begin]
    assert [row.payload for row in whole] == [
        bytes(range(200))[: row.number - 1 - begin] for row in whole
    ]
    assert len(whole) >= 200
    assert {row.length for row in reading.rows} == {200}
    assert {row.seq for row in reading.rows} == {1}


def pieces_of(packet: bytes, size: int) -> list[bytes]:
    """The IPv4 packet in an Ethernet frame, as fragments in frames."""
    body = packet[34:]
    return [
        ethernet(ipv4(body[at : at + size], fragment=at // 8 | 0x2000 * (at + size < len(body))))
        for at in range(0, len(body), size)
    ]


@layers
def test_fragments_inside_are_put_together(tmp_path: Path, link: int, wrap: Wrap) -> None:
    packets = [wrap(piece) for piece in reversed(pieces_of(frame(bytes(range(200))), 80))]
    reading = read_bytes(tmp_path, pcap(packets, link=link))
    assert reading.payloads == [bytes(range(200))]
    assert reading.problems == []


@pytest.mark.parametrize("name", ["Prism", "AVS", "Mobile IP"])
def test_what_scapy_reads(tmp_path: Path, name: str) -> None:
    pytest.importorskip("scapy", reason="scapy is not installed")
    inside = ethernet(checked(ip_of(frame(b"hello"))))
    prism = H("44000000 90000000") + b"wlan0".ljust(16, b"\0") + bytes(120)
    avs = H("80211001 00000040") + bytes(56)
    link, packet = {
        "Prism": (119, prism + wlan(inside)),
        "AVS": (163, avs + wlan(inside)),
        "Mobile IP": (1, udp(H("04040000") + inside[14:], dst=434)),
    }[name]
    reading = read_bytes(tmp_path, pcap([packet, packet], link=link))
    assert (reading.payloads, reading.problems) == ([b"hello"] * 2, [])


UNREAD: dict[str, bytes] = {
    "EtherType 0x88b5 (experimental)": H("12345678"),
    "IP protocol 115 (L2TPv3)": H("00000001"),
    "UDP port 6343 (sFlow)": bytes(100),
    "GRE protocol 0x1234": b"",
}


def unread(name: str, inside: bytes) -> bytes:
    header = UNREAD[name]
    if name.startswith("Ether"):
        return ethernet(header + inside, 0x88B5)
    if name.startswith("IP"):
        return outer(header + inside, 115)
    if name.startswith("UDP"):
        return udp(header + inside, dst=6343)
    return outer(H("0000 1234") + inside, 47)


@pytest.mark.parametrize("name", UNREAD)
@pytest.mark.parametrize("inside", [checked(ipv4(tcp(b"hello"))), ipv6(tcp(b"hello"))])
def test_tcp_in_a_layer_that_is_not_read_is_a_problem(
    tmp_path: Path, name: str, inside: bytes
) -> None:
    packets = [unread(name, inside)] * 30
    # These packets have the same layer, but no TCP.
    packets += [
        unread(name, bytes(len(inside))),
        unread(name, checked(ipv4(bytes(20), protocol=17))),
    ]
    reading = read_bytes(tmp_path, pcap([frame(b"before"), *packets, frame(b"after")]))
    assert reading.payloads == [b"before", b"after"]
    (problem,) = reading.problems
    assert (problem.kind, problem.packet) == ("unread_layer", 2)
    assert problem.detail.startswith(f"30 packets are TCP inside {name}, which is not supported")
    assert problem.bytes == 30 * len(packets[0])


def test_scapy_writes_no_messages(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its reader of EtherCAT logs an error for each unknown type."""
    pytest.importorskip("scapy", reason="scapy is not installed")
    packet = ethernet(H("01100f") + checked(ipv4(tcp(b"hello"))), 0x88A4)
    assert read_bytes(tmp_path, pcap([packet])).kinds == ["unread_layer"]
    assert capfd.readouterr().err == ""


def test_each_layer_has_its_row(tmp_path: Path) -> None:
    inside = checked(ipv4(tcp(b"hello")))
    packets = [unread(name, inside) for name in UNREAD for _ in range(2)]
    packets += [udp(inside, dst=port) for port in range(20000, 20040)]
    reading = read_bytes(tmp_path, pcap(packets))
    details = [problem.detail for problem in reading.problems]
    assert set(reading.kinds) == {"unread_layer"}
    for name in UNREAD:
        assert sum(f"2 packets are TCP inside {name}," in each for each in details) == 1
    assert len(details) < 30
    assert sum(int(each.split()[0]) for each in details) == len(packets)


def test_icmp_that_quotes_tcp_is_not_a_problem(tmp_path: Path) -> None:
    quoted = H("03010000 00000000") + checked(ipv4(tcp(b"hello")))
    icmp_v6 = H("01000000 00000000") + ipv6(tcp(b"hello"))
    packets = [outer(quoted, 1), ethernet(ipv6(icmp_v6, protocol=58), 0x86DD)]
    assert read_bytes(tmp_path, pcap(packets)).problems == []


def test_a_wrong_checksum_is_not_an_ip_header(tmp_path: Path) -> None:
    inside = bytearray(checked(ipv4(tcp(b"hello"))))
    inside[8] ^= 1  # the time to live
    assert read_bytes(tmp_path, pcap([unread("GRE protocol 0x1234", bytes(inside))])).problems == []


@pytest.mark.parametrize(
    ("link", "name"), [(147, "147 (for private use: USER0)"), (189, "189 (USB)"), (65535, "65535")]
)
@pytest.mark.parametrize("count", [1, 30])
def test_a_link_type_that_is_not_read_is_named(
    tmp_path: Path, link: int, name: str, count: int
) -> None:
    reading = read_bytes(tmp_path, pcap([bytes(60)] * count, link=link))
    subject = "1 packet is" if count == 1 else "30 packets are"
    assert [(p.kind, p.detail) for p in reading.problems] == [
        ("unknown_link", f"{subject} of link type {name}, which is not supported")
    ]


def test_other_traffic_is_not_read_packet_by_packet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither dpkt nor scapy sees packets of ARP, UDP, ICMP or encrypted 802.11."""
    calls: list[bytes] = []
    monkeypatch.setattr(by_packet, "_wlan_size", lambda frame: calls.append(frame))
    monkeypatch.setattr(by_packet, "_ip_position", lambda packet, link: calls.append(packet))
    packets = [ethernet(bytes(46), 0x0806), udp(bytes(60), dst=53), outer(bytes(60), 1)] * 50
    assert read_bytes(tmp_path, pcap(packets)).problems == []
    frames = [wlan(frame(b"x"), "0841"), wlan(frame(b"x"), "8000"), H("d4000000 020000000001")] * 50
    assert read_bytes(tmp_path, pcap(frames, link=105)).problems == []
    assert calls == []


def test_without_scapy_the_row_has_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_packet, "has_scapy", lambda: False)
    packet = unread("EtherType 0x88b5 (experimental)", checked(ipv4(tcp(b"hello"))))
    (problem,) = read_bytes(tmp_path, pcap([packet])).problems
    assert "pip install 'kafka-dissector[live]'" in problem.detail


def test_tcp_of_an_interface_that_the_file_does_not_describe(tmp_path: Path) -> None:
    packet = ethernet(checked(ipv4(tcp(b"hello"))))
    content = ng_section() + ng_interface() + ng_enhanced(packet, interface=3)
    details = {p.kind: p.detail for p in read_bytes(tmp_path, content).problems}
    assert details.keys() == {"unknown_interface", "unread_layer"}
    assert "link type -1 (not described in the file)" in details["unread_layer"]


@pytest.mark.slow
def test_a_capture_without_rare_layers_does_not_import_scapy() -> None:
    """The import takes longer than reading most captures."""
    script = (
        "import sys; from dissector import open_capture; "
        "open_capture('captures/kafka-4-quotas.pcap.zst').tables('problems'); "
        "print('scapy' in sys.modules)"
    )
    assert printed(script) == "False\n"
