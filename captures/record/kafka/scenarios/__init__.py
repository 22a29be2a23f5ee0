"""The scenarios: each a function of what happens, named as its capture is."""

from __future__ import annotations

from collections.abc import Callable

SCENARIOS: dict[str, Callable[[], None]] = {}


def scenario(record: Callable[[], None]) -> Callable[[], None]:
    """Make `record` a scenario; kafka_4_java is recorded as kafka-4-java."""
    SCENARIOS[record.__name__.replace("_", "-")] = record
    return record
