"""TlsStreams: the decrypted bytes of TLS connections, framed like any other stream.

The ordered segments of TLS connections go to the package `tls`, which returns the plaintext of each
TLS record. The plaintext forms streams of its own, of the same connections, whose positions count
application bytes. A record is a segment of them, with the arrival of its last byte. The size of a
missing record is unknown: it is a hole that no message spans.

A connection is TLS until its plaintext decides the protocol. It stays TLS if it is never decrypted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dissector.packets.block import PAD, Bytes, Int64
from dissector.problems import Problem
from dissector.streams import sequence
from dissector.streams.block_problems import BlockProblems
from dissector.streams.connections.rows import chosen
from dissector.streams.connections.table import (
    FIRST_TIME,
    KAFKA,
    NEVER,
    NEW,
    OPEN,
    SEARCHING,
    UNDECIDED,
    StreamTable,
    streams_at,
)
from dissector.streams.frames import FrameBlock
from dissector.streams.framing import Framer
from dissector.streams.limits import GRACE
from dissector.streams.segments import BLOCK, Segments
from dissector.streams.stream_set import StreamSet
from dissector.streams.stream_states import TlsState
from dissector.tls import HOLE, KeyLog, Plaintext, TlsFacts

if TYPE_CHECKING:
    from dissector.tls.session import TlsSession


class TlsStreams:
    """All TLS connections of a capture."""

    def __init__(
        self, stream_set: StreamSet, encrypted: StreamTable, keys: KeyLog, budget: int
    ) -> None:
        """`encrypted`: the streams to decrypt. `keys` may grow. `budget`: limit of `size`."""
        self.facts: dict[int, TlsFacts] = {}
        """Facts of the handshakes, by connection."""
        self._set = stream_set
        self._encrypted = encrypted
        self._table = stream_set.table
        self._streams = stream_set.streams
        self._framer = Framer(stream_set)
        self._budget = budget
        self._encrypted_size = 0
        self._sessions: dict[int, TlsSession] = {}
        self._undecided: set[int] = set()
        self.closed: list[int] = []
        """Connections whose decryption ended; the caller removes them."""
        self.reported: set[int] = set()
        """Connections with a problem that gives the reason why they are not decrypted."""
        self._keys = keys

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Sessions are pickled without the key log, which they share."""
        vars(self).update(state)
        for session in self._sessions.values():
            session.keys = self._keys

    @property
    def size(self) -> int:
        """Buffered bytes, encrypted and decrypted."""
        return self._encrypted_size + self._framer.carry.bytes

    @property
    def held(self) -> Int64:
        """Connections with buffered plaintext."""
        return np.unique(self._framer.carry.segments.stream >> 1)

    def forget(self, rows: Int64) -> None:
        """Drop the state of these connections."""
        for row in rows.tolist():
            self.facts.pop(row, None)
            self._sessions.pop(row, None)
            self._undecided.discard(row)
            self.reported.discard(row)
        self._set.forget(rows)

    def take(self, rows: Int64) -> dict[int, TlsState]:
        """Of these connections, by index in `rows`: the facts of the handshake, the session if it
        is not over, whether the protocol is undecided, and whether a problem was reported."""
        return {
            index: (facts, self._sessions.get(row), row in self._undecided, row in self.reported)
            for index, facts in chosen(self.facts, rows).items()
            for row in (int(rows[index]),)
        }

    def put(self, rows: Int64, taken: Mapping[int, TlsState]) -> None:
        """Add what `take` returned. `rows`: the row of each connection."""
        for index, (facts, session, is_undecided, is_reported) in taken.items():
            row = int(rows[index])
            self.facts[row] = facts
            if session is not None:
                session.keys = self._keys
                self._sessions[row] = session
            if is_undecided:
                self._undecided.add(row)
            if is_reported:
                self.reported.add(row)

    def feed(
        self, data: Bytes, segments: Segments, now: int, waiting: Int64, *, last: bool
    ) -> list[FrameBlock]:
        """The frames that these segments complete. `segments.stream` is the stream, not a slot.
        `waiting`: connections with later segments."""
        is_end = last and bool(self.facts)
        if not (len(segments) or self._sessions or is_end):
            return []
        records, problems = self._decrypted(data, segments, now, waiting, last)
        if not (records or problems or self._framer.carry.bytes or is_end):
            return []
        return [self._frames(records, problems, last=last)]

    def _decrypted(
        self, data: Bytes, segments: Segments, now: int, waiting: Int64, last: bool
    ) -> tuple[list[tuple[int, Plaintext]], list[Problem]]:
        """The plaintext of each record, with its stream; and problems of the decryption."""
        memory = data.data
        for stream, at, source, length, *arrival in zip(
            *(
                getattr(segments, name).tolist()
                for name in ("stream", "at", "source", "length", "time", "capture", "number")
            ),
            strict=True,
        ):
            row = stream >> 1
            session = self._sessions.get(row)
            if session is None and row not in self.facts:
                from dissector.tls.session import TlsSession  # few captures need it

                session = self._sessions[row] = TlsSession(self._keys)
                self.facts[row] = session.facts
                self._undecided.add(row)
            if session is not None:
                piece = bytes(memory[source : source + length])
                session.feed(stream & 1, at, piece, tuple(arrival))
        records: list[tuple[int, Plaintext]] = []
        problems: list[Problem] = []
        ended = self._ended(now).difference(waiting.tolist())
        self._keep_to_budget()
        for row, session in list(self._sessions.items()):
            is_last = last or row in ended
            is_closed = is_last and self._is_closed(row)
            plains = session.read(last=is_last, is_closed=is_closed)
            records += [(2 * row + plain.end, plain) for plain in plains]
            if session.client is not None:
                self._table.client[row] = session.client
            problems += self._problems(row, session)
            if is_last or session.is_over:
                self._close(row)
        self._encrypted_size = sum(session.waiting for session in self._sessions.values())
        return records, problems

    def _keep_to_budget(self) -> None:
        """Stop waiting in the connections with the oldest buffered bytes."""
        excess = self.size - self._budget
        if excess > 0 and self._encrypted_size:
            for session in sorted(self._sessions.values(), key=lambda each: each.since):
                if excess <= 0:
                    break
                if session.waiting:
                    excess -= session.waiting
                    session.give_up()

    def _ended(self, now: int) -> set[int]:
        """The connections that have ended."""
        table = self._table
        rows = np.array(list(self._sessions), np.int64)
        is_over = (table.closed[rows] != OPEN) | table.replaced[rows]
        return {*rows[is_over & (table.last_time[rows] < now - GRACE)].tolist()}

    def _is_closed(self, row: int) -> bool:
        """Whether a connection was closed, and no byte of it is missing in the capture."""
        table, stream = self._table, streams_at(np.array([row]))
        ack, end = self._encrypted.receiver_ack[stream], self._encrypted.next_position[stream]
        origin = (table.isn[row] + 1).astype(np.uint32)
        acknowledged = sequence.positions(ack.astype(np.uint32), origin, end)
        is_whole = (table.packets[row] > 0) & (table.isn[row] != NEVER)
        is_whole &= (table.lost[row] == 0) & (table.cut[row] == 0)
        is_whole &= (ack == NEVER) | (acknowledged <= end + 1)  # a FIN has a sequence number too
        return bool(table.closed[row] != OPEN and is_whole.all())

    def _close(self, row: int) -> None:
        """End the decryption of this connection."""
        self.closed.append(row)
        self._sessions.pop(row, None)

    def _problems(self, row: int, session: TlsSession) -> list[Problem]:
        problems = [
            Problem(
                "tls", problem.kind,
                f"{problem.detail} (sent by {self._table.endpoint(2 * row + problem.end)})",
                time=problem.time, connection_id=row, offset=problem.offset, bytes=problem.bytes,
            )
            for problem in session.problems
        ]  # fmt: skip
        if problems:
            self.reported.add(row)
        session.problems.clear()
        return problems

    def _frames(
        self, records: list[tuple[int, Plaintext]], problems: list[Problem], *, last: bool
    ) -> FrameBlock:
        """The frames in the plaintext of records."""
        streams, carry = self._streams, self._framer.carry
        streams.add(self._table.count - streams.count)
        data = self._joined(records)
        fresh = _segments(records, carry.bytes)
        rows = np.unique(np.concatenate([fresh.stream, carry.segments.stream]) >> 1)
        stream_ids = streams_at(rows)
        self._begin(records)
        segments = carry.segments + fresh
        segments = replace(segments, stream=np.searchsorted(stream_ids, segments.stream))
        segments = segments[np.argsort(segments.stream, kind="stable")]
        evicted = carry.oldest(self.size - self._budget)
        finished = np.isin(stream_ids, evicted[0])
        finished |= last | ~np.isin(stream_ids >> 1, list(self._sessions))
        block_problems = _DecryptedProblems(self._table, streams)
        block_problems.set_segments(stream_ids, segments)
        block_problems.problems += problems
        block_problems.add_memory(*evicted)
        due, undue = self._framer.due(data, carry.bytes, stream_ids, segments, finished)
        waits = np.zeros(len(stream_ids), np.bool_)
        frames, left = self._framer.walk(data, stream_ids, due, finished, waits, block_problems)
        self._framer.hold(data, stream_ids, left + undue)
        for stream in stream_ids[streams.state[stream_ids] == SEARCHING].tolist():
            since = int(streams.search_from[stream])
            streams.search_from[stream] = block_problems.behind_hole(stream, since)
        if last:
            block_problems.add_skipped_ends(stream_ids)
        others = self._follow_decisions(sorted(self._undecided.intersection(rows.tolist())))
        # What connections without Kafka lack is not reported.
        frames.problems[:] = [p for p in frames.problems if p.connection_id not in others]
        return frames

    def _joined(self, records: list[tuple[int, Plaintext]]) -> Bytes:
        """Space for the carried bytes, then the plaintext of the records."""
        front = bytes(self._framer.carry.bytes)
        joined = b"".join([front, *(plain.data for _, plain in records), bytes(PAD)])
        return np.frombuffer(bytearray(joined), np.uint8)

    def _begin(self, records: list[tuple[int, Plaintext]]) -> None:
        """Start new streams, and set where streams end."""
        streams = self._streams
        for stream, plain in records:
            if streams.state[stream] == NEW:
                is_head = plain.at == 0
                streams.boundary[stream] = streams.search_from[stream] = plain.at
                streams.frame_end[stream] = -1
                streams.framed_until[stream] = 0 if is_head else FIRST_TIME
                self._set.states.begin(np.array([stream]), np.array([is_head]))
            streams.next_position[stream] = plain.at + len(plain.data)
            streams.readable_time[stream] = plain.arrival[0]

    def _follow_decisions(self, rows: list[int]) -> set[int]:
        """Close the connections that turned out not to carry Kafka, and return them."""
        others = set()
        for row in rows:
            protocol = self._streams.protocol[row]
            if protocol != UNDECIDED:
                self._undecided.discard(row)
            if protocol not in (UNDECIDED, KAFKA):
                self._close(row)
                others.add(row)
        return others


