"""The compiled loops, called with arguments that no code of this project would pass."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dissector import kernel
from tests.fuzz import fuzz_kernel

pytestmark = pytest.mark.skipif(not kernel.COMPILED, reason="no compiled loops")

LOOPS = list(fuzz_kernel.loops())


def in_a_process(code: str) -> str:
    """Output of the code in a separate process, which may crash."""
    head = "import numpy as np\nfrom dissector.kernel import loops\nZ = np.zeros\n"
    run = subprocess.run(
        [sys.executable, "-c", head + code], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def body(columns: str, levels: str = "0", nodes: str = "[3, 0, 0, 0, -1, -1, -1, -1, 1, 0]") -> str:
    return (
        f"nodes = np.array({nodes}, np.int32)\n"
        "try:\n"
        f"    loops.walk_bodies(Z(8, np.uint8), nodes, {columns}, {levels}, False, 4, 4,"
        " Z(1, np.int64), Z(1, np.int64), Z(1, np.bool_), Z(1, np.int64), Z(0, np.int64))\n"
        "    print('accepted')\n"
        "except ValueError:\n"
        "    print('refused')\n"
    )


@pytest.mark.parametrize("name", LOOPS)
def test_any_arguments(name: str) -> None:
    chance = random.Random(name)
    outcomes = [
        fuzz_kernel.call_loop(getattr(kernel.loops, name), name, chance.randbytes(150), chance)
        for _ in range(300)
    ]
    assert {True, False} == set(outcomes)


def test_any_arguments_under_sanitizers(tmp_path: Path) -> None:
    library = fuzz_kernel.compiled(tmp_path)
    if library is None:
        pytest.skip("no compiler with the address and undefined behaviour sanitizers")
    run = fuzz_kernel.sanitized(library, calls=200, seed=1)
    assert run.returncode == 0, run.stderr[-3_000:]
    assert len(run.stdout.splitlines()) == len(LOOPS)


def test_sanitizers_find_an_access_outside(tmp_path: Path) -> None:
    """The runs above would fail: loops whose check of positions is left out do."""
    sources = tmp_path / "dissector" / "kernel"
    sources.mkdir(parents=True)
    for path in (fuzz_kernel.ROOT / "dissector" / "kernel").glob("*.[ch]*"):
        text = path.read_bytes()
        if path.name == "bytespace.c":
            text = text.replace(b"inside = at[index] >= 0 && at[index] <= size - width;", b";")
        (sources / path.name).write_bytes(text)
    library = fuzz_kernel.compiled(tmp_path, sources)
    if library is None:
        pytest.skip("no compiler with the address and undefined behaviour sanitizers")
    run = fuzz_kernel.sanitized(library, calls=200, seed=1)
    assert run.returncode != 0
    assert "AddressSanitizer" in run.stderr


@pytest.mark.parametrize(
    ("columns", "levels"),
    [("2**31 - 1", "2**31 - 1"), ("2**31 - 1", "1"), ("1", "2**31 - 1"), ("257", "0"),
     ("-1", "0"), ("256", "1"), ("-2**31", "-2**31")],
)  # fmt: skip
def test_counts_whose_sum_overflows_are_refused(columns: str, levels: str) -> None:
    assert in_a_process(body(columns, levels)) == "refused"


def test_two_million_nested_structs_are_refused() -> None:
    nodes = "[[3, 0, 0, 0, -1, -1, -1, -1, at + 1, int(at < 1_999_999)] for at in range(2_000_000)]"
    assert in_a_process(body("0", nodes=nodes)) == "refused"


def test_a_node_of_two_owners_is_refused() -> None:
    """Forty such levels would be walked 2^40 times."""
    nodes = "[[3, 0, 0, 0, -1, -1, -1, -1, at + 1, min(2, 41 - at)] for at in range(42)]"
    assert in_a_process(body("0", nodes=nodes)) == "refused"


def test_structs_as_deep_as_messages_have_them_are_walked() -> None:
    nodes = "[[3, 0, 0, 0, -1, -1, -1, -1, at + 1, int(at < 30)] for at in range(31)]"
    assert in_a_process(body("0", nodes=nodes)) == "accepted"


def test_arrays_that_are_not_aligned_are_read_and_written() -> None:
    data = np.arange(64, dtype=np.uint8)
    at = np.zeros(33, np.uint8)[1:].view(np.int64)
    at[:] = [0, 8, 16, 24]
    numbers = np.zeros(33, np.uint8)[1:].view(np.int64)
    assert at.ctypes.data % 8
    assert numbers.ctypes.data % 8
    kernel.loops.read_numbers(data, at, 8, numbers)
    assert numbers.tolist() == [int.from_bytes(bytes(data[each : each + 8]), "big") for each in at]
    code, first = np.zeros(17, np.uint8)[1:].view(np.int32), np.zeros(33, np.uint8)[1:].view("i8")
    length = np.full(4, 3)
    assert kernel.loops.number_words(data, at, length, kernel.HASH_KEY, code, first) == 4
    assert code.tolist() == first.tolist() == [0, 1, 2, 3]


def test_arrays_of_another_type_are_refused() -> None:
    data, at = np.zeros(64, np.uint8), np.zeros(4, np.int64)
    for other in (
        at.astype(np.float64), at.astype(np.int32), at.astype(">i8"), at.astype(object), at[::2],
        bytes(32),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="array"):
            kernel.loops.copy_ranges(data, other, at, np.zeros(0, np.uint8))


def test_an_array_that_is_written_and_read_is_refused() -> None:
    data, memory = np.zeros(64, np.uint8), np.zeros(8, np.int64)
    at, length = memory[:4], np.ones(4, np.int64)
    with pytest.raises(ValueError, match="overlap"):
        kernel.loops.number_words(
            data, at, length, kernel.HASH_KEY, np.zeros(4, np.int32), memory[2:6]
        )
    kernel.loops.number_words(data, at, length, kernel.HASH_KEY, np.zeros(4, np.int32), memory[4:])
