"""pcapng files on literal bytes: blocks, sections, interfaces, times, damage."""

import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.errors import CaptureError
from dissector.packets.formats.pcapng import INTERFACE_LIMIT, LATEST, nanoseconds
from tests.dissector.packets.packet_bytes import (
    ANY_FOLDER,
    check_altered_byte,
    ethernet,
    frame,
    ipv4,
    ipv6,
    ng_block,
    ng_enhanced,
    ng_interface,
    ng_option,
    ng_section,
    read_bytes,
    tcp,
)
from tests.tshark import needs_tshark, tshark

SECOND = 10**9


def resolution(value: int) -> bytes:
    return ng_option(9, bytes([value]))


@pytest.mark.parametrize("order", ["<", ">"])
def test_enhanced_packets_in_both_byte_orders(tmp_path, order):
    content = ng_section(order=order) + ng_interface(order=order)
    ticks = 1_700_000_000_123_456
    content += ng_enhanced(frame(b"abc"), ticks, order=order)
    content += ng_enhanced(frame(b"defgh"), ticks + 1, length=80, order=order)
    reading = read_bytes(tmp_path, content)
    assert reading.payloads == [b"abc", b"defgh"]
    assert [row.time for row in reading.rows] == [ticks * 1000, ticks * 1000 + 1000]
    assert reading.problems == []


def test_literal_enhanced_packet(tmp_path):
    packet = frame(b"hi")
    content = bytes.fromhex(
        "0a0d0d0a 1c000000 4d3c2b1a 0100 0000 ffffffffffffffff 1c000000"
        "01000000 14000000 0100 0000 00000400 14000000"
        "06000000 58000000 00000000 25060000 40e20100 38000000 38000000" + packet.hex() + "58000000"
    )
    row = read_bytes(tmp_path, content).rows[0]
    assert row.payload == b"hi"
    assert row.time == ((0x625 << 32) + 0x1E240) * 1000


@pytest.mark.parametrize(
    ("option", "ticks", "expected"),
    [
        (b"", 1_000_000, SECOND),
        (resolution(6), 1_234_567, 1_234_567_000),
        (resolution(9), 1_234_567_891, 1_234_567_891),
        (resolution(0), 17, 17 * SECOND),
        (resolution(3), 17, 17_000_000),
        (resolution(12), 1_999, 1),
        (resolution(0x80 | 10), 1536, 1_500_000_000),
        (resolution(0x80 | 20), (5 << 20) + (1 << 18), 5_250_000_000),
        (resolution(0x80), 9, 9 * SECOND),
        (ng_option(14, struct.pack("<q", 100)), 1_000_000, 101 * SECOND),
        (ng_option(14, struct.pack("<q", -1)), 3_000_000, 2 * SECOND),
        (
            resolution(9) + ng_option(14, struct.pack("<q", 7)) + ng_option(0, b""),
            5,
            7 * SECOND + 5,
        ),
        (ng_option(2, b"eth0") + ng_option(11, b"\0port 9092") + resolution(9), 5, 5),
        (ng_option(0, b"") + resolution(9), 5, 5000),  # nothing counts behind the end of options
    ],
)
def test_times_of_interfaces(tmp_path, option, ticks, expected):
    content = ng_section() + ng_interface(options=option) + ng_enhanced(frame(), ticks)
    assert read_bytes(tmp_path, content).rows[0].time == expected


@given(ticks=st.integers(0, 2**64 - 1), value=st.integers(0, 255))
def test_nanoseconds(ticks, value):
    """Against exact fractions; below 2^-34 s, a fraction of a nanosecond may be lost."""
    power = value & 0x7F
    exact = int(Fraction(ticks, (2 if value & 0x80 else 10) ** power) * SECOND)
    got = int(nanoseconds(np.array([ticks], np.uint64), value)[0])
    assert min(exact, LATEST) - 1 <= got <= min(exact, LATEST)
    if not value & 0x80 or power <= 34:
        assert got == min(exact, LATEST)


def test_interfaces_have_their_own_link_types_and_units(tmp_path):
    packets = [frame(b"a"), ipv4(tcp(b"b")), ipv6(tcp(b"c"))]
    content = ng_section()
    content += ng_interface() + ng_interface(link=101, options=resolution(9))
    content += ng_enhanced(packets[0], 1) + ng_enhanced(packets[1], 2, interface=1)
    content += ng_interface(link=229, options=resolution(3))
    content += ng_enhanced(packets[2], 3, interface=2) + ng_enhanced(packets[0], 4)
    reading = read_bytes(tmp_path, content)
    assert reading.payloads == [b"a", b"b", b"c", b"a"]
    assert [row.time for row in reading.rows] == [1000, 2, 3_000_000, 4000]


