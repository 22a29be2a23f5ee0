"""The documentation says what the code says, and shows what the commands print."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pytest

import analysis
from analysis.answers import ANSWERS
from dissector.tables import TABLES
from tools import shown_output
from tools.generate_docs import ROLES, ROOT, filled_by, pages

DOCS = ROOT / "docs"
AGAIN = "run: python -m tools.generate_docs"


def test_generated_pages_are_up_to_date() -> None:
    wanted = pages()
    for path, text in wanted.items():
        assert path.exists(), AGAIN
        assert path.read_text() == text, f"{path.name}: {AGAIN}"
    found = {*DOCS.glob("tables/*"), *DOCS.glob("answers/*")}
    assert found == {path for path in wanted if path.parent != DOCS}, AGAIN


@pytest.mark.parametrize("page", shown_output.PAGES)
def test_pages_show_what_the_commands_print(page: str) -> None:
    path = ROOT / page
    assert path.read_text() == shown_output.fresh(path.read_text()), f"{page}: {AGAIN}"


def test_fresh_output_takes_the_place_of_the_old() -> None:
    command = "    $ kafka-dissector errors captures/kafka-4-cut.pcap.zst | head -1\n"
    text = f"Say:\n\n{command}    old\n\n    older\n\n{command}\nEnd.\n"
    lines = shown_output.fresh(text).splitlines()
    assert lines[:3] == ["Say:", "", command.rstrip()]
    assert re.match(r"    error +api ", lines[3])
    assert lines[4:] == ["", command.rstrip(), lines[3], "", "End."]


def links(path: Path) -> Iterable[str]:
    return re.findall(r"\]\(([^)#\s]+?)(?:#[\w-]+)?\)", path.read_text())


def test_links_lead_somewhere() -> None:
    every = [ROOT / "README.md", *DOCS.rglob("*.md")]
    assert any(links(path) for path in every)
    for path in every:
        for link in links(path):
            assert "://" in link or (path.parent / link).exists(), f"{path.name}: {link}"


def test_every_answer_and_table_has_its_page() -> None:
    index = (DOCS / "README.md").read_text()
    for kind, names in (("tables", TABLES), ("answers", ANSWERS)):
        for name in names:
            assert f"[{name}]({kind}/{name}.md)" in index


@pytest.mark.parametrize("name", ["kafka-4-group-eager", "kafka-4-group-consumer", "kafka-3-admin"])
@pytest.mark.parametrize("table", [name for name in ROLES if "api" in TABLES[name].schema.names])
def test_what_fills_a_column_is_what_filled_it(name: str, table: str) -> None:
    """In recordings: no API has a value where the page says that others have."""
    rows = analysis.load(ROOT / "captures" / f"{name}.pcap.zst", table)[table]
    for column in TABLES[table].columns:
        if not (documented := filled_by(table, column.name)):
            continue
        filled = set(rows["api"][_tells(rows[column.name])])
        assert filled <= {api for apis in documented.values() for api in apis}, column.name


def _tells(column: pd.Series) -> pd.Series:
    """Whether a value says more than that there is nothing."""
    if column.name in ("error", "error_code", "error_count"):
        return column.notna() & ~column.isin(["NONE", 0])
    return column.notna()
