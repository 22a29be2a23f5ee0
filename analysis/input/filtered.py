"""Captures, or exported tables, of which only the rows that a filter selects are returned."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from analysis.input.exported import ExportedTables
from analysis.input.filters import Filter
from analysis.sql.context import CONTEXT
from dissector.capture import Capture
from dissector.pipeline import known_tables
from dissector.tables import EXCHANGES, TABLES
from dissector.tables.finalizer import NamedBatch

if TYPE_CHECKING:
    from dissector.exchanges.exchange import Exchange
    from dissector.problems import Problem


_LISTS = {"client": "clients", "topic": "latency --by topic", "broker": "latency --by broker"}
"""The command that lists the values of a condition."""


class FilteredCapture:
    """A capture of which only the selected rows are returned."""

    def __init__(self, capture: Capture | ExportedTables, chosen: Filter) -> None:
        """Raises DissectorError: see `Filter.selection`."""
        self._capture = capture
        self.selection = chosen.selection(capture)
        self._has_times = bool(chosen.since or chosen.until)
        self._lists = [(name, _LISTS[name]) for name in _LISTS if getattr(chosen, name)]

    @property
    def report(self) -> str:
        """The filter, and how many exchanges the latest pass selected.

        Times are in UTC, whatever the zone of the filter. If it selects none, a time may be of
        another zone or day, and a name may be misspelt, so the report has the times of the
        exchanges, and the commands that list the names.
        """
        text = f"Filter: {self.selection}"
        is_empty = not self.selection.selected and self.selection.span
        if self._has_times and is_empty:
            text += f", which are of {self.selection.span}"
        elif self._has_times:
            text += "; times in UTC"
        lists = self._lists if is_empty else []
        return "".join([text, *(f"; `{command}` lists all {name}s" for name, command in lists)])

    @property
    def packets(self) -> int | None:
        """As `Capture.packets`."""
        return self._capture.packets

    @property
    def host_names(self) -> Sequence[tuple[str, str]]:
        """As `Capture.host_names`."""
        return self._capture.host_names

    @property
    def file_problems(self) -> Sequence[Problem]:
        """As `Capture.file_problems`."""
        return self._capture.file_problems

    @property
    def without_tcp(self) -> Mapping[str, int]:
        """As `Capture.without_tcp`."""
        return self._capture.without_tcp

    def has_table(self, name: str) -> bool:
        """As `ExportedTables.has_table`."""
        return self._capture.has_table(name)

    def stream(self, tables: str | Collection[str] | None = None) -> Iterator[NamedBatch]:
        """As `Capture.stream`; `tables` may include a context (see `analysis.sql.context`)."""
        names = (tables,) if isinstance(tables, str) else tables
        context = [name for name in CONTEXT if names and name in names]
        wanted = known_tables(names and [name for name in names if name not in context])
        needed = [name for name in TABLES if name in {*wanted, EXCHANGES.name}]
        return self.selection.rows(self._capture.stream(needed), {*wanted, *context})

    def exchanges(self) -> Iterator[Exchange]:
        """As `Capture.exchanges`."""
        return self._capture.exchanges(select=self.selection.exchanges)
