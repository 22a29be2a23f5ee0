"""Rows of the tables `batches` and `records`.

Record batches travel in Produce requests and in the responses of Fetch and its kin: wherever a page
gives a field the role `records`. Batch headers are read for `batches`; records only for `records`,
since that means to decompress.

Offsets of produced records and batches are those of the response, which alone knows them. So these
rows wait for their response, records up to a number of bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissector.exchanges.correlator import Side, Turn
from dissector.exchanges.decoded_fields import Group
from dissector.exchanges.topic_names import TopicNames, uuid_text
from dissector.packets.block import Int64
from dissector.problems import Problem
from dissector.protocol.field_columns import FieldColumn
from dissector.records.arrow import records_table
from dissector.records.batch_headers import CODECS, TIMESTAMP_TYPES, Batches, take
from dissector.records.batch_reader import read_batches
from dissector.records.record_columns import Records
from dissector.records.record_reader import decompressed_sizes, read_records
from dissector.streams.byteview import ByteView
from dissector.tables.arrow import batch as as_table
from dissector.tables.arrow import by_code, ints, no_rows, one_chunk, plain
from dissector.tables.pending import answered_ids
from dissector.tables.schema import BATCHES, RECORDS
from dissector.tables.shared_columns import IN_ORDER, api_of

PRODUCE = 0
_WAITED = -1
"""Rank of rows that waited, before all others."""
NS_PER_MS = 10**6
MAX_MS = (1 << 63) // NS_PER_MS - 1
"""Times beyond, in the year 2262, do not fit into ns."""


Rank: TypeAlias = tuple[int | tuple[str, ...], ...]
"""Where rows stand among those of their table and turn."""


@dataclass(frozen=True, slots=True)
class Carried:
    """The batches in one column of `records` fields."""

    side: Side
    row: Int64
    """Row of `Turn.requests` of each message of the side."""
    group: Group
    column: FieldColumn
    batches: Batches
    """By connection."""

    @property
    def rank(self) -> Rank:
        """Where it stands among all of a turn."""
        messages, first = self.side.messages, self.group.messages[0]
        kind = (messages.api_key[first], messages.version[first], messages.space[first])
        return messages.direction, *map(int, kind), self.column.path

    @property
    def message(self) -> Int64:
        """Message of the side that carries each batch."""
        return self.group.message(self.column)[self.batches.field]


def carried(turn: Turn) -> list[Carried]:
    """All batches of a turn, by rank: those produced, then those fetched."""
    found = []
    asked = turn.new + np.arange(len(turn.request.heads))
    for side, row in ((turn.request, asked), (turn.response, turn.answered)):
        for group, column in side.facts.columns("records"):
            assert column.length is not None
            batches = read_batches(group.space, column.at, column.length)
            connection = side.heads.connection[group.message(column)]
            found.append(Carried(side, row, group, column, _sorted(batches, connection)))
    return sorted(found, key=lambda each: each.rank)


def _sorted(batches: Batches, connection: Int64) -> Batches:
    """The batches by connection, which is given by field."""
    who = connection[batches.field]
    if (who[1:] >= who[:-1]).all():
        return batches
    found = take(batches, np.argsort(who, kind="stable"))
    return replace(found, cut_headers=batches.cut_headers, problems=batches.problems)


class BatchRows:
    """Rows of `batches`, or of `decompressed_batches`."""

    def __init__(self, names: TopicNames, *, decompress: bool = False) -> None:
        self._names = names
        self._decompress = decompress
        self._waiting: pa.Table | None = None

    def rows(self, turn: Turn, found: Sequence[Carried]) -> pa.RecordBatch:
        """The batches whose row is complete with this turn."""
        tables = [self._describe(turn, each) for each in found if len(each.batches)]
        if self._waiting is not None:
            tables.insert(0, self._waiting)
        if not tables:
            return no_rows(BATCHES)
        table = pa.concat_tables(tables).combine_chunks()
        over = np.concatenate([turn.answered, turn.silent, turn.unanswered])
        ended = pa.array(ints(turn.requests, "id")[over])
        waits = pc.and_(table["produced"], pc.invert(pc.is_in(table["request"], ended)))
        self._waiting = table.filter(waits)
        done = table.filter(pc.invert(waits)).sort_by(IN_ORDER).combine_chunks()
        columns = {name: done[name] for name in done.column_names}
        columns["error_code"] = pc.coalesce(done["error_code"], _answers(turn, done))
        produced = done["produced"]
        first = pc.add(_given_offsets(turn, done), done["place"])
        last = pc.subtract(pc.add(first, done["offsets"]), 1)
        columns["base_offset"] = pc.if_else(produced, first, done["base_offset"])
        columns["last_offset"] = pc.if_else(produced, last, done["last_offset"])
        columns["topic"] = self._names.complete(one_chunk(done["topic"]))
        return as_table(BATCHES, columns)

    def _describe(self, turn: Turn, each: Carried) -> pa.Table:
        """The columns of `batches`, with `produced`, and `request`, the id of the request."""
        batches = each.batches
        columns = context(turn, each, self._names) | header_columns(batches)
        if self._decompress:
            columns |= size_column(each.group.space, batches)
        produced = each.side is turn.request
        count = len(batches)
        return pa.table(
            {
                **columns,
                "request": turn.requests["id"].take(pa.array(each.row[each.message])),
                "produced": pa.array(np.full(count, produced)),
                **_places(batches),
                "error_code": pa.nulls(count, pa.int64())
                if produced
                else each.group.numbers_beside(each.column, "error_code", batches.field),
            }
        )


def header_columns(batches: Batches) -> dict[str, Any]:
    """What the headers of batches tell: columns of `batches` by those names."""
    return {
        "base_offset": pa.array(batches.base_offset, mask=batches.base_offset < 0),
        "last_offset": pa.array(batches.last_offset, mask=batches.last_offset < 0),
        "record_count": pa.array(batches.record_count, mask=batches.record_count < 0),
        "magic": batches.magic,
        "codec": _words(CODECS, batches.codec),
        "timestamp_type": _words(TIMESTAMP_TYPES, batches.timestamp_type),
        "base_timestamp": milliseconds(batches.base_timestamp),
        "max_timestamp": milliseconds(batches.max_timestamp),
        "leader_epoch": pa.array(batches.leader_epoch, mask=batches.leader_epoch < 0),
        "producer_id": pa.array(batches.producer_id, mask=batches.producer_id < 0),
        "producer_epoch": pa.array(batches.producer_epoch, mask=batches.producer_epoch < 0),
        "base_sequence": pa.array(batches.base_sequence, mask=batches.base_sequence < 0),
        "is_transactional": batches.is_transactional,
        "is_control": batches.is_control,
        "bytes": batches.size,
        "uncompressed_bytes": pa.array(batches.size, mask=(batches.codec != 0) | batches.truncated),
        "crc_ok": pa.array(batches.crc_ok == 1, mask=batches.crc_ok < 0),
        "truncated": batches.truncated,
    }


def size_column(space: ByteView, batches: Batches) -> dict[str, Any]:
    """The column that `decompressed_batches` has more of than `header_columns`."""
    sizes = decompressed_sizes(space, batches)
    return {"uncompressed_bytes": pa.array(sizes, mask=sizes < 0)}


@dataclass(frozen=True, slots=True)
class _Read:
    """Rows of `records`, as they were read."""

    rank: Rank
    rows: pa.RecordBatch
    batch: Int64
    """Index of each row's batch in `batches`."""
    batches: pa.Table
    """Columns `request`, `topic`, `topic_id` and `partition`."""
    place: pa.Array | None
    """Of each produced record among those for its partition, from 0; None for fetched records."""

    def where(self, chosen: NDArray[np.bool_]) -> _Read:
        """Some of the rows."""
        if chosen.all():
            return self
        mask = pa.array(chosen)
        place = None if self.place is None else self.place.filter(mask)
        return replace(self, rows=self.rows.filter(mask), batch=self.batch[chosen], place=place)


