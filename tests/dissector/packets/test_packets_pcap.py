"""pcap files on literal bytes: variants, cuts, damage."""

import shutil
import struct
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.errors import CaptureError
from dissector.packets.formats import capture_reader
from dissector.packets.formats import pcap as pcap_module
from tests.dissector.packets.packet_bytes import (
    ANY_FOLDER,
    check_altered_byte,
    frame,
    pcap,
    pcap_header,
    pcap_record,
    read,
    read_bytes,
)

SECOND = 10**9


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("magic", "unit"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1)])
def test_byte_orders_and_units(tmp_path, order, magic, unit):
    content = pcap_header(order=order, magic=magic)
    content += pcap_record(frame(b"x"), seconds=5, fraction=123456, order=order)
    row = read_bytes(tmp_path, content).rows[0]
    assert row.time == 5 * SECOND + 123456 * unit
    assert (row.number, row.payload) == (1, b"x")


@pytest.mark.parametrize("order", ["<", ">"])
def test_kuznetzov_records_have_eight_more_bytes(tmp_path, order):
    packets = [frame(b"one"), frame(b"two")]
    content = pcap_header(order=order, magic=0xA1B2CD34)
    for packet in packets:
        head = struct.pack(order + "IIII", 5, 7, len(packet), len(packet))
        content += head + bytes(8) + packet
    reading = read_bytes(tmp_path, content)
    assert reading.payloads == [b"one", b"two"]
    assert reading.rows[0].time == 5 * SECOND + 7000


def test_the_link_type_is_the_lower_half_of_its_field(tmp_path):
    content = pcap_header(link=0x14000001) + pcap_record(frame(b"x"))
    assert read_bytes(tmp_path, content).payloads == [b"x"]


def test_the_latest_time_of_a_record(tmp_path):
    content = pcap_header() + pcap_record(frame(), seconds=0xFFFFFFFF, fraction=999999)
    assert read_bytes(tmp_path, content).rows[0].time == 0xFFFFFFFF * SECOND + 999999000


@pytest.mark.parametrize("size", range(24))
def test_a_cut_file_header(tmp_path, size):
    with pytest.raises(CaptureError, match="empty" if not size else "is not a"):
        read_bytes(tmp_path, pcap_header()[:size])


def test_no_packets(tmp_path):
    reading = read_bytes(tmp_path, pcap_header())
    assert (reading.rows, reading.problems) == ([], [])


PACKETS = [frame(bytes([65 + i]) * (i * 37 % 90), seq=i) for i in range(12)]
CONTENT = pcap(PACKETS)
ENDS = 24 + np.cumsum([16 + len(packet) for packet in PACKETS])


@settings(max_examples=75, suppress_health_check=ANY_FOLDER)
@given(size=st.integers(24, len(CONTENT)), block_bytes=st.sampled_from([16, 100, 1 << 20]))
def test_a_file_cut_anywhere_gives_every_whole_packet(tmp_path, size, block_bytes):
    reading = read_bytes(tmp_path, CONTENT[:size], block_bytes=block_bytes)
    whole = int((size >= ENDS).sum())
    assert reading.numbers == list(range(1, whole + 1))
    end = int(ENDS[whole - 1]) if whole else 24
    assert reading.bytes_read == size
    assert reading.damage == [("truncated_file", end, size - end)] * (size > end)
    assert [each.capture for each in reading.problems] == reading.names * (size > end)


@settings(max_examples=30, suppress_health_check=ANY_FOLDER)
@given(block_bytes=st.integers(1, 3000), reserve=st.integers(0, 300))
def test_blocks_of_any_size_give_the_same_rows(tmp_path, block_bytes, reserve):
    whole = read_bytes(tmp_path, CONTENT)
    assert len(whole.rows) == 12
    parts = read_bytes(tmp_path, CONTENT, block_bytes=block_bytes, reserve=reserve)
    assert parts.rows == whole.rows


def test_zeros_after_the_header(tmp_path):
    reading = read_bytes(tmp_path, pcap_header() + bytes(100_000))
    assert reading.damage == [("damaged_file", 24, 100_000)]


def test_zeros_after_packets(tmp_path):
    reading = read_bytes(tmp_path, CONTENT + bytes(5000))
    assert len(reading.rows) == 12
    assert reading.damage == [("damaged_file", len(CONTENT), 5000)]


