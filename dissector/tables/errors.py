"""Rows of the table `errors`, and the error codes of responses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.decoded_fields import DecodedFields, LayoutGroup
from dissector.exchanges.topic_names import TopicNames
from dissector.packets.block import Int64
from dissector.protocol import registry
from dissector.protocol.field_columns import FieldColumn
from dissector.tables.arrow import empty_batch, map_codes, to_batch
from dissector.tables.schema import ERRORS
from dissector.tables.shared_columns import Endpoints, api_of, column_numbers, error_names


def errors(block: CorrelatedBlock, names: TopicNames, endpoints: Endpoints) -> pa.RecordBatch:
    """A row for each error code other than 0 in the responses of this block."""
    parts = []
    for group, column, select in _codes(block.response.fields):
        topic = group.sibling_texts(column, "topic", select).cast(pa.string())
        topic_id = group.sibling_uuids(column, "topic_id", select)
        parts.append(
            pa.table(
                {
                    "time": block.response.headers.time[group.message(column)[select]],
                    "connection": block.response.headers.connection[group.message(column)[select]],
                    "message": group.message(column)[select],
                    "at": column.at[select],
                    "path": group.paths(column, select),
                    "topic": pc.coalesce(topic, names.resolve(topic_id).cast(pa.string())),
                    "partition": group.sibling_numbers(column, "partition", select),
                    "error_code": pa.array(column_numbers(column)[select]),
                    "error_message": group.sibling_texts(column, "error_message", select).cast(
                        pa.string()
                    ),
                }
            )
        )
    if not parts:
        return empty_batch(ERRORS)
    order = ("time", "connection", "message", "at")
    table = pa.concat_tables(parts).sort_by([(name, "ascending") for name in order])
    message = table["message"].to_numpy()
    request = block.requests.take(pa.array(block.answered[message]))
    code = table["error_code"]
    columns = {
        "connection_id": request["connection"],
        "correlation_id": request["correlation_id"],
        "time": table["time"],
        **endpoints.columns(request["connection"].to_numpy()),
        "client_id": request["client_id"],
        "api": api_of(request["api_key"], request["is_token"]),
        "api_version": request["version"],
        "path": table["path"],
        "topic": table["topic"],
        "partition": table["partition"],
        "error_code": code,
        "error": error_names(code),
        "retriable": map_codes(code, registry.is_retriable, pa.bool_()),
        "error_message": table["error_message"],
    }
    return to_batch(ERRORS, columns)


def _codes(fields: DecodedFields) -> Iterator[tuple[LayoutGroup, FieldColumn, Int64]]:
    """The columns of error codes, and the indices of their values other than 0."""
    for group, column in fields.columns("error_code"):
        select = np.flatnonzero(column_numbers(column))
        if len(select):
            yield group, column, select


def first_codes(fields: DecodedFields) -> tuple[Int64, Int64]:
    """The first error code other than 0 of each message, or 0, and the number of such codes."""
    message, at, code = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for group, column, select in _codes(fields):
        message.append(group.message(column)[select])
        at.append(column.at[select])
        code.append(column_numbers(column)[select])
    messages = np.concatenate(message)
    last_first = np.argsort(np.concatenate(at))[::-1]
    first = np.zeros(len(fields.messages), np.int64)
    first[messages[last_first]] = np.concatenate(code)[last_first]  # the first is assigned last
    return first, np.bincount(messages, minlength=len(first))
