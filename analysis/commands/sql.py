"""``kafka-dissector sql``: a query to the tables of a capture, or a prompt for many."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from analysis.answers import ANSWERS
from analysis.commands.common import (
    FORMAT_NAMES,
    TABLE,
    F,
    Input,
    Output,
    allow_pandas,
    on_capture_alone,
    on_output,
)
from analysis.commands.output import check, to_terminal, write
from analysis.extras import needed

if TYPE_CHECKING:
    import pyarrow as pa

    from analysis.sql.session import Session

SHOWN: Final = 1000
"""Rows of a table for people, at most."""


NOT_TEXT: Final = "the query is not valid UTF-8"


class WrongQuery(click.ClickException):
    """An error in the query. Unlike a usage error it does not show how the command is used."""

    exit_code = 2


def _on_output(command: F) -> F:
    return on_output(command, (TABLE, *FORMAT_NAMES))


@click.command("sql")
@on_capture_alone
@_on_output
def command(source: Input, output: Output) -> None:
    """Query a capture with SQL.

    The last argument is the query if it contains a space and is not an existing file:

    \b
      kafka-dissector sql kafka.pcap \\
        "select client_id, quantile_cont(latency_ms, 0.99) from exchanges group by all"

    Without a query, a prompt opens; if standard input is not a terminal, the query is read from
    it. The SQL dialect is DuckDB's. The tables are those of `export`, and every answer is a view:
    `select * from latency`. `describe exchanges` lists the columns of a table. Times are in UTC.
    Only the tables that a query names are built.
    """
    source, query = _divided(source)
    check(output, source)
    if query is None and "-" in source.captures:
        raise click.UsageError("a capture from standard input needs a query")
    if query is None and not sys.stdin.isatty():
        query = _read_query()
        if not query.strip():
            raise click.UsageError("no query is given, nor does standard input have one")
    if query is None and output.file is not None:
        raise click.UsageError("a file to write to needs a query")
    # Progress ends before the first row comes only where rows wait, and where an end is known.
    if query is None or not ANSWERS.keys().isdisjoint(re.findall(r"\w+", query.lower())):
        allow_pandas()  # an answer needs it, and so does a prompt, where one may be named later
    shows = not to_terminal(output) or (output.form == TABLE and "-" not in source.captures)
    with source.options(show_progress=shows, show_secrets=output.show_secrets) as options:
        from analysis.sql.session import Session
        from analysis.sql.views import CaptureTables

        tables = CaptureTables(source.captures, **options)
        with Session(tables) as session:
            if query is None:
                _converse(session, output)
            else:
                tables.pass_on = True
                _answer(session, query, output)


def _divided(source: Input) -> tuple[Input, str | None]:
    """The captures, and the query, which click takes for one of them."""
    *captures, last = source.captures
    if len(last.split()) < 2 or _is_file(last):
        return source, None
    if not captures:
        raise click.UsageError("Missing argument 'CAPTURE...'.")
    return replace(source, captures=tuple(captures)), last


def _is_file(argument: str) -> bool:
    """False also for what cannot be the name of a file, such as a long query."""
    try:
        return Path(argument).exists()
    except (OSError, ValueError):
        return False


def _read_query() -> str:
    """Standard input, whatever the locale."""
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise WrongQuery(NOT_TEXT) from error


def _converse(session: Session, output: Output) -> None:
    """Answer one query after the other; what goes wrong with one does not end it."""
    with needed("sql"):
        from analysis.display.prompt import queries

    for query in queries():
        try:
            _answer(session, query, output)
        except click.ClickException as error:
            error.show()
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)


def _answer(session: Session, query: str, output: Output) -> None:
    import duckdb
    import pyarrow as pa

    from analysis.sql.session import message

    try:
        query.encode()
    except UnicodeEncodeError as error:  # a surrogate stands for a byte that is not UTF-8
        raise WrongQuery(NOT_TEXT) from error
    try:
        if (found := session.rows(query)) is None:
            return
        schema, batches = found
        write(_few(batches) if output.form == TABLE else batches, schema, output)
    except duckdb.Error as error:
        raise WrongQuery(message(error)) from error
    except pa.ArrowInvalid as error:  # such as a year that nanoseconds do not reach
        raise WrongQuery(f"{output.form} cannot have this: {error}") from error


def _few(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first `SHOWN` rows; says so where there are more."""
    room = SHOWN
    for batch in batches:
        yield batch.slice(0, room)
        if len(batch) > room:
            click.echo(f"There are more than {SHOWN:,} rows; --format csv writes all.", err=True)
            return
        room -= len(batch)
