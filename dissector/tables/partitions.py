"""Rows of the table `partitions`: what exchanges tell of the offsets of each partition.

A page gives the role `offsets_of` to the index of a partition whose offsets a message tells or asks
for. Half of a row is in the request (where a Fetch begins to read, what is committed), half in the
response (the high watermark, the error). Either may name a partition that the other does not: in a
fetch session (KIP-227) only what has changed is named. So the halves are laid side by side, and
those of one exchange, group, topic and partition become one row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.correlator import Side, Turn
from dissector.exchanges.decoded_fields import Group
from dissector.exchanges.topic_names import TopicNames, uuid_text
from dissector.packets.block import Int64
from dissector.protocol.field_columns import FieldColumn
from dissector.protocol.notation import Direction
from dissector.records.batch_reader import read_batches
from dissector.tables.arrow import batch, by_code, ints, no_rows, one_chunk, plain
from dissector.tables.pending import Waiting, answered_ids, asked_ids, context
from dissector.tables.schema import PARTITIONS
from dissector.tables.shared_columns import IN_ORDER, error_names

KEY = ("request", "group_id", "topic", "topic_id", "partition")

NUMBERS = {
    "offset": "offset",
    "high_watermark": "high_watermark",
    "last_stable_offset": "last_stable_offset",
    "log_start_offset": "log_start_offset",
    "leader_epoch": "offset_epoch",
    "replica_id": "replica_id",
    "told_leader": "told_leader",
    "told_leader_epoch": "told_leader_epoch",
    "done_count": "done_count",
    "told_lag": "told_lag",
}
"""The role of each column that is a number beside the partition, and is never below 0."""

SIGNED = {"asked_timestamp": "offset_timestamp", "error_code": "error_code"}
"""The role of each that may be."""

CARRIED = ("bytes", "record_count", "last_offset")
"""What the records beside the partition tell."""


class PartitionRows:
    """Rows of `partitions`."""

    def __init__(self, names: TopicNames) -> None:
        self._names = names
        self._waiting = Waiting()

    def rows(self, turn: Turn) -> pa.RecordBatch:
        """The partitions of the exchanges that have ended with this turn."""
        asked = self._half(turn.request, turn, turn.new + np.arange(len(turn.request.heads)))
        told = self._half(turn.response, turn, turn.answered)
        halves = pa.concat_tables([self._waiting.ended(turn, asked), told])
        if not len(halves):
            return no_rows(PARTITIONS)
        topic = self._names.complete(one_chunk(halves["topic"]))
        halves = halves.set_column(halves.schema.get_field_index("topic"), "topic", topic)
        halves = halves.append_column("at", pa.array(np.arange(len(halves))))
        values = [*NUMBERS, *SIGNED, *CARRIED]
        table = (
            halves.group_by(KEY, use_threads=False)
            .aggregate([*((name, "max") for name in values), ("at", "min")])
            .rename_columns([*KEY, *values, "at"])
            .sort_by([("request", "ascending"), ("at", "ascending")])
        )
        around = context(turn, ints(table, "request"))
        columns: dict[str, Any] = {name: table[name] for name in table.column_names}
        columns |= around
        columns["error_code"] = _errors(turn, table, around["response"])
        columns["error"] = error_names(columns["error_code"])
        columns["last_offset"] = _last_offsets(table)
        found = batch(PARTITIONS, columns)
        return found.take(pc.sort_indices(found, sort_keys=IN_ORDER))

    def _half(self, side: Side, turn: Turn, row: Int64) -> pa.Table:
        """What the messages of one direction tell; `row` is the row of each one's request."""
        ids = asked_ids(turn) if side is turn.request else answered_ids(turn)
        groups = plain(turn.requests["group_id"].take(pa.array(row))).combine_chunks()
        parts = [
            self._told(side.messages.direction, group, column, ids, groups)
            for group, column in side.facts.columns("offsets_of")
        ]
        return pa.concat_tables([_NONE, *parts])

    def _told(
        self, direction: Direction, group: Group, column: FieldColumn, ids: Int64, groups: pa.Array
    ) -> pa.Table:
        assert column.values is not None
        every = np.arange(len(column.row), dtype=np.int64)
        message = group.message(column)
        topic = group.texts_beside(column, "topic", every).cast(pa.string())
        topic_id = group.uuids_beside(column, "topic_id", every)
        named = self._names.resolve(topic_id).cast(pa.string())
        group_id = group.texts_beside(column, "group_id", every).cast(pa.string())
        columns: dict[str, Any] = {
            "request": ids[message],
            "group_id": pc.coalesce(group_id, groups.take(pa.array(message))),
            "topic": pc.coalesce(topic, named),
            "topic_id": by_code(topic_id, uuid_text, pa.string()),
            "partition": column.values.astype(np.int64),
        }
        for name, role in NUMBERS.items():
            found = group.numbers_beside(column, role, every)
            columns[name] = pc.if_else(pc.less(found, 0), None, found)
        for name, role in SIGNED.items():
            columns[name] = group.numbers_beside(column, role, every)
        columns |= _records(group, column)
        if direction == Direction.REQUEST:  # its batches count from 0
            columns["last_offset"] = pa.nulls(len(every), pa.int64())
        return pa.table(columns, schema=_NONE.schema)


_NONE = pa.table(
    {
        name: pa.nulls(0, pa.string() if name in ("group_id", "topic", "topic_id") else pa.int64())
        for name in (*KEY, *NUMBERS, *SIGNED, *CARRIED)
    }
)


def _records(group: Group, column: FieldColumn) -> dict[str, pa.Array]:
    """`CARRIED`: what the headers of the batches beside each partition tell; null without any.

    A batch that is cut by the fetch limit does not count: its reader fetches it again.
    """
    found = group.beside(column, "records")
    if found is None:
        return dict.fromkeys(CARRIED, pa.nulls(len(column.row), pa.int64()))
    records, index = found
    assert records.length is not None
    length = np.where(index < 0, 0, np.maximum(records.length[index], 0))
    batches = read_batches(group.space, records.at[index], length, verify=False)
    whole = ~batches.truncated
    field, told = batches.field[whole], batches.record_count[whole] >= 0
    count, last = np.zeros(len(length), np.int64), np.full(len(length), -1)
    np.add.at(count, field[told], batches.record_count[whole][told])
    np.maximum.at(last, field, batches.last_offset[whole])
    unclear = np.zeros(len(length), np.bool_)
    unclear[field[~told]] = True  # a compressed message set tells no count
    return {
        "bytes": pa.array(length, mask=length == 0),
        "record_count": pa.array(count, mask=(length == 0) | unclear),
        "last_offset": pa.array(last, mask=last < 0),
    }


def _last_offsets(table: pa.Table) -> pa.ChunkedArray:
    """Of the records: a producer does not know their offsets, but how many follow the first."""
    produced = pc.subtract(pc.add(table["offset"], table["record_count"]), 1)
    return pc.coalesce(table["last_offset"], produced)


def _errors(turn: Turn, table: pa.Table, response: Int64) -> pa.ChunkedArray:
    """The code of the partition; where the response does not name it, that of the whole."""
    facts = turn.response.facts
    code = np.zeros(len(turn.answered), np.int64)
    for group, column in facts.columns("error_code"):
        assert column.values is not None
        failed = np.flatnonzero(column.values)
        if len(failed) and group.beside(column, "partition") is None:
            code[group.message(column)[failed]] = column.values[failed]
    whole = pa.array(code, mask=~facts.good).take(pa.array(response, mask=response < 0))
    return pc.coalesce(table["error_code"], whole)
