"""A short run of `python -m tests.rewriting`, the same every time. `make fuzz` draws others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rewriting.cases import run
from tests.rewriting.runs import run_cut

COMMAND = "python -m tests.rewriting --cases 1"
"""Repeats a wrong case, with its options."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("blocks", "seed"),
    [*(("default", seed) for seed in range(20)), *(("small", seed) for seed in range(3))],
)
def test_random_networks_change_no_row(tmp_path: Path, blocks: str, seed: int) -> None:
    case = run(seed, tmp_path, blocks=blocks)
    assert case.is_equal, f"{COMMAND} --blocks {blocks} --seed {seed}\n{case}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_runs_of_random_networks_give_the_rows_of_one_process(tmp_path: Path, seed: int) -> None:
    case = run_cut(seed, tmp_path)
    assert not case.different, f"{COMMAND} --runs --seed {seed}\n{case}"
