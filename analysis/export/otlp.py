"""Exchanges as spans of OpenTelemetry (OTLP 1.x), for a collector or a file.

A span of kind CLIENT lasts from the first byte of the request to the last byte of the response. Its
attributes follow the semantic conventions for Kafka, where these have names; others begin with
``kafka.``. The service is the client id.

Records carry the context of their producer in the header ``traceparent`` (W3C Trace Context). The
span of the Produce or Fetch that carries them is a child of the context in the first such record,
in its trace, and links to the others. Without a context, trace and span ids are derived from the
exchange: the same capture gives the same ids.

A file has a JSON object per line, as the file exporter of the collector writes it: an
ExportTraceServiceRequest in OTLP/JSON, in which ids are hexadecimal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import dissector
from analysis.kafka.errors import error_name
from dissector.errors import DissectorError

if TYPE_CHECKING:
    import duckdb
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TABLES: Final = ("exchanges", "records")
"""The tables that spans are made of."""
SPANS: Final = 512
"""Spans of a request to the collector, and of a line; the SDKs' default."""
LINKS: Final = 128
"""Maximum number of links of a span; the SDKs' default limit."""
TIMEOUT: Final = 30
"""Seconds to wait for the collector."""
PATH: Final = "/v1/traces"

_CONTEXT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_CLIENT: Final = 3
_ERROR: Final = 2
_ROWS: Final = 1 << 14
"""Exchanges that are in memory at a time."""

_QUERY: Final = f"""
  with contexts as (
    select connection_id, correlation_id, "time", min(nth) as nth, context from (
      select connection_id, correlation_id, "time", nth,
        list_filter(headers, lambda h: h.key = 'traceparent')[1].value as context from records)
    where context is not null group by all),
  carried as (
    select connection_id, correlation_id, "time",
      list(context order by nth)[:{LINKS + 1}] as contexts
    from contexts group by all)
  select exchanges.* replace (
      epoch_ns(request_time) as request_time, epoch_ns(request_end_time) as request_end_time,
      epoch_ns(response_time) as response_time, epoch_ns(response_end_time) as response_end_time),
    contexts
  from exchanges left join carried
    on carried.connection_id = exchanges.connection_id
      and carried.correlation_id is not distinct from exchanges.correlation_id
      and carried."time" = case api when 'Produce' then request_time else response_time end
  where coalesce(request_time, response_time) is not null
  order by exchanges.nth"""


def requests(tables: duckdb.DuckDBPyConnection) -> Iterator[ExportTraceServiceRequest]:
    """The spans of all exchanges, in requests of `SPANS`. `tables`: of `Input.stored`."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    for batch in tables.sql(_QUERY).to_arrow_reader(_ROWS):
        rows = batch.to_pylist()
        for start in range(0, len(rows), SPANS):
            request = ExportTraceServiceRequest()
            services: dict[str, Any] = {}
            for row in rows[start : start + SPANS]:
                service = row["client_id"] or "unknown_service"
                if service not in services:
                    services[service] = _scope(request, service)
                _fill(services[service].spans.add(), row)
            yield request


def write_lines(requests: Iterable[ExportTraceServiceRequest], sink: BinaryIO) -> int:
    """Write a line for each request; returns the number of spans."""
    from google.protobuf.json_format import MessageToDict

    count = 0
    for request in requests:
        count += _span_count(request)
        line = MessageToDict(request, use_integers_for_enums=True)
        for span in _spans(line):
            _with_hexadecimal_ids(span)
        sink.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    return count


def send(requests: Iterable[ExportTraceServiceRequest], endpoint: str) -> int:
    """Send requests to a collector over HTTP; returns the number of spans.

    `endpoint`: as OTEL_EXPORTER_OTLP_ENDPOINT: ``http://host:4318``. Raises DissectorError.
    """
    from google.protobuf.message import DecodeError as NotProtobuf
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    url = url_of(endpoint)
    count = 0
    for request in requests:
        headers = {"Content-Type": "application/x-protobuf"}
        post = Request(url, request.SerializeToString(), headers, method="POST")
        try:
            with urlopen(post, timeout=TIMEOUT) as response:
                answer = ExportTraceServiceResponse.FromString(response.read())
        except HTTPError as error:
            raise DissectorError(f"{url}: status {error.code} {error.reason}") from error
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            detail = getattr(reason, "strerror", None) or reason
            raise DissectorError(f"{url}: {detail}") from error
        except NotProtobuf as error:
            raise DissectorError(f"{url}: the response is not OTLP") from error
        if rejected := answer.partial_success.rejected_spans:
            message = answer.partial_success.error_message
            raise DissectorError(f"{url}: rejected {rejected:,} spans: {message}")
        count += _span_count(request)
    return count


def url_of(endpoint: str) -> str:
    """The URL for traces. Raises DissectorError if the endpoint is not an HTTP URL."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise DissectorError(f"{endpoint}: an endpoint is a URL such as http://localhost:4318")
    return endpoint if parts.path.endswith(PATH) else endpoint.rstrip("/") + PATH


