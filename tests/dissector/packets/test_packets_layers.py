"""Each link layer, network layer and rule about lengths, on literal bytes."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.packets.block import ACK, RST
from tests.dissector.packets.packet_bytes import (
    ANY_FOLDER,
    check_bytes_behind,
    ethernet,
    frame,
    ipv4,
    ipv6,
    pcap,
    pcap_header,
    pcap_record,
    read_bytes,
    tcp,
)

SEGMENT = tcp(b"hello")
V4 = ipv4(SEGMENT)
V6 = ipv6(SEGMENT)


@pytest.mark.parametrize(
    ("link", "packet"),
    [
        (1, ethernet(V4, 0x0800)),
        (1, ethernet(V6, 0x86DD)),
        (1, ethernet(V4, 0x8100, 0x0800)),
        (1, ethernet(V4, 0x88A8, 0x8100, 0x0800)),
        (1, ethernet(V6, 0x9100, 0x8100, 0x8100, 0x86DD)),
        (113, bytes(6) + b"\x02\x00\x00\x00\x00\x01\x00\x00" + b"\x08\x00" + V4),
        (113, bytes(14) + b"\x86\xdd" + V6),
        (113, bytes(14) + b"\x81\x00" + b"\x00\x05\x08\x00" + V4),
        (276, b"\x08\x00" + bytes(18) + V4),
        (276, b"\x86\xdd" + bytes(18) + V6),
        (0, b"\x02\x00\x00\x00" + V4),
        (0, b"\x00\x00\x00\x02" + V4),
        (0, b"\x18\x00\x00\x00" + V6),
        (0, b"\x00\x00\x00\x1c" + V6),
        (108, b"\x00\x00\x00\x02" + V4),
        (108, b"\x1e\x00\x00\x00" + V6),
        (108, b"\x00\x00\x00\x0a" + V6),
        *[(link, packet) for link in (12, 14, 101) for packet in (V4, V6)],
        (228, V4),
        (229, V6),
    ],
)
def test_link_layers(tmp_path, link, packet):
    row = read_bytes(tmp_path, pcap([packet], link=link)).rows[0]
    addresses = ("2001:db8::1", "2001:db8::2") if V6 in packet else ("10.0.0.1", "10.0.0.2")
    assert (row.src, row.dst) == addresses
    assert (row.src_port, row.dst_port, row.seq, row.ack) == (40000, 9092, 1, 7)
    assert (row.flags, row.window) == (0x18, 512)
    assert (row.payload, row.length) == (b"hello", 5)


def test_mixed_packets_keep_their_order_and_others_are_counted(tmp_path):
    arp = ethernet(bytes(28), 0x0806)
    llc = ethernet(bytes(40), 40)
    udp = ethernet(ipv4(bytes(20), protocol=17))
    packets = [
        frame(b"a"),
        arp,
        ethernet(ipv6(tcp(b"b")), 0x86DD),
        udp,
        ethernet(ipv4(tcp(b"c")), 0x8100, 0x0800),
        llc,
        frame(b"d"),
    ]
    reading = read_bytes(tmp_path, pcap(packets))
    assert reading.payloads == [b"a", b"b", b"c", b"d"]
    assert reading.numbers == [1, 3, 5, 7]
    assert reading.packets_seen == 7
    assert reading.problems == []


def extension(following: int, size: int) -> bytes:
    """A hop-by-hop, routing or destination header of 8 + 8 * size bytes."""
    return bytes([following, size]) + bytes(6 + 8 * size)


@pytest.mark.parametrize(
    ("protocol", "headers"),
    [
        (0, extension(6, 0)),
        (43, extension(6, 2)),
        (60, extension(6, 1)),
        (0, extension(60, 1) + extension(43, 0) + extension(6, 3)),
        (51, bytes([6, 4]) + bytes(22)),  # authentication header: (4 + 2) * 4 bytes
        (44, bytes([6, 0, 0, 0]) + bytes(4)),  # a fragment that is the whole packet
    ],
)
def test_ipv6_extension_headers(tmp_path, protocol, headers):
    packet = ethernet(ipv6(headers + SEGMENT, protocol=protocol), 0x86DD)
    reading = read_bytes(tmp_path, pcap([packet]))
    assert reading.payloads == [b"hello"]


def test_ipv4_and_tcp_options(tmp_path):
    packet = ethernet(ipv4(tcp(b"hello", options=bytes(12)), options=bytes(8)))
    assert read_bytes(tmp_path, pcap([packet])).payloads == [b"hello"]


@pytest.mark.parametrize(
    "packet",
    [
        ethernet(ipv4(tcp()) + bytes(6)),  # padded to 60 bytes
        ethernet(ipv6(tcp()) + b"FCS!", 0x86DD),
    ],
)
def test_padding_is_no_payload(tmp_path, packet):
    row = read_bytes(tmp_path, pcap([packet])).rows[0]
    assert (row.payload, row.length) == (b"", 0)


@pytest.mark.parametrize(
    "packet",
    [ethernet(ipv4(SEGMENT, length=0)), ethernet(ipv6(SEGMENT, length=0), 0x86DD)],
)
def test_a_length_of_zero_is_the_length_of_the_frame(tmp_path, packet):
    row = read_bytes(tmp_path, pcap([packet])).rows[0]
    assert (row.payload, row.length) == (b"hello", 5)


def test_snaplen_cuts_the_payload(tmp_path):
    packet = frame(b"hello world")
    content = pcap_header() + pcap_record(packet[:-6], length=len(packet))
    row = read_bytes(tmp_path, content).rows[0]
    assert (row.payload, row.length) == (b"hello", 11)


def test_snaplen_cuts_tcp_options(tmp_path):
    packet = ethernet(ipv4(tcp(b"hello", options=bytes(12))))
    content = pcap_header() + pcap_record(packet[: 14 + 20 + 24], length=len(packet))
    row = read_bytes(tmp_path, content).rows[0]
    assert (row.payload, row.length) == (b"", 5)


def test_a_wrong_link_type_is_named(tmp_path):
    (problem,) = read_bytes(tmp_path, pcap([frame(b"hello"), bytes(60), V4], link=101)).problems
    assert (problem.kind, problem.count) == ("malformed_headers", 2)
    assert "do not begin with a header of link type 101 (raw IP)" in problem.detail
    (problem,) = read_bytes(tmp_path, pcap([ethernet(bytes(40)), frame()])).problems
    assert problem.detail == "1 packet is not read: a header contradicts itself"


def test_cut_headers_are_one_problem(tmp_path):
    packet = frame(b"hello")
    cut = [packet[:size] for size in (0, 5, 13, 20, 33, 40, 53)]
    content = pcap_header() + pcap_record(packet)
    content += b"".join(pcap_record(part, length=len(packet)) for part in cut)
    reading = read_bytes(tmp_path, content + pcap_record(packet))
    assert reading.numbers == [1, 9]
    (problem,) = reading.problems
    assert (problem.stage, problem.kind, problem.packet) == ("packets", "cut_headers", 2)
    assert problem.detail.startswith("7 packets")
    assert problem.bytes == sum(map(len, cut))
    assert problem.time == 1_700_000_000 * 10**9


@pytest.mark.parametrize(
    "packet",
    [
        ethernet(ipv4(SEGMENT, version=5)),
        ethernet(ipv4(SEGMENT, length=19)),
        ethernet(b"\x44" + ipv4(SEGMENT)[1:]),  # an IPv4 header of 16 bytes
        ethernet(ipv4(SEGMENT, length=30)),  # a TCP header that ends behind the packet
        ethernet(ipv4(SEGMENT[:12] + b"\x40" + SEGMENT[13:])),  # a TCP header of 16 bytes
        ethernet(V4, 0x86DD),
        ethernet(V4, *[0x8100] * 30, 0x0800),
    ],
)
def test_malformed_headers(tmp_path, packet):
    reading = read_bytes(tmp_path, pcap([frame(b"before"), packet, frame(b"after")]))
    assert reading.payloads == [b"before", b"after"]
    assert [(p.kind, p.packet) for p in reading.problems] == [("malformed_headers", 2)]


@pytest.mark.parametrize("link", [189, 2, 65535])
def test_unknown_link_type(tmp_path, link):
    reading = read_bytes(tmp_path, pcap([bytes(60)] * 3, link=link))
    assert reading.rows == []
    assert reading.packets_seen == 3
    assert reading.kinds == ["unknown_link"]


def test_a_packet_beyond_the_largest_snap_length(tmp_path):
    """Linux joins segments to packets of up to 524,280 bytes (BIG TCP); libpcap captures less."""
    packet = ethernet(ipv4(SEGMENT, length=0))
    content = pcap_header() + pcap_record(packet, length=500_000)
    (row,) = read_bytes(tmp_path, content).rows
    assert row.length == 500_000 - len(packet) + len(row.payload)


def test_a_length_that_no_packet_has_is_not_believed(tmp_path):
    packet = ethernet(ipv4(SEGMENT, length=0))
    content = pcap_header() + pcap_record(packet, length=0xFFFFFFFF)
    row = read_bytes(tmp_path, content).rows[0]
    assert row.payload == b"hello"
    assert row.length < 1 << 20


ALTERED = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), max_size=6)


@settings(max_examples=150, suppress_health_check=ANY_FOLDER)
@given(
    packet=st.sampled_from(
        [
            frame(b"hello"),
            ethernet(ipv6(extension(60, 1) + extension(6, 0) + SEGMENT, protocol=0), 0x86DD),
            ethernet(V4, 0x88A8, 0x8100, 0x0800),
        ]
    ),
    altered=ALTERED,
    size=st.integers(0, 120),
    link=st.sampled_from([0, 1, 12, 108, 113, 228, 229, 276]),
)
def test_nothing_is_read_behind_the_captured_bytes(tmp_path, packet, altered, size, link):
    check_bytes_behind(tmp_path, packet, altered, size, link)


def test_a_block_of_random_bytes_is_read_without_an_exception(tmp_path):
    rng = np.random.default_rng(1)
    packets = [rng.bytes(int(size)) for size in rng.integers(0, 200, 5000)]
    for link in (0, 1, 12, 113, 228, 229, 276):
        assert read_bytes(tmp_path, pcap(packets, link=link)).packets_seen == 5000


def test_literal_ethernet_frame():
    """The builder of these tests itself, against bytes written by hand."""
    assert frame(b"hi", seq=2) == bytes.fromhex(
        "020000000001 020000000002 0800"
        "4500002a 00630000 40060000 0a000001 0a000002"
        "9c402384 00000002 00000007 50180200 00000000 6869"
    )
    assert struct.calcsize(">HHIIBBHHH") == 20


@pytest.mark.parametrize("other", [0x01, 0x04, 0x05])
def test_a_segment_that_would_begin_and_end_a_connection_does_neither(tmp_path, other):
    segment = bytearray(SEGMENT)
    segment[13] = 0x12 | other
    assert read_bytes(tmp_path, pcap([ipv4(bytes(segment))], link=101)).rows[0].flags == 0x10
    segment[13] = 0x12
    assert read_bytes(tmp_path, pcap([ipv4(bytes(segment))], link=101)).rows[0].flags == 0x12


@pytest.mark.parametrize("flags", [RST, RST | ACK])
def test_the_text_of_a_reset_is_no_data(tmp_path, flags):
    """Some load balancers send a reason (RFC 9293, section 3.5.2)."""
    segment = bytearray(tcp(b"the pool has no members"))
    segment[13] = flags
    reset = ipv4(bytes(segment))
    in_gre = ipv4(b"\0\0\x08\0" + reset, protocol=47)
    reading = read_bytes(tmp_path, pcap([frame(b"before"), ethernet(reset), ethernet(in_gre)]))
    assert reading.payloads == [b"before", b"", b""]
    assert [row.length for row in reading.rows] == [6, 0, 0]
    assert reading.problems == []
