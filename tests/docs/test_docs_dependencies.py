"""`make test-oldest` tests the lower bounds; README lists where a package is used."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORTED = {"scapy": "scapy", "dpkt": "dpkt", "python-snappy": "snappy"}
PLACES = ("dissector", "analysis", "tests", "bench", "tools")
"""Folders with Python code."""


def pins(file: str) -> dict[str, Version]:
    """Pinned versions by package name."""
    lines = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / file).read_text(), re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in lines}


def lower_bounds() -> Iterator[tuple[str, Version]]:
    """Lower bounds of dependencies and extras, except PySpark."""
    extras = PROJECT["optional-dependencies"].values()
    for line in chain(PROJECT["dependencies"], *extras):
        requirement = Requirement(line)
        (bound,) = (spec.version for spec in requirement.specifier if spec.operator == ">=")
        if requirement.name != "pyspark":
            yield canonicalize_name(requirement.name), Version(bound)


def test_the_oldest_packages_are_the_lower_bounds() -> None:
    oldest, newest = pins("requirements-oldest.txt"), pins("requirements.txt")
    bounds = dict(lower_bounds())
    assert {name: oldest.get(name) for name in bounds} == bounds
    tools = {name: version for name, version in oldest.items() if name not in bounds}
    assert tools == {name: newest.get(name) for name in tools}


def test_lower_bounds_are_at_most_the_installed_versions() -> None:
    newest = pins("requirements.txt") | pins("requirements-spark.txt")
    for name, bound in lower_bounds():
        assert bound <= newest[name], name


@pytest.mark.parametrize("package", IMPORTED)
def test_the_readme_lists_where_a_package_is_used(package: str) -> None:
    readme = (ROOT / "README.md").read_text()
    (row,) = re.findall(rf"^\| {package} \| .*$", readme, re.MULTILINE)
    used = {place for place in PLACES if imports(ROOT / place, IMPORTED[package])}
    assert {place for place in PLACES if f"`{place}" in row} == used


def imports(folder: Path, module: str) -> bool:
    """Whether code in the folder imports a module, at module level or in a function."""
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
