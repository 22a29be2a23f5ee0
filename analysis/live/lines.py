"""The line view: a line for each exchange, when it has come to its end.

    06:12:01.123456  app  10.0.0.1:50122 > 10.0.0.9:9092  Produce v13  orders  100 records  5.960 ms

Errors, throttling and what has no answer stand at the end of a line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import pyarrow as pa

from analysis.display.terminal import counted, excerpt, printable, time_text
from analysis.live.outlet import Outlet
from analysis.live.rolling import GrowingFile, Rolling
from analysis.text import json_lines, text_bytes

Choice: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Leaves some of the rows."""

COLUMNS: Final = (
    *("request_time", "response_time", "client_id", "client_ip", "client_port", "broker_ip"),
    *("broker_port", "api_key", "api", "api_version", "topics", "record_count", "latency_ms"),
    *("error", "error_count", "throttle_time_ms", "status"),
)
"""What a line is made of."""

_TOPICS = 3
"""Names of topics in a line; how many more there are is said."""
_STATUS = {
    "unanswered": "no answer",
    "no_reply_expected": "no answer wanted",
    "request_missing": "request not seen",
    "undecoded": "not decoded",
}


class Lines:
    """Writes the exchanges that `chosen` leaves to standard output, as `form` makes them text."""

    tables = frozenset({"exchanges"})

    def __init__(
        self, chosen: Choice, form: Callable[[pa.RecordBatch], bytes], stop: Callable[[], None]
    ) -> None:
        """`stop` is called when standard output cannot be written to any more."""
        self._chosen = chosen
        self._form = form
        self._stop = stop
        self._outlet = Outlet(sys.stdout.buffer, _left_out)

    @property
    def error(self) -> OSError | None:
        """Why standard output cannot be written to any more."""
        return self._outlet.error

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        if len(rows := self._chosen(rows)):
            self._outlet.put(self._form(rows))

    def tick(self) -> None:
        if self.error:
            self._stop()

    def close(self) -> None:
        self._outlet.close()


class LinesFile:
    """Writes the exchanges that `chosen` leaves to JSON Lines files, which may roll.

    Raises DissectorError where the first file cannot be created.
    """

    tables = frozenset({"exchanges"})

    def __init__(
        self, path: Path, chosen: Choice, rolling: Rolling, note: Callable[[str], None]
    ) -> None:
        self._chosen = chosen
        self._file = GrowingFile(path, rolling, "row", note)

    @property
    def failure(self) -> str | None:
        """Why no more rows are written."""
        return self._file.failure

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        if self.failure is not None or not len(rows := self._chosen(rows)):
            return
        try:
            self._file.roll()
            self._file.append(as_json(rows), len(rows))
        except OSError as error:
            self._file.give_up(error)

    def tick(self) -> None:
        """Rows are written as they come."""

    def close(self) -> None:
        self._file.close()

    def discard(self) -> None:
        """Remove the file: the session does not begin."""
        self._file.discard()


def as_json(rows: pa.RecordBatch) -> bytes:
    """A JSON object a line, as `export` writes it."""
    return bytes(text_bytes(json_lines(rows)))


class AsLines:
    """Lines as the head of this module shows them; trouble in red where a terminal shows them."""

    def __init__(self) -> None:
        self._is_coloured = sys.stdout.isatty()

    def __call__(self, rows: pa.RecordBatch) -> bytes:
        # As integers: Python's times have no nanoseconds, and cost more.
        columns = [
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            for column in rows.select(COLUMNS).columns
        ]
        values = zip(*(column.to_pylist() for column in columns), strict=True)
        lines = (self._line(dict(zip(COLUMNS, row, strict=True))) for row in values)
        return "".join(lines).encode(errors="backslashreplace")

    def _line(self, row: dict[str, Any]) -> str:
        time = row["request_time"] if row["request_time"] is not None else row["response_time"]
        version = "" if row["api_version"] is None else f" v{row['api_version']}"
        words = [
            time_text(time, 6)[11:],
            excerpt(row["client_id"] or "-"),
            f"{_address(row, 'client')} > {_address(row, 'broker')}",
            f"{row['api'] or _unnamed(row['api_key'])}{version}",
            _topics(row["topics"]),
            counted(row["record_count"], "record") if row["record_count"] else "",
            f"{row['latency_ms']:,.3f} ms" if row["latency_ms"] is not None else "",
        ]
        trouble = "  ".join(_trouble(row))
        if self._is_coloured and trouble:
            trouble = click.style(trouble, fg="red")
        return "  ".join(word for word in (*words, trouble) if word) + "\n"


def _trouble(row: dict[str, Any]) -> list[str]:
    found = []
    if row["error_count"]:
        more = f" and {row['error_count'] - 1} more" if row["error_count"] > 1 else ""
        found.append(f"{row['error']}{more}")
    if row["throttle_time_ms"]:
        found.append(f"throttled {row['throttle_time_ms']:,} ms")
    if row["status"] != "answered":
        found.append(_STATUS[row["status"]])
    return found


def _address(row: dict[str, Any], side: str) -> str:
    ip = row[f"{side}_ip"]
    return f"{f'[{ip}]' if ':' in ip else ip}:{row[f'{side}_port']}"


def _unnamed(api_key: int | None) -> str:
    return "-" if api_key is None else f"API {api_key}"


def _topics(topics: list[str] | None) -> str:
    if not topics:
        return ""
    more = f" and {len(topics) - _TOPICS:,} more" if len(topics) > _TOPICS else ""
    return printable(", ".join(topics[:_TOPICS])) + more


def _left_out(lines: int) -> None:
    click.echo(f"{counted(lines, 'line')} left out: whoever reads them is too slow", err=True)