class RecordRows:
    """Rows of `records`. Those that are produced wait for the response, which has their offset."""

    def __init__(self, names: TopicNames, memory: int) -> None:
        """`memory`: bytes of rows that may wait, beside those of one block."""
        self._names = names
        self._memory = memory
        self._turns = 0
        self._waiting: list[_Read] = []

    def rows(
        self, turn: Turn, found: Sequence[Carried], problems: list[Problem]
    ) -> Iterator[tuple[pa.RecordBatch, Rank]]:
        """The rows that are complete with this turn, some thousands at a time, and their rank.

        What could not be read goes into `problems`.
        """
        self._turns += 1
        over = np.concatenate([turn.answered, turn.silent, turn.unanswered])
        ended = ints(turn.requests, "id")[over]
        waiting, self._waiting = self._waiting, []
        crowded = self._crowded(waiting)
        if crowded:
            problems.append(_no_memory(crowded, turn))
            yield from ((_with_offsets(None, each), each.rank) for each in crowded)
        for each in waiting[len(crowded) :]:
            yield from self._complete(turn, each, ended)
        for carried in found:
            for each in _read(turn, carried, self._names, problems):
                yield from self._complete(turn, each, ended)

    def skip(self) -> None:
        """Count a turn that has no messages, so that ranks are those of other processes."""
        self._turns += 1

    def _complete(
        self, turn: Turn, read: _Read, ended: Int64
    ) -> Iterator[tuple[pa.RecordBatch, Rank]]:
        """The rows whose exchange has ended; the others wait."""
        if read.place is None:
            yield read.rows, read.rank
            return
        is_complete = np.isin(ints(read.batches, "request"), ended)[read.batch]
        if is_complete.any():
            yield _with_offsets(turn, read.where(is_complete)), read.rank
        if not is_complete.all():
            rank = read.rank if read.rank[0] == _WAITED else (_WAITED, self._turns, *read.rank)
            self._waiting.append(replace(read.where(~is_complete), rank=rank))

    def _crowded(self, waiting: Sequence[_Read]) -> Sequence[_Read]:
        """The oldest of these, which may not wait because memory is needed."""
        size = np.cumsum([each.rows.nbytes for each in reversed(waiting)])
        kept = int(np.searchsorted(size, self._memory, side="right"))
        return waiting[: len(waiting) - kept]


