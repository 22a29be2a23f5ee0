"""Tunnels and fragments: literal headers, and packets of scapy's as tshark reads them."""

import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.packets.layers import fragments
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
from tests.tshark import needs_tshark, tshark

INNER = ipv4(tcp(b"hello"))
INNER_6 = ipv6(tcp(b"hello"))
FRAME = frame(b"hello")


def udp(payload: bytes, port: int) -> bytes:
    return struct.pack(">HHHH", 50000, port, 8 + len(payload), 0) + payload


def through(port: int, payload: bytes) -> bytes:
    return ethernet(ipv4(udp(payload, port), protocol=17))


def gre(payload: bytes) -> bytes:
    return ethernet(ipv4(payload, protocol=47))


H = bytes.fromhex
VXLAN = H("08000000 00002a00")
TUNNELS = {
    "IPv4 in IPv4": ethernet(ipv4(INNER, protocol=4)),
    "IPv6 in IPv4": ethernet(ipv4(INNER_6, protocol=41)),
    "IPv4 in IPv6": ethernet(ipv6(INNER, protocol=4), 0x86DD),
    "IPv6 in IPv6": ethernet(ipv6(INNER_6, protocol=41), 0x86DD),
    "GRE": gre(H("0000 0800") + INNER),
    "GRE with checksum": gre(H("8000 0800 aaaa 0000") + INNER),
    "GRE with key": gre(H("2000 86dd 0000002a") + INNER_6),
    "GRE with all": gre(H("b000 0800 aaaa0000 0000002a 00000001") + INNER),
    "GRE with Ethernet": gre(H("0000 6558") + FRAME),
    "GRE in IPv6": ethernet(ipv6(H("0000 0800") + INNER, protocol=47), 0x86DD),
    "ERSPAN I": gre(H("0000 88be") + FRAME),
    "ERSPAN II": gre(H("1000 88be 00000001 10010064 00000000") + FRAME),
    "ERSPAN III": gre(H("1000 22eb 00000001 20010064 00000000 0000 0000") + FRAME),
    "ERSPAN III, more": gre(
        H("1000 22eb 00000001 20010064 00000000 0000 0001 0000000000000000") + FRAME
    ),
    "ERSPAN III with IP": gre(H("1000 22eb 00000001 20010064 00000000 0000 0800") + INNER),
    "MPLS": ethernet(H("00064140") + INNER, 0x8847),
    "MPLS, stacked": ethernet(H("00064040 00065040 00066140") + INNER_6, 0x8848),
    "MPLS with Ethernet": ethernet(H("00064140") + FRAME, 0x8847),
    "MPLS, control word": ethernet(H("00064140 00000007") + FRAME, 0x8847),
    "MPLS, address like IPv4": ethernet(H("00064140 4c5262000102") + FRAME[6:], 0x8847),
    "MPLS, address like IPv6": ethernet(H("00064140 6c5262000102") + FRAME[6:], 0x8847),
    "MPLS, tag, address like IPv4": ethernet(
        H("00064140 4c5262000102 020000000009 8100 0007") + FRAME[12:], 0x8847
    ),
    "PPPoE": ethernet(H("1100 0001 002f 0021") + INNER, 0x8864),
    "PPPoE with IPv6": ethernet(H("1100 0001 0043 0057") + INNER_6, 0x8100, 0x8864),
    "VXLAN": through(4789, VXLAN + FRAME),
    "VXLAN on Linux's port": through(8472, VXLAN + FRAME),
    "VXLAN over IPv6": ethernet(ipv6(udp(VXLAN + FRAME, 4789), protocol=17), 0x86DD),
    "VXLAN twice": through(4789, VXLAN + through(4789, VXLAN + FRAME)),
    "GENEVE": through(6081, H("0000 6558 00002a00") + FRAME),
    "GENEVE, options": through(6081, H("0200 0800 00002a00 0101000100000000") + INNER),
    "GTP-U": through(2152, H("30ff 0031 00000001") + INNER),
    "GTP-U, sequence": through(2152, H("32ff 0031 00000001 0001 00 00") + INNER),
    "GTP-U, extensions": through(
        2152, H("34ff 0031 00000001 0000 00 85 01100185 02100100000000 00") + INNER_6
    ),
}  # fmt: skip


