"""``kafka-dissector trace``: one record across the wire."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from analysis.commands.common import ONLY_SEGMENTS, Input, on_capture
from analysis.commands.coverage import COVERAGE, coverage_of
from analysis.commands.options import Integer, named_command, usage_errors
from analysis.commands.output import Output, on_answer_output


@named_command("trace")
@partial(on_capture, filters=("cluster",))
@click.option(
    "--header", metavar="NAME=VALUE",
    help="Trace records with this header; * in VALUE matches any text.",
)  # fmt: skip
@click.option("--key", metavar="TEXT", help="Trace records with this key; * matches any text.")
@click.option("--topic", metavar="NAME", help="Trace only records of this topic.")
@click.option(
    "--partition", type=Integer(0), metavar="N", help="Trace only records of this partition."
)
@click.option("--offset", type=Integer(0), metavar="N", help="Trace only records with this offset.")
@click.option(
    "--limit", type=Integer(1), default=10, show_default=True, metavar="N",
    help="Trace at most N records.",
)  # fmt: skip
@on_answer_output
def command(source: Input, output: Output, limit: int, **wanted: Any) -> None:
    """Follow a record: produced, acknowledged, fetched by each client, committed.

    Select the record by a header, its key, or its topic, partition and offset.
    """
    output.check(source.captures)
    from analysis.display.terminal import printable
    from analysis.sql.query import no_tables
    from analysis.timeline.record import ESSENTIAL, TABLES, USEFUL, events

    with usage_errors():  # before a large capture is read
        empty = events(no_tables(TABLES), **wanted)
    output.check_columns(empty.column_names)
    with source.stored(
        TABLES, show_progress=not output.is_on_terminal, shows_brokers=output.is_for_people,
        also=(COVERAGE,),
    ) as sql:  # fmt: skip
        rows = events(sql, **wanted, limit=limit)
        coverage = coverage_of(sql)
    if not len(rows):
        text = source.no_rows("records that match the options", coverage)
        click.echo(ONLY_SEGMENTS if source.has_only_segments else printable(text), err=True)
        return
    output.write(rows.to_batches(), rows.schema, ESSENTIAL, USEFUL)
    if len(rows.group_by(["topic", "partition", "offset"]).aggregate([])) == limit:
        click.echo(f"Stopped after {limit:,} records; raise --limit for more.", err=True)
