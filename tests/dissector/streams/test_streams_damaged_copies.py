"""A segment with a wrong checksum was dropped by the receiver if a copy shows other bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path

import pytest

from dissector.capture import open_capture
from tests.dissector.packets.packet_bytes import pcap

RAW_IP = 101
SYN, ACK = 0x02, 0x10
CLIENT, BROKER = 40000, 9092
ADDRESSES = {
    4: (ip_address("10.0.0.1"), ip_address("10.0.0.9")),
    6: (ip_address("2001:db8::1"), ip_address("2001:db8::9")),
}
# ApiVersions v0, correlation id 1, client id "shop".
REQUEST = bytes.fromhex("0000000e 0012 0000 00000001 0004") + b"shop"
DAMAGED = REQUEST.replace(b"shop", b"shXp")
NEXT = bytes.fromhex("0000000e 0012 0000 00000002 0004") + b"shop"
OPTIONS = bytes.fromhex("0101080a 00000001 00000002")


def ones_sum(data: bytes) -> int:
    """RFC 1071: the sum of 16-bit words in one's complement."""
    padded = data + bytes(len(data) % 2)
    total = sum(struct.unpack(f">{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


Checksum = Callable[[bytes, bytes], int]
"""Of the pseudo header, and of the segment."""


def right(pseudo: bytes, segment: bytes) -> int:
    return 0xFFFF - ones_sum(pseudo + segment)


def offloaded(pseudo: bytes, _: bytes) -> int:
    """As Linux leaves it for the network card, which adds the remainder."""
    return ones_sum(pseudo)


def zero(*_: bytes) -> int:
    return 0


def wrong(pseudo: bytes, segment: bytes) -> int:
    return right(pseudo, segment) ^ 0x0101


def packet(
    payload: bytes, seq: int, ack: int, *, flags: int = ACK, is_broker: bool = False,
    version: int = 4, sent: bytes | None = None, checksum: Checksum = right, options: bytes = b"",
) -> bytes:  # fmt: skip
    """An IP packet. `sent`: the payload of which the checksum is, if it was damaged afterwards."""
    source, target = reversed(ADDRESSES[version]) if is_broker else ADDRESSES[version]
    ports = (BROKER, CLIENT) if is_broker else (CLIENT, BROKER)
    size = 20 + len(options)
    head = struct.pack(">HHIIBBH", *ports, seq, ack, size << 2, flags, 512)
    length = size + len(payload)
    pseudo = source.packed + target.packed + struct.pack(">HH", 6, length)
    remainder = options + (payload if sent is None else sent)
    number = checksum(pseudo, head + bytes(4) + remainder)
    segment = head + struct.pack(">HH", number, 0) + options + payload
    addresses = source.packed + target.packed
    if version == 6:
        return struct.pack(">IHBB", 6 << 28, length, 6, 64) + addresses + segment
    return struct.pack(">BBHHHBBH", 69, 0, 20 + length, 0, 0, 64, 6, 0) + addresses + segment


def client_ids(
    folder: Path, packets: list[bytes], version: int = 4, begin: int = 1000
) -> tuple[list[str], int]:
    """Client ids of the requests, and the number of retransmitted packets of the client. `begin`:
    the first sequence number of its payload."""
    opening = [
        packet(b"", begin - 1, 0, flags=SYN, version=version),
        packet(b"", 4999, begin, flags=SYN | ACK, is_broker=True, version=version),
        packet(b"", begin, 5000, version=version),
    ]
    path = folder / "capture.pcap"
    path.write_bytes(pcap([*opening, *packets], link=RAW_IP))
    with open_capture([path]) as capture:
        tables = capture.tables(["exchanges", "connections", "problems"])
    assert not tables["problems"].num_rows
    (retransmitted,) = tables["connections"]["client_retransmitted"].to_pylist()
    return tables["exchanges"]["client_id"].to_pylist(), retransmitted


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("options", [b"", OPTIONS])
def test_a_damaged_segment_is_replaced_by_its_retransmission(
    tmp_path: Path, version: int, options: bytes
) -> None:
    """Also if the receiver's card merged the retransmission with the next segment."""
    damaged = packet(DAMAGED, 1000, 5000, version=version, sent=REQUEST, options=options)
    again = packet(REQUEST, 1000, 5000, version=version, options=options)
    merged = packet(REQUEST + NEXT, 1000, 5000, version=version, options=options)
    assert client_ids(tmp_path, [damaged, again], version) == (["shop"], 1)
    assert client_ids(tmp_path, [damaged, merged], version) == (["shop"] * 2, 1)


@pytest.mark.parametrize("begin", [1000, 2**32 - 10])
@pytest.mark.parametrize("borders", [[20], [5, 10], [3, 4, 18, 19]])
def test_retransmissions_with_other_borders(tmp_path: Path, begin: int, borders: list[int]) -> None:
    """A sender joins and divides segments when it sends them again."""

    def send(first: int, last: int, source: bytes = REQUEST + NEXT) -> bytes:
        sent = (REQUEST + NEXT)[first:last]
        return packet(source[first:last], (begin + first) % 2**32, 5000, sent=sent)

    whole = send(0, 36, DAMAGED + NEXT)
    parts = [send(*each) for each in pairwise([0, *borders, 36])]
    assert client_ids(tmp_path, [whole, *parts], begin=begin) == (["shop"] * 2, 1)
    # Also if two capture points contain it, and behind the retransmission.
    assert client_ids(tmp_path, [whole, whole, *parts], begin=begin) == (["shop"] * 2, 2)
    assert client_ids(tmp_path, [*parts, whole, *parts], begin=begin)[0] == ["shop"] * 2
    pieces = [send(*each, DAMAGED + NEXT) for each in pairwise([0, *borders, 36])]
    assert client_ids(tmp_path, [*pieces, send(0, 36)], begin=begin)[0] == ["shop"] * 2


def test_a_damaged_segment_counts_if_copies_lack_one_of_its_bytes(tmp_path: Path) -> None:
    sent = REQUEST + NEXT
    damaged = packet(DAMAGED + NEXT, 1000, 5000, sent=sent)
    part = packet(sent[:-1], 1000, 5000)
    assert client_ids(tmp_path, [damaged, part]) == (["shXp", "shop"], 1)


def test_a_damaged_copy_behind_the_segment_is_not_used(tmp_path: Path) -> None:
    sound = packet(REQUEST, 1000, 5000)
    damaged = packet(DAMAGED + NEXT, 1000, 5000, sent=REQUEST + NEXT)
    remainder = packet(REQUEST + NEXT, 1000, 5000)
    assert client_ids(tmp_path, [sound, damaged, remainder]) == (["shop"] * 2, 1)


@pytest.mark.parametrize("size", range(len(REQUEST), len(REQUEST) + 3))
def test_sizes_that_are_odd(tmp_path: Path, size: int) -> None:
    part = (REQUEST + NEXT)[:size]
    flipped = part[:-1] + bytes([part[-1] ^ 1])
    packets = [packet(flipped, 1000, 5000, sent=part), packet(part, 1000, 5000)]
    packets.append(packet((REQUEST + NEXT)[size:], 1000 + size, 5000))
    assert client_ids(tmp_path, packets) == (["shop"] * 2, 1)


@pytest.mark.parametrize("checksum", [right, offloaded, zero])
def test_the_first_copy_counts_if_its_checksum_shows_no_damage(
    tmp_path: Path, checksum: Checksum
) -> None:
    packets = [packet(REQUEST, 1000, 5000, checksum=checksum), packet(DAMAGED, 1000, 5000)]
    assert client_ids(tmp_path, packets) == (["shop"], 1)


@pytest.mark.parametrize("checksum", [wrong, offloaded, zero])
def test_the_first_copy_counts_without_a_copy_whose_checksum_is_right(
    tmp_path: Path, checksum: Checksum
) -> None:
    """Tools that change addresses may leave the checksums of all packets as they are."""
    packets = [packet(REQUEST, 1000, 5000, checksum=wrong)]
    packets.append(packet(DAMAGED, 1000, 5000, checksum=checksum))
    assert client_ids(tmp_path, packets) == (["shop"], 1)
