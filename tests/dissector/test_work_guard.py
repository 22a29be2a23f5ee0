"""The work of Python for a capture: it counts calls, because times differ from run to run.

A stage takes a step for each kind of thing in a block, never for each thing. So the calls of one
block hardly depend on how much is in it, and a loop over messages that slips in shows at once, as
does one more pass over arrays. Counted are the functions of the project that are called, and the
calls that they make of anything else (NumPy, Arrow, builtins), by room; what libraries do inside
themselves is not, so that the numbers hold for other versions of them, and of Python.

`python -m tests.dissector.test_work_guard` writes the numbers anew, where more is meant.
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
ROOM = 1.1
"""A tenth more is let pass."""
FEW = 20
"""As many more, where a tenth is next to nothing."""

RUNS = {
    "chatter, 1 block": ("chatter-mock.pcap.zst", 1 << 26),
    "chatter, several blocks": ("chatter-mock.pcap.zst", 300_000),
    "bulk, 1 block": ("bulk-tansu.pcap.zst", 1 << 26),
    "bulk, several blocks": ("bulk-tansu.pcap.zst", 2_000_000),
}


class Counter:
    """A profiler that only counts: by room, whose modules call."""

    def __init__(self) -> None:
        self.calls: Counts[str] = Counts()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        room = room_of(frame)
        if event == "call":
            # Python 3.12 has comprehensions without a call (PEP 709).
            if room and frame.f_code.co_name.startswith("<"):
                return
            is_loop = "/_native/" in frame.f_code.co_filename  # not compiled
            room = room or (None if is_loop else frame.f_back and room_of(frame.f_back))
        if room and event in ("call", "c_call"):
            self.calls[room] += 1


def room_of(frame: FrameType) -> str | None:
    """The package or module of `dissector` that the code is in; None for other code."""
    path = frame.f_code.co_filename
    room = path[len(OWN) :].split("/")[1].removesuffix(".py") if path.startswith(OWN) else None
    return None if room == "_native" else room


def read(name: str, block: int) -> int:
    """Blocks that the recording has; its exchanges are made."""
    steps: list[int] = []
    source = open_packets([ROOT / "captures" / name], block_bytes=block)
    capture = Pipeline(source, [], progress=lambda read, total: steps.append(read))
    for _ in capture.stream(["exchanges"]):
        pass
    return len(steps) - 1  # the last step is the end


def counted(name: str, block: int) -> dict[str, int]:
    read(name, block)  # what is kept from one capture to the next is made once
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
    for room, calls in counted(*RUNS[run]).items():
        most = ROOM * expected.get(room, 0) + FEW
        assert calls <= most, f"{run}: {calls:,} calls in {room}, at most {most:,.0f}"


def test_the_runs_are_what_they_are_called() -> None:
    blocks = {run: read(*parts) for run, parts in RUNS.items()}
    assert all((count == 1) == run.endswith("1 block") for run, count in blocks.items()), blocks


def test_a_loop_over_messages_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
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
