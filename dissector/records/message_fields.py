"""Reads magic 0 and 1 messages, for all messages at once.

    message   offset int64, size int32, crc uint32, magic int8, attributes int8,
              [magic 1: timestamp int64], key length int32, key, value length int32, value

A compressed message is a wrapper: its value decompresses to a set of messages. The offsets inside
are absolute in magic 0. In magic 1 they count from 0, and the wrapper has the offset of its last
message once a broker has set it (KIP-31). With log append time, the wrapper's timestamp applies to
all its messages (KIP-32).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dissector.arrays import arrays
from dissector.byteview import ContiguousBytes
from dissector.packets.block import Bytes, Int64
from dissector.records.batch_headers import LOG_APPEND, Batches, follow_sizes
from dissector.records.record_columns import (
    BatchBytes,
    Problems,
    RecordColumns,
    Spans,
    add_problem,
    make_views,
)


@arrays
class MessageFields:
    """Fields of n messages: arrays of shape (n,); undefined where `good` is False."""

    offset: Int64
    timestamp: Int64
    """ms; -1 for magic 0."""
    codec: Int64
    key: Spans
    value: Spans
    good: NDArray[np.bool_]
    """Whether key and value fill the message exactly."""


def read_messages(data: Bytes, at: Int64, size: Int64, magic: NDArray[np.int8]) -> MessageFields:
    """Read complete messages of at least the smallest size of their magic."""
    space = ContiguousBytes(data)
    end = at + size
    timestamp = np.full(len(at), -1, np.int64)
    timed = np.flatnonzero(magic == 1)
    timestamp[timed] = space.number(at[timed] + 18, "i8")
    key_length = space.number(at + np.where(magic == 1, 26, 18), "i4")
    key_at = at + np.where(magic == 1, 30, 22)
    # The length of the value must be inside the message: a key that is too long is cut before it.
    behind = np.minimum(key_at + np.maximum(key_length, 0), end - 4)
    value_length = space.number(behind, "i4")
    value_at = behind + 4
    good = (key_length >= -1) & (key_at + np.maximum(key_length, 0) == behind)
    good &= (value_length >= -1) & (value_at + np.maximum(value_length, 0) == end)
    return MessageFields(
        offset=space.number(at, "i8"),
        timestamp=timestamp,
        codec=(space.number(at + 17, "u1") & 7).astype(np.int64),
        key=(key_at, key_length),
        value=(value_at, value_length),
        good=good,
    )


def read_message_records(
    row: BatchBytes, batches: Batches, problems: Problems
) -> Iterator[RecordColumns]:
    """Uncompressed messages."""
    messages = read_messages(row.data, row.begin, row.end - row.begin, batches.magic[row.batch])
    yield _columns(row, row.batch, messages, messages.offset, messages.timestamp, batches, problems)


def read_wrapped_records(
    row: BatchBytes, batches: Batches, problems: Problems
) -> Iterator[RecordColumns]:
    """The messages of decompressed sets."""
    chain = follow_sizes(ContiguousBytes(row.data), row.begin, row.end)
    reached = row.begin.copy()
    np.maximum.at(reached, chain.field, chain.address + chain.size)
    for index in np.flatnonzero(reached != row.end).tolist():
        detail = f"messages end at byte {reached[index] - row.begin[index]}"
        detail += f" of {row.end[index] - row.begin[index]}"
        add_problem(problems, batches, int(row.batch[index]), "record_count", detail)
    is_complete = (chain.address + chain.size <= row.end[chain.field]) & (chain.magic < 2)
    field, magic = chain.field[is_complete], chain.magic[is_complete]
    messages = read_messages(row.data, chain.address[is_complete], chain.size[is_complete], magic)
    owner = row.batch[field]
    last = np.zeros(len(row.batch), np.int64)
    last[field] = messages.offset  # the last assignment wins: the last message of each set
    base = batches.last_offset[row.batch] - last
    # In a Produce request the offset of a wrapper is not set: offsets stay relative.
    base = np.where((batches.magic[row.batch] == 1) & (base > 0), base, 0)
    log_append = batches.timestamp_type[owner] == LOG_APPEND
    timestamp = np.where(log_append, batches.max_timestamp[owner], messages.timestamp)
    yield _columns(
        row, owner, messages, messages.offset + base[field], timestamp, batches, problems
    )


def _columns(
    row: BatchBytes,
    owner: Int64,
    messages: MessageFields,
    offset: Int64,
    timestamp: Int64,
    batches: Batches,
    problems: Problems,
) -> RecordColumns:
    plain = messages.codec == 0
    keep = np.flatnonzero(messages.good & plain)
    for index in np.unique(owner[~plain]).tolist():
        detail = "a compressed message inside a compressed message"
        add_problem(problems, batches, index, "nested_compression", detail)
    for index in np.unique(owner[plain & ~messages.good]).tolist():
        detail = "key and value do not match the message length"
        add_problem(problems, batches, index, "record_fields", detail)
    key, value = ((at[keep], length[keep]) for at, length in (messages.key, messages.value))
    return RecordColumns(
        batch=owner[keep],
        offset=offset[keep],
        timestamp=timestamp[keep],
        key=make_views(row.data, row.buffer, key),
        value=make_views(row.data, row.buffer, value),
        header_count=np.zeros(len(keep), np.int64),
        header_key=np.zeros((0, 2), np.uint64),
        header_value=np.zeros((0, 2), np.uint64),
    )
