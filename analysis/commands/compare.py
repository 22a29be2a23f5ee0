"""``kafka-dissector compare``: print what changed between two captures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from analysis.commands.common import ONLY_SEGMENTS, Input, on_capture
from analysis.commands.coverage import Coverage, coverage_of
from analysis.commands.options import Number, named_command, usage_errors, words
from analysis.commands.output import FORMAT_NAMES, JSON, TABLE_FORMATS, Output, on_output

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.text import Text

    from analysis.comparison.profile import Profile
    from analysis.comparison.run import Comparison

FAILED: Final = 3
"""Exit status if there is a change as in --fail-on."""

BY: Final = ("client_id", "api")
"""As in `analysis.comparison.run`."""

ESSENTIAL: Final = "measure before after unit change_percent change detail"
USEFUL: Final = "low_percent high_percent is_worse"


@named_command("compare")
@partial(on_capture, metavar="BEFORE AFTER")
@click.option(
    "--by", multiple=True, default=BY, callback=words, metavar="COLUMN",
    help="Compare groups of requests by this column: any column of exchanges, or broker, "
    f"client, software, topic. May be repeated.  [default: {', '.join(BY)}]",
)  # fmt: skip
@click.option(
    "--threshold", type=Number(0), default=10.0, show_default=True, metavar="PERCENT",
    help="Smallest change of a measure to report.",
)  # fmt: skip
@click.option(
    "--confidence", type=Number(50, 99.99), default=95.0, show_default=True, metavar="PERCENT",
    help="Probability that none of the reported changes is noise.",
)  # fmt: skip
@click.option("--all", "unchanged", is_flag=True, help="Also list measures without a change.")
@click.option(
    "--fail-on",
    type=click.Choice(("worse", "change")),
    help=f"Exit with status {FAILED} if something became worse, or if anything changed.",
)
@partial(on_output, forms=(*TABLE_FORMATS, JSON, *FORMAT_NAMES), secrets=False)
def command(
    source: Input, output: Output, by: tuple[str, ...], threshold: float, confidence: float,
    unchanged: bool, fail_on: str | None,
) -> None:  # fmt: skip
    """Compare two captures: what changed beyond noise, most important first.

    BEFORE and AFTER are files, folders or patterns. To compare two parts of one capture, export
    their tables first, one with --until and one with --since. The format json is one object, which
    also has the totals of both captures; the other formats have a row for each change.
    """
    if len(source.captures) != 2:
        raise click.UsageError(
            f"compare takes two captures, BEFORE and AFTER, not {len(source.captures)}; a folder "
            "or a pattern in quotes is one capture"
        )
    output.check(source.captures)
    from analysis.comparison.profile import profile
    from analysis.comparison.run import COMPARED_TABLES, compared
    from analysis.sql.query import connected, no_tables

    compare = partial(
        compared, by=by, least_percent=threshold, confidence=confidence / 100, unchanged=unchanged
    )
    with usage_errors():  # before a large capture is read
        with connected(no_tables(COMPARED_TABLES), COMPARED_TABLES) as tables:
            empty = profile(tables, by)
        columns = compare(empty, empty).changes.column_names
    output.check_columns(columns)
    if source.captures == ("-", "-"):
        raise click.UsageError("standard input can be read only once; write it to a file first")
    sides = [_profile(replace(source, captures=(each,)), output, by) for each in source.captures]
    profiles, coverages = zip(*sides, strict=True)
    comparison = compare(*profiles)
    _write(comparison, coverages, source, output, by)
    if fail_on and _is_bad(comparison.changes, fail_on):
        click.get_current_context().exit(FAILED)


def _is_bad(changes: pa.Table, fail_on: str) -> bool:
    if fail_on == "worse":
        return True in changes["is_worse"].to_pylist()
    return any(change != "none" for change in changes["change"].to_pylist())


def _profile(source: Input, output: Output, by: tuple[str, ...]) -> tuple[Profile, Coverage]:
    from analysis.comparison.profile import profile
    from analysis.comparison.run import COMPARED_TABLES

    with source.stored(
        COMPARED_TABLES, show_progress=not output.is_on_terminal,
        shows_brokers=output.shows_brokers(by),
    ) as tables:  # fmt: skip
        return profile(tables, by), coverage_of(tables)


def _write(
    comparison: Comparison, coverages: tuple[Coverage, ...], source: Input, output: Output,
    by: tuple[str, ...],
) -> None:  # fmt: skip
    from analysis.display import terminal

    rows = comparison.changes
    if output.is_for_people and not output.columns:  # empty columns would only take room
        rows = rows.select([n for n in rows.column_names if rows[n].null_count < len(rows)])
    if output.form == JSON:
        _write_json(comparison, rows, source, output)
        return
    if output.is_for_people and output.file is None:
        terminal.write(_heading(comparison, coverages, source.captures))
        if not len(rows):
            click.echo(_no_change(comparison, source))
            return
    output.write(rows.to_batches(), rows.schema, ESSENTIAL.split(), USEFUL.split(), by)


def _no_change(comparison: Comparison, source: Input) -> str:
    from analysis.comparison.run import LEAST_REQUESTS
    from analysis.display.terminal import counted

    if not (comparison.before.requests and comparison.after.requests):
        return ONLY_SEGMENTS if source.has_only_segments else "There is no request to compare."
    if not comparison.measured:
        return f"Nothing to compare: no group has {LEAST_REQUESTS} requests."
    return (
        f"No change beyond random variation in {counted(comparison.measured, 'measure')} of groups "
        f"with {LEAST_REQUESTS} requests or more. To list them, pass --all."
    )


def _write_json(comparison: Comparison, rows: pa.Table, source: Input, output: Output) -> None:
    """Write the totals of both captures and the changes as one object."""
    import json

    from analysis.export.text import json_lines
    from dissector.arguments import name_text

    if output.columns:
        rows = rows.select(output.columns)
    sides = (comparison.before, comparison.after)
    whole: dict[str, Any] = {
        label: {
            "capture": name_text(name), "first_time": side.first_time,
            "seconds": side.seconds, "requests": side.requests,
        }
        for label, name, side in zip(("before", "after"), source.captures, sides, strict=True)
    }  # fmt: skip
    lines = (line for batch in rows.to_batches() for line in json_lines(batch).to_pylist())
    text = json.dumps(whole | {"changes": [json.loads(line) for line in lines]}, indent=2)
    with output.opened() as sink:
        sink.write(f"{text}\n".encode())


def _heading(
    comparison: Comparison, coverages: tuple[Coverage, ...], names: tuple[str, ...]
) -> Iterator[Text]:
    from rich.text import Text

    from analysis.display.terminal import counted, duration_text, moment_text, printable
    from dissector.redaction import without_credentials

    sides = (comparison.before, comparison.after)
    labels = ("before", "after")
    for label, name, side, coverage in zip(labels, names, sides, coverages, strict=True):
        start = "" if side.first_time is None else f", {moment_text(side.first_time)}"
        yield Text(
            f"{label:<6}  {printable(without_credentials(name))}{start}, "
            f"{duration_text(round(side.seconds * 1e9))}, {counted(side.requests, 'request')}"
        )
        if not coverage.is_complete:
            yield Text(
                f"        {coverage.read:,} of {counted(coverage.payload, 'connection')} could be "
                "read"
            )
    yield Text("")
