"""The input of commands and functions: captures, or tables that were exported; filtered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, Unpack, cast

import dissector
from analysis.input.exported import ExportedTables, is_exported
from analysis.input.filters import Filter
from analysis.sql.context import context_of
from dissector.capture import Capture, OpenOptions, Paths

if TYPE_CHECKING:
    from analysis.input.filtered import FilteredCapture

Opened: TypeAlias = "Capture | ExportedTables | FilteredCapture"


def open_input(
    paths: Paths, chosen: Filter | None = None, **options: Unpack[OpenOptions]
) -> Opened:
    """Open captures, or exported tables (see `analysis.input.exported`).

    `chosen`: return only rows of the selected exchanges. `options`: those of `open_capture`;
    exported tables ignore them. Raises CaptureError, and DissectorError for a wrong filter.
    """
    given = [paths] if isinstance(paths, str) or not isinstance(paths, Sequence) else paths
    exported = is_exported(given)
    opened = ExportedTables(given) if exported else dissector.open_capture(paths, **options)
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


def filter_report(opened: Opened, chosen: Filter | None) -> str:
    """The filter, and how many exchanges the latest pass selected; empty without a filter."""
    return "" if chosen is None else cast("FilteredCapture", opened).report
