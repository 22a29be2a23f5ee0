"""Rows of the table `topics`: partitions in messages that contain their leader, and their changes.

Brokers report the leaders in responses. A controller with ZooKeeper sends them to brokers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.columns import as_array, int_column
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.decoded_messages import DecodedMessages
from dissector.packets.block import Int64
from dissector.tables.arrow import empty_batch, row_keys, rows_where, to_batch
from dissector.tables.schema import TOPICS
from dissector.tables.shared_columns import (
    column_numbers,
    in_messages,
    message_place,
    topic_columns,
)

EXTRA_COLUMNS: Final = ("connection_id", "end_time")
"""Columns of `topic_states` that `topics` does not have; int64."""

_NO_LEADER: Final = -1
"""A controller with ZooKeeper sends -2 for a topic that is being deleted (LeaderDuringDelete)."""


def topic_states(block: CorrelatedBlock) -> pa.RecordBatch:
    """The partitions in messages with their leaders: columns of `topics`, and `EXTRA_COLUMNS`.

    `end_time`: ns, when the request of a controller, or the exchange, was complete. A request may
    arrive after its response.
    """
    request_end = int_column(block.requests, "end_time")
    sent, received = block.request, block.response
    parts = [
        *_states(sent, request_end[block.new]),
        *_states(received, np.maximum(request_end[block.answered], received.headers.end_time)),
    ]
    if parts:
        table = in_messages(parts)
        table = rows_where(table, pc.field("leader") >= _NO_LEADER)
        rows = to_batch(TOPICS, table)
    else:
        table = pa.table({name: pa.array([], pa.int64()) for name in EXTRA_COLUMNS})
        rows = empty_batch(TOPICS)
    for name in EXTRA_COLUMNS:
        rows = rows.append_column(name, as_array(table[name]))
    return rows


def _states(messages: DecodedMessages, end_time: Int64) -> Iterator[dict[str, Any]]:
    """The partitions in these messages; `end_time`: of each message."""
    for group, column in messages.fields.columns("leader"):
        yield {
            **message_place(messages.headers, group, column),
            "end_time": end_time[group.message(column)],
            **topic_columns(group, column),
            "partition": group.sibling_numbers(column, "partition"),
            "leader": pa.array(column_numbers(column)),
            "leader_epoch": group.sibling_numbers(column, "leader_epoch"),
            "replicas": group.nested_lists(column, "replicas", pa.int32()),
            "isr": group.nested_lists(column, "isr", pa.int32()),
        }


class TopicChanges:
    """Selects the rows in which a partition is new or has changed."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}

    def changes(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of `topics`: those that differ from the previous state of their partition.

        `table`: rows of `topic_states`, or of `changes`. States follow each other in the order in
        which exchanges become complete, so that the rows do not depend on where blocks end. The
        rows keep their order.
        """
        order = np.arange(len(table))
        if "end_time" in table.schema.names:
            order = np.argsort(table["end_time"].to_numpy(), kind="stable")
        changed = order[self._changed_rows(table.take(pa.array(order)))]
        return table.select(TOPICS.schema.names).take(pa.array(np.sort(changed)))

    def _changed_rows(self, table: pa.RecordBatch) -> Int64:
        """Indices of the rows that differ from the previous row of the same partition."""
        partitions = row_keys(table["topic"], table["topic_id"], table["partition"])
        lists = [
            pc.binary_join(as_array(table[name]).cast(pa.list_(pa.string())), ",")
            for name in ("replicas", "isr")
        ]
        states = row_keys(partitions, table["leader"], table["leader_epoch"], *lists)
        partition = partitions.dictionary_encode().indices.to_numpy()
        state = states.dictionary_encode().indices.to_numpy()
        order = np.argsort(partition, kind="stable")
        changed = np.ones(len(order), np.bool_)
        changed[1:] = (np.diff(partition[order]) != 0) | (np.diff(state[order]) != 0)
        rows = []
        for index in order[changed].tolist():
            key, value = partitions[index].as_py(), states[index].as_py()
            if self._states.get(key) != value:
                self._states[key] = value
                rows.append(index)
        return np.array(rows, np.int64)