@pytest.mark.parametrize("block_bytes", [1 << 20, 50])
def test_sections_of_both_orders_number_interfaces_anew(tmp_path, block_bytes):
    content = b""
    for order, link, packet in (
        ("<", 1, frame(b"a")),
        (">", 101, ipv4(tcp(b"b"))),
        ("<", 228, ipv4(tcp(b"c"))),
    ):
        content += ng_section(order=order) + ng_interface(link=link, order=order)
        content += ng_enhanced(packet, 5, order=order)
    reading = read_bytes(tmp_path, content, block_bytes=block_bytes)
    assert reading.payloads == [b"a", b"b", b"c"]
    assert reading.numbers == [1, 2, 3]
    assert reading.problems == []


@pytest.mark.parametrize("order", ["<", ">"])
def test_obsolete_packet_blocks(tmp_path, order):
    packet = frame(b"old")
    body = struct.pack(order + "HHIIII", 1, 999, 0, 1_000_000, len(packet), len(packet)) + packet
    content = ng_section(order=order) + ng_interface(link=101, order=order)
    content += ng_interface(order=order) + ng_block(2, body, order=order)
    row = read_bytes(tmp_path, content).rows[0]
    assert (row.payload, row.time) == (b"old", SECOND)


def simple(packet: bytes, length: int | None = None) -> bytes:
    return ng_block(3, struct.pack("<I", len(packet) if length is None else length) + packet)


def test_simple_packets_have_the_time_of_the_packet_before(tmp_path):
    content = ng_section() + ng_interface() + simple(frame(b"a")) + ng_enhanced(frame(b"b"), 7)
    content += simple(frame(b"cc")) + simple(frame(b"ddd")) + ng_enhanced(frame(b"e"), 9)
    for block_bytes in (1 << 20, 60):
        reading = read_bytes(tmp_path, content, block_bytes=block_bytes)
        assert reading.payloads == [b"a", b"b", b"cc", b"ddd", b"e"]
        assert [row.time for row in reading.rows] == [0, 7000, 7000, 7000, 9000]
        assert set(reading.kinds) == {"no_time"}
        assert sum(problem.count for problem in reading.problems) == 3


def test_simple_packets_are_cut_by_the_snaplen_of_interface_0(tmp_path):
    packet = frame(b"hello world")
    cut = packet[: 54 + 3]
    content = ng_section() + ng_interface(snaplen=len(cut)) + ng_interface(snaplen=9)
    content += simple(cut, length=len(packet))
    row = read_bytes(tmp_path, content).rows[0]
    assert (row.payload, row.length) == (b"hel", 11)


def test_other_blocks_are_stepped_over(tmp_path):
    others = [
        ng_block(4, bytes(40)),  # names
        ng_block(5, bytes(20)),  # statistics
        ng_block(0x0BAD, struct.pack("<I", 32473) + b"custom"),
        ng_block(0x80000001, b""),
        ng_block(0x12345678, bytes(5000)),
    ]
    content = ng_section() + ng_interface()
    for i, block in enumerate(others):
        content += block + ng_enhanced(frame(bytes([i])), i)
    for block_bytes in (1 << 20, 64):
        reading = read_bytes(tmp_path, content, block_bytes=block_bytes)
        assert reading.payloads == [bytes([i]) for i in range(5)]
        assert reading.problems == []


@needs_tshark
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("block_bytes", [1 << 20, 64])
def test_packets_have_the_numbers_of_wireshark(tmp_path, order, block_bytes):
    """Wireshark numbers journal entries and custom blocks too, but no other blocks."""
    others = {
        4: bytes(8),
        5: bytes(12),
        9: b"__REALTIME_TIMESTAMP=1600000000000000\nMESSAGE=hello\n",
        0x0BAD: struct.pack(order + "I", 32473) + b"custom",
        0x40000BAD: struct.pack(order + "I", 32473) + b"not copied",
        0x80000001: bytes(4),
    }
    content = ng_section(order=order) + ng_interface(order=order)
    for kind, body in others.items():
        content += ng_block(kind, body, order=order)
        content += ng_enhanced(frame(bytes([kind & 0xFF])), kind, order=order)
    content += ng_block(0x0BAD, bytes(8), order=order) + ng_block(9, others[9], order=order)
    reading = read_bytes(tmp_path, content, block_bytes=block_bytes)
    packets = tshark(tmp_path / "capture", ["frame.number"], "-Y", "tcp")
    assert [[str(number)] for number in reading.numbers] == packets
    assert [row.time for row in reading.rows] == [kind * 1000 for kind in others]
    assert reading.packets_seen == reading.numbers[-1] + 2
    assert reading.problems == []


