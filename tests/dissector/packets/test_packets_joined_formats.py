"""Files of both formats, joined by `cat`."""

from __future__ import annotations

import pytest

from dissector.packets import open_packets
from dissector.packets.formats import joined_formats
from tests.dissector.packets.packet_bytes import (
    frame,
    ipv4,
    ng_enhanced,
    ng_interface,
    ng_section,
    pcap,
    pcap_header,
    pcap_record,
    read_bytes,
    tcp,
)

FIRST = [frame(b"first %d" % number, seq=number) for number in range(4)]
SECOND = [ipv4(tcp(b"second %d" % number, seq=number)) for number in range(5)]
SECONDS = 1_700_000_000
PAYLOADS = [packet[54:] for packet in FIRST], [packet[40:] for packet in SECOND]


def pcap_file(order: str = "<", magic: int = 0xA1B2C3D4) -> bytes:
    records = (pcap_record(packet, order=order) for packet in FIRST)
    return pcap_header(order=order, magic=magic) + b"".join(records)


def pcapng_file(order: str = "<") -> bytes:
    """The packets have an interface of their own, with another link type."""
    blocks = (ng_enhanced(packet, SECONDS * 10**6, interface=1, order=order) for packet in SECOND)
    interfaces = ng_interface(link=1, order=order) + ng_interface(link=101, order=order)
    return ng_section(order=order) + interfaces + b"".join(blocks)


@pytest.mark.parametrize("block_bytes", [50, 300, 1 << 20])
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("magic", [0xA1B2C3D4, 0xA1B23C4D])
@pytest.mark.parametrize("sequence", [(0, 1), (1, 0), (0, 1, 0, 1), (1, 0, 0, 1, 1)])
def test_joined_files(tmp_path, sequence, magic, order, block_bytes):
    files = pcap_file(order, magic), pcapng_file(order)
    content = b"".join(files[index] for index in sequence)
    reading = read_bytes(tmp_path, content, block_bytes=block_bytes)
    assert reading.problems == []
    assert reading.payloads == [payload for index in sequence for payload in PAYLOADS[index]]
    assert reading.numbers == list(range(1, len(reading.payloads) + 1))
    assert {row.time for row in reading.rows} == {SECONDS * 10**9}


@pytest.mark.parametrize("missing", [1, 30, 60])
@pytest.mark.parametrize("files", [(0, 1), (1, 0)])
def test_a_truncated_file_costs_its_last_packet(tmp_path, files, missing):
    contents = pcap_file(), pcapng_file()
    content = contents[files[0]][:-missing] + contents[files[1]]
    reading = read_bytes(tmp_path, content)
    first, second = (PAYLOADS[index] for index in files)
    assert reading.payloads[: len(first) - 1] == first[:-1]
    assert reading.payloads[-len(second) :] == second
    assert reading.kinds.count("damaged_file") == 1


@pytest.mark.parametrize("missing", [5, 30, 60])
def test_a_truncated_record_at_the_end_of_a_block(tmp_path, missing):
    """It leads into the other file, at places where records of pcap are possible."""
    content = pcap_file()[:-missing] + pcapng_file()
    for block_bytes in range(20, 700, 9):
        reading = read_bytes(tmp_path, content, block_bytes=block_bytes)
        known = [each for each in reading.payloads if each in PAYLOADS[0][:-1] + PAYLOADS[1]]
        assert known == PAYLOADS[0][:-1] + PAYLOADS[1], block_bytes


@pytest.mark.parametrize("block_bytes", [50, 100, 300, 1 << 20])
@pytest.mark.parametrize("behind", [0, 1, 2, 3])
def test_a_file_inside_a_packet(tmp_path, behind, block_bytes):
    packets = [frame(pcapng_file() + pcap_file()[:6], seq=1), *FIRST[:behind]]
    content = pcap_header() + b"".join(map(pcap_record, packets))
    reading = read_bytes(tmp_path, content, block_bytes=block_bytes)
    assert reading.payloads == [packet[54:] for packet in packets]
    assert not reading.problems


def test_interfaces_are_numbered_in_the_whole_file(tmp_path):
    path = tmp_path / "joined"
    path.write_bytes(pcap_file() + pcapng_file() + pcap(FIRST))
    source = open_packets([path])
    records = source.read_records()
    assert records is not None
    assert records[0].columns.interface.tolist() == [0] * 4 + [2] * 5 + [3] * 4
    assert [each.link for each in source.interfaces(0)] == [1, 1, 101, 1]
    source.close()


def test_changes_of_the_format_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(joined_formats, "_CHANGES", 1)
    reading = read_bytes(tmp_path, pcap_file() + pcapng_file() + pcap_file())
    assert reading.payloads == [*PAYLOADS[0], *PAYLOADS[1]]
    assert reading.kinds == ["truncated_file"]
