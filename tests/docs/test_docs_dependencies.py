"""`make test-oldest` tests the lower bounds; a page lists where a package is used."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from tools.lower_bounds import lower_bounds, pins, requirement

ROOT = Path(__file__).parents[2]
DOCUMENT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, GROUPS = DOCUMENT["project"], DOCUMENT["dependency-groups"]
IMPORTED = {"scapy": "scapy", "dpkt": "dpkt", "python-snappy": "snappy"}
PLACES = ("dissector", "analysis", "tests", "bench", "tools")
"""Folders with Python code."""


def test_lower_bounds_are_at_most_the_pinned_versions() -> None:
    bounds = lower_bounds(PROJECT)
    assert all(bounds.values())
    newest = pins()
    for name, bound in bounds.items():
        assert Version(bound) <= Version(newest[name]), name


def test_the_lock_file_pins_all_packages_of_all_groups() -> None:
    lines = [line for group in GROUPS.values() for line in group if isinstance(line, str)]
    assert {requirement(line)[0] for line in lines} <= set(pins())


@pytest.mark.parametrize("package", IMPORTED)
def test_the_page_has_the_use_of_each_package(package: str) -> None:
    page = (ROOT / "docs" / "reference" / "dependencies.md").read_text()
    (row,) = re.findall(rf"^\| {package} \| .*$", page, re.MULTILINE)
    used = {place for place in PLACES if imports(ROOT / place, IMPORTED[package])}
    assert {place for place in PLACES if f"`{place}" in row} == used


def imports(folder: Path, module: str) -> bool:
    """Whether code in the folder imports a module, at its top or in a function."""
    files = (path.read_text() for path in folder.rglob("*.py"))
    return any(module in names(ast.parse(text)) for text in files if module in text)


def names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]
        elif isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.importorskip":
            yield str(ast.literal_eval(node.args[0])).split(".")[0]
