"""A short fuzzing, the same every time, and every finding of the long ones (`make fuzz`)."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.__main__ import ROOT, rescue
from tests.fuzz.fuzz_mutations import mutated
from tests.fuzz.fuzz_one import LAST
from tests.fuzz.fuzz_targets import TARGETS, Target

FINDINGS = sorted((Path(__file__).parent / "findings").glob("*-*"))
"""Inputs by the name of their target: TARGET-what."""
INPUTS = {
    "packets": 400,
    "tables": 8,
    "request": 1_500,
    "response": 1_000,
    "records": 400,
    "native": 3_000,
    "tls": 300,
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_a_few_inputs(target: Target) -> None:
    seeds = list(target.seeds(True))
    for seed in seeds:
        target.run(seed[: target.longest])
    chance = random.Random(target.name)
    for _ in range(INPUTS[target.name]):
        target.run(mutated(chance.choice(seeds), seeds, chance)[: target.longest])


def test_an_input_that_ends_the_process_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / f"records-{LAST}"
    code = (
        "import os, pathlib, sys; from tests.fuzz.fuzz_one import Kept\n"
        "kept = Kept(pathlib.Path(sys.argv[1]), 100)\n"
        "kept.keep(b'one before that was longer'); kept.keep(b'deadly'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, check=False)
    rescue(path)
    (finding,) = tmp_path.iterdir()
    assert finding.name.startswith("records-crash-")
    assert finding.read_bytes() == b"deadly"


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: path.name)
def test_findings(path: Path) -> None:
    TARGETS[path.name.partition("-")[0]].run(path.read_bytes())
