"""Requests as a table, kept until their responses arrive.

The columns (n rows; null if the request does not contain the value):

    id: int64, running number of the request
    key, connection, packet, time, end_time, bytes: int64
    api_key, version: int16
    correlation_id, capture: int32
    ordinal: int64, number among the connection's requests that expect a response, from 1; else 0
    run, acknowledged: int64, see `FrameBlock`
    end: int64, sequence number after the last byte
    repeats: bool, see `repeated_ids.Requests`
    in_flight: int32, known once the request has its response
    known, decoded, is_token: bool, see `DecodedMessages`
    client_id, and those in TEXTS: strings, in a dictionary
    acks, isolation_level: int16
    max_wait_ms, min_bytes, max_bytes, partition_count: int32
    replica_id, record_count, record_bytes: int64
    topics: lists of strings, in a dictionary
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissector import _native
from dissector.exchanges.columns import dictionary_codes, masked
from dissector.exchanges.decoded_fields import DecodedFields
from dissector.exchanges.decoded_messages import DecodedMessages
from dissector.exchanges.message_headers import API_KEY_BYTES, HEADER_BYTES, VERSION_BYTES
from dissector.exchanges.ordering import ordered
from dissector.exchanges.topic_names import TopicNames
from dissector.exchanges.two_threads import results
from dissector.packets.block import Int64
from dissector.records.batch_headers import record_counts

NUMBERS: dict[str, type[np.integer[Any]]] = {
    "acks": np.int16, "max_wait_ms": np.int32, "min_bytes": np.int32, "max_bytes": np.int32,
    "isolation_level": np.int16, "replica_id": np.int64,
}  # fmt: skip
TEXTS = ("group_id", "member_id", "transactional_id", "coordinator_key", "client_rack")
"""Roles of the first text in a request."""
TOPICS = pa.list_(pa.dictionary(pa.int32(), pa.string()))


def request_table(
    requests: DecodedMessages, key: Int64, client_id: pa.Array, ordinal: Int64,
    repeats: NDArray[np.bool_], names: TopicNames,
) -> pa.Table:  # fmt: skip
    """The table of the requests of a block."""
    headers, fields = requests.headers, requests.fields
    captured = headers.end - headers.start
    columns: dict[str, pa.Array | NDArray[np.generic]] = {
        **headers.columns(HEADER_BYTES),
        "key": key,
        "connection": headers.connection,
        "api_key": masked(fields.messages.api_key.astype(np.int16), captured < API_KEY_BYTES),
        "version": masked(fields.messages.version.astype(np.int16), captured < VERSION_BYTES),
        "ordinal": ordinal,
        "run": headers.run,
        "acknowledged": headers.acknowledged,
        "end": (headers.sequence + headers.bytes) % (1 << 32),
        "repeats": repeats,
        "in_flight": np.zeros(len(headers), np.int32),
        "known": requests.known,
        "decoded": requests.decoded,
        "is_token": requests.is_token,
        "client_id": client_id,
    }
    texts = results([partial(fields.texts, role) for role in TEXTS], len(headers))
    columns |= zip(TEXTS, texts, strict=True)
    for role, dtype in NUMBERS.items():
        columns[role] = fields.number_column(role, dtype)
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
        "partition_count": masked(count.astype(np.int32), count == 0),
        "record_count": masked(records, ~has_records | ~is_counted),
        "record_bytes": masked(size, ~has_records),
    }


def topic_lists(
    fields: DecodedFields, names: TopicNames, wanted: NDArray[np.bool_] | None = None
) -> pa.Array:
    """The distinct topics of each message, in order; null if it has none. Of type `TOPICS`."""
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
        return pa.nulls(count, TOPICS)
    code, words = dictionary_codes(encoded), encoded.dictionary
    begin, listed = np.empty(count + 1, np.int32), np.empty(len(code), np.int32)
    size = _native.list_words(message, address, code, np.zeros(len(words), np.int64), begin, listed)
    if size < 0:
        order = ordered(message, address)
        message, address, code = message[order], address[order], code[order]
        size = _native.list_words(
            message, address, code, np.zeros(len(words), np.int64), begin, listed
        )
    values = pa.DictionaryArray.from_arrays(pa.array(listed[:size]), words, safe=False)
    return pa.ListArray.from_arrays(pa.array(begin), values, mask=pa.array(begin[1:] == begin[:-1]))
