"""The one driver of a capture, from packets to the rows of tables.

All captures use it: files (`capture.Capture`), interfaces (`analysis.live`) and the tasks of Spark
(`analysis.spark`). `FrameReader` makes frames from packets, `TableBuilder` makes rows from frames,
and `Finalizer` completes rows with what only the whole capture knows. Rows are returned while
packets are read. Modules that only some tables or captures need are imported on demand: the start
takes as long as reading a hundred thousand messages.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from dissector.arguments import texts
from dissector.arrays import mutable
from dissector.errors import DissectorError, did_you_mean
from dissector.exchanges.topic_names import TopicNames
from dissector.frame_reader import Broker, FrameReader
from dissector.packets.block import PacketSource
from dissector.problems import Problem
from dissector.stages import Stages
from dissector.streams.connections.roundtrips import RoundTrips
from dissector.streams.streaming import DEFAULT_MEMORY, PacketObserver
from dissector.tables.builder import TableBuilder, TableRows
from dissector.tables.connections import Connections
from dissector.tables.finalizer import Finalizer, NamedBatch, with_topic_names
from dissector.tables.log_segments import segment_rows
from dissector.tables.problems import problem_rows
from dissector.tables.schema import TABLES
from dissector.tables.shared_columns import with_connections

if TYPE_CHECKING:
    from dissector.exchanges.exchange import Exchange
    from dissector.runs.worker import Make

CONNECTION_ROWS = 1 << 15
"""Rows of `connections` in a batch, so that a million connections are not in memory twice."""
Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the bytes read so far, and with the total, or None if it is unknown."""


@mutable
class Counts:
    """Amount of input that was read so far."""

    packets: int = 0
    """Packets of any kind."""
    bytes: int = 0
    """Bytes of input."""


class Divided(Protocol):
    """A source that is read in runs: `runs.Plan`, and that of Spark."""

    def rows(
        self, make: Make, reader: FrameReader, builder: TableBuilder,
        progress: Callable[[int, int], None],
    ) -> Iterator[TableRows]:  # fmt: skip
        """The rows of all runs; see `runs.Plan.rows`."""


