"""The profile of one capture: what a comparison needs of it, small and in memory.

Requests are grouped by the columns of `by`. Latencies are counted in bins of equal width of their
logarithm, so that a bootstrap can compute quantiles of any sample of slices. Only bins with
latencies are kept: a large cluster has tens of thousands of groups with a few requests each.

A `*` replaces each UUID in the names of clients and groups. Kafka Streams (client.id) and Spark
(group.id) choose another one at each start by default, so the names of the two captures would
differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from analysis.comparison.measures import MEASURES
from analysis.sql.expressions import (
    CLIENT_SOFTWARE,
    PROBLEM_RESPONSES,
    natural,
    quoted,
    with_columns,
)
from analysis.sql.latency_breakdown import PART_NAMES, exchanges_with_parts
from analysis.sql.query import Row, row_dicts, select
from dissector.arrays import value

if TYPE_CHECKING:
    import duckdb

Key = tuple[Any, ...]

SLICES: Final = 20
"""Enough for a variance; few enough that a slice of a capture of a minute has several seconds."""

BINS_PER_DECADE: Final = 40
"""A bin is 6 % wide."""
LOWEST: Final = -3
"""Decade of the first bin: latencies below 1 µs count as 1 µs."""
BINS: Final = 10 * BINS_PER_DECADE
"""Up to 10^7 ms."""

_UUID: Final = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""As Java prints it."""

SUMS: Final = ("requests", "responses", "errors", "throttle_ms", "bytes")


@value
class Group:
    """The requests of one group."""

    sums: dict[str, NDArray[np.float64]]
    """Sums of each slice, by name."""
    latencies: NDArray[np.int64]
    """Slices, bins and their counts of latencies: 3 x n."""
    quantiles: dict[str, float | None]
    """Exact quantiles of the net latency, by measure; None without latencies."""
    seconds: float
    """Time from the first request to the last, for rates: the idle time before and after them is
    that of the capture, not of the client."""

    @property
    def active(self) -> slice:
        """The slices from the first request to the last; all without requests."""
        used = np.flatnonzero(self.sums["requests"])
        return slice(used[0], used[-1] + 1) if len(used) else slice(0, SLICES)

    def total(self, name: str) -> float:
        return float(self.sums[name].sum())

    def bins(self) -> NDArray[np.float64]:
        """The counts of latencies: active slices x bins."""
        slices, bins, counts = self.latencies
        dense = np.zeros((SLICES, BINS))
        dense[slices, bins] = counts
        return dense[self.active]


NO_LATENCIES: Final = np.zeros((3, 0), np.int64)
"""Of a group without responses."""


@value
class Profile:
    """One capture."""

    seconds: float
    """Time from the first request to the last."""
    requests: int
    first_time: int | None
    """ns; None without requests."""
    last_time: int | None
    groups: dict[Key, Group]
    versions: dict[Key, list[str]]
    """Versions of an API that a client uses, the most frequent first, by client id and API. Those
    without a client id are many programs, of which each capture has others."""
    software: dict[Key, list[str]]
    """Software of a client, by client id; the most frequent first."""
    members: dict[str, dict[Key, NDArray[np.float64]]]
    """Requests of each client, group and topic, in each slice."""
    partitions: dict[str, dict[int, Group]]
    """Produce requests of each partition of a topic, with the sums `requests`, `bytes` and
    `topic_bytes`."""
    topic_names: dict[str, str]
    """Names of topics by id; the other capture may have only the id of a topic (KIP-516)."""


def profile(tables: duckdb.DuckDBPyConnection, by: Sequence[str]) -> Profile:
    """The profile of a capture; `tables`: exchanges, errors, batches, connections.

    Raises DissectorError if `by` names an unknown column.
    """
    key = ", ".join(quoted(by))
    # Check the columns, and add derived ones, before the slices need the times.
    exchanges = _without_uuids("exchanges")
    rows = with_columns(_without_uuids(exchanges_with_parts()), by, "exchanges", *PART_NAMES)
    (whole,) = _rows(
        tables,
        "select count(*) as requests, min(epoch_ns(request_time)) as first, "
        "max(epoch_ns(request_time)) as last from exchanges where request_time is not null",
    )
    first, last = whole["first"] or 0, whole["last"] or 0
    place = f"({SLICES}::hugeint * (epoch_ns(request_time) - {first}) // {last - first + 1})::int"
    sliced = f"""(
      select *, {place} as slice,
        case when net_ms is not null then least(greatest(
          floor((log10(greatest(net_ms, 1e-3)) - {LOWEST}) * {BINS_PER_DECADE}), 0), {BINS - 1})
          ::int end as bin
      from {rows} where request_time is not null)"""
    sent = f"(select *, {place} as slice from {exchanges} where request_time is not null)"
    with_software = with_columns(exchanges, [CLIENT_SOFTWARE.name], "exchanges")
    return Profile(
        seconds=((whole["last"] or 0) - (whole["first"] or 0)) / 1e9,
        requests=whole["requests"],
        first_time=whole["first"],
        last_time=whole["last"],
        groups=_groups(tables, sliced, key, len(by)),
        versions=_texts(tables, "client_id, api", "api_version", exchanges),
        software=_texts(tables, "client_id", "client_software", with_software),
        members={
            "client": _counts(tables, "client_id", sent),
            "group": _counts(tables, "group_id", sent),
            "topic": _counts(tables, "unnest(topics)", sent),
        },
        partitions=_partitions(tables, f"least(greatest({place}, 0), {SLICES - 1})"),
        topic_names={
            row["topic_id"]: row["topic"]
            for row in _rows(
                tables, "select distinct topic_id, topic from batches where topic != topic_id"
            )
        },
    )


