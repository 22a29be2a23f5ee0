"""The documentation site builds without a warning."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import run

import pytest

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


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in ("index.html", "tutorial.html"):
        assert 'src="http' not in (site / page).read_text()
