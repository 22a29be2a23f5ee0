"""Records out of the bytes of one end (RFC 8446, section 5.1), over holes.

A record says how long it is, and so where the next one begins. Where bytes are lost inside a
record, that place is still known. Where a header is lost with them, records are looked for at the
beginning of each stretch that arrived, since they mostly begin one; whether one is a record then,
only its authentication tells: the caller says `accept` or `reject`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

HEADER = 5
LONGEST = (1 << 14) + 2048
"""Bytes of a record's body (RFC 5246, section 6.2.3)."""
CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA, HEARTBEAT = range(20, 25)

Arrival: TypeAlias = tuple[int, int, int]
"""When and where a stretch arrived; this room hands it on."""


@dataclass(frozen=True, slots=True)
class TlsRecord:
    """A record that is there as a whole."""

    content: int
    """Content type."""
    header: bytes
    body: bytes
    at: int
    """Position in the stream."""
    arrival: Arrival
    """Of the stretch that has its last byte."""


@dataclass(slots=True)
class _Run:
    """Bytes without a hole between them."""

    start: int
    """Position of the first byte of `data`."""
    data: bytearray = field(default_factory=bytearray)
    marks: deque[tuple[int, Arrival]] = field(default_factory=deque)
    """Position behind each stretch, and its arrival."""

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def drop(self, until: int) -> None:
        """Forget the bytes before the position `until`."""
        del self.data[: max(until - self.start, 0)]
        self.start = max(until, self.start)
        while self.marks and self.marks[0][0] <= self.start:
            self.marks.popleft()


class RecordReader:
    """The records of one end."""

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque()
        self._certain = True
        self._boundary: int | None = None  # where a record that was lost ends, if that is known
        self.lost_at: int | None = None
        """Position from which on nothing was accepted, since something was lost there."""

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return sum(len(run.data) for run in self._runs)

    @property
    def since(self) -> int | None:
        """When the first byte that waits arrived; None where none does."""
        marks = self._runs[0].marks if self._runs else ()
        return marks[0][1][0] if marks else None

    @property
    def at(self) -> int:
        """Position of the first byte that waits."""
        return self._runs[0].start if self._runs else 0

    def feed(self, at: int, data: bytes, arrival: Arrival) -> None:
        """Bytes from position `at` on, which is not before the end of those that were fed."""
        if not data:
            return
        if not self._runs or self._runs[-1].end != at:
            self._runs.append(_Run(at))
        run = self._runs[-1]
        run.data += data
        run.marks.append((run.end, arrival))

    def peek(self) -> TlsRecord | None:
        """The next record, or what may be one; None where its bytes have not come yet."""
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
            elif self._certain or not run.marks:
                self._cross(size)
            else:
                self._skip()
        return None

    def accept(self, record: TlsRecord) -> None:
        """It is a record, and was read."""
        self._runs[0].drop(record.at + HEADER + len(record.body))
        self._certain = True
        self.lost_at = None

    def reject(self, record: TlsRecord) -> None:
        """It is none, or was damaged."""
        if self._certain:
            self._lose()
            self._runs[0].drop(record.at + HEADER + len(record.body))
        else:
            self._skip()

    def clear(self) -> None:
        """Forget all bytes."""
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
        """Leave the first run, of which no more can be read, for the next."""
        run = self._runs[0]
        was_certain = self._certain
        self._lose()
        self._runs.popleft()
        if was_certain and size and run.start + size >= self._runs[0].start:
            self._boundary = run.start + size
            self._certain = True

    def _skip(self) -> None:
        """Go on to where the next stretch begins."""
        run = self._runs[0]
        run.drop(run.marks[0][0] if run.marks else run.end)
        if not run.data and len(self._runs) > 1:
            self._runs.popleft()


def _size(data: bytearray) -> int | None:
    """Bytes of the record that begins so; None where that is not there yet, 0 where none does."""
    if len(data) < HEADER:
        return None
    body = int.from_bytes(data[3:5], "big")
    is_header = CHANGE_CIPHER_SPEC <= data[0] <= HEARTBEAT and data[1] == 3 and data[2] <= 4
    return HEADER + body if is_header and 0 < body <= LONGEST else 0
