"""Reads the fields of magic 0 and 1 messages, for all messages at once.

    message   offset int64, size int32, crc uint32, magic int8, attributes int8,
              [magic 1: timestamp int64], key length int32, key, value length int32, value

A compressed message is a wrapper: its value decompresses to a set of messages. The offsets inside
are absolute in magic 0. In magic 1 they count from 0, and the wrapper has the offset of its last
message once a broker has set it (KIP-31). With log append time, the wrapper's timestamp applies to
all its messages (KIP-32).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dissector.arrays import arrays
from dissector.packets.block import Bytes, Int64
from dissector.records.record_columns import Spans
from dissector.streams.byteview import ContiguousBytes


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
