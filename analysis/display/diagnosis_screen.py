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
from analysis.display.listing import OPTIONAL, Cell, Column, Listing
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
"""Maximum number of findings of a rule. A rule may have one for each client, group or topic, which
would hide those of the other rules."""
PARTS: Final = {
    "broker": "broker_ms", "network": "network_ms", "queue": "queue_ms", "quota": "quota_ms",
    "long polls": "poll_ms",
}  # fmt: skip
"""Columns of `analysis.diagnosis.time`, by their heads. The screen omits one without any time."""
LABELS: Final = 9
"""Width of the labels of a block."""

ADVICE: Final = ("rule", "cause", "side", "setting", "change", "reference", "command")
"""What findings of a rule may have in common, such as those of clients with the same settings."""
REPEATED: Final = "As above, with the same change."
NAMES_OF_SETTINGS: Final = "Settings of clients have the names of the Java client."

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
    for finding, is_repeated in zip(shown, have_same_advice(shown), strict=True):
        yield from block(finding, diagnosis.last_time, is_repeated=is_repeated)
        line = "" if is_repeated else command(finding["command"])
        if line:  # in one piece, so that it can be copied
            label = f"  {'more':<{LABELS}}  "
            yield Text.assemble((label, "dim"), (printable(line), "cyan"), no_wrap=True)
    if others:
        yield Text(f"\nand {others}; --format jsonl writes all", "dim")
    if name_settings(shown):
        yield Text(f"\n{NAMES_OF_SETTINGS}", "dim")
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


def name_settings(findings: Sequence[Row]) -> bool:
    """Whether findings name settings of clients, so that `NAMES_OF_SETTINGS` follows them."""
    return any(finding["side"] == "client" and finding["setting"] for finding in findings)


def have_same_advice(findings: Sequence[Row]) -> list[bool]:
    """Whether each finding has the same `ADVICE` as the one above it, so that `REPEATED` stands for
    it."""
    advice = [tuple(finding[name] for name in ADVICE) for finding in findings]
    return [index > 0 and advice[index - 1] == own for index, own in enumerate(advice)]


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


def block(
    finding: Row, end: int | None, command: Command | None = None, *, is_repeated: bool = False
) -> Iterator[RenderableType]:
    """A finding: its sentence, evidence, cause, what to change, and the command if there is one.

    `end`: of the diagnosed span, in ns. `is_repeated`: the finding above has the same `ADVICE`.
    """
    severity = finding["severity"]
    yield Text.assemble(
        "\n", (severity, STYLES[severity]), (f"[{finding['rule']}]: ", "dim"),
        (excerpt(names().in_text(finding["sentence"])), "bold"),
    )  # fmt: skip
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(style="dim", no_wrap=True, width=LABELS)
    lines.add_column(overflow="fold")
    for label, text, style in (
        ("time", times(finding, end), ""),
        ("evidence", names().in_text(finding["evidence"]), ""),
        *([("cause", REPEATED, "")] if is_repeated else _advice(finding)),
        ("more", command(finding["command"]) if command else "", "cyan"),
    ):
        if text:
            lines.add_row(label, Text(printable(text), style))
    yield Padding(lines, (0, 0, 0, 2), expand=False)


def _advice(finding: Row) -> list[tuple[str, str, str]]:
    """Labels, texts and styles of the lines about the cause and what to change."""
    setting = f" {finding['setting']}" if finding["setting"] else ""
    return [
        ("cause", sentence(finding["cause"]), ""),
        ("change", f"{finding['side']}{setting}: {finding['change']}", ""),
        ("see", finding["reference"], ""),
    ]


def times(finding: Row, end: int | None) -> str:
    """The time of the first case and of the last one, and how long before the end of the diagnosed
    span the last one was, unless it is still open; empty if unknown."""
    first, last = finding["first_time"], finding["last_time"]
    if first is None:
        return ""
    span = time_text(first, 3) if last in (None, first) else span_text(first, last)
    text = f"{span} {zone_name()}"
    if last is None or end is None:
        return text
    remaining = end - last
    duration = "< 1 s" if remaining < 10**9 else ms(remaining / 1e6)
    return f"{text}, {duration} before the end"


def sentence(text: str) -> str:
    """A cause as a sentence; a first word that is a name keeps its case."""
    first, _, _ = text.partition(" ")
    return f"{text}." if "." in first or "_" in first else f"{text[:1].upper()}{text[1:]}."


def _time(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    rows = diagnosis.clients
    if not rows:
        return
    yield Text("\nWhere requests spent their time, in total", "bold")
    parts = {name: column for name, column in PARTS.items() if any(row[column] for row in rows)}
    columns = [
        Column("client id"),
        Column("requests", number=True, rank=OPTIONAL),
        *(Column(name, number=True, rank=rank) for rank, name in enumerate(parts, 1)),
    ]
    shown = rows[:MOST_CLIENTS]
    cells: list[Sequence[Cell]] = [
        [excerpt(row["client_id"] or "") or Text("-", "dim") for row in shown],
        [f"{row['requests']:,}" for row in shown],
        *([_ms(row[column]) for row in shown] for column in parts.values()),
    ]
    others = len(rows) - MOST_CLIENTS
    note = f"and {counted(others, 'more client')}" if others > 0 else ""
    yield Padding(Listing(columns, cells, note=note), (0, 0, 0, 2), expand=False)


def _ms(value: float | None) -> Text:
    if value is None:
        return Text("-", "dim")
    return Text(ms(value), "" if value else "dim")
