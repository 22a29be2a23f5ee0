"""Failed attempts to connect, and failed TLS handshakes."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from analysis.kafka.normal import SYN_TIMEOUT_MS
from analysis.summary.tally import Tally, with_columns, with_span
from dissector.problems import FAILED_HANDSHAKE
from dissector.tables.arrow import rows_where

_ATTEMPT: Final = (
    pc.field("opened") & pc.field("handshake_rtt_ms").is_null() & (pc.field("bytes") == 0)
)
_LASTED: Final = pc.field("last") - pc.field("first") >= SYN_TIMEOUT_MS * 10**6
_KNOWN: Final = pc.field("protocol").isin(["kafka", "tls"])
_ROLES: Final = {
    "known": _KNOWN,
    "one_sided": _KNOWN & pc.field("opened") & (pc.field("one_sided") == 1),
    "refused": _ATTEMPT & (pc.field("broker_packets") > 0) & (pc.field("closed") == "rst")
    & ((pc.field("client_packets") <= pc.field("broker_packets")) | _LASTED),
    "without_reply": _ATTEMPT & (pc.field("broker_packets") == 0) & pc.field("closed").is_null()
    & (pc.field("client_packets") > 1),
}  # fmt: skip
"""What a connection shows about the endpoint of its broker."""
_FAILURES: Final = ("refused", "without_reply")
"""Roles of failed attempts: refused, or without a reply, as in `analysis.sql.failures`."""


class FailedConnections:
    """Counts failed attempts to connect by the endpoint of the broker."""

    def __init__(self) -> None:
        self._endpoints = Tally(
            ("broker_ip", "broker_port", "role"), count="sum", first="min", last="max"
        )
        """Connections by `_ROLES`."""

    def add(self, connections: pa.Table) -> None:
        """Count connections, which also have the columns `bytes`, `first`, `last`, `one_sided`."""
        for role, condition in _ROLES.items():
            chosen = with_span(rows_where(connections, condition), "first_time")
            self._endpoints.add(with_columns(chosen, role=pa.repeat(role, len(chosen))))

    def rows(self) -> list[dict[str, Any]]:
        """broker_ip, broker_port, refused, without_reply, first and last (ns); the most first.

        With the endpoints of `analysis.sql.failures`, without those that only a response names.
        """
        rows = self._endpoints.rows()
        ports = {row["broker_port"] for row in rows if row["role"] == "known"}
        lacks_replies = any(row["role"] == "one_sided" for row in rows)
        failures = _FAILURES[:1] if lacks_replies else _FAILURES
        failed = [
            {**row, **dict.fromkeys(_FAILURES, 0), row["role"]: row["count"]}
            for row in rows
            if row["role"] in failures and (row["broker_port"] in ports or not ports)
        ]
        by_endpoint = Tally(
            ("broker_ip", "broker_port"), refused="sum", without_reply="sum", first="min",
            last="max",
        )  # fmt: skip
        by_endpoint.add(pa.Table.from_pylist(failed))
        return sorted(by_endpoint.rows(), key=lambda r: -(r["refused"] + r["without_reply"]))


class FailedHandshakes:
    """Counts failed TLS handshakes, by their problems, and their connections."""

    def __init__(self) -> None:
        self._reasons = Tally(("reason",), count="sum")
        self._tls: set[int] = set()
        """Connections of this protocol, and those whose handshake failed."""
        self._failed: set[int] = set()
        self._forgotten = 0

    @property
    def connections(self) -> int:
        """Number of TLS connections whose handshake failed."""
        return self._forgotten + len(self._tls & self._failed)

    def add_problems(self, problems: pa.Table) -> None:
        """Count the failures among these problems."""
        failed = problems.filter(pc.is_in(problems["kind"], pa.array(FAILED_HANDSHAKE)))
        self._failed.update(failed["connection_id"].drop_null().to_pylist())
        reason = pc.replace_substring_regex(failed["detail"], r"^TLS failed: | \(sent by .*", "")
        self._reasons.add(with_columns(failed, reason=reason))

    def add_connections(self, connections: pa.Table) -> None:
        """Note which of these connections are TLS."""
        is_tls = pc.equal(connections["protocol"], "tls")
        self._tls.update(connections.filter(is_tls)["connection_id"].to_pylist())

    def rows(self) -> list[dict[str, Any]]:
        """reason and count; the most frequent first."""
        return sorted(self._reasons.rows(), key=lambda row: -row["count"])

    def forget(self, connections: pa.Array) -> None:
        """Replace closed connections by their number."""
        self._forgotten = self.connections
        self._tls.clear()
        self._failed.difference_update(connections.to_pylist())
