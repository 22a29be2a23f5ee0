"""Requests as a table, kept until their responses arrive.

The columns (n rows; null if the request does not contain the value):

    id: int64, running number of the request
    key, connection, correlation_id, api_key, version, capture, packet, time, end_time, bytes: int64
    ordinal: int64, number among the connection's requests that expect a response, from 1; else 0
    run, acknowledged: int64, see `FrameBlock`
    end: int64, sequence number after the last byte
    repeats: bool, see `repeated_ids.Requests`
    in_flight: int64, known once the request has its response
    known, decoded, is_token: bool, see `DecodedMessages`
    client_id, group_id, member_id, transactional_id, client_rack: strings, in a dictionary
    acks, max_wait_ms, min_bytes, max_bytes, isolation_level, replica_id, partition_count,
    record_count, record_bytes: int64
    topics: list<string>
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissector.exchanges.columns import masked, unmasked
from dissector.exchanges.decoded_fields import DecodedFields
from dissector.exchanges.decoded_messages import DecodedMessages
from dissector.exchanges.ordering import ordered
from dissector.exchanges.topic_names import TopicNames
from dissector.packets.block import Int64
from dissector.records.batch_headers import record_counts


def request_table(
    requests: DecodedMessages, key: Int64, client_id: pa.Array, ordinal: Int64,
    repeats: NDArray[np.bool_], names: TopicNames,
) -> pa.Table:  # fmt: skip
    """The table of the requests of a block."""
    headers, fields = requests.headers, requests.fields
    columns: dict[str, pa.Array | NDArray[np.generic]] = {
        "key": key,
        "connection": headers.connection,
        "correlation_id": headers.correlation_id,
        "api_key": requests.messages.api_key,
        "version": requests.messages.version,
        "capture": headers.capture,
        "packet": headers.packet,
        "time": headers.time,
        "end_time": headers.end_time,
        "bytes": headers.bytes,
        "ordinal": ordinal,
        "run": headers.run,
        "acknowledged": headers.acknowledged,
        "end": (headers.sequence + headers.bytes) % (1 << 32),
        "repeats": repeats,
        "in_flight": np.zeros(len(headers), np.int64),
        "known": requests.known,
        "decoded": requests.decoded,
        "is_token": requests.is_token,
        "client_id": client_id,
    }
    for role in ("group_id", "member_id", "transactional_id", "client_rack"):
        columns[role] = fields.texts(role)
    for role in (
        "acks", "max_wait_ms", "min_bytes", "max_bytes", "isolation_level", "replica_id",
    ):  # fmt: skip
        value, known = fields.numbers(role)
        columns[role] = masked(value, ~known)
    columns |= partitions(fields, names)
    return pa.table({name: pa.array(column) for name, column in columns.items()})


def partitions(
    fields: DecodedFields, names: TopicNames, wanted: NDArray[np.bool_] | None = None
) -> dict[str, pa.Array]:
    """The columns topics, partition_count, record_count and record_bytes of messages.

    `wanted`: the messages whose topics are needed (None: all).
    """
    count = fields.count("partition")
    size = np.zeros(len(fields.messages), np.int64)
    records = np.zeros(len(fields.messages), np.int64)
    has_records = np.zeros(len(fields.messages), np.bool_)
    is_counted = np.ones(len(fields.messages), np.bool_)  # not for a compressed message set
    for group, column in fields.columns("records"):
        assert column.length is not None
        message = group.message(column)
        has_records[message] = True
        filled = np.flatnonzero(column.length > 0)
        message, length = message[filled], column.length[filled]
        np.add.at(size, message, length)
        field, number = record_counts(group.space, column.at[filled], length)
        np.add.at(records, message[field], np.maximum(number, 0))
        is_counted[message[field[number < 0]]] = False
    return {
        "topics": topic_lists(fields, names, wanted),
        "partition_count": masked(count, count == 0),
        "record_count": masked(records, ~has_records | ~is_counted),
        "record_bytes": masked(size, ~has_records),
    }


def topic_lists(
    fields: DecodedFields, names: TopicNames, wanted: NDArray[np.bool_] | None = None
) -> pa.Array:
    """The distinct topics of each message, in order; null if it has none. list<string>."""
    count = len(fields.messages)
    message, address, encoded = fields.all_texts("topic", wanted)
    messages, addresses, words = [message], [address], [encoded]
    for group, column in fields.columns("topic_id"):
        if wanted is not None:
            column = column.only(wanted[group.message(column)])
        if len(column.at):
            messages.append(group.message(column))
            addresses.append(column.at)
            words.append(names.resolve(group.uuid(column)))
    if len(words) > 1:
        encoded = pa.chunked_array(words).unify_dictionaries().combine_chunks()
        message, address = np.concatenate(messages), np.concatenate(addresses)
    if not len(message):
        return pa.nulls(count, pa.list_(pa.string()))
    code, is_null = unmasked(encoded.indices)
    if is_null is not None:
        code, message, address = code[~is_null], message[~is_null], address[~is_null]
    chosen = ordered(message)
    if (message[chosen[1:]] == message[chosen[:-1]]).any():
        order = np.lexsort((address, message))
        _, first = np.unique((message << 32 | code)[order], return_index=True)
        chosen = order[np.sort(first)]
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(message[chosen], minlength=count), out=offsets[1:])
    return pa.ListArray.from_arrays(
        pa.array(offsets),
        encoded.dictionary.take(pa.array(code[chosen])),
        mask=pa.array(offsets[1:] == offsets[:-1]),
    )
