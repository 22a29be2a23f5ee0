"""Examples in documents work: options of commands exist, and Python code runs on a recording."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import duckdb
import pytest

import kafka_dissector as kd
from analysis.cli import app
from tools.shown_output import DOCS, ROOT

PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
RECORDING = ROOT / "captures" / "kafka-4-group-eager.pcap.zst"
SQL = re.compile(r"^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NEEDS_SPARK = ("spark", "kd.decode_")
"""Code with these names needs what an example cannot bring along."""


def commands(path: Path) -> set[str]:
    """The command lines in the code blocks of a page."""
    text = path.read_text().replace("\\\n", " ")
    lines = re.findall(r"^ {4}.*?\bkafka-dissector\)? (.+)$", text, re.MULTILINE)
    return {re.split(r" +# |[|<>]|\.\.\.", line)[0].strip() for line in lines}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_options_of_commands_exist(page: Path) -> None:
    for line in commands(page):
        words = shlex.split(line if line.count('"') % 2 == 0 else line + '"')
        if not words or words[0].startswith("-"):
            continue
        command = app.get_command(click.Context(app), words[0])
        assert command, f"no command {words[0]}"
        options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
        given = {word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)}
        assert given <= options | {"--help", "-h"}, line


def programs() -> Iterator[tuple[str, str]]:
    """Pages, and their Python code."""
    for path in PAGES:
        for code in PYTHON.findall(path.read_text()):
            if not any(name in code for name in NEEDS_SPARK):
                yield path.stem, code


@pytest.mark.parametrize(("page", "code"), list(programs()))
def test_python_code_runs(
    page: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(RECORDING, tmp_path / "kafka.pcap")
    monkeypatch.chdir(tmp_path)
    tables = kd.load("kafka.pcap")
    exec(compile(code, page, "exec"), {"kd": kd, "tables": tables})


def queries() -> Iterator[tuple[str, str]]:
    """Pages, and their SQL over a folder of tables."""
    for path in PAGES:
        for query in SQL.findall(path.read_text()):
            if ".parquet'" in query:
                yield path.stem, query


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a recording, in a folder for each, as `sniff` writes them."""
    folder = tmp_path_factory.mktemp("tables")
    tables = kd.load(str(RECORDING))
    for name, rows in tables.items():
        (folder / name).mkdir()
        rows.to_parquet(folder / name / "1.parquet")
    return folder


@pytest.mark.parametrize(("page", "query"), list(queries()))
def test_sql_runs(page: str, query: str, folder: Path) -> None:
    duckdb.sql(re.sub(r"'/var/lib/[\w-]+/", f"'{folder}/", query)).to_arrow_table()
