"""Rows of the table `topics`: what Metadata responses report of partitions, and its changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.correlator import Turn
from dissector.exchanges.topic_names import uuid_text
from dissector.packets.block import Int64
from dissector.protocol.field_columns import FieldColumn
from dissector.tables.arrow import batch, by_code, joined, one_batch, one_chunk
from dissector.tables.schema import TOPICS


def told(turn: Turn) -> pa.RecordBatch:
    """What this turn's responses tell of partitions: columns of `topics`, and connection_id."""
    parts = [pa.schema([*TOPICS.schema, *_TELLER]).empty_table()]
    for group, column in turn.response.facts.columns("leader"):
        if not any(group.walked.by_role("replicas")):
            continue  # a Produce or Fetch response that names a new leader, and no more
        every = np.arange(len(column.row), dtype=np.int64)
        message = group.message(column)
        columns = {
            "topic": group.texts_beside(column, "topic", every).cast(pa.string()),
            "topic_id": by_code(
                group.uuids_beside(column, "topic_id", every), uuid_text, pa.string()
            ),
            "partition": group.numbers_beside(column, "partition", every),
            "leader": pa.array(_values(column)),
            "leader_epoch": group.numbers_beside(column, "leader_epoch", every),
            "replicas": group.lists_within(column, "replicas"),
            "isr": group.lists_within(column, "isr"),
            "time": turn.response.heads.time[message],
        }
        teller = [turn.response.heads.connection[message], message, column.at]
        rows = pa.Table.from_batches([batch(TOPICS, columns)])
        for name, values in zip(_TELLER, teller, strict=True):
            rows = rows.append_column(name, pa.array(values))
        parts.append(rows)
    order = ("time", *_TELLER.names)
    table = pa.concat_tables(parts).sort_by([(name, "ascending") for name in order])
    return one_batch(table.drop_columns(_TELLER.names[1:]))


_TELLER = pa.schema({"connection_id": pa.int64(), "message": pa.int64(), "at": pa.int64()})


class Topics:
    """Rows of the topics table: each partition when first told, and whenever told otherwise."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def news(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """Of what was `told`, what was not known."""
        return table.select(TOPICS.schema.names).take(pa.array(self._news(table)))

    def _news(self, table: pa.RecordBatch) -> Int64:
        """Rows that tell something else than the row before them of the same partition."""
        who = joined(table["topic"], table["topic_id"], table["partition"])
        lists = [
            pc.binary_join(one_chunk(table[name]).cast(pa.list_(pa.string())), ",")
            for name in ("replicas", "isr")
        ]
        told = joined(who, table["leader"], table["leader_epoch"], *lists)
        partition = who.dictionary_encode().indices.to_numpy()
        state = told.dictionary_encode().indices.to_numpy()
        order = np.argsort(partition, kind="stable")
        changed = np.ones(len(order), np.bool_)
        changed[1:] = (np.diff(partition[order]) != 0) | (np.diff(state[order]) != 0)
        news = []
        for index in order[changed].tolist():
            key, value = who[index].as_py(), told[index].as_py()
            if self._told.get(key) != value:
                self._told[key] = value
                news.append(index)
        return np.array(sorted(news), np.int64)


def _values(column: FieldColumn) -> Int64:
    assert column.values is not None
    return column.values.astype(np.int64)
