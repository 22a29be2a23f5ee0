"""``kafka-dissector encrypted``: response times of connections that are not decrypted."""

from __future__ import annotations

from functools import partial

import click

from analysis.commands.common import ONLY_SEGMENTS, Input, notify, on_capture
from analysis.commands.options import named_command, usage_errors, words
from analysis.commands.output import Output, on_answer_output
from analysis.encrypted import BY, FILTERS


@named_command("encrypted")
@partial(on_capture, jobs="", filters=FILTERS)
@click.option(
    "--by", default=BY, multiple=True, callback=words, metavar="COLUMN",
    help="Group by this column: any column of connections, client, broker, or an interval such as "
    f"minute. May be repeated.  [default: {', '.join(BY)}]",
)  # fmt: skip
@on_answer_output
def command(source: Input, output: Output, by: tuple[str, ...]) -> None:
    """Estimate response times of encrypted connections.

    The estimate needs no key log. A client of Kafka waits for a response, so the time from its last
    packet to the next packet of the broker is a response time. A Fetch waits at the broker for new
    records, for up to 500 ms by default.
    """
    output.check(source.captures)
    from analysis.encrypted.response_times import ESSENTIAL, USEFUL, checked, groups

    with usage_errors():  # before a large capture is read
        columns = checked(by, source.filter)
    output.check_columns(columns)
    if source.has_only_segments:
        notify(ONLY_SEGMENTS)
        return
    with source.options(show_progress=not output.is_on_terminal) as options:
        del options["show_secrets"]
        rows, report = groups(source.captures, by, source.filter, **options)
    if source.filter:
        notify(report)
    if not len(rows):
        place = "with these clients, brokers and times" if source.filter else "in this capture"
        click.echo(f"No encrypted connections {place}.", err=True)
    if len(rows) or not output.is_for_people or output.file:
        output.write(rows.to_batches(), rows.schema, ESSENTIAL, USEFUL, by)
