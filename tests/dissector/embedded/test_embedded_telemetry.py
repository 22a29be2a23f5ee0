"""Telemetry: metrics that OpenTelemetry's own package writes, in every codec."""

from __future__ import annotations

import gzip
import struct

import lz4.frame
import pytest
import snappy
import zstandard
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from dissector.embedded import MessageContext, unfold
from dissector.embedded.contents import NOWHERE, TEXT
from dissector.protocol.explain import Explained
from dissector.protocol.message import explain_request

CODECS = {
    0: bytes,
    1: gzip.compress,
    2: snappy.compress,
    3: lz4.frame.compress,
    4: zstandard.ZstdCompressor().compress,
}


def made() -> MetricsData:
    data = MetricsData()
    part = data.resource_metrics.add()
    part.resource.attributes.add(key="group_id").value.string_value = "readers"
    metrics = part.scope_metrics.add().metrics
    rate = metrics.add(name="rate").gauge.data_points.add(as_double=37.5)
    rate.attributes.add(key="node_id").value.string_value = "node-1"
    total = metrics.add(name="total").sum
    total.aggregation_temporality = 2
    total.data_points.add(as_int=10**17)
    delta = metrics.add(name="delta").sum
    delta.aggregation_temporality = 1
    delta.data_points.add(as_double=4)
    delta.data_points.add(as_double=float("nan"))
    metrics.add(name="times").histogram.data_points.add(count=3, sum=1.5, min=0.25, max=1)
    metrics.add(name="spread").exponential_histogram.data_points.add(count=2, sum=8)
    metrics.add(name="old").summary.data_points.add(count=1, sum=2)
    metrics.add(name="nothing")
    metrics.add(name="gap").gauge.data_points.add()
    return data


SAID = [
    ("resource", "{group_id=readers}"),
    ("rate", "gauge 37.5 {node_id=node-1}"),
    ("total", "total 100000000000000000"),
    ("delta", "delta 4"),
    ("delta", "delta nan"),
    ("times", "histogram count 3, sum 1.5, min 0.25, max 1"),
    ("spread", "exponential histogram count 2, sum 8"),
    ("old", "summary count 1, sum 2"),
    ("nothing", "no data"),
    ("gap", "gauge None"),
]


def pushed(metrics: bytes, codec: int) -> list[Explained]:
    """The fields of a PushTelemetry v0 that holds them, from `metrics` on."""
    head = struct.pack(">hhih", 72, 0, 7, 3) + b"app\0"
    size = bytearray()
    left = len(metrics) + 1
    while left > 0x7F:
        size.append(left & 0x7F | 0x80)
        left >>= 7
    size.append(left)
    body = bytes(16) + struct.pack(">i?b", 5, False, codec) + bytes(size) + metrics + b"\0"
    explanation = explain_request(head + body)
    assert explanation.error is None
    events = unfold(explanation, MessageContext()).events
    where = [event.name for event in events].index("metrics")
    return events[where:]


@pytest.mark.parametrize("codec", CODECS)
def test_metrics(codec: int) -> None:
    plain = made().SerializeToString()
    field, *points, end = pushed(CODECS[codec](plain), codec)
    name = ("none", "gzip", "snappy", "lz4", "zstd")[codec]
    size = f"{len(plain):,} bytes uncompressed"
    assert (field.type, field.value) == (TEXT, f"OTLP metrics, {name}, {size}")
    assert [(point.name, point.value) for point in points] == SAID
    assert {(point.offset, point.depth) for point in points} == {(NOWHERE, field.depth + 1)}
    assert end.type == "tags"


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4, 9, -1])
def test_bytes_other_than_metrics_stay(codec: int) -> None:
    metrics = b"\xff\xff\xff\xff no metrics"
    field, end = pushed(metrics, codec)
    assert (field.type, field.value) == ("bytes", metrics)
    assert end.type == "tags"


def test_a_bomb_is_not_opened() -> None:
    bomb = gzip.compress(bytes(64 << 20))
    field, _ = pushed(bomb, 1)
    assert field.value == bomb


def test_a_resource_is_shown_when_it_changes() -> None:
    data = MetricsData()
    for name, resource in (("a", "one"), ("b", "one"), ("c", "two")):
        part = data.resource_metrics.add()
        part.resource.attributes.add(key="id").value.string_value = resource
        part.scope_metrics.add().metrics.add(name=name).gauge.data_points.add(as_int=1)
    _, *points, _ = pushed(data.SerializeToString(), 0)
    assert [point.name for point in points] == ["resource", "a", "b", "resource", "c"]
