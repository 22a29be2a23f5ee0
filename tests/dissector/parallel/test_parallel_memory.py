"""Messages whose arrays lie in memory that is shared."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.parallel.memory import SMALL, Region, Slot, mapped
from dissector.streams.byteview import ScatteredBytes

FRONT, DATA, ARRAYS = 4096, 8192, 8192


@settings(deadline=None)
@given(st.lists(st.integers(0, 3000), max_size=12), st.integers(0, 20_000))
def test_arrays_come_out_as_they_went_in(lengths: list[int], room: int) -> None:
    """Wherever they lie: in the region while there is room, else in the message itself."""
    region = Region(np.zeros(room, np.uint8))
    arrays = [np.arange(length, dtype=np.int64) * 7 for length in lengths]
    unpacked = region.unpack(region.pack(arrays))
    assert all((before == after).all() for before, after in zip(arrays, unpacked, strict=True))
    assert region.end <= room


def test_what_is_in_the_region_is_not_copied() -> None:
    region = Region(mapped(1 << 16), begin=1 << 12)
    region.memory[: 1 << 12] = 7
    message = region.pack({"data": region.memory[100 : 1 << 12]})
    assert region.end == 1 << 12
    data = region.unpack(message)["data"]
    region.memory[100] = 9
    assert data[0] == 9
    assert data[1] == 7
    copied = region.unpack(message, copy=True)["data"]
    region.memory[100] = 8
    assert copied[0] == 9


def test_a_region_packs_behind_the_arrays_that_it_unpacked() -> None:
    region = Region(mapped(1 << 16), begin=64)
    message = region.pack(np.arange(1000))
    other = Region(region.memory, begin=64)
    first = other.unpack(message)
    second = region.unpack(other.pack(np.arange(1000, 2000)))
    assert (first == np.arange(1000)).all()
    assert (second == np.arange(1000, 2000)).all()


@pytest.mark.parametrize("room", [0, 1 << 16])
def test_record_batches_and_spaces(room: int) -> None:
    region = Region(np.zeros(room, np.uint8))
    batch = pa.record_batch({"a": ["one", None, "three"] * 100, "b": [[1], [], None] * 100})
    assert region.unpack(region.pack(batch[10:250])).equals(batch[10:250])
    assert (region.end > SMALL) == (room > 0)
    data = np.arange(200, dtype=np.uint8)
    space = ScatteredBytes(data, np.array([0, 50]), np.array([0, 100]), np.array([50, 50]))
    unpacked = region.unpack(region.pack((data, space)))[1]
    at = np.array([3, 48, 60])
    assert (unpacked.number(at, "i4") == space.number(at, "i4")).all()


def test_a_slot_is_not_reused_while_it_is_referenced() -> None:
    slot = Slot(mapped(FRONT + DATA + ARRAYS), FRONT, DATA)
    first = slot.take(DATA)
    assert slot.region.where(first) == FRONT
    held = first[10:20]
    del first
    assert slot.is_held
    second = slot.take(DATA)
    assert slot.region.where(second) is None
    del held
    assert not slot.is_held
    assert slot.region.where(slot.take(DATA)) == FRONT
    assert slot.region.where(slot.take(DATA + 1)) is None
