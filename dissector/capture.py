"""A capture, opened: all stages in a row, from files to tables.

`Capture` drives the stages block by block: packets, streams, conversation, rows. Rows of a table
come out while the capture goes in, but for those that wait in a `Spool` for the name of a topic.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from dissector import internal_records, record_rows, rows
from dissector.connections import Connections
from dissector.conversation.dialogue import REQUEST_WAIT, Conversation, Turn
from dissector.conversation.topic_names import TopicNames
from dissector.errors import DissectorError
from dissector.exchange import Exchange, as_exchanges
from dissector.faults import faults
from dissector.group_rows import MembershipRows
from dissector.keyfiles import KeyFiles
from dissector.packets import open_packets
from dissector.packets.block import Int64, PacketSource
from dissector.packets.paths import find
from dissector.partition_rows import PartitionRows
from dissector.problems import Problem
from dissector.protocol import catalog
from dissector.segments import is_segment, lies_beside_segments, segment_rows
from dissector.spool import Spool
from dissector.streams import Streams
from dissector.streams.frames import FrameBlock
from dissector.streams.roundtrips import RoundTrips
from dissector.tables import TABLES
from dissector.tls import KeyLog
from dissector.transaction_rows import TransactionRows

DEFAULT_PORTS = (9092,)
Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the bytes read so far, and with all there are where that is known."""


