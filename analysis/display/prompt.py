"""A prompt for SQL: history, colours, completion of names and keywords."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from analysis.answers import ANSWERS
from analysis.sql.exchange_columns import COLUMNS
from analysis.sql.views import name_of
from analysis.startup import Terminated, forget_interruption
from dissector.tables import TABLES

WORDS: Final = (
    "select", "from", "where", "group by all", "order by", "limit", "join", "using", "having",
    "describe", "summarize", "count(*)", "quantile_cont(", "sum(", "avg(", "min(", "max(",
    "time_bucket(", "date_trunc(", "interval", "unnest(", "desc", "distinct", "between", "is null",
)  # fmt: skip
"""Keywords and functions of SQL to complete."""

LEAVE: Final = frozenset({"exit", "quit", "\\q", ".exit", ".quit"})


def queries() -> Iterator[str]:
    """Queries that the user enters, until Ctrl-D."""
    session: PromptSession[str] = PromptSession(
        "sql> ",
        history=_history(),
        lexer=PygmentsLexer(SqlLexer),
        completer=completer(),
        complete_while_typing=True,
        auto_suggest=AutoSuggestFromHistory(),
    )
    click.echo(
        f"Tables: {', '.join(TABLES)}.\nAnswers: {', '.join(map(name_of, ANSWERS.values()))}.\n"
        "`describe exchanges` lists the columns; Ctrl-D ends."
    )
    while True:
        try:
            text = session.prompt().strip()
        except Terminated:
            raise
        except KeyboardInterrupt:  # cancels the line, not the prompt
            forget_interruption()
            continue
        except EOFError:
            return
        if text.rstrip(";") in LEAVE:
            return
        if text:
            yield text


def completer() -> WordCompleter:
    """Completes tables, answers and columns, each with its meaning, and keywords of SQL."""
    declared = (
        COLUMNS,
        *(answer.columns for answer in ANSWERS.values()),
        *(table.columns for table in TABLES.values()),
    )
    meanings = (
        {column.name: column.meaning for columns in declared for column in columns}
        | {name_of(answer): f"answer: {answer.question}" for answer in ANSWERS.values()}
        | {table.name: f"table: {table.row}" for table in TABLES.values()}
    )
    return WordCompleter(
        [*meanings, *WORDS], ignore_case=True, meta_dict=meanings, pattern=re.compile(r"[\w.]+")
    )


def _history() -> History:
    """History in the XDG state folder; in memory if the folder is not writable."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    folder = Path(home).expanduser() / "kafka-dissector"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "queries").touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(folder / "queries")
