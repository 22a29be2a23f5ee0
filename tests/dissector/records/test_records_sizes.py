"""The decompressed size of a batch is the size of the same batch without compression."""

from __future__ import annotations

import numpy as np
import pytest

from dissector.byteview import ContiguousBytes
from dissector.records.batch_reader import read_batches
from dissector.records.codecs import Limits
from dissector.records.record_reader import decompressed_sizes
from tests.dissector.records.records_writers import WRITERS, Entry, written

ENTRIES = [Entry(1_700_000_000_000 + n, b"key", b"value " * 50) for n in range(40)]
WRAPPER = {0: 26, 1: 34, 2: 0}
"""A compressed message set is one message more: offset, size, and its header."""


def sizes(data: bytes, limits: Limits | None = None) -> list[int]:
    space = ContiguousBytes.of(data)
    batches = read_batches(space, np.array([0]), np.array([len(data)]))
    result: list[int] = decompressed_sizes(space, batches, limits).tolist()
    return result


@pytest.mark.parametrize(
    ("magic", "name", "codec"), [(m, n, c) for m in (0, 1, 2) for n, c in written(m) if c]
)
def test_the_size_is_that_of_the_batch_without_a_codec(magic: int, name: str, codec: int) -> None:
    plain = WRITERS[name](magic, 0, ENTRIES)
    packed = WRITERS[name](magic, codec, ENTRIES)
    assert len(packed) < len(plain)
    assert sizes(packed) == [len(plain) + WRAPPER[magic]]


def test_an_uncompressed_batch_has_its_own_size() -> None:
    plain = WRITERS["kafka-python"](2, 0, ENTRIES)
    assert sizes(plain * 2) == [len(plain)] * 2


def test_cut_or_damaged_batches_have_no_size() -> None:
    packed = WRITERS["kafka-python"](2, 1, ENTRIES)
    damaged = packed[:70] + b"\xff" * 20 + packed[90:]
    whole = len(WRITERS["kafka-python"](2, 0, ENTRIES))
    assert sizes(packed + damaged + packed + packed[:-5]) == [whole, -1, whole, -1]


def test_batches_that_decompress_too_large_have_no_size() -> None:
    packed = WRITERS["kafka-python"](2, 1, ENTRIES)
    assert sizes(packed, Limits(batch_bytes=100)) == [-1]
