"""Decodes all messages of one layout at once: a column per field.

The input is the bodies of n messages of one API, version and direction. The decoder goes through
the layout once, with one position per message: a field of fixed width adds its width, a string adds
its length, an array takes one step per index over the messages that still have an element there.
Fields with a requested role are kept, all others are skipped.

Damaged bytes raise nothing. A position only grows, every read is clipped to the end of its body,
and an impossible value (a negative length, more elements than bytes) adds `POISON` to the position.
So one comparison at the end finds the messages that do not fit their layout: their position is
beyond the end of the body, or so far before it that the surplus is not accepted (see `surplus`).
No column contains them; `explain` names the wrong field. Of messages known to be cut, the fields
outside arrays that are present are kept. Arrays are not, because their elements may be cut.

If the compiled loop is available and the bytes are contiguous, `decoder_program` does the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from dissector import kernel
from dissector.packets.block import Int64
from dissector.protocol.decoder_program import decode_columns_compiled
from dissector.protocol.element_limits import ELEMENT_BYTES, MAX_LIMIT, MIN_LIMIT
from dissector.protocol.field_columns import DTYPES, WIDTHS, DecodedColumns, FieldColumn, Level
from dissector.protocol.notation import Definition, Field, Layout
from dissector.protocol.surplus import LIMITS, PART
from dissector.streams.byteview import ByteView, ContiguousBytes

POISON = 1 << 40
"""Added to the position of a message with an impossible value: beyond the end of any body."""

GUESS_AFTER = 8
"""Elements that an array must still have before the decoder tries them all at once."""

AT_ONCE = 1 << 20
"""Elements tried at once, over all messages."""


def decode_columns(
    layout: Layout, space: ByteView, start: Int64, end: Int64, roles: frozenset[str],
    cut: NDArray[np.bool_] | None = None,
) -> DecodedColumns:  # fmt: skip
    """Decode the bodies [start, end) of n messages of one layout; keep the fields with `roles`.

    Columns are in the order of the layout's fields; the compiled loop returns the same columns.
    `start` and `end`: int64 addresses in `space`, shape (n,); the header is not part of a body.
    `cut`: messages of which only the beginning is present, up to `end`.
    """
    if kernel.COMPILED and isinstance(space, ContiguousBytes):
        cut = np.zeros(len(start), np.bool_) if cut is None else cut
        return decode_columns_compiled(layout, space, start, end, roles, cut)
    decoder = _ColumnDecoder(layout.flexible, space, roles, (start, end))
    messages = np.arange(len(start), dtype=np.int64)
    root = _LevelRows((), None)
    root.add(messages, messages)
    position = decoder.struct(layout.fields, root, messages, start, end)
    surplus, limit = end - position, LIMITS[layout.direction]
    good = (surplus >= 0) & (surplus <= np.maximum(limit, (position - start) // PART))
    cut_end = np.full(len(end), -1) if cut is None else np.where(cut, end, -1)
    places = _places(layout)
    columns = sorted(decoder.finish(good, cut_end), key=lambda column: places[column.path])
    return DecodedColumns(good, np.where(good, surplus, 0), columns)


@cache
def _places(layout: Definition) -> dict[tuple[str, ...], int]:
    """The rank of each field in wire order, by path."""

    def paths(fields: tuple[Field, ...], above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for each in fields:
            yield (*above, each.name)
            yield from paths(each.fields, (*above, each.name))

    return {path: place for place, path in enumerate(paths(layout.fields, ()))}


def _in_order(column: FieldColumn) -> FieldColumn:
    """A column built in several steps, sorted by message and, in each, by position."""
    message = column.message
    step, way = np.diff(message), np.diff(column.at)
    if ((step > 0) | ((step == 0) & (way > 0))).all():
        return column
    return column.only(np.lexsort((column.at, message)))


def skip_tags(space: ByteView, at: Int64, end: Int64) -> Int64:
    """The addresses after the tagged sections, such as a header's, that begin at `at`."""
    rows = np.arange(len(at), dtype=np.int64)
    return _ColumnDecoder(True, space, frozenset()).struct((), _LevelRows((), None), rows, at, end)


