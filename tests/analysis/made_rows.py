"""Rows that no recording has, and a capture of them, for the fixture `made`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pyarrow as pa

from dissector.exchanges.exchange import Exchange, as_exchanges
from dissector.problems import Problem
from dissector.tables import EXCHANGES, TABLES

MS = 10**6
SECOND = 10**9
START = 1_700_000_000 * SECOND
NULLS = dict.fromkeys(EXCHANGES.schema.names)
"""A row of `exchanges` without values."""


def exchange(**columns: Any) -> dict[str, Any]:
    """A row of `exchanges`: an answered Metadata request, but for what is given."""
    row = NULLS | {
        "capture": "made.pcap", "connection_id": 0, "client_ip": "10.0.0.1",
        "client_port": 50000, "broker_ip": "10.0.0.9", "broker_port": 9092, "api_key": 3,
        "api": "Metadata", "api_version": 12, "correlation_id": 7, "client_id": "app",
        "status": "answered", "request_time": START, "request_end_time": START,
        "response_time": START + 2_000_000, "response_end_time": START + 2_000_000,
        "latency_ms": 2.0, "request_packet": 4, "response_packet": 5, "request_bytes": 30,
        "response_bytes": 60, "in_flight": 1, "error_count": 0, "error_code": 0, "error": "NONE",
    }  # fmt: skip
    row["acks"] = -1 if columns.get("api") == "Produce" else None
    if columns.get("status") == "unanswered":
        row |= dict.fromkeys(("response_time", "response_end_time", "latency_ms"))
    return row | columns


def exchange_at(start: int, end: int | None = None, **columns: Any) -> dict[str, Any]:
    """An `exchange` whose request is sent at `start`, and answered then or at `end`; ns."""
    times = {"request_time": start, "request_end_time": start}
    if columns.get("status") != "unanswered":
        end = start if end is None else end
        times |= {"response_time": end, "response_end_time": end}
    return exchange(**{**times, **columns})


def error(**columns: Any) -> dict[str, Any]:
    """A row of `errors` in the response of `exchange`, but for what is given."""
    row = {"time": START, "error_code": 3, "error": "UNKNOWN_TOPIC_OR_PARTITION", "topic": "t"}
    names = ("connection_id", "correlation_id", "client_ip", "client_id", "api", "api_version")
    return {name: exchange()[name] for name in names} | row | columns


def connection(**columns: Any) -> dict[str, Any]:
    """A row of `connections`: a connection of a Java client, with the given values."""
    sides = ("packets", "bytes", "retransmitted", "out_of_order", "lost_bytes")
    row: dict[str, Any] = {f"{end}_{side}": 0 for end in ("client", "broker") for side in sides}
    row |= {
        "connection_id": 0, "client_ip": "10.0.0.1", "client_port": 50000, "broker_ip": "10.0.0.9",
        "broker_port": 9092, "first_time": START, "last_time": START + 5 * SECOND,
        "protocol": "kafka", "opened": True, "closed": "fin", "client_packets": 6,
        "client_bytes": 500, "broker_packets": 5, "broker_bytes": 700, "handshake_rtt_ms": 0.5,
        "requests": 1, "responses": 1, "software_name": "apache-kafka-java",
        "software_version": "4.4.0", "sasl_mechanism": None,
    }  # fmt: skip
    return row | columns


ATTEMPT = connection(
    protocol="unknown", client_bytes=0, broker_bytes=0, client_packets=1, broker_packets=1,
    closed="rst", handshake_rtt_ms=None, last_time=START,
)  # fmt: skip
"""A SYN that a RST answered."""


def at(seconds: int, row: dict[str, Any] = ATTEMPT) -> dict[str, Any]:
    """The row of a connection that begins some seconds after `START`: by default an `ATTEMPT`."""
    lasts = row["last_time"] - row["first_time"]
    first = START + seconds * SECOND
    return row | {"first_time": first, "last_time": first + lasts}


def advertised(host: str, **columns: Any) -> dict[str, Any]:
    """A row of `brokers`: a broker at port 9092 in a Metadata response."""
    row = {"connection_id": 0, "correlation_id": 7, "time": START, "api": "Metadata"}
    return row | {"broker_id": 1, "host": host, "port": 9092} | columns


def batch(api: str, time: int = START, **columns: Any) -> dict[str, Any]:
    """A row of `batches`: of partition 0 of topic t."""
    row = {"connection_id": 0, "correlation_id": 7, "api": api, "client_id": "app", "topic": "t"}
    return row | {"partition": 0, "time": time} | columns


def partition(api: str, time: int = START, **columns: Any) -> dict[str, Any]:
    """A row of `partitions`: partition 0 of topic t in a request that is answered at this time."""
    return batch(api, time, response_time=time, error_code=0) | columns


def made_exchange(**columns: Any) -> Exchange:
    """The `Exchange` of these frames; its sizes follow from them."""
    for name in ("request", "response"):
        frame = columns.setdefault(f"{name}_frame", None)
        columns.setdefault(f"{name}_bytes", None if frame is None else len(frame) + 4)
    return Exchange(**exchange(**columns))


class MadeCapture:
    """A `Capture` of rows as dicts; frames come with the rows of `exchanges`."""

    def __init__(self, tables: dict[str, list[dict[str, Any]]], packets: int) -> None:
        self._rows = tables
        self.packets = packets
        self.host_names: list[tuple[str, str]] = []
        self.file_problems: list[Problem] = []
        self.without_tcp: dict[str, int] = {}

    def has_table(self, name: str) -> bool:
        return name in TABLES

    def stream(self, tables: Collection[str] | None = None) -> Iterator[tuple[str, pa.RecordBatch]]:
        for name in tables or TABLES:
            for row in self._rows.get(name, []):  # a batch per row, so that sums need all rows
                yield name, pa.RecordBatch.from_pylist([row], TABLES[name].schema)

    def tables(self, tables: Collection[str] | None = None) -> dict[str, pa.Table]:
        return {
            name: pa.Table.from_pylist(self._rows.get(name, []), TABLES[name].schema)
            for name in tables or TABLES
        }

    def exchanges(self) -> Iterator[Exchange]:
        frames = [("request_frame", pa.binary()), ("response_frame", pa.binary())]
        schema = pa.schema([*EXCHANGES.schema, *(pa.field(*each) for each in frames)])
        yield from as_exchanges(pa.RecordBatch.from_pylist(self._rows["exchanges"], schema))


Make = Callable[..., None]
"""The type of the fixture `made`."""


def fetched(seconds: int, stable: int) -> dict[str, Any]:
    """A partition in a Fetch response."""
    return partition(
        "Fetch", START + seconds * SECOND, correlation_id=seconds, api_version=13,
        client_id="reader", error="NONE", high_watermark=10, last_stable_offset=stable,
        log_start_offset=0,
    )  # fmt: skip
