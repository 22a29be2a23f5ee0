"""The fields of message bodies that tables need, by role, over all layouts of a block.

The messages of one direction are grouped by API and version. Each group is decoded once, and the
columns of all groups are joined by the role of their field: a throttle time is a throttle time in
every API. No API is known by its number here; the definition pages give each field its role.

The bytes of messages are in several byte spaces: contiguous, in several pieces, or kept from an
earlier block. A message is therefore the index of its space, its start and its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissector import _native
from dissector.arrays import arrays
from dissector.byteview import ByteView, ContiguousBytes, copy_ranges, offsets_of
from dissector.errors import UnknownVersion
from dissector.exchanges.columns import dictionary_codes, masked, take_rows
from dissector.exchanges.ordering import ordered
from dissector.exchanges.two_threads import results
from dissector.packets.block import Bytes, Int64
from dissector.protocol import registry
from dissector.protocol.column_decoder import decode_columns
from dissector.protocol.field_columns import DecodedColumns, FieldColumn, Level
from dissector.protocol.notation import Direction
from dissector.streams.connections.table import Bools

Values: TypeAlias = "Int64 | slice"
"""Indices of values of a column."""
ALL = slice(None)


@arrays
class Messages:
    """n messages of one direction; arrays of shape (n,)."""

    direction: Direction
    api_key: Int64
    version: Int64
    spaces: Sequence[ByteView]
    space: Int64
    """Index into `spaces`."""
    start: Int64
    """Address of the body: what follows the header."""
    end: Int64

    def __len__(self) -> int:
        return len(self.start)


@arrays
class LayoutGroup:
    """The messages of one layout in one byte space, decoded."""

    space: ByteView
    messages: Int64
    """Index of each message of the group among all messages of the block."""
    walked: DecodedColumns

    def uuid(self, column: FieldColumn) -> pa.Array:
        """The values of a column of uuids, 16 bytes each; null for zero."""
        return _uuids(self.space, column.at, np.ones(len(column.at), np.bool_))

    def message(self, column: FieldColumn) -> Int64:
        """The index of the message of each value, among all messages of the block."""
        return self.messages.take(column.message)

    def sibling(self, column: FieldColumn, role: str) -> tuple[FieldColumn, Int64] | None:
        """The nearest field with a role, for each value of `column`.

        The field is in the same array element, or in one that encloses it. Returns its column and,
        for each value of `column`, the index of the value there; -1 if there is none.
        """
        best: tuple[FieldColumn, Int64] | None = None
        for candidate in self.walked.by_role(role):
            rows = column.rows_in(candidate.level)
            deeper = best is None or len(candidate.level.path) > len(best[0].level.path)
            if rows is None or not deeper or not len(candidate.row):
                continue
            index = np.full(len(candidate.level.owner), -1, np.int64)
            index[candidate.row] = np.arange(len(candidate.row))
            best = candidate, index[rows]
        return best

    def sibling_numbers(self, column: FieldColumn, role: str, select: Values = ALL) -> pa.Array:
        """The nearest number with a role for each selected value; null if there is none."""
        sibling = self.sibling(column, role)
        if sibling is None or sibling[0].values is None:
            return pa.nulls(len(column.row[select]), pa.int64())
        index = sibling[1][select]
        value = sibling[0].values[np.maximum(index, 0)].astype(np.int64)
        return masked(value, index < 0)

    def sibling_texts(self, column: FieldColumn, role: str, select: Values = ALL) -> pa.Array:
        """The nearest text with a role for each selected value; null if there is none."""
        sibling = self.sibling(column, role)
        if sibling is None:
            return pa.nulls(len(column.row[select]), pa.string())
        source, index = sibling[0], sibling[1][select]
        assert source.length is not None
        is_used = np.zeros(len(source.length) + 1, np.bool_)  # the last one: no sibling
        is_used[index] = True
        row = np.flatnonzero(is_used[:-1])  # each text once: it may have many values beside it
        at, length = source.at[row], source.length[row]
        words = texts([self.space], np.zeros(len(row), np.int64), at, length)
        place = np.cumsum(is_used) - 1
        place[-1] = -1
        return take_rows(words, place[index])

    def topic_ids(self, column: FieldColumn, select: Values = ALL) -> pa.Array:
        """The nearest topic id for each selected value, 16 bytes; null if none or zero."""
        sibling = self.sibling(column, "topic_id")
        if sibling is None:
            return pa.nulls(len(column.row[select]), pa.binary())
        source, index = sibling[0], sibling[1][select]
        return _uuids(self.space, source.at[index], index >= 0)

    def nested_lists(self, column: FieldColumn, role: str, type: pa.DataType) -> pa.Array:
        """For each value of `column`, the numbers of an array with a role in the same element."""
        counts = np.zeros(len(column.level.owner), np.int64)
        numbers = np.zeros(0, np.int64)
        for nested in self.walked.by_role(role):
            if nested.level.parent is column.level and nested.values is not None:
                owner = nested.level.owner[nested.row]
                order = np.lexsort((nested.level.ordinal[nested.row], owner))
                numbers = nested.values[order].astype(np.int64)
                counts = np.bincount(owner, minlength=len(counts))
        offsets = pa.array(offsets_of(counts), pa.int32())
        lists = pa.ListArray.from_arrays(offsets, pa.array(numbers, type))
        return lists.take(pa.array(column.row))

    def paths(self, column: FieldColumn, select: Int64) -> pa.Array:
        """The path of each selected value, such as ``topics[2].partitions[0].error_code``."""
        ordinals: dict[tuple[str, ...], Int64] = {}
        level: Level | None = column.level
        rows = column.row[select]
        while level is not None and level.parent is not None:
            ordinals[level.path] = level.ordinal[rows]
            rows, level = level.owner[rows], level.parent
        parts: list[pa.Array | str] = []
        text = ""
        for depth, name in enumerate(column.path, 1):
            text += ("." if depth > 1 else "") + name
            ordinal = ordinals.get(column.path[:depth])
            if ordinal is not None:
                parts += [text + "[", pc.cast(pa.array(ordinal), pa.string())]
                text = "]"
        if not parts:
            return pa.array([text] * len(select), pa.string())
        return pc.binary_join_element_wise(*parts, text, "")


@arrays
class DecodedFields:
    """The decoded fields of the messages of one direction in a block."""

    messages: Messages
    good: Bools
    """Shape (n,): the body has all fields of its definition; see `protocol.limits`."""
    surplus: Int64
    """Shape (n,): bytes after the last field of each good message; 0 for the others."""
    groups: list[LayoutGroup] = field(default_factory=list)
    _by_role: dict[str, list[tuple[LayoutGroup, FieldColumn]]] = field(default_factory=dict)

    def add(self, group: LayoutGroup) -> None:
        """Add the messages of a layout."""
        self.groups.append(group)
        for column in group.walked.columns:
            for role in column.field.roles:
                self._by_role.setdefault(role, []).append((group, column))

    def columns(self, role: str) -> Sequence[tuple[LayoutGroup, FieldColumn]]:
        """All columns with a role, each with its group."""
        return self._by_role.get(role, ())

    def numbers(self, role: str) -> tuple[Int64, Bools]:
        """The first number with a role in each message, and whether it exists; shapes (n,)."""
        value = np.zeros(len(self.messages), np.int64)
        known = np.zeros(len(self.messages), np.bool_)
        for group, column in self.columns(role):
            assert column.values is not None
            message = group.message(column)
            value[message[::-1]] = column.values[::-1]  # the first value is assigned last
            known[message] = True
        return value, known

    def number_column(self, role: str, dtype: type[np.integer[Any]] = np.int64) -> pa.Array:
        """The first number with a role in each message; null if there is none."""
        value, known = self.numbers(role)
        return masked(value.astype(dtype), ~known)

    def all_texts(
        self, role: str, wanted: Bools | None = None
    ) -> tuple[Int64, Int64, pa.DictionaryArray]:
        """All texts with a role: message, address and text of each; shapes (values,).

        `wanted`: the messages to read (None: all).
        """
        message, at, length = ([np.zeros(0, np.int64)] for _ in range(3))
        for group, column in self.columns(role):
            if wanted is not None:
                column = column.only(wanted[group.message(column)])
            assert column.length is not None
            message.append(group.message(column))
            at.append(column.at)
            length.append(column.length)
        owner, address = np.concatenate(message), np.concatenate(at)
        space = self.messages.space.take(owner)
        text = texts(self.messages.spaces, space, address, np.concatenate(length))
        return owner, address, text

    def texts(self, role: str) -> pa.Array:
        """The first text with a role in each message; null if there is none. Shape (n,)."""
        if not self.columns(role):
            codes = pa.nulls(len(self.messages), pa.int32())
            return pa.DictionaryArray.from_arrays(codes, pa.array([], pa.string()))
        message, _, text = self.all_texts(role)
        index = dictionary_codes(text)
        code = np.full(len(self.messages), -1, np.int32)
        begin = 0
        for _, column in self.columns(role):
            values = slice(begin, begin + len(column.at))
            code[message[values][::-1]] = index[values][::-1]  # the first value is assigned last
            begin = values.stop
        return pa.DictionaryArray.from_arrays(masked(code, code < 0), text.dictionary, safe=False)

    def count(self, role: str) -> Int64:
        """The number of values with a role in each message; shape (n,)."""
        total = np.zeros(len(self.messages), np.int64)
        for group, column in self.columns(role):
            total += np.bincount(group.message(column), minlength=len(total))
        return total


def decode_fields(messages: Messages, roles: frozenset[str], whole: Bools) -> DecodedFields:
    """Decode all messages, group by group, and keep the fields that have one of `roles`.

    `whole`: messages without missing bytes. Of the others, the captured fields are kept. Messages
    whose API or version is not in the definitions are not good, and in no group.
    """
    if not len(messages):
        return DecodedFields(messages, np.zeros(0, np.bool_), np.zeros(0, np.int64))
    good = np.zeros(len(messages), np.bool_)
    surplus = np.zeros(len(messages), np.int64)
    fields = DecodedFields(messages, good, surplus)
    kind = (messages.api_key << 24) | (messages.version << 8) | messages.space
    order = ordered(messages.api_key, messages.version, messages.space)
    borders = np.flatnonzero(np.diff(kind[order])) + 1
    start, end = messages.start.take(order), messages.end.take(order)
    is_cut = ~whole.take(order)
    groups: list[tuple[ByteView, Int64]] = []
    calls: list[Callable[[], DecodedColumns]] = []
    for begin, behind in pairwise([0, *borders.tolist(), len(order)]):
        members = order[begin:behind]
        first = int(members[0])
        try:
            layout = registry.layout(
                int(messages.api_key[first]), messages.direction, int(messages.version[first])
            )
        except UnknownVersion:
            continue
        space, part = messages.spaces[int(messages.space[first])], slice(begin, behind)
        groups.append((space, members))
        calls.append(
            partial(decode_columns, layout, space, start[part], end[part], roles, is_cut[part])
        )
    for (space, members), walked in zip(groups, results(calls, len(order)), strict=True):
        good[members] = walked.good
        surplus[members] = walked.surplus
        fields.add(LayoutGroup(space, members, walked))
    return fields


def texts(spaces: Sequence[ByteView], space: Int64, at: Int64, length: Int64) -> pa.Array:
    """UTF-8 text of n ranges, each in one of `spaces`; null if the length is -1.

    The result is a dictionary array, so that each distinct text is made once. Bytes that are not
    UTF-8 are shown as ``\\xNN``.
    """
    codes = np.zeros(len(at), np.int32)
    distinct: list[Bytes] = []
    sizes: list[Int64] = []
    size = np.maximum(length, 0)
    for index, each in enumerate(spaces):
        is_here = space == index
        if not is_here.any():
            continue
        members = slice(None) if is_here.all() else np.flatnonzero(is_here)
        code, words, word_size = _words(each, at[members], size[members])
        codes[members] = code + sum(map(len, sizes))
        distinct.append(words)
        sizes.append(word_size)
    words = np.concatenate([np.zeros(0, np.uint8), *distinct])
    word_size = np.concatenate([np.zeros(0, np.int64), *sizes])
    if len(distinct) > 1:  # two spaces may have the same words
        start = np.cumsum(word_size) - word_size
        code, words, word_size = _words(ContiguousBytes(words), start, word_size)
        codes = code.take(codes)
    strings = _strings(words, word_size)
    return pa.DictionaryArray.from_arrays(masked(codes, length < 0), strings, safe=False)


def _words(space: ByteView, at: Int64, length: Int64) -> tuple[NDArray[np.int32], Bytes, Int64]:
    """A code for the bytes of each of n ranges; the bytes of all codes, one after the other, and
    their lengths."""
    if isinstance(space, ContiguousBytes):
        data, at, length = space.data, np.ascontiguousarray(at), np.ascontiguousarray(length)
    else:
        data, offsets = space.take(at, length)
        at = offsets[:-1]
    code, first = np.empty(len(at), np.int32), np.empty(len(at), np.int64)
    first = first[: _native.number_words(data, at, length, _native.HASH_KEY, code, first)]
    size = length[first]
    words = np.empty(int(size.sum()), np.uint8)
    copy_ranges(data, at[first], size, words)
    return code, words, size


def _strings(data: Bytes, length: Int64) -> pa.Array:
    """The texts in `data`, one after the other."""
    offsets = offsets_of(length).astype(np.int32)
    if len(data) and data.max() >= 0x80:
        ranges = pairwise(offsets.tolist())
        words = [data[begin:end].tobytes() for begin, end in ranges]
        return pa.array([word.decode("utf-8", "backslashreplace") for word in words], pa.string())
    return pa.StringArray.from_buffers(len(length), pa.py_buffer(offsets), pa.py_buffer(data))


def _uuids(space: ByteView, at: Int64, known: Bools) -> pa.Array:
    """16 bytes each; null if not known, or zero, which is Kafka's null."""
    data, offsets = space.take(at, np.where(known, 16, 0))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    binary = pa.BinaryArray.from_buffers(pa.binary(), len(at), buffers)
    return pc.if_else(pc.is_in(binary, pa.array([b"", bytes(16)])), None, binary)


def distinct_pairs(left: pa.Array, right: pa.Array) -> list[tuple[Any, Any]]:
    """The distinct pairs of values in the same row; None for null."""
    codes = []
    words = []
    for column in (left, right):
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        codes.append(pc.fill_null(encoded.indices.cast(pa.int64()), -1).to_numpy() + 1)
        words.append([None, *encoded.dictionary.to_pylist()])
    pairs = np.unique(codes[0] * len(words[1]) + codes[1])
    return [
        (words[0][pair // len(words[1])], words[1][pair % len(words[1])]) for pair in pairs.tolist()
    ]


def flat(parts: Sequence[bytes]) -> tuple[ContiguousBytes, Int64]:
    """A byte space of copies of `parts`, one after the other, and their n + 1 borders."""
    borders = offsets_of(np.array([len(part) for part in parts], np.int64))
    return ContiguousBytes.of(b"".join(parts)), borders
