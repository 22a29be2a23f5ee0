"""``kafka-dissector export``: the rows of a table, to a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from analysis.commands.common import TABLE_NAMES, Input, Output, on_capture, on_output

if TYPE_CHECKING:
    import pyarrow as pa

BINARY_FORMATS: Final = ("parquet", "arrow")


@click.command("export")
@on_capture
@click.option(
    "--table", type=click.Choice(TABLE_NAMES), metavar="NAME", default="exchanges",
    show_default=True, help=f"Which table: {', '.join(TABLE_NAMES)}.",
)  # fmt: skip
@on_output
def command(source: Input, table: str, output: Output) -> None:
    """Write the rows of a table.

    Rows come out while the capture is read. Times are ISO 8601 in UTC with nanoseconds, bytes are
    base64; lists in csv are JSON. In the place of a secret stands [redacted].
    """
    write_table(source, table, output)


def write_table(source: Input, table: str, output: Output) -> None:
    """Write the rows of a table, as and where it was asked for."""
    to_terminal = output.file is None and sys.stdout.isatty()
    if to_terminal and output.form in BINARY_FORMATS:
        raise click.UsageError(f"{output.form} is not for a terminal: use -o FILE, or a pipe")
    if output.file is not None and output.file.exists() and _is_among(output.file, source.captures):
        raise click.UsageError(f"{output.file} is the input")
    from analysis import export as write
    from analysis.text import without_controls
    from dissector.tables import TABLES

    schema, form = TABLES[table].schema, write.FORMATS[output.form]
    with source.opened(show_progress=not to_terminal, show_secrets=output.show_secrets) as capture:
        batches: Iterator[pa.RecordBatch] = (batch for _, batch in capture.stream([table]))
        if to_terminal and output.form == "csv":
            batches = map(without_controls, batches)
        if output.file is None:
            form(batches, schema, sys.stdout.buffer)
            return
        try:
            with write.output(output.file) as sink:
                form(batches, schema, sink)
        except KeyboardInterrupt:
            click.echo(f"{write.partial(output.file)} has the rows up to here.", err=True)
            raise


def _is_among(output: Path, captures: Sequence[str]) -> bool:
    return any(output.samefile(each) for each in captures if Path(each).exists())
