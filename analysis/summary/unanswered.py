"""Requests without a response: unanswered, or in flight when the capture or connection ended.

The end of the connection decides which of them it is. It is read after its requests, but some of
these may follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from analysis.kafka.normal import GROUP_TIMEOUT_MS, REQUEST_TIMEOUT_MS, group_barriers
from analysis.summary.tally import Tally, known, with_columns, with_span, zeros
from dissector.arrays import value


@value
class _End:
    """How a connection ended."""

    is_open: bool
    """Whether the connection was open when the capture ended."""
    time: int | None
    """Time of the last packet; ns."""
    is_whole: bool
    """Whether the capture has both directions without losses."""


class Unanswered:
    """Counts requests without a response. `last`: the time of the last packet; ns."""

    def __init__(self) -> None:
        self._requests = Tally(
            ("connection_id", "api", "client_id", "max_wait_ms"),
            count="sum", first="min", last="max", incomplete="sum",
        )  # fmt: skip
        self._ends: dict[int, _End] = {}
        self._forgotten = _by_client()
        """Unanswered requests of forgotten connections; likewise the next one."""
        self._forgotten_in_flight = 0

    def add(self, exchanges: pa.Table) -> None:
        """Count the requests among these exchanges."""
        silent = with_span(
            exchanges.filter(pc.equal(exchanges["status"], "unanswered")), "request_time"
        )
        unknown = zeros(len(silent))  # until the end
        self._requests.add(with_columns(silent, incomplete=unknown))

    def add_ends(self, connections: pa.Table) -> None:
        """Note the ends of connections that have requests without a response; some of these
        requests are read later. `connections` has the columns `last` and `lost`, too."""
        wanted = pc.greater(known(connections["requests"]), known(connections["responses"]))
        if (seen := self._requests.total) is not None:
            ids = seen["connection_id"].combine_chunks()
            wanted = pc.or_(wanted, pc.is_in(connections["connection_id"], ids))
        names = ("connection_id", "closed", "last", "broker_packets", "lost")
        for row in connections.filter(wanted).select(names).to_pylist():
            is_whole = bool(row["broker_packets"]) and not row["lost"]
            self._ends[row["connection_id"]] = _End(row["closed"] is None, row["last"], is_whole)

    def never_answered(self, last: int | None) -> list[dict[str, Any]]:
        """api, client_id, count, incomplete, first and last (ns); the most frequent first."""
        by_client = _by_client()
        rows, _ = self._split(last)
        if rows and self._requests.total is not None:
            by_client.add(pa.Table.from_pylist(rows, self._requests.total.schema))
        if (forgotten := self._forgotten.total) is not None:
            by_client.add(forgotten)
        return sorted(by_client.rows(), key=lambda row: -row["count"])

    def in_flight(self, last: int | None) -> int:
        """Requests that were in flight when the capture or their connection ended."""
        _, rows = self._split(last)
        return self._forgotten_in_flight + _count(rows)

    def forget(self, connections: pa.Array, last: int | None) -> None:
        """Replace the requests of closed connections by their counts."""
        if (seen := self._requests.total) is None:
            return
        ids = set(connections.to_pylist())
        never_answered, in_flight = (
            [row for row in rows if row["connection_id"] in ids] for rows in self._split(last)
        )
        self._forgotten.add(pa.Table.from_pylist(never_answered, seen.schema))
        self._forgotten_in_flight += _count(in_flight)
        is_closed = pc.is_in(seen["connection_id"], connections)
        self._requests.total = seen.filter(pc.invert(is_closed))
        for connection in ids:
            self._ends.pop(connection, None)

    def _split(self, last: int | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Rows of unanswered requests, and of those in flight at the end."""
        never_answered: list[dict[str, Any]] = []
        in_flight: list[dict[str, Any]] = []
        for row in self._requests.rows():
            end = self._ends.get(row["connection_id"])
            if end is not None and end.is_open:
                end = replace(end, time=last)
            row["incomplete"] = 0 if end is None or end.is_whole else row["count"]
            (in_flight if _is_in_flight(row, end) else never_answered).append(row)
        return never_answered, in_flight


def _by_client() -> Tally:
    return Tally(("api", "client_id"), count="sum", first="min", last="max", incomplete="sum")


def _count(rows: list[dict[str, Any]]) -> int:
    return sum(row["count"] for row in rows)


def _is_in_flight(row: Mapping[str, Any], end: _End | None) -> bool:
    """Whether unanswered requests were sent too late for a response before the end.

    On an open connection these are all that have not timed out yet; on one that was closed, long
    polls, which clients leave behind when they stop.
    """
    if end is None or not end.is_whole or end.time is None or row["first"] is None:
        return False
    patience = row["max_wait_ms"] or 0
    if end.is_open:
        usual = GROUP_TIMEOUT_MS if row["api"] in group_barriers() else REQUEST_TIMEOUT_MS
        patience = max(patience, usual)
    return bool(end.time - row["first"] <= patience * 10**6) and patience > 0
