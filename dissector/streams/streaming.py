"""Streams: all of this room, block by block.

What a block leaves open goes into the next one: segments that wait behind a hole, and the bytes of
frames that are not whole yet. Their bytes are put in front of the next block's (`reserve`), so that
old and new ones lie in one array.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from dissector.packets.block import Bytes, Int64, PacketBlock
from dissector.problems import Problem
from dissector.streams.deciding import Decider
from dissector.streams.frames import FrameBlock
from dissector.streams.framing import BROKEN, CUT, Chains
from dissector.streams.reassembly import NO_SEGMENTS, Lost, Reassembler, Segments
from dissector.streams.table import KAFKA, OPEN, OTHER, TLS, UNDECIDED, ConnectionTable
from dissector.streams.tracking import Tracker

DEFAULT_MEMORY = 512 << 20
"""Bytes that may be carried from block to block."""

UNSYNCED = -1
"""Position of the next frame of a stream in which none was found yet, or no more."""

NOTHING_KEPT = np.iinfo(np.int64).max
"""A position that no stream reaches: of what was read, nothing is needed any more."""

LINGER = 2 * 10**9
"""ns of capture time after the end of a connection in which a late packet may still come."""


class Streams:
    """Turns blocks of packets into blocks of frames.

    `ports`: where brokers listen. `newest`: the newest known version of each API, by key, to tell
    requests from other things.
    """

    def __init__(
        self,
        *,
        ports: Collection[int],
        newest: Mapping[int, int],
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        self.connections = ConnectionTable()
        self._tracker = Tracker(self.connections)
        self._reassembler = Reassembler(self.connections, memory // 2)
        self._decider = Decider(self.connections, ports, newest)
        self._chain = np.zeros(0, np.int64)
        """Position of each stream's next frame."""
        self._since = np.zeros(0, np.int64)
        """Position since which a stream has been unsynced."""
        self._waiting = NO_SEGMENTS
        self._framed = NO_SEGMENTS
        self._bytes = b""
        self._now = 0

    @property
    def reserve(self) -> int:
        """Bytes to leave free in front of the next block."""
        return len(self._bytes)

    def learn_broker(self, high: int, low: int, port: int) -> None:
        """An address where a broker listens, as told by another connection."""
        self._decider.brokers.add((high, low, port))

    def feed(self, block: PacketBlock) -> FrameBlock:
        """The frames that this block completed."""
        if len(block):
            self._now = max(self._now, int(block.time.max()))
        return self._feed(block, last=False)

    def finish(self) -> FrameBlock:
        """What is left at the end of the capture: holes are given up, cut frames given out."""
        return self._feed(PacketBlock.empty(self.reserve), last=True)

    def _feed(self, block: PacketBlock, *, last: bool) -> FrameBlock:
        table, data = self.connections, block.data
        data[: self.reserve] = np.frombuffer(self._bytes, np.uint8)
        connection, end = self._tracker.track(block)
        self._grow()
        wanted = ~np.isin(table.protocol[connection], (TLS, OTHER))
        released, self._waiting, lost = self._reassembler.feed(
            block, 2 * connection + end, wanted, self._waiting, self._now, last=last
        )
        pieces = self._framed + released
        pieces = pieces[np.argsort(pieces.stream, kind="stable")]
        chains = Chains(data, pieces)
        problems = self._lost_problems(lost) + (self._snaplen_problems() if last else [])
        self._begin(chains, last)
        start, size, who, keep = self._walk(chains, problems, last)
        self._keep(data, pieces, chains, keep)
        return self._frames(chains, start, size, who, problems)

    def _grow(self) -> None:
        missing = 2 * self.connections.count - len(self._chain)
        if missing > 0:
            more = np.full(max(missing, len(self._chain)), UNSYNCED)
            self._chain = np.concatenate([self._chain, more])
            self._since = np.concatenate([self._since, more])

    def _begin(self, chains: Chains, last: bool) -> None:
        """Decide about the connections that carry their first bytes."""
        table = self.connections
        rows = np.unique(chains.stream >> 1)
        for row in rows[table.protocol[rows] == UNDECIDED].tolist():
            self._decider.decide(row, chains, last)
            if table.protocol[row] == KAFKA:
                whole = table.isn[row] >= 0
                self._chain[2 * row : 2 * row + 2] = np.where(whole, 0, UNSYNCED)

    def _walk(
        self, chains: Chains, problems: list[Problem], last: bool
    ) -> tuple[Int64, Int64, Int64, Int64]:
        """All frames: address, size, stream; and for each stream from which position to keep."""
        table, row = self.connections, chains.stream >> 1
        keep = np.where(
            table.protocol[row] == UNDECIDED, self._decider.keep_from(chains), NOTHING_KEPT
        )
        over = last | table.replaced[row]
        over |= (table.closed[row] != OPEN) & (table.last_time[row] < self._now - LINGER)
        found = [(np.zeros(0, np.int64),) * 3]
        index = np.flatnonzero(table.protocol[row] == KAFKA)
        while len(index):
            index = self._synced(chains, index, keep, problems, last)
            stream = chains.stream[index]
            at = chains.address_of(index, self._chain[stream])
            start, size, who, at, ended = chains.walk(index, at)
            found.append((start, size, who))
            self._chain[stream] = chains.position_of(index, at)
            cut = ended == CUT
            keep[index[cut]] = self._chain[stream[cut]]
            if over[index[cut]].any():
                cut &= over[index]
                found.append(self._cut_frames(chains, index[cut], at[cut], problems))
                keep[index[cut]] = NOTHING_KEPT
            index = index[ended == BROKEN]
            self._since[chains.stream[index]] = self._chain[chains.stream[index]]
            self._chain[chains.stream[index]] = UNSYNCED
        start, size, who = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.argsort(start, kind="stable")
        return start[order], size[order], chains.stream[who[order]], keep

    def _synced(
        self, chains: Chains, index: Int64, keep: Int64, problems: list[Problem], last: bool
    ) -> Int64:
        """Those of the streams at `index` whose next frame's place is known, or is found now."""
        stream = chains.stream[index]
        first = chains.pieces.at[chains.first[index]]
        # Where a hole was given up over the place of a size, the place is lost with it.
        fell = (self._chain[stream] >= 0) & (self._chain[stream] < first)
        self._since[stream[fell]] = self._chain[stream[fell]]
        self._chain[stream[fell]] = UNSYNCED
        for each in index[self._chain[stream] == UNSYNCED].tolist():
            who = int(chains.stream[each])
            if self._since[who] == UNSYNCED:
                self._since[who] = chains.pieces.at[chains.first[each]]
            since = int(self._since[who])
            place, keep[each] = self._decider.find_frame(chains, each, since, last)
            self._chain[who] = place
            if place != UNSYNCED:
                self._since[who] = UNSYNCED
                if place > since:
                    problems.append(self._resync(chains, who, since, place))
        synced: Int64 = index[self._chain[stream] != UNSYNCED]
        return synced

    def _cut_frames(
        self, chains: Chains, index: Int64, at: Int64, problems: list[Problem]
    ) -> tuple[Int64, Int64, Int64]:
        """The frames that will not become whole any more, where their size is known."""
        known = (at + 4 <= chains.end[index]) & (chains.there_until(at) >= at + 4)
        size = chains.space.number(at[known], "i4").astype(np.int64)
        missing = at[known] + 4 + size - chains.end[index[known]]
        for each, offset, count in zip(
            chains.stream[index[known]].tolist(),
            chains.position_of(index[known], at[known]).tolist(),
            missing.tolist(),
            strict=True,
        ):
            detail = "the connection or the capture ended inside a message"
            problems.append(self._problem(each, "frames", "cut_message", detail, offset, count))
        self._chain[chains.stream[index]] = UNSYNCED
        return at[known], size, index[known]

    def _keep(self, data: Bytes, pieces: Segments, chains: Chains, keep: Int64) -> None:
        """Carry what is needed of this block into the next one."""
        since = np.repeat(keep, np.diff(chains.first))
        cut = np.clip(since - pieces.at, 0, None)
        needed = np.flatnonzero(cut < pieces.span)
        kept, cut = pieces[needed], cut[needed]
        there = np.minimum(cut, kept.length)
        self._framed = replace(
            kept, at=kept.at + cut, span=kept.span - cut, length=kept.length - there,
            source=kept.source + there,
        )  # fmt: skip
        memory = data.data
        parts: list[memoryview] = []
        self._waiting = _carried(self._waiting, memory, parts, 0)
        offset = int(self._waiting.length.sum())
        self._framed = _carried(self._framed, memory, parts, offset)
        self._bytes = b"".join(parts)

    def _frames(
        self, chains: Chains, start: Int64, size: Int64, stream: Int64, problems: list[Problem]
    ) -> FrameBlock:
        table, pieces = self.connections, chains.pieces
        body, end = start + 4, start + 4 + size
        stream_end = chains.end[np.searchsorted(chains.stream, stream)]
        first = chains.piece_of(start)
        last = chains.piece_of(np.maximum(np.minimum(end, stream_end) - 1, start))
        holder = chains.piece_of(body)
        inside = body - chains.address[holder] if len(body) else body
        flat = inside + size <= pieces.length[holder] if len(body) else body.astype(np.bool_)
        there = np.minimum(chains.there_until(body), stream_end)
        return FrameBlock(
            data=chains.data,
            space=chains.space,
            connection=(stream >> 1).astype(np.int32),
            is_request=(stream & 1) == table.client[stream >> 1],
            start=body,
            position=np.where(flat, pieces.source[holder] + inside, -1),
            size=size,
            readable=np.clip(there - body, 0, size),
            capture=pieces.capture[first].astype(np.int32),
            packet=pieces.number[first],
            time=pieces.time[first],
            end_time=pieces.time[last],
            problems=problems,
        )

    def _lost_problems(self, lost: Lost) -> list[Problem]:
        return [
            self._problem(stream, "streams", "lost_bytes", "the capture misses bytes", at, length)
            for stream, at, length in zip(
                lost.stream.tolist(), lost.at.tolist(), lost.length.tolist(), strict=True
            )
        ]

    def _snaplen_problems(self) -> list[Problem]:
        """One for each stream of which packets were captured in part."""
        cut = self.connections.cut.reshape(-1)
        detail = "the capture holds only the beginning of packets"
        return [
            self._problem(stream, "streams", "cut_packets", detail, 0, int(cut[stream]))
            for stream in np.flatnonzero(cut).tolist()
        ]

    def _resync(self, chains: Chains, stream: int, since: int, place: int) -> Problem:
        detail = "bytes were skipped up to the next frame that could be recognised"
        return self._problem(stream, "frames", "resync", detail, since, place - since)

    def _problem(
        self, stream: int, stage: str, kind: str, detail: str, offset: int, size: int
    ) -> Problem:
        table, row = self.connections, stream >> 1
        side = "client" if (stream & 1) == table.client[row] else "broker"
        return Problem(
            stage=stage,
            kind=kind,
            detail=f"{detail}, in what the {side} sent",
            time=self._now,
            connection_id=row,
            offset=offset,
            bytes=size,
        )


def _carried(
    segments: Segments, memory: memoryview, parts: list[memoryview], offset: int
) -> Segments:
    """The segments, with their place in the next block; their bytes are added to `parts`."""
    parts += [
        memory[source : source + length]
        for source, length in zip(segments.source.tolist(), segments.length.tolist(), strict=True)
    ]
    return replace(segments, source=offset + np.cumsum(segments.length) - segments.length)