def _scope(request: ExportTraceServiceRequest, service: str) -> Any:
    resource = request.resource_spans.add()
    _set(resource.resource.attributes, "service.name", service)
    scope = resource.scope_spans.add()
    scope.scope.name, scope.scope.version = "kafka-dissector", dissector.__version__
    return scope


def _fill(span: Any, row: dict[str, Any]) -> None:
    contexts = list(filter(None, map(_context, row["contexts"] or ())))
    identity = (row["connection_id"], row["correlation_id"], row["request_time"],
                row["response_time"], row["client_ip"], row["client_port"])  # fmt: skip
    digest = blake2b(repr(identity).encode(), digest_size=24).digest()
    span.trace_id, span.span_id = digest[:16], digest[16:]
    if contexts:
        span.trace_id, span.parent_span_id = contexts[0]
    for trace_id, span_id in contexts[1:]:
        span.links.add(trace_id=trace_id, span_id=span_id)
    topics = row["topics"] or []
    api = row["api"] or "unknown API"
    span.name = f"{api} {topics[0]}" if len(topics) == 1 else api
    span.kind = _CLIENT
    times = [row[name] for name in ("request_time", "request_end_time", "response_time",
                                    "response_end_time")]  # fmt: skip
    # OTLP has no times before 1970; 0 means that the time is unknown.
    times = [time and max(time, 0) for time in times]
    known = [time for time in times if time is not None]
    span.start_time_unix_nano, span.end_time_unix_nano = min(known), max(known)
    if times[2] is not None and times[1] is not None:
        span.events.add(name="request sent", time_unix_nano=times[1])
        span.events.add(name="response begins", time_unix_nano=times[2])
    for name, value in _attributes(row, topics):
        _set(span.attributes, name, value)
    if row["error_count"]:
        span.status.code, span.status.message = _ERROR, error_name(row["error"], row["error_code"])
    elif row["status"] == "unanswered":
        span.status.code, span.status.message = _ERROR, "no response in the capture"


def _attributes(row: dict[str, Any], topics: list[str]) -> Iterator[tuple[str, Any]]:
    operation = {"Produce": "send", "Fetch": "receive", "ShareFetch": "receive"}.get(row["api"])
    values = {
        "messaging.system": "kafka",
        "messaging.operation.name": row["api"],
        "messaging.operation.type": operation,
        "messaging.destination.name": topics[0] if len(topics) == 1 else None,
        "messaging.client.id": row["client_id"],
        "messaging.consumer.group.name": row["group_id"],
        "messaging.batch.message_count": row["record_count"],
        "server.address": row["broker_ip"],
        "server.port": row["broker_port"],
        "client.address": row["client_ip"],
        "client.port": row["client_port"],
        "error.type": error_name(row["error"], row["error_code"]) if row["error_count"] else None,
        "kafka.api.key": row["api_key"],
        "kafka.api.version": row["api_version"],
        "kafka.correlation_id": row["correlation_id"],
        "kafka.status": row["status"],
        "kafka.latency_ms": row["latency_ms"],
        "kafka.throttle_time_ms": row["throttle_time_ms"],
        "kafka.request.packet": row["request_packet"],
        "kafka.response.packet": row["response_packet"],
    }
    for name, value in values.items():
        if value is not None:
            yield name, value
    if len(topics) > 1:
        yield "kafka.topics", topics


def _context(header: bytes) -> tuple[bytes, bytes] | None:
    """Trace id and span id of a ``traceparent``; None if it is invalid."""
    match = _CONTEXT.fullmatch(header.decode(errors="replace").strip())
    if match is None or match[0].startswith("ff"):
        return None
    ids = bytes.fromhex(match[1]), bytes.fromhex(match[2])
    return ids if any(ids[0]) and any(ids[1]) else None


def _set(attributes: Any, name: str, value: Any) -> None:
    """Add an attribute."""
    target = attributes.add(key=name).value
    if isinstance(value, list):
        for each in value:
            target.array_value.values.add(string_value=each)
    elif isinstance(value, int):
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    else:
        target.string_value = value


def _span_count(request: ExportTraceServiceRequest) -> int:
    return sum(len(s.spans) for r in request.resource_spans for s in r.scope_spans)


def _spans(line: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in line["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            yield from scope["spans"]


def _with_hexadecimal_ids(span: dict[str, Any]) -> None:
    """Replace base64, protobuf's JSON for bytes, in the ids of a span and its links."""
    from base64 import b64decode

    for part in (span, *span.get("links", ())):
        for name in part.keys() & {"traceId", "spanId", "parentSpanId"}:
            part[name] = b64decode(part[name]).hex()
