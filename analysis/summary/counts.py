"""Summary of a capture, counted while it is read.

Arrow groups the columns of each batch, and a `Tally` merges the groups with those of earlier
batches. So memory grows with the number of APIs, clients, error codes and connections, not with the
number of exchanges. Only latencies are kept one by one, for exact quantiles: eight bytes per
exchange, and those of one API and version at a time once more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.kafka.normal import are_normal
from analysis.summary.failures import FailedConnections, FailedHandshakes
from analysis.summary.results import ApiUse, Client, Totals
from analysis.summary.tally import Tally, known, ones, with_columns, with_count, with_span, zeros
from analysis.summary.unanswered import Unanswered

_KIND: Final = ("api_key", "api", "api_version")
_CLIENT: Final = ("connection_id", "client_id", "client_ip")
_RESPONSE: Final = (*_CLIENT, "correlation_id", "time", "api", "api_version")
"""Columns of `errors` with one value in each response."""
_QUANTILES: Final = (0.5, 0.99, 1)
"""Of latencies."""


class Summary:
    """Counts batches of `TABLES`; then the methods return the results.

    `SEGMENT_TABLES`: those to count of log segments.
    """

    TABLES: ClassVar = ("exchanges", "errors", "problems", "connections", "memberships")
    SEGMENT_TABLES: ClassVar = ("batches",)

    def __init__(self) -> None:
        self._kinds = Tally(_KIND, count="sum", throttled="sum")
        self._kind_errors = Tally(("api", "api_version"), count="sum")
        """Responses with an unexpected error."""
        self._last_error: pa.Table | None = None
        """The last response with an unexpected error, of which further errors may follow."""
        self._clients = Tally(_CLIENT, count="sum", errors="sum")
        self._statuses = Tally(("status",), count="sum", first="min", last="max", bytes="sum")
        self._throttled = Tally(("client_id", "api"), count="sum", total="sum", longest="max")
        self._errors = Tally(
            ("error_code", "error", "api", "topic"), normal="max", count="sum", first="min",
            last="max",
        )  # fmt: skip
        self._unanswered = Unanswered()
        self._generations = Tally(
            ("group_id", "group_type", "generation"), count="sum", first="min", last="max"
        )
        self._problems = Tally(
            ("stage", "kind"), count="sum", bytes="sum", capture="first", detail="first"
        )
        self._failed_connections = FailedConnections()
        self._failed_handshakes = FailedHandshakes()
        self._protocols = Tally(
            ("protocol",), count="sum", first="min", last="max", packets="sum", bytes="sum",
            lost="sum", lossy="sum", with_payload="sum", one_sided="sum",
        )  # fmt: skip
        self._unknown_ports = Tally(("broker_port",), bytes="sum")
        self._logs = Tally(
            ("topic", "partition"), count="sum", record_count="sum", bytes="sum",
            base_offset="min", last_offset="max",
        )  # fmt: skip
        self._named: list[pa.Table] = []
        """Connections with a known client software."""
        self._latencies: defaultdict[int, list[NDArray[np.float64]]] = defaultdict(list)
        """By `_kind_code`."""

    def read(self, batches: Iterable[tuple[str, pa.RecordBatch]]) -> None:
        """Count the rows of all batches."""
        for name, batch in batches:
            if len(batch):
                getattr(self, f"_read_{name}")(with_count(pa.table(batch)))

    @property
    def exchanges(self) -> int:
        """Number of exchanges."""
        return sum(self.statuses().values())

    def statuses(self) -> dict[str, int]:
        """Exchanges by status."""
        return {row["status"]: row["count"] for row in self._statuses.rows()}

    def apis(self) -> list[ApiUse]:
        """Requests by API and version, the most frequent first; without missing requests."""
        rows = self._kinds.rows()
        errors = {(r["api"], r["api_version"]): r["count"] for r in self._kind_errors.rows()}
        latencies = self._latencies_by_kind()
        kinds = _kind_code(
            *(pa.array([r[n] for r in rows], pa.int16()) for n in ("api_key", "api_version"))
        )
        uses = [
            ApiUse(
                row["api"] or f"API {row['api_key']}",
                row["api_version"],
                row["count"],
                errors.get((row["api"], row["api_version"]), 0),
                row["throttled"],
                *latencies.get(kind, (None, None, None)),
            )
            for row, kind in zip(rows, kinds.tolist(), strict=True)
        ]
        return sorted(uses, key=lambda use: (-use.count, use.api, use.version or 0))

    def clients(self) -> list[Client]:
        """Clients by client id and software; the most requests first."""
        software = self._software()
        clients: dict[tuple[str | None, str | None], Client] = {}
        add_clients(clients, self._clients.rows(), software)
        return sorted(clients.values(), key=lambda client: -client.requests)

    def errors(self) -> list[dict[str, Any]]:
        """error_code, error, api, topic, normal, count, first and last (ns); the most frequent
        first. `normal`: 1 if the error is part of normal operation, otherwise 0."""
        return sorted(self._errors.rows(), key=lambda row: -row["count"])

    def throttled(self) -> list[dict[str, Any]]:
        """client_id, api, count, total and longest in ms; the longest in total first."""
        return sorted(self._throttled.rows(), key=lambda row: -row["total"])

    def unexpected_errors(self) -> list[dict[str, Any]]:
        """`errors` that are not part of normal operation."""
        return [row for row in self.errors() if not row["normal"]]

    def normal_errors(self) -> list[dict[str, Any]]:
        """`errors` that are part of normal operation."""
        return [row for row in self.errors() if row["normal"]]

    def never_answered(self) -> list[dict[str, Any]]:
        """api, client_id, count, first and last (ns) of requests without a response, apart from
        those in flight when the capture or connection ended; the most frequent first.

        `incomplete`: how many of them are of connections of which the capture lacks bytes or a
        direction, and so perhaps the response.
        """
        return self._unanswered.never_answered(self.totals().last_time)

    @property
    def in_flight(self) -> int:
        """Requests that were in flight when the capture or their connection ended."""
        return self._unanswered.in_flight(self.totals().last_time)

    def rebalances(self) -> list[dict[str, Any]]:
        """group_id, group_type, count, first and last (ns) of groups that rebalanced again.

        A group's first generation, or epoch, in the capture is how it began, or how it was.
        """
        by_group = Tally(("group_id", "group_type"), count="sum", first="min", last="max")
        if self._generations.total is not None:
            each = self._generations.total.drop_columns(["generation", "count"])
            by_group.add(each.append_column("count", ones(len(each))))
        again = [row for row in by_group.rows() if row["count"] > 1]
        return sorted(again, key=lambda row: -row["count"])

    def problems(self) -> list[dict[str, Any]]:
        """stage, kind, count, bytes, capture and detail of the first; the most frequent first."""
        return sorted(self._problems.rows(), key=lambda row: -row["count"])

    def logs(self) -> list[dict[str, Any]]:
        """topic, partition, count of batches, record_count, bytes, base_offset and last_offset of
        the partitions in log segments; the most bytes first."""
        return sorted(self._logs.rows(), key=lambda row: -row["bytes"])

    def failed_connections(self) -> list[dict[str, Any]]:
        """broker_ip, broker_port, refused, without_reply, first and last (ns); the most first."""
        return self._failed_connections.rows()

    def failed_handshakes(self) -> list[dict[str, Any]]:
        """reason and count of failed TLS handshakes; the most frequent first."""
        return self._failed_handshakes.rows()

    def totals(self) -> Totals:
        """Totals of all connections."""
        table = self._protocols.total
        if table is None:
            return Totals(None, None, 0, 0, 0, 0, {}, [])
        return Totals(
            pc.min(table["first"]).as_py(),
            pc.max(table["last"]).as_py(),
            pc.sum(table["packets"]).as_py(),
            pc.sum(table["bytes"]).as_py(),
            pc.sum(table["lost"]).as_py(),
            pc.sum(table["lossy"]).as_py(),
            dict(zip(*(table[name].to_pylist() for name in ("protocol", "count")), strict=True)),
            _ports(self._unknown_ports.total),
            _of_protocol(table, "unknown", "with_payload"),
            _of_protocol(table, "kafka", "one_sided"),
            self._failed_handshakes.connections,
        )

    def selected_totals(self) -> Totals:
        """`totals` with the times and bytes of the exchanges, of which a filter selected some:
        connections may begin before the selection, and last longer."""
        totals, table = self.totals(), self._statuses.total
        if table is None:
            return totals
        return replace(
            totals,
            first_time=pc.min(table["first"]).as_py(),
            last_time=pc.max(table["last"]).as_py(),
            bytes=pc.sum(table["bytes"]).as_py(),
        )

    def _read_exchanges(self, rows: pa.Table) -> None:
        throttle = known(rows["throttle_time_ms"])
        rows = with_columns(rows, throttled=pc.greater(throttle, 0), errors=zeros(len(rows)))
        self._statuses.add(_with_extent(rows))
        self._unanswered.add(rows)
        rows = rows.filter(pc.not_equal(rows["status"], "request_missing"))
        self._kinds.add(rows)
        self._clients.add(rows)
        timed = rows.filter(rows["latency_ms"].is_valid())
        kind = _kind_code(timed["api_key"], timed["api_version"])
        self._add_latencies(kind, timed["latency_ms"].to_numpy())
        slowed = rows.filter(pc.greater(rows["throttled"], 0))
        time = slowed["throttle_time_ms"].cast(pa.int64())
        self._throttled.add(with_columns(slowed, total=time, longest=time))

    def _read_errors(self, rows: pa.Table) -> None:
        normal = are_normal(rows)
        self._errors.add(with_columns(with_span(rows, "time"), normal=normal))
        self._count_responses(rows.filter(pc.invert(normal)))

    def _count_responses(self, errors: pa.Table) -> None:
        """Count the responses with these errors. The errors of a response follow each other."""
        responses = errors.group_by(list(_RESPONSE), use_threads=False).aggregate([])
        if self._last_error is not None and self._last_error == responses.slice(0, 1):
            responses = responses.slice(1)
        if not len(responses):
            return
        self._last_error = responses.slice(len(responses) - 1)
        counts = ones(len(responses))
        self._kind_errors.add(with_columns(responses, count=counts))
        requests = zeros(len(responses))  # counted with the exchanges
        self._clients.add(with_columns(responses, count=requests, errors=counts))

    def _read_memberships(self, rows: pa.Table) -> None:
        """Find new generations: members of classic groups join them, others are moved to them."""
        classic = pc.equal(rows["group_type"], "classic")
        joined = pc.equal(rows["api"], "JoinGroup")
        moved = pc.not_equal(rows["generation"], rows["request_generation"])
        new = pc.if_else(classic, joined, pc.and_(moved, pc.greater(rows["generation"], 0)))
        rows = rows.filter(pc.and_(pc.equal(rows["error_code"], 0), new))
        rows = rows.filter(pc.and_(rows["generation"].is_valid(), rows["group_id"].is_valid()))
        self._generations.add(with_span(rows, "time"))

    def _read_connections(self, rows: pa.Table) -> None:
        packets, size, lost = (
            pc.add(known(rows[f"client_{name}"]), known(rows[f"broker_{name}"]))
            for name in ("packets", "bytes", "lost_bytes")
        )
        fewer_packets = pc.min_element_wise(rows["client_packets"], rows["broker_packets"])
        rows = with_columns(
            rows, packets=packets, bytes=size, lost=lost, lossy=pc.greater(lost, 0),
            first=rows["first_time"].cast(pa.int64()), last=rows["last_time"].cast(pa.int64()),
            with_payload=pc.greater(size, 0), one_sided=pc.equal(fewer_packets, 0),
        )  # fmt: skip
        self._protocols.add(rows)
        self._unanswered.add_ends(rows)
        self._failed_connections.add(rows)
        self._failed_handshakes.add_connections(rows)
        self._unknown_ports.add(rows.filter(pc.equal(rows["protocol"], "unknown")))
        named = rows.filter(rows["software_name"].is_valid())
        if len(named):
            columns = ["connection_id", "software_name", "software_version"]
            self._named.append(named.select(columns).combine_chunks())

    def _read_batches(self, rows: pa.Table) -> None:
        self._logs.add(with_columns(rows, record_count=rows["record_count"].cast(pa.int64())))

    def _read_problems(self, rows: pa.Table) -> None:
        self._problems.add(rows)
        self._failed_handshakes.add_problems(rows)

    def _add_latencies(self, kind: NDArray[np.uint32], latency: NDArray[np.float64]) -> None:
        order = np.argsort(kind, kind="stable")
        kinds, first = np.unique(kind[order], return_index=True)
        parts = np.split(latency[order], first[1:])
        for each, part in zip(kinds.tolist(), parts, strict=False):  # without rows, one part
            self._latencies[each].append(part)

    def _latencies_by_kind(self) -> dict[int, list[float]]:
        """Median, 0.99 quantile and maximum of the latency, by `_kind_code`."""
        return {
            kind: np.quantile(np.concatenate(parts), _QUANTILES, overwrite_input=True).tolist()
            for kind, parts in self._latencies.items()
        }

    def _software(self) -> dict[int, str]:
        """Name and version of the client software, by connection_id."""
        names = {}
        for table in self._named:
            for row in table.to_pylist():
                words = (row["software_name"], row["software_version"])
                names[row["connection_id"]] = " ".join(word for word in words if word)
        return names


def add_clients(
    clients: dict[tuple[str | None, str | None], Client], rows: Iterable[Mapping[str, Any]],
    software: Mapping[int, str],
) -> None:  # fmt: skip
    """Add connections to `clients`, by client id and software; `software`: by connection_id."""
    for row in rows:
        key = (row["client_id"], software.get(row["connection_id"]))
        client = clients.setdefault(key, Client(*key))
        if row["client_ip"] is not None:  # null in an edited export
            client.addresses[row["client_ip"]] = None
        client.connections += 1
        client.requests += row["count"]
        client.errors += row["errors"]


def _kind_code(api_key: Any, version: Any) -> NDArray[np.uint32]:
    """API key and version as one number; null is -1."""
    key, version = (
        np.asarray(pc.fill_null(each, -1)).astype(np.uint16).astype(np.uint32)
        for each in (api_key, version)
    )
    code: NDArray[np.uint32] = key << np.uint32(16) | version
    return code


def _with_extent(exchanges: pa.Table) -> pa.Table:
    """The exchanges with first and last, in ns, and bytes of both messages."""
    first = pc.coalesce(exchanges["request_time"], exchanges["response_time"])
    last = pc.coalesce(exchanges["response_end_time"], exchanges["request_end_time"])
    size = pc.add(known(exchanges["request_bytes"]), known(exchanges["response_bytes"]))
    first, last = first.cast(pa.int64()), last.cast(pa.int64())
    return with_columns(exchanges, first=first, last=last, bytes=size)


def _of_protocol(table: pa.Table, protocol: str, name: str) -> int:
    """A column of the row of a protocol; 0 without such a row."""
    count: int | None = pc.sum(table.filter(pc.equal(table["protocol"], protocol))[name]).as_py()
    return count or 0


def _ports(table: pa.Table | None) -> list[int]:
    """Ports, the most bytes first."""
    if table is None:
        return []
    ports: list[int] = table.sort_by([("bytes", "descending")])["broker_port"].to_pylist()
    return ports
