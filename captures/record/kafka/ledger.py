"""The rows of captures/README.md that tell of Apache Kafka itself."""

from __future__ import annotations

from captures.record.ledger import HEAD, README, RULE, Entry

TABLE = "\n## Apache Kafka itself\n"


def enter(entry: Entry) -> None:
    """Write the row of a capture, in place of an older one, in order of name."""
    before, title, section = README.read_text().partition(TABLE)
    about, head, rest = section.partition(HEAD + RULE)
    if not head:
        raise ValueError(f"{README} has no table that begins with {HEAD} under {title}")
    lines = rest.splitlines(keepends=True)
    end = next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))
    rows = {line.split("`")[1]: line for line in lines[:end]} | {entry.capture: entry.line()}
    table = "".join(rows[name] for name in sorted(rows))
    README.write_text(before + title + about + head + table + "".join(lines[end:]))
