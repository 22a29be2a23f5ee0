"""``kafka-dissector export``: write the rows of a table."""

from __future__ import annotations

import click

from analysis.commands.common import TABLE_NAMES, Input, Output, on_capture, on_output
from analysis.commands.filter_options import on_filter
from analysis.commands.output import check, check_columns, to_terminal, write


@click.command("export")
@on_capture
@on_filter
@click.option(
    "--table", type=click.Choice(TABLE_NAMES), metavar="NAME", default="exchanges",
    show_default=True, help=f"Write this table: {', '.join(TABLE_NAMES)}.",
)  # fmt: skip
@on_output
def command(source: Input, table: str, output: Output) -> None:
    """Write the rows of a table.

    Rows are written while the capture is read. Times are ISO 8601 in UTC with nanoseconds, bytes
    are base64, and lists in csv are JSON. Credentials are shown as [redacted].
    """
    write_table(source, table, output)


def write_table(source: Input, table: str, output: Output) -> None:
    """Write the rows of a table to `output`."""
    check(output, source)
    from dissector.tables import TABLES

    check_columns(TABLES[table].schema.names, output)
    with source.opened(
        show_progress=not to_terminal(output), show_secrets=output.show_secrets
    ) as capture:
        write((batch for _, batch in capture.stream([table])), TABLES[table].schema, output)
