"""A summary in bounded memory, for sessions of days.

Latencies are counted in a logarithmic histogram; its quantiles are accurate to 1 %. A connection is
added to its client's totals when its row arrives, which is after its exchanges and problems. The
first `NAMES` client ids, topics and groups are counted by name; further ones are counted as
``other``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.live.series import OTHER
from analysis.summary.counts import Summary, add_clients
from analysis.summary.results import Client
from dissector.exchanges.columns import with_column

NAMES: Final = 10_000

_PER_OCTAVE: Final = 35
_SHIFT: Final = 12  # bits of a bin number, enough for 64 octaves
_US_PER_MS: Final = 1000.0


class BoundedSummary(Summary):
    """A `Summary` whose memory does not grow with time."""

    def __init__(self) -> None:
        super().__init__()
        self._histogram = LatencyHistogram()
        self._folded: dict[tuple[str | None, str | None], Client] = {}
        self._names = {name: LimitedNames(NAMES) for name in ("client_id", "topic", "group_id")}

    def read(self, batches: Iterable[tuple[str, pa.RecordBatch]]) -> None:
        super().read((name, self._bounded(batch)) for name, batch in batches)

    def clients(self) -> list[Client]:
        clients = {
            key: replace(client, addresses={**client.addresses})
            for key, client in self._folded.items()
        }
        add_clients(clients, self._clients.rows(), {})
        return sorted(clients.values(), key=lambda client: -client.requests)

    def _bounded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, names in self._names.items():
            if name in batch.schema.names:
                batch = with_column(batch, name, names.bounded(batch[name]))
        return batch

    def _read_connections(self, rows: pa.Table) -> None:
        super()._read_connections(rows)
        connections = rows["connection_id"].combine_chunks()
        if (seen := self._clients.total) is not None:
            closed = pc.is_in(seen["connection_id"], connections)
            add_clients(self._folded, seen.filter(closed).to_pylist(), self._software())
            self._clients.total = seen.filter(pc.invert(closed))
        self._unanswered.forget(connections, self.totals().last_time)
        self._failed_handshakes.forget(connections)
        self._named.clear()

    def _add_latencies(self, kind: NDArray[np.uint32], latency: NDArray[np.float64]) -> None:
        self._histogram.add(kind, latency)

    def _latencies_by_kind(self) -> dict[int, list[float]]:
        return self._histogram.quantiles()


class LatencyHistogram:
    """Counts of latencies by kind and logarithmic bin; the maximum of each kind is exact."""

    def __init__(self) -> None:
        self._keys = np.zeros(0, np.int64)
        self._counts = np.zeros(0, np.int64)
        self._largest: dict[int, float] = {}

    def add(self, kind: NDArray[np.uint32], ms: NDArray[np.float64]) -> None:
        """`kind`: the group of each latency; shape (n,), like `ms`."""
        bin_ = np.round(np.log2(np.maximum(ms * _US_PER_MS, 0) + 1) * _PER_OCTAVE).astype(np.int64)
        keys = np.concatenate([self._keys, kind.astype(np.int64) << _SHIFT | bin_])
        weights = np.concatenate([self._counts, np.ones(len(ms), np.int64)])
        self._keys, place = np.unique(keys, return_inverse=True)
        self._counts = np.bincount(place, weights, len(self._keys)).astype(np.int64)
        kinds, index = np.unique(kind, return_inverse=True)
        largest = np.full(len(kinds), -np.inf)
        np.maximum.at(largest, index, ms)
        for number, value in zip(kinds.tolist(), largest.tolist(), strict=True):
            self._largest[number] = max(self._largest.get(number, value), value)

    def quantiles(self) -> dict[int, list[float]]:
        """By kind: the median, the 99th percentile, and the maximum, in ms."""
        quantiles = {}
        kinds, first = np.unique(self._keys >> _SHIFT, return_index=True)
        for kind, keys, counts in zip(
            kinds.tolist(), np.split(self._keys, first[1:]), np.split(self._counts, first[1:]),
            strict=True,
        ):  # fmt: skip
            reached = np.cumsum(counts)
            at = np.searchsorted(reached, np.array([0.5, 0.99]) * reached[-1])
            ms = (2.0 ** ((keys[at] & ((1 << _SHIFT) - 1)) / _PER_OCTAVE) - 1) / _US_PER_MS
            quantiles[kind] = [*np.minimum(ms, self._largest[kind]).tolist(), self._largest[kind]]
        return quantiles


class LimitedNames:
    """Keeps the first `limit` names and replaces further ones by `OTHER`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[str, None] = {}

    def bounded(self, column: pa.Array) -> pa.Array:
        """The column, with `OTHER` in place of names beyond the limit."""
        new = [name for name in pc.unique(column).to_pylist() if name not in self._known]
        new = [name for name in new if name is not None]
        room = self._limit - len(self._known)
        self._known |= dict.fromkeys(new[:room])
        if len(new) <= room:
            return column
        known = pc.is_in(column, pa.array(list(self._known), column.type))
        return pc.if_else(pc.or_(known, column.is_null()), column, OTHER)