@pytest.mark.parametrize("packet", TUNNELS.values(), ids=TUNNELS)
def test_what_is_inside_counts(tmp_path, packet):
    reading = read_bytes(tmp_path, pcap([packet, frame(b"after")]))
    assert reading.problems == []
    assert reading.payloads == [b"hello", b"after"]
    inside = ("2001:db8::1", "2001:db8::2") if INNER_6 in packet else ("10.0.0.1", "10.0.0.2")
    assert (reading.rows[0].src, reading.rows[0].dst) == inside


def test_ipv4_in_mpls_from_an_address_like_an_ethertype(tmp_path):
    packet = H("00064140") + INNER[:12] + H("08004500") + INNER[16:]  # 8.0.69.0
    reading = read_bytes(tmp_path, pcap([ethernet(packet, 0x8847)]))
    assert [(row.src, row.payload) for row in reading.rows] == [("8.0.69.0", b"hello")]


@pytest.mark.parametrize(
    "packet",
    [
        through(4789, H("00000000 00002a00") + FRAME),  # no valid network identifier
        through(6081, H("4000 6558 00002a00") + FRAME),  # GENEVE of a version to come
        through(6081, H("0080 6558 00002a00") + FRAME),  # its control packets
        through(2152, H("3001 0031 00000001") + INNER),  # GTP's echo
        through(53, VXLAN + FRAME),
        gre(H("0000 0806") + bytes(28)),
        ethernet(H("1109 0000 0004 00000000"), 0x8864),  # PPPoE's discovery
        ethernet(H("00064140 00000007") + bytes(40), 0x8847),
    ],
)
def test_what_is_no_tunnel_is_left_alone(tmp_path, packet):
    reading = read_bytes(tmp_path, pcap([packet, frame(b"after")]))
    assert (reading.payloads, reading.problems) == ([b"after"], [])


@pytest.mark.parametrize(
    "packet",
    [
        gre(H("3001 880b 0000 0000 00000000") + bytes(20)),  # PPTP
        gre(H("4000 0800 00000000 00000000") + INNER),  # source routes
        gre(H("1000 88be 00000001 30010064 00000000") + FRAME),
        gre(H("1000 22eb 00000001 20010064 00000000 0000 2000") + FRAME),
    ],
)
def test_unknown_tunnel_headers_are_a_problem(tmp_path, packet):
    reading = read_bytes(tmp_path, pcap([packet, frame(b"after")]))
    assert reading.payloads == [b"after"]
    assert [(p.kind, p.packet) for p in reading.problems] == [("tunnel", 1)]


def test_headers_in_a_row_without_end_are_malformed(tmp_path):
    packet = INNER
    for _ in range(40):
        packet = ipv4(packet, protocol=4)
    reading = read_bytes(tmp_path, pcap([ethernet(packet)]))
    assert (reading.rows, reading.kinds) == ([], ["malformed_headers"])


def pieces_of(payload: bytes, size: int, **fields) -> list[bytes]:
    """The fragments of an IPv4 packet, `size` bytes each."""
    return [
        ethernet(
            ipv4(
                payload[at : at + size],
                fragment=at // 8 | (0x2000 if at + size < len(payload) else 0),
                **fields,
            )
        )
        for at in range(0, len(payload), size)
    ]


def pieces_of_v6(payload: bytes, size: int) -> list[bytes]:
    frames = []
    for at in range(0, len(payload), size):
        is_followed = at + size < len(payload)
        header = struct.pack(">BBHI", 6, 0, at | is_followed, 77)
        frames.append(ethernet(ipv6(header + payload[at : at + size], protocol=44), 0x86DD))
    return frames


BODY = bytes(range(256)) * 5
SEGMENT = tcp(BODY)


@pytest.mark.parametrize("pieces", [pieces_of(SEGMENT, 400), pieces_of_v6(SEGMENT, 400)])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2), (0, 0, 3, 1, 1, 2)])
@pytest.mark.parametrize("block_bytes", [1 << 20, 1 << 16])
def test_fragments_are_put_together_in_any_order(tmp_path, pieces, order, block_bytes):
    packets = [pieces[index] for index in order]
    content = pcap([packets[0], *[frame(b"x" * 1000)] * 100, *packets[1:], frame(b"after")])
    reading = read_bytes(tmp_path, content, block_bytes=block_bytes)
    assert reading.problems == []
    assert [row for row in reading.payloads if len(row) != 1000] == [BODY, b"after"]
    assert reading.rows[-2].number == 100 + len(order)  # the piece that came last
    assert reading.rows[-2].length == len(BODY)