def open_capture(
    paths: Paths,
    *,
    ports: Collection[int] = DEFAULT_PORTS,
    hold: bool = True,
    show_secrets: bool = False,
    keylog: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Capture:
    """Open files, globs, folders, or ``-`` for standard input, as one capture in order of time.

    A broker's log segments are read, too, after the captures: they have `batches` and `records`.

    `ports`: where brokers listen, for connections whose beginning is not in the capture.
    `hold`: let rows whose topics are named by id wait until the capture has told all names.
    `show_secrets`: leave secrets in the tables; see `dissector.secrets`.
    `keylog`: a file of TLS secrets (NSS key log format), which may still be written to. Those that
    a pcapng file carries are used without it.
    Raises CaptureError when nothing of the input can be read as a capture, nor the key log, and
    DissectorError where there is one, but not the package `cryptography`.
    """
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    files = find(paths, also=is_segment)
    logs = [path for path in files if is_segment(path)]
    others = [path for path in files if path not in logs and not lies_beside_segments(path)]
    source = open_packets(others) if others or not logs else None
    return Capture(
        source, logs, ports=ports, hold=hold, show_secrets=show_secrets, keylog=keylog,
        progress=progress,
    )  # fmt: skip


class Capture:
    """One pass over a capture: use one of `stream`, `tables` and `exchanges`, once."""

    def __init__(
        self,
        source: PacketSource | None,
        segments: Sequence[str] = (),
        *,
        ports: Collection[int] = DEFAULT_PORTS,
        hold: bool = True,
        show_secrets: bool = False,
        brokers: Collection[tuple[int, int, int]] = (),
        request_wait: int = REQUEST_WAIT,
        keylog: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """`brokers`: where brokers are known to listen: high, low and port as in `PacketBlock`.

        `request_wait`: ns after which a request is unanswered; see `conversation.dialogue`.
        """
        self._source = source
        self._segments = segments
        self._total = _total(source, segments)
        self._keys = KeyLog(grows=keylog is not None)
        self._key_files = KeyFiles(getattr(source, "secrets", []), keylog)
        self._streams = Streams(
            ports=ports,
            newest={key: catalog.versions(key)[-1] for key in catalog.apis()},
            keys=self._keys,
        )
        for broker in brokers:
            self._streams.learn_broker(*broker)
        self._connections = Connections(self._streams.connections, self._streams.tls)
        self.names = TopicNames()
        """Names of topics by id, as far as they were told."""
        self._hold = hold
        self._request_wait = request_wait
        self._conversation: Conversation | None = None
        self._show_secrets = show_secrets
        self._progress = progress or (lambda read, total: None)
        self.packets = 0
        """Packets of any kind that were read so far."""
        self.bytes = 0
        """Bytes of input that were read so far."""

    def tables(self, tables: Collection[str] | None = None) -> dict[str, pa.Table]:
        """The tables asked for (None: all that are not opt-in), whole. Raises as `stream` does."""
        wanted = _known(tables)
        batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in wanted}
        for name, batch in self.stream(wanted):
            batches[name].append(batch)
        return {name: pa.Table.from_batches(batches[name], TABLES[name].schema) for name in wanted}

    def stream(self, tables: Collection[str] | None = None) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Name and rows of the tables asked for, as they come, in bounded memory.

        None: all that are not opt-in. Rows of one table are about in order of time. Raises
        DissectorError for a table that does not exist.
        """
        wanted = _known(tables)
        spools = {name: Spool(self.names) for name in wanted}
        for name, batch in self.unsettled(wanted):
            if not len(batch):
                continue
            for each in spools[name].put(batch) if self._hold else (batch,):
                yield from self._told(name, each, wanted)
        for name, spool in spools.items():
            for each in spool.drain():
                yield from self._told(name, each, wanted)

    def _told(
        self, name: str, batch: pa.RecordBatch, wanted: Collection[str]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """A batch as it goes out: topics have their names now, so Kafka's own records can tell."""
        problems: list[Problem] = []
        if name == "records":
            batch, problems = internal_records.tell(batch, show_secrets=self._show_secrets)
        yield name, batch
        if problems and "problems" in wanted:
            yield "problems", rows.problems(problems)

    def exchanges(self) -> Iterator[Exchange]:
        """Every exchange, one by one, with the bytes of its messages, secrets and all."""
        conversation = Conversation(self.names, tables=("exchanges",), keep_frames=True)
        for turn, _ in self._turns(conversation):
            batch = rows.exchanges(turn, self.names, self._connections, self._captures)
            yield from as_exchanges(batch, self._connections.mechanisms, self.names.names)

    @property
    def first_packets(self) -> tuple[Int64, Int64]:
        """File, as index into the source's names, and number of each connection's first packet.

        Shape (connections,), in order of connection_id.
        """
        table = self._streams.connections
        return table.capture[: table.count].astype(np.int64), table.packet[: table.count]

    def unsettled(self, wanted: Collection[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of each turn, then of the connections, then of the segments.

        For whoever settles later what only the whole capture tells: a topic may still be an id that
        `names` knows by the end, and Kafka's own records have not been read.
        """
        names, ends, captures = self.names, self._connections, self._captures
        trips = RoundTrips()
        if "connections" in wanted:
            self._streams.round_trips = trips
        topics = rows.Topics()
        after_a_wait: dict[str, Callable[[Turn], pa.RecordBatch]] = {
            "partitions": PartitionRows(names).rows,
            "memberships": MembershipRows().rows,
            "transactions": TransactionRows().rows,
        }
        batches = record_rows.BatchRows(names)
        self._conversation = Conversation(names, tables=wanted, request_wait=self._request_wait)
        for turn, problems in self._turns(self._conversation):
            if "exchanges" in wanted:
                yield "exchanges", rows.exchanges(turn, names, ends, captures)
            if "errors" in wanted:
                yield "errors", rows.errors(turn, names, ends)
            if "topics" in wanted:
                yield "topics", topics.rows(turn)
            for name in after_a_wait.keys() & {*wanted}:
                yield name, after_a_wait[name](turn)
            found = record_rows.carried(turn) if {"batches", "records"} & {*wanted} else []
            problems += record_rows.batch_problems(found)
            if "batches" in wanted:
                yield "batches", batches.rows(turn, found)
            if "records" in wanted:
                for each in record_rows.record_rows(turn, found, names, problems):
                    yield "records", each
            if "problems" in wanted:
                yield "problems", rows.problems([*problems, *faults(turn, captures)])
            del turn, found  # so that the memory of their bytes serves the next block
        if "connections" in wanted:
            yield "connections", self._connections.rows(trips)
        for path in self._segments:
            yield from segment_rows(path, wanted, self._read)

    @property
    def in_flight(self) -> int:
        """Requests that wait for a response now."""
        return self._conversation.in_flight if self._conversation else 0

    @property
    def open_connections(self) -> int:
        """Connections that were seen, and not their end."""
        return int((~self._connections.ended()).sum())

    @property
    def _captures(self) -> list[str]:
        return self._source.names if self._source else []

    def _read(self, more: int) -> None:
        self.bytes += more
        self._progress(self.bytes, self._total)

    def _turns(self, conversation: Conversation) -> Iterator[tuple[Turn, list[Problem]]]:
        """Drive the stages: a turn for each block, and a last one for what still waited."""
        if self._source is None:
            return
        now = 0
        try:
            while (block := self._source.read(self._streams.reserve)) is not None:
                self.packets += block.packets_seen
                now = max(now, block.latest or now)
                self._learn_secrets()
                frames = self._streams.feed(block)
                yield from self._decrypted(conversation, now)
                turn = self._turn(conversation, frames, now, last=False)
                self._read(block.bytes_read)
                problems = [*block.problems, *frames.problems]
                del block, frames  # so that the memory of their bytes serves the next block
                yield turn, problems
                del turn
            frames = self._streams.finish()
            yield from self._decrypted(conversation, now)
            turn = self._turn(conversation, frames, now, last=True)
            yield turn, [*frames.problems, *self._key_files.problems()]
        finally:
            self._source.close()

    def _learn_secrets(self) -> None:
        """What was added to the key logs since they were read last."""
        for text in self._key_files.new():
            self._keys.add(text)

    def _decrypted(
        self, conversation: Conversation, now: int
    ) -> Iterator[tuple[Turn, list[Problem]]]:
        """Turns of what was in TLS; what is not encrypted is still to come, so that none ends."""
        for frames in self._streams.decrypted:
            turn = self._turn(conversation, frames, now, last=False, more=True)
            yield turn, frames.problems

    def _turn(
        self, conversation: Conversation, frames: FrameBlock, now: int, *, last: bool,
        more: bool = False,
    ) -> Turn:  # fmt: skip
        """`more`: of this block, there are more frames."""
        ended = self._connections.ended() & (not more)
        turn = conversation.feed(frames, now, ended, last=last)
        for side in (turn.request, turn.response):
            self.names.learn(side.facts)
        for high, low, port in self._connections.learn(turn):
            self._streams.learn_broker(high, low, port)
        return turn


def _total(source: PacketSource | None, segments: Sequence[str]) -> int | None:
    """Bytes of all input; None where it cannot be known."""
    size = sum(Path(path).stat().st_size for path in segments)
    if source is None:
        return size
    return None if source.total_bytes is None else source.total_bytes + size


def _known(tables: Collection[str] | None) -> list[str]:
    if tables is None:
        return [name for name, table in TABLES.items() if not table.opt_in]
    unknown = [name for name in tables if name not in TABLES]
    if unknown:
        raise DissectorError(f"no table is called {unknown[0]}: there are {', '.join(TABLES)}")
    return list(tables)
