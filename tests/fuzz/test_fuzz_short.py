"""A short fuzzing, the same every time, and every finding of the long ones (`make fuzz`)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.fuzz_mutations import mutated
from tests.fuzz.fuzz_targets import TARGETS, Target

FINDINGS = sorted((Path(__file__).parent / "findings").glob("*-*"))
"""Inputs by the name of their target: TARGET-what."""
INPUTS = {
    "packets": 400,
    "tables": 8,
    "request": 1_500,
    "response": 1_000,
    "records": 400,
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


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: path.name)
def test_findings(path: Path) -> None:
    TARGETS[path.name.partition("-")[0]].run(path.read_bytes())
