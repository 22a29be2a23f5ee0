"""Reassembly: the segments of a block, in order, each byte once.

Segments are sorted by stream, position and arrival; the running maximum of ends before each one
trims what is already there, so reordering, retransmission, overlap and packets that were captured
twice are one case; a start beyond the maximum is a hole. What lies beyond a hole waits, and comes
again with the next block, until the hole is filled, or taken for lost:

- the other side acknowledged bytes beyond it, `ACKED_WAIT` of capture time ago: it has what the
  capture misses;
- `OLD` of capture time has passed, or more than `WAITING_LIMIT` bytes wait behind it;
- the connection's ports were opened anew, or the capture ends.

Where two copies of a byte differ, the first to arrive is right: a segment that came first keeps its
bytes, though one that came later begins before it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import ACK, SYN, Bytes, Int64, PacketBlock
from dissector.streams.sequence import difference
from dissector.streams.table import ConnectionTable

ACKED_WAIT = 10**9
"""ns. A packet that was captured late, or in another file, is late by less."""
OLD = 30 * 10**9
"""ns. No sender waits so long to send again."""
WAITING_LIMIT = 8 << 20
"""Bytes of one stream; about the largest window in use."""
SETTLE_BACK = 64
"""Segments to look back for one that overlaps."""
NOTHING = -(1 << 62)
"""A position that is before all others: nothing was acknowledged."""


@dataclass(frozen=True, slots=True)
class Segments:
    """n stretches of streams; int64 arrays of shape (n,)."""

    stream: Int64
    at: Int64
    """Position in the stream of the first byte."""
    length: Int64
    """Bytes that are there."""
    span: Int64
    """Bytes that it stands for: more where the capture cut the packet."""
    source: Int64
    """Position of the first byte in the block's data."""
    time: Int64
    """ns; of arrival, and once in order, of the latest arrival up to here."""
    capture: Int64
    number: Int64

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, index: NDArray[np.integer] | NDArray[np.bool_] | slice) -> Segments:
        return Segments(*(getattr(self, each.name)[index] for each in fields(self)))

    def __add__(self, other: Segments) -> Segments:
        return Segments(
            *(
                np.concatenate([getattr(self, each.name), getattr(other, each.name)])
                for each in fields(self)
            )
        )


NO_SEGMENTS = Segments(*(np.zeros(0, np.int64) for _ in fields(Segments)))


@dataclass(frozen=True, slots=True)
class Lost:
    """Holes that were given up; int64 arrays of shape (n,)."""

    stream: Int64
    at: Int64
    length: Int64


