"""Exchanges as spans, received by a collector that opentelemetry-proto decodes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

import analysis
from analysis.cli import main
from analysis.export.otlp import _context, url_of
from dissector.errors import DissectorError
from tests.analysis.commands import Ran
from tests.captures.truth import CAPTURES
from tests.dissector.packets.packet_bytes import ng_enhanced, ng_interface, ng_option, ng_section
from tests.dissector.streams.dialogue import pcap, request, response, spoken

TRACED = CAPTURES / "librdkafka-mock-traced.pcap.zst"
"""Record n has the trace id n + 1 and the span id n + 1001; every tenth has no header."""


class Collector(HTTPServer):
    """Keeps what it receives, and responds with `status` and `response`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: list[tuple[str, str, bytes]] = []
        self.status = 200
        self.response = ExportTraceServiceResponse().SerializeToString()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, self.headers["Content-Type"], body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.response)))
        self.end_headers()
        self.wfile.write(self.server.response)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def attributes(parts: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in parts
    }  # fmt: skip


def spans_of(collector: Collector) -> list[tuple[str, Any, dict[str, Any]]]:
    """Service, span and attributes of each span."""
    spans = []
    for path, content_type, body in collector.received:
        assert (path, content_type) == ("/v1/traces", "application/x-protobuf")
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = attributes(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                assert scope.scope.name == "kafka-dissector"
                spans += [(service, span, attributes(span.attributes)) for span in scope.spans]
    return spans


def number(context: tuple[bytes, bytes]) -> int:
    """The number of the record with this trace id and span id."""
    trace, span = (int.from_bytes(each) for each in context)
    assert span == trace + 1000
    return trace - 1


def test_a_collector_receives_a_span_for_each_exchange(collector: Collector, ran: Ran) -> None:
    err = ran("export", str(TRACED), "--endpoint", collector.url).err
    spans = spans_of(collector)
    rows = analysis.load(TRACED, "exchanges")["exchanges"]
    assert f"{len(rows)} spans to {collector.url}/v1/traces" in err
    assert len(spans) == len(rows)
    by_packet = {(a["kafka.request.packet"], a["messaging.client.id"]): (service, span, a)
                 for service, span, a in spans}  # fmt: skip
    assert len({span.span_id for _, span, _ in spans}) == len(spans)
    for row in rows.to_dict("records"):
        service, span, values = by_packet[row["request_packet"], row["client_id"]]
        assert service == row["client_id"]
        assert span.start_time_unix_nano == row["request_time"].value
        last = row["request_end_time" if row["status"] == "unanswered" else "response_end_time"]
        assert span.end_time_unix_nano == last.value
        assert span.kind == 3
        assert values["messaging.operation.name"] == row["api"]
        assert values["server.port"] == row["broker_port"]
        assert (len(span.trace_id), len(span.span_id)) == (16, 8)
        assert bool(span.status.code) == (
            (row["error_count"] or 0) > 0 or row["status"] == "unanswered"
        )


def test_an_error_code_without_a_name(tmp_path: Path, collector: Collector) -> None:
    """Of a later release. The conventions require error.type if an operation fails."""
    spoken(request(18, 0, 1), response(1, b"\x03\xe7" + bytes(4))).written(tmp_path / "a.pcap")
    assert main(["export", str(tmp_path / "a.pcap"), "--endpoint", collector.url]) == 0
    ((_, span, values),) = spans_of(collector)
    assert (span.status.message, values["error.type"]) == ("error 999", "error 999")


def test_times_before_1970_are_unknown(tmp_path: Path, collector: Collector) -> None:
    """As after a restart without a clock. OTLP has no such times."""
    dialogue = spoken(request(18, 0, 1), response(1, bytes(6)))
    origin = ng_option(14, (-1000).to_bytes(8, "little", signed=True))
    blocks = [ng_section(), ng_interface(link=101, options=origin)]
    blocks += (ng_enhanced(pcap([each])[40:], each.number) for each in dialogue.packets)
    (tmp_path / "a.pcapng").write_bytes(b"".join(blocks))
    assert main(["export", str(tmp_path / "a.pcapng"), "--endpoint", collector.url]) == 0
    ((_, span, _),) = spans_of(collector)
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (0, 0)


def test_spans_are_in_the_traces_of_their_records(collector: Collector) -> None:
    assert main(["export", str(TRACED), "--endpoint", collector.url]) == 0
    expected: dict[tuple[int, str], list[int]] = {}
    records = analysis.load(TRACED, ["records", "exchanges"])
    joined = records["records"].merge(
        records["exchanges"][["connection_id", "correlation_id", "request_packet"]],
        on=["connection_id", "correlation_id"],
    )
    for row in joined.to_dict("records"):
        order = json.loads(row["value"])["order"]
        if order % 10 != 9:
            expected.setdefault((row["request_packet"], row["api"]), []).append(order)
    seen = 0
    for _, span, values in spans_of(collector):
        key = values["kafka.request.packet"], values["messaging.operation.name"]
        contexts = [(span.trace_id, span.parent_span_id)] if span.parent_span_id else []
        contexts += [(link.trace_id, link.span_id) for link in span.links]
        assert sorted(map(number, contexts)) == sorted({*expected.get(key, ())})
        seen += len(contexts)
    assert seen >= 4 * 18


def test_a_file_has_the_same_spans_in_json(tmp_path: Path, collector: Collector) -> None:
    output = tmp_path / "spans.json"
    assert main(["export", str(TRACED), "--format", "otlp", "-o", str(output)]) == 0
    assert main(["export", str(TRACED), "--endpoint", collector.url]) == 0
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    sent = [
        MessageToDict(ExportTraceServiceRequest.FromString(body), use_integers_for_enums=True)
        for _, _, body in collector.received
    ]
    assert len(lines) == len(sent) == 1
    pairs = list(zip(flat(lines[0]), flat(sent[0]), strict=True))
    assert len(pairs) == 113
    for line, span in pairs:
        assert len(line["traceId"]) == 32
        assert len(line["spanId"]) == 16
        for name in ("traceId", "spanId", "parentSpanId", "links"):
            line.pop(name, None), span.pop(name, None)
        assert line == span


def flat(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [s for r in request["resourceSpans"] for c in r["scopeSpans"] for s in c["spans"]]


def test_the_same_capture_gives_the_same_spans(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    outputs = []
    for _ in range(2):
        assert main(["export", str(TRACED), "--format", "otlp", "--client", "single"]) == 0
        outputs.append(capfdbinary.readouterr().out)
    assert outputs[0] == outputs[1]
    assert len(flat(json.loads(outputs[0]))) == 26


TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("header", "is_valid"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-future", True),
        (f"ff-{TRACE}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE.upper()}-{SPAN}-01", False),
        ("", False),
    ],
)
def test_contexts_are_those_of_the_specification(header: str, is_valid: bool) -> None:
    """W3C Trace Context, section 3.2."""
    expected = (bytes.fromhex(TRACE), bytes.fromhex(SPAN)) if is_valid else None
    assert _context(header.encode()) == expected


def test_endpoints() -> None:
    assert url_of("http://c:4318") == url_of("http://c:4318/") == "http://c:4318/v1/traces"
    assert url_of("https://c/otlp/v1/traces") == "https://c/otlp/v1/traces"
    with pytest.raises(DissectorError, match="an endpoint is a URL"):
        url_of("localhost:4318")


def test_errors(collector: Collector, ran: Ran, tmp_path: Path) -> None:
    send = ["export", str(TRACED), "--endpoint"]
    collector.status = 503
    assert "status 503" in ran(*send, collector.url, status=1).err
    collector.status = 200
    rejecting = ExportTraceServiceResponse()
    rejecting.partial_success.rejected_spans = 3
    rejecting.partial_success.error_message = "too old"
    collector.response = rejecting.SerializeToString()
    assert "rejected 3 spans: too old" in ran(*send, collector.url, status=1).err
    assert "refused" in ran(*send, "http://127.0.0.1:1", status=1).err
    assert main([*send, "localhost"]) == 2
    assert main([*send, collector.url, "-o", str(tmp_path / "x")]) == 2
    assert main([*send, collector.url, "--table", "errors"]) == 2
    assert main(["export", str(TRACED), "--format", "otlp", "--columns", "api"]) == 2
