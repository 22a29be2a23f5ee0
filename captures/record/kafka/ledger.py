"""The ledger: one row for each capture in the table of `captures/README.md`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
SECTION = """
## Apache Kafka itself

Recorded by `python -m captures.record.kafka SCENARIO` on loopback; the scenario has the capture's
name. Every password, token and key in them was made for the recording. Beside each capture stands
`NAME.truth.jsonl.zst`: what the broker's request log says of every request, and librdkafka's
protocol log where it ran (`captures/record/kafka/truth.py` has the fields).

| capture | what is in it | software |
|---|---|---|
"""


def enter(capture: Path, about: str, software: Sequence[str]) -> None:
    """Write the row of `capture`, in place of an older one, in order of name."""
    text = README.read_text() if README.exists() else "# Captures\n"
    if SECTION not in text:
        text = text.rstrip("\n") + "\n" + SECTION
    before, after = text.split(SECTION)
    lines = after.splitlines(keepends=True)
    end = next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))
    rows = {line.split("`")[1]: line for line in lines[:end]}
    rows[capture.name] = f"| `{capture.name}` | {about} | {', '.join(software)} |\n"
    README.write_text(
        before + SECTION + "".join(rows[name] for name in sorted(rows)) + "".join(lines[end:])
    )
