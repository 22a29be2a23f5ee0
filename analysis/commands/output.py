"""Write the rows of a command to a file, a pipe or a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import click

from analysis.commands.common import TABLE, Input, Output
from analysis.commands.options import with_suggestion

if TYPE_CHECKING:
    import pyarrow as pa

BINARY_FORMATS: Final = ("parquet", "arrow")


def to_terminal(output: Output) -> bool:
    """Whether the rows are printed on a terminal."""
    return output.file is None and sys.stdout.isatty()


def check(output: Output, source: Input) -> None:
    """Raises click.UsageError if the output cannot be written; call it before reading."""
    if to_terminal(output) and output.form in BINARY_FORMATS:
        raise click.UsageError(f"cannot write {output.form} to a terminal: use -o FILE or a pipe")
    if output.file is not None:
        check_file(output.file, overwrite=output.overwrite, captures=source.captures)


def check_file(file: Path, *, overwrite: bool, captures: Sequence[str] = ()) -> None:
    """Raises click.UsageError if the file cannot be written, or is one of the input files."""
    if file == Path("-"):
        raise click.UsageError("standard output is not a file: choose a file, not -")
    if file.is_dir():
        raise click.UsageError(f"{file} is a folder: choose a file")
    if file.exists() and _is_input(file, captures):
        raise click.UsageError(f"{file} is an input file: choose another output file")
    from analysis.export.files import partial, taken

    if file.is_file() or not file.exists():
        check_folder(partial(file).parent)
    if not overwrite and (there := taken(file)) is not None:
        raise click.UsageError(f"{there} exists: pass --overwrite to replace it")


def check_folder(folder: Path) -> None:
    """Raises click.UsageError if files cannot be created in the folder, which may not exist yet."""
    present = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not present.is_dir():
        raise click.UsageError(f"{present} is a file, not a folder: choose another folder")
    if not os.access(present, os.W_OK):
        raise click.UsageError(f"cannot create a file in {present}: choose another folder")


def check_columns(names: Sequence[str], output: Output) -> None:
    """Raises click.UsageError if `--columns` are repeated or not among `names`."""
    for name in output.columns:
        if name not in names:
            message = f"no column {name!r}; choose from: {', '.join(names)}"
            raise click.UsageError(with_suggestion(message, name, names))
    if len(set(output.columns)) < len(output.columns):
        raise click.UsageError("--columns repeats a column; name each column once")


def write(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    output: Output,
    essential: Sequence[str] = (),
    useful: Sequence[str] = (),
    by: Sequence[str] = (),
) -> None:
    """Write the rows to `output`; `essential` and `useful`: see `Answer`.

    `by`: columns that rows are grouped by; they are part of the answer.
    """
    import pyarrow as pa

    from analysis.export.files import output_file, partial
    from analysis.export.formats import FORMATS

    if output.columns:
        check_columns(schema.names, output)
        schema = pa.schema([schema.field(name) for name in output.columns])
        batches = (batch.select(output.columns) for batch in batches)
    if output.form == TABLE:
        from analysis.display.row_table import dated

        rows = dated(pa.Table.from_batches(batches, schema), by)
        _write_listing(rows, output, output.columns or (*by, *essential), useful)
        return
    form = FORMATS[output.form]
    if output.file is None:
        from analysis.export.text import TerminalJson, names_without_controls, without_controls

        sink: BinaryIO = sys.stdout.buffer
        if to_terminal(output) and output.form == "csv":
            batches = map(without_controls, batches)
            schema = names_without_controls(schema)
        elif to_terminal(output):
            sink = cast(BinaryIO, TerminalJson(sink))
        form(batches, schema, sink)
        return
    try:
        overwrite = output.overwrite
        with output_file(output.file, overwrite=overwrite, keeps_partial=True) as sink:
            form(batches, schema, sink)
    except KeyboardInterrupt:
        click.echo(f"{partial(output.file)} contains the rows read so far.", err=True)
        raise


def _write_listing(
    rows: pa.Table, output: Output, essential: Sequence[str], useful: Sequence[str]
) -> None:
    from analysis.display import row_table, terminal
    from analysis.export.files import output_file

    if output.is_vertical:
        parts = row_table.vertical(rows)
    else:
        parts = row_table.screen(rows, essential, useful, is_wide=output.is_wide)
    if output.file is None:
        terminal.write(parts, pager=output.pager, is_wide=output.is_wide)
        return
    with output_file(output.file, overwrite=output.overwrite) as sink:
        sink.write(terminal.plain(parts).encode())


def _is_input(file: Path, captures: Sequence[str]) -> bool:
    """Whether a file that exists is one of the input files, perhaps by another name."""
    from analysis.input.exported import has_suffix, is_exported
    from dissector.capture import captures_and_segments
    from dissector.packets.paths import matches

    def is_among(paths: Sequence[str]) -> bool:
        status = file.stat()
        for path in paths:
            with suppress(OSError):
                if os.path.samestat(os.stat(path), status):  # noqa: PTH116 - faster
                    return True
        return False

    named = [match for capture in captures for match in matches(capture)]
    if is_among(named):
        return True
    folders = [os.path.realpath(path) for path in named if Path(path).is_dir()]
    if not any(file.resolve().is_relative_to(folder) for folder in folders):
        return False
    if is_exported(captures):
        return has_suffix(file.name)
    return any(map(is_among, captures_and_segments(folders)))
