"""Where the messages of exchanges are in their TCP streams.

A message is a range of sequence numbers of one direction of a connection. Ranges are compared as
keys: stream and sequence number as one integer. Sequence numbers wrap at 2^32, so a range near the
wrap is there twice, before and after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from analysis.display.terminal import first_three, printable
from analysis.kafka.errors import error_name
from dissector.arrays import value
from dissector.packets.block import Int64
from dissector.tables.exchanges import SEQUENCES

KEY: Final = ("connection_id", "correlation_id", "request_packet", "response_packet",
              "request_time", "response_time")  # fmt: skip
"""The columns that identify a row of `exchanges`."""
COLUMNS: Final = (
    *KEY, "request_end_time", "response_end_time", "request_bytes", "response_bytes",
    "client_ip", "client_port", "broker_ip", "broker_port", "api_key", "api", "api_version",
    "status", "latency_ms", "throttle_time_ms", "error", "error_code", "error_count",
    "topics",
)  # fmt: skip
"""The columns of `exchanges` that a cut needs."""

Address: TypeAlias = tuple[str, int]
"""IP address and port."""

_MODULO: Final = 1 << 32
_STREAM: Final = 1 << 34
"""Keys of a stream: sequence numbers from -2^32 to 2^33."""
_EDGE: Final = 1 << 20
"""More than the bytes of a segment."""


@value
class Messages:
    """n messages; arrays of shape (n,)."""

    connection: Int64
    is_request: Int64
    """1 for a request, 0 for a response."""
    begin: Int64
    """Sequence number of the first byte."""
    length: Int64
    first_time: Int64
    last_time: Int64
    """ns; when the first and the last byte became readable."""
    packet: Int64
    """Number of the packet with the first byte."""
    comments: list[str]
    ends: dict[int, tuple[Address, Address]]
    """Client and broker of each connection."""
    exchanges: int
    """Number of exchanges that they are of."""

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def stream(self) -> Int64:
        return 2 * self.connection + self.is_request

    def around(self, first: int, last: int) -> Int64:
        """Indices of the messages with a byte in this time."""
        return np.flatnonzero((self.first_time <= last) & (self.last_time >= first))


@value
class Ranges:
    """Ranges of sequence numbers as keys, in ascending order; arrays of the same shape."""

    begin: Int64
    end: Int64
    index: Int64
    """Index of the message."""

    @classmethod
    def of(cls, messages: Messages, index: Int64) -> Ranges:
        """The ranges of some messages."""
        begin, length = messages.begin[index], messages.length[index]
        wraps = np.flatnonzero(begin + length + _EDGE > _MODULO)
        low = np.flatnonzero(begin < _EDGE)
        chosen = np.concatenate([np.arange(len(index)), wraps, low])
        shift = np.repeat([0, -_MODULO, _MODULO], [len(index), len(wraps), len(low)])
        start = keys(messages.stream[index][chosen], begin[chosen] + shift)
        order = np.argsort(start, kind="stable")
        end = start + length[chosen]
        return cls(start[order], end[order], index[chosen][order])

    def joined(self) -> tuple[Int64, Int64]:
        """Begin and end of the ranges; those that follow each other are one."""
        if not len(self.begin):
            return self.begin, self.end
        until = np.maximum.accumulate(self.end)
        first = np.flatnonzero(np.append(True, self.begin[1:] > until[:-1]))
        return self.begin[first], until[np.append(first[1:] - 1, len(until) - 1)]


def keys(stream: Int64, sequence: Int64) -> Int64:
    """A key for each byte of each stream."""
    return stream * _STREAM + sequence + _MODULO


def messages_of(exchanges: pa.Table, located: Iterable[pa.RecordBatch]) -> Messages:
    """The messages of exchanges.

    `located`: all rows of `exchanges` with `SEQUENCES`. Topics of comments are those in
    `exchanges`, which has the names.
    """
    chosen = {_key(row): row for row in exchanges.select(list(COLUMNS)).to_pylist()}
    rows: list[tuple[Any, ...]] = []
    count = 0
    for batch in located:
        for key, *sequences in _rows(batch):
            if (exchange := chosen.get(key)) is not None:
                rows += _messages(exchange, *sequences)
                count += 1
    ends = {
        row["connection_id"]: (
            (row["client_ip"], row["client_port"]), (row["broker_ip"], row["broker_port"])
        )
        for row in chosen.values()
    }  # fmt: skip
    *columns, comments = zip(*rows, strict=True) if rows else [()] * 8
    names = (field.name for field in fields(Messages))
    arrays: dict[str, Any] = {
        name: np.array(column, np.int64) for name, column in zip(names, columns, strict=False)
    }
    return Messages(**arrays, comments=list(comments), ends=ends, exchanges=count)


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Key and sequence numbers of each row."""
    key = zip(*(batch[name].cast(pa.int64()).to_pylist() for name in KEY), strict=True)
    return zip(key, *(batch[name].to_pylist() for name in SEQUENCES), strict=True)


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def _messages(row: dict[str, Any], *sequences: int | None) -> Iterator[tuple[Any, ...]]:
    for name, begin in zip(("request", "response"), sequences, strict=True):
        if begin is not None:
            yield (
                row["connection_id"], int(name == "request"), begin, row[f"{name}_bytes"],
                row[f"{name}_time"], row[f"{name}_end_time"], row[f"{name}_packet"],
                comment(row, name),
            )  # fmt: skip


def comment(row: dict[str, Any], name: str) -> str:
    """The comment of a message, such as ``Produce v13 orders, 153 ms, throttled 1,000 ms``."""
    api = row["api"] or (f"API {row['api_key']}" if row["api_key"] is not None else "unknown API")
    version = "" if row["api_version"] is None else f" v{row['api_version']}"
    topics = row["topics"] or ()
    named = f" {first_three(topics, printable)}" if topics else ""
    facts = [("" if name == "request" else "response to ") + f"{api}{version}{named}"]
    if row["latency_ms"] is not None:
        facts.append(milliseconds(row["latency_ms"]))
    if row["throttle_time_ms"]:
        facts.append(f"throttled {row['throttle_time_ms']:,} ms")
    if row["error_count"]:
        facts.append(error_name(row["error"], row["error_code"]))
    if row["status"] != "answered":
        facts.append(row["status"].replace("_", " "))
    return ", ".join(facts)


def milliseconds(value: float) -> str:
    """A duration with three digits or more."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3
    return f"{value:,.{digits}f} ms"
