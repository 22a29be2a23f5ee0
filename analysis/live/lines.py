"""The line view: one line per exchange, when the exchange is complete.

    06:12:01.123456  app  10.0.0.1:50122 > 10.0.0.9:9092  Produce v13  orders  100 records  5.960 ms

Errors, throttle time and an abnormal status come at the end of the line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import pyarrow as pa

from analysis.display.terminal import counted, excerpt, first_three, has_colours, time_text
from analysis.export.text import json_lines, terminal_json, text_bytes
from analysis.kafka.errors import error_name
from analysis.live.nonblocking_writer import NonblockingWriter
from analysis.live.rotation import AppendedFile, Rotation
from analysis.live.session import Watcher
from analysis.names.addresses import endpoint
from dissector.tables.arrow import with_times

RowFilter: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Returns the rows that match."""

COLUMNS: Final = (
    *("request_time", "response_time", "client_id", "client_ip", "client_port", "broker_ip"),
    *("broker_port", "api_key", "api", "api_version", "topics", "record_count", "latency_ms"),
    *("error", "error_code", "error_count", "throttle_time_ms", "status"),
)
"""Columns that a line uses."""

_STATUS = {
    "unanswered": "no response",
    "no_reply_expected": "no response expected",
    "request_missing": "request not captured",
    "undecoded": "not decoded",
}


class LineView(Watcher):
    """Writes the exchanges that match `row_filter` to standard output, as text by `format_rows`."""

    tables = frozenset({"exchanges"})

    def __init__(
        self,
        row_filter: RowFilter,
        format_rows: Callable[[pa.RecordBatch], bytes],
        stop: Callable[[], None],
    ) -> None:
        """`stop` is called when standard output is closed or fails."""
        self._row_filter = row_filter
        self._format_rows = format_rows
        self._stop = stop
        sys.stdout.flush()
        buffer: Any = sys.stdout.buffer
        self._writer = NonblockingWriter(getattr(buffer, "raw", buffer), _report_dropped)

    @property
    def error(self) -> OSError | None:
        """The error of standard output, if it failed."""
        return self._writer.error

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        if len(rows := self._row_filter(rows)):
            self._writer.put(self._format_rows(rows))

    def tick(self) -> None:
        if self.error:
            self._stop()

    def close(self) -> None:
        self._writer.close()


class JsonLinesFile(AppendedFile):
    """Writes the exchanges that match `row_filter` to JSON Lines files, which may rotate.

    Raises DissectorError if the first file cannot be created.
    """

    tables = frozenset({"exchanges"})

    def __init__(
        self, path: Path, row_filter: RowFilter, rotation: Rotation, report: Callable[[str], None]
    ) -> None:
        super().__init__(path, rotation, "row", report)
        self._row_filter = row_filter

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        if self.failure is None and len(rows := self._row_filter(rows)):
            with self.stopped_by_errors():
                self.rotate()
                self.append(as_json(rows), len(rows))


def as_json_for_terminal(rows: pa.RecordBatch) -> bytes:
    """`as_json` without invisible characters."""
    return terminal_json(as_json(rows))


def as_json(rows: pa.RecordBatch) -> bytes:
    """One JSON object per line, as `export` writes it."""
    return bytes(text_bytes(json_lines(rows)))


class LineFormat:
    """Formats rows as in the example above; on a terminal, errors are red."""

    def __init__(self) -> None:
        self._is_coloured = has_colours()

    def __call__(self, rows: pa.RecordBatch) -> bytes:
        # Integers, because Python's datetime is slower and lacks nanoseconds.
        values = with_times(rows.select(COLUMNS), pa.int64()).to_pylist()
        return "".join(map(self._line, values)).encode(errors="backslashreplace")

    def _line(self, row: dict[str, Any]) -> str:
        time = row["request_time"] if row["request_time"] is not None else row["response_time"]
        version = "" if row["api_version"] is None else f" v{row['api_version']}"
        words = [
            time_text(time, 6)[11:],
            excerpt(row["client_id"] or "-"),
            " > ".join(endpoint(row[f"{s}_ip"], row[f"{s}_port"]) for s in ("client", "broker")),
            f"{row['api'] or _unnamed(row['api_key'])}{version}",
            first_three(row["topics"] or (), excerpt),
            counted(row["record_count"], "record") if row["record_count"] else "",
            f"{row['latency_ms']:,.3f} ms" if row["latency_ms"] is not None else "",
        ]
        errors = "  ".join(_errors(row))
        if self._is_coloured and errors:
            errors = click.style(errors, fg="red")
        return "  ".join(word for word in (*words, errors) if word) + "\n"


def _errors(row: dict[str, Any]) -> list[str]:
    errors = []
    if row["error_count"]:
        surplus = f" and {row['error_count'] - 1} more" if row["error_count"] > 1 else ""
        errors.append(error_name(row["error"], row["error_code"]) + surplus)
    if row["throttle_time_ms"]:
        errors.append(f"throttled {row['throttle_time_ms']:,} ms")
    if row["status"] != "answered":
        errors.append(_STATUS[row["status"]])
    return errors


def _unnamed(api_key: int | None) -> str:
    return "-" if api_key is None else f"API {api_key}"


def _report_dropped(lines: int) -> None:
    click.echo(f"{counted(lines, 'line')} dropped: standard output is too slow", err=True)
