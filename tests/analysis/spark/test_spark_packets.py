"""Bundles preserve packets and their order, and a connection is in one shard."""

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
from tests.analysis.spark.sharding import CAPTURES

FIELDS = ("capture", "time", "src_high", "src_low", "dst_high", "dst_low", "src_port", "dst_port",
          "seq", "ack", "flags", "window", "captured", "length")  # fmt: skip
SHARDS = 3


def rows(block: PacketBlock) -> list[tuple[object, ...]]:
    """Each packet's number, header fields and payload."""
    columns = [getattr(block, name).tolist() for name in ("number", *FIELDS)]
    payloads = (
        block.data[at : at + size].tobytes()
        for at, size in zip(block.payload.tolist(), block.captured.tolist(), strict=True)
    )
    return list(zip(*columns, payloads, strict=True))


@pytest.mark.parametrize("name", ["kafka-4-net-vxlan", "kafka-4-cut-snaplen", "kafka-4-sasl"])
def test_packets_survive_the_round_trip(name: str) -> None:
    source = open_packets([CAPTURES / f"{name}.pcap.zst"], block_bytes=50_000)
    sent, bundles = [], defaultdict(list)
    while (block := source.read(0)) is not None:
        position = np.maximum.accumulate(block.time)
        rows_of_block = packets.bundles(block, position, 0, SHARDS)
        for index, shard in enumerate(rows_of_block["shard"].to_pylist()):
            bundles[shard].append(rows_of_block.slice(index, 1))
        sent += rows(block)
    received = []
    ends: dict[object, int] = {}
    for shard, parts in bundles.items():
        back = BundleSource()
        back.take([packets.empty(shard), *parts])
        while (block := back.read(100)) is not None:
            block_rows = rows(block)
            assert (np.diff(block.time) >= 0).all()
            for row in block_rows:
                pair = frozenset({(row[3], row[4], row[7]), (row[5], row[6], row[8])})
                assert ends.setdefault(pair, shard) == shard
            received += block_rows
    assert sorted(received) == sorted(sent)
    assert len({*ends.values()}) > 1


def test_an_empty_selection_of_a_block() -> None:
    block = open_packets([CAPTURES / "kafka-4-java.pcap.zst"]).read(0)
    assert block is not None
    empty = packets.select_packets(block, np.zeros(len(block), np.bool_))
    rows_of_block = packets.bundles(empty, np.zeros(0, np.int64), 0, SHARDS)
    assert len(rows_of_block) == 0
    assert rows_of_block.schema == pa.schema(packets.SCHEMA)