def test_zeros_between_packets(tmp_path):
    """As a file has them that was written over a network drive, or by two at once."""
    content = CONTENT + bytes(9001) + CONTENT[24:]
    reading = read_bytes(tmp_path, content, block_bytes=4096)
    assert len(reading.rows) == 24
    assert reading.damage == [("damaged_file", len(CONTENT), 9001)]


@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x7FFFFFFF, (1 << 18) + 1])
def test_an_absurd_length(tmp_path, length):
    at = int(ENDS[3])
    content = bytearray(CONTENT)
    content[at + 8 : at + 12] = struct.pack("<I", length)
    reading = read_bytes(tmp_path, bytes(content))
    assert reading.payloads == [p[54:] for i, p in enumerate(PACKETS) if i != 4]
    assert reading.damage == [("damaged_file", at, ENDS[4] - ENDS[3])]


@pytest.mark.parametrize("block_bytes", [1 << 20, 200])
@pytest.mark.parametrize("wrong", [1, -1, 17, 40, 200, 700, 5000])
def test_a_wrong_length_costs_one_packet(tmp_path, wrong, block_bytes):
    """The chain goes astray behind the packet whose length is wrong, and the next one is found."""
    damaged = 4
    at = int(ENDS[damaged - 1])
    content = bytearray(CONTENT)
    content[at + 8 : at + 12] = struct.pack("<I", max(len(PACKETS[damaged]) + wrong, 0))
    reading = read_bytes(tmp_path, bytes(content), block_bytes=block_bytes)
    seqs = [row.seq for row in reading.rows]
    assert [seq for seq in seqs if seq != damaged] == [i for i in range(12) if i != damaged]
    assert "damaged_file" in reading.kinds


@settings(max_examples=100, suppress_health_check=ANY_FOLDER)
@given(at=st.integers(24, len(CONTENT) - 1), value=st.integers(0, 255))
def test_one_altered_byte_costs_one_packet(tmp_path, at, value):
    check_altered_byte(tmp_path, CONTENT, PACKETS, ENDS, at, value)


@settings(max_examples=100, suppress_health_check=ANY_FOLDER)
@given(junk=st.binary(max_size=3000), block_bytes=st.sampled_from([64, 1 << 20]))
def test_any_bytes_after_a_header(tmp_path, junk, block_bytes):
    reading = read_bytes(tmp_path, pcap_header() + junk, block_bytes=block_bytes)
    assert reading.bytes_read == 24 + len(junk)


def test_a_file_is_given_up_where_it_is_damaged_too_often(tmp_path, monkeypatch):
    monkeypatch.setattr(capture_reader, "DAMAGE_LIMIT", 3)
    content = CONTENT + (bytes(100) + CONTENT[24:]) * 5
    reading = read_bytes(tmp_path, content)
    assert len(reading.rows) == 12 * 4
    assert reading.kinds == ["damaged_file"] * 4


def test_a_file_is_given_up_where_nothing_is_found_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr(capture_reader, "SEARCH_BYTES", 10_000)
    content = CONTENT + bytes(50_000) + CONTENT[24:]
    reading = read_bytes(tmp_path, content, block_bytes=1000)
    assert len(reading.rows) == 12
    (problem,) = reading.problems
    assert (problem.kind, problem.offset) == ("damaged_file", len(CONTENT))


def test_unlikely_records_are_read_where_the_chain_holds(tmp_path):
    """Months between packets, times of 0, and writers that count a check sequence only once."""
    content = pcap_header()
    for i, packet in enumerate(PACKETS):
        content += pcap_record(packet, seconds=i * 10_000_000, length=len(packet) - i % 3)
    reading = read_bytes(tmp_path, content, block_bytes=300)
    assert [row.seq for row in reading.rows] == list(range(12))
    assert reading.problems == []


def test_an_unlikely_record_at_the_end_of_a_batch(tmp_path, monkeypatch):
    monkeypatch.setattr("dissector.packets.formats.pcap._SCAN_LIMIT", 4)
    content = bytearray(CONTENT)
    at = int(ENDS[2])
    content[at : at + 4] = struct.pack("<I", 1)  # the fourth packet is of 1970
    assert len(read_bytes(tmp_path, bytes(content)).rows) == 12


