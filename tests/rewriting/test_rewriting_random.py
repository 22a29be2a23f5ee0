"""A short run of `python -m tests.rewriting` with a new seed each time.

A failure prints the commands that repeat the wrong cases.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.rewriting.cases import run
from tests.rewriting.runs import run_cut


@pytest.mark.slow
@pytest.mark.parametrize(("blocks", "count"), [("default", 5), ("small", 1)])
def test_random_networks_change_no_row(tmp_path: Path, blocks: str, count: int) -> None:
    first = random.SystemRandom().getrandbits(40)
    wrong = []
    for seed in range(first, first + count):
        folder = tmp_path / str(seed)
        folder.mkdir()
        case = run(seed, folder, blocks=blocks)
        if not case.is_equal:
            command = f"python -m tests.rewriting --cases 1 --blocks {blocks} --seed {seed}"
            wrong.append(f"{command}\n{case}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_runs_of_random_networks_give_the_rows_of_one_process(tmp_path: Path) -> None:
    first = random.SystemRandom().getrandbits(40)
    wrong = []
    for seed in range(first, first + 4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        case = run_cut(seed, folder)
        if case.different:
            wrong.append(f"python -m tests.rewriting --runs --cases 1 --seed {seed}\n{case}")
    assert not wrong, "\n".join(wrong)
