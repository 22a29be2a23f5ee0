"""``kafka-dissector report``: a capture as one page."""

from __future__ import annotations

from pathlib import Path

import click

from analysis.commands.common import Input, Output, allow_pandas, on_capture, on_overwrite
from analysis.commands.output import check
from analysis.extras import needed


@click.command("report")
@on_capture
@click.option(
    "-o", "--output", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    default="report.html", show_default=True, help="Write to FILE.",
)  # fmt: skip
@on_overwrite
def command(source: Input, file: Path, overwrite: bool) -> None:
    """Make a page of all answers, with charts.

    One HTML file: it opens in any browser, needs no network, and may be passed on. It has client
    ids, topics, groups and addresses of the capture, but nothing of the records. What a large
    capture holds goes through the folder of temporary files (TMPDIR), not through memory.
    """
    check(Output("html", file, overwrite), source)
    allow_pandas()
    with source.options(), needed("report"):
        from analysis.export import output
        from analysis.report.page import page
        from analysis.report.sections import TABLES

    with source.stored(TABLES) as sql:
        pieces = page(source.name, sql, source.again)
        with output(file, overwrite=overwrite) as sink:
            sink.writelines(pieces)
    click.echo(f"{file}: {file.stat().st_size / 1e6:.1f} MB", err=True)
