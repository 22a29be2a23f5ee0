"""Packets come out of bundles as they went in, in order, those of a connection in one share."""

from __future__ import annotations

from collections import defaultdict

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

import numpy as np
import pyarrow as pa

from analysis.spark import packets
from analysis.spark.packets import BundleSource
from dissector.packets import open_packets
from dissector.packets.block import PacketBlock
from tests.analysis.spark.dealing import CAPTURES

FIELDS = ("capture", "time", "src_high", "src_low", "dst_high", "dst_low", "src_port", "dst_port",
          "seq", "ack", "flags", "window", "captured", "length")  # fmt: skip
SHARES = 3


def rows(block: PacketBlock) -> list[tuple[object, ...]]:
    """Each packet's number, header fields and payload."""
    columns = [getattr(block, name).tolist() for name in ("number", *FIELDS)]
    payloads = (
        block.data[at : at + size].tobytes()
        for at, size in zip(block.payload.tolist(), block.captured.tolist(), strict=True)
    )
    return list(zip(*columns, payloads, strict=True))


@pytest.mark.parametrize("name", ["kafka-4-net-vxlan", "kafka-4-cut-snaplen", "kafka-4-sasl"])
def test_there_and_back(name: str) -> None:
    source = open_packets([CAPTURES / f"{name}.pcap.zst"], block_bytes=50_000)
    sent, bundles = [], defaultdict(list)
    while (block := source.read(0)) is not None:
        position = np.maximum.accumulate(block.time)
        made = packets.bundles(block, position, 0, SHARES)
        for index, share in enumerate(made["share"].to_pylist()):
            bundles[share].append(made.slice(index, 1))
        sent += rows(block)
    found = []
    ends: dict[object, int] = {}
    for share, parts in bundles.items():
        back = BundleSource()
        back.take([packets.empty(share), *parts])
        while (block := back.read(100)) is not None:
            mine = rows(block)
            assert (np.diff(block.time) >= 0).all()
            for row in mine:
                ends_of = frozenset({(row[3], row[4], row[7]), (row[5], row[6], row[8])})
                assert ends.setdefault(ends_of, share) == share
            found += mine
    assert sorted(found) == sorted(sent)
    assert len({*ends.values()}) > 1


def test_a_block_of_which_nothing_is_wanted() -> None:
    block = open_packets([CAPTURES / "kafka-4-java.pcap.zst"]).read(0)
    assert block is not None
    none = packets.chosen(block, np.zeros(len(block), np.bool_))
    made = packets.bundles(none, np.zeros(0, np.int64), 0, SHARES)
    assert len(made) == 0
    assert made.schema == pa.schema(packets.SCHEMA)
