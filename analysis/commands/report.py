"""``kafka-dissector report``: write a capture as an HTML page."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from pathlib import Path

import click

from analysis.commands.common import ONLY_SEGMENTS, Input, notify, on_capture
from analysis.commands.options import named_command, on_overwrite, output_option
from analysis.commands.output import check_file
from analysis.extras import needed
from analysis.startup import allow_pandas
from dissector.redaction import without_credentials


@named_command("report")
@on_capture
@output_option(
    "-o", "--output", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    default="report.html", show_default=True, help="Write the page to FILE.",
)  # fmt: skip
@on_overwrite
def command(source: Input, file: Path, overwrite: bool) -> None:
    """Write a page with all answers and charts.

    The output is one HTML file, which needs no network. It contains client ids, topics, groups and
    addresses of the capture, but no records. Tables of a large capture are stored in the folder for
    temporary files (TMPDIR), not in memory.
    """
    check_file(file, overwrite=overwrite, captures=source.captures)
    allow_pandas()
    from analysis.display.presentation import names, presented
    from analysis.display.terminal import shell_words

    with source.options(), needed("report"):
        from analysis.diagnosis.run import ANALYSIS_TABLES
        from analysis.export.files import output_file
        from analysis.report.page import page

    # Pages are passed on: no folder of this machine is in them.
    shown = replace(
        source,
        captures=tuple(Path(without_credentials(each)).name or each for each in source.captures),
        keylog=source.keylog and Path(source.keylog.name),
        names_file=source.names_file and Path(source.names_file.name),
    )
    with source.stored(ANALYSIS_TABLES, shows_brokers=True) as sql, presented(UTC, names()):
        chosen = shell_words(source.filter.options) if source.filter else ""
        if source.has_only_segments:
            notify(ONLY_SEGMENTS)
        pieces = page(shown.name, sql, shown.again, chosen)
        with output_file(file, overwrite=overwrite) as sink:
            sink.writelines(pieces)
    notify(f"{file}: {file.stat().st_size / 1e6:.1f} MB")
