"""Dense captures: the chain of their records, in one part or in several."""

import random

import pytest

from dissector.packets.formats import pcap, pcapng
from tests.dissector.packets.packet_bytes import (
    frame,
    ng_block,
    ng_enhanced,
    ng_interface,
    ng_section,
    pcap_header,
    pcap_record,
    read_bytes,
)

RNG = random.Random()
FAKE = pcap_record(frame(b"x"), seconds=1_700_000_000) * 2
FAKE_BLOCKS = ng_enhanced(b"x", 5) * 2


def payloads(count: int) -> list[bytes]:
    """Short ones; some contain what looks like records."""
    return [
        RNG.choice([b"", RNG.randbytes(RNG.randrange(80)), bytes(40), FAKE, FAKE_BLOCKS])
        for _ in range(count)
    ]


def dense_pcap(order: str, seed: int = 5) -> bytes:
    RNG.seed(seed)
    records = (
        pcap_record(frame(payload, seq=i), fraction=i, order=order)
        for i, payload in enumerate(payloads(12_000))
    )
    return pcap_header(order=order) + b"".join(records)


def dense_pcapng(order: str) -> bytes:
    """Of two sections, with a block of another kind in each."""
    RNG.seed(3)
    content = b""
    for _ in range(2):
        content += ng_section(order=order) + ng_interface(order=order)
        blocks = [
            ng_enhanced(frame(payload, seq=i), i, order=order)
            for i, payload in enumerate(payloads(8_000))
        ]
        blocks.insert(5000, ng_block(5, bytes(16), order=order))
        content += b"".join(blocks)
    return content


@pytest.mark.sampled(5)
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("dense", [dense_pcap, dense_pcapng])
@pytest.mark.parametrize("damage", [0, 700_000, 1_000_000])
def test_dense_captures(tmp_path, monkeypatch, dense, order, damage):
    """A chain that is long, one of several short parts, and several blocks have the same rows."""
    content = dense(order)
    if damage:
        content = content[:damage] + bytes(3000) + content[damage + 2500 :]
    in_blocks = read_bytes(tmp_path, content, block_bytes=100_000)
    together = read_bytes(tmp_path, content, block_bytes=1 << 22)
    monkeypatch.setattr(pcap, "_SCAN_LIMIT", 1000)
    monkeypatch.setattr(pcapng, "CHAIN_LIMIT", 1000)
    in_parts = read_bytes(tmp_path, content, block_bytes=1 << 22)
    assert together.rows == in_blocks.rows == in_parts.rows
    assert damage or together.problems == in_blocks.problems == []
    assert len(together.rows) > 10_000


@pytest.mark.parametrize("seed", [3, 16])
def test_a_time_that_is_damaged_itself_is_not_searched_for(tmp_path, seed):
    """Zeros over a record's time, which was read and believed: the packets behind it are of the
    time of those before it."""
    content = dense_pcap("<", seed)
    content = content[:700_000] + bytes(3000) + content[702_500:]
    for block_bytes in (100_000, 1 << 22):
        assert len(read_bytes(tmp_path, content, block_bytes=block_bytes).rows) > 11_900