def test_secrets_are_kept(tmp_path):
    text = b"CLIENT_RANDOM aa bb\n"
    content = ng_section()
    content += ng_block(10, struct.pack("<II", 0x544C534B, len(text)) + text)
    content += ng_block(10, struct.pack("<II", 0x57474B4C, 4) + b"wg..")  # WireGuard
    content += ng_interface() + ng_enhanced(frame(), 1)
    assert read_bytes(tmp_path, content).secrets == [text]


def test_a_block_of_secrets_for_each_session(tmp_path):
    texts = [f"CLIENT_RANDOM {number:064x} {'00' * 48}\n".encode() for number in range(50_000)]
    blocks = [ng_block(10, struct.pack("<II", 0x544C534B, len(text)) + text) for text in texts]
    reading = read_bytes(tmp_path, ng_section() + b"".join(blocks) + blocks[0])
    assert reading.secrets == texts


def test_packets_of_an_unknown_interface(tmp_path):
    content = ng_section() + ng_enhanced(frame(b"x"), 1) + ng_interface()
    content += ng_enhanced(frame(b"y"), 1) + ng_enhanced(frame(b"z"), 1, interface=9)
    reading = read_bytes(tmp_path, content, block_bytes=120)
    assert (reading.payloads, reading.numbers) == ([b"y"], [2])
    assert reading.packets_seen == 3
    assert set(reading.kinds) == {"unknown_interface"}


def test_packets_of_too_many_interfaces(tmp_path):
    """Each of them has a description, though it is not read."""
    content = ng_section() + ng_interface() * (INTERFACE_LIMIT + 2)
    for number, interface in enumerate((0, INTERFACE_LIMIT - 1, INTERFACE_LIMIT + 1)):
        content += ng_enhanced(ethernet(ipv6(tcp(b"x")), 0x86DD), number, interface=interface)
    content += ng_enhanced(frame(b"y"), 9, interface=INTERFACE_LIMIT + 2)
    reading = read_bytes(tmp_path, content)
    assert reading.numbers == [1, 2]
    assert {problem.detail for problem in reading.problems} == {
        "1 packet is of an interface beyond the first 65536",
        "1 packet is TCP inside link type -2 (of too many interfaces), which is not supported",
        "1 packet is of an interface that is not described",
    }


def test_a_packet_longer_than_its_block(tmp_path):
    packet = frame(b"hello")
    body = struct.pack("<IIIII", 0, 0, 1, 5000, 5000) + packet
    content = ng_section() + ng_interface() + ng_block(6, body) + ng_enhanced(packet, 2)
    reading = read_bytes(tmp_path, content)
    assert reading.payloads == [b"hello", b"hello"]
    assert reading.kinds == ["bad_packet"]


def test_a_block_too_short_for_a_packet(tmp_path):
    content = ng_section() + ng_interface() + ng_block(6, bytes(8)) + ng_enhanced(frame(b"x"), 2)
    reading = read_bytes(tmp_path, content)
    assert reading.payloads == [b"x"]
    assert reading.kinds == ["bad_packet"]


@pytest.mark.parametrize("origin", [0, 4_000_000_000, (1 << 63) - 1])
def test_a_time_that_cannot_be(tmp_path, origin):
    option = ng_option(14, struct.pack("<q", origin))
    content = ng_section() + ng_interface(options=option) + ng_enhanced(frame(b"x"), 1 << 63)
    reading = read_bytes(tmp_path, content)
    assert reading.rows[0].time == LATEST
    assert reading.kinds == ["bad_time"]


@pytest.mark.parametrize(
    "content",
    [
        ng_section()[:20],
        ng_section()[:8] + b"\1\2\3\4" + ng_section()[12:],
    ],
)
def test_an_invalid_section_header(tmp_path, content):
    with pytest.raises(CaptureError, match="is not a"):
        read_bytes(tmp_path, content)


