"""Builds captures byte by byte, and reads blocks back as rows, for the tests of this folder."""

from __future__ import annotations

import ipaddress
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck

from dissector.packets import open_packets
from dissector.packets.block import PAD, PacketBlock
from dissector.problems import Problem

ETHERNET = 1
ANY_FOLDER = [HealthCheck.function_scoped_fixture]
"""For properties that write each example to the same folder."""
MAC = bytes.fromhex("020000000001 020000000002")


def tcp(payload: bytes = b"", *, seq: int = 1, src: int = 40000, dst: int = 9092, options=b""):
    """A TCP segment (RFC 9293): PSH and ACK, acknowledging 7, window 512."""
    offset = (20 + len(options)) // 4 << 4
    header = struct.pack(">HHIIBBHHH", src, dst, seq, 7, offset, 0x18, 512, 0, 0)
    return header + options + payload


def ipv4(payload: bytes, *, length=None, fragment=0, protocol=6, options=b"", version=4) -> bytes:
    """An IPv4 packet from 10.0.0.1 to 10.0.0.2."""
    size = 20 + len(options)
    total = size + len(payload) if length is None else length
    first = version << 4 | size // 4
    head = struct.pack(">BBHHHBBH", first, 0, total, 99, fragment, 64, protocol, 0)
    return head + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + options + payload


def ipv6(payload: bytes, *, protocol=6, length=None) -> bytes:
    """An IPv6 packet from 2001:db8::1 to 2001:db8::2."""
    size = len(payload) if length is None else length
    head = struct.pack(">IHBB", 6 << 28, size, protocol, 64)
    addresses = (ipaddress.IPv6Address(f"2001:db8::{host}").packed for host in (1, 2))
    return head + b"".join(addresses) + payload


def ethernet(payload: bytes, *types: int) -> bytes:
    """A frame; before the last of `types` each is a VLAN tag of 4 bytes."""
    tags = b"".join(struct.pack(">HH", tag, 5) for tag in types[:-1])
    return MAC + tags + struct.pack(">H", types[-1] if types else 0x0800) + payload


def frame(payload: bytes = b"", **fields) -> bytes:
    """TCP in IPv4 in Ethernet."""
    return ethernet(ipv4(tcp(payload, **fields)))


def pcap_header(*, order="<", magic=0xA1B2C3D4, link=ETHERNET) -> bytes:
    return struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 262144, link)


def pcap_record(packet: bytes, *, seconds=1_700_000_000, fraction=0, length=None, order="<"):
    wire = len(packet) if length is None else length
    return struct.pack(order + "IIII", seconds, fraction, len(packet), wire) + packet


def pcap(packets: Sequence[bytes], *, link=ETHERNET, start=0, step=1) -> bytes:
    """A µs file; packet i was captured `start + i * step` µs after 1,700,000,000 s."""
    records = (
        pcap_record(
            packet,
            seconds=1_700_000_000 + (start + i * step) // 1_000_000,
            fraction=(start + i * step) % 1_000_000,
        )
        for i, packet in enumerate(packets)
    )
    return pcap_header(link=link) + b"".join(records)


def ng_block(kind: int, body: bytes, *, order="<") -> bytes:
    body += bytes(-len(body) % 4)
    size = len(body) + 12
    return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", size)


def ng_section(*, order="<") -> bytes:
    return ng_block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order=order)


