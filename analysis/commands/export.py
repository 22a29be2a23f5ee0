"""``kafka-dissector export``: write the rows of tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from analysis.commands.common import (
    ALL,
    TABLE_NAMES,
    TABLES_OR_ALL,
    Input,
    chosen_tables,
    notify,
    on_capture,
)
from analysis.commands.coverage import COVERAGE, Coverage
from analysis.commands.options import Choice, named_command, usage_errors
from analysis.commands.output import (
    FORMAT_NAMES,
    FORMAT_OF_SUFFIX,
    OTLP,
    Output,
    check_file,
    on_output,
)
from dissector.arguments import name_text

if TYPE_CHECKING:
    import pyarrow as pa

    from analysis.input.open import Opened


@named_command("export")
@on_capture
@click.option(
    "--table", "tables", type=Choice((*TABLE_NAMES, ALL)), metavar="NAME", multiple=True,
    default=("exchanges",), show_default=True,
    help=f"Write this table: {TABLES_OR_ALL}. May be repeated; FILE is then a folder with a file "
    "for each table.",
)  # fmt: skip
@click.option(
    "--endpoint", metavar="URL",
    help="Send the exchanges as OpenTelemetry spans (OTLP over HTTP) to a collector at URL, such "
    "as http://localhost:4318.",
)  # fmt: skip
@lambda command: on_output(command, (*FORMAT_NAMES, OTLP))
def command(source: Input, tables: tuple[str, ...], endpoint: str | None, output: Output) -> None:
    """Write the rows of one or more tables.

    Rows are written while the capture is read. Times are ISO 8601 in UTC with nanoseconds, bytes
    are base64, and lists in csv are JSON. Credentials are shown as [redacted].

    The format otlp writes exchanges as OpenTelemetry spans, in lines of OTLP/JSON. Spans of records
    with a traceparent header belong to the trace of their producer.

    All commands except cut, encrypted, show, sniff and spark can read the Parquet files of a folder
    instead of the capture:

    \b
      kafka-dissector export kafka.pcap --table all -o tables
      kafka-dissector latency tables
    """
    if endpoint is not None or output.form == OTLP:
        if tables != ("exchanges",) or output.columns:
            raise click.UsageError("spans are exchanges: omit --table and --columns")
        _export_spans(source, endpoint, output)
        return
    names = chosen_tables(tables)
    if len(names) == 1:
        write_table(source, names[0], output)
        return
    write_tables(source, names, _in_a_folder(output))


def _export_spans(source: Input, endpoint: str | None, output: Output) -> None:
    """Write spans to `output`, or send them to `endpoint`."""
    from analysis.export import otlp

    if endpoint is not None and output.file is not None:
        raise click.UsageError("pass either --endpoint or --output")
    output.check(source.captures)
    with usage_errors():
        url = None if endpoint is None else otlp.url_of(endpoint)
    with source.stored(otlp.TABLES, show_progress=not output.is_on_terminal) as sql:
        requests = otlp.requests(sql)
        if url is not None:
            count = otlp.send(requests, url)
        else:
            with output.opened() as sink:
                count = otlp.write_lines(requests, sink)
    if url is not None or output.file is not None:
        notify(f"{count:,} spans to {name_text(str(url or output.file))}")


def write_table(source: Input, table: str, output: Output) -> None:
    """Write the rows of a table to `output`."""
    output.check(source.captures)
    from dissector.tables import TABLES

    output.check_columns(TABLES[table].schema.names)
    with source.opened(
        show_progress=not output.is_on_terminal, show_secrets=output.show_secrets
    ) as capture:
        rows, schemas = _stream(capture, [table, *_coverage_of(table, capture)], output)
        output.write(_explained(rows, source, table), schemas[table])


def _stream(
    capture: Opened, names: Sequence[str], output: Output
) -> tuple[Iterator[tuple[str, pa.RecordBatch]], dict[str, pa.Schema]]:
    """The rows of tables, and their schemas. To Parquet, texts are written from dictionaries."""
    from dissector.capture import Capture
    from dissector.tables import EXCHANGES, TABLES
    from dissector.tables.arrow import with_dictionaries

    schemas = {name: TABLES[name].schema for name in names}
    if output.form != "parquet" or not isinstance(capture, Capture):
        return capture.stream(names), schemas
    if EXCHANGES.name in names:
        schemas[EXCHANGES.name] = with_dictionaries(EXCHANGES.schema)
    return capture.stream(names, dictionaries=True), schemas


def _coverage_of(table: str, capture: Opened) -> list[str]:
    """The table that shows why another one has no rows."""
    is_needed = table not in ("exchanges", COVERAGE) and capture.has_table(COVERAGE)
    return [COVERAGE] if is_needed else []


def _explained(
    rows: Iterable[tuple[str, pa.RecordBatch]], source: Input, table: str
) -> Iterator[pa.RecordBatch]:
    """The batches of the table. If they have no row, print a sentence to standard error."""
    is_empty, coverage = True, Coverage()
    for name, batch in rows:
        if name == COVERAGE:
            coverage.add(batch)
        if name == table:
            is_empty = is_empty and not len(batch)
            yield batch
    if is_empty:
        nothing = source.nothing if source.filter is None else "No exchange is selected."
        is_exchanges = table == "exchanges"
        notify(nothing if is_exchanges else source.no_rows(f"rows of {table}", coverage))


def write_tables(source: Input, names: Sequence[str], output: Output) -> None:
    """Write several tables to a folder, as Parquet, in one pass."""
    path = _folder(names, output, source.captures)
    with source.opened(show_secrets=output.show_secrets) as capture:
        from contextlib import ExitStack

        from analysis.export.files import claimed, folder, partial
        from analysis.export.parquet import TableFiles

        files = {name: partial(path / f"{name}.parquet") for name in names}
        with folder(path), ExitStack() as stack:
            for file in files.values():  # another process may write to the folder
                # Incomplete Parquet files are not readable, so they are removed.
                stack.enter_context(claimed(file, is_new=not output.overwrite))
            rows, schemas = _stream(capture, names, output)
            with TableFiles(files, schemas) as tables:
                for name, batch in rows:
                    tables.add(name, batch)
        for file in files.values():
            file.replace(file.with_suffix(""))


def _in_a_folder(output: Output) -> Output:
    """Parquet, unless an option or the suffix of the file names another format."""
    form = click.get_current_context().get_parameter_source("form")
    has_suffix = output.file is not None and output.file.suffix.lower() in FORMAT_OF_SUFFIX
    if form is ParameterSource.DEFAULT and not has_suffix:
        return replace(output, form="parquet")
    return output


def _folder(names: Sequence[str], output: Output, captures: Sequence[str]) -> Path:
    """The folder to write to. Raises click.UsageError if the options cannot be combined."""
    if output.file is None:
        raise click.UsageError("several tables need a folder: -o DIR")
    if output.form != "parquet":
        raise click.UsageError(
            f"several tables are written as parquet, not {output.form}: omit --format, or "
            "the suffix of the folder"
        )
    if output.columns:
        raise click.UsageError("--columns needs a single table")
    if name_text(str(output.file)) != str(output.file):
        raise click.UsageError(f"the name {output.file} is not UTF-8: choose another folder")
    if output.file.exists() and not output.file.is_dir():
        raise click.UsageError(f"{output.file} is a file; several tables need a folder")
    for name in names:
        check_file(output.file / f"{name}.parquet", overwrite=output.overwrite, captures=captures)
    return output.file
