"""The scenarios: a function for each capture, with its name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

SCENARIOS: dict[str, Callable[[], None]] = {}


def scenario(record: Callable[[], None]) -> Callable[[], None]:
    """Make `record` a scenario; kafka_4_java is recorded as kafka-4-java."""
    SCENARIOS[record.__name__.replace("_", "-")] = record
    return record


def each(record: Callable[[str], None], *names: str) -> None:
    """Make `record` a scenario for each name. It is called with the name."""
    SCENARIOS.update({name: partial(record, name) for name in names})