def test_fragments_of_a_tunnel_and_in_a_tunnel(tmp_path):
    around = pieces_of(udp(VXLAN + frame(BODY), 4789), 800, protocol=17)
    inside = [through(4789, VXLAN + piece) for piece in pieces_of(SEGMENT, 800)]
    reading = read_bytes(tmp_path, pcap(around + inside))
    assert (reading.payloads, reading.problems) == ([BODY, BODY], [])


def test_fragments_beside_a_packet_with_many_headers(tmp_path):
    """A reassembled packet is read whatever the other packets of its block contain."""
    pieces = pieces_of(udp(VXLAN + frame(BODY), 4789), 800, protocol=17)
    tagged = ethernet(INNER, *[0x8100] * 40, 0x0800)
    reading = read_bytes(tmp_path, pcap([pieces[0], tagged, pieces[1]]))
    assert (reading.payloads, reading.kinds) == ([BODY], ["malformed_headers"])
    assert reading.problems[0].packet == 2


def test_a_fragment_that_is_cut_cuts_the_packet_there(tmp_path):
    pieces = pieces_of(SEGMENT, 400)
    content = pcap_header() + b"".join(
        pcap_record(piece[:96], length=len(piece)) for piece in pieces
    )
    (row,) = read_bytes(tmp_path, content).rows
    assert row.length == len(BODY)
    assert row.payload == BODY[: 96 - 34 - 20]


def test_fragments_without_the_others_are_one_problem(tmp_path):
    first, *_, last = pieces_of(SEGMENT, 400)
    other = pieces_of(udp(b"x" * 900, 53), 400, protocol=17)[0]
    tunnel = pieces_of(udp(VXLAN + FRAME + bytes(900), 4789), 400, protocol=17)[0]
    tunnel = tunnel[:18] + b"\0\1" + tunnel[20:]  # another identification
    reading = read_bytes(tmp_path, pcap([first, last, other, frame(b"after"), tunnel]))
    assert reading.payloads == [b"after"]
    (problem,) = reading.problems
    assert (problem.kind, problem.packet) == ("fragment", 1)
    assert problem.detail.startswith("3 packets")  # of UDP only the tunnel's


@pytest.mark.parametrize(
    "wrong",
    [
        ipv4(SEGMENT[392:792], fragment=0x2000 | 49),  # overlaps the one before
        ipv4(SEGMENT[400:803], fragment=0x2000 | 50),  # not the last, and no multiple of 8
        ipv4(SEGMENT[400:800], fragment=50),  # a last one before the last one
        ipv4(SEGMENT[400:800], fragment=0x1FFF),  # beyond what a packet can have
        ipv4(SEGMENT[400:480], fragment=0x2000 | 50),  # the same offset, another length
    ],
)
def test_fragments_that_contradict_each_other_are_given_up(tmp_path, wrong):
    first, second, third, last = pieces_of(SEGMENT, 400)
    packets = [first, third, last, ethernet(wrong), second, frame(b"after")]
    reading = read_bytes(tmp_path, pcap(packets))
    assert b"after" in reading.payloads
    assert set(reading.payloads) <= {b"after", BODY}
    assert reading.kinds


def test_fragments_are_not_kept_for_ever(tmp_path):
    first, second = pieces_of(SEGMENT, 800)
    late = pcap_header() + pcap_record(first) + pcap_record(second, seconds=1_700_000_002)
    reading = read_bytes(tmp_path, late)
    assert (reading.rows, set(reading.kinds)) == ([], {"fragment"})


@pytest.mark.parametrize("before", [[0], [0, 0, 1]])
def test_an_identification_that_is_used_again(tmp_path, before):
    """The last fragment of the packet before is missing, or its first one was captured twice."""
    old, later = pieces_of(SEGMENT, 800), BODY[::-1]
    packets = [*(old[index] for index in before), *pieces_of(tcp(later), 800)]
    reading = read_bytes(tmp_path, pcap(packets))
    is_complete = 1 in before
    assert reading.payloads == [*[BODY] * is_complete, later]
    assert reading.kinds == ["fragment"] * (not is_complete)


def test_what_waits_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(fragments, "PACKETS", 10)
    packets = []
    for number in range(100):
        packet = bytearray(pieces_of(SEGMENT, 800)[0])
        packet[18:20] = struct.pack(">H", number)
        packets.append(bytes(packet))
    ends = [bytearray(pieces_of(SEGMENT, 800)[1]) for _ in range(2)]
    ends[0][18:20], ends[1][18:20] = struct.pack(">H", 5), struct.pack(">H", 95)
    reading = read_bytes(tmp_path, pcap([*packets, *map(bytes, ends)]))
    assert reading.payloads == [BODY]  # the newest were kept
    assert sum(int(p.detail.split()[0]) for p in reading.problems) == 100


