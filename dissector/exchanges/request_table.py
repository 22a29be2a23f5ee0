"""Describe: what a request says, as columns of one table, so that it can wait for its response.

The columns of a description (n rows; null where the request does not say):

    id: int64, running number of the request
    key, connection, correlation_id, api_key, version, capture, packet, time, end_time, bytes: int64
    ordinal: int64, number among the connection's requests that want a response, from 1; else 0
    run, acknowledged: int64, see `FrameBlock`
    end: int64, sequence number behind the last byte
    repeats: bool, see `matching.Requests`
    in_flight: int64, known once the request has its response
    known, decoded, is_token: bool, see `dialogue.Side`
    client_id, group_id, member_id, transactional_id: strings, in a dictionary
    acks, max_wait_ms, partition_count, record_count, record_bytes: int64
    topics: list<string>
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissector.exchanges.decoded_fields import Facts
from dissector.exchanges.ordering import ordered
from dissector.exchanges.topic_names import TopicNames
from dissector.packets.block import Int64
from dissector.records.batch_headers import record_counts

if TYPE_CHECKING:
    from dissector.exchanges.correlator import Side


def describe(
    side: Side, key: Int64, client_id: pa.Array, ordinal: Int64, repeats: NDArray[np.bool_],
    names: TopicNames,
) -> pa.Table:  # fmt: skip
    """The table of a block's requests."""
    head, facts = side.heads, side.facts
    columns: dict[str, pa.Array | NDArray[np.generic]] = {
        "key": key,
        "connection": head.connection,
        "correlation_id": head.correlation_id,
        "api_key": side.messages.api_key,
        "version": side.messages.version,
        "capture": head.capture,
        "packet": head.packet,
        "time": head.time,
        "end_time": head.end_time,
        "bytes": head.bytes,
        "ordinal": ordinal,
        "run": head.run,
        "acknowledged": head.acknowledged,
        "end": (head.sequence + head.bytes) % (1 << 32),
        "repeats": repeats,
        "in_flight": np.zeros(len(head), np.int64),
        "known": side.known,
        "decoded": side.decoded,
        "is_token": side.is_token,
        "client_id": client_id,
    }
    for role in ("group_id", "member_id", "transactional_id"):
        columns[role] = facts.texts(role)
    for role in ("acks", "max_wait_ms"):
        value, known = facts.numbers(role)
        columns[role] = pa.array(value, mask=~known)
    columns |= partitions(facts, names)
    return pa.table({name: pa.array(column) for name, column in columns.items()})


def partitions(
    facts: Facts, names: TopicNames, wanted: NDArray[np.bool_] | None = None
) -> dict[str, pa.Array]:
    """Of which topics and partitions messages speak: topics, partition_count, record_*.

    `wanted`: the messages whose topics are asked for (None: all).
    """
    count = facts.count("partition")
    size = np.zeros(len(facts.messages), np.int64)
    records = np.zeros(len(facts.messages), np.int64)
    has = np.zeros(len(facts.messages), np.bool_)
    told = np.ones(len(facts.messages), np.bool_)  # a compressed message set tells no count
    for group, column in facts.columns("records"):
        assert column.length is not None
        message = group.message(column)
        has[message] = True
        some = np.flatnonzero(column.length > 0)
        message, length = message[some], column.length[some]
        np.add.at(size, message, length)
        field, number = record_counts(group.space, column.at[some], length)
        np.add.at(records, message[field], np.maximum(number, 0))
        told[message[field[number < 0]]] = False
    return {
        "topics": topic_lists(facts, names, wanted),
        "partition_count": pa.array(count, mask=count == 0),
        "record_count": pa.array(records, mask=~has | ~told),
        "record_bytes": pa.array(size, mask=~has),
    }


def topic_lists(
    facts: Facts, names: TopicNames, wanted: NDArray[np.bool_] | None = None
) -> pa.Array:
    """The distinct topics of each message, in order; null where it names none. list<string>."""
    count = len(facts.messages)
    message, address, encoded = facts.every_text("topic", wanted)
    messages, addresses, words = [message], [address], [encoded]
    for group, column in facts.columns("topic_id"):
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
    code = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64)
    if (code < 0).any():
        valid = np.flatnonzero(code >= 0)
        code, message, address = code[valid], message[valid], address[valid]
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
