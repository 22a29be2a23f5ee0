"""Rows of the table `errors`, and the error codes of responses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.correlator import Turn
from dissector.exchanges.decoded_fields import Facts, Group
from dissector.exchanges.topic_names import TopicNames
from dissector.packets.block import Int64
from dissector.protocol import registry
from dissector.protocol.field_columns import FieldColumn
from dissector.tables.arrow import batch, by_code, no_rows, one_chunk
from dissector.tables.schema import ERRORS
from dissector.tables.shared_columns import Endpoints, api_of, error_names


def errors(turn: Turn, names: TopicNames, endpoints: Endpoints) -> pa.RecordBatch:
    """A row for each error code that is not 0 in the responses of this turn."""
    parts = []
    for group, column, select in _codes(turn.response.facts):
        topic = group.texts_beside(column, "topic", select).cast(pa.string())
        topic_id = group.uuids_beside(column, "topic_id", select)
        parts.append(
            pa.table(
                {
                    "time": turn.response.heads.time[group.message(column)[select]],
                    "connection": turn.response.heads.connection[group.message(column)[select]],
                    "message": group.message(column)[select],
                    "at": column.at[select],
                    "path": group.paths(column, select),
                    "topic": pc.coalesce(topic, names.resolve(topic_id).cast(pa.string())),
                    "partition": group.numbers_beside(column, "partition", select),
                    "error_code": pa.array(_values(column)[select]),
                    "error_message": group.texts_beside(column, "error_message", select).cast(
                        pa.string()
                    ),
                }
            )
        )
    if not parts:
        return no_rows(ERRORS)
    order = ("time", "connection", "message", "at")
    table = pa.concat_tables(parts).sort_by([(name, "ascending") for name in order])
    message = table["message"].to_numpy()
    request = turn.requests.take(pa.array(turn.answered[message]))
    code = table["error_code"]
    columns = {
        "connection_id": request["connection"],
        "correlation_id": request["correlation_id"],
        "time": table["time"],
        **endpoints.columns(request["connection"].to_numpy()),
        "client_id": request["client_id"],
        "api": api_of(request),
        "api_version": request["version"],
        "path": table["path"],
        "topic": names.complete(one_chunk(table["topic"])),
        "partition": table["partition"],
        "error_code": code,
        "error": error_names(code),
        "retriable": by_code(code, registry.is_retriable, pa.bool_()),
        "error_message": table["error_message"],
    }
    return batch(ERRORS, columns)


def _codes(facts: Facts) -> Iterator[tuple[Group, FieldColumn, Int64]]:
    """The error codes that are not 0: for each column of them, which of its values."""
    for group, column in facts.columns("error_code"):
        select = np.flatnonzero(_values(column))
        if len(select):
            yield group, column, select


def sorted_codes(facts: Facts) -> tuple[Int64, Int64]:
    """Message and error code of every code that is not 0, in order of message and address."""
    message, at, code = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for group, column, select in _codes(facts):
        message.append(group.message(column)[select])
        at.append(column.at[select])
        code.append(_values(column)[select])
    who = np.concatenate(message)
    order = np.lexsort((np.concatenate(at), who))
    return who[order], np.concatenate(code)[order]


def _values(column: FieldColumn) -> Int64:
    assert column.values is not None
    return column.values.astype(np.int64)
