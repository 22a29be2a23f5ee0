"""Builds the rows of all tables from frames.

Connections are independent from here on, except for three things that need the whole capture: topic
names by id, broker addresses in responses, and which rows of `topics` are changes. So several
processes can share the connections. Their rows are merged in an order that does not depend on the
number of processes: by time and connection, which all tables have but `records`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.correlator import PENDING_BYTES, Correlator
from dissector.exchanges.states import ExchangeStates
from dissector.exchanges.topic_names import TopicNames
from dissector.frame_reader import Broker, FrameBatch
from dissector.packets.block import Int64
from dissector.problems import Problem
from dissector.tables import brokers, clusters, errors, exchanges, topics
from dissector.tables.connections import Connections
from dissector.tables.problems import decode_problems, problem_rows

if TYPE_CHECKING:
    from dissector.tables.batches import BatchRows
    from dissector.tables.memberships import MembershipRows
    from dissector.tables.partitions import PartitionRows
    from dissector.tables.pending import PendingRows
    from dissector.tables.records import RecordRows
    from dissector.tables.transactions import TransactionRows

TABLE_ORDER = (
    "exchanges", "errors", "topics", "brokers", "clusters", "partitions", "memberships",
    "transactions", "batches", "decompressed_batches", "records", "problems",
)  # fmt: skip
"""The tables that blocks have rows of, in the order in which they are built."""

RECORD_TABLES = frozenset({"batches", "decompressed_batches", "records"})
"""Tables that are built from record batches."""


class TableRows(NamedTuple):
    """Rows of one table from one block."""

    table: str
    batch: pa.RecordBatch
    """In the schema of the table; for `topics`, see `topics.topic_states`."""


class TableBuilder:
    """Correlates frames and builds rows of the wanted tables."""

    def __init__(
        self, wanted: Collection[str], names: TopicNames, connections: Connections,
        captures: Sequence[str], *, request_wait: int | None = None, keep_frames: bool = False,
        with_sequences: bool = False, dictionaries: bool = False, memory: int = PENDING_BYTES,
    ) -> None:  # fmt: skip
        """`wanted`: tables to build. `with_sequences`: see `exchanges.SEQUENCES`. `dictionaries`:
        texts of `exchanges` are dictionaries.

        Other options: see `Correlator`.
        """
        self.wanted = frozenset(wanted)
        self.names = names
        self.connections = connections
        self._captures = captures
        self._with_sequences = with_sequences
        self._dictionaries = dictionaries
        self.correlator = Correlator(
            names, tables=wanted, request_wait=request_wait, keep_frames=keep_frames,
            memory=memory,
        )  # fmt: skip
        self._pending_tables = _pending_tables(self.wanted, names)
        self._batches: dict[str, BatchRows] = {}
        self._records: RecordRows | None = None
        if self.wanted & RECORD_TABLES:
            from dissector.tables.batches import BatchRows
            from dissector.tables.records import RecordRows

            if "batches" in wanted:
                self._batches["batches"] = BatchRows(names)
            if "decompressed_batches" in wanted:
                self._batches["decompressed_batches"] = BatchRows(names, decompress=True)
            if "records" in wanted:
                self._records = RecordRows(names, memory)
        self._waiting: dict[str, PendingRows | RecordRows] = {
            **self._pending_tables, **self._batches,
        }  # fmt: skip
        """Rows that wait for responses, by table."""
        if self._records is not None:
            self._waiting["records"] = self._records
        self.brokers: list[Broker] = []
        """Brokers in the responses of the latest batch of frames."""

    def forget(self, connections: Int64) -> None:
        """Drop the state of connections outside `Correlator.pending_connections`."""
        self.correlator.forget(connections)
        self.connections.forget(connections)

    def remove(self, connections: Int64) -> None:
        """Drop these connections, as if no message of them had been seen."""
        self.discard(connections)
        self.forget(connections)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of all that waits for responses or requests."""
        size = self.correlator.waiting_bytes
        if self._records is not None:
            size += sum(part.rows.nbytes for part in self._records.pending)
        return size

    def take_rows(self) -> dict[str, Any]:
        """The rows that wait for responses, by table."""
        return {name: each.pending for name, each in self._waiting.items()}

    def put(
        self, rows: Int64, states: ExchangeStates, waiting: Mapping[str, Any], row_of: Int64
    ) -> None:
        """Set the state of connections. `rows`: the row of each one.

        `waiting`: what `take_rows` returned. `row_of`: the row of each connection by its row there.
        """
        ids = self.correlator.put(rows, states)
        for name, each in self._waiting.items():
            if waiting[name] is not None and len(ids.before):
                each.put(waiting[name], ids, row_of)

    def discard(self, connections: Int64) -> None:
        """Drop all that waits in these connections, whose state will be put."""
        ids = self.correlator.discard(connections)
        if len(ids):
            for each in self._waiting.values():
                each.discard(ids)

    def correlate(self, batch: FrameBatch) -> Iterator[tuple[CorrelatedBlock, list[Problem]]]:
        """The correlated blocks of a batch of frames, and the problems so far of each."""
        self.brokers = []
        while batch.frames:
            frames = batch.frames.popleft()
            is_last_block = not batch.frames
            last = batch.is_last and is_last_block
            now = batch.now if is_last_block else 0  # all frames come before any request expires
            block = self.correlator.feed(
                frames, now, batch.ended & is_last_block, batch.client_held_since, last=last
            )
            for messages in (block.request, block.response):
                self.names.learn(messages.fields)
            self.brokers += self.connections.learn(block)
            problems = [*batch.problems, *frames.problems] if is_last_block else frames.problems
            if block.evicted:
                problems = [*problems, _eviction_problem(block.evicted, batch.now)]
            del frames  # so that the memory of their bytes is free for the next block
            yield block, problems
            del block

    def rows(self, batch: FrameBatch) -> Iterator[TableRows]:
        """The rows of a batch of frames: for each block, the tables in `TABLE_ORDER`."""
        for block, problems in self.correlate(batch):
            yield from self.block_rows(block, problems)
            del block

    def learn(self, batch: FrameBatch) -> None:
        """Take the state after a batch of frames, without its rows."""
        for block, _ in self.correlate(batch):
            if block.is_empty:
                continue
            for table in self._pending_tables.values():
                table.rows(block)
            if self.wanted & RECORD_TABLES:
                for _ in self._record_tables(block, []):
                    pass

    def block_rows(self, block: CorrelatedBlock, problems: list[Problem]) -> Iterator[TableRows]:
        """The rows of one block. `problems`: its problems so far."""
        if block.is_empty:
            if "problems" in self.wanted:
                yield TableRows("problems", problem_rows(problems))
            return
        names, wanted = self.names, self.wanted
        if "exchanges" in wanted:
            rows = exchanges.exchanges(
                block, names, self.connections, self._captures,
                with_sequences=self._with_sequences, dictionaries=self._dictionaries,
            )  # fmt: skip
            yield TableRows("exchanges", rows)
        if "errors" in wanted:
            yield TableRows("errors", errors.errors(block, names, self.connections))
        if "topics" in wanted:
            yield TableRows("topics", topics.topic_states(block))
        if "brokers" in wanted:
            yield TableRows("brokers", brokers.brokers(block))
        if "clusters" in wanted:
            yield TableRows("clusters", clusters.clusters(block, self.connections))
        for name, table in self._pending_tables.items():
            yield TableRows(name, table.rows(block))
        message_problems: list[Problem] = []
        if wanted & RECORD_TABLES:
            yield from self._record_tables(block, message_problems)
        if "problems" in wanted:
            message_problems += decode_problems(block, self._captures)
            message_problems.sort(key=_connection)
            yield TableRows("problems", problem_rows([*problems, *message_problems]))

    def _record_tables(
        self, block: CorrelatedBlock, problems: list[Problem]
    ) -> Iterator[TableRows]:
        """The rows of the tables of record batches. Problems are appended to `problems`."""
        from dissector.tables.record_batches import batch_problems, carried_batches

        columns = carried_batches(block)
        problems += batch_problems(columns)
        for name, batches in self._batches.items():
            yield TableRows(name, batches.rows(block, columns))
        if self._records is not None:
            for rows in self._records.completed(block, columns, problems):
                yield TableRows("records", rows)


def _pending_tables(
    wanted: Collection[str], names: TopicNames
) -> dict[str, PartitionRows | MembershipRows | TransactionRows]:
    """The wanted tables whose rows wait for responses; their modules take long to import."""
    tables: dict[str, PartitionRows | MembershipRows | TransactionRows] = {}
    if "partitions" in wanted:
        from dissector.tables.partitions import PartitionRows

        tables["partitions"] = PartitionRows(names)
    if "memberships" in wanted:
        from dissector.tables.memberships import MembershipRows

        tables["memberships"] = MembershipRows()
    if "transactions" in wanted:
        from dissector.tables.transactions import TransactionRows

        tables["transactions"] = TransactionRows()
    return tables


def _connection(problem: Problem) -> int:
    return -1 if problem.connection_id is None else problem.connection_id


def _eviction_problem(count: int, now: int) -> Problem:
    are = "request or response is" if count == 1 else "requests and responses are"
    detail = f"memory limit reached: {count} {are} no longer kept for matching"
    return Problem("exchanges", "memory", detail, time=now)