class Reassembler:
    """Puts the segments of all streams in order, block by block."""

    def __init__(self, table: ConnectionTable, budget: int) -> None:
        """`budget`: bytes that may wait, of all streams together."""
        self._table = table
        self._budget = budget
        self._started = np.zeros(0, np.bool_)
        self._next = np.zeros(0, np.int64)
        self._sequence = np.zeros(0, np.int64)
        self._clock = np.zeros(0, np.int64)
        self._heard: dict[int, tuple[int, int]] = {}

    def feed(
        self, block: PacketBlock, stream: Int64, wanted: NDArray[np.bool_], waiting: Segments,
        now: int, *, last: bool = False,
    ) -> tuple[Segments, Segments, Lost]:  # fmt: skip
        """Segments that are next in their streams, those that wait, and holes given up.

        `stream` of each packet; `wanted`: packets whose bytes are to be read; `waiting`: those
        that waited before, with their place in this block's data. The segments returned are in
        order of stream and position, and trimmed.
        """
        self._grow(2 * self._table.count)
        self._start(block, stream)
        every = waiting + self._segments(block, stream, wanted)
        arrival = np.arange(len(every))
        order = np.argsort(every.stream, kind="stable")
        every, arrival = every[order], arrival[order]
        same = every.stream[1:] == every.stream[:-1]
        if (same & (every.at[1:] < every.at[:-1])).any():
            order = np.lexsort((every.at, every.stream))
            every, arrival = every[order], arrival[order]
            self._settle_overlaps(block.data, every, arrival)
            late = _before_later(every.stream, arrival) & (arrival >= len(waiting))
            np.add.at(self._table.out_of_order.reshape(-1), every.stream[late], 1)
        kept, gap = self._trim(every, arrival, len(waiting))
        released, lost = self._holes(block, stream, kept, gap, now, last)
        done = kept[released]
        self._advance(done)
        return self._in_time(done), kept[~released], lost

    def _grow(self, streams: int) -> None:
        if streams <= len(self._next):
            return
        more = max(streams, 2 * len(self._next)) - len(self._next)
        self._started = np.concatenate([self._started, np.zeros(more, np.bool_)])
        for name in ("_next", "_sequence", "_clock"):
            grown = np.concatenate([getattr(self, name), np.zeros(more, np.int64)])
            setattr(self, name, grown)

    def _start(self, block: PacketBlock, stream: Int64) -> None:
        """Position 0 of streams that are new: behind their SYN, or the lowest that was seen."""
        new = np.flatnonzero(~self._started[stream] & ((block.length > 0) | _syn(block)))
        if not len(new):
            return
        who, first = np.unique(stream[new], return_index=True)
        first = new[first]
        begin = block.seq[first].astype(np.int64)
        lowest = np.zeros(len(who), np.int64)
        index = np.searchsorted(who, stream[new])
        np.minimum.at(lowest, index, difference(block.seq[new], begin[index]))
        isn = self._table.isn.reshape(-1)[who]
        begin = np.where(isn >= 0, isn + 1, begin + lowest)
        self._started[who] = True
        self._sequence[who] = begin & 0xFFFFFFFF

    def _segments(self, block: PacketBlock, stream: Int64, wanted: NDArray[np.bool_]) -> Segments:
        """The payloads of the block."""
        some = np.flatnonzero((block.length > 0) & wanted)
        missing = block.length[some].astype(np.int64) - block.captured[some]
        np.add.at(self._table.cut.reshape(-1), stream[some], missing)
        who = stream[some]
        # A SYN takes one sequence number before its payload (TCP Fast Open, RFC 7413).
        sequence = block.seq[some].astype(np.int64) + _syn(block)[some]
        at = self._next[who] + difference(sequence, self._sequence[who])
        return Segments(
            who, at, block.captured[some].astype(np.int64), block.length[some].astype(np.int64),
            block.payload[some], block.time[some], block.capture[some].astype(np.int64),
            block.number[some],
        )  # fmt: skip

    def _settle_overlaps(self, data: Bytes, every: Segments, arrival: Int64) -> None:
        """Where a segment overlaps one that begins before it but came later, its bytes stay."""
        end = every.at + every.length
        reach = _running_maximum(every.stream, end - self._next[every.stream], 0)
        reach += self._next[every.stream]
        newest = _running_maximum(every.stream, arrival, -1)
        overtaken = np.flatnonzero((every.at < reach) & (arrival < newest))
        for index in overtaken[np.argsort(-arrival[overtaken])].tolist():
            before = index - 1
            low, source = int(every.at[index]), int(every.source[index])
            while before >= 0 and every.stream[before] == every.stream[index]:
                high = min(int(end[before]), int(end[index]))
                if arrival[before] > arrival[index] and low < high:
                    to = int(every.source[before]) + low - int(every.at[before])
                    data[to : to + high - low] = data[source : source + high - low].copy()
                if end[before] <= low and index - before > SETTLE_BACK:
                    break
                before -= 1

    def _trim(self, every: Segments, arrival: Int64, waited: int) -> tuple[Segments, Int64]:
        """Cut off what is already there; what is left, and the bytes missing before each."""
        base = self._next[every.stream]
        at = every.at - base
        reach = _running_maximum(every.stream, at + every.span, 0)
        covered = np.maximum(reach - at, 0)
        keep = covered < every.span
        again = np.flatnonzero(~keep & (arrival >= waited))
        np.add.at(self._table.retransmitted.reshape(-1), every.stream[again], 1)
        gap = (at - reach)[keep]
        kept, cut = every[keep], covered[keep]
        there = np.minimum(cut, kept.length)
        trimmed = replace(
            kept,
            at=kept.at + cut,
            length=kept.length - there,
            span=kept.span - cut,
            source=kept.source + there,
        )
        return trimmed, np.maximum(gap, 0)

    def _holes(
        self, block: PacketBlock, stream: Int64, kept: Segments, gap: Int64, now: int, last: bool
    ) -> tuple[NDArray[np.bool_], Lost]:
        """Which segments need not wait, and the holes that were given up for that."""
        holes = np.flatnonzero(gap)
        if not len(holes):
            return np.ones(len(kept), np.bool_), Lost(*(np.zeros(0, np.int64),) * 3)
        who = kept.stream[holes]
        given_up = np.full(len(holes), last)
        given_up |= self._table.replaced[who >> 1]
        given_up |= kept.time[holes] < now - OLD
        given_up |= kept.at[holes] <= self._acknowledged(block, stream, who, now)
        released = _released(kept, gap, holes[~given_up])
        waiting = np.bincount(kept.stream[~released], kept.length[~released])
        too_much = waiting > WAITING_LIMIT
        if waiting.sum() > self._budget:
            too_much[:] = True
        if too_much.any():
            given_up |= np.append(too_much, np.zeros(int(who.max()) + 1, np.bool_))[who]
            released = _released(kept, gap, holes[~given_up])
        over = holes[released[holes]]
        lost = Lost(kept.stream[over], kept.at[over] - gap[over], gap[over])
        np.add.at(self._table.lost.reshape(-1), lost.stream, lost.length)
        return released, lost

    def _acknowledged(self, block: PacketBlock, stream: Int64, who: Int64, now: int) -> Int64:
        """Position that the other side acknowledged `ACKED_WAIT` ago, for the streams `who`."""
        acks = np.flatnonzero(((block.flags & ACK) != 0) & np.isin(stream ^ 1, who))
        whose = stream[acks] ^ 1
        at = self._next[whose] + difference(block.ack[acks], self._sequence[whose])
        settled = {}
        for each in np.unique(who).tolist():
            mine = whose == each
            early = at[mine & (block.time[acks] <= now - ACKED_WAIT)]
            before, since = self._heard.get(each, (NOTHING, now))
            best = int(early.max()) if len(early) else NOTHING
            newest = int(at[mine].max()) if mine.any() else NOTHING
            if since <= now - ACKED_WAIT:
                best = max(best, before)
                self._heard[each] = max(newest, before), now
            else:
                self._heard[each] = before if each in self._heard else newest, since
            settled[each] = best
        return np.array([settled[each] for each in who.tolist()], np.int64)

    def _advance(self, done: Segments) -> None:
        """Move each stream on to the end of what it was given."""
        last = np.flatnonzero(np.append(done.stream[1:] != done.stream[:-1], True))
        last = last[: len(done)]
        who = done.stream[last]
        end = done.at[last] + done.span[last]
        self._sequence[who] = (self._sequence[who] + end - self._next[who]) & 0xFFFFFFFF
        self._next[who] = end
        for each in who.tolist() if self._heard else ():
            self._heard.pop(each, None)

    def _in_time(self, done: Segments) -> Segments:
        """With the time at which each segment could be read, all before it having come."""
        time = np.maximum(done.time, self._clock[done.stream])
        same = done.stream[1:] == done.stream[:-1]
        if (same & (time[1:] < time[:-1])).any():
            values, rank = np.unique(time, return_inverse=True)
            time = values[np.maximum(_running_maximum(done.stream, rank, 0), rank)]
        np.maximum.at(self._clock, done.stream, time)
        return replace(done, time=time)


