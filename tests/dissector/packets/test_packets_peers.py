"""The same captures read by tshark and dpkt, written by dpkt, editcap and mergecap."""

import ipaddress
import random
import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import dpkt
import pytest

from tests.dissector.packets.packet_bytes import Reading, read

scapy = pytest.importorskip("scapy.all", reason="scapy is not installed: no captures to compare")


def tool(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed")


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return done.stdout


def random_packets(count: int) -> list:
    """TCP over IPv4 and IPv6 in all its shapes, and others between them."""
    rng = random.Random(7)

    def segment() -> scapy.Packet:
        options = rng.choice([[], [("MSS", 1460)], [("Timestamp", (1, 2)), ("NOP", None)]])
        flags = rng.choice(["S", "SA", "A", "PA", "FA", "R"])
        size = 0 if flags == "R" else rng.choice([0, 0, 1, 5, 100, 1400])  # tshark hides a reset's
        return scapy.TCP(
            sport=rng.randrange(1 << 16),
            dport=rng.choice([9092, 9093, 19092]),
            seq=rng.randrange(1 << 32),
            ack=rng.randrange(1 << 32),
            flags=flags,
            window=rng.randrange(1 << 16),
            options=options,
        ) / rng.randbytes(size)

    def v4() -> scapy.Packet:
        options = rng.choice(
            [[], [scapy.IPOption(b"\x01" * 4)], [scapy.IPOption(b"\x83\x03\x04\x00")]]
        )
        host = f"10.1.{rng.randrange(256)}.{rng.randrange(256)}"
        return scapy.IP(src=host, dst="10.0.0.2", options=options) / segment()

    def v6() -> scapy.Packet:
        packet = scapy.IPv6(src=f"2001:db8::{rng.randrange(1, 1 << 16):x}", dst="fe80::2")
        extensions = [
            scapy.IPv6ExtHdrHopByHop(options=[scapy.PadN(optdata=bytes(4))]),
            scapy.IPv6ExtHdrDestOpt(options=[scapy.PadN(optdata=bytes(12))]),
            scapy.IPv6ExtHdrRouting(addresses=["2001:db8::9"], segleft=0),
        ]
        for extension in rng.sample(extensions, rng.choice([0, 0, 1, 2, 3])):
            packet /= extension
        return packet / segment()

    def other() -> scapy.Packet:
        return rng.choice(
            [
                scapy.IP() / scapy.UDP(sport=53) / b"datagram",
                scapy.IP() / scapy.ICMP(),
                scapy.IPv6() / scapy.UDP() / b"datagram",
            ]
        )

    return [rng.choice([v4, v4, v4, v6, v6, other])() for _ in range(count)]


def on_ethernet(packets: list) -> list:
    """With none, one, two or three VLAN tags, padding, and ARP between them."""
    rng = random.Random(8)
    frames = []
    for packet in packets:
        link = scapy.Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        tags = rng.choice(
            [[], [], [], [scapy.Dot1Q], [scapy.Dot1AD, scapy.Dot1Q], [scapy.Dot1Q] * 3]
        )
        for tag in tags:
            link /= tag(vlan=rng.randrange(4096))
        frame = link / packet
        if len(frame) < 60:
            frame = frame / scapy.Padding(bytes(60 - len(frame)))
        frames.append(frame)
        if rng.random() < 0.1:
            frames.append(scapy.Ether() / scapy.ARP())
    return frames


LINKS: dict[str, Callable[[list], list]] = {
    "ethernet": on_ethernet,
    "cooked": lambda packets: [
        scapy.CookedLinux(proto=0x86DD if scapy.IPv6 in packet else 0x800) / packet
        for packet in packets
    ],
    "raw": lambda packets: packets,
    "loopback": lambda packets: [
        scapy.Loopback(type=30 if scapy.IPv6 in packet else 2) / packet for packet in packets
    ],
}
CAPTURE_LINKS = {"ethernet": 1, "cooked": 113, "raw": 101, "loopback": 0}


@pytest.fixture(scope="module", params=list(LINKS))
def capture(request, tmp_path_factory) -> Path:
    """A pcap file of one link type, of 400 packets that take a second."""
    path = tmp_path_factory.mktemp("peers") / f"{request.param}.pcap"
    write(path, request.param, random_packets(400), 1_700_000_000)
    return path


def write(path: Path, link: str, packets: list, start: float) -> None:
    """By dpkt's writer, a packet every 2.5 ms."""
    with path.open("wb") as file:
        writer = dpkt.pcap.Writer(file, linktype=CAPTURE_LINKS[link])
        for i, packet in enumerate(LINKS[link](packets)):
            writer.writepkt(scapy.raw(packet), ts=start + i * 0.0025)


def ours(reading: Reading) -> list[tuple]:
    return [
        (
            *(r.number, r.time, r.src, r.dst, r.src_port, r.dst_port),
            *(r.seq, r.ack, r.flags, r.window, r.length, r.payload),
        )
        for r in reading.rows
    ]


def tshark(path: Path) -> list[tuple]:
    """tshark's reading of all TCP packets that it finds whole headers of."""
    fields = "frame.number frame.time_epoch ip.src ipv6.src ip.dst ipv6.dst tcp.srcport tcp.dstport"
    fields += " tcp.seq_raw tcp.ack_raw tcp.flags tcp.window_size_value tcp.len tcp.payload"
    options = [word for field in fields.split() for word in ("-e", field)]
    off = [
        "ip.defragment",
        "ipv6.defragment",
        "tcp.desegment_tcp_streams",
        "tcp.try_heuristic_first",
    ]
    options += [word for name in off for word in ("-o", f"{name}:FALSE")]
    text = run("tshark", "-n", "-r", path, "-Y", "tcp.flags", "-T", "fields", *options)
    rows = []
    for line in text.splitlines():
        number, time, src4, src6, dst4, dst6, *numbers, payload = line.split("\t")
        src, dst = (str(ipaddress.ip_address(a or b)) for a, b in ((src4, src6), (dst4, dst6)))
        ns = int(Fraction(time) * 10**9)
        values = [int(value, 0) for value in numbers]
        values[4] &= 0xFF  # tshark counts reserved bits among the flags
        rows.append((int(number), ns, src, dst, *values, bytes.fromhex(payload)))
    return rows


@tool("tshark")
def test_equal_to_tshark(capture):
    reading = read(capture)
    assert len(reading.rows) > 200
    assert reading.problems == []
    assert ours(reading) == tshark(capture)


@tool("tshark")
@tool("editcap")
@pytest.mark.parametrize("form", ["pcapng", "nsecpcap", "pcap", "modpcap"])
def test_equal_to_tshark_in_other_formats(capture, tmp_path, form):
    path = tmp_path / "capture"
    run("editcap", "-F", form, capture, path)
    assert ours(read(path)) == tshark(path)


@tool("tshark")
@tool("editcap")
@pytest.mark.parametrize("snaplen", [70, 96, 200])
def test_equal_to_tshark_when_packets_are_cut(capture, tmp_path, snaplen):
    path = tmp_path / "capture"
    run("editcap", "-F", "pcapng", "-s", str(snaplen), capture, path)
    rows = ours(read(path))
    assert len(rows) > 150
    # tshark shows also what it could read of headers that are cut.
    numbers = {row[0] for row in rows}
    assert rows == [row for row in tshark(path) if row[0] in numbers]


@tool("editcap")
def test_a_capture_split_by_editcap_is_the_same_capture(capture, tmp_path):
    run("editcap", "-F", "pcapng", "-c", "37", capture, tmp_path / "part.pcapng")
    reading = read(tmp_path)
    assert len(reading.names) > 10
    assert [row[1:] for row in ours(reading)] == [row[1:] for row in ours(read(capture))]


@tool("tshark")
@tool("mergecap")
def test_interfaces_of_different_links_merged_by_mergecap(tmp_path):
    paths = []
    for shift, name in enumerate(LINKS):
        paths.append(tmp_path / name)
        write(paths[-1], name, random_packets(60), 9 + shift / 10_000)
    merged = tmp_path / "merged.pcapng"
    run("mergecap", "-F", "pcapng", "-w", merged, *paths)
    reading = read(merged)
    assert len(reading.rows) > 120
    assert ours(reading) == tshark(merged)
    # Merging by reading the files together is the same as merging them before.
    assert [row[1:] for row in ours(read(*paths, block_bytes=3000))] == [
        row[1:] for row in ours(reading)
    ]


@tool("editcap")
def test_secrets_injected_by_editcap(capture, tmp_path):
    keys = tmp_path / "keys.log"
    keys.write_bytes(b"CLIENT_RANDOM " + b"ab" * 32 + b" " + b"cd" * 48 + b"\n")
    run("editcap", "--inject-secrets", f"tls,{keys}", capture, tmp_path / "capture.pcapng")
    reading = read(tmp_path / "capture.pcapng")
    assert reading.secrets == [keys.read_bytes()]
    assert len(reading.rows) > 200


def test_equal_to_dpkt(capture):
    """dpkt's reader and its parser of IPv4; what it makes of IPv6 extensions is not compared."""
    parsers = {
        "ethernet": lambda raw: dpkt.ethernet.Ethernet(raw).data,
        "cooked": lambda raw: dpkt.sll.SLL(raw).data,
        "raw": lambda raw: dpkt.ip.IP(raw) if raw[0] >> 4 == 4 else None,
        "loopback": lambda raw: dpkt.loopback.Loopback(raw).data,
    }
    parse = parsers[capture.stem]
    expected = []
    with capture.open("rb") as file:
        for number, (_, raw) in enumerate(dpkt.pcap.Reader(file), 1):
            ip = parse(raw)
            if isinstance(ip, dpkt.ip.IP) and isinstance(ip.data, dpkt.tcp.TCP):
                tcp = ip.data
                src, dst = (str(ipaddress.IPv4Address(a)) for a in (ip.src, ip.dst))
                fields = (tcp.sport, tcp.dport, tcp.seq, tcp.ack, tcp.flags & 0xFF, tcp.win)
                expected.append((number, src, dst, *fields, len(tcp.data), tcp.data))
    rows = [(row[0], *row[2:]) for row in ours(read(capture)) if "." in row[2]]
    assert len(rows) > 100
    assert rows == expected


RECORDINGS = Path(__file__).parents[3] / "captures"


@tool("tshark")
@pytest.mark.parametrize(
    "name", ["librdkafka-mock-produce.pcap", "librdkafka-mock-transactions.pcapng"]
)
def test_recordings_equal_to_tshark(name):
    reading = read(RECORDINGS / name)
    assert len(reading.rows) > 20
    assert ours(reading) == tshark(RECORDINGS / name)
