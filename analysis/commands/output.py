"""The output of commands that write rows: its options, and a file, a pipe or a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial, wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar, cast

import click

from analysis.commands.common import notify
from analysis.commands.options import (
    Choice,
    on_overwrite,
    on_pager,
    on_secrets,
    output_option,
    with_options,
    with_suggestion,
    words,
)
from dissector.arrays import value

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_NAMES: Final = ("jsonl", "csv", "parquet", "arrow")
TABLE: Final = "table"
"""The human-readable format; it needs all rows before it writes the first."""
MARKDOWN: Final = "markdown"
"""The same as a table in Markdown."""
TABLE_FORMATS: Final = (TABLE, MARKDOWN)
"""The human-readable formats."""
OTLP: Final = "otlp"
"""The format of spans, whose lines are JSON."""
JSON: Final = "json"
"""The format of a whole result as one object."""
FORMAT_OF_SUFFIX: Final = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet",
    ".pq": "parquet", ".arrow": "arrow", ".arrows": "arrow",
}  # fmt: skip
"""The format of an output file by its suffix."""
OTHER_SUFFIXES: Final = (
    ".avro", ".bz2", ".feather", ".gz", ".html", ".lz4", ".ods", ".orc", ".tsv", ".xls", ".xlsx",
    ".xz", ".zip", ".zst",
)  # fmt: skip
"""Suffixes of formats that no command with `on_output` writes."""
BINARY_FORMATS: Final = ("parquet", "arrow")
STANDARD_OUTPUT: Final = Path("-")
SHOWN: Final = 1000
"""Maximum number of rows of a human-readable table on a terminal, which needs the width of all its
rows first; and of a query."""

F = TypeVar("F", bound=Callable[..., Any])


@value
class Output:
    """How and where rows are written."""

    form: str
    file: Path | None
    overwrite: bool = False
    show_secrets: bool = False
    columns: tuple[str, ...] = ()
    """Columns to write, in this order; empty: all."""
    is_wide: bool = False
    """Whether a table shows all columns in any terminal."""
    is_vertical: bool = False
    """Whether a table has a line for each value."""
    pager: bool = True

    @property
    def is_for_people(self) -> bool:
        """Whether rows have rounded numbers, and names of addresses."""
        return self.form in TABLE_FORMATS

    @property
    def is_on_terminal(self) -> bool:
        """Whether the rows are printed on a terminal."""
        return self.file is None and sys.stdout.isatty()

    def shows_brokers(self, columns: Iterable[str]) -> bool:
        """Whether a person sees brokers, in one of these columns."""
        from analysis.names.addresses import BROKER_COLUMNS

        return self.is_for_people and not BROKER_COLUMNS.isdisjoint(columns)

    def check(self, captures: Sequence[str]) -> None:
        """Raises click.UsageError if the output cannot be written; call it before reading."""
        if self.is_on_terminal and self.form in BINARY_FORMATS:
            raise click.UsageError(f"cannot write {self.form} to a terminal: use -o FILE or a pipe")
        if self.file is not None:
            check_file(self.file, overwrite=self.overwrite, captures=captures)

    def check_columns(self, names: Sequence[str]) -> None:
        """Raises click.UsageError if `--columns` are repeated or not among `names`."""
        for name in self.columns:
            if name not in names:
                message = f"no column {name!r}; choose from: {', '.join(names)}"
                raise click.UsageError(with_suggestion(message, name, names))
        if len(set(self.columns)) < len(self.columns):
            raise click.UsageError("--columns repeats a column; name each column once")

    @contextmanager
    def opened(self, *, keeps_partial: bool = False) -> Iterator[BinaryIO]:
        """A context for standard output or the file; see `output_file`."""
        from analysis.export.files import output_file

        if self.file is None:
            yield sys.stdout.buffer
            return
        with output_file(self.file, overwrite=self.overwrite, keeps_partial=keeps_partial) as sink:
            yield sink

    def write(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        essential: Sequence[str] = (),
        useful: Sequence[str] = (),
        by: Sequence[str] = (),
    ) -> None:
        """Write rows; `essential` and `useful`: see `Answer`.

        `by`: columns that rows are grouped by; they are part of the answer.
        """
        import pyarrow as pa

        from analysis.export.files import partial as partial_file
        from analysis.export.formats import FORMATS
        from analysis.export.text import TerminalJson, names_without_controls, without_controls

        if self.columns:
            self.check_columns(schema.names)
            schema = pa.schema([schema.field(name) for name in self.columns])
            batches = (batch.select(self.columns) for batch in batches)
        if self.is_for_people:
            from analysis.display.row_table import dated

            rows = dated(pa.Table.from_batches(batches, schema), by)
            self._write_listing(rows, self.columns or (*by, *essential), useful)
            return
        try:
            with self.opened(keeps_partial=True) as sink:
                if self.is_on_terminal and self.form == "csv":
                    batches = map(without_controls, batches)
                    schema = names_without_controls(schema)
                elif self.is_on_terminal:
                    sink = cast(BinaryIO, TerminalJson(sink))
                FORMATS[self.form](batches, schema, sink)
        except KeyboardInterrupt:
            if self.file and (left := partial_file(self.file)).exists():
                notify(f"{left} contains the rows read so far.")
            raise

    def _write_listing(
        self, rows: pa.Table, essential: Sequence[str], useful: Sequence[str]
    ) -> None:
        from analysis.display import row_table, terminal

        total = len(rows)
        if self.is_on_terminal:
            rows = rows.slice(0, SHOWN)
        if self.form == MARKDOWN:
            parts = row_table.markdown(rows)
        elif self.is_vertical:
            parts = row_table.vertical(rows, total)
        else:
            parts = row_table.screen(rows, essential, useful, is_wide=self.is_wide)
        if len(rows) < total:
            parts = chain(parts, (row_table.hidden_rows(len(rows), total),))
        if self.file is None:
            terminal.write(parts, pager=self.pager, is_wide=self.is_wide)
            return
        with self.opened() as sink:
            sink.writelines(text.encode() for text in terminal.plain(parts))


def on_output(command: F, forms: Sequence[str] = FORMAT_NAMES, secrets: bool = True) -> F:
    """Add the options of commands that write rows; the command gets an `Output`.

    `forms`: the formats, the default first. `secrets`: whether rows may contain secrets.
    """

    @wraps(command)
    def run(
        form: str | None, file: Path | None, overwrite: bool, columns: tuple[str, ...],
        show_secrets: bool = False, is_wide: bool = False, is_vertical: bool = False,
        no_pager: bool = False, **given: Any,
    ) -> Any:  # fmt: skip
        file = None if file == STANDARD_OUTPUT else file
        output = Output(
            _form(form, file, forms), file, overwrite, show_secrets, columns, is_wide, is_vertical,
            not no_pager,
        )  # fmt: skip
        if output.form != TABLE and (is_wide or is_vertical):
            raise click.UsageError(f"--wide and --vertical need --format table, not {output.form}")
        return command(output=output, **given)

    options = (
        output_option(
            "--format", "form", type=Choice(forms),
            help=f"Set the output format.  [default: by the suffix of FILE, else {forms[0]}]",
        ),
        output_option(
            "-o", "--output", "file", type=click.Path(path_type=Path),
            metavar="FILE",
            help="Write rows to FILE, which appears when it is complete; - is standard output.",
        ),
        on_overwrite,
        output_option(
            "--columns", metavar="COLUMN,...", multiple=True, callback=words,
            help="Write only these columns, in this order.",
        ),
        *(_TABLE_OPTIONS if TABLE in forms else ()),
        *((on_secrets,) if secrets else ()),
    )  # fmt: skip
    return cast(F, with_options(*options)(run))


on_answer_output = partial(on_output, forms=(*TABLE_FORMATS, *FORMAT_NAMES), secrets=False)
"""`on_output` for results, which contain no secrets."""


def _form(form: str | None, file: Path | None, forms: Sequence[str]) -> str:
    """The format of `--format`, or of the suffix of the file, or the default."""
    if file and file.suffix.lower() in OTHER_SUFFIXES:
        raise click.UsageError(
            f"{file}: no format has the suffix {file.suffix}; choose from .csv, .jsonl, .parquet "
            "and .arrow, or another suffix with --format"
        )
    suffix = file.suffix.lower() if file else ""
    named = MARKDOWN if suffix == ".md" and MARKDOWN in forms else FORMAT_OF_SUFFIX.get(suffix)
    expected = "jsonl" if form == JSON else form
    if form not in (None, OTLP) and named not in (None, expected):
        raise click.UsageError(
            f"--format {form} contradicts the suffix of {file} ({named}); change one of them"
        )
    return form or named or forms[0]


_TABLE_OPTIONS: Final = (
    output_option(
        "--wide", "is_wide", is_flag=True,
        help="Print all columns, even beyond the width of the terminal.",
    ),
    output_option(
        "--vertical", "is_vertical", is_flag=True, help="Print a line for each value of a row."
    ),
    on_pager,
)  # fmt: skip


def check_file(file: Path, *, overwrite: bool, captures: Sequence[str] = ()) -> None:
    """Raises click.UsageError if the file cannot be written, or is one of the input files."""
    if file == STANDARD_OUTPUT:
        raise click.UsageError("standard output is not a file: choose a file, not -")
    if file.is_dir():
        raise click.UsageError(f"{file} is a folder: choose a file")
    if file.exists() and _is_input(file, captures):
        raise click.UsageError(f"{file} is an input file: choose another output file")
    from analysis.export.files import partial as partial_file
    from analysis.export.files import taken

    if file.is_file() or not file.exists():
        _check_folder(partial_file(file).parent)
    if not overwrite and (there := taken(file)) is not None:
        raise click.UsageError(f"{there} exists: pass --overwrite to replace it")


def _check_folder(folder: Path) -> None:
    """Raises click.UsageError if files cannot be created in the folder, which may not exist yet."""
    present = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not present.is_dir():
        raise click.UsageError(f"{present} is a file, not a folder: choose another folder")
    if not os.access(present, os.W_OK):
        raise click.UsageError(f"cannot create a file in {present}: choose another folder")


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
