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
from dissector.tables.arrow import empty_batch, map_codes, to_batch, without_dictionary
from dissector.tables.schema import ERRORS
from dissector.tables.shared_columns import (
    Endpoints,
    column_numbers,
    error_names,
    in_messages,
    message_place,
    request_columns,
    requests_of,
    topic_columns,
)

RESOURCES = ("group_id", "transactional_id", "coordinator_key")
"""Roles of the fields that name a resource other than a topic."""
TEXTS = ("error_message", *RESOURCES)


def errors(block: CorrelatedBlock, names: TopicNames, endpoints: Endpoints) -> pa.RecordBatch:
    """A row for each error code other than 0 in the responses of this block."""
    parts = []
    for group, column, select in error_codes(block.response.fields):
        topic = topic_columns(group, column, names, select)
        texts = {role: group.sibling_texts(column, role, select) for role in TEXTS}
        parts.append(
            {
                **message_place(block.response.headers, group, column, select),
                "path": group.paths(column, select),
                "topic": topic["topic"],
                "partition": group.sibling_numbers(column, "partition", select),
                "error_code": pa.array(column_numbers(column)[select]),
                **{role: without_dictionary(text) for role, text in texts.items()},
            }
        )
    if not parts:
        return empty_batch(ERRORS)
    table = in_messages(parts)
    request = requests_of(block, block.answered[table["message"].to_numpy()])
    code = table["error_code"]
    key = without_dictionary(request["coordinator_key"])  # FindCoordinator before version 4
    columns = {
        **{name: table[name] for name in table.column_names},
        **request_columns(request),
        **endpoints.columns(request["connection"].to_numpy()),
        "error": error_names(code),
        "resource": pc.coalesce(*(table[role] for role in RESOURCES), key),
        "retriable": map_codes(code, registry.is_retriable, pa.bool_()),
    }
    return to_batch(ERRORS, columns)


def error_codes(fields: DecodedFields) -> Iterator[tuple[LayoutGroup, FieldColumn, Int64]]:
    """The columns of error codes, and the indices of their values other than 0."""
    for group, column in fields.columns("error_code"):
        select = np.flatnonzero(column_numbers(column))
        if len(select):
            yield group, column, select


def first_codes(fields: DecodedFields) -> tuple[Int64, Int64]:
    """The first error code other than 0 of each message, or 0, and the number of such codes."""
    message, at, code = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for group, column, select in error_codes(fields):
        message.append(group.message(column)[select])
        at.append(column.at[select])
        code.append(column_numbers(column)[select])
    messages = np.concatenate(message)
    last_first = np.argsort(np.concatenate(at))[::-1]
    first = np.zeros(len(fields.messages), np.int64)
    first[messages[last_first]] = np.concatenate(code)[last_first]  # the first is assigned last
    return first, np.bincount(messages, minlength=len(first))
