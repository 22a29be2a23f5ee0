"""Kafka's own values of murmur2 (`UtilsTest.testMurmur2`)."""

from __future__ import annotations

import numpy as np

from analysis.kafka.partitioner import default_partitions, murmur2

KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_hashes_are_those_of_kafka() -> None:
    assert murmur2([*KAFKA]).astype(np.uint32).view(np.int32).tolist() == [*KAFKA.values()]


def test_a_partition_is_not_negative() -> None:
    partitions = default_partitions([*KAFKA], np.full(len(KAFKA), 7))
    assert partitions.tolist() == [(value & 0x7FFFFFFF) % 7 for value in KAFKA.values()]


def test_no_keys() -> None:
    assert murmur2([]).tolist() == []
