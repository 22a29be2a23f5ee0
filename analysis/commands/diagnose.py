"""``kafka-dissector diagnose``: print what is wrong in a capture, and what to change."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from analysis.commands.common import Input, on_capture
from analysis.commands.options import Choice, Number, named_command, on_pager, output_option
from analysis.diagnosis.rule import SEVERITIES

if TYPE_CHECKING:
    from analysis.diagnosis.run import Diagnosis

FAILED: Final = 3
"""Exit status if a finding is as bad as --fail-on."""


def _thresholds(
    context: click.Context, parameter: click.Parameter, given: Sequence[str]
) -> dict[str, dict[str, float]]:
    """``--threshold rule.name=value``: the thresholds of all rules."""
    from analysis.diagnosis.catalog import limits
    from dissector.errors import DissectorError

    values = {}
    for text in given:
        key, _, number = text.partition("=")
        try:
            values[key] = Number(0).convert(number, parameter, context)
        except click.BadParameter as error:
            raise click.BadParameter(
                f"{text!r} is not RULE=NUMBER or RULE.THRESHOLD=NUMBER: {error.message}"
            ) from None
    try:
        return limits(values)
    except DissectorError as error:
        raise click.BadParameter(str(error)) from error


@named_command("diagnose")
@on_capture
@output_option(
    "--format", "form", type=Choice(("text", "json", "jsonl")), default="text", show_default=True,
    help="Set the output format; jsonl has a line for each finding.",
)  # fmt: skip
@click.option(
    "--threshold", "thresholds", multiple=True, callback=_thresholds,
    metavar="RULE[.THRESHOLD]=NUMBER",
    help="Set a threshold; without THRESHOLD, the main one of the rule. May be repeated. "
    "docs/rules.md lists all of them.",
)  # fmt: skip
@click.option(
    "--fail-on",
    type=Choice(SEVERITIES),
    help=f"Exit with status {FAILED} if a finding is at least this severe.",
)
@on_pager
def command(
    source: Input, form: str, thresholds: dict[str, dict[str, float]], fail_on: str | None,
    no_pager: bool,
) -> None:  # fmt: skip
    """Find what is wrong, most severe first, with evidence, cause, and what to change."""
    from analysis.diagnosis.run import DIAGNOSIS_TABLES, diagnosed, is_as_bad

    with source.stored(
        DIAGNOSIS_TABLES, show_progress=not sys.stdout.isatty(), shows_brokers=form == "text"
    ) as tables:
        diagnosis = diagnosed(tables, thresholds, is_filtered=source.filter is not None)
    if form == "text":
        from analysis.display.diagnosis_screen import screen
        from analysis.display.terminal import write

        write(screen(diagnosis, source.name, source.again), pager=not no_pager)
        is_explained = diagnosis.requests or len(diagnosis.findings)
        if not is_explained and source.filter is None:
            click.echo(source.nothing, err=True)
    else:
        _write_json(diagnosis, source, form)
    if fail_on and is_as_bad((row["severity"] for row in diagnosis.findings), fail_on):
        click.get_current_context().exit(FAILED)


def _write_json(diagnosis: Diagnosis, source: Input, form: str) -> None:
    from analysis.display.terminal import utc_text
    from dissector.arguments import name_text

    findings = [dict(finding) for finding in diagnosis.findings]
    for finding in findings:
        for name in ("first_time", "last_time"):
            finding[name] = None if finding[name] is None else utc_text(finding[name])
        finding["command"] = source.again(finding["command"])
    if form == "jsonl":
        for finding in findings:
            click.echo(json.dumps(finding))
        return
    whole = {
        "captures": [*map(name_text, source.captures)],
        "first_time": diagnosis.first_time,
        "last_time": diagnosis.last_time,
        "requests": diagnosis.requests,
        "findings": findings,
        "clients": diagnosis.clients,
    }
    click.echo(json.dumps(whole, indent=2))
