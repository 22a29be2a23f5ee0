"""Documentation pages match the code and the output of commands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pytest

import analysis
from analysis.answers import ANSWERS
from analysis.diagnosis.catalog import RULES
from dissector.protocol import registry
from dissector.tables import TABLES
from tools import shown_output
from tools.generate_docs import ROLES, filled_by, pages
from tools.shown_output import ROOT

DOCS = ROOT / "docs"
REGENERATE = "run: python -m tools.generate_docs"


def test_generated_pages_are_up_to_date() -> None:
    generated = pages()
    for path, text in generated.items():
        assert path.exists(), REGENERATE
        assert path.read_text() == text, f"{path.name}: {REGENERATE}"
    files = {*DOCS.glob("tables/*"), *DOCS.glob("answers/*")}
    assert files == {path for path in generated if path.parent.name in ("tables", "answers")}


@pytest.mark.parametrize("path", shown_output.pages(), ids=lambda path: path.stem)
def test_pages_show_current_command_output(path: Path) -> None:
    assert path.read_text() == shown_output.fresh(path.read_text()), REGENERATE


def test_fresh_output_replaces_old_output() -> None:
    command = "    $ kafka-dissector errors captures/kafka-4-cut.pcap.zst | head -1\n"
    text = f"Run:\n\n{command}    old\n\n    older\n\n{command}\nEnd.\n"
    lines = shown_output.fresh(text).splitlines()
    assert lines[:3] == ["Run:", "", command.rstrip()]
    assert re.match(r"    error +api ", lines[3])
    assert lines[4:] == ["", command.rstrip(), lines[3], "", "End."]


def links(path: Path) -> Iterable[str]:
    return re.findall(r"(?:\]\(|\bsrc=\"|\bhref=\")([^)#\s\"]+)", path.read_text())


def test_links_have_a_target() -> None:
    files = [ROOT / "README.md", *DOCS.rglob("*.md")]
    assert any(links(path) for path in files)
    for path in files:
        for link in links(path):
            assert "://" in link or (path.parent / link).exists(), f"{path.name}: {link}"


def test_the_readme_counts_apis_answers_and_rules() -> None:
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"all {len(registry.apis())} APIs" in readme
    assert f"one of {len(ANSWERS)} answers" in readme
    assert f"[{len(RULES)} rules](docs/rules.md)" in readme


def test_each_answer_and_table_has_a_page() -> None:
    index = (DOCS / "README.md").read_text()
    for kind, names in (("tables", TABLES), ("answers", ANSWERS)):
        for name in names:
            assert f"[{name}]({kind}/{name}.md)" in index


def test_columns_of_other_results_are_described() -> None:
    capture = ROOT / "captures" / "kafka-4-quotas.pcap.zst"
    described = set(re.findall(r"`(\w+)`", (DOCS / "reference" / "columns.md").read_text()))
    assert {*analysis.diagnose(capture)} <= described
    assert {*analysis.compare(capture, capture)} - {"client_id", "api"} <= described
    assert {*analysis.trace(capture, key="key-0")} <= described
    assert {*analysis.response_times(capture)} <= described


@pytest.mark.parametrize("name", ["kafka-4-group-eager", "kafka-4-group-consumer", "kafka-3-admin"])
@pytest.mark.parametrize("table", [name for name in ROLES if "api" in TABLES[name].schema.names])
def test_only_documented_apis_fill_a_column(name: str, table: str) -> None:
    """In recordings, only the APIs on the page have values in the column."""
    rows = analysis.load(ROOT / "captures" / f"{name}.pcap.zst", table)[table]
    for column in TABLES[table].columns:
        if not (documented := filled_by(table, column.name)):
            continue
        filled = set(rows["api"][_is_filled(rows[column.name])])
        assert filled <= {api for apis in documented.values() for api in apis}, column.name


def _is_filled(column: pd.Series) -> pd.Series:
    """Whether each value differs from null, NONE and 0 errors."""
    if column.name in ("error", "error_code", "error_count"):
        return column.notna() & ~column.isin(["NONE", 0])
    return column.notna()
