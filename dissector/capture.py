"""A capture, opened: all stages in a row, from files to tables.

`Capture` drives them stretch by stretch: `Reading` makes frames of packets, `Telling` makes rows of
frames. Rows of a table come out while the capture goes in, but for those that wait in a `Spool` for
the name of a topic. What only some tables or captures need is imported when they come: to start
takes as long as to read a hundred thousand messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from dissector import rows
from dissector.connections import Connections
from dissector.conversation.dialogue import REQUEST_WAIT
from dissector.conversation.topic_names import TopicNames
from dissector.errors import DissectorError
from dissector.packets import ahead, open_packets
from dissector.packets.block import Int64, PacketSource
from dissector.packets.files import BLOCK_BYTES
from dissector.problems import Problem
from dissector.reading import Reading
from dissector.segments import captures_and_segments, segment_rows
from dissector.spool import Spool
from dissector.streams.roundtrips import RoundTrips
from dissector.streams.streaming import DEFAULT_MEMORY
from dissector.tables import TABLES
from dissector.telling import Rows, Telling

if TYPE_CHECKING:
    from dissector.exchange import Exchange

DEFAULT_PORTS = (9092,)
_MEMORY_SHARE = 8
"""The part of the memory that a block of packets may take, and as much requests that wait, and
responses. Streams may take a quarter (see `streams.streaming`); the rest is for what is made of it.
"""
CONNECTION_ROWS = 1 << 15
"""Rows of `connections` in a batch, so that a million connections do not stand in memory twice."""
Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the bytes read so far, and with all there are where that is known."""


