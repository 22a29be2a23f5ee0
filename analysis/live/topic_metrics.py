"""Metrics of topics and of the lag of groups, from rows of `partitions` and `transactions`.

The lag is the end of a partition minus the committed offset, as the answer `lag` defines both. A
group's lag is known once its commit and the end of the partition have been captured. Offsets in a
transaction count when it is committed.

Memory is bounded: metrics have at most `max_series` combinations of labels, and the lag is computed
for `PARTITIONS` times as many partitions. Those that come later are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from analysis.live.series import OTHER, PREFIX, Series, label_values
from analysis.sql.record_flow import ACTIONS, REPLICATES
from dissector.tables.arrow import with_times

PARTITIONS: Final = 10
_LABELS: Final = ("action", "topic", "client_id")
_LATEST: Final = -1
"""The timestamp in ListOffsets that asks for the end."""
_EXCHANGE: Final = ("connection_id", "correlation_id", "time")
_COMMIT: Final = ("group_id", "topic", "partition")

Offsets: TypeAlias = dict[tuple[str, str, int], int]
"""By group, topic and partition."""


class TopicMetrics:
    """Counts records by topic, and keeps committed offsets and ends of partitions."""

    def __init__(self, max_series: int) -> None:
        self._max_series = max_series
        self._topics = Series(max_series, width=2)  # bytes, records
        self._ends: dict[tuple[str, int], int] = {}
        self._committed: Offsets = {}
        self._sent: defaultdict[tuple[int, ...], Offsets] = defaultdict(dict)
        """Offsets of each TxnOffsetCommit, until its row of `transactions` follows."""
        self._open: dict[str, Offsets] = {}
        """Offsets of open transactions, by transactional id."""

    def read(self, rows: pa.Table) -> None:
        """Count rows of `partitions`."""
        rows = rows.filter(pc.equal(pc.fill_null(rows["error_code"], 0), 0))
        rows = rows.filter(pc.and_(rows["topic"].is_valid(), rows["partition"].is_valid()))
        self._read_records(rows)
        self._read_ends(rows)
        self._read_commits(rows)

    def _read_records(self, rows: pa.Table) -> None:
        rows = rows.filter(pc.and_(_is_one_of(rows, *ACTIONS), rows["bytes"].is_valid()))
        action = pc.if_else(
            rows["replica_id"].is_valid(), REPLICATES,
            pc.if_else(pc.equal(rows["api"], "Produce"), ACTIONS["Produce"], ACTIONS["Fetch"]),
        )  # fmt: skip
        grouped = rows.append_column("action", action).group_by(list(_LABELS))
        for row in grouped.aggregate([("bytes", "sum"), ("record_count", "sum")]).to_pylist():
            key = label_values(*(row[name] for name in _LABELS))
            self._topics.add(key, [row["bytes_sum"], row["record_count_sum"] or 0])

    def _read_ends(self, rows: pa.Table) -> None:
        """The end that each row shows: see `analysis.answers.lag.ENDS`."""
        latest = pc.and_(pc.equal(rows["api"], "ListOffsets"),
                         pc.equal(rows["asked_timestamp"], _LATEST))  # fmt: skip
        written = _is_one_of(rows, "Produce", "ShareFetch")
        end = pc.coalesce(
            rows["high_watermark"],
            pc.if_else(latest, rows["offset"], None),
            pc.if_else(written, pc.add(rows["last_offset"], 1), None),
        )
        rows = rows.append_column("end", end).filter(end.is_valid())
        for row in rows.group_by(["topic", "partition"]).aggregate([("end", "max")]).to_pylist():
            key, last = (row["topic"], row["partition"]), row["end_max"]
            if key in self._ends or len(self._ends) < PARTITIONS * self._max_series:
                self._ends[key] = max(last, self._ends.get(key, last))

    def _read_commits(self, rows: pa.Table) -> None:
        rows = rows.filter(pc.and_(rows["group_id"].is_valid(), rows["offset"].is_valid()))
        in_transactions = rows.filter(pc.equal(rows["api"], "TxnOffsetCommit"))
        sent = in_transactions.select([*_EXCHANGE, *_COMMIT, "offset"])
        for row in with_times(sent, pa.int64()).to_pylist():
            *exchange, group, topic, partition, offset = row.values()
            self._sent[tuple(exchange)][group, topic, partition] = offset
        rows = rows.filter(_is_one_of(rows, "OffsetCommit", "OffsetFetch"))
        grouped = rows.group_by([*_COMMIT], use_threads=False).aggregate([("offset", "last")])
        for row in grouped.to_pylist():
            group, topic, partition = (row[name] for name in _COMMIT)
            self._commit({(group, topic, partition): row["offset_last"]})

    def _commit(self, offsets: Offsets) -> None:
        for key, offset in offsets.items():
            if key in self._committed or len(self._committed) < PARTITIONS * self._max_series:
                self._committed[key] = offset

    def read_transactions(self, rows: pa.Table) -> None:
        """Follow transactions by rows of `transactions`; see `analysis.answers.lag.DECIDED`."""
        rows = rows.filter(rows["transactional_id"].is_valid()).sort_by("response_time")
        for row in with_times(rows, pa.int64()).to_pylist():
            name, api = row["transactional_id"], row["api"]
            if api == "TxnOffsetCommit":
                sent = self._sent.pop(tuple(row[each] for each in _EXCHANGE), {})
                if name in self._open or len(self._open) < self._max_series:
                    self._open.setdefault(name, {}).update(sent)
            elif row["error_code"] == 0 and api in ("EndTxn", "InitProducerId"):
                # A producer that starts again aborts its open transaction.
                offsets = self._open.pop(name, {})
                self._commit(offsets if row["committed"] else {})

    def families(self) -> Iterator[Metric]:
        """The metrics with their current values."""
        for index, (name, text) in enumerate(
            (
                ("topic_bytes", "Bytes of record batches."),
                ("topic_records", "Records, if batch headers have their number."),
            )
        ):
            yield counter(name, text, _LABELS, self._topics, index)
        gauge = GaugeMetricFamily(
            f"{PREFIX}group_lag_records", "Records from the committed offsets to the ends.",
            labels=("group_id", "topic"),
        )  # fmt: skip
        for labels, lag in self._lags().items():
            gauge.add_metric(labels, lag)
        yield gauge

    def _lags(self) -> dict[tuple[str, str], int]:
        """The lag of each group and topic, the sum of its partitions."""
        lags: defaultdict[tuple[str, str], int] = defaultdict(int)
        for (group, topic, partition), committed in self._committed.items():
            if (topic, partition) in self._ends:
                key = group, topic
                if key not in lags and len(lags) >= self._max_series:
                    key = OTHER, OTHER
                lags[key] += self._ends[topic, partition] - committed
        return lags


def counter(
    name: str, text: str, labels: Sequence[str], series: Series, index: int = 0, scale: float = 1
) -> Metric:
    """A counter of one of the sums of a series, divided by `scale`."""
    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for key, values in series.values.items():
        family.add_metric(key, values[index] / scale)
    return family


def _is_one_of(rows: pa.Table, *apis: str) -> pa.ChunkedArray:
    return pc.is_in(rows["api"], pa.array(apis))
