"""``kafka-dissector records``: the records of captures and log segments."""

from __future__ import annotations

import click

from analysis.commands.common import Input, Output, on_capture, on_output
from analysis.commands.export import write_table


@click.command("records")
@on_capture
@on_output
def command(source: Input, output: Output) -> None:
    """Write the records of captures, or of a broker's log segments.

    As `export --table records` does. Of a segment, topic and partition are what the name of its
    folder says.
    """
    write_table(source, "records", output)
