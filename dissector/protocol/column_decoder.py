"""Decodes all messages of one layout at once: a column per field.

The input is the bodies of n messages of one API, version and direction. A loop (`_native`) walks
each body by the program of its layout (`decoder_program`), and keeps the fields that have a
requested role.

Damaged bytes raise nothing. A message with an impossible value (a negative length, more elements
than bytes), or with too many surplus bytes (`limits`), is not good: no column contains it, and
`explain` names the wrong field. Of messages known to be cut, the fields outside arrays that are
present are kept. Arrays are not, because their elements may be cut.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dissector import _native
from dissector.byteview import ByteView
from dissector.packets.block import Int64
from dissector.protocol.decoder_program import Program, program
from dissector.protocol.field_columns import DecodedColumns, FieldColumn, Level
from dissector.protocol.limits import ELEMENT_BYTES, LIMITS, MAX_LIMIT, MIN_LIMIT, PART
from dissector.protocol.notation import WIDTHS, Layout

_MIN_ROOM = 256
"""Items of a column, at first."""


def decode_columns(
    layout: Layout, space: ByteView, start: Int64, end: Int64, roles: frozenset[str],
    cut: NDArray[np.bool_] | None = None,
) -> DecodedColumns:  # fmt: skip
    """Decode the bodies [start, end) of n messages of one layout; keep the fields with `roles`.

    Columns are in the order of the layout's fields. `start` and `end`: int64 addresses in `space`,
    shape (n,); the header is not part of a body. `cut`: messages of which only the beginning is
    present, up to `end`.
    """
    plan = program(layout, roles)
    cut = np.zeros(len(start), np.bool_) if cut is None else cut
    surplus, parts = _walk(layout, plan, space, start, end, cut)
    columns = _columns(plan, parts, len(start))
    return DecodedColumns(surplus >= 0, np.maximum(surplus, 0), columns)


def _walk(
    layout: Layout, plan: Program, space: ByteView, start: Int64, end: Int64,
    cut: NDArray[np.bool_],
) -> tuple[Int64, list[Int64]]:  # fmt: skip
    """Walk the bodies.

    Returns the bytes after each body, -1 if it is not good, and parts of all columns and levels.
    """
    columns, levels = len(plan.columns), len(plan.levels)
    parts = 3 * columns + 2 * levels
    start, end = np.ascontiguousarray(start), np.ascontiguousarray(end)
    surplus = np.empty(len(start), np.int64)
    chunks: list[list[Int64]] = []
    base = np.zeros(levels, np.int64)
    # One value per message is enough room, except where arrays have several elements.
    first, size = 0, max(len(start), _MIN_ROOM)
    while first < len(start):
        room, count = np.empty(parts * size, np.int64), np.zeros(columns + levels, np.int64)
        first = _native.walk_bodies(
            *space.pieces, plan.nodes, columns, layout.flexible, LIMITS[layout.direction], PART,
            start, end, cut, MIN_LIMIT, MAX_LIMIT, ELEMENT_BYTES, first, base, surplus, room, count,
        )  # fmt: skip
        kept = enumerate(
            items
            for index, items in enumerate(count.tolist())
            for _ in range(3 if index < columns else 2)
        )
        chunks.append([room[each * size : each * size + items] for each, items in kept])
        base += count[columns:]
        size *= 2
    if len(chunks) == 1:
        return surplus, chunks[0]
    empty = [np.zeros(0, np.int64)] * parts
    return surplus, [np.concatenate(each) for each in zip(empty, *chunks, strict=True)]


def _columns(plan: Program, parts: list[Int64], count: int) -> list[FieldColumn]:
    """The columns that have values, of `count` messages."""
    messages = np.arange(count, dtype=np.int64)
    levels = {-1: Level((), None, messages, messages, messages)}
    owners = parts[3 * len(plan.columns) :]
    for index, (path, above) in enumerate(plan.levels):
        parent, owner = levels[above], owners[2 * index]
        levels[index] = Level(path, parent, owner, owners[2 * index + 1], parent.message[owner])
    columns = []
    for index, kept in enumerate(plan.columns):
        row, at, value = parts[3 * index : 3 * index + 3]
        if len(row):
            is_number = kept.of.type in WIDTHS and kept.of.type != "uuid"
            values = value.view(np.float64) if kept.of.type == "float64" else value
            numbers, length = (values, None) if is_number else (None, value)
            level = levels[kept.level]
            columns.append(FieldColumn(kept.of, kept.path, level, row, at, numbers, length))
    return columns
