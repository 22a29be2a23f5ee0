"""One capture on several processors: the same rows, in the same order, in less time.

    reader ──blocks──> framer ──frames──> table workers ──rows──> parent
      ^                                         │
      └─────────── slots, and brokers ──────────┘

One process reads packets, and one makes frames of them. Packets depend on each other there (files
overlap, ports are reused, streams share memory), so these stages are not divided. From the frames
on, connections are independent: each table worker makes the rows of a share of the connections. The
parent merges their rows, adds what needs the whole capture, and passes the rows on.

workers   processes that end with their work
memory    shared memory: blocks, frames and rows are not copied through pipes
stages    the work of each process
merging   the work of the parent
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from typing import Final

from dissector.frame_reader import BROKER_FEEDBACK_DELAY, FrameReader
from dissector.packets.block import PacketSource
from dissector.packets.files import FileSource
from dissector.parallel import stages
from dissector.parallel.memory import Region, Slot, mapped
from dissector.parallel.merging import Inbox, merged
from dissector.parallel.workers import Workers, can_fork
from dissector.tables.builder import TableBuilder, TableRows

LEAST_BYTES: Final = 256 << 20
"""Bytes of input below which one process is always used. Starting other processes, and mapping the
shared memory into each of them, costs more than they save: 35 MB took 50 % longer with two."""
FRONT: Final = 1 << 27
"""Bytes before a block for bytes carried over from earlier blocks: as many as `Streams` holds,
without one block's. Unused bytes take no memory."""
ARRAYS: Final = 1 << 26
"""Bytes for the arrays that describe a block, in addition to the size of the block."""
BUFFER_BYTES: Final = 1 << 26
"""Bytes of rows that a table worker sends at a time."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The memory of all processes."""

    slots: list[Slot]
    buffers: list[tuple[Region, Region]]
    """Two for each table worker."""


def helps(source: PacketSource | None) -> bool:
    """Whether several processes are possible, and faster."""
    if not isinstance(source, FileSource) or not can_fork():
        return False
    return source.total_bytes is not None and source.total_bytes >= LEAST_BYTES


def shared(reader: FrameReader, jobs: int) -> Shared | None:
    """Memory for `jobs` processors; None if it is not available, or the source is not files."""
    source = reader.source
    if not isinstance(source, FileSource):
        return None
    data = source.block_bytes + (1 << 20)
    try:
        return Shared(
            [
                Slot(mapped(FRONT + 2 * data + ARRAYS), FRONT, data)
                for _ in range(BROKER_FEEDBACK_DELAY)
            ],
            [
                (Region(mapped(BUFFER_BYTES)), Region(mapped(BUFFER_BYTES)))
                for _ in range(max(jobs - 1, 1))
            ],
        )
    except OSError:
        return None


def rows(
    reader: FrameReader, builder: TableBuilder, memory: Shared,
    progress: Callable[[int, int], None],
) -> Iterator[TableRows]:  # fmt: skip
    """The rows of all blocks.

    `progress` is called with the packets and bytes of each block. At the end, `reader` and
    `builder` have the same state of connections and topics as after one process. Raises
    DissectorError if a process ends before its work is done.
    """
    source, table = reader.source, reader.streams.connections
    assert isinstance(source, FileSource)
    slots, names, share_count = memory.slots, builder.names, len(memory.buffers)
    to_framer, to_parent = Pipe(duplex=False), Pipe(duplex=False)
    frames = [Pipe(duplex=False) for _ in range(share_count)]
    releases = [Pipe(duplex=False) for _ in range(share_count)]
    results = [Pipe() for _ in range(share_count)]
    with Workers() as workers:
        workers.start(
            partial(stages.read, source, slots, [r for r, _ in releases], to_framer[1]),
            "reads packets",
        )
        workers.start(
            partial(
                stages.frame, reader, source, slots, to_framer[0], [w for _, w in frames],
                to_parent[1],
            ),
            "finds messages",
        )  # fmt: skip
        for index in range(share_count):
            outbox = stages.Outbox(memory.buffers[index], results[index][1], names)
            workers.start(
                partial(
                    stages.build, builder, table, (index, share_count), slots, frames[index][0],
                    outbox, releases[index][1],
                ),
                "reads messages",
            )  # fmt: skip
        source.close()
        inboxes = [
            Inbox(workers, memory.buffers[index], results[index][0], names, alone=share_count == 1)
            for index in range(share_count)
        ]
        is_last = False
        while not is_last:
            stats: stages.BlockStats = pickle.loads(workers.receive(to_parent[0]))
            progress(stats.packets, stats.bytes_read)
            for problems in stats.problems:
                yield from merged(inboxes, problems)
            is_last = stats.is_last
        for inbox in inboxes:
            inbox.advance()
            builder.connections.add(inbox.head)
        snapshot: stages.ConnectionSnapshot = pickle.loads(workers.receive(to_parent[0]))
    for name, column in snapshot.connections.items():
        setattr(table, name, column)
    reader.streams.learn(snapshot.tls, snapshot.round_trips)
