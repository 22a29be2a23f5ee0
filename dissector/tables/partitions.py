"""Rows of the table `partitions`: the offsets of partitions in exchanges.

The definition pages give the role `offsets_of` to the partition index of messages with offsets.
Half of a row is in the request (the fetch offset, the committed offset), half in the response (the
high watermark, the error). Either half may be missing: a fetch session (KIP-227) names only changed
partitions. Halves of the same exchange, group, topic and partition become one row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.columns import as_array, with_column
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.decoded_fields import LayoutGroup
from dissector.exchanges.decoded_messages import DecodedMessages
from dissector.exchanges.topic_names import TopicNames
from dissector.packets.block import Int64
from dissector.protocol.field_columns import FieldColumn
from dissector.records.batch_reader import read_batches
from dissector.tables.arrow import empty_batch, to_batch, unless_negative, without_dictionary
from dissector.tables.errors import error_codes
from dissector.tables.pending import PendingRows, with_exchanges
from dissector.tables.schema import PARTITIONS
from dissector.tables.shared_columns import IN_ORDER, column_numbers, error_names, topic_columns

KEY = ("request", "group_id", "topic", "topic_id", "partition")

NUMBERS = {
    "offset": "offset",
    "high_watermark": "high_watermark",
    "last_stable_offset": "last_stable_offset",
    "log_start_offset": "log_start_offset",
    "leader_epoch": "offset_epoch",
    "told_leader": "told_leader",
    "told_leader_epoch": "told_leader_epoch",
    "done_count": "done_count",
    "told_lag": "told_lag",
    "max_bytes": "partition_max_bytes",
    "preferred_replica": "preferred_replica",
}
"""The role of each column of non-negative numbers."""

SIGNED = {"asked_timestamp": "offset_timestamp", "error_code": "error_code"}
"""The role of each column of numbers that may be negative."""

RECORD_COLUMNS = ("bytes", "record_count", "last_offset")
"""Columns that come from the record batches of the partition."""


class PartitionRows(PendingRows):
    """Rows of `partitions`."""

    def __init__(self, names: TopicNames) -> None:
        super().__init__()
        self._names = names

    def rows(self, block: CorrelatedBlock) -> pa.RecordBatch:
        """The partitions of the exchanges that ended in this block."""
        requests = self._half(block.request, block, block.new)
        responses = self._half(block.response, block, block.answered)
        halves = pa.concat_tables([self.completed(block, requests), responses])
        if not len(halves):
            return empty_batch(PARTITIONS)
        topic = self._names.replace_ids(as_array(halves["topic"]))
        halves = with_column(halves, "topic", topic)
        halves = halves.append_column("at", pa.array(np.arange(len(halves))))
        values = ["replica_id", *NUMBERS, *SIGNED, *RECORD_COLUMNS]
        table = (
            halves.group_by(KEY, use_threads=False)
            .aggregate([*((name, "max") for name in values), ("at", "min")])
            .rename_columns([*KEY, *values, "at"])
            .sort_by([("request", "ascending"), ("at", "ascending")])
        )
        columns = with_exchanges(block, table)
        columns["error_code"] = _errors(block, table, columns["response"])
        columns["error"] = error_names(columns["error_code"])
        # Of a Produce, it follows from the first offset and the number of records.
        produced = pc.subtract(pc.add(table["offset"], table["record_count"]), 1)
        columns["last_offset"] = pc.coalesce(table["last_offset"], produced)
        return to_batch(PARTITIONS, columns).sort_by(IN_ORDER)

    def _half(self, messages: DecodedMessages, block: CorrelatedBlock, row: Int64) -> pa.Table:
        """The half rows of one direction. `row`: row of the request of each message."""
        asked = block.requests.select(["id", "group_id", "replica_id"]).take(pa.array(row))
        parts = [
            self._columns(group, column, asked.take(pa.array(group.message(column))))
            for group, column in messages.fields.columns("offsets_of")
        ]
        half = pa.concat_tables([_NO_ROWS, *parts])
        if messages is block.request:  # offsets of produced batches start at 0
            half = with_column(half, "last_offset", pa.nulls(len(half), pa.int64()))
        return half

    def _columns(self, group: LayoutGroup, column: FieldColumn, asked: pa.Table) -> pa.Table:
        """Half rows. `asked`: the request of each."""
        group_id = without_dictionary(group.sibling_texts(column, "group_id"))
        columns: dict[str, Any] = {
            "request": asked["id"],
            "group_id": pc.coalesce(group_id, without_dictionary(asked["group_id"])),
            **topic_columns(group, column, self._names),
            "partition": column_numbers(column),
            # A response in a fetch session (KIP-227) may name partitions that the request omits.
            "replica_id": unless_negative(asked["replica_id"]),
        }
        for key, role in NUMBERS.items():
            columns[key] = unless_negative(group.sibling_numbers(column, role))
        if columns["offset"].null_count:  # in ListOffsets 0, the offset is the first of a list
            lists = group.nested_lists(column, "offsets", pa.int64())
            first = pc.list_slice(lists, 0, 1, return_fixed_size_list=True).flatten()
            columns["offset"] = pc.coalesce(columns["offset"], unless_negative(first))
        for key, role in SIGNED.items():
            columns[key] = group.sibling_numbers(column, role)
        columns |= _records(group, column)
        return pa.table(columns, schema=_NO_ROWS.schema)


_NO_ROWS = pa.table(
    {
        name: pa.nulls(0, pa.string() if name in ("group_id", "topic", "topic_id") else pa.int64())
        for name in (*KEY, "replica_id", *NUMBERS, *SIGNED, *RECORD_COLUMNS)
    }
)


def _records(group: LayoutGroup, column: FieldColumn) -> dict[str, pa.Array]:
    """`RECORD_COLUMNS` from the headers of the batches of each partition; null without batches.

    A batch that the fetch limit truncated does not count: the client fetches it again.
    """
    sibling = group.sibling(column, "records")
    if sibling is None:
        return dict.fromkeys(RECORD_COLUMNS, pa.nulls(len(column.row), pa.int64()))
    records, index = sibling
    assert records.length is not None
    length = np.where(index < 0, 0, np.maximum(records.length[index], 0))
    batches = read_batches(group.space, records.at[index], length, verify=False)
    whole = ~batches.truncated
    field, is_counted = batches.field[whole], batches.record_count[whole] >= 0
    count, last = np.zeros(len(length), np.int64), np.full(len(length), -1)
    np.add.at(count, field[is_counted], batches.record_count[whole][is_counted])
    np.maximum.at(last, field, batches.last_offset[whole])
    is_unknown = np.zeros(len(length), np.bool_)
    is_unknown[field[~is_counted]] = True  # a compressed message set has no count
    return {
        "bytes": pa.array(length, mask=length == 0),
        "record_count": pa.array(count, mask=(length == 0) | is_unknown),
        "last_offset": pa.array(last, mask=last < 0),
    }


def _errors(block: CorrelatedBlock, table: pa.Table, response: Int64) -> pa.ChunkedArray:
    """The error code of the partition, or of the whole response if the partition has none."""
    fields = block.response.fields
    code = np.zeros(len(block.answered), np.int64)
    for group, column, failed in error_codes(fields):
        if group.sibling(column, "partition") is None:
            code[group.message(column)[failed]] = column_numbers(column)[failed]
    whole = pa.array(code, mask=~fields.good).take(pa.array(response, mask=response < 0))
    return pc.coalesce(table["error_code"], whole)