@settings(max_examples=150, suppress_health_check=ANY_FOLDER)
@given(
    packet=st.sampled_from([*TUNNELS.values(), *pieces_of(SEGMENT[:40], 16)]),
    altered=st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), max_size=4),
    size=st.integers(0, 160),
)
def test_nothing_is_read_behind_the_captured_bytes(tmp_path, packet, altered, size):
    check_bytes_behind(tmp_path, packet, altered, size)


def test_random_bytes_behind_each_tunnel_are_read_without_an_exception(tmp_path):
    rng = np.random.default_rng(2)
    packets = [
        packet[: int(cut)] + rng.bytes(60)
        for packet in TUNNELS.values()
        for cut in rng.integers(14, len(packet), 60)
    ]
    assert read_bytes(tmp_path, pcap(packets)).packets_seen == len(packets)


def made_by_scapy() -> list[bytes]:
    """TCP in each tunnel that scapy writes, some of it in fragments."""
    scapy = pytest.importorskip("scapy.all", reason="scapy is not installed")
    from scapy.contrib.erspan import ERSPAN_II, ERSPAN_III
    from scapy.contrib.geneve import GENEVE
    from scapy.contrib.gtp import GTP_U_Header
    from scapy.contrib.mpls import MPLS

    rng = random.Random(5)
    v4 = {"src": "192.0.2.1", "dst": "192.0.2.2"}
    outer = scapy.Ether(src="02:00:00:00:00:03", dst="02:00:00:00:00:04")
    packets = []
    for number in range(120):
        segment = scapy.TCP(
            sport=1000 + number, dport=9092, seq=number, flags="PA"
        ) / rng.randbytes(rng.choice([0, 5, 1400]))
        ip = scapy.IP(src="10.1.0.1", dst="10.1.0.2", id=number) / segment
        ip6 = scapy.IPv6(src="2001:db8::1", dst="2001:db8::2") / segment
        inner = rng.choice([ip, ip6])
        link = scapy.Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / inner
        base = scapy.IP(id=number, **v4)
        base6 = scapy.IPv6(src="2001:db8:1::1", dst="2001:db8:1::2")
        port = 50000
        made = [
            base / scapy.UDP(sport=port, dport=4789) / scapy.VXLAN(vni=7) / link,
            base6 / scapy.UDP(sport=port, dport=4789) / scapy.VXLAN(vni=7) / link,
            base / scapy.UDP(sport=port, dport=6081) / GENEVE(vni=7) / link,
            base / scapy.UDP(sport=port, dport=2152) / GTP_U_Header(teid=1, gtp_type=255) / ip,
            base / scapy.GRE(key_present=1, key=9) / inner,
            base / scapy.GRE(chksum_present=1, seqnum_present=1) / inner,
            base / scapy.GRE(proto=0x88BE, seqnum_present=1) / ERSPAN_II(session_id=4) / link,
            base / scapy.GRE(proto=0x22EB, seqnum_present=1) / ERSPAN_III(session_id=4) / link,
            base / inner,
            base6 / inner,
        ]
        packet = rng.choice(made)
        if rng.random() < 0.3 and packet.version == 4:
            packets += [outer / piece for piece in scapy.fragment(packet, fragsize=600)]
        else:
            packets.append(outer / packet)
        packets.append(outer / MPLS(label=5, s=0) / MPLS(label=6, s=1) / ip)
        packets.append(outer / scapy.PPPoE(sessionid=1) / scapy.PPP() / ip)
    return [scapy.raw(packet) for packet in packets]


@pytest.mark.slow
@needs_tshark
def test_equal_to_tshark(tmp_path):
    packets = made_by_scapy()
    reading = read_bytes(tmp_path, pcap(packets))
    fields = ("frame.number", "tcp.srcport", "tcp.seq_raw", "tcp.len", "tcp.payload")
    options = ["-Y", "tcp", "-o", "tcp.desegment_tcp_streams:FALSE"]
    expected = [
        (*map(int, numbers), bytes.fromhex(payload))
        for *numbers, payload in tshark(tmp_path / "capture", fields, *options)
    ]
    assert reading.problems == []
    assert len(expected) == 360
    assert [
        (row.number, row.src_port, row.seq, row.length, row.payload) for row in reading.rows
    ] == expected
