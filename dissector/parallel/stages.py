"""The work of each process: one reads packets, one makes frames, table workers make rows of frames.

Blocks use a ring of slots. The reader fills a slot when all table workers have released its
previous block. It then passes on the brokers that they found, so reading is at most
`BROKER_FEEDBACK_DELAY` blocks ahead. A table worker puts rows into one of its buffers when the
parent has taken the buffer's previous rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import count, islice
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

import numpy as np

from dissector.exchanges.topic_names import TopicNames
from dissector.frame_reader import Broker, FrameBatch, FrameReader
from dissector.packets.block import Bytes, Int64, PacketBlock
from dissector.packets.files import FileSource
from dissector.parallel.memory import Region, Slot
from dissector.problems import Problem
from dissector.streams.frames import FrameBlock
from dissector.streams.roundtrips import RoundTrips
from dissector.streams.table import Bools, ConnectionTable
from dissector.tables.builder import TableBuilder
from dissector.tls import TlsFacts

_FIXED: Final = ("high", "low", "port")
"""Constant columns of the connection table that table workers need."""


class BlockStats(NamedTuple):
    """Problems and counts of a block, for the parent."""

    problems: list[list[Problem]]
    """Problems by part of the block."""
    packets: int
    bytes_read: int
    is_last: bool


class ConnectionSnapshot(NamedTuple):
    """State of all connections at the end."""

    connections: Mapping[str, Any]
    """Columns of the connection table by name, and its `count`."""
    tls: Mapping[int, TlsFacts]
    round_trips: RoundTrips | None


@dataclass(frozen=True, slots=True)
class NewTopicNames:
    """Topic names that a table worker found since its last message."""

    names: Mapping[str, str]
    unresolved: Collection[str]


@dataclass(frozen=True, slots=True)
class _Frames:
    """The frames of a block, and changes of connections, for the table workers."""

    parts: list[FrameBlock]
    now: int
    ended: Bools
    is_last: bool
    known: int
    """Number of connections before this block."""
    columns: Mapping[str, Any]
    """`_FIXED` columns of the new connections."""
    client: Any
    """`client` column of all connections."""


# Reading


def read(
    source: FileSource, slots: Sequence[Slot], releases: Sequence[Connection], out: Connection
) -> None:
    """Put blocks into slots, with brokers and secrets for the framer."""
    known = len(source.secrets)
    for turn in count():
        slot = slots[turn % len(slots)]
        brokers: list[Broker] = []
        if turn >= len(slots):
            for release in releases:
                brokers += release.recv()
        slot.region.clear()
        source.memory = slot
        block = source.read(0)
        if block is not None and slot.region.where(block.data) is None:
            block = _moved(block, slot)
        secrets = source.secrets[known:]
        known += len(secrets)
        out.send_bytes(slot.region.pack((block, brokers, secrets)))
        if block is None:
            return


def _moved(block: PacketBlock, slot: Slot) -> PacketBlock:
    """The block with its bytes copied into the slot."""
    data = slot.take(len(block.data))
    data[:] = block.data
    return replace(block, data=data)


# Framing


class _Blocks:
    """The `PacketSource` of the framer: receives the reader's blocks."""

    def __init__(self, reader: FrameReader, source: FileSource, slots: Sequence[Slot],
                 channel: Connection) -> None:  # fmt: skip
        self.names = source.names
        self.total_bytes = source.total_bytes
        self._secrets = source.secrets
        self._reading = reader
        self._slots = slots
        self._channel = channel
        self._turn = 0
        self.slot = slots[0]

    def read(self, reserve: int) -> PacketBlock | None:
        self.slot = self._slots[self._turn % len(self._slots)]
        self._turn += 1
        block: PacketBlock | None
        block, brokers, secrets = self.slot.region.unpack(self._channel.recv_bytes())
        self._reading.learn_brokers(brokers)
        self._secrets += secrets
        return None if block is None else self._with_room(block, reserve)

    def _with_room(self, block: PacketBlock, reserve: int) -> PacketBlock:
        """The block with `reserve` free bytes at its front."""
        slot = self.slot
        data: Bytes
        if slot.region.where(block.data) == slot.front and reserve <= slot.front:
            data = slot.region.memory[slot.front - reserve : slot.front + len(block.data)]
        else:
            data = np.concatenate([np.empty(reserve, np.uint8), block.data])
        return replace(block, data=data, reserve=reserve, payload=block.payload + reserve)

    def close(self) -> None:
        """The reader closes its files itself."""


