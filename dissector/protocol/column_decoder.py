"""The column walker: all messages of one layout at once, their fields as columns.

It is handed the bodies of n messages of one API, version and direction, and goes through the layout
once. A position for each message moves along: past a field of fixed width by an addition, past a
string by a gather of lengths, past an array by a step for each index over the messages that still
have an element there. The fields whose roles were asked for are kept, the others stepped over.

Nothing is raised, whatever the bytes are. A position only ever grows, every gather is clipped to
the end of its body, and whatever cannot be right (a negative length, a count of more elements than
there are bytes) adds `POISON`. So one comparison at the end finds the messages that are not what
their layout says: those whose position lies behind the end of their body, or so far before it that
their surplus is not accepted (see `surplus`). They are left out of all columns, and the explaining
walker names the field that is wrong. Of messages that are known to be cut, the fields outside
arrays that are there are kept. Arrays are not, because their elements may be cut.

Messages that lie in one row of bytes are walked by a compiled loop instead, where it is there: see
`compiled`.
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
"""Added to the position of a message that cannot be right: farther than any body reaches."""

GUESS_AFTER = 8
"""Elements an array must still have for its elements to be tried all at once."""


AT_ONCE = 1 << 20
"""Elements that are tried at once, of all messages together."""


def decode_columns(
    layout: Layout, space: ByteView, start: Int64, end: Int64, roles: frozenset[str],
    cut: NDArray[np.bool_] | None = None,
) -> DecodedColumns:  # fmt: skip
    """Walk the bodies [start, end) of n messages of one layout; keep the fields that have `roles`.

    Columns are in the order of the layout's fields; the compiled walker gives the same ones.
    `start` and `end`: int64 addresses in `space`, shape (n,); the header is not part of a body.
    `cut`: messages of which only the beginning is there, up to `end`.
    """
    if kernel.COMPILED and isinstance(space, ContiguousBytes):
        none = np.zeros(len(start), np.bool_)
        return decode_columns_compiled(
            layout, space, start, end, roles, none if cut is None else cut
        )
    walker = _ColumnDecoder(layout.flexible, space, roles, (start, end))
    messages = np.arange(len(start), dtype=np.int64)
    root = _LevelRows((), None)
    root.add(messages, messages)
    position = walker.struct(layout.fields, root, messages, start, end)
    surplus, limit = end - position, LIMITS[layout.direction]
    good = (surplus >= 0) & (surplus <= np.maximum(limit, (position - start) // PART))
    there = np.full(len(end), -1) if cut is None else np.where(cut, end, -1)
    places = _places(layout)
    columns = sorted(walker.finish(good, there), key=lambda column: places[column.path])
    return DecodedColumns(good, np.where(good, surplus, 0), columns)


@cache
def _places(layout: Definition) -> dict[tuple[str, ...], int]:
    """Where each field stands among all of its layout."""

    def paths(fields: tuple[Field, ...], above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for each in fields:
            yield (*above, each.name)
            yield from paths(each.fields, (*above, each.name))

    return {path: place for place, path in enumerate(paths(layout.fields, ()))}


def _in_order(column: FieldColumn) -> FieldColumn:
    """A column of several steps, its values message by message, in each as on the wire."""
    message = column.message
    step, way = np.diff(message), np.diff(column.at)
    if ((step > 0) | ((step == 0) & (way > 0))).all():
        return column
    return column.only(np.lexsort((column.at, message)))


def skip_tags(space: ByteView, at: Int64, end: Int64) -> Int64:
    """The addresses behind the tagged sections, such as a header's, that begin at `at`."""
    nobody = np.arange(len(at), dtype=np.int64)
    return _ColumnDecoder(True, space, frozenset()).struct(
        (), _LevelRows((), None), nobody, at, end
    )


