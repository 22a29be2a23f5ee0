"""The packets of recordings, which tests select, change and write to other files.

The reader knows the formats of these recordings only: pcap, Ethernet, IPv4 or IPv6 without options,
TCP. `tests.rewriting` writes the TCP layer anew; here, frames keep their bytes.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import zstandard

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
RECORDINGS = sorted(CAPTURES.glob("*.pcap*"))
SAME_KINDS = tuple(
    f"kafka-4-{name}.pcap.zst"
    for name in (
        "cut", "cut-midway", "disk", "disk-slow", "misused", "net-delay", "net-disorder",
        "net-loss", "net-vxlan", "paused", "replicated", "slow-reader", "steady",
        "steady-quota", "tuned", "unbalanced",
    )
)  # fmt: skip
"""Larger recordings, without an API, version, error or filled column of an API that no smaller one
has."""
SMALLER = [path for path in RECORDINGS if path.name not in SAME_KINDS]
ETHERNET, IPV6 = 14, 0x86DD
FIN, SYN = 0x01, 0x02
BEGINNING = 1_700_000_000 * 10**9
UNITS = {0xA1B23C4D: 1, 0xA1B2C3D4: 1000}
"""ns per unit of time of a pcap, by its magic number."""


@dataclass(frozen=True)
class Packet:
    """One packet of a recording; `time` in ns."""

    time: int
    frame: bytes

    @property
    def ip(self) -> bytes:
        """IP header."""
        end = 54 if self.frame[12:14] == b"\x86\xdd" else 34
        return self.frame[ETHERNET:end]

    @property
    def tcp(self) -> bytes:
        """TCP header, with options."""
        at = ETHERNET + len(self.ip)
        return self.frame[at : at + (self.frame[at + 12] >> 4) * 4]

    @property
    def payload(self) -> bytes:
        size = len(self.ip) + len(self.tcp)
        if len(self.ip) == 40:
            whole = 40 + int.from_bytes(self.ip[4:6], "big")
        else:
            whole = int.from_bytes(self.ip[2:4], "big")
        return self.frame[ETHERNET + size : ETHERNET + whole]

    @property
    def stream(self) -> bytes:
        """Addresses and ports of sender and receiver."""
        return self.ip[8:] + self.tcp[:4] if len(self.ip) == 40 else self.ip[12:] + self.tcp[:4]

    @property
    def is_from_client(self) -> bool:
        """Clients have the higher port in these recordings."""
        source, target = struct.unpack(">HH", self.tcp[:4])
        return bool(source > target)

    @property
    def seq(self) -> int:
        return int.from_bytes(self.tcp[4:8], "big")

    @property
    def flags(self) -> int:
        return self.tcp[13]

    def segment(self, seq: int, flags: int, payload: bytes) -> Packet:
        """The same packet with another sequence number, other flags and another payload."""
        ip, tcp = bytearray(self.ip), bytearray(self.tcp)
        tcp[4:8] = struct.pack(">I", seq % 2**32)
        tcp[13] = flags
        size = len(tcp) + len(payload)
        if len(ip) == 40:
            ip[4:6] = struct.pack(">H", size)
        else:
            ip[2:4] = struct.pack(">H", len(ip) + size)
        return replace(self, frame=self.frame[:ETHERNET] + bytes(ip + tcp) + payload)


def unpacked(path: Path) -> bytes:
    """The bytes of a file, decompressed according to its suffix."""
    data = path.read_bytes()
    if path.suffix == ".zst":
        return zstandard.ZstdDecompressor().stream_reader(data).read()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def read(name: str) -> list[Packet]:
    """The TCP packets of a committed capture."""
    content = unpacked(CAPTURES / name)
    magic, *_, link = struct.unpack("<IHHiIII", content[:24])
    assert link == 1
    packets, at = [], 24
    while at < len(content):
        seconds, fraction, size, length = struct.unpack_from("<IIII", content, at)
        assert size == length
        frame = content[at + 16 : at + 16 + size]
        if frame[20 if frame[12:14] == b"\x86\xdd" else 23] == 6:
            packets.append(Packet(seconds * 10**9 + fraction * UNITS[magic], frame))
        at += 16 + size
    return packets


def write(path: Path, packets: Iterable[Packet], snaplen: int = 262144) -> Path:
    """Write a pcap in ns of the first `snaplen` bytes of these packets, in this order."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snaplen, 1))
        for each in packets:
            kept = each.frame[:snaplen]
            file.write(struct.pack("<IIII", *divmod(each.time, 10**9), len(kept), len(each.frame)))
            file.write(kept)
    return path


def moved(packet: Packet, turn: int, later: int) -> Packet:
    """The packet in another connection, with another port of the client, `later` ns later."""
    frame = bytearray(packet.frame)
    at = ETHERNET + len(packet.ip)
    ports = [int.from_bytes(frame[at + end : at + end + 2], "big") for end in (0, 2)]
    client = at if ports[0] > ports[1] else at + 2
    frame[client : client + 2] = struct.pack(">H", 10_000 + (max(ports) + 97 * turn) % 50_000)
    return Packet(packet.time + later, bytes(frame))
