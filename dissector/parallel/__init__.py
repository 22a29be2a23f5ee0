"""One capture on several processors: the same rows, in the same order, sooner.

    reader ──blocks──> framer ──frames──> tellers ──rows──> parent
      ^                                      │
      └────────── slots, and brokers ────────┘

Packets are read, and frames made of them, by a process each: every packet may concern every other
there (files that overlap, ports that are used again, memory that is shared among streams), so what
they do is what one process does. From the frame on, connections do not concern each other: tellers
share them out, and the parent merges their rows, settles what only all of them know, and hands them
on as they come.

crew      processes that live no longer than their work
memory    what they share: blocks, frames and rows are not copied through pipes
stages    what each of them does
merging   what the parent makes of it
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
from dissector.parallel.crew import Crew, can_fork
from dissector.parallel.memory import Region, Slot, mapped
from dissector.parallel.merging import Inbox, merged
from dissector.tables.builder import TableBuilder, TableRows

LEAST_BYTES: Final = 256 << 20
"""Bytes of input below which one process is always used. To start the others, and to map the shared
memory into each of them, costs more than they save: 35 MB took half as long again with two."""
FRONT: Final = 1 << 27
"""Bytes before a block for what was carried over from those before it: as many as `Streams` holds,
but for one block's. No more than what is used takes room."""
ARRAYS: Final = 1 << 26
"""Bytes, beside as many as a block has, for the arrays that describe it."""
BOX: Final = 1 << 26
"""Bytes of rows that a teller sends at a time."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The memory of all processes."""

    slots: list[Slot]
    boxes: list[tuple[Region, Region]]
    """Two for each teller."""


def helps(source: PacketSource | None) -> bool:
    """Whether several processes are faster, and to be had."""
    if not isinstance(source, FileSource) or not can_fork():
        return False
    return source.total_bytes is not None and source.total_bytes >= LEAST_BYTES


def shared(reader: FrameReader, jobs: int) -> Shared | None:
    """Memory for that many processors; None where it is not to be had, or of no use."""
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
            [(Region(mapped(BOX)), Region(mapped(BOX))) for _ in range(max(jobs - 1, 1))],
        )
    except OSError:
        return None


def rows(
    reader: FrameReader, builder: TableBuilder, memory: Shared,
    progress: Callable[[int, int], None],
) -> Iterator[TableRows]:  # fmt: skip
    """The rows of all stretches.

    `progress` is called with the packets and bytes of each stretch. At the end `reader` and
    `builder` know of connections and topics what they would have learned themselves. Raises
    DissectorError where a process ends before its work is done.
    """
    source, table = reader.source, reader.streams.connections
    assert isinstance(source, FileSource)
    slots, names, tellers = memory.slots, builder.names, len(memory.boxes)
    to_framer, to_parent = Pipe(duplex=False), Pipe(duplex=False)
    frames = [Pipe(duplex=False) for _ in range(tellers)]
    releases = [Pipe(duplex=False) for _ in range(tellers)]
    told = [Pipe() for _ in range(tellers)]
    with Crew() as crew:
        crew.start(
            partial(stages.read, source, slots, [r for r, _ in releases], to_framer[1]),
            "reads packets",
        )
        crew.start(
            partial(
                stages.frame, reader, source, slots, to_framer[0], [w for _, w in frames],
                to_parent[1],
            ),
            "finds messages",
        )  # fmt: skip
        for index in range(tellers):
            outbox = stages.Outbox(memory.boxes[index], told[index][1], names)
            crew.start(
                partial(
                    stages.tell, builder, table, (index, tellers), slots, frames[index][0], outbox,
                    releases[index][1],
                ),
                "reads messages",
            )  # fmt: skip
        source.close()
        inboxes = [
            Inbox(crew, memory.boxes[index], told[index][0], names, alone=tellers == 1)
            for index in range(tellers)
        ]
        is_last = False
        while not is_last:
            note: stages.Note = pickle.loads(crew.receive(to_parent[0]))
            progress(note.packets, note.bytes_read)
            for problems in note.problems:
                yield from merged(inboxes, problems)
            is_last = note.is_last
        for inbox in inboxes:
            inbox.advance()
            builder.connections.add(inbox.head)
        known: stages.Known = pickle.loads(crew.receive(to_parent[0]))
    for name, column in known.connections.items():
        setattr(table, name, column)
    reader.streams.learn(known.tls, known.round_trips)
