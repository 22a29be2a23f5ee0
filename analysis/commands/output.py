"""Where the rows of a command go: to a file, a pipe or a terminal, in the format asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from analysis.commands.common import Input, Output

if TYPE_CHECKING:
    import pyarrow as pa

BINARY_FORMATS: Final = ("parquet", "arrow")
TABLE: Final = "table"
"""The format for the eyes, which needs all rows before it can write the first."""


def to_terminal(output: Output) -> bool:
    """Whether the rows themselves appear on a terminal."""
    return output.file is None and sys.stdout.isatty()


def check(output: Output, source: Input) -> None:
    """Raises click.UsageError for what cannot be written so; before anything is read."""
    if to_terminal(output) and output.form in BINARY_FORMATS:
        raise click.UsageError(f"{output.form} is not for a terminal: use -o FILE, or a pipe")
    if output.file is not None and output.file.exists() and _is_among(output.file, source.captures):
        raise click.UsageError(f"{output.file} is the input")


def write(batches: Iterable[pa.RecordBatch], schema: pa.Schema, output: Output) -> None:
    """Write the rows, as and where it was asked for."""
    from analysis import export
    from analysis.text import without_controls

    if output.form == TABLE:
        _write_listing(batches, schema, output.file)
        return
    form = export.FORMATS[output.form]
    if output.file is None:
        if to_terminal(output) and output.form == "csv":
            batches = map(without_controls, batches)
        form(batches, schema, sys.stdout.buffer)
        return
    try:
        with export.output(output.file) as sink:
            form(batches, schema, sink)
    except KeyboardInterrupt:
        click.echo(f"{export.partial(output.file)} has the rows up to here.", err=True)
        raise


def _write_listing(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: Path | None) -> None:
    import pyarrow as pa

    from analysis import export, terminal
    from analysis.rows_view import screen

    parts = screen(pa.Table.from_batches(batches, schema))
    if file is None:
        terminal.write(parts)
        return
    with export.output(file) as sink:
        sink.write(terminal.plain(parts).encode())


def _is_among(output: Path, captures: Sequence[str]) -> bool:
    return any(output.samefile(each) for each in captures if Path(each).exists())
