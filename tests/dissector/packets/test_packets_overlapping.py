"""Files that overlap in time and hold fragments of IP packets, as one file."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

import dissector
from tests.captures.recorded import CAPTURES
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
    read,
    tcp,
)
from tests.robustness.robustness_damage import recording

RECORDING = CAPTURES / "kafka-python-mock.pcap"


def recorded() -> list[tuple[int, bytes]]:
    """ns and IPv4 packet of each packet of the recording, which is of Linux's "any" device."""
    packets = []
    for record in recording(RECORDING).packets:
        seconds, fraction = struct.unpack_from("<II", record)
        packets.append((seconds * 10**9 + fraction, record[32:]))
    return packets


def in_ipv6(packet: bytes) -> bytes:
    """The same TCP segment in IPv6, between addresses that end with those of IPv4."""
    header, segment = packet[:20], packet[20 : int.from_bytes(packet[2:4], "big")]
    head = struct.pack(">IHBB", 6 << 28, len(segment), 6, 64)
    addresses = (bytes.fromhex("20010db8") + bytes(8) + header[at : at + 4] for at in (12, 16))
    return head + b"".join(addresses) + segment


def in_fragments(packet: bytes, size: int, identification: int) -> list[bytes]:
    """Frames with the fragments of an IPv4 or IPv6 packet, of `size` bytes each."""
    is_v4 = packet[0] >> 4 == 4
    header, body = packet[: 20 if is_v4 else 40], packet[20 if is_v4 else 40 :]
    frames = []
    for at in range(0, len(body), size):
        piece, is_followed = body[at : at + size], at + size < len(body)
        if is_v4:
            total, flags = 20 + len(piece), at // 8 | 0x2000 * is_followed
            head = header[:2] + struct.pack(">HHH", total, identification, flags) + header[8:]
            frames.append(MAC + b"\x08\x00" + head + piece)
        else:
            extension = struct.pack(">BBHI", 6, 0, at | is_followed, identification)
            head = header[:4] + struct.pack(">HB", 8 + len(piece), 44) + header[7:]
            frames.append(MAC + b"\x86\xdd" + head + extension + piece)
    return frames


def fragmented(rng: random.Random, version: int) -> list[tuple[int, bytes]]:
    """The recording, a third of its packets in fragments, which come out of order."""
    packets: list[tuple[int, bytes]] = []
    for identification, (time, packet) in enumerate(recorded()):
        packet = packet[: int.from_bytes(packet[2:4], "big")]
        packet = packet if version == 4 else in_ipv6(packet)
        kind = b"\x08\x00" if version == 4 else b"\x86\xdd"
        if rng.random() < 0.4:
            pieces = in_fragments(packet, rng.choice([8, 24, 64]), identification)
            rng.shuffle(pieces)
            packets += [(time + rng.randrange(200_000), piece) for piece in pieces]
        else:
            packets.append((time, MAC + kind + packet))
    # Times that are all different: then there is one order only.
    packets.sort(key=lambda each: each[0])
    return [(time + index, packet) for index, (time, packet) in enumerate(packets)]


def write(path: Path, packets: list[tuple[int, bytes]]) -> None:
    records = (
        pcap_record(packet, seconds=time // 10**9, fraction=time % 10**9)
        for time, packet in packets
    )
    path.write_bytes(pcap_header(magic=0xA1B23C4D) + b"".join(records))


def rows(reading: Reading) -> list[tuple[object, ...]]:
    return [
        (r.time, r.src, r.dst, r.src_port, r.dst_port, r.seq, r.ack, r.flags, r.payload, r.length)
        for r in reading.rows
    ]


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("files", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_split_at_random(tmp_path: Path, version: int, files: int, seed: int) -> None:
    rng = random.Random(seed * 100 + version * 10 + files)
    packets = fragmented(rng, version)
    write(tmp_path / "whole", packets)
    whole = read(tmp_path / "whole")
    assert whole.problems == []
    assert len(whole.rows) == len(recorded())
    paths = [tmp_path / f"part{each}" for each in range(files)]
    owners = [rng.randrange(files) for _ in packets]
    for each, path in enumerate(paths):
        write(path, [p for owner, p in zip(owners, packets, strict=True) if owner == each])
    for block_bytes in (1 << 20, 3000):
        parts = read(*paths, block_bytes=block_bytes, reserve=70)
        assert rows(parts) == rows(whole)
        assert parts.problems == []
        assert parts.packets_seen == len(packets)
        assert parts.bytes_read == sum(path.stat().st_size for path in paths)


def test_the_exchanges_are_those_of_one_file(tmp_path: Path) -> None:
    rng = random.Random(1)
    packets = fragmented(rng, 4)
    names = ["api", "correlation_id", "status", "request_time", "response_time", "response_bytes"]
    owners = [rng.randrange(2) for _ in packets]
    for each in range(2):
        part = [p for owner, p in zip(owners, packets, strict=True) if owner == each]
        write(tmp_path / f"part{each}", part)
    write(tmp_path / "whole", packets)
    whole, parts = (
        dissector.open_capture(paths).tables()["exchanges"].select(names).to_pylist()
        for paths in ([tmp_path / "whole"], [tmp_path / "part0", tmp_path / "part1"])
    )
    assert len(whole) > 20
    assert parts == whole


def test_two_captures_of_the_same_fragments_give_both_packets(tmp_path: Path) -> None:
    """As two captures of the same packets without fragments do; nothing is missing of either."""
    body = bytes(range(256))
    pieces = in_fragments(ipv4(tcp(body)), 80, 7)
    for name, late in (("a", 0), ("b", 1)):
        (tmp_path / name).write_bytes(pcap([*pieces, frame(b"after")], start=late, step=2))
    reading = read(tmp_path / "a", tmp_path / "b")
    assert reading.payloads == [body, body, b"after", b"after"]
    assert [row.capture for row in reading.rows] == [0, 1, 0, 1]
    assert reading.problems == []


def test_fragments_of_a_datagram_that_is_whole_in_one_file_only(tmp_path: Path) -> None:
    pieces = in_fragments(ipv4(tcp(bytes(range(256)))), 80, 7)
    (tmp_path / "a").write_bytes(pcap(pieces, step=2))
    (tmp_path / "b").write_bytes(pcap(pieces[1:2], start=1))
    reading = read(tmp_path / "a", tmp_path / "b")
    assert reading.payloads == [bytes(range(256))]
    assert reading.problems == []


def test_problems_name_the_file_of_their_packets(tmp_path: Path) -> None:
    """Packets of both files are merged; each problem is that of one file."""
    cut = ethernet(ipv6(tcp(b"x")), 0x86DD)[:50]
    for name, packets in (("a", [cut, cut, frame(b"1")]), ("b", [frame(b"2"), cut, frame(b"3")])):
        content = ng_section() + ng_interface()
        content += b"".join(ng_enhanced(p, n, length=200) for n, p in enumerate(packets))
        (tmp_path / name).write_bytes(content)
    problems = read(tmp_path / "a", tmp_path / "b").problems
    assert {(p.capture, p.packet, p.detail.split()[0]) for p in problems} == {
        (str(tmp_path / "a"), 1, "2"),
        (str(tmp_path / "b"), 2, "1"),
    }