PACKETS = [frame(bytes([65 + i]) * (i * 37 % 90), seq=i) for i in range(10)]
HEAD = ng_section() + ng_interface()
BLOCKS = [ng_enhanced(packet, 1_700_000_000_000_000 + i) for i, packet in enumerate(PACKETS)]
CONTENT = HEAD + b"".join(BLOCKS)
ENDS = len(HEAD) + np.cumsum([len(block) for block in BLOCKS])


@settings(max_examples=75, suppress_health_check=ANY_FOLDER)
@given(size=st.integers(28, len(CONTENT)), block_bytes=st.sampled_from([16, 100, 1 << 20]))
def test_a_file_cut_anywhere_gives_every_whole_packet(tmp_path, size, block_bytes):
    reading = read_bytes(tmp_path, CONTENT[:size], block_bytes=block_bytes)
    whole = int((size >= ENDS).sum())
    assert reading.numbers == list(range(1, whole + 1))
    assert reading.bytes_read == size
    edges = [28, len(HEAD), *map(int, ENDS)]
    end = max(edge for edge in edges if edge <= size)
    assert reading.damage == [("truncated_file", end, size - end)] * (size > end)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_sizes_without_the_padding_at_the_end_of_the_block(tmp_path, order, block_bytes):
    """The draft forbids them. Wireshark reads them, too."""
    payloads = [bytes([size]) * size for size in (4, 5, 6, 7, 8, 9)]
    content = ng_section(order=order) + ng_interface(order=order)
    for payload in payloads:
        packet = frame(payload)
        block = ng_enhanced(packet, order=order)
        size = struct.pack(order + "I", 32 + len(packet))
        content += block[:4] + size + block[8:-4] + size
    reading = read_bytes(tmp_path, content, block_bytes=block_bytes)
    assert (reading.payloads, reading.problems) == (payloads, [])
    # Behind a damaged block, the next one is found.
    second = len(ng_section() + ng_interface() + ng_enhanced(frame(payloads[0])))
    damaged = content[: second + 4] + b"\xff" * 4 + content[second + 8 :]
    reading = read_bytes(tmp_path, damaged, block_bytes=block_bytes)
    assert reading.payloads == [payloads[0], *payloads[2:]]
    assert {each.kind for each in reading.problems} == {"damaged_file"}


@settings(max_examples=100, suppress_health_check=ANY_FOLDER)
@given(at=st.integers(len(HEAD), len(CONTENT) - 1), value=st.integers(0, 255))
def test_one_altered_byte_costs_one_packet(tmp_path, at, value):
    check_altered_byte(tmp_path, CONTENT, PACKETS, ENDS, at, value)


@pytest.mark.parametrize("at", [len(HEAD) - 4, int(ENDS[2]) - 4])
def test_a_damaged_closing_size_costs_nothing(tmp_path, at):
    content = bytearray(CONTENT)
    content[at] ^= 0xFF
    reading = read_bytes(tmp_path, bytes(content))
    assert len(reading.rows) == 10


@pytest.mark.parametrize("block_bytes", [1 << 20, 1000])
def test_zeros_between_blocks(tmp_path, block_bytes):
    content = CONTENT + bytes(9002) + b"".join(BLOCKS)
    reading = read_bytes(tmp_path, content, block_bytes=block_bytes)
    assert len(reading.rows) == 20
    assert reading.damage == [("damaged_file", len(CONTENT), 9002)]


@settings(max_examples=75, suppress_health_check=ANY_FOLDER)
@given(junk=st.binary(max_size=2000), block_bytes=st.sampled_from([64, 1 << 20]))
def test_any_bytes_after_a_section_header(tmp_path, junk, block_bytes):
    reading = read_bytes(tmp_path, HEAD + junk, block_bytes=block_bytes)
    assert reading.bytes_read == len(HEAD) + len(junk)


@settings(max_examples=75, suppress_health_check=ANY_FOLDER)
@given(
    blocks=st.lists(
        st.builds(
            ng_block,
            st.sampled_from([1, 2, 3, 6, 10, 0x0A0D0D0A, 77]),
            st.binary(max_size=80),
        ),
        max_size=20,
    )
)
def test_any_blocks(tmp_path, blocks):
    reading = read_bytes(tmp_path, HEAD + b"".join(blocks) + BLOCKS[0])
    assert reading.bytes_read == len(HEAD) + sum(map(len, blocks)) + len(BLOCKS[0])