def ng_option(code: int, value: bytes, *, order="<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def ng_interface(*, link=ETHERNET, snaplen=0, options=b"", order="<") -> bytes:
    return ng_block(1, struct.pack(order + "HHI", link, 0, snaplen) + options, order=order)


def ng_enhanced(packet: bytes, ticks=0, *, interface=0, length=None, order="<") -> bytes:
    wire = len(packet) if length is None else length
    high, low = ticks >> 32, ticks & 0xFFFFFFFF
    head = struct.pack(order + "IIIII", interface, high, low, len(packet), wire)
    return ng_block(6, head + packet, order=order)


@dataclass(frozen=True)
class Row:
    """One packet of a block, with its payload."""

    capture: int
    number: int
    time: int
    src: str
    dst: str
    src_port: int
    dst_port: int
    seq: int
    ack: int
    flags: int
    window: int
    payload: bytes
    length: int


@dataclass(frozen=True)
class Reading:
    """All that a source gave."""

    rows: list[Row]
    problems: list[Problem]
    packets_seen: int
    bytes_read: int
    blocks: int
    names: list[str]
    secrets: list[bytes]

    @property
    def payloads(self) -> list[bytes]:
        return [row.payload for row in self.rows]

    @property
    def numbers(self) -> list[int]:
        return [row.number for row in self.rows]

    @property
    def kinds(self) -> list[str]:
        return [problem.kind for problem in self.problems]

    @property
    def damage(self) -> list[tuple[str, int | None, int | None]]:
        """Kind, offset and bytes of each problem."""
        return [(each.kind, each.offset, each.bytes) for each in self.problems]


def address(high: int, low: int) -> str:
    whole = ipaddress.IPv6Address(int(high) << 64 | int(low))
    return str(whole.ipv4_mapped or whole)


def rows_of(block: PacketBlock) -> list[Row]:
    """The rows of a block, after a check of the contract of its arrays."""
    assert block.data.dtype == "u1"
    assert not block.data[-PAD:].any()
    end = block.payload + block.captured
    assert (block.payload >= block.reserve).all()
    assert (end <= len(block.data) - PAD).all()
    assert ((block.captured >= 0) & (block.captured <= block.length)).all()
    return [
        Row(
            int(block.capture[i]),
            int(block.number[i]),
            int(block.time[i]),
            address(block.src_high[i], block.src_low[i]),
            address(block.dst_high[i], block.dst_low[i]),
            int(block.src_port[i]),
            int(block.dst_port[i]),
            int(block.seq[i]),
            int(block.ack[i]),
            int(block.flags[i]),
            int(block.window[i]),
            block.data[block.payload[i] : end[i]].tobytes(),
            int(block.length[i]),
        )
        for i in range(len(block))
    ]


def read(*paths: str | os.PathLike[str], block_bytes: int = 1 << 20, reserve: int = 0) -> Reading:
    source = open_packets(paths, block_bytes=block_bytes)
    rows: list[Row] = []
    problems: list[Problem] = []
    seen = taken = blocks = 0
    while (block := source.read(reserve)) is not None:
        assert block.reserve == reserve
        rows += rows_of(block)
        problems += block.problems
        seen += block.packets_seen
        taken += block.bytes_read
        blocks += 1
    assert source.read(reserve) is None
    source.close()
    return Reading(rows, problems, seen, taken, blocks, source.names, source.secrets)


def read_bytes(folder: Path, content: bytes, **options: int) -> Reading:
    """Read a capture that consists of these bytes."""
    path = folder / "capture"
    path.write_bytes(content)
    return read(path, **options)


def check_bytes_behind(
    folder: Path, packet: bytes, altered: Sequence[tuple[int, int]], size: int, link: int = ETHERNET
) -> None:
    """The bytes behind a damaged packet of this size in the file do not change its row."""
    damaged = bytearray(packet[:size])
    for at, value in altered:
        if at < len(damaged):
            damaged[at] = value
    readings = []
    for filler in (b"\0", b"\xff"):
        content = pcap_header(link=link) + pcap_record(bytes(damaged), length=len(packet))
        content += pcap_record(filler * 300)
        readings.append([row for row in read_bytes(folder, content).rows if row.number == 1])
    assert readings[0] == readings[1]
    for row in readings[0]:
        assert row.payload in bytes(damaged)


def check_altered_byte(
    folder: Path, content: bytes, packets: Sequence[bytes], ends: np.ndarray, at: int, value: int
) -> None:
    """A wrong byte of a file costs at most the packet in which it is. `ends`: of the packets."""
    damaged = bytearray(content)
    damaged[at] = value
    reading = read_bytes(folder, bytes(damaged))
    hit = int((at >= ends).sum())
    rows = {(row.time, row.seq, row.payload) for row in reading.rows}
    assert {
        (1_700_000_000 * 10**9 + number * 1000, number, packet[54:])
        for number, packet in enumerate(packets)
        if number != hit
    } <= rows
