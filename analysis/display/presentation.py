"""How times and addresses are shown to people: the time zone, and the names of addresses.

Both are the same for all output of a command. So the command sets them once (`presented`), and the
functions that make text read them. Without a command, times are in UTC and addresses have no names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, tzinfo
from typing import Final

from analysis.names.addresses import Names

_CURRENT: Final[ContextVar[tuple[tzinfo, Names]]] = ContextVar("presentation")


@contextmanager
def presented(zone: tzinfo, names: Names) -> Iterator[None]:
    """Use these settings in the context. `names` may grow."""
    token = _CURRENT.set((zone, names))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def zone() -> tzinfo:
    """The time zone of times."""
    return _current()[0]


def names() -> Names:
    """The names of addresses."""
    return _current()[1]


def _current() -> tuple[tzinfo, Names]:
    return _CURRENT.get(None) or (UTC, Names())