@dataclass(slots=True)
class _LevelRows:
    """A level while it is walked: lists of chunks, one for each step."""

    path: tuple[str, ...]
    parent: _LevelRows | None
    count: int = 0
    owners: list[Int64] = field(default_factory=list)
    ordinals: list[Int64] = field(default_factory=list)

    def add(self, owner: Int64, ordinal: Int64) -> Int64:
        """Append elements; their rows."""
        rows = np.arange(self.count, self.count + len(owner), dtype=np.int64)
        self.count += len(owner)
        self.owners.append(owner)
        self.ordinals.append(ordinal)
        return rows


@dataclass(slots=True)
class _PendingColumn:
    """A column while it is walked."""

    of: Field
    rows: _LevelRows
    row: list[Int64] = field(default_factory=list)
    at: list[Int64] = field(default_factory=list)
    value: list[NDArray[np.generic]] = field(default_factory=list)


class _ElementBudget:
    """How many elements the arrays of each message may still have."""

    def __init__(self, start: Int64, end: Int64) -> None:
        self._order = np.argsort(start)
        self._start = start[self._order]
        self._left = np.clip((end - start) // ELEMENT_BYTES, MIN_LIMIT, MAX_LIMIT)

    def beyond(self, at: Int64, count: Int64, *, rehearsing: bool) -> NDArray[np.bool_]:
        """Which of these arrays, with their first elements at `at`, are of a message that has more
        elements than it may have. A rehearsal counts nothing, and refuses what is too large for it.
        """
        message = self._order[np.searchsorted(self._start, at, side="right") - 1]
        found: NDArray[np.bool_]
        if rehearsing:
            found = (count > self._left[message]) | (np.cumsum(count) > AT_ONCE)
        else:
            np.subtract.at(self._left, message, count)
            found = self._left[message] < 0
        return found


class _ColumnDecoder:
    def __init__(
        self, flexible: bool, space: ByteView, roles: frozenset[str],
        bodies: tuple[Int64, Int64] | None = None,
    ) -> None:  # fmt: skip
        """`bodies`: where each message begins and ends; None where there are no arrays."""
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
        """Walk the fields of a struct for each of k rows; the positions behind it, shape (k,)."""
        ahead = 0  # bytes of fixed width since `at`: one addition for a run of them
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
        """Walk one field of any type."""
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

    def finish(self, good: NDArray[np.bool_], there: Int64) -> list[FieldColumn]:
        """The columns of the good messages, and what is there of the cut ones.

        `there`: address behind the last byte of each cut message; -1 for others.
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
                    keep |= (at < there[message]) & (at + width <= there[message])
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
        """The unsigned varint (KIP-482, at most five bytes) at each position, and what follows."""
        byte = self.space.u8(np.minimum(at, end))
        value = (byte & 0x7F).astype(np.int64)
        at = at + 1
        more = np.flatnonzero(byte & 0x80)
        for shift in (7, 14, 21, 28):
            if not len(more):
                return value, at
            byte = self.space.u8(np.minimum(at[more], end[more]))
            value[more] |= (byte & 0x7F).astype(np.int64) << shift
            at[more] += 1
            more = more[(byte & 0x80) != 0]
        at[more] += POISON
        return value, at

    def _length(self, at: Int64, end: Int64, nullable: bool, *, short: bool) -> tuple[Int64, Int64]:
        """A length or count (-1: null) at each position, never more than the bytes that follow."""
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
        here = np.flatnonzero((marker == 1) & (at <= end))
        if len(here):
            at[here] = self.struct(each.fields, rows, row[here], at[here], end[here], path)
        return at

    def _tagged_section(
        self, tagged: list[Field], rows: _LevelRows, row: Int64, at: Int64, end: Int64,
        prefix: tuple[str, ...],
    ) -> Int64:  # fmt: skip
        """Tagged fields (KIP-482): known ones must fill their size, others are skipped."""
        left, at = self._unsigned_varint(at, end)
        known = {each.tag: each for each in tagged}
        some = np.flatnonzero((left > 0) & (at <= end))
        while len(some):
            tag, here = self._unsigned_varint(at[some], end[some])
            size, here = self._unsigned_varint(here, end[some])
            here += (size > end[some] - here) * POISON
            behind = here + size
            for number in np.unique(tag):
                each = known.get(int(number))
                if each is None:
                    continue
                mine = np.flatnonzero((tag == number) & (here <= end[some]))
                stop = self.value(each, rows, row[some[mine]], here[mine], behind[mine], prefix)
                behind[mine] += (stop != behind[mine]) * POISON
            at[some] = behind
            left[some] -= 1
            some = some[(left[some] > 0) & (behind <= end[some])]
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
            crowded = self.budget.beyond(at, count, rehearsing=self.rehearsing)
            if crowded.any():
                at, count = at + crowded * POISON, np.where(crowded, 0, count)
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
        """Bytes of an element where all have the same, supposing no tagged fields; else 0."""
        if each.type != "struct":
            return WIDTHS.get(each.type, 0)
        widths = [
            0 if inner.is_array else WIDTHS.get(inner.type, 0)
            for inner in each.fields
            if inner.tag is None
        ]
        return sum(widths) + self.flexible if all(widths) else 0

    def _no_tags(self, each: Field, at: Int64, count: Int64, stride: int) -> bool:
        """Whether the tagged section of every element, its last byte, is empty."""
        if not self.flexible or each.type != "struct":
            return True
        first = np.repeat(at - stride * (np.cumsum(count) - count), count)
        last = first + stride * np.arange(1, len(first) + 1) - 1
        return not self.space.u8(last).any()

    def _elements(
        self, each: Field, inside: _LevelRows, row: Int64, at: Int64, end: Int64, index: Int64,
        count: Int64, size: Int64, path: tuple[str, ...],
    ) -> Int64:  # fmt: skip
        """Walk `count` elements for each of k rows, from `index` on, supposing `size` bytes each.

        An element may use all that is left of its body, so that one that is longer is seen as such.
        Returns the position behind each element, in order of row and index.
        """
        owner = np.repeat(np.arange(len(count)), count)
        ordinal = np.arange(len(owner), dtype=np.int64) - (np.cumsum(count) - count)[owner]
        here = at[owner] + (ordinal * size[owner]).astype(np.int64)
        rows = ordinal if self.rehearsing else inside.add(row[owner], index[owner] + ordinal)
        return self._element(each, inside, rows, here, end[owner], path)

    def _element(
        self,
        each: Field,
        inside: _LevelRows,
        row: Int64,
        at: Int64,
        end: Int64,
        path: tuple[str, ...],
    ) -> Int64:
        """Walk one element for each row of the array's level."""
        if each.type == "struct":
            return self.struct(each.fields, inside, row, at, end, path)
        plain = Field(path[-1], each.type, roles=each.roles)
        return self.value(plain, inside, row, at, end, path[:-1])

    def _element_by_element(
        self, each: Field, inside: _LevelRows, row: Int64, at: Int64, end: Int64, count: Int64,
        path: tuple[str, ...],
    ) -> Int64:  # fmt: skip
        """A step per index over the rows that still have an element; long arrays in strides."""
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
            more = (index[live] < count[live]) & (after <= end[live])
            live, size = live[more], (after - before)[more]
            wait -= 1
            if wait <= 0 and len(live) and int((count[live] - index[live]).max()) >= GUESS_AFTER:
                left = count[live] - index[live]
                taken = self._same_again(
                    each, inside, row[live], at[live], end[live], index[live], left, size, path
                )
                at[live] += taken * size
                index[live] += taken
                patience = 1 if int(taken.max()) >= GUESS_AFTER else min(2 * patience, 1 << 10)
                wait = patience
                live = live[index[live] < count[live]]
        at += (index < count) * POISON
        return at

    def _same_again(
        self, each: Field, inside: _LevelRows, row: Int64, at: Int64, end: Int64, index: Int64,
        left: Int64, size: Int64, path: tuple[str, ...],
    ) -> Int64:  # fmt: skip
        """Suppose that the next elements are as long as the last one; walk all that truly are.

        A rehearsal walks them without keeping anything; then each row takes its elements up to the
        first that ended elsewhere. Returns how many each row took, shape (k,).
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