class _DecryptedProblems(BlockProblems):
    """Problems of plaintext: holes count neither in positions nor in sizes."""

    def behind_hole(self, stream: int, position: int) -> int:
        """The position after the hole that a message ends in; other positions as they are."""
        index = self._segment(stream, position)
        missing = 0 if index is None else (int(self._segments.at[index]) - position) % HOLE
        return position + missing if missing > HOLE // 2 else position

    def add(
        self, stage: str, kind: str, detail: str, stream: int, offset: int | None, size: int,
        *, time: int | None = None, seen_at: int | None = None,
    ) -> None:  # fmt: skip
        if offset is None:
            super().add(stage, kind, detail, stream, offset, size, time=time)
            return
        if time is None:
            time = self._time(stream, offset if seen_at is None else seen_at)
        begin = self.behind_hole(stream, offset)
        if left := (offset + size - begin) % HOLE:
            super().add(stage, kind, detail, stream, begin % HOLE, left, time=time)


def _segments(records: list[tuple[int, Plaintext]], begin: int) -> Segments:
    """The plaintext of records as segments. `begin`: offset of the first one in the data."""
    rows = [(stream, plain.at, len(plain.data), *plain.arrival) for stream, plain in records]
    columns = np.array(rows, np.int64).reshape(-1, 6).T.copy()
    stream, at, length, time, capture, number = columns
    source = begin + np.cumsum(length) - length
    return Segments(
        stream, at, length, length, source, np.full(len(records), BLOCK), time, capture, number,
        acknowledged=np.full(len(records), -1), front=np.zeros(len(records), np.int64),
    )  # fmt: skip
