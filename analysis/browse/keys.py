"""The keys of the screen, for its help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

Section: TypeAlias = tuple[str, Sequence[tuple[str, str]]]
"""A title; keys and their effects."""

_KEYS: Final[tuple[Section, ...]] = (
    ("Everywhere", (
        ("/", "edit the filter; Enter applies it to all tabs"),
        ("x", "remove the filter"),
        ("y", "copy a display filter for Wireshark, or a command"),
        ("Tab", "next part of the screen"),
        ("Escape", "back to the list"),
        ("?", "this help"),
        ("q", "quit"),
    )),
    ("Filter", (
        ("SQL", "latency_ms > 100 and api = 'Produce': columns as in the list"),
        ("options", "--client app --topic 'orders*' --api Fetch --broker 10.0.0.9"),
        ("", "--since 04:17:40 --until 90 (seconds after the start)"),
    )),
    ("Lists", (
        ("↑ ↓ PgUp PgDn", "move; Home and End: first and last"),
        ("← →", "previous and next column"),
        ("s", "sort by this column; again: reverse; S: reverse"),
        ("f", "add a filter: this column has the value of this cell"),
        ("t", "go to a time"),
        ("Enter", "go to the fields of the exchange"),
    )),
    ("Fields", (
        ("Enter", "fold or unfold; arrays of more than 10 elements are folded at first"),
        ("+ -", "unfold all, fold all"),
    )),
)  # fmt: skip
CAPTURE_KEYS: Final[tuple[Section, ...]] = (
    ("Tabs", (
        ("1 2 3 4", "exchanges, connection, findings, answers"),
        ("c", "packets of the connection around the selected exchange"),
    )),
    *_KEYS,
)  # fmt: skip
LIVE_KEYS: Final[tuple[Section, ...]] = (
    ("Tabs", (
        ("1 2 3 4 5", "rates, latest exchanges, connection, findings, answers"),
        ("c", "packets of the connection around the selected exchange"),
        ("r", "read all packets so far for connection, findings and answers"),
        ("Tab", "rates: group by client, API, broker or topic"),
        ("Enter", "rates: show the exchanges of a group"),
        ("Space", "pause, and continue"),
    )),
    *_KEYS,
)  # fmt: skip
