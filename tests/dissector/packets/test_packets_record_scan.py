"""Following a chain from sync points gives what following it one by one gives."""

import random
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.packets import record_scan
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


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=60),
    sync_points=st.sets(st.integers(1, 300)),
)
def test_what_follow_finds_is_the_chain_as_far_as_sync_points_are_right(sizes, sync_points):
    chain = list(accumulate(sizes, initial=0))
    end = chain.pop()
    starts = [0, *sorted(at for at in sync_points if at < end)]
    step = np.ones(end, np.int64)  # from where no record begins, the walk goes on byte by byte
    step[chain] = sizes
    followed = record_scan.follow(np.array(starts), end, lambda at: at + step[at]).tolist()
    wrong = [at for at in starts if at not in chain]
    assert followed == [at for at in chain if not wrong or at < wrong[0]]


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


@pytest.fixture
def followed(monkeypatch):
    """From how many sync points each chain was followed, where there were several."""
    calls = []

    def spy(real, starts_at):
        def follow(*arguments):
            calls.append(len(arguments[starts_at]))
            return real(*arguments)

        return follow

    for form in ("pcap", "pcapng"):
        module = f"dissector.packets.{form}"
        monkeypatch.setattr(f"{module}.follow", spy(record_scan.follow, 0))
        monkeypatch.setattr(f"{module}.follow_compiled", spy(record_scan.follow_compiled, 1))
        monkeypatch.setattr(f"{module}.CHAIN_LIMIT", 1000)
    monkeypatch.setattr(record_scan, "COMPILED_LIMIT", 1000)
    return calls


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("dense", [dense_pcap, dense_pcapng])
@pytest.mark.parametrize("damage", [0, 700_000, 1_000_000])
def test_dense_captures(tmp_path, followed, dense, order, damage):
    content = dense(order)
    if damage:
        content = content[:damage] + bytes(3000) + content[damage + 2500 :]
    one_by_one = read_bytes(tmp_path, content, block_bytes=100_000)
    assert not any(starts > 1 for starts in followed)
    together = read_bytes(tmp_path, content, block_bytes=1 << 22)
    assert max(followed) > record_scan.FEWEST // 2
    assert together.rows == one_by_one.rows
    assert damage or together.problems == one_by_one.problems == []
    assert len(together.rows) > 10_000


@pytest.mark.parametrize("seed", [3, 16])
def test_a_time_that_is_damaged_itself_is_not_searched_for(tmp_path, seed):
    """Zeros over a record's time, which was read and believed: the packets behind it are of the
    time of those before it."""
    content = dense_pcap("<", seed)
    content = content[:700_000] + bytes(3000) + content[702_500:]
    for block_bytes in (100_000, 1 << 22):
        assert len(read_bytes(tmp_path, content, block_bytes=block_bytes).rows) > 11_900
