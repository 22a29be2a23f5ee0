"""Records of independent writers are read byte for byte, for each magic and codec."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dissector.records.decode import decode_records
from tests.dissector.records.records_writers import (
    NAMES,
    WRITERS,
    Entry,
    entries,
    expected,
    kio,
    read,
    written,
)

CASES = [(magic, name, codec) for magic in (0, 1, 2) for name, codec in written(magic)]
QUICK = settings(
    max_examples=10,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize(("magic", "name", "codec"), CASES)
@given(written=entries())
@QUICK
def test_written_records_are_read(magic: int, name: str, codec: int, written: list[Entry]) -> None:
    data = WRITERS[name](magic, codec, written)
    assert read(data) == expected(magic, written)
    batches = decode_records(data)
    assert {batch.magic for batch in batches} == {magic}
    # kafka-python leaves batches alone that compression makes no smaller.
    assert {batch.codec for batch in batches} <= {NAMES[codec], "none"}
    assert sum(batch.size for batch in batches) == len(data)


@given(
    written=entries(seconds=True),
    base=st.integers(0, 1 << 40),
    gaps=st.lists(st.integers(1, 100_000), min_size=8, max_size=8),
)
@QUICK
def test_kio_with_gaps_between_offsets(written: list[Entry], base: int, gaps: list[int]) -> None:
    offsets = [base + sum(gaps[:index]) for index in range(len(written))]
    data = kio(written, offsets, producer_id=7, producer_epoch=3, base_sequence=11, leader_epoch=5)
    records = read(data)
    assert [record.offset for record in records] == offsets
    wanted = [(entry.timestamp, entry.key, entry.value, entry.headers) for entry in written]
    assert [(each.timestamp, each.key, each.value, each.headers) for each in records] == wanted
    (batch,) = decode_records(data)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 11)
    assert (batch.leader_epoch, batch.base_offset, batch.last_offset) == (5, base, offsets[-1])
    assert batch.max_timestamp == max(entry.timestamp for entry in written)


@pytest.mark.parametrize(("magic", "name", "codec"), CASES)
def test_many_and_large_records(magic: int, name: str, codec: int) -> None:
    sizes = [0, 1, 12, 13, 62, 63, 64, 8_180, 8_200, 70_000, 700_000, 5]
    written = [
        Entry(1_700_000_000_000 + number * 61, b"k" * (number % 150), b"%d" % number * size)
        for number, size in enumerate(sizes * 3 + list(range(700)))
    ]
    data = WRITERS[name](magic, codec, written)
    assert {batch.codec for batch in decode_records(data)} == {NAMES[codec]}
    assert read(data) == expected(magic, written)


@given(parts=st.lists(st.tuples(st.sampled_from(CASES), entries(most=3)), max_size=5))
@QUICK
def test_a_field_of_many_kinds(parts: list[tuple[tuple[int, str, int], list[Entry]]]) -> None:
    data = b"".join(WRITERS[name](magic, codec, written) for (magic, name, codec), written in parts)
    wanted = [record for (magic, _, _), written in parts for record in expected(magic, written)]
    assert read(data) == wanted