def with_longer_records(extra: int, magic: int, order: str) -> bytes:
    """As writers of the 1990s had them: record headers with more fields behind the usual ones."""
    content = pcap_header(order=order, magic=magic)
    for i, packet in enumerate(PACKETS):
        record = pcap_record(packet, seconds=1_700_000_000 + i, order=order)
        content += (
            record[:16] + struct.pack(order + "IHBBI", 2, 0x0800, 4, 0, 0)[:extra] + record[16:]
        )
    return content


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("block_bytes", [100, 1 << 20])
@pytest.mark.parametrize(
    ("extra", "magic"),
    [(8, 0xA1B2CD34), (12, 0xA1B2CD34), (8, 0xA1B2C3D4), (4, 0xA1B2C3D4)],
    ids=["Kuznetzov", "SuSE 6.3", "Red Hat 6.1", "Nokia"],
)
def test_old_variants(tmp_path, extra, magic, order, block_bytes):
    content = with_longer_records(extra, magic, order)
    reading = read_bytes(tmp_path, content, block_bytes=block_bytes)
    assert reading.payloads == [packet[54:] for packet in PACKETS]
    assert reading.problems == []


@pytest.mark.parametrize("form", ["modpcap", "suse6_3pcap", "rh6_1pcap", "nokiapcap"])
@pytest.mark.skipif(shutil.which("editcap") is None, reason="editcap is not installed")
def test_old_variants_of_editcap(tmp_path, form):
    (tmp_path / "usual").write_bytes(CONTENT)
    command = ["editcap", "-F", form, tmp_path / "usual", tmp_path / "old"]
    subprocess.run(command, check=True, capture_output=True)
    assert read(tmp_path / "old").payloads == [packet[54:] for packet in PACKETS]


APPENDED = [frame(b"appended %d" % number * number) for number in range(1, 6)]
LATER = {"seconds": 1_700_000_100, "fraction": 1000}


def appended(link: int, magic: int, order: str) -> bytes:
    """Another file, of Ethernet or of IP without a link layer."""
    packets = [packet[14:] if link == 101 else packet for packet in APPENDED]
    records = (pcap_record(packet, order=order, **LATER) for packet in packets)
    return pcap_header(link=link, magic=magic, order=order) + b"".join(records)


@pytest.mark.parametrize("link", [1, 101])
@pytest.mark.parametrize("magic", [0xA1B2C3D4, 0xA1B23C4D])
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("block_bytes", [100, 1 << 20])
def test_a_file_that_was_appended(tmp_path, link, magic, order, block_bytes):
    content = CONTENT + appended(link, magic, order) + CONTENT
    reading = read_bytes(tmp_path, content, block_bytes=block_bytes)
    assert reading.problems == []
    assert reading.payloads == [packet[54:] for packet in [*PACKETS, *APPENDED, *PACKETS]]
    assert reading.numbers == list(range(1, 2 * len(PACKETS) + len(APPENDED) + 1))
    unit = 1 if magic == 0xA1B23C4D else 1000
    times = [row.time for row in reading.rows][len(PACKETS) :][: len(APPENDED)]
    assert times == [1_700_000_100 * SECOND + 1000 * unit] * len(APPENDED)


def test_appended_files_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(pcap_module, "_FILE_LIMIT", 3)
    reading = read_bytes(tmp_path, CONTENT * 5)
    assert reading.payloads == [packet[54:] for packet in PACKETS] * 5
    assert reading.kinds == ["damaged_file"]


YEARS = 4 * 365 * 86400


@pytest.mark.parametrize("times", [(0, YEARS, YEARS + 1), (0, 1, YEARS), (0, YEARS, 2 * YEARS)])
@pytest.mark.parametrize("block_bytes", [100, 1 << 20])
def test_a_pause_of_years_is_not_damage(tmp_path, times, block_bytes):
    """Though a packet before the pause holds what could be records, of a time near its own."""
    inside = b"".join(pcap_record(frame(b"inside"), seconds=1_700_000_000 + n) for n in range(2))
    packets = [frame(inside, seq=seq) for seq in range(3)]
    content = pcap_header() + b"".join(
        pcap_record(packet, seconds=1_700_000_000 + time)
        for packet, time in zip(packets, times, strict=True)
    )
    reading = read_bytes(tmp_path, content, block_bytes=block_bytes)
    assert [row.seq for row in reading.rows] == [0, 1, 2]
    assert reading.problems == []
