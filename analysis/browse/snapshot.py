"""The latest packets of a session as a capture, for the panes that need whole captures.

Findings and answers need what exchanges do not have, such as round trips, retransmissions and
records. So the kept packets are written to a temporary file, and read as any capture.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from analysis.browse.capture_source import CaptureSource
from analysis.browse.commands import condition
from analysis.browse.rows import Rows
from analysis.display.terminal import counted, time_text
from analysis.input.filters import Filter
from analysis.live.kept_packets import KeptPackets
from analysis.timeline.exchange import Event
from dissector.errors import DissectorError
from dissector.exchanges.exchange import Exchange, as_exchanges

IDENTITY: Final = (
    "client_ip", "client_port", "correlation_id", "request_time", "response_time",
)  # fmt: skip
"""Columns that an exchange has in the session and in the file."""
_CLOCK: Final = slice(11, 19)
"""Hours, minutes and seconds in the text of a time."""


class Snapshot(CaptureSource):
    """The packets that a session keeps at a time, whose rows `exchange` and `connection_timeline`
    take."""

    def __init__(self, packets: KeptPackets, chosen: Filter, options: dict[str, Any]) -> None:
        """`chosen`: the filter of the session. `options`: of `open_capture`. Raises
        DissectorError."""
        self._folder = TemporaryDirectory(prefix="kafka-dissector-")
        path = Path(self._folder.name) / "session.pcapng"
        self.span = packets.write(path)
        self._chosen = chosen
        super().__init__([str(path)], options)

    def close(self) -> None:
        super().close()
        self._folder.cleanup()

    def __str__(self) -> str:
        """What the panes are based on."""
        span = self.span
        first, last = (time_text(time)[_CLOCK] for time in (span.first_time, span.last_time))
        kept = "all" if span.is_whole else "the last"
        return f"based on {kept} {counted(span.packets, 'packet')}, {first} to {last}"

    def exchange(self, row: pa.RecordBatch) -> Exchange | None:
        return next(as_exchanges(row))

    def connection_timeline(self, rows: Rows, number: int) -> tuple[list[Exchange], list[Event]]:
        """The timeline of `CaptureSource`, for a row of the session."""
        row = rows.row(number)
        same = Filter([condition(name, row.column(name)[0].as_py()) for name in IDENTITY])
        numbers = self._own_rows.matching(same)
        if not len(numbers):
            raise DissectorError("the packets of this exchange are no longer kept")
        return super().connection_timeline(self._own_rows, int(numbers[0]))

    def _result_filter(self, chosen: Filter) -> Filter:
        """Exchanges must also meet the filter of the session."""
        both = [each.sql for each in (self._chosen, chosen) if each]
        return Filter(both, names=chosen.names) if self._chosen else chosen

    @cached_property
    def _own_rows(self) -> Rows:
        return self.rows()