def _read(
    turn: Turn, carried: Carried, names: TopicNames, problems: list[Problem]
) -> Iterator[_Read]:
    """Rows of `records`, some thousands at a time."""
    if not len(carried.batches):
        return
    around = context(turn, carried, names)
    near = pa.table({name: around[name] for name in around if name in RECORDS.schema.names})
    request = turn.requests["id"].take(pa.array(carried.row[carried.message]))
    keys = ("topic", "topic_id", "partition")
    batches = pa.table({"request": request, **{name: around[name] for name in keys}})
    place = _places(carried.batches)["place"] if carried.side is turn.request else None
    seen = np.zeros(len(carried.batches), np.int64)
    for part in read_records(carried.group.space, carried.batches):
        problems += [
            _placed(problem, carried, int(carried.message[index]))
            for index, problem in part.problems
        ]
        rows, batch = rows_of(part, carried.batches, near)
        behind = (
            None
            if place is None
            else pc.add(
                place.take(pa.array(batch)), pa.array(_within(carried.batches, rows, batch, seen))
            )
        )
        yield _Read(carried.rank, rows, batch, batches, behind)


def _within(batches: Batches, rows: pa.RecordBatch, batch: Int64, seen: Int64) -> Int64:
    """Number of each record in its batch, from 0. `seen`: records of each batch so far."""
    first = np.searchsorted(batch, batch)
    number = seen[batch] + np.arange(len(batch)) - first
    seen += np.bincount(batch, minlength=len(seen))
    # A record batch says how far its records are apart; of older messages only the order counts.
    delta = rows["offset"].to_numpy() - batches.base_offset[batch]
    return np.where(batches.magic[batch] == 2, delta, number)


