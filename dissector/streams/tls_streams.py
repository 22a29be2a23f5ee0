"""TlsStreams: what TLS connections carry, framed like any other stream.

The segments of TLS connections, in order, go to the `tls` room, which gives what each record said.
That becomes streams of their own, of the same connections, with positions that count application
bytes; a record is a segment there, that came when its last byte came. Where records are missing
nobody knows how much they said: what follows is a stream that is joined in its middle.

A connection is TLS until what it carries is decided, and stays so where it is never decrypted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np

from dissector.packets.block import PAD, Bytes, Int64
from dissector.problems import Problem
from dissector.streams.block_problems import BlockProblems
from dissector.streams.bodies import BodyCheck, BodyEnd
from dissector.streams.detection import ProtocolDetector
from dissector.streams.frames import FrameBlock
from dissector.streams.framing import Framer
from dissector.streams.header_evidence import HeaderScorer
from dissector.streams.limits import GRACE
from dissector.streams.request_evidence import Evidence
from dissector.streams.segments import BLOCK, Segments
from dissector.streams.state import RESTARTED, States
from dissector.streams.table import (
    FIRST_TIME,
    KAFKA,
    NEW,
    OPEN,
    UNDECIDED,
    ConnectionTable,
    StreamTable,
)
from dissector.tls import KeyLog, Plaintext, TlsFacts, TlsSession


class TlsStreams:
    """All TLS connections of a capture."""

    def __init__(
        self, table: ConnectionTable, ports: Collection[int], newest: Mapping[int, int],
        evidence: Evidence, body_end: BodyEnd, brokers: set[tuple[int, int, int]], keys: KeyLog,
        budget: int,
    ) -> None:  # fmt: skip
        """`brokers`: shared with what is not encrypted. `keys` may grow. `budget`: bytes that may
        wait, encrypted or not."""
        self.facts: dict[int, TlsFacts] = {}
        """What handshakes told, by connection."""
        self._table = table
        self._streams = StreamTable()
        scorer = HeaderScorer(table, self._streams, ports, newest)
        scorer.brokers = brokers
        self._states = States(table, self._streams)
        detector = ProtocolDetector(table, self._streams, self._states, scorer, evidence)
        self._detector = detector
        self._bodies = BodyCheck(table, body_end)
        self._framer = Framer(table, self._streams, self._states, scorer, detector, self._bodies)
        self._budget = budget
        self._waiting = 0  # encrypted bytes
        self._sessions: dict[int, TlsSession] = {}
        self._undecided: set[int] = set()
        self._left: list[int] = []
        self.reported: set[int] = set()
        """Connections of which a problem says why they are not decrypted."""
        self._keys = keys

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return self._waiting + self._framer.carry.bytes

    @property
    def held(self) -> Int64:
        """Connections of which bytes are held."""
        return np.unique(self._framer.carry.segments.stream >> 1)

    def forget(self, rows: Int64) -> None:
        """Let go of these connections."""
        for row in rows.tolist():
            self.facts.pop(row, None)
            self._sessions.pop(row, None)
            self._undecided.discard(row)
            self.reported.discard(row)
        self._streams.forget(rows)
        self._detector.forget(rows)
        self._bodies.log.forget(rows)

    def take_left(self) -> list[int]:
        """The connections of which nothing more will be decrypted, since this was asked last."""
        left, self._left = self._left, []
        return left

    def feed(
        self, data: Bytes, segments: Segments, now: int, *, last: bool
    ) -> Iterator[FrameBlock]:
        """The frames that these segments complete; theirs are streams, not local ones."""
        if not len(segments) and not self._sessions:
            return
        said, problems = self._decrypted(data, segments, now, last)
        rounds: list[list[tuple[int, Plaintext]]] = [[]]
        reached: dict[int, int] = {}
        for stream, plain in said:
            turn = reached.get(stream, 0) + (not plain.follows)
            reached[stream] = turn
            if turn == len(rounds):
                rounds.append([])
            rounds[turn].append((stream, plain))
        held = self._framer.carry
        for turn, part in enumerate(rounds):
            ending = rounds[turn + 1] if turn + 1 < len(rounds) else []
            ends = {stream for stream, plain in ending if not plain.follows}
            is_last = last and not ending
            if part or held.bytes or problems:
                yield self._frames(part, ends, now, problems, last=is_last)
                problems = []

    def _decrypted(
        self, data: Bytes, segments: Segments, now: int, last: bool
    ) -> tuple[list[tuple[int, Plaintext]], list[Problem]]:
        """What was said, by stream; and what could not be decrypted."""
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
                session = self._sessions[row] = TlsSession(self._keys)
                self.facts[row] = session.facts
                self._undecided.add(row)
            if session is not None:
                piece = bytes(memory[source : source + length])
                session.feed(stream & 1, at, piece, tuple(arrival))
        said: list[tuple[int, Plaintext]] = []
        problems: list[Problem] = []
        ended = self._ended(now)
        self._keep_to_budget()
        for row, session in list(self._sessions.items()):
            is_last = last or row in ended
            said += [(2 * row + plain.end, plain) for plain in session.read(last=is_last)]
            if session.client is not None:
                self._table.client[row] = session.client
            problems += self._problems(row, session, now)
            if is_last or session.is_over:
                self._leave(row)
        self._waiting = sum(session.waiting for session in self._sessions.values())
        return said, problems

    def _keep_to_budget(self) -> None:
        """Give up the connections that wait longest."""
        excess = self.size - self._budget
        if excess > 0 and self._waiting:
            for session in sorted(self._sessions.values(), key=lambda each: each.since):
                if excess <= 0:
                    break
                if session.waiting:
                    excess -= session.waiting
                    session.give_up()

    def _ended(self, now: int) -> set[int]:
        """The connections of which nothing more comes."""
        table = self._table
        rows = np.array(list(self._sessions), np.int64)
        over = (table.closed[rows] != OPEN) | table.replaced[rows]
        return {*rows[over & (table.last_time[rows] < now - GRACE)].tolist()}

    def _leave(self, row: int) -> None:
        """Nothing more of this connection will be decrypted."""
        self._left.append(row)
        self._sessions.pop(row, None)

    def _problems(self, row: int, session: TlsSession, now: int) -> list[Problem]:
        found = [
            Problem(
                "tls", trouble.kind, f"{trouble.detail}, in what the {sender} sent", time=now,
                connection_id=row, offset=trouble.offset, bytes=trouble.bytes,
            )
            for trouble in session.troubles
            for sender in ("client" if trouble.end == session.client else "broker",)
        ]  # fmt: skip
        if found:
            self.reported.add(row)
        session.troubles.clear()
        return found

    def _frames(
        self, said: list[tuple[int, Plaintext]], ends: set[int], now: int,
        problems: list[Problem], *, last: bool,
    ) -> FrameBlock:  # fmt: skip
        """The frames in what was said. `ends`: streams that are over with it."""
        streams, carry = self._streams, self._framer.carry
        streams.add(self._table.count - streams.count)
        data = self._joined(said)
        fresh = _segments(said, carry.bytes)
        rows = np.unique(np.concatenate([fresh.stream, carry.segments.stream]) >> 1)
        stream_ids = (2 * rows[:, None] + np.arange(2)).ravel()
        self._begin(said)
        segments = carry.segments + fresh
        segments = replace(segments, stream=np.searchsorted(stream_ids, segments.stream))
        segments = segments[np.argsort(segments.stream, kind="stable")]
        evicted = carry.oldest(self.size - self._budget)
        finished = np.isin(stream_ids, [*ends, *evicted[0].tolist()])
        finished |= last | ~np.isin(stream_ids >> 1, list(self._sessions))
        block_problems = BlockProblems(self._table, streams)
        block_problems.set_segments(stream_ids, segments)
        block_problems.problems += problems
        block_problems.add_memory(*evicted)
        frames, left = self._framer.walk(
            data,
            stream_ids,
            segments,
            finished,
            np.zeros(len(stream_ids), np.bool_),
            block_problems,
        )
        self._framer.hold(data, stream_ids, left)
        self._follow_decisions(sorted(self._undecided.intersection(rows.tolist())))
        return frames

    def _joined(self, said: list[tuple[int, Plaintext]]) -> Bytes:
        """Room for what is held, and what was said."""
        front = bytes(self._framer.carry.bytes)
        joined = b"".join([front, *(plain.data for _, plain in said), bytes(PAD)])
        return np.frombuffer(bytearray(joined), np.uint8)

    def _begin(self, said: list[tuple[int, Plaintext]]) -> None:
        """Let streams begin, or begin anew behind what is missing."""
        streams = self._streams
        for stream, plain in said:
            is_new = streams.flat("state")[stream] == NEW
            if is_new or not plain.follows:
                for name in ("boundary", "search_from"):
                    streams.flat(name)[stream] = plain.at
                streams.flat("frame_end")[stream] = -1
                streams.flat("framed_until")[stream] = plain.at if plain.follows else FIRST_TIME
                one = np.array([stream])
                if is_new:
                    self._states.begin(one, np.array([plain.follows]))
                else:
                    self._states.advance(one, RESTARTED)
            streams.flat("next_position")[stream] = plain.at + len(plain.data)
            streams.flat("readable_time")[stream] = plain.arrival[0]

    def _follow_decisions(self, rows: list[int]) -> None:
        """Leave the connections that turned out to carry something else than Kafka."""
        for row in rows:
            protocol = self._streams.protocol[row]
            if protocol != UNDECIDED:
                self._undecided.discard(row)
            if protocol not in (UNDECIDED, KAFKA):
                self._leave(row)


def _segments(said: list[tuple[int, Plaintext]], begin: int) -> Segments:
    """What was said as segments, one behind the other from position `begin` on."""
    stream = np.array([stream for stream, _ in said], np.int64)
    length = np.array([len(plain.data) for _, plain in said], np.int64)
    at = np.array([plain.at for _, plain in said], np.int64)
    arrival = np.array([plain.arrival for _, plain in said], np.int64).reshape(-1, 3)
    place = begin + np.cumsum(length) - length
    time, capture, number = arrival.T.copy()
    return Segments(
        stream, at, length, length, place, np.full(len(said), BLOCK), time, capture, number,
        acknowledged=np.full(len(said), -1),
    )  # fmt: skip
