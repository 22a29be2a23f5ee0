"""Summaries of made rows and of recordings, and their output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

import dissector
from analysis.display.summary_screen import screen
from analysis.summary.counts import Summary
from dissector.tables import TABLES
from tests.analysis.answering import path_of
from tests.analysis.made_rows import START, connection
from tests.analysis.printing import printed

Rows = Sequence[dict[str, Any]]


def batches(size: int, **tables: Rows) -> Iterator[tuple[str, pa.RecordBatch]]:
    for name, rows in tables.items():
        for start in range(0, len(rows), size):
            part = list(rows[start : start + size])
            yield name, pa.RecordBatch.from_pylist(part, TABLES[name].schema)


def summed(size: int = 3, **tables: Rows) -> Summary:
    summary = Summary()
    summary.read(batches(size, **tables))
    return summary


def recorded(name: str) -> Summary:
    """The summary of a committed capture."""
    summary = Summary()
    summary.read(dissector.open_capture(path_of(name)).stream(Summary.TABLES))
    return summary


def joined(group: str, generation: int) -> dict[str, Any]:
    row = {"time": START, "api": "JoinGroup", "group_type": "classic", "error_code": 0}
    return row | {"group_id": group, "generation": generation, "request_generation": -1}


def shown(summary: Summary, width: int = 10_000) -> str:
    parts = screen(summary, "made.pcap", 11, lambda words: f"kafka-dissector {words}")
    return printed(parts, width)


TLS = connection(protocol="tls")
UNKNOWN = connection(protocol="unknown", broker_port=29092)
SILENT = UNKNOWN | {"client_bytes": 0, "broker_bytes": 0}
ONE_SIDED = connection(broker_packets=0, broker_bytes=0)


ATTEMPT = SILENT | {
    "broker_port": 9092, "handshake_rtt_ms": None, "closed": "rst", "client_packets": 1,
    "broker_packets": 1, "last_time": START,
}  # fmt: skip
"""A SYN that a RST answered."""
REPEATED_SYN = ATTEMPT | {"closed": None, "client_packets": 4, "broker_packets": 0}
