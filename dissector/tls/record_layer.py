"""TLS records from the bytes of one end (RFC 8446, section 5.1), across holes.

A record header has the length of the record, and thus the position of the next one. If bytes are
lost inside a record, that position is still known. If a header is lost too, the next bytes that
may be a header are a candidate: 4 of 10 million places in encrypted bytes are. Only authentication
decides whether bytes are a record: the caller calls `accept` or `reject`.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import field
from typing import TypeAlias

from dissector.arrays import mutable, value

HEADER = 5
LONGEST = (1 << 14) + 2048
"""Longest body of a record in bytes (RFC 5246, section 6.2.3)."""
CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA, HEARTBEAT = range(20, 25)
_HEADER_BEGIN = re.compile(rb"[\x14-\x18]\x03[\x00-\x04][\x00-\x48]", re.S)
"""Content type, version, and the first byte of the length."""

Arrival: TypeAlias = tuple[int, int, int]
"""Time and place of a segment's arrival, which this package only passes on."""


@value
class TlsRecord:
    """A complete record."""

    content: int
    """Content type."""
    header: bytes
    body: bytes
    at: int
    """Position in the stream."""
    arrival: Arrival
    """Arrival of the segment with its last byte."""


@mutable
class _Run:
    """Contiguous bytes."""

    start: int
    """Position of the first byte of `data`."""
    data: bytearray = field(default_factory=bytearray)
    marks: deque[tuple[int, Arrival]] = field(default_factory=deque)
    """Position after each segment, and its arrival."""

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def drop(self, until: int) -> None:
        """Drop the bytes before position `until`."""
        del self.data[: max(until - self.start, 0)]
        self.start = max(until, self.start)
        while self.marks and self.marks[0][0] <= self.start:
            self.marks.popleft()


class RecordReader:
    """The records of one end."""

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque()
        self._certain = True
        self._boundary: int | None = None  # end of a lost record, if known
        self.lost_at: int | None = None
        """Position of a loss after which no record was accepted yet; None if there is none."""
        self.latest = 0
        """Arrival time of the last byte."""
        self.fragment = b""
        """Begin of the first handshake record whose other bytes are lost, without its header."""

    @property
    def size(self) -> int:
        """Number of buffered bytes."""
        return sum(len(run.data) for run in self._runs)

    @property
    def since(self) -> int | None:
        """Arrival time of the first buffered byte; None if the buffer is empty."""
        marks = self._runs[0].marks if self._runs else ()
        return marks[0][1][0] if marks else None

    @property
    def at(self) -> int:
        """Position of the first buffered byte."""
        return self._runs[0].start if self._runs else 0

    def feed(self, at: int, data: bytes, arrival: Arrival) -> None:
        """Add bytes at position `at`, which is not before the end of the previous bytes."""
        if not data:
            return
        self.latest = arrival[0]
        if not self._runs or self._runs[-1].end != at:
            self._runs.append(_Run(at))
        run = self._runs[-1]
        run.data += data
        run.marks.append((run.end, arrival))

    def peek(self) -> TlsRecord | None:
        """The next record, or a candidate; None if its bytes have not arrived yet."""
        while self._runs:
            run = self._runs[0]
            if self._boundary is not None:
                run.drop(min(self._boundary, run.end))
                if run.start < self._boundary and len(self._runs) == 1:
                    return None
                if run.start >= self._boundary:
                    self._boundary = None
            size = _size(run.data)
            if size and size <= len(run.data):
                return self._record(run, size)
            if size == 0:
                self._lose()
                self._skip()
            elif len(self._runs) == 1:
                return None
            elif self._certain:
                self._cross(size)
            else:
                self._skip()
        return None

    def accept(self, record: TlsRecord) -> None:
        """Confirm a record, and drop its bytes."""
        self._runs[0].drop(record.at + HEADER + len(record.body))
        self._certain = True
        self.lost_at = None

    def reject(self) -> None:
        """Report that no record begins here, or a damaged one, whose length may be wrong."""
        self._lose()
        self._skip()

    def reject_incomplete(self) -> bool:
        """Skip a candidate whose other bytes will not arrive. Returns whether there was one.

        In encrypted bytes after a loss, one of two million positions seems to begin a record.
        """
        if self._certain or not self.size or self.peek() is not None:
            return False
        self._skip()
        return True

    def clear(self) -> None:
        """Drop all bytes."""
        self._runs.clear()

    def _record(self, run: _Run, size: int) -> TlsRecord:
        end = run.start + size
        arrival = next(arrival for mark, arrival in run.marks if mark >= end)
        return TlsRecord(
            run.data[0], bytes(run.data[:HEADER]), bytes(run.data[HEADER:size]), run.start, arrival
        )

    def _lose(self) -> None:
        self._certain = False
        if self.lost_at is None:
            self.lost_at = self._runs[0].start

    def _cross(self, size: int | None) -> None:
        """Continue with the next run, since the first one has no further complete record."""
        run = self._runs[0]
        was_certain = self._certain
        self._lose()
        self._runs.popleft()
        if run.data[:1] == bytes([HANDSHAKE]) and not self.fragment:
            self.fragment = bytes(run.data[HEADER:])
        if self._boundary is None and size and run.start + size >= self._runs[0].start:
            self._boundary = run.start + size
        self._certain = was_certain and self._boundary is not None

    def _skip(self) -> None:
        """Continue at the next bytes that may be a header."""
        run = self._runs[0]
        header = _HEADER_BEGIN.search(run.data, 1)
        if header is None and len(self._runs) > 1:
            self._runs.popleft()
        else:
            kept = max(len(run.data) - 3, 1)  # a header may begin in the last 3 bytes
            run.drop(run.start + (header.start() if header else kept))


def _size(data: bytearray) -> int | None:
    """Size of the record at the start of `data`; None if unknown yet, 0 if it is not a record."""
    if len(data) < HEADER:
        return None
    body = int.from_bytes(data[3:5], "big")
    is_header = CHANGE_CIPHER_SPEC <= data[0] <= HEARTBEAT and data[1] == 3 and data[2] <= 4
    return HEADER + body if is_header and 0 < body <= LONGEST else 0
