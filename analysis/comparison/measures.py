"""The measures that are compared, in order of their importance: causes before effects."""

from __future__ import annotations

from typing import Final

from dissector.arrays import value


@value
class Measure:
    """A number of a group of requests: the quotient of two sums, or a quantile of `net_ms`."""

    name: str
    unit: str
    meaning: str
    numerator: str = ""
    """A column of sums; empty for a quantile."""
    denominator: str = "seconds"
    """A column of sums, or ``seconds``: the length of the slices."""
    factor: float = 1.0
    quantile: float | None = None
    least: float = 0.0
    """Smallest difference that matters, in the unit of the measure. The latency of a broker drifts
    by less with the load of its host, warm code and caches, without any change."""
    worse_if: int = 0
    """1: an increase is worse, 0: neither is."""

    @property
    def is_rate(self) -> bool:
        """Whether it is a number per second."""
        return self.quantile is None and self.denominator == "seconds"


MEASURES: Final = (
    Measure(
        "throttled_ms_per_s", "ms/s", "throttle time that brokers impose in a second",
        "throttle_ms", least=10, worse_if=1,
    ),
    Measure(
        "error_percent", "%", "responses with an error that is not part of normal operation",
        "errors", "responses", 100, least=1, worse_if=1,
    ),
    Measure(
        "net_p50_ms", "ms", "median of the latency excluding waits",
        quantile=0.5, least=1, worse_if=1,
    ),
    Measure(
        "net_p95_ms", "ms", "0.95 quantile of the latency excluding waits",
        quantile=0.95, least=5, worse_if=1,
    ),
    Measure("requests_per_s", "requests/s", "requests per second", "requests"),
    Measure("bytes_per_s", "bytes/s", "bytes of requests and responses per second", "bytes"),
)  # fmt: skip
"""Measures of each group."""

PARTITION: Final = Measure(
    "partition_percent", "%", "share of a partition in the produced bytes of its topic",
    "bytes", "topic_bytes", 100, least=10, worse_if=1,
)  # fmt: skip
"""Measure of each hot partition."""

NAMES: Final = (
    "throttled_ms_per_s", "error_percent", "partition_percent", "software", "api_version",
    "net_p50_ms", "net_p95_ms", "requests_per_s", "bytes_per_s", "client", "group", "topic",
)  # fmt: skip
"""All kinds of changes, in the order in which they are reported."""
