"""The ledger: one row for each capture, in the tables of `captures/README.md`."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from pathlib import Path

CAPTURES = Path(__file__).parents[2] / "captures"
README = CAPTURES / "README.md"
PACKAGES = "\n## Brokers from Python packages\n"
KAFKA = "\n## Apache Kafka itself\n"
HEAD = (
    "| capture | what is in it | broker | clients | recorded with | link | packets | requests |\n"
)
RULE = "|---|---|---|---|---|---|---|---|\n"


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the table, in order of its columns."""

    capture: str
    """File name."""
    about: str
    """The work of brokers and clients in it."""
    broker: str
    """Software and version."""
    clients: str
    """Software and version of each."""
    tool: str
    """The capturing tool, and the date."""
    link: str
    """Interface, link type, format and resolution of time."""
    packets: int
    """As counted by the tool that captured them."""
    requests: int
    """As counted in the clients' logs."""

    def line(self) -> str:
        """The row in Markdown."""
        _, *cells = astuple(self)
        return f"| `{self.capture}` | {' | '.join(f'{cell}' for cell in cells)} |\n"


def enter(entry: Entry, title: str = PACKAGES) -> None:
    """Write `entry` into the table of the section `title`."""
    put(title, HEAD + RULE, entry.capture, entry.line())


def put(title: str, head: str, name: str, line: str) -> None:
    """Write a row that begins with `name` into the table that begins with `head`, in section
    `title`.

    Rows are sorted by name; a row with the same name is replaced.
    """
    before, title, section = README.read_text().partition(title)
    about, head, rows_and_text = section.partition(head)
    if not head:
        raise ValueError(f"{README} has no such table under {title}")
    lines = rows_and_text.splitlines(keepends=True)
    end = next((i for i, each in enumerate(lines) if not each.startswith("|")), len(lines))
    rows = {each.split("`")[1]: each for each in lines[:end]} | {name: line}
    table = "".join(rows[each] for each in sorted(rows))
    README.write_text(before + title + about + head + table + "".join(lines[end:]))