def _groups(
    tables: duckdb.DuckDBPyConnection, sliced: str, key: str, width: int
) -> dict[Key, Group]:
    groups: dict[Key, Group] = {}
    latencies = _latencies(tables, sliced, key)
    quantiles = ", ".join(
        f"quantile_cont(net_ms, {each.quantile}) as {each.name}"
        for each in MEASURES
        if each.quantile is not None
    )
    seconds = "(max(epoch_ns(request_time)) - min(epoch_ns(request_time))) / 1e9 as seconds"
    for row in _rows(tables, f"select {key}, {seconds}, {quantiles} from {sliced} group by all"):
        values = tuple(row.values())[:width]
        groups[values] = Group(
            {name: np.zeros(SLICES) for name in SUMS},
            latencies.get(values, NO_LATENCIES),
            {each.name: row[each.name] for each in MEASURES if each.quantile is not None},
            row["seconds"],
        )
    for row in _rows(
        tables,
        f"""select {key}, slice, count(*) as requests,
          count(*) filter (latency_ms is not null) as responses,
          count(is_problem) as errors,
          coalesce(sum(throttle_time_ms), 0) as throttle_ms,
          sum(coalesce(request_bytes, 0) + coalesce(response_bytes, 0)) as bytes
        from {sliced} left join {PROBLEM_RESPONSES}
          using (connection_id, correlation_id, response_time)
        group by all""",
    ):
        group = groups[tuple(list(row.values())[:width])]
        for name in SUMS:
            group.sums[name][row["slice"]] = row[name]
    return groups


def _latencies(
    tables: duckdb.DuckDBPyConnection, sliced: str, key: str
) -> dict[Key, NDArray[np.int64]]:
    """`Group.latencies` of each group with latencies."""
    rows = _rows(
        tables,
        f"""select {key}, list(slice), list(bin), list(count) from (
          select {key}, slice, bin, count(*) as count from {sliced} where bin is not null
          group by all) group by all""",
    )
    return {
        tuple(values): np.array([slices, bins, counts])
        for *values, slices, bins, counts in map(dict.values, rows)
    }


def _texts(
    tables: duckdb.DuckDBPyConnection, key: str, value: str, rows: str
) -> dict[Key, list[str]]:
    """The values of each key as texts, the most frequent first."""
    query = f"""
      select {key}, list(value order by count desc, {natural("value")}) as texts from (
        select {key}, {value}::varchar as value, count(*) as count from {rows}
        where {value} is not null and client_id != '' group by all) group by all"""
    return {tuple(row.values())[:-1]: row["texts"] for row in _rows(tables, query)}


def _counts(
    tables: duckdb.DuckDBPyConnection, name: str, sliced: str
) -> dict[Key, NDArray[np.float64]]:
    """Requests of each name in each slice."""
    query = f"""
      select name, slice, count(*) as count from (select {name} as name, slice from {sliced})
      where name != '' group by all"""
    counts: dict[Key, NDArray[np.float64]] = {}
    for row in _rows(tables, query):
        counts.setdefault((row["name"],), np.zeros(SLICES))[row["slice"]] = row["count"]
    return counts


def _partitions(tables: duckdb.DuckDBPyConnection, place: str) -> dict[str, dict[int, Group]]:
    """See `Profile.partitions`. `place`: SQL of the slice of a request_time."""
    query = f"""
      select topic, partition, {place} as slice, count(*) as requests, sum(bytes) as bytes
      from (select *, time as request_time from batches)
      where api = 'Produce' and coalesce(error_code, 0) = 0 and bytes is not null
        and topic is not null and request_time is not null
      group by all"""
    partitions: dict[str, dict[int, Group]] = defaultdict(dict)
    of_topics: dict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(SLICES))
    for row in _rows(tables, query):
        topic, slice_ = row["topic"], row["slice"]
        sums = {"requests": np.zeros(SLICES), "bytes": np.zeros(SLICES)}
        sums["topic_bytes"] = of_topics[topic]
        group = partitions[topic].setdefault(row["partition"], Group(sums, NO_LATENCIES, {}, 0.0))
        group.sums["requests"][slice_] += row["requests"]
        group.sums["bytes"][slice_] += row["bytes"]
        of_topics[topic][slice_] += row["bytes"]
    return partitions


def _without_uuids(rows: str) -> str:
    """SQL of rows of exchanges, in which a `*` replaces UUIDs of names."""
    names = ", ".join(
        f"regexp_replace({name}, '{_UUID}', '*', 'g') as {name}"
        for name in ("client_id", "group_id")
    )
    return f"(select * replace ({names}) from {rows})"


def _rows(tables: duckdb.DuckDBPyConnection, query: str) -> list[Row]:
    return row_dicts(select(tables, query))
