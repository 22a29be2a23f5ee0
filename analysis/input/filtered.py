"""Captures, or exported tables, of which only the rows that a filter selects are returned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from analysis.input.cluster_connections import CLUSTER_TABLES, ClusterConnections
from analysis.input.exported import ExportedTables
from analysis.input.filters import Filter
from analysis.input.passes import first_time
from analysis.input.selection import COMPUTED_TABLES, Selection, selected_keys
from analysis.names.addresses import Names
from analysis.sql.context import CONTEXT
from analysis.sql.stored import stored
from dissector.capture import Capture
from dissector.errors import DissectorError
from dissector.packets.formats.byte_input import is_stream
from dissector.pipeline import known_tables
from dissector.tables import EXCHANGES, TABLES
from dissector.tables.finalizer import NamedBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from dissector.exchanges.exchange import Exchange
    from dissector.problems import Problem


_LISTS = {"client": "clients", "topic": "latency --by topic", "broker": "latency --by broker"}
"""The command that lists the values of a condition."""


class FilteredCapture:
    """A capture of which only the selected rows are returned."""

    def __init__(self, capture: Capture | ExportedTables, chosen: Filter) -> None:
        """Raises DissectorError for a relative time if the first time of the capture is unknown."""
        if chosen.is_relative:
            if isinstance(capture, ExportedTables):
                start = capture.first_time
            else:
                start = first_time(capture.paths)
            chosen = chosen.starting(start)
        if chosen.has_broker_ids:
            _learn_brokers(capture, chosen.names)
        self._capture = capture
        clusters = _clusters(capture, chosen) if chosen.cluster else None
        chosen = replace(chosen, cluster=())
        keys = _selected_keys(capture, chosen, clusters) if chosen.computed else None
        self.selection = Selection(chosen.sql, chosen.names, keys, clusters)
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


def _selected_keys(
    capture: Capture | ExportedTables, chosen: Filter, clusters: ClusterConnections | None
) -> pa.Table:
    """See `selection.selected_keys`; in a pass of its own.

    Raises DissectorError if the capture can be read only once, or a table was not exported.
    """
    _check_passes(capture, f"--where with {chosen.computed[0]}", "use latency_ms, or a file")
    rows: Iterable[NamedBatch] = capture.stream(COMPUTED_TABLES)
    if clusters is not None:
        rows = clusters.rows(rows)
    with stored(rows, COMPUTED_TABLES) as connection:
        return selected_keys(connection, chosen.sql, chosen.names)


def _check_passes(capture: Capture | ExportedTables, option: str, remedy: str) -> None:
    """Raises DissectorError if the capture can be read only once."""
    if isinstance(capture, Capture) and any(map(is_stream, capture.paths)):
        raise DissectorError(f"{option} needs a second pass: {remedy}")


def _clusters(capture: Capture | ExportedTables, chosen: Filter) -> ClusterConnections:
    """The connections of the clusters of a filter, in a pass of its own.

    Raises DissectorError if the capture can be read only once, a table was not exported, or a
    cluster is not in the capture.
    """
    _check_passes(capture, "--cluster", "use --broker, or a file")
    return ClusterConnections.of(capture.stream(CLUSTER_TABLES), chosen.cluster, chosen.names)


def _learn_brokers(capture: Capture | ExportedTables, names: Names) -> None:
    """Learn the addresses of brokers by id, in a pass of its own.

    Raises DissectorError if the capture can be read only once, or brokers were not exported.
    """
    _check_passes(capture, "--broker ID", "use the address of the broker")
    for _, batch in capture.stream(["brokers"]):
        names.learn_brokers(batch)
