"""The documentation site builds without a warning."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from subprocess import run

import pytest

import kafka_dissector as kd
from tools.shown_output import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    built = run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr
    return folder


def test_each_page_is_built(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in ROOT.glob("docs/**/*.md")}
    built = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert {page for page in pages if page.name != "README"} <= built


def test_commands_and_functions_are_described(site: Path) -> None:
    assert "--keylog" in (site / "reference/commands.html").read_text()
    assert "DissectorError" in (site / "reference/python.html").read_text()


def test_each_class_and_function_of_python_is_described(site: Path) -> None:
    page = (site / "reference/python.html").read_text()
    named = {*kd.__all__} - {*kd.ANSWERS} - {"Direction", "OpenOptions"}
    named -= {name for name in named if not callable(getattr(kd, name))}
    assert named <= set(re.findall(r'id="\S+\.(\w+)" class="doc doc-heading"', page))


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in ("index.html", "tutorial.html"):
        assert 'src="http' not in (site / page).read_text()
