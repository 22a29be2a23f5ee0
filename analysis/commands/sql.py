"""``kafka-dissector sql``: a query to the tables of a capture, or a prompt for many."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from analysis.commands.common import FORMAT_NAMES, F, Input, Output, on_capture_alone, on_output
from analysis.commands.output import TABLE, check, to_terminal, write
from analysis.extras import needed

if TYPE_CHECKING:
    import pyarrow as pa

    from analysis.query import Session

SHOWN: Final = 1000
"""Rows of a table for the eyes, at most."""


class WrongQuery(click.ClickException):
    """As wrong as any other part of a command line, but of no help is how the command is used."""

    exit_code = 2


def _on_output(command: F) -> F:
    return on_output(command, (TABLE, *FORMAT_NAMES))


@click.command("sql")
@on_capture_alone
@_on_output
def command(source: Input, output: Output) -> None:
    """Ask a capture in SQL.

    The last argument is the query, if it has a blank in it and no file has this name:

    \b
      kafka-dissector sql kafka.pcap \\
        "select client_id, quantile_cont(latency_ms, 0.99) from exchanges group by all"

    Without a query there is a prompt; or, where standard input is not a terminal, the query is
    read from there. The language is DuckDB's, the tables those of `export`; `describe exchanges`
    tells the columns. Times are in UTC. Only the tables that a query names are built.
    """
    source, query = _divided(source)
    check(output, source)
    if query is None and "-" in source.captures:
        raise click.UsageError("a capture from standard input needs a query")
    if query is None and not sys.stdin.isatty():
        query = sys.stdin.read()
        if not query.strip():
            raise click.UsageError("no query is given, nor does standard input have one")
    if query is None and output.file is not None:
        raise click.UsageError("a file to write to needs a query")
    # Progress ends before the first row comes only where rows wait, and where an end is known.
    shows = not to_terminal(output) or (output.form == TABLE and "-" not in source.captures)
    with source.options(show_progress=shows, show_secrets=output.show_secrets) as options:
        from analysis.query import Session
        from analysis.sql import CaptureTables

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
    if len(last.split()) < 2 or Path(last).exists():
        return source, None
    if not captures:
        raise click.UsageError("Missing argument 'CAPTURE...'.")
    return replace(source, captures=tuple(captures)), last


def _converse(session: Session, output: Output) -> None:
    """Answer one query after the other; what goes wrong with one does not end it."""
    with needed("sql"):
        from analysis.prompt import queries

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

    from analysis.query import sentence

    try:
        if (found := session.rows(query)) is None:
            return
        schema, batches = found
        write(_few(batches) if output.form == TABLE else batches, schema, output)
    except duckdb.Error as error:
        raise WrongQuery(sentence(error)) from error
    except pa.ArrowInvalid as error:  # such as a year that nanoseconds do not reach
        raise WrongQuery(f"{output.form} cannot have this: {error}") from error


def _few(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first `SHOWN` rows; says so where there are more."""
    room = SHOWN
    for batch in batches:
        yield batch.slice(0, room)
        if len(batch) > room:
            click.echo(f"There are more than {SHOWN:,} rows: --format csv has all.", err=True)
            return
        room -= len(batch)
