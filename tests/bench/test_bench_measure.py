"""Processes run in turn, and failures are reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.measure import in_turn
from bench.report import table

FAIL = "import sys; sys.exit('no such luck')"


def test_programs_run_in_turn_and_failures_are_reported(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write = f"import pathlib, sys; pathlib.Path({str(log)!r}).open('a').write(sys.argv[1])"
    commands = {
        "a": [sys.executable, "-c", write, "a"],
        "fails": [sys.executable, "-c", FAIL],
        "missing": [str(tmp_path / "missing")],
        "b": [sys.executable, "-c", write, "b"],
    }
    results = in_turn(commands, 3, lambda text: None)
    assert log.read_text() == "ababab"
    assert {name: series.failure for name, series in results.items()} == {
        "a": "",
        "fails": "no such luck",
        "missing": "missing is not installed",
        "b": "",
    }
    assert len(results["a"].runs) == 3
    assert len(results["fails"].runs) == 1
    assert results["a"].memory > 1_000_000


def test_a_table_is_aligned_and_short_rows_are_filled() -> None:
    assert table(["what", "s"], [["a", "10.0"], ["longer"]]).splitlines() == [
        "| what   |    s |",
        "| ------ | ---: |",
        "| a      | 10.0 |",
        "| longer |      |",
    ]


def test_the_measuring_process_stays_small() -> None:
    """The kernel counts its memory at the start of a child as the child's."""
    small = "import sys; import bench.__main__; assert not {'numpy', 'dissector'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", small], check=True)
