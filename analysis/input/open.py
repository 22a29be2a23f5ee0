"""The input of commands and functions: captures, or tables that were exported; filtered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, Unpack, cast

import dissector
from analysis.input.exported import ExportedTables, is_exported
from analysis.input.filters import Filter
from analysis.sql.context import context_of
from dissector import arguments
from dissector.capture import Capture, OpenOptions, Paths
from dissector.errors import DissectorError
from dissector.packets.paths import input_name
from dissector.problems import UNREADABLE

if TYPE_CHECKING:
    from analysis.input.filtered import FilteredCapture
    from dissector.problems import Problem

Opened: TypeAlias = "Capture | ExportedTables | FilteredCapture"


def open_input(
    paths: Paths, chosen: Filter | None = None, **options: Unpack[OpenOptions]
) -> Opened:
    """Open captures, or exported tables (see `analysis.input.exported`).

    `chosen`: return only rows of the selected exchanges. `options`: those of `open_capture`;
    exported tables ignore them. Raises CaptureError, and DissectorError for a wrong filter.
    """
    if not isinstance(chosen, Filter | None):
        raise DissectorError(f"chosen must be a Filter, not {chosen!r}")
    given = arguments.paths("paths", paths)
    exported = is_exported(given)
    opened = ExportedTables(given) if exported else dissector.open_capture(given, **options)
    if chosen is None:
        return opened
    from analysis.input.filtered import FilteredCapture

    return FilteredCapture(opened, chosen)


def with_context(opened: Opened, names: Iterable[str]) -> tuple[str, ...]:
    """The names of tables, and of the context of a filter if answers may need it."""
    from analysis.input.filtered import FilteredCapture

    names = tuple(dict.fromkeys(names))
    context = context_of(names) if isinstance(opened, FilteredCapture) else []
    return tuple(dict.fromkeys((*names, *context)))


def file_warnings(problems: Sequence[Problem]) -> list[str]:
    """A line for each file that could not be read, or not wholly: its first problem."""
    first: dict[str | None, Problem] = {}
    for problem in problems:
        first.setdefault(problem.capture, problem)
    return [f"Warning: {_warning(name, each)}" for name, each in first.items()]


def _warning(name: str | None, problem: Problem) -> str:
    if problem.kind == UNREADABLE:  # the detail begins with the name
        return f"{problem.detail}. The result does not include it."
    return f"{name and input_name(name)}: {problem.detail}. The result is incomplete."


def filter_report(opened: Opened, chosen: Filter | None) -> str:
    """The filter, and how many exchanges the latest pass selected; empty without a filter."""
    return "" if chosen is None else cast("FilteredCapture", opened).report
