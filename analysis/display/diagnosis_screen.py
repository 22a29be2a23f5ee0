"""The screen of a diagnosis: a block for each finding, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analysis.diagnosis.run import Diagnosis, counts
from analysis.diagnosis.words import ms
from analysis.display.listing import OPTIONAL, Column, Listing
from analysis.display.presentation import names
from analysis.display.terminal import (
    counted,
    duration_text,
    excerpt,
    printable,
    span_text,
    time_text,
    zone_name,
)
from analysis.sql.query import Row

STYLES: Final = {"critical": "bold red", "warning": "bold yellow", "note": "bold cyan"}
MOST_CLIENTS: Final = 10
MOST_FINDINGS: Final = 10
"""Most findings of a rule. A rule may have one for each client, group or topic, which would hide
those of the other rules."""
LABELS: Final = 9
"""Width of the labels of a block."""

Command = Callable[[str], str]
"""From a command to its command line on the same capture; empty if there is none."""


def screen(diagnosis: Diagnosis, name: str, command: Command) -> Iterator[RenderableType]:
    """The parts of the screen, from the top."""
    yield Text(printable(name), "bold")
    yield from _span(diagnosis)
    if not diagnosis.requests:
        yield Text("\nThere is no request to diagnose.", "bold")
    findings = diagnosis.findings
    if findings or diagnosis.requests:
        yield verdict(findings, diagnosis.rules)
    shown, others = first_of_rules(findings)
    for finding in shown:
        yield from block(finding)
        if line := command(finding["command"]):  # in one piece, so that it can be copied
            label = f"  {'more':<{LABELS}}  "
            yield Text.assemble((label, "dim"), (printable(line), "cyan"), no_wrap=True)
    if others:
        yield Text(f"\nand {others}; --format jsonl writes all", "dim")
    yield from _time(diagnosis)


def first_of_rules(findings: Sequence[Row]) -> tuple[list[Row], str]:
    """The first findings of each rule, and the numbers of the others in words; empty without any:
    ``3 more findings: 1 of rebalances, 2 of growing_lag``."""
    shown, counts = [], Counter[str]()
    for finding in findings:
        counts[finding["rule"]] += 1
        if counts[finding["rule"]] <= MOST_FINDINGS:
            shown.append(finding)
    others = {rule: count - MOST_FINDINGS for rule, count in counts.items()}
    numbers = ", ".join(f"{count:,} of {rule}" for rule, count in others.items() if count > 0)
    total = counted(len(findings) - len(shown), "more finding")
    return shown, f"{total}: {numbers}" if numbers else ""


def _span(diagnosis: Diagnosis) -> Iterator[Text]:
    first, last = diagnosis.first_time, diagnosis.last_time
    if first is not None and last is not None:
        yield Text(
            f"{span_text(first, last)} {zone_name()}, {duration_text(last - first)}, "
            f"{counted(diagnosis.requests, 'request')}"
        )


def verdict(findings: Sequence[Row], rules: int) -> Text:
    """The number of findings by severity."""
    if not findings:
        return Text(f"\nNo findings: none of the {rules} rules applies.", "green")
    parts: list[tuple[str, str]] = []
    for severity, count in counts(row["severity"] for row in findings).items():
        text = f"{count:,} critical" if severity == "critical" else counted(count, severity)
        parts += [(", " if parts else "\n", ""), (text, STYLES[severity])]
    return Text.assemble(*parts)


def block(finding: Row, command: Command | None = None) -> Iterator[RenderableType]:
    """A finding: its sentence, evidence, cause, what to change, and the command if there is one."""
    severity = finding["severity"]
    yield Text.assemble(
        "\n", (severity, STYLES[severity]), (f"[{finding['rule']}]: ", "dim"),
        (excerpt(names().in_text(finding["sentence"])), "bold"),
    )  # fmt: skip
    where = finding["side"]
    setting = f" {finding['setting']}" if finding["setting"] else ""
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(style="dim", no_wrap=True, width=LABELS)
    lines.add_column(overflow="fold")
    for label, text, style in (
        ("time", times(finding), ""),
        ("evidence", names().in_text(finding["evidence"]), ""),
        ("cause", sentence(finding["cause"]), ""),
        ("change", f"{where}{setting}: {finding['change']}", ""),
        ("see", finding["reference"], ""),
        ("more", command(finding["command"]) if command else "", "cyan"),
    ):
        if text:
            lines.add_row(label, Text(printable(text), style))
    yield Padding(lines, (0, 0, 0, 2), expand=False)


def times(finding: Row) -> str:
    """The time of the first case, and of the last one; empty if unknown."""
    first, last = finding["first_time"], finding["last_time"]
    if first is None:
        return ""
    span = time_text(first, 3) if last in (None, first) else span_text(first, last)
    return f"{span} {zone_name()}"


def sentence(text: str) -> str:
    """A cause as a sentence; a first word that is a name keeps its case."""
    first, _, _ = text.partition(" ")
    return f"{text}." if "." in first or "_" in first else f"{text[:1].upper()}{text[1:]}."


def _time(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    rows = diagnosis.clients
    if not rows:
        return
    yield Text("\nWhere requests spent their time, in total", "bold")
    columns = [Column("client id")] + [
        Column(name, number=True, rank=rank)
        for name, rank in (
            ("requests", OPTIONAL), ("broker", 1), ("network", 2), ("queue", 3), ("quota", 4),
            ("long polls", 5),
        )
    ]  # fmt: skip
    cells = [
        (
            Text(excerpt(row["client_id"])) if row["client_id"] else Text("-", "dim"),
            Text(f"{row['requests']:,}"),
            *(_ms(row[f"{name}_ms"]) for name in ("broker", "network", "queue", "quota", "poll")),
        )
        for row in rows[:MOST_CLIENTS]
    ]
    yield Padding(Listing(columns, cells), (0, 0, 0, 2), expand=False)
    if len(rows) > MOST_CLIENTS:
        yield Text(f"  and {counted(len(rows) - MOST_CLIENTS, 'more client')}", "dim")


def _ms(value: float | None) -> Text:
    if value is None:
        return Text("-", "dim")
    return Text(ms(value), "" if value else "dim")
