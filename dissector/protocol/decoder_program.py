"""Programs of layouts: what the loop of the column decoder walks.

A layout becomes a program for `_native.walk_bodies`: a node per field. The body's struct comes
first; the fields of a struct follow it side by side. A node is a row of numbers:

    kind        0 fixed width, 1 string, 2 bytes or records, 3 struct, 4 array, whose element is
                the node at `first`
    width       bytes of a fixed one
    is_signed   whether the number is signed
    nullable    whether the value may be null
    tag         number of a tagged field, otherwise -1
    column      index of the requested column, otherwise -1
    inside      the level of the rows that have the field; -1 for the messages
    level       of an array: the level of its elements; -1 if none of their fields is requested
    first, count    first node of the struct's fields, and their number

The loop decodes one message from its first byte to its last, so rows of a level are in the order of
the messages.
"""

from __future__ import annotations

from functools import cache
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from dissector.arrays import arrays
from dissector.protocol.notation import WIDTHS, Field, Layout

FIXED, TEXT, BYTES, STRUCT, ARRAY = range(5)
KINDS = {"string": TEXT, "bytes": BYTES, "records": BYTES, "struct": STRUCT}
UNSIGNED = ("bool", "uint16", "uint32")


@arrays
class ProgramColumn:
    """A requested column."""

    of: Field
    path: tuple[str, ...]
    level: int


@arrays
class Program:
    """A layout, as far as fields are requested."""

    nodes: NDArray[np.int32]
    """Shape (10 * nodes,)."""
    columns: list[ProgramColumn]
    levels: list[tuple[tuple[str, ...], int]]
    """Path and parent of each level, except the level of the messages, which is -1."""


@cache
def program(layout: Layout, roles: frozenset[str]) -> Program:
    """The program of a layout that keeps the fields with these roles."""
    builder = _Builder(roles)
    builder.struct(layout.fields, builder.node(STRUCT), (), -1)
    return Program(np.array(builder.nodes, np.int32).reshape(-1), builder.columns, builder.levels)


class _Builder:
    def __init__(self, roles: frozenset[str]) -> None:
        self.roles = roles
        self.nodes: list[list[int]] = []
        self.columns: list[ProgramColumn] = []
        self.levels: list[tuple[tuple[str, ...], int]] = []

    def node(self, kind: int) -> int:
        self.nodes.append([kind, 0, 0, 0, -1, -1, -1, -1, 0, 0])
        return len(self.nodes) - 1

    def struct(
        self, fields: tuple[Field, ...], owner: int, path: tuple[str, ...], level: int
    ) -> None:
        """Append the nodes of a struct's fields, then the nodes of their fields."""
        runs: list[list[Field]] = []
        for is_skipped, part in groupby(fields, self._is_skipped):
            run = [*part]
            runs += [run] if is_skipped else [[each] for each in run]
        first = len(self.nodes)
        places = [self.node(FIXED) for _ in runs]
        self.nodes[owner][8:] = [first, len(runs)]
        for place, run in zip(places, runs, strict=True):
            if self._is_skipped(run[0]):
                self.nodes[place][1] = sum(WIDTHS[each.type] for each in run)
            else:
                self.value(run[0], place, (*path, run[0].name), level)

    def value(self, each: Field, place: int, path: tuple[str, ...], level: int) -> None:
        """Fill the node of one field."""
        tag = -1 if each.tag is None else each.tag
        if each.is_array:
            inside = -1
            if self._keeps(each):
                inside = len(self.levels)
                self.levels.append((path, level))
            element = self.node(0)
            plain = Field(each.name, each.type, roles=each.roles, fields=each.fields)
            self.value(plain, element, path, inside)
            self.nodes[place] = [
                ARRAY, 0, 0, int(each.nullable), tag, -1, level, inside, element, 1,
            ]  # fmt: skip
            return
        kind = KINDS.get(each.type, FIXED)
        column = -1
        if kind != STRUCT and not self.roles.isdisjoint(each.roles):
            column = len(self.columns)
            self.columns.append(ProgramColumn(each, path, level))
        width, is_signed = WIDTHS.get(each.type, 0), int(each.type not in UNSIGNED)
        self.nodes[place] = [
            kind, width, is_signed, int(each.nullable), tag, column, level, -1, 0, 0,
        ]  # fmt: skip
        if kind == STRUCT:
            self.struct(each.fields, place, path, level)

    def _is_skipped(self, each: Field) -> bool:
        """Whether the field has a fixed width and is not requested."""
        is_fixed = not each.is_array and each.type in WIDTHS and each.tag is None
        return is_fixed and self.roles.isdisjoint(each.roles)

    def _keeps(self, each: Field) -> bool:
        """Whether the field, or a field inside it, is requested."""
        wanted = each.type != "struct" and not self.roles.isdisjoint(each.roles)
        return wanted or any(map(self._keeps, each.fields))
