"""Packets that the capture dropped, as pcapng files count them (draft-ietf-opsawg-pcapng)."""

import struct

import pytest

from dissector.packets.formats.drop_counts import DropCounts
from tests.dissector.packets.packet_bytes import (
    frame,
    ng_block,
    ng_enhanced,
    ng_interface,
    ng_option,
    ng_section,
    read,
    read_bytes,
)

UNKNOWN = (1 << 64) - 1
CODES = {"received": 4, "ifdrop": 5, "accepted": 6, "osdrop": 7, "delivered": 8}
OF_DUMPCAP = bytes.fromhex(
    "050000006c000000000000006b6106008977914a01001c00436f756e746572732070726f7669646564206279206475"
    "6d70636170020008006b610600837c2e4a030008006b6106004c77914a04000800272400000000000005000800a6b3"
    "000000000000000000006c000000"
)
"""The last block of a file of Dumpcap 4.0.17. It reported: 9255 packets captured, 45990 dropped."""


def statistics(interface=0, *, order="<", **counts) -> bytes:
    """Interface statistics. `counts`: by name in `CODES`."""
    options = b"".join(
        ng_option(CODES[name], struct.pack(order + "Q", count), order=order)
        for name, count in counts.items()
    )
    body = struct.pack(order + "III", interface, 0, 0) + options + bytes(4)
    return ng_block(5, body, order=order)


def counted(drops, ticks=0, *, interface=0, order="<", before=b"") -> bytes:
    """A packet with a drop count, which follows the options `before`."""
    packet = frame(b"x")
    options = before + ng_option(4, struct.pack(order + "Q", drops), order=order) + bytes(4)
    head = struct.pack(order + "IIIII", interface, 0, ticks, len(packet), len(packet))
    return ng_block(6, head + packet + bytes(-len(packet) % 4) + options, order=order)


def interface(name: bytes, *, order="<") -> bytes:
    return ng_interface(options=ng_option(2, name, order=order), order=order)


def rows(reading) -> list[tuple]:
    return [(each.detail, each.count, each.packet, each.time) for each in reading.problems]


def test_the_statistics_of_dumpcap(tmp_path):
    content = ng_section() + interface(b"lo") + ng_enhanced(frame(), 7)
    reading = read_bytes(tmp_path, content + OF_DUMPCAP)
    assert rows(reading) == [("lo: the capture dropped 45990 packets", 45990, None, 7000)]
    (problem,) = reading.problems
    assert (problem.stage, problem.kind) == ("packets", "dropped_packets")
    assert problem.offset == len(content)
    assert problem.capture == str(tmp_path / "capture")


@pytest.mark.parametrize("block_bytes", [1 << 20, 150])
@pytest.mark.parametrize("order", ["<", ">"])
def test_the_last_count_of_each_interface_counts(tmp_path, order, block_bytes):
    packets = [ng_enhanced(frame(), ticks, order=order) for ticks in range(1, 5)]
    content = ng_section(order=order) + interface(b"eth0", order=order)
    content += interface(b"eth1", order=order) + statistics(1, ifdrop=3, order=order)
    content += packets[0] + statistics(received=9, ifdrop=0, osdrop=10, order=order)
    content += packets[1] + statistics(ifdrop=0, osdrop=10, order=order)
    content += packets[2] + statistics(1, ifdrop=1, osdrop=2, order=order)
    content += packets[3] + statistics(ifdrop=2, osdrop=11, order=order)
    assert rows(read_bytes(tmp_path, content, block_bytes=block_bytes)) == [
        ("eth1: the capture dropped 3 packets", 3, None, None),
        ("eth0: the capture dropped 10 packets", 10, None, 1000),
        ("eth0: the capture dropped 3 packets", 3, None, 4000),
    ]


@pytest.mark.parametrize("block_bytes", [1 << 20, 150])
@pytest.mark.parametrize("order", ["<", ">"])
def test_drop_counts_of_packets(tmp_path, order, block_bytes):
    flags = ng_option(2, bytes(4), order=order) + ng_option(1, b"a comment", order=order)
    content = ng_section(order=order) + interface(b"eth0", order=order)
    content += ng_enhanced(frame(), 1, order=order) + counted(1, 2, order=order, before=flags)
    content += counted(0, 3, order=order) + counted(20, 4, order=order)
    expected = [
        ("eth0: the capture dropped 1 packet", 1, 2, 2000),
        ("eth0: the capture dropped 20 packets", 20, 4, 4000),
    ]
    assert rows(read_bytes(tmp_path, content, block_bytes=block_bytes)) == expected
    # Statistics contain the counts of packets.
    total = statistics(ifdrop=25, order=order) + counted(3, 5, order=order)
    expected.append(("eth0: the capture dropped 4 packets", 4, None, 4000))
    assert rows(read_bytes(tmp_path, content + total, block_bytes=block_bytes)) == expected


@pytest.mark.parametrize("order", ["<", ">"])
def test_drop_counts_of_obsolete_packets(tmp_path, order):
    packet, content = frame(), ng_section(order=order) + interface(b"eth0", order=order)
    for count in (0, 999, 0xFFFF):
        head = struct.pack(order + "HHIIII", 0, count, 0, 1, len(packet), len(packet))
        content += ng_block(2, head + packet, order=order)
    reading = read_bytes(tmp_path, content)
    assert rows(reading) == [("eth0: the capture dropped 999 packets", 999, 2, 1000)]


def test_interfaces_of_sections_and_files(tmp_path):
    """As in files that are joined with cat."""
    section = ng_section() + interface(b"eth0") + ng_enhanced(frame(), 1) + statistics(osdrop=5)
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        path.write_bytes(section * 2)
    details = [each.detail for each in read(*paths).problems]
    assert details == ["eth0: the capture dropped 5 packets"] * 4


@pytest.mark.parametrize(
    "content",
    [
        statistics(),
        statistics(received=10, accepted=9, delivered=8),
        statistics(ifdrop=UNKNOWN, osdrop=UNKNOWN),
        ng_block(5, bytes(8)),
        ng_block(5, bytes(12) + struct.pack("<HH", 5, 4) + b"\1\1\1\1"),
        ng_block(5, bytes(12) + struct.pack("<HH", 5, 800) + b"\1" * 8),
        counted(UNKNOWN),
        counted(5, before=ng_option(0, b"")),
        counted(5, before=ng_option(2989, b"") * 100_000),
    ],
)
def test_unknown_and_damaged_counts(tmp_path, content):
    reading = read_bytes(tmp_path, ng_section() + interface(b"eth0") + content)
    assert reading.problems == []


def test_interfaces_without_a_name(tmp_path):
    content = ng_section() + ng_interface() + ng_enhanced(frame(), 1) + statistics(ifdrop=1)
    content += statistics(7, ifdrop=2)
    details = [each.detail for each in read_bytes(tmp_path, content).problems]
    assert details == [
        "interface 0: the capture dropped 1 packet",
        "unknown interface: the capture dropped 2 packets",
    ]


def test_equal_contexts_count_equally():
    contexts = []
    for totals in ([], [0], [3], [3, 3], [3, 4]):
        counts = DropCounts()
        for total in totals:
            counts.in_all(0, total)
        contexts.append(counts.context)
    assert contexts[0] == contexts[1]
    assert contexts[2] == contexts[3]
    assert len({*contexts}) == 3
