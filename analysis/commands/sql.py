"""``kafka-dissector sql``: run a query on a capture, or open a prompt."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from analysis.commands.common import Input, on_capture_alone
from analysis.commands.options import named_command
from analysis.commands.output import FORMAT_NAMES, SHOWN, TABLE, TABLE_FORMATS, Output, on_output
from analysis.extras import needed
from analysis.startup import Terminated, forget_interruption

if TYPE_CHECKING:
    import pyarrow as pa

    from analysis.sql.session import Session

NOT_TEXT: Final = "the query is not valid UTF-8; save it as UTF-8"


class WrongQuery(click.ClickException):
    """A usage error (exit status 2) that does not print the usage text."""

    exit_code = 2


@named_command("sql")
@on_capture_alone
@partial(on_output, forms=(*TABLE_FORMATS, *FORMAT_NAMES))
def command(source: Input, output: Output) -> None:
    """Query a capture with SQL.

    The last argument is the query if it contains a space and is not an existing file:

    \b
      kafka-dissector sql kafka.pcap \\
        "select client_id, quantile_cont(latency_ms, 0.99) from exchanges group by all"

    Without a query, a prompt opens; if standard input is not a terminal, the query is read from
    it. The SQL dialect is DuckDB's. The tables are those of `export`, and every answer is a view:
    `select * from latency`. `describe exchanges` lists the columns of a table. Times are in UTC.
    Only the tables in the query are built.
    """
    source, query = _divided(source)
    output.check(source.captures)
    if query is None and "-" in source.captures:
        raise click.UsageError(
            "the capture is read from standard input: pass the query as the last argument"
        )
    if query is None and not sys.stdin.isatty():
        query = _read_query()
        if not query.strip():
            raise click.UsageError("no query: pass it as the last argument or on standard input")
    if query is None and output.file is not None:
        raise click.UsageError(
            "--output needs a query: pass it as the last argument or on standard input"
        )
    # The progress bar ends before the first row only if rows are buffered and the size is known.
    shows = not output.is_on_terminal or (output.form == TABLE and "-" not in source.captures)
    with source.opened(show_progress=shows, show_secrets=output.show_secrets) as capture:
        from analysis.sql.session import Session
        from analysis.sql.views import CaptureTables

        tables = CaptureTables(capture)
        with Session(tables) as session:
            if query is None:
                _run_prompt(session, output)
            else:
                tables.pass_on = True
                _run_query(session, query, output)


def _divided(source: Input) -> tuple[Input, str | None]:
    """The captures, and the query, which click parses as the last capture."""
    *captures, last = source.captures
    if len(last.split()) < 2 or _is_file(last):
        return source, None
    if not captures:
        raise click.UsageError("Missing argument 'CAPTURE...'.")
    return replace(source, captures=tuple(captures)), last


def _is_file(argument: str) -> bool:
    """Whether the argument is a file; False also for an invalid file name, such as a long query."""
    try:
        return Path(argument).exists()
    except (OSError, ValueError):
        return False


def _read_query() -> str:
    """Read standard input as UTF-8."""
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise WrongQuery(NOT_TEXT) from error


def _run_prompt(session: Session, output: Output) -> None:
    """Run queries from the prompt; an error does not end it."""
    with needed("sql"):
        from analysis.display.prompt import queries

    for query in queries():
        try:
            _run_query(session, query, output)
        except click.ClickException as error:
            error.show()
        except Terminated:
            raise
        except KeyboardInterrupt:
            forget_interruption()
            click.echo("Interrupted.", err=True)


def _run_query(session: Session, query: str, output: Output) -> None:
    import duckdb
    import pyarrow as pa

    from analysis.sql.session import message

    try:
        query.encode()
    except UnicodeEncodeError as error:  # a surrogate is a byte that is not UTF-8
        raise WrongQuery(NOT_TEXT) from error
    try:
        if (result := session.rows(query)) is None:
            return
        schema, batches = result
        output.write(_first_rows(batches) if output.form == TABLE else batches, schema)
    except duckdb.Error as error:
        raise WrongQuery(message(error)) from error
    except pa.ArrowInvalid as error:  # for example a year out of the range of nanoseconds
        raise WrongQuery(f"a value cannot be written as {output.form}: {error}") from error


def _first_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first `SHOWN` rows, with a note if there are more."""
    room = SHOWN
    for batch in batches:
        yield batch.slice(0, room)
        if len(batch) > room:
            click.echo(
                f"Showing the first {SHOWN:,} rows; use --format csv to write all.", err=True
            )
            return
        room -= len(batch)
