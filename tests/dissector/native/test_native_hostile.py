"""The loops, called with arguments that no code of this project would pass."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

from dissector import _native
from tests.fuzz import fuzz_native

LOOPS = list(fuzz_native.loops())


@pytest.mark.parametrize("name", LOOPS)
def test_any_arguments(name: str) -> None:
    chance = random.Random(name)
    outcomes = [
        fuzz_native.call_loop(getattr(_native, name), name, chance.randbytes(150), chance)
        for _ in range(100)
    ]
    assert {True, False} == set(outcomes)


@pytest.mark.skipif(not os.environ.get("SLOW"), reason="compiles all loops again: with SLOW=1")
def test_any_arguments_under_sanitizers(tmp_path: Path) -> None:
    if fuzz_native.compiled(tmp_path) is None:
        pytest.skip("no compiler with the address and undefined behaviour sanitizers")
    run = fuzz_native.sanitized(tmp_path, calls=2_000, seed=1)
    assert run.returncode == 0, run.stderr[-3_000:]
    assert len(run.stdout.splitlines()) == len(LOOPS)


AT = np.zeros(4, np.int64)
REFUSED = {each: AT.astype(each) for each in ("f8", "i4", ">i8", "O", "S8")}
REFUSED["not contiguous"] = np.zeros(8, np.int64)[::2]


@pytest.mark.parametrize("other", REFUSED.values(), ids=REFUSED)
def test_arrays_of_another_type_or_layout_are_refused(other: np.ndarray, both: str) -> None:
    if both == "python":
        pytest.skip("memory views have items of any type, and any strides")
    data, hashes = np.zeros(64, np.uint8), np.zeros(4, np.uint64)
    with pytest.raises((ValueError, BufferError)):
        _native.hash_words(data, other, AT, _native.HASH_KEY, hashes)


@pytest.mark.parametrize("short", [1, 2, 3])
def test_columns_of_pieces_with_different_lengths_are_refused(short: int, both: str) -> None:
    """A size is read without a check of each index. It is too large here, so nothing else is read,
    and the items behind the short column are valid."""
    address, position, length = np.array([[0, 8], [0, 8], [8, 8]], np.int64)
    columns = [address, position, length]
    columns[short - 1] = columns[short - 1][:1]
    first, end = np.array([[1], [16]], np.int64)
    at, ended, behind, until = np.array([[8], [0], [0], [0]], np.int64)
    data, frames = np.full(32, 0x7F, np.uint8), np.zeros(60, np.int64)
    with pytest.raises(IndexError):
        _native.walk_frames(
            data, *columns, first, end, 100, 0, at, ended, behind, until, frames, 0
        )  # fmt: skip


def test_a_frame_that_is_missing_from_address_minus_1_on(both: str) -> None:
    """-1 is also what a compiled function returns if it raises an error."""
    address, length, start, size, end = np.array([[-2], [1], [-5], [9], [99]], np.int64)
    zero = np.zeros(1, np.int64)
    until, count, gaps = (np.zeros(1, np.int64) for _ in range(3))
    numbers = [np.full(1, 7) for _ in range(14)]
    _native.describe_frames(
        address, zero, zero, length, *[zero] * 5, end, zero, zero, zero, start, size, zero, zero,
        zero, until, count, gaps, *numbers,
    )  # fmt: skip
    readable = 5
    assert numbers[readable] == 0
