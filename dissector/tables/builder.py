"""Telling: from frames to rows, a stretch at a time.

Connections do not concern each other here, but for what the whole capture settles: names of topics
by their ids, the brokers that messages name, and which tellings of a topic are news. So frames may
be shared out by connection among several processes, and the rows of all be put together again, in
an order that does not depend on how many there are: by time and connection, which every table has;
only `records` go by the rank of their group, and then by connection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pyarrow as pa

from dissector.exchanges.correlator import REQUEST_WAIT, WAITING_BYTES, Conversation, Turn
from dissector.exchanges.topic_names import TopicNames
from dissector.frame_reader import Broker, Stretch
from dissector.packets.block import Int64
from dissector.problems import Problem
from dissector.tables import errors, exchanges, topics
from dissector.tables.connections import Connections
from dissector.tables.problems import decode_problems, problem_rows

if TYPE_CHECKING:
    from dissector.tables.records import BatchRows, RecordRows

Rank: TypeAlias = tuple[int | tuple[str, ...], ...]
"""Where a batch stands among those of its table and turn."""

IN_TURN = (
    "exchanges", "errors", "topics", "partitions", "memberships", "transactions", "batches",
    "decompressed_batches", "records", "problems",
)  # fmt: skip
"""The tables that turns have rows of, in the order in which they come."""

CARRIED = frozenset({"batches", "decompressed_batches", "records"})
"""Those that are made of what messages carry."""


class Rows(NamedTuple):
    """Rows of one table that one turn brought."""

    table: str
    batch: pa.RecordBatch
    """In the schema of the table; of `topics`, see `topics.told`."""
    rank: Rank | None = None
    """None where they are all rows of the turn."""


class Telling:
    """Makes rows of frames."""

    def __init__(
        self, wanted: Collection[str], names: TopicNames, connections: Connections,
        captures: Sequence[str], *, request_wait: int = REQUEST_WAIT, keep_frames: bool = False,
        memory: int = WAITING_BYTES,
    ) -> None:  # fmt: skip
        """`wanted`: the tables to be filled. The options: see `Conversation`."""
        self._wanted = frozenset(wanted)
        self.names = names
        self.connections = connections
        self._captures = captures
        self._conversation = Conversation(
            names, tables=wanted, request_wait=request_wait, keep_frames=keep_frames,
            memory=memory,
        )  # fmt: skip
        self._after_a_wait: dict[str, Callable[[Turn], pa.RecordBatch]] = {}
        if "partitions" in wanted:
            from dissector.tables.partitions import PartitionRows

            self._after_a_wait["partitions"] = PartitionRows(names).rows
        if "memberships" in wanted:
            from dissector.tables.memberships import MembershipRows

            self._after_a_wait["memberships"] = MembershipRows().rows
        if "transactions" in wanted:
            from dissector.tables.transactions import TransactionRows

            self._after_a_wait["transactions"] = TransactionRows().rows
        self._batches: dict[str, BatchRows] = {}
        self._records: RecordRows | None = None
        if self._wanted & CARRIED:
            from dissector.tables.records import BatchRows, RecordRows

            self._batches = {
                "batches": BatchRows(names),
                "decompressed_batches": BatchRows(names, decompress=True),
            }
            self._records = RecordRows(names, memory)
        self.brokers: list[Broker] = []
        """Those that the stretch named."""

    @property
    def busy(self) -> Int64:
        """Connections of which a message waits for another."""
        return self._conversation.busy

    def forget(self, connections: Int64) -> None:
        """Let go of these connections, none of which is `busy`."""
        self._conversation.forget(connections)
        self.connections.forget(connections)

    @property
    def in_flight(self) -> int:
        """Requests that wait for a response."""
        return self._conversation.in_flight

    def turns(self, stretch: Stretch) -> Iterator[tuple[Turn, list[Problem]]]:
        """A turn for each part of a stretch, and what could not be read of it so far."""
        self.brokers = []
        while stretch.frames:
            frames = stretch.frames.popleft()
            more = len(stretch.frames) > 0
            last = stretch.is_last and not more
            turn = self._conversation.feed(
                frames, stretch.now, stretch.ended & (not more), last=last
            )
            for side in (turn.request, turn.response):
                self.names.learn(side.facts)
            self.brokers += self.connections.learn(turn)
            problems = frames.problems if more else [*stretch.problems, *frames.problems]
            if turn.crowded:
                problems = [*problems, _crowded(turn.crowded, stretch.now)]
            del frames  # so that the memory of their bytes serves the next block
            yield turn, problems
            del turn

    def rows(self, stretch: Stretch) -> Iterator[Rows]:
        """The rows of a stretch, as `IN_TURN` says, for each of its turns."""
        for turn, problems in self.turns(stretch):
            yield from self.rows_of(turn, problems)
            del turn

    def rows_of(self, turn: Turn, problems: list[Problem]) -> Iterator[Rows]:
        """The rows of one of these turns, with what could not be read of it so far."""
        if turn.is_empty:
            if self._records is not None:
                self._records.skip()
            if "problems" in self._wanted:
                yield Rows("problems", problem_rows(problems))
            return
        names, wanted = self.names, self._wanted
        if "exchanges" in wanted:
            batch = exchanges.exchanges(turn, names, self.connections, self._captures)
            yield Rows("exchanges", batch)
        if "errors" in wanted:
            yield Rows("errors", errors.errors(turn, names, self.connections))
        if "topics" in wanted:
            yield Rows("topics", topics.told(turn))
        for name, waiting in self._after_a_wait.items():
            if name in wanted:
                yield Rows(name, waiting(turn))
        more: list[Problem] = []
        if wanted & CARRIED:
            yield from self._carried(turn, more)
        if "problems" in wanted:
            more += decode_problems(turn, self._captures)
            more.sort(key=lambda problem: -1 if (row := problem.connection_id) is None else row)
            yield Rows("problems", problem_rows([*problems, *more]))

    def _carried(self, turn: Turn, problems: list[Problem]) -> Iterator[Rows]:
        """Rows of what messages carry; what of it could not be read goes to `problems`."""
        from dissector.tables import records

        found = records.carried(turn)
        problems += records.batch_problems(found)
        for name, batches in self._batches.items():
            if name in self._wanted:
                yield Rows(name, batches.rows(turn, found))
        if self._records is not None and "records" in self._wanted:
            for batch, rank in self._records.rows(turn, found, problems):
                yield Rows("records", batch, rank)


def _crowded(count: int, now: int) -> Problem:
    detail = f"memory did not suffice to wait any longer for what {count} messages wait for"
    return Problem("conversation", "memory", detail, time=now)
