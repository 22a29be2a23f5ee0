"""Rows of the table `topics`: partitions in Metadata responses, and their changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.columns import as_array
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.packets.block import Int64
from dissector.tables.arrow import empty_batch, row_keys, to_batch
from dissector.tables.schema import TOPICS
from dissector.tables.shared_columns import (
    column_numbers,
    in_responses,
    response_place,
    topic_columns,
)


def topic_states(block: CorrelatedBlock) -> pa.RecordBatch:
    """The partitions in Metadata responses: columns of `topics`, and connection_id."""
    parts = []
    for group, column in block.response.fields.columns("leader"):
        if not any(group.walked.by_role("replicas")):
            continue  # a Produce or Fetch response that only names a new leader
        parts.append(
            pa.table(
                {
                    **response_place(block, group, column),
                    **topic_columns(group, column),
                    "partition": group.sibling_numbers(column, "partition"),
                    "leader": pa.array(column_numbers(column)),
                    "leader_epoch": group.sibling_numbers(column, "leader_epoch"),
                    "replicas": group.nested_lists(column, "replicas"),
                    "isr": group.nested_lists(column, "isr"),
                }
            )
        )
    if not parts:
        return empty_batch(TOPICS).append_column("connection_id", pa.nulls(0, pa.int64()))
    table = in_responses(parts)
    rows = to_batch(TOPICS, {name: table[name] for name in table.column_names})
    return rows.append_column("connection_id", as_array(table["connection_id"]))


class TopicChanges:
    """Selects the rows in which a partition is new or has changed."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}

    def changes(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of `topics` from `topic_states`: those that differ from the last state."""
        return table.select(TOPICS.schema.names).take(pa.array(self._changed_rows(table)))

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
        return np.array(sorted(rows), np.int64)