@dataclass(slots=True)
class _LevelRows:
    """A level under construction: lists of chunks, one per step."""

    path: tuple[str, ...]
    parent: _LevelRows | None
    count: int = 0
    owners: list[Int64] = field(default_factory=list)
    ordinals: list[Int64] = field(default_factory=list)

    def add(self, owner: Int64, ordinal: Int64) -> Int64:
        """Append elements; returns their rows."""
        rows = np.arange(self.count, self.count + len(owner), dtype=np.int64)
        self.count += len(owner)
        self.owners.append(owner)
        self.ordinals.append(ordinal)
        return rows


@dataclass(slots=True)
class _PendingColumn:
    """A column under construction."""

    of: Field
    rows: _LevelRows
    row: list[Int64] = field(default_factory=list)
    at: list[Int64] = field(default_factory=list)
    value: list[NDArray[np.generic]] = field(default_factory=list)


class _ElementBudget:
    """The number of array elements that each message may still have."""

    def __init__(self, start: Int64, end: Int64) -> None:
        self._order = np.argsort(start)
        self._start = start[self._order]
        self._left = np.clip((end - start) // ELEMENT_BYTES, MIN_LIMIT, MAX_LIMIT)

    def beyond(self, at: Int64, count: Int64, *, rehearsing: bool) -> NDArray[np.bool_]:
        """Mask of the arrays whose message exceeds its limit. `at`: address of their first element.

        A rehearsal counts nothing, and refuses arrays that are too large for it.
        """
        message = self._order[np.searchsorted(self._start, at, side="right") - 1]
        exceeded: NDArray[np.bool_]
        if rehearsing:
            exceeded = (count > self._left[message]) | (np.cumsum(count) > AT_ONCE)
        else:
            np.subtract.at(self._left, message, count)
            exceeded = self._left[message] < 0
        return exceeded


class _ColumnDecoder:
    def __init__(
        self, flexible: bool, space: ByteView, roles: frozenset[str],
        bodies: tuple[Int64, Int64] | None = None,
    ) -> None:  # fmt: skip
        """`bodies`: begin and end of each message; None where the layout has no arrays."""
        self.budget = None if bodies is None else _ElementBudget(*bodies)
        self.flexible = flexible
        self.space = space
        self.roles = roles
        self.kept: dict[tuple[str, ...], _PendingColumn] = {}
        self.levels: dict[tuple[str, ...], _LevelRows] = {}
        self.rehearsing = False

    def struct(
        self, fields: tuple[Field, ...], rows: _LevelRows, row: Int64, at: Int64, end: Int64,
        prefix: tuple[str, ...] = (),
    ) -> Int64:  # fmt: skip
        """Decode a struct for each of k rows; returns the positions after it, shape (k,)."""
        ahead = 0  # bytes of fixed width since `at`: one addition per run of fixed fields
        tagged = []
        for each in fields:
            if each.tag is not None:
                tagged.append(each)
                continue
            width = 0 if each.is_array else WIDTHS.get(each.type, 0)
            if width:
                if self._wants(each):
                    self._keep_fixed(each, rows, row, at + ahead, end, prefix)
                ahead += width
                continue
            at = self.value(each, rows, row, at + ahead if ahead else at, end, prefix)
            ahead = 0
        if ahead:
            at = at + ahead
        return self._tagged_section(tagged, rows, row, at, end, prefix) if self.flexible else at

    def value(
        self,
        each: Field,
        rows: _LevelRows,
        row: Int64,
        at: Int64,
        end: Int64,
        prefix: tuple[str, ...],
    ) -> Int64:
        """Decode one field of any type."""
        if each.is_array:
            return self._array(each, rows, row, at, end, prefix)
        if each.type == "struct":
            return self._nested(each, rows, row, at, end, prefix)
        if each.type in WIDTHS:
            if self._wants(each):
                self._keep_fixed(each, rows, row, at, end, prefix)
            return at + WIDTHS[each.type]
        length, at = self._length(at, end, each.nullable, short=each.type == "string")
        if self._wants(each):
            self._keep(each, rows, row, at, length, prefix)
        return at + np.maximum(length, 0)

    def finish(self, good: NDArray[np.bool_], cut_end: Int64) -> list[FieldColumn]:
        """The columns of the good messages, with the present fields of the cut ones.

        `cut_end`: address after the last byte of each cut message; -1 for complete messages.
        """
        levels: dict[tuple[str, ...], Level] = {}
        columns = []
        for path, kept in self.kept.items():
            level = _finish_level(kept.rows, levels)
            row, at = np.concatenate(kept.row), np.concatenate(kept.at)
            value = np.concatenate(kept.value)
            if not good.all():
                message = level.message[row]
                keep = good[message]
                if level.parent is None:
                    width = WIDTHS.get(kept.of.type, value)
                    keep |= (at < cut_end[message]) & (at + width <= cut_end[message])
                row, at, value = row[keep], at[keep], value[keep]
            number = kept.of.type in DTYPES
            column = FieldColumn(
                kept.of, path, level, row, at,
                value if number else None, None if number else value.astype(np.int64),
            )  # fmt: skip
            columns.append(column if len(kept.row) == 1 else _in_order(column))
        return columns

    def _wants(self, each: Field) -> bool:
        return not self.rehearsing and not self.roles.isdisjoint(each.roles)

    def _keep_fixed(
        self,
        each: Field,
        rows: _LevelRows,
        row: Int64,
        at: Int64,
        end: Int64,
        prefix: tuple[str, ...],
    ) -> None:
        at = at + (at + WIDTHS[each.type] > end) * POISON
        value: NDArray[np.generic]
        if each.type == "uuid":
            value = np.full(len(at), WIDTHS["uuid"], np.int64)
        else:
            value = self.space.number(np.minimum(at, end), DTYPES[each.type])
        self._keep(each, rows, row, at, value, prefix)

    def _keep(
        self, each: Field, rows: _LevelRows, row: Int64, at: Int64, value: NDArray[np.generic],
        prefix: tuple[str, ...],
    ) -> None:  # fmt: skip
        path = (*prefix, each.name)
        kept = self.kept.get(path)
        if kept is None:
            kept = self.kept[path] = _PendingColumn(each, rows)
        kept.row.append(row)
        kept.at.append(at)
        kept.value.append(value)

    def _unsigned_varint(self, at: Int64, end: Int64) -> tuple[Int64, Int64]:
        """The unsigned varint (KIP-482) at each position, and the position after it."""
        byte = self.space.u8(np.minimum(at, end))
        value = (byte & 0x7F).astype(np.int64)
        at = at + 1
        continued = np.flatnonzero(byte & 0x80)
        for shift in (7, 14, 21, 28):
            if not len(continued):
                return value, at
            byte = self.space.u8(np.minimum(at[continued], end[continued]))
            value[continued] |= (byte & 0x7F).astype(np.int64) << shift
            at[continued] += 1
            continued = continued[(byte & 0x80) != 0]
        at[continued] += POISON
        return value, at

    def _length(self, at: Int64, end: Int64, nullable: bool, *, short: bool) -> tuple[Int64, Int64]:
        """A length or count (-1: null) at each position, at most the number of bytes after it."""
        length: Int64
        if self.flexible:
            length, at = self._unsigned_varint(at, end)
            length -= 1
        else:
            width = 2 if short else 4
            length = self.space.number(np.minimum(at, end), f"i{width}").astype(np.int64)
            at = at + width
        wrong = (length > end - at) | (length < (-1 if nullable else 0))
        if wrong.any():
            length[wrong] = 0
            at = at + wrong * POISON
        return length, at

    def _nested(
        self,
        each: Field,
        rows: _LevelRows,
        row: Int64,
        at: Int64,
        end: Int64,
        prefix: tuple[str, ...],
    ) -> Int64:
        path = (*prefix, each.name)
        if not each.nullable:
            return self.struct(each.fields, rows, row, at, end, path)
        null = -1 if each.tag is None else 0
        if each.tag is None:
            marker, at = self.space.number(np.minimum(at, end), "i1"), at + 1
        else:  # KIP-893
            marker, at = self._unsigned_varint(at, end)
        at = at + ((marker != null) & (marker != 1)) * POISON
        present = np.flatnonzero((marker == 1) & (at <= end))
        if len(present):
            at[present] = self.struct(
                each.fields, rows, row[present], at[present], end[present], path
            )
        return at

    def _tagged_section(
        self, tagged: list[Field], rows: _LevelRows, row: Int64, at: Int64, end: Int64,
        prefix: tuple[str, ...],
    ) -> Int64:  # fmt: skip
        """Tagged fields (KIP-482): known ones must fill their size, unknown ones are skipped."""
        left, at = self._unsigned_varint(at, end)
        known = {each.tag: each for each in tagged}
        pending = np.flatnonzero((left > 0) & (at <= end))
        while len(pending):
            tag, cursor = self._unsigned_varint(at[pending], end[pending])
            size, cursor = self._unsigned_varint(cursor, end[pending])
            cursor += (size > end[pending] - cursor) * POISON
            behind = cursor + size
            for number in np.unique(tag):
                each = known.get(int(number))
                if each is None:
                    continue
                matching = np.flatnonzero((tag == number) & (cursor <= end[pending]))
                stop = self.value(
                    each, rows, row[pending[matching]], cursor[matching], behind[matching], prefix
                )
                behind[matching] += (stop != behind[matching]) * POISON
            at[pending] = behind
            left[pending] -= 1
            pending = pending[(left[pending] > 0) & (behind <= end[pending])]
        at += (left > 0) * POISON
        return at

    def _array(
        self,
        each: Field,
        rows: _LevelRows,
        row: Int64,
        at: Int64,
        end: Int64,
        prefix: tuple[str, ...],
    ) -> Int64:
        count, at = self._length(at, end, each.nullable, short=False)
        count = np.maximum(count, 0)
        if not count.any():
            return at
        if self.budget is not None:
            exceeded = self.budget.beyond(at, count, rehearsing=self.rehearsing)
            if exceeded.any():
                at, count = at + exceeded * POISON, np.where(exceeded, 0, count)
        path = (*prefix, each.name)
        inside = self._level(path, rows)
        stride = self._stride(each)
        if stride:
            too_many = count * stride > end - at
            if too_many.any():
                at = at + too_many * POISON
                count = np.where(too_many, 0, count)
            if self._no_tags(each, at, count, stride):
                if self._wants(each) or any(map(self._wants, each.fields)):
                    first, size = np.zeros_like(count), np.full_like(count, stride)
                    self._elements(each, inside, row, at, end, first, count, size, path)
                return at + count * stride
        return self._element_by_element(each, inside, row, at, end, count, path)

    def _stride(self, each: Field) -> int:
        """Bytes of an element without tagged fields if its width is fixed; otherwise 0."""
        if each.type != "struct":
            return WIDTHS.get(each.type, 0)
        widths = [
            0 if inner.is_array else WIDTHS.get(inner.type, 0)
            for inner in each.fields
            if inner.tag is None
        ]
        return sum(widths) + self.flexible if all(widths) else 0

    def _no_tags(self, each: Field, at: Int64, count: Int64, stride: int) -> bool:
        """Whether the tagged sections, the last byte of each element, are all empty."""
        if not self.flexible or each.type != "struct":
            return True
        first = np.repeat(at - stride * (np.cumsum(count) - count), count)
        last = first + stride * np.arange(1, len(first) + 1) - 1
        return not self.space.u8(last).any()

    def _elements(
        self, each: Field, inside: _LevelRows, row: Int64, at: Int64, end: Int64, index: Int64,
        count: Int64, size: Int64, path: tuple[str, ...],
    ) -> Int64:  # fmt: skip
        """Decode `count` elements for each of k rows, from `index` on, assuming `size` bytes each.

        An element may extend to the end of its body, so that a longer element is detected.
        Returns the position after each element, in order of row and index.
        """
        owner = np.repeat(np.arange(len(count)), count)
        ordinal = np.arange(len(owner), dtype=np.int64) - (np.cumsum(count) - count)[owner]
        begin = at[owner] + (ordinal * size[owner]).astype(np.int64)
        rows = ordinal if self.rehearsing else inside.add(row[owner], index[owner] + ordinal)
        return self._element(each, inside, rows, begin, end[owner], path)

    def _element(
        self,
        each: Field,
        inside: _LevelRows,
        row: Int64,
        at: Int64,
        end: Int64,
        path: tuple[str, ...],
    ) -> Int64:
        """Decode one element for each row of the array's level."""
        if each.type == "struct":
            return self.struct(each.fields, inside, row, at, end, path)
        plain = Field(path[-1], each.type, roles=each.roles)
        return self.value(plain, inside, row, at, end, path[:-1])

    def _element_by_element(
        self, each: Field, inside: _LevelRows, row: Int64, at: Int64, end: Int64, count: Int64,
        path: tuple[str, ...],
    ) -> Int64:  # fmt: skip
        """One step per index over the rows that still have an element; long arrays in strides."""
        at = at.copy()
        index = np.zeros(len(count), np.int64)
        live = np.flatnonzero(count > 0)
        wait, patience = 1, 1  # steps until the next guess; patience doubles with each that fails
        while len(live):
            before = at[live]
            rows = live if self.rehearsing else inside.add(row[live], index[live])
            after: Int64 = self._element(each, inside, rows, before, end[live], path)
            at[live] = after
            index[live] += 1
            continues = (index[live] < count[live]) & (after <= end[live])
            live, size = live[continues], (after - before)[continues]
            wait -= 1
            if wait <= 0 and len(live) and int((count[live] - index[live]).max()) >= GUESS_AFTER:
                left = count[live] - index[live]
                taken = self._take_equal_elements(
                    each, inside, row[live], at[live], end[live], index[live], left, size, path
                )
                at[live] += taken * size
                index[live] += taken
                patience = 1 if int(taken.max()) >= GUESS_AFTER else min(2 * patience, 1 << 10)
                wait = patience
                live = live[index[live] < count[live]]
        at += (index < count) * POISON
        return at

    def _take_equal_elements(
        self, each: Field, inside: _LevelRows, row: Int64, at: Int64, end: Int64, index: Int64,
        left: Int64, size: Int64, path: tuple[str, ...],
    ) -> Int64:  # fmt: skip
        """Assume that the next elements are as long as the last one; decode those that really are.

        A rehearsal decodes them without keeping values. Then each row takes its elements up to the
        first one of another length. Returns the number of elements taken per row, shape (k,).
        """
        fit = np.minimum(left, (end - at) // np.maximum(size, 1))
        fit = np.minimum(fit, max(AT_ONCE // len(fit), GUESS_AFTER))
        rehearsing, self.rehearsing = self.rehearsing, True
        stop = self._elements(each, inside, row, at, end, index, fit, size, path)
        self.rehearsing = rehearsing
        owner = np.repeat(np.arange(len(fit)), fit)
        ordinal = np.arange(len(owner)) - (np.cumsum(fit) - fit)[owner]
        wrong = stop != at[owner] + (ordinal + 1) * size[owner]
        taken: Int64 = fit.copy()
        np.minimum.at(taken, owner[wrong], ordinal[wrong])
        if not self.rehearsing and taken.any():
            self._elements(each, inside, row, at, end, index, taken, size, path)
        return taken

    def _level(self, path: tuple[str, ...], parent: _LevelRows) -> _LevelRows:
        level = self.levels.get(path)
        if level is None:
            level = self.levels[path] = _LevelRows(path, parent)
        return level


def _finish_level(rows: _LevelRows, done: dict[tuple[str, ...], Level]) -> Level:
    level = done.get(rows.path)
    if level is not None:
        return level
    parent = None if rows.parent is None else _finish_level(rows.parent, done)
    owner = np.concatenate(rows.owners)
    message = owner if parent is None else parent.message[owner]
    level = Level(rows.path, parent, owner, np.concatenate(rows.ordinals), message)
    done[rows.path] = level
    return level