def frame(
    reader: FrameReader, source: FileSource, slots: Sequence[Slot], blocks: Connection,
    table_workers: Sequence[Connection], out: Connection,
) -> None:  # fmt: skip
    """Make frames of blocks, send all of them to each table worker, and counts to the parent."""
    incoming = reader.source = _Blocks(reader, source, slots, blocks)
    table, known = reader.streams.connections, 0
    for frame_batch in reader.batches():
        problems = [part.problems for part in frame_batch.frames]
        problems[-1] = [*frame_batch.problems, *problems[-1]]
        out.send(
            BlockStats(problems, frame_batch.packets, frame_batch.bytes_read, frame_batch.is_last)
        )
        frames = _Frames(
            [replace(part, problems=[]) for part in frame_batch.frames],
            frame_batch.now, frame_batch.ended, frame_batch.is_last, known,
            {name: getattr(table, name)[known : table.count] for name in _FIXED},
            table.client[: table.count],
        )  # fmt: skip
        known = table.count
        message = incoming.slot.region.pack(frames)
        for worker in table_workers:
            worker.send_bytes(message)
        frame_batch.frames.clear()
        del frames
    columns = {each.name: getattr(table, each.name) for each in fields(ConnectionTable)}
    snapshot = ConnectionSnapshot(columns, dict(reader.streams.tls), reader.streams.round_trips)
    out.send(snapshot)


# Tables


class Outbox:
    """Sends the messages of a table worker; the parent receives them with an `Inbox`."""

    def __init__(self, buffers: Sequence[Region], channel: Connection, names: TopicNames) -> None:
        self._buffers = buffers
        self._channel = channel
        self._sent = 0
        self._names = names
        self._sent_names: tuple[int, set[str]] = (0, set())

    def send(self, value: object) -> None:
        """Send `value`, and new topic names."""
        if self._sent >= len(self._buffers):
            self._channel.recv_bytes()
        buffer = self._buffers[self._sent % len(self._buffers)]
        self._sent += 1
        buffer.clear()
        self._channel.send_bytes(buffer.pack((value, self._new_names())))

    def _new_names(self) -> NewTopicNames | None:
        known, missing = self._sent_names
        names = self._names
        if known == len(names.names) and len(missing) == len(names.unresolved):
            return None
        self._sent_names = len(names.names), set(names.unresolved)
        new_names = dict(islice(names.names.items(), known, None))
        return NewTopicNames(new_names, names.unresolved - missing)


def build(
    builder: TableBuilder, table: ConnectionTable, share: tuple[int, int], slots: Sequence[Slot],
    frames: Connection, out: Outbox, release: Connection,
) -> None:  # fmt: skip
    """Make the rows of one share of the connections. `share`: its index, and their number."""
    for turn in count():
        slot = slots[turn % len(slots)]
        given: _Frames = slot.region.unpack(frames.recv_bytes())
        table.add(len(given.client) - given.known)
        for name, values in given.columns.items():
            getattr(table, name)[given.known : table.count] = values
        table.client[: table.count] = given.client
        parts = deque(_chosen(part, *share) for part in given.parts)
        frame_batch = FrameBatch(parts, given.now, given.ended, given.is_last)
        is_last = given.is_last
        del given, parts
        for message, problems in builder.correlate(frame_batch):
            out.send(None)
            for rows in builder.block_rows(message, problems):
                out.send(rows)
            out.send(None)
            del message
        release.send(builder.brokers)
        if is_last:
            out.send(builder.connections.stats)
            return


def _chosen(frames: FrameBlock, share: int, shares: int) -> FrameBlock:
    """The frames of one share of the connections."""
    chosen: Int64 = np.flatnonzero(frames.connection % shares == share)
    columns = {
        each.name: getattr(frames, each.name)[chosen]
        for each in fields(frames)
        if each.name not in ("data", "space", "problems")
    }
    return replace(frames, **columns)
