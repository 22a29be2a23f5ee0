"""Workflow files name what exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_targets_groups_and_folders_exist(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    targets = re.findall(r"\bmake (\S+)", "\n".join(commands))
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    groups = re.findall(r"--group (\S+)", "\n".join(commands))
    assert set(groups) <= set(PROJECT["dependency-groups"])
    folders = re.findall(r"\btests/\S+", "\n".join(commands))
    assert all((ROOT / folder).exists() for folder in folders)


def test_all_supported_versions_of_python_are_tested() -> None:
    (tests,) = (path for path in WORKFLOWS if path.stem == "tests")
    matrix = yaml.safe_load(tests.read_text())["jobs"]["all"]["strategy"]["matrix"]
    least = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert matrix["python"][0] == least
