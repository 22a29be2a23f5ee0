"""Rows of the table `topics`: partitions in Metadata responses, and their changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.columns import as_array
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.topic_names import uuid_text
from dissector.packets.block import Int64
from dissector.tables.arrow import as_batch, map_codes, row_keys, to_batch
from dissector.tables.schema import TOPICS
from dissector.tables.shared_columns import column_numbers


def topic_states(block: CorrelatedBlock) -> pa.RecordBatch:
    """The partitions in Metadata responses: columns of `topics`, and connection_id."""
    parts = [pa.schema([*TOPICS.schema, *_SOURCE]).empty_table()]
    for group, column in block.response.fields.columns("leader"):
        if not any(group.walked.by_role("replicas")):
            continue  # a Produce or Fetch response that only names a new leader
        index = np.arange(len(column.row), dtype=np.int64)
        message = group.message(column)
        columns = {
            "topic": group.sibling_texts(column, "topic", index).cast(pa.string()),
            "topic_id": map_codes(
                group.sibling_uuids(column, "topic_id", index), uuid_text, pa.string()
            ),
            "partition": group.sibling_numbers(column, "partition", index),
            "leader": pa.array(column_numbers(column)),
            "leader_epoch": group.sibling_numbers(column, "leader_epoch", index),
            "replicas": group.nested_lists(column, "replicas"),
            "isr": group.nested_lists(column, "isr"),
            "time": block.response.headers.time[message],
        }
        source = [block.response.headers.connection[message], message, column.at]
        rows = pa.Table.from_batches([to_batch(TOPICS, columns)])
        for name, values in zip(_SOURCE, source, strict=True):
            rows = rows.append_column(name, pa.array(values))
        parts.append(rows)
    order = ("time", *_SOURCE.names)
    table = pa.concat_tables(parts).sort_by([(name, "ascending") for name in order])
    return as_batch(table.drop_columns(_SOURCE.names[1:]))


_SOURCE = pa.schema({"connection_id": pa.int64(), "message": pa.int64(), "at": pa.int64()})


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
