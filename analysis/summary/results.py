"""Results of a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dissector.arrays import value


@value
class ApiUse:
    """Requests of one API in one version."""

    api: str
    version: int | None
    count: int
    errors: int
    """Responses with an error that is not part of normal operation."""
    throttled: int
    """Responses with a throttle time."""
    p50_ms: float | None
    """Quantiles of the latency, interpolated linearly, as in NumPy and SQL; None without a
    response."""
    p99_ms: float | None
    max_ms: float | None


@dataclass(slots=True)
class Client:
    """Connections with the same client id and software."""

    client_id: str | None
    software: str | None
    """Name and version from ApiVersions (KIP-511)."""
    addresses: dict[str, None] = field(default_factory=dict)
    """In order of their first appearance."""
    connections: int = 0
    requests: int = 0
    errors: int = 0
    """As in `ApiUse`."""


@value
class Totals:
    """Totals of all connections; times in ns, None without packets."""

    first_time: int | None
    last_time: int | None
    packets: int
    bytes: int
    lost_bytes: int
    lossy: int
    """Connections with lost bytes."""
    protocols: Mapping[str, int]
    """Connections by protocol."""
    unknown_ports: Sequence[int]
    """Server ports of unknown protocols, the most bytes first."""
    unknown: int = 0
    """Connections with payload of no known protocol."""
    one_sided: int = 0
    """Kafka connections with packets of one direction only."""
    failed_tls: int = 0
    """TLS connections whose handshake failed."""

    @property
    def unread(self) -> int:
        """Connections with payload that could not be read."""
        return self.protocols.get("tls", 0) + self.unknown

    @property
    def read(self) -> int:
        """Connections that could be read."""
        return self.protocols.get("kafka", 0)
