"""One pass over a capture: all stages in a row, from packets to the rows of tables.

`Pipeline` is the driver of every kind of capture: files (`capture.Capture`), interfaces
(`analysis.live`) and the tasks of Spark (`analysis.spark`). It goes on stretch by stretch:
`Reading` makes frames of packets, `Telling` makes rows of frames. Rows come out while packets go
in, except for those that wait in a `Spool` for the name of a topic. Modules that only some tables
or captures need are imported when they are needed: the start takes as long as reading a hundred
thousand messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from dissector.errors import DissectorError, did_you_mean
from dissector.exchanges.correlator import REQUEST_WAIT
from dissector.exchanges.topic_names import TopicNames
from dissector.frame_reader import Reading
from dissector.packets.block import Int64, PacketSource
from dissector.problems import Problem
from dissector.streams.roundtrips import RoundTrips
from dissector.streams.streaming import DEFAULT_MEMORY
from dissector.tables.builder import Rows, Telling
from dissector.tables.connections import Connections
from dissector.tables.log_segments import segment_rows
from dissector.tables.problems import problem_rows
from dissector.tables.schema import TABLES
from dissector.tables.topic_name_buffer import Spool
from dissector.tables.topics import Topics

if TYPE_CHECKING:
    from dissector.exchanges.exchange import Exchange

DEFAULT_PORTS = (9092,)
MEMORY_SHARE = 8
"""An eighth of the memory is for a block of packets, and as much for requests that wait, and for
responses. Streams take a quarter (see `streams.streaming`); the remaining memory is for rows.
"""
CONNECTION_ROWS = 1 << 15
"""Rows of `connections` in a batch, so that a million connections are not held in memory twice."""
NamedBatch: TypeAlias = tuple[str, pa.RecordBatch]
"""Name of a table, and rows of it."""
Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the bytes read so far, and with all there are where that is known."""


@dataclass(slots=True)
class Counts:
    """How much was read so far."""

    packets: int = 0
    """Packets of any kind."""
    bytes: int = 0
    """Bytes of input."""


class Pipeline:
    """Reads a source of packets once: call one of the methods that give rows, once.

    `part` is the exception: it may be called again as long as the source goes on.
    """

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

        `request_wait`: ns after which a request is unanswered; see `exchanges.correlator`.
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
        self._has_ended = False
        self.counts = Counts()

    def close(self) -> None:
        """Close the input of a pipeline that is not read."""
        self._has_ended = True
        if self._reading.source is not None:
            self._reading.source.close()

    @property
    def packets(self) -> int:
        """Packets of any kind that were read so far."""
        return self.counts.packets

    def tables(self, tables: Collection[str] | None = None) -> dict[str, pa.Table]:
        """As `stream`, but each table as a whole."""
        wanted = known_tables(tables)
        return collected(self.stream(wanted), wanted)

    def stream(self, tables: Collection[str] | None = None) -> Generator[NamedBatch]:
        """As `Capture.stream`."""
        wanted = known_tables(tables)
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
    ) -> Iterator[NamedBatch]:
        """A batch as it goes out: topics have their names now, so Kafka's own records can tell."""
        problems: list[Problem] = []
        if name == "records":
            from dissector.tables import internal_topics

            batch, problems = internal_topics.tell(batch, show_secrets=self._show_secrets)
        yield name, batch
        if problems and "problems" in wanted:
            yield "problems", problem_rows(problems)

    def exchanges(
        self, selected: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda rows: rows
    ) -> Generator[Exchange]:
        """Every exchange of the rows that `selected` returns, with the bytes of its messages."""
        from dissector.exchanges.exchange import as_exchanges

        for each in self._rows(["exchanges"], keep_frames=True):
            batch = selected(each.batch)
            yield from as_exchanges(batch, self._connections.mechanisms, self.names.names)

    @property
    def first_packets(self) -> tuple[Int64, Int64, Int64]:
        """Of each connection that is not forgotten: its connection_id, and of its first packet the
        file, as index into the source's names, and the number; shape (connections,)."""
        table = self._reading.streams.connections
        rows = table.in_use
        self._reading.streams.restore(rows)
        return table.number[rows], table.capture[rows].astype(np.int64), table.packet[rows]

    def unsettled(self, wanted: Collection[str]) -> Iterator[NamedBatch]:
        """The rows of each turn, then of the connections, then of the segments.

        For whoever settles later what only the whole capture tells: a topic may still be an id that
        `names` knows by the end, and Kafka's own records have not been read.
        """
        topics = Topics()
        for table, batch in self.part(wanted):
            yield table, topics.news(batch) if table == "topics" else batch
        for path in self._segments:
            yield from segment_rows(path, wanted, self._read)

    def part(self, wanted: Collection[str], *, goes_on: bool = False) -> Iterator[NamedBatch]:
        """As `unsettled`, for whoever puts the rows of several parts of a capture together.

        Topics come as often as they are told: see `topics.told`. `goes_on`: the source will have
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
        """The rows of all connections, in batches."""
        streams = self._reading.streams
        rows = streams.connections.in_use
        for begin in range(0, max(len(rows), 1), CONNECTION_ROWS):
            batch_rows = rows[begin : begin + CONNECTION_ROWS]
            streams.restore(batch_rows)
            yield self._connections.rows(self._trips, batch_rows)
            streams.park()

    def learn_brokers(self, brokers: Collection[tuple[int, int, int]]) -> None:
        """Where brokers are known to listen, from here on."""
        self._reading.learn(brokers)

    def _rows(
        self, wanted: Collection[str], *, goes_on: bool = False, keep_frames: bool = False
    ) -> Iterator[Rows]:
        """The rows of all stretches. Raises DissectorError where they were all read before."""
        if self._has_ended:
            raise DissectorError("this input was read already, and can be read only once")
        self._has_ended = not goes_on
        telling = self._telling = self._telling or Telling(
            wanted, self.names, self._connections, self._reading.captures,
            request_wait=self._request_wait, keep_frames=keep_frames,
            memory=self._memory // MEMORY_SHARE,
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
                yield Rows("problems", problem_rows(problems))
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
        self.counts.packets += packets
        self._read(size)

    def _read(self, size: int) -> None:
        self.counts.bytes += size
        self._progress(self.counts.bytes, self._total)


def _total(source: PacketSource | None, segments: Sequence[str]) -> int | None:
    """Bytes of all input; None where it cannot be known."""
    size = sum(Path(path).stat().st_size for path in segments)
    if source is None:
        return size
    return None if source.total_bytes is None else source.total_bytes + size


def _unseen(read: int, total: int | None) -> None:
    """Progress that nobody looks at."""


def known_tables(tables: str | Collection[str] | None) -> list[str]:
    """Names of the tables that are wanted; None: all that are not opt-in.

    Raises DissectorError for a table that does not exist.
    """
    if tables is None:
        return [name for name, table in TABLES.items() if not table.opt_in]
    names = [tables] if isinstance(tables, str) else list(tables)
    for name in names:
        if name not in TABLES:
            raise DissectorError(
                f"no table is called {name}: there are {', '.join(TABLES)}"
                f"{did_you_mean(name, TABLES)}"
            )
    return names


def collected(rows: Iterable[NamedBatch], wanted: Collection[str]) -> dict[str, pa.Table]:
    """Rows as whole tables."""
    batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in wanted}
    for name, batch in rows:
        batches[name].append(batch)
    return {name: pa.Table.from_batches(batches[name], TABLES[name].schema) for name in wanted}