class Pipeline:
    """Reads a source of packets once: call one of the methods that return rows, once.

    Only `raw_rows` may be called again, as long as the source continues.
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
        request_wait: int | None = None,
        forget_after: int | None = None,
        keylog: str | os.PathLike[str] | None = None,
        plan: Divided | None = None,
        memory: int = DEFAULT_MEMORY,
        progress: Progress | None = None,
        first_connection: int = 0,
    ) -> None:
        """`brokers`: known addresses of brokers: high, low and port as in `PacketBlock`.

        `request_wait`: see `Correlator`.
        `forget_after`: ns after which an ended connection is forgotten and its row returned; see
        `Streams.expired`. None: at the end, so that memory grows with the number of connections.
        `plan`: the runs of `source`, which several processes read. Then no connection is forgotten.
        `first_connection`: the first `connection_id`.
        """
        self._plan = plan
        self.stages = Stages(ports=ports, keylog=keylog, memory=memory, request_wait=request_wait)
        self._segments = segments
        self._total = _total(source, segments)
        self._reader = self.stages.reader(source)
        self._reader.learn_brokers(brokers)
        streams = self._reader.streams
        streams.connections.known = first_connection
        self._connections = Connections(streams.connections, streams.tls)
        self.names = TopicNames()
        """Topic names by id, learned so far."""
        self.learn_from_comments(getattr(source, "comments", ()))
        self._finalizer = Finalizer(self.names, hold=hold, show_secrets=show_secrets)
        self._forget_after = forget_after
        self._trips = RoundTrips()
        self._builder: TableBuilder | None = None
        self._progress = progress or _ignored
        self._has_ended = False
        self.counts = Counts()

    def learn_from_comments(self, comments: Sequence[str]) -> None:
        """Learn topic names and connections with Kafka from comments on capture files."""
        self.stages.comments = comments
        self.names.learn_from_comments(comments)
        self._reader.streams.declared.learn(comments)

    def close(self) -> None:
        """Close the input of a pipeline that was not read."""
        self._has_ended = True
        if self._reader.source is not None:
            self._reader.source.close()

    @property
    def packets(self) -> int:
        """Number of packets of any kind that were read so far."""
        return self.counts.packets

    def tables(self, tables: Collection[str] | None = None) -> dict[str, pa.Table]:
        """As `stream`, but whole tables by name."""
        wanted = known_tables(tables)
        return collected(self.stream(wanted), wanted)

    def stream(
        self, tables: Collection[str] | None = None, *, with_messages: bool = False,
        dictionaries: bool = False,
    ) -> Generator[NamedBatch]:  # fmt: skip
        """The rows of all wanted tables: of each block of frames, of connections, of log segments.

        Batches may be empty. If `problems` is wanted, a batch of it ends each block.
        `with_messages`: rows of `exchanges` also have the columns `tables.exchanges.MESSAGES`.
        `dictionaries`: texts of `exchanges` may be dictionaries, as `tables.arrow` makes them.
        """
        wanted = known_tables(tables)
        rows = self.raw_rows(wanted, with_messages=with_messages, dictionaries=dictionaries)
        for table, batch in chain(rows, self._segment_rows(wanted)):
            for complete in self._finalizer.add(table, batch):
                if complete[0] in wanted:
                    yield complete
        for complete in self._finalizer.finish():
            if complete[0] in wanted:
                yield complete

    def _segment_rows(self, wanted: Collection[str]) -> Iterator[NamedBatch]:
        """The rows of the log segments."""
        for path in self._segments:
            problems = yield from segment_rows(path, wanted, self._read)
            self.file_problems.extend(problems)

    def exchanges(
        self, select: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda rows: rows
    ) -> Generator[Exchange]:
        """The exchanges in the rows that `select` returns, with the bytes of their messages."""
        from dissector.exchanges.exchange import as_exchanges

        for rows in self._packet_rows(["exchanges"], keep_frames=True, with_sequences=True):
            batch = select(with_topic_names(rows.batch, self.names))
            yield from as_exchanges(batch, self.mechanisms, self.names.names)

    def located_exchanges(self) -> Generator[pa.RecordBatch]:
        """The rows of `exchanges` with the columns `tables.exchanges.SEQUENCES`.

        Topic ids are not replaced by names.
        """
        for rows in self._packet_rows(["exchanges"], with_sequences=True):
            yield rows.batch

    @property
    def captures(self) -> list[str]:
        """Names of the files, by index of the packets' file."""
        return self._reader.captures

    @property
    def file_problems(self) -> list[Problem]:
        """Problems of files that were read so far; see `problems.FILE_KINDS`."""
        return self._reader.file_problems

    @property
    def without_tcp(self) -> Counter[str]:
        """See `FrameReader`."""
        return self._reader.without_tcp

    @property
    def host_names(self) -> list[tuple[str, str]]:
        """Addresses with their names, from name resolution blocks of pcapng that were read."""
        return getattr(self._reader.source, "host_names", [])

    @property
    def mechanisms(self) -> Mapping[int, str]:
        """The SASL mechanism of connections by connection_id, learned so far."""
        return self._connections.mechanisms

    @property
    def encrypted_connections(self) -> Collection[int]:
        """The connection_id of each TLS connection so far."""
        return self._reader.streams.tls.keys()

    def observe_packets(
        self, observe: PacketObserver, tables: Collection[str] = ()
    ) -> dict[str, pa.Table]:
        """As `tables`; `observe` gets each block of packets, and their streams."""
        self._reader.streams.observe = observe
        return self.tables(tables)

    @property
    def secrets(self) -> list[bytes]:
        """TLS key logs in the captures that were read so far."""
        return self._reader.secrets

    @property
    def connections(self) -> int:
        """The `connection_id` of the next connection."""
        return self._reader.streams.connections.known

    @property
    def brokers(self) -> set[Broker]:
        """Addresses of brokers that are known."""
        return self._reader.streams.brokers

    def raw_rows(
        self, wanted: Collection[str], *, goes_on: bool = False, with_messages: bool = False,
        dictionaries: bool = False,
    ) -> Iterator[NamedBatch]:  # fmt: skip
        """The rows of the packets before they are finalized, for a caller that joins several parts.

        `topics` has all reported states: see `topics.topic_states`. `goes_on`: the source will have
        more packets and this is called again with the same tables, so that nothing ends here.
        Between two calls, the pipeline may be pickled if its source may.
        """
        if "connections" in wanted:
            self._reader.streams.round_trips = self._trips
        for table, batch in self._packet_rows(
            wanted, goes_on=goes_on, keep_frames=with_messages, with_sequences=with_messages,
            dictionaries=dictionaries,
        ):  # fmt: skip
            yield table, self._numbered(batch)
        if "connections" in wanted and not goes_on:
            for batch in self._connection_rows():
                yield "connections", self._numbered(batch)

    def _connection_rows(self) -> Iterator[pa.RecordBatch]:
        """The rows of all connections, in batches."""
        streams = self._reader.streams
        rows = streams.connections.in_use
        for begin in range(0, max(len(rows), 1), CONNECTION_ROWS):
            batch_rows = rows[begin : begin + CONNECTION_ROWS]
            streams.parking.restore(batch_rows)
            streams.detector.identify_sides(batch_rows)
            yield self._connections.rows(self._trips, batch_rows)
            streams.park()

    def _packet_rows(
        self, wanted: Collection[str], *, goes_on: bool = False, keep_frames: bool = False,
        with_sequences: bool = False, dictionaries: bool = False,
    ) -> Iterator[TableRows]:  # fmt: skip
        """The rows of all packets. Raises DissectorError if the input was read before."""
        if self._has_ended:
            raise DissectorError("this input was already read and can be read only once")
        self._has_ended = not goes_on
        builder = self._builder = self._builder or self.stages.builder(
            wanted, self.names, self._connections, self._reader.captures, keep_frames=keep_frames,
            with_sequences=with_sequences, dictionaries=dictionaries,
        )  # fmt: skip
        if self._plan is not None and not (keep_frames or with_sequences):
            make = partial(self.stages.of_run, wanted, self._reader.captures, dictionaries)
            yield from self._plan.rows(make, self._reader, builder, self._count)
            return
        for frames in self._reader.batches(goes_on=goes_on):
            self._count(frames.packets, frames.bytes_read)
            yield from builder.rows(frames)
            self._reader.learn_brokers(builder.brokers)
            if self._forget_after is None:
                self._reader.streams.park()
            else:
                yield from self._forgotten(builder, wanted, frames.now, self._forget_after)

    def _forgotten(
        self, builder: TableBuilder, wanted: Collection[str], now: int, wait: int
    ) -> Iterator[TableRows]:
        """Forget connections that ended long ago; return their rows."""
        streams = self._reader.streams
        ended = streams.expired(now, wait)
        ended = ended[~np.isin(ended, builder.correlator.pending_connections)]
        if len(ended):
            if "problems" in wanted and (problems := streams.last_problems(ended)):
                yield TableRows("problems", problem_rows(problems))
            if streams.round_trips is not None:  # the table is wanted
                yield TableRows("connections", self._connections.rows(self._trips, ended))
            builder.forget(ended)
            streams.forget(ended)

    def _numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with connection numbers, which differ from rows if a row was used again."""
        is_number = self._forget_after is None and self._plan is None
        return batch if is_number else with_connections(batch, self._connections.numbers)

    @property
    def in_flight(self) -> int:
        """Number of requests that wait for a response."""
        return self._builder.correlator.in_flight if self._builder else 0

    @property
    def open_connections(self) -> int:
        """Number of connections whose end was not seen."""
        return self._reader.open_connections

    def _count(self, packets: int, size: int) -> None:
        self.counts.packets += packets
        self._read(size)

    def _read(self, size: int) -> None:
        self.counts.bytes += size
        self._progress(self.counts.bytes, self._total)


def _total(source: PacketSource | None, segments: Sequence[str]) -> int | None:
    """Bytes of all input; None if unknown."""
    size = sum(Path(path).stat().st_size for path in segments)
    if source is None:
        return size
    return None if source.total_bytes is None else source.total_bytes + size


def _ignored(read: int, total: int | None) -> None:
    """Progress without a callback."""


def known_tables(tables: str | Collection[str] | None) -> list[str]:
    """Names of the wanted tables; None: all that are not opt-in.

    Raises DissectorError for a table that does not exist.
    """
    if tables is None:
        return [name for name, table in TABLES.items() if not table.opt_in]
    names = [*texts("tables", tables)]
    for name in names:
        if name not in TABLES:
            raise DissectorError(
                f"no table {name}; tables: {', '.join(TABLES)}{did_you_mean(name, TABLES)}"
            )
    return names


def collected(rows: Iterable[NamedBatch], wanted: Collection[str]) -> dict[str, pa.Table]:
    """The rows as whole tables."""
    batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in wanted}
    for name, batch in rows:
        batches[name].append(batch)
    return {name: pa.Table.from_batches(batches[name], TABLES[name].schema) for name in wanted}
