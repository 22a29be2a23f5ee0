"""The number of Python calls for a capture. Calls are counted, because times differ between runs.

The number of calls for a block depends little on the number of its messages: each stage processes
whole columns. So a new loop over messages, or one more pass over arrays, changes the counts. The
counts include calls of the project's functions, and calls that these make of other functions
(NumPy, Arrow, builtins), by package. They exclude calls inside libraries, so that they are valid
for other versions of the libraries and of Python.

`python -m tests.dissector.test_work_guard` updates the expected counts after an intended change.
"""

from __future__ import annotations

import json
import sys
from collections import Counter as Counts
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import dissector
from dissector.packets import open_packets
from dissector.pipeline import Pipeline

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = ROOT / "tests" / "data" / "work.json"
OWN = str(Path(dissector.__file__).parent)
TOLERANCE = 1.1
"""Counts may exceed the expected ones by 10 %,"""
MARGIN = 20
"""and by this number, for packages with few calls."""

RUNS = {
    "chatter, 1 block": ("chatter-mock.pcap.zst", 1 << 26),
    "chatter, several blocks": ("chatter-mock.pcap.zst", 300_000),
    "bulk, 1 block": ("bulk-tansu.pcap.zst", 1 << 26),
    "bulk, several blocks": ("bulk-tansu.pcap.zst", 2_000_000),
}


class Counter:
    """A profile function that counts calls by the package that makes them."""

    def __init__(self) -> None:
        self.calls: Counts[str] = Counts()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        package = package_of(frame)
        if event == "call":
            # Python 3.12 has comprehensions without a call (PEP 709).
            if package and frame.f_code.co_name.startswith("<"):
                return
            is_loop = "/_native/" in frame.f_code.co_filename  # not compiled
            package = package or (None if is_loop else frame.f_back and package_of(frame.f_back))
        if package and event in ("call", "c_call"):
            self.calls[package] += 1


def package_of(frame: FrameType) -> str | None:
    """The package or module of `dissector` that the code is in; None for other code."""
    path = frame.f_code.co_filename
    package = path[len(OWN) :].split("/")[1].removesuffix(".py") if path.startswith(OWN) else None
    return None if package == "_native" else package


def read(name: str, block: int) -> int:
    """Build the exchanges of a recording. Returns its number of blocks."""
    steps: list[int] = []
    source = open_packets([ROOT / "captures" / name], block_bytes=block)
    capture = Pipeline(source, [], progress=lambda read, total: steps.append(read))
    for _ in capture.stream(["exchanges"]):
        pass
    return len(steps) - 1  # the last step is the end


def counted(name: str, block: int) -> dict[str, int]:
    read(name, block)  # fills the caches that all captures share
    counter = Counter()
    before = sys.getprofile()
    sys.setprofile(counter)
    try:
        read(name, block)
    finally:
        sys.setprofile(before)
    return dict(sorted(counter.calls.items()))


@pytest.mark.parametrize("run", RUNS)
def test_no_more_work_than_before(run: str) -> None:
    expected = json.loads(NUMBERS.read_text())[run]
    for package, calls in counted(*RUNS[run]).items():
        most = TOLERANCE * expected.get(package, 0) + MARGIN
        assert calls <= most, f"{run}: {calls:,} calls in {package}, at most {most:,.0f}"


def test_each_run_has_the_number_of_blocks_in_its_name() -> None:
    blocks = {run: read(*parts) for run, parts in RUNS.items()}
    assert all((count == 1) == run.endswith("1 block") for run, count in blocks.items()), blocks


def test_a_loop_over_messages_fails_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    from dissector.tables import exchanges

    def slow(*arguments: Any, **options: Any) -> Any:
        batch = rows(*arguments, **options)
        for index in range(len(batch)):
            hash(index)
        return batch

    rows = exchanges.exchanges
    monkeypatch.setattr(exchanges, "exchanges", slow)
    slow.__code__ = slow.__code__.replace(co_filename=f"{OWN}/tables/exchanges.py")
    with pytest.raises(AssertionError, match="calls in tables"):
        test_no_more_work_than_before("chatter, 1 block")


if __name__ == "__main__":
    numbers = {run: counted(*parts) for run, parts in RUNS.items()}
    NUMBERS.write_text(json.dumps(numbers, indent=2) + "\n")
    print(NUMBERS.read_text(), end="")
