"""The scenarios: a function for each capture, with its name."""

from __future__ import annotations

from collections.abc import Callable

from tools.record.recording import Recording, Tool

SCENARIOS: dict[str, Callable[[], None]] = {}


def scenario(
    about: str, tool: Tool
) -> Callable[[Callable[[Recording], None]], Callable[[Recording], None]]:
    """Make a function a scenario: chatter_mock is recorded as chatter-mock."""

    def add(happen: Callable[[Recording], None]) -> Callable[[Recording], None]:
        name = happen.__name__.replace("_", "-")
        SCENARIOS[name] = lambda: happen(Recording(name, about, tool))
        return happen

    return add