def open_capture(
    paths: Paths,
    *,
    ports: Collection[int] | None = None,
    hold: bool = True,
    show_secrets: bool = False,
    keylog: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> Capture:
    """Open files, globs, folders, or ``-`` for standard input, as one capture in order of time.

    A broker's log segments are read, too, after the captures: they have `batches` and `records`.

    `ports`: where brokers listen, for connections whose beginning is not in the capture (None:
    9092). A connection to one of them that is not Kafka gives a row of `problems`.
    `hold`: let rows whose topics are named by id wait until the capture has told all names.
    `show_secrets`: leave secrets in the tables; see `dissector.secrets`.
    `keylog`: a file of TLS secrets (NSS key log format), which may still be written to. Those that
    a pcapng file carries are used without it.
    `jobs`: processes to use for files of 256 MB or more in all; smaller input is read by one. They
    are forked when the first rows are asked for. The rows and their order are the same.
    `memory`: bytes that may be taken for what is read at once and for what waits, beside the
    program itself. Where it does not suffice, what waits longest is given up, and told in
    `problems`.
    Raises CaptureError when nothing of the input can be read as a capture, nor the key log, and
    DissectorError where there is one, but not the package `cryptography`.
    """
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    others, logs = captures_and_segments(paths)
    block_bytes = min(BLOCK_BYTES, memory // _MEMORY_SHARE)
    source = open_packets(others, block_bytes=block_bytes) if others or not logs else None
    if jobs > 1:
        from dissector import parallel

        jobs = jobs if parallel.helps(source) else 1
    return Capture(
        ahead.ReadAhead(source) if jobs == 1 and ahead.helps(source) else source, logs,
        ports=ports, hold=hold, show_secrets=show_secrets, keylog=keylog,
        jobs=jobs, memory=memory, progress=progress,
    )  # fmt: skip


class Capture:
    """One pass over a capture: use one of `stream`, `tables` and `exchanges`, once."""

    def __init__(
        self,
        source: PacketSource | None,
        segments: Sequence[str] = (),
        *,
        ports: Collection[int] | None = None,
        hold: bool = True,
        show_secrets: bool = False,
        brokers: Collection[tuple[int, int, int]] = (),
        request_wait: int = REQUEST_WAIT,
        forget_after: int | None = None,
        keylog: str | os.PathLike[str] | None = None,
        jobs: int = 1,
        memory: int = DEFAULT_MEMORY,
        progress: Progress | None = None,
    ) -> None:
        """`brokers`: where brokers are known to listen: high, low and port as in `PacketBlock`.

        `request_wait`: ns after which a request is unanswered; see `conversation.dialogue`.
        `forget_after`: ns after which a connection that is over is forgotten, its row being given
        out; see `Streams.over`. None: at the end, so that memory grows with the connections.
        `jobs`: processors to use where `source` has files and nothing is forgotten.
        """
        self._jobs = jobs
        self._segments = segments
        self._total = _total(source, segments)
        self._reading = Reading(
            source, ports=DEFAULT_PORTS if ports is None else ports, named=ports or (),
            keylog=keylog, memory=memory,
        )  # fmt: skip
        self._reading.learn(brokers)
        streams = self._reading.streams
        self._connections = Connections(streams.connections, streams.tls)
        self.names = TopicNames()
        """Names of topics by id, as far as they were told."""
        self._hold = hold
        self._request_wait = request_wait
        self._memory = memory
        self._forget_after = forget_after
        self._trips = RoundTrips()
        self._telling: Telling | None = None
        self._show_secrets = show_secrets
        self._progress = progress or _unseen
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
            from dissector import internal_records

            batch, problems = internal_records.tell(batch, show_secrets=self._show_secrets)
        yield name, batch
        if problems and "problems" in wanted:
            yield "problems", rows.problems(problems)

    def exchanges(self) -> Iterator[Exchange]:
        """Every exchange, one by one, with the bytes of its messages, secrets and all."""
        from dissector.exchange import as_exchanges

        for each in self._rows(["exchanges"], keep_frames=True):
            yield from as_exchanges(each.batch, self._connections.mechanisms, self.names.names)

    @property
    def first_packets(self) -> tuple[Int64, Int64, Int64]:
        """Of each connection that is not forgotten: its connection_id, and of its first packet the
        file, as index into the source's names, and the number; shape (connections,)."""
        table = self._reading.streams.connections
        rows = table.in_use
        self._reading.streams.restore(rows)
        return table.number[rows], table.capture[rows].astype(np.int64), table.packet[rows]

    def unsettled(self, wanted: Collection[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of each turn, then of the connections, then of the segments.

        For whoever settles later what only the whole capture tells: a topic may still be an id that
        `names` knows by the end, and Kafka's own records have not been read.
        """
        topics = rows.Topics()
        for table, batch in self.part(wanted):
            yield table, topics.news(batch) if table == "topics" else batch
        for path in self._segments:
            yield from segment_rows(path, wanted, self._read)

    def part(
        self, wanted: Collection[str], *, goes_on: bool = False
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """As `unsettled`, for whoever puts the rows of several parts of a capture together.

        Topics come as often as they are told: see `rows.told`. `goes_on`: the source will have
        more, and this is called again for it with the same tables, so that nothing ends here.
        Between two calls, a capture that is open may be pickled, if its source may.
        """
        if "connections" in wanted:
            self._reading.streams.round_trips = self._trips
        for table, batch, _ in self._rows(wanted, goes_on=goes_on):
            yield table, self._numbered(batch)
        if "connections" in wanted and not goes_on:
            for batch in self._connection_rows():
                yield "connections", self._numbered(batch)

    def _connection_rows(self) -> Iterator[pa.RecordBatch]:
        """The rows of all connections, some at a time."""
        streams = self._reading.streams
        rows = streams.connections.in_use
        for begin in range(0, max(len(rows), 1), CONNECTION_ROWS):
            some = rows[begin : begin + CONNECTION_ROWS]
            streams.restore(some)
            yield self._connections.rows(self._trips, some)
            streams.park()

    def learn_brokers(self, brokers: Collection[tuple[int, int, int]]) -> None:
        """Where brokers are known to listen, from here on."""
        self._reading.learn(brokers)

    def _rows(
        self, wanted: Collection[str], *, goes_on: bool = False, keep_frames: bool = False
    ) -> Iterator[Rows]:
        """The rows of all stretches."""
        telling = self._telling = self._telling or Telling(
            wanted, self.names, self._connections, self._reading.captures,
            request_wait=self._request_wait, keep_frames=keep_frames,
            memory=self._memory // _MEMORY_SHARE,
        )  # fmt: skip
        if self._jobs > 1 and not keep_frames:  # frames are not sent from process to process
            from dissector import parallel

            if memory := parallel.shared(self._reading, self._jobs):
                yield from parallel.rows(self._reading, telling, memory, self._count)
                self._trips = self._reading.streams.round_trips or self._trips
                return
        for stretch in self._reading.stretches(goes_on=goes_on):
            self._count(stretch.packets, stretch.bytes_read)
            yield from telling.rows(stretch)
            self._reading.tell(telling.brokers)
            if self._forget_after is None:
                self._reading.streams.park()
            else:
                yield from self._forgotten(telling, wanted, stretch.now, self._forget_after)

    def _forgotten(
        self, telling: Telling, wanted: Collection[str], now: int, wait: int
    ) -> Iterator[Rows]:
        """The rows of the connections that are forgotten now."""
        streams = self._reading.streams
        over = streams.over(now, wait)
        over = over[~np.isin(over, telling.busy)]
        if len(over):
            if "problems" in wanted and (problems := streams.not_kafka(over)):
                yield Rows("problems", rows.problems(problems))
            if streams.round_trips is not None:  # the table is wanted
                yield Rows("connections", self._connections.rows(self._trips, over))
            telling.forget(over)
            streams.forget(over)

    def _numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with numbers of connections, where a row served several."""
        if self._forget_after is None or "connection_id" not in batch.schema.names:
            return batch
        at = batch.schema.get_field_index("connection_id")
        numbers = pa.array(self._connections.numbers).take(batch.column(at))
        return batch.set_column(at, batch.schema.field(at), numbers)

    @property
    def in_flight(self) -> int:
        """Requests that wait for a response now."""
        return self._telling.in_flight if self._telling else 0

    @property
    def open_connections(self) -> int:
        """Connections that were seen, and not their end."""
        return self._reading.open_connections

    def _count(self, packets: int, size: int) -> None:
        self.packets += packets
        self._read(size)

    def _read(self, more: int) -> None:
        self.bytes += more
        self._progress(self.bytes, self._total)


def _total(source: PacketSource | None, segments: Sequence[str]) -> int | None:
    """Bytes of all input; None where it cannot be known."""
    size = sum(Path(path).stat().st_size for path in segments)
    if source is None:
        return size
    return None if source.total_bytes is None else source.total_bytes + size


def _unseen(read: int, total: int | None) -> None:
    """Progress that nobody looks at."""


def _known(tables: Collection[str] | None) -> list[str]:
    if tables is None:
        return [name for name, table in TABLES.items() if not table.opt_in]
    unknown = [name for name in tables if name not in TABLES]
    if unknown:
        raise DissectorError(f"no table is called {unknown[0]}: there are {', '.join(TABLES)}")
    return list(tables)