def _with_offsets(turn: Turn | None, read: _Read) -> pa.RecordBatch:
    """The produced rows with the offsets that the response gives; null without a response."""
    offset = pa.nulls(len(read.rows), pa.int64())
    if turn is not None:
        offset = pc.add(_given_offsets(turn, read.batches).take(pa.array(read.batch)), read.place)
    at = read.rows.schema.get_field_index("offset")
    return read.rows.set_column(at, read.rows.schema.field(at), offset)


def _no_memory(crowded: Sequence[_Read], turn: Turn) -> Problem:
    count = sum(len(each.rows) for each in crowded)
    detail = f"memory did not suffice to wait for the offsets of {count} produced records"
    times = turn.request.heads.time
    return Problem("records", "memory", detail, time=int(times.max()) if len(times) else None)


def rows_of(part: Records, batches: Batches, near: pa.Table) -> tuple[pa.RecordBatch, Int64]:
    """Rows of `records`, and the batch of each.

    `near` has the columns that all records of a batch share, batch by batch.

    `decoded` is null: what Kafka's own records say is told when topics have their names.
    """
    rows = records_table(part, batches)
    of_batch = near.take(rows.column("batch"))
    columns = {name: of_batch[name] for name in near.column_names}
    columns |= {name: rows.column(name) for name in rows.schema.names}
    columns["timestamp"] = milliseconds(rows.column("timestamp").to_numpy())
    columns["decoded"] = pa.nulls(len(rows), pa.string())
    return as_table(RECORDS, columns), rows.column("batch").to_numpy()


def batch_problems(found: Sequence[Carried]) -> list[Problem]:
    """What of the `records` fields could not be read as batches."""
    return [
        _placed(problem, each, int(each.group.message(each.column)[field]))
        for each in found
        for field, problem in each.batches.problems
    ]


def context(turn: Turn, each: Carried, names: TopicNames) -> dict[str, Any]:
    """What the message around each batch tells: columns of `batches` by those names."""
    field, message = each.batches.field, each.message
    request = turn.requests.take(pa.array(each.row[message]))
    topic_id = each.group.uuids_beside(each.column, "topic_id", field)
    topic = each.group.texts_beside(each.column, "topic", field).cast(pa.string())
    return {
        "connection_id": request["connection"],
        "correlation_id": request["correlation_id"],
        "time": each.side.heads.time[message],
        "api": api_of(request),
        "client_id": plain(request["client_id"]),
        "topic": pc.coalesce(topic, names.resolve(topic_id).cast(pa.string())),
        "topic_id": by_code(topic_id, uuid_text, pa.string()),
        "partition": each.group.numbers_beside(each.column, "partition", field),
    }


def milliseconds(value: Int64) -> pa.Array:
    """Kafka's ms as the tables' ns; null for -1, which is none, and for what ns cannot hold."""
    none = (value < 0) | (value > MAX_MS)
    return pa.array(np.where(none, 0, value) * NS_PER_MS, mask=none)


def _answers(turn: Turn, done: pa.Table) -> pa.Array:
    """What was answered for the partition of each batch; null where nothing was, or unclear."""
    told = _told(turn)
    code = np.zeros(len(done), np.int64)
    request = ints(done, "request")
    failed = np.flatnonzero(np.isin(request, [key[0] for key in told]))
    if len(failed):
        some = done.take(pa.array(failed))
        topics = pc.coalesce(some["topic_id"], some["topic"]).to_pylist()
        partitions = some["partition"].to_pylist()
        rows = zip(request[failed].tolist(), topics, partitions, strict=True)
        code[failed] = [told.get(key, 0) for key in rows]
    heard = ints(turn.requests, "id")[turn.answered[turn.response.facts.good]]
    return pa.array(code, mask=~np.isin(request, heard))


