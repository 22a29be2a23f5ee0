"""Client telemetry (KIP-714): OTLP metrics, compressed or not, a line for each data point.

A client pushes a `MetricsData` of OpenTelemetry's protocol. Its tree is deep, and most metrics have
one data point. So each data point is shown as a kind, a value and its attributes. A resource, which
data points share, has a line before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from dissector.embedded.contents import TEXT, Contents, field_event
from dissector.errors import DecodeError
from dissector.protocol.explain import Explained
from dissector.records.batch_headers import CODECS
from dissector.records.codecs import Limits, decompress

if TYPE_CHECKING:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

_LIMITS: Final = Limits(batch_bytes=16 << 20)
"""A broker takes 1 MB by default (telemetry.max.bytes)."""
_NO_CODEC: Final = 0
_NAME: Final = 100
"""Maximum length of a metric's name, since names share a column."""
_DELTA: Final = 1
"""AGGREGATION_TEMPORALITY_DELTA: since the last push, not since the start."""


def metrics(data: bytes, codec: int) -> Contents | None:
    """The metrics that one client pushed; None if the bytes are not metrics."""
    # Imported late: the import takes longer than everything else in `show`.
    from google.protobuf.message import DecodeError as NotProtobuf
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    try:
        plain = data
        if codec != _NO_CODEC:
            plain = decompress(codec, memoryview(data), _LIMITS)
        pushed = MetricsData.FromString(plain)
    except (DecodeError, NotProtobuf):
        return None
    events = list(_events(pushed))
    name = f"OTLP metrics, {CODECS[codec]}, {len(plain):,} bytes uncompressed"
    return Contents(name, events)


def _events(pushed: Any) -> Iterator[Explained]:
    before = ""
    for part in pushed.resource_metrics:
        resource = _attributes(part.resource.attributes)
        if resource != before:
            yield field_event("resource", resource, type=TEXT)
            before = resource
        for scope in part.scope_metrics:
            for metric in scope.metrics:
                for text in _points(metric):
                    yield field_event(metric.name[:_NAME], text, type=TEXT)


def _points(metric: Metric) -> Iterator[str]:
    """A description of each data point."""
    kind = metric.WhichOneof("data")
    if kind is None:
        yield "no data"
        return
    data = getattr(metric, kind)
    words = kind.replace("_", " ")
    if kind == "sum":
        words = "delta" if data.aggregation_temporality == _DELTA else "total"
    for point in data.data_points:
        value = _VALUES[kind](point)
        yield " ".join(filter(None, (words, value, _attributes(point.attributes))))


def _number(point: Any) -> str:
    which = point.WhichOneof("value")
    value = None if which is None else getattr(point, which)
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _distribution(point: Any) -> str:
    known = point.DESCRIPTOR.fields_by_name
    bounds = [name for name in ("min", "max") if name in known and point.HasField(name)]
    parts = [f"{name} {getattr(point, name):.15g}" for name in ("sum", *bounds)]
    return ", ".join([f"count {point.count}", *parts])


_VALUES: Final[dict[str, Callable[[Any], str]]] = {
    "gauge": _number,
    "sum": _number,
    "histogram": _distribution,
    "exponential_histogram": _distribution,
    "summary": _distribution,
}


def _attributes(attributes: Iterable[Any]) -> str:
    """Attributes as ``{node_id=node-1, topic=orders}``; empty if there are none."""
    pairs = ", ".join(f"{each.key}={_any(each.value)}" for each in attributes)
    return f"{{{pairs}}}" if pairs else ""


def _any(value: Any) -> str:
    which = value.WhichOneof("value")
    return "" if which is None else str(getattr(value, which))
