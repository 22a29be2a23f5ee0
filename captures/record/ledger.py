"""The ledger: one row for each capture, in a table of `captures/README.md`."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from pathlib import Path

CAPTURES = Path(__file__).parents[1]
README = CAPTURES / "README.md"
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
    """What happens in it."""
    broker: str
    """Software and version."""
    clients: str
    """Software and version of each."""
    tool: str
    """What captured it, and on which day."""
    link: str
    """Interface, link type, format and resolution of time."""
    packets: int
    """As counted by the tool that captured them."""
    requests: int
    """As counted in the clients' logs."""

    def line(self) -> str:
        """The row as it stands in the table."""
        _, *cells = astuple(self)
        return f"| `{self.capture}` | {' | '.join(f'{cell}' for cell in cells)} |\n"


def enter(entry: Entry) -> None:
    """Write `entry` into the table, in place of an older row of that capture, in order of name."""
    before, head, rest = README.read_text().partition(HEAD + RULE)
    if not head:
        raise ValueError(f"{README} has no table that begins with {HEAD}")
    lines = rest.splitlines(keepends=True)
    end = next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))
    rows = {line.split("`")[1]: line for line in lines[:end]} | {entry.capture: entry.line()}
    README.write_text(
        before + head + "".join(rows[name] for name in sorted(rows)) + "".join(lines[end:])
    )