def _told(turn: Turn) -> dict[tuple[int, str, int], int]:
    """Error codes that are not 0, by id of the request, topic or its id, and partition."""
    told: dict[tuple[int, str, int], int] = {}
    ids = ints(turn.requests, "id")[turn.answered]
    for group, column in turn.response.facts.columns("error_code"):
        assert column.values is not None
        select = np.flatnonzero(column.values)
        topic_id = by_code(group.uuids_beside(column, "topic_id", select), uuid_text, pa.string())
        topic = group.texts_beside(column, "topic", select).cast(pa.string())
        keys = zip(
            ids[group.message(column)[select]].tolist(),
            pc.coalesce(topic_id, topic).to_pylist(),
            group.numbers_beside(column, "partition", select).to_pylist(),
            strict=True,
        )
        told.update(zip(keys, column.values[select].tolist(), strict=True))
    return told


def _places(batches: Batches) -> dict[str, pa.Array]:
    """`place`: how many offsets the batches before each one in its field take; `offsets`: how many
    it takes itself. Null where a compressed message set does not tell its number."""
    newest = batches.magic == 2
    count = np.where(newest, batches.last_offset - batches.base_offset + 1, batches.record_count)
    unknown = count < 0
    count = np.where(unknown, 0, count)
    same = np.append(False, batches.field[1:] == batches.field[:-1])[: len(count)]
    first = np.maximum.accumulate(np.where(same, 0, np.arange(len(count))))

    def before(values: Int64) -> Int64:
        """Their sum over the batches before each one in its field."""
        total = np.cumsum(values) - values
        sums: Int64 = total - total[first]
        return sums

    return {
        "place": pa.array(before(count), mask=before(unknown.astype(np.int64)) > 0),
        "offsets": pa.array(count, mask=unknown),
    }


def _given_offsets(turn: Turn, batches: pa.Table) -> pa.Array:
    """The offset that the response gives to the first record for the partition of each batch; null
    where it gives none. `batches`: columns `request`, `topic`, `topic_id` and `partition`."""
    parts = []
    for group, column in turn.response.facts.columns("offset"):
        if turn.response.messages.api_key[group.messages[0]] != PRODUCE:
            continue
        every = np.arange(len(column.row), dtype=np.int64)
        offset = _values(column)
        failed = pc.not_equal(group.numbers_beside(column, "error_code", every), 0)
        topic_id = by_code(group.uuids_beside(column, "topic_id", every), uuid_text, pa.string())
        topic = group.texts_beside(column, "topic", every).cast(pa.string())
        parts.append(
            pa.table(
                {
                    "request": answered_ids(turn)[group.message(column)],
                    "key": pc.coalesce(topic_id, topic),
                    "partition": group.numbers_beside(column, "partition", every),
                    "offset": pc.if_else(failed, None, pa.array(offset, mask=offset < 0)),
                }
            )
        )
    if not parts:
        return pa.nulls(len(batches), pa.int64())
    keys = ["request", "key", "partition"]
    given = pa.concat_tables(parts).group_by(keys).aggregate([("offset", "min")])
    wanted = pa.table(
        {
            "request": batches["request"],
            "key": pc.coalesce(batches["topic_id"], batches["topic"]),
            "partition": batches["partition"],
            "row": np.arange(len(batches)),
        }
    )
    joined = wanted.join(given, keys).sort_by("row")
    return one_chunk(joined["offset_min"])


def _values(column: FieldColumn) -> Int64:
    assert column.values is not None
    return column.values.astype(np.int64)


def _words(words: Sequence[str], index: NDArray[np.integer]) -> pa.Array:
    """A word for each index; null where there is none."""
    none = (index < 0) | (index >= len(words))
    return pa.array(words).take(pa.array(np.where(none, 0, index), mask=none))


def _placed(problem: Problem, each: Carried, message: int) -> Problem:
    heads = each.side.heads
    return replace(
        problem,
        time=int(heads.time[message]),
        packet=int(heads.packet[message]),
        connection_id=int(heads.connection[message]),
    )
