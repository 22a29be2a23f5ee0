"""``kafka-dissector records``: write the records of captures and log segments."""

from __future__ import annotations

from functools import partial

from analysis.commands.common import Input, on_capture
from analysis.commands.export import write_table
from analysis.commands.options import named_command
from analysis.commands.output import Output, on_output


@named_command("records")
@partial(on_capture, filters=())
@on_output
def command(source: Input, output: Output) -> None:
    """Write the records of captures, or of a broker's log segments.

    The same as `export --table records`. The topic and partition of a log segment are those in the
    name of its folder.
    """
    write_table(source, "records", output)