def _syn(block: PacketBlock) -> NDArray[np.bool_]:
    has: NDArray[np.bool_] = (block.flags & SYN) != 0
    return has


def _running_maximum(stream: Int64, value: Int64, least: int) -> Int64:
    """Largest of `least` and the values before each one in its stream; sorted by stream.

    Values lie in (-2**32, 2**40). One running maximum serves all streams: each is lifted above the
    one before it.
    """
    rank = np.zeros(len(stream), np.int64)
    np.cumsum(stream[1:] != stream[:-1], out=rank[1:])
    lift = rank << 42
    before = np.empty(len(stream), np.int64)
    before[:1] = least
    np.maximum.accumulate((value + lift)[:-1], out=before[1:])
    return np.maximum(before - lift, least)


def _before_later(stream: Int64, arrival: Int64) -> NDArray[np.bool_]:
    """Whether something that follows in the stream came before."""
    top = int(arrival.max()) if len(arrival) else 0
    after = _running_maximum(stream[::-1], (top - arrival)[::-1], -1)[::-1]
    return after > top - arrival


def _released(kept: Segments, gap: Int64, blocking: Int64) -> NDArray[np.bool_]:
    """Segments of each stream before its first hole that is still waited for."""
    blocked = np.zeros(len(kept), np.int64)
    blocked[blocking] = 1
    free: NDArray[np.bool_] = (_running_maximum(kept.stream, blocked, 0) == 0) & (blocked == 0)
    return free
