"""Columns that several tables have, and the order of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.columns import Rows, as_array, with_column
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.decoded_fields import ALL, LayoutGroup, Values
from dissector.exchanges.message_headers import MessageHeaders
from dissector.exchanges.sasl import SASL_TOKEN
from dissector.exchanges.topic_names import TopicNames, uuid_text
from dissector.packets.block import Int64
from dissector.protocol import registry
from dissector.protocol.field_columns import FieldColumn
from dissector.tables.arrow import encode, map_codes, without_dictionary

Column: TypeAlias = pa.Array | pa.ChunkedArray

IN_ORDER = [("time", "ascending"), ("connection_id", "ascending")]
"""Sort keys of the rows of most tables."""
_REQUEST_COLUMNS = [
    "connection", "correlation_id", "api_key", "is_token", "version", "client_id", "time",
    "coordinator_key",
]  # fmt: skip


class Endpoints(Protocol):
    """Gives the addresses of connections."""

    def columns(self, connection: Int64) -> dict[str, pa.Array]:
        """client_ip, client_port, broker_ip and broker_port of each of n connections."""


def with_connections(rows: Rows, connections: Int64) -> Rows:
    """The rows with other numbers in `connection_id`, if they have it.

    `connections`: by present number.
    """
    if "connection_id" not in rows.schema.names:
        return rows
    column = pa.array(connections).take(as_array(rows["connection_id"]))
    return with_column(rows, "connection_id", column)


def api_of(api_key: Column, is_token: Column | None) -> pa.Array:
    """API name of each request; null if no API has its key, or the request is missing."""
    name = encode(api_key, registry.api_name)
    if is_token is None or not pc.any(is_token).as_py():
        return name
    return pc.if_else(as_array(is_token), SASL_TOKEN, without_dictionary(name))


def requests_of(block: CorrelatedBlock, rows: Int64) -> pa.Table:
    """The request of each of these rows, without its lists: a request with many topics may have as
    many rows."""
    return block.requests.select(_REQUEST_COLUMNS).take(pa.array(rows))


def request_columns(requests: pa.Table) -> dict[str, Any]:
    """The columns that most tables have of these rows of `requests_of`."""
    return {
        "connection_id": requests["connection"],
        "correlation_id": requests["correlation_id"],
        "api": api_of(requests["api_key"], requests["is_token"]),
        "api_version": requests["version"],
        "client_id": without_dictionary(requests["client_id"]),
    }


def message_place(
    headers: MessageHeaders, group: LayoutGroup, column: FieldColumn, select: Values = ALL
) -> dict[str, Int64]:
    """Columns that order values in messages with these headers: see `in_messages`."""
    message = group.message(column)[select]
    return {
        "time": headers.time[message],
        "connection_id": headers.connection[message],
        "message": message,
        "at": column.at[select],
    }


def in_messages(parts: Sequence[dict[str, Any]]) -> pa.Table:
    """The rows of parts, by column; in the order of the columns of `message_place`."""
    order = [*IN_ORDER, ("message", "ascending"), ("at", "ascending")]
    return pa.concat_tables(map(pa.table, parts)).sort_by(order)


def topic_columns(
    group: LayoutGroup,
    column: FieldColumn,
    names: TopicNames | None = None,
    select: Values = ALL,
) -> dict[str, pa.Array]:
    """`topic` and `topic_id` of each selected value. `names`: for topics with an id only."""
    topic_id = group.topic_ids(column, select)
    topic = without_dictionary(group.sibling_texts(column, "topic", select))
    if names is not None:
        topic = pc.coalesce(topic, without_dictionary(names.resolve(topic_id)))
    return {"topic": topic, "topic_id": map_codes(topic_id, uuid_text, pa.string())}


def error_names(code: pa.Array | pa.ChunkedArray) -> pa.DictionaryArray:
    """Kafka's name of each error code."""
    return encode(code, registry.error_name)


def column_numbers(column: FieldColumn) -> Int64:
    """The values of a column of numbers."""
    assert column.values is not None
    return column.values.astype(np.int64)
