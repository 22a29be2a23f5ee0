"""The two walkers agree: on every layout, on what is right and on what is damaged."""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from typing import Any

import numpy as np
import pytest
from protocol_writer import length, write

from dissector import kernel
from dissector.conversation.facts import Group
from dissector.protocol import catalog
from dissector.protocol.columns import skip_tags, walk
from dissector.protocol.explain import Explanation, explain
from dissector.protocol.notation import Direction, Field, Layout
from dissector.protocol.roles import ROLES
from dissector.protocol.walked import Column, Walked
from dissector.streams.bytespace import ByteSpace, FlatSpace, PiecedSpace

LAYOUTS = [
    catalog.layout(key, direction, version)
    for key in catalog.apis()
    for direction in Direction
    for version in catalog.versions(key)
]


def space_of(bodies: list[bytes]) -> tuple[FlatSpace, Any, Any]:
    sizes = [len(body) for body in bodies]
    end = np.cumsum(sizes, dtype=np.int64)
    return FlatSpace.of(b"".join(bodies)), end - sizes, end


def found_by_columns(space: ByteSpace, walked: Walked, count: int) -> list[dict[str, Any]]:
    """Path and value of every kept field of each message."""
    group = Group(space, np.arange(count), walked)
    found: list[dict[str, Any]] = [{} for _ in range(count)]
    for column in walked.columns:
        every = np.arange(len(column.row))
        paths = group.paths(column, every).to_pylist()
        for index, path in enumerate(paths):
            found[column.message[index]][path] = value(space, column, index)
    return found


def value(space: ByteSpace, column: Column, index: int) -> Any:
    if column.values is not None:
        number = column.values[index].item()
        return bool(number) if column.field.type == "bool" else number
    assert column.length is not None
    size = int(column.length[index])
    if size < 0:
        return None
    raw = space.bytes(int(column.at[index]), size)
    if column.field.type == "uuid":
        return urlsafe_b64encode(raw)[:22].decode()
    return raw.decode("utf-8", "backslashreplace") if column.field.type == "string" else raw


def found_by_explaining(explanation: Explanation) -> dict[str, Any]:
    return {
        event.path: event.value
        for event in explanation.events
        if event.roles and not event.type.startswith(("[", "{"))
    }


def arrays(walked: Walked) -> list[Any]:
    """All that a walk says, but for how it numbers the rows of arrays."""
    columns = []
    for column in walked.columns:
        if not len(column.row):
            continue
        content = column.length if column.values is None else column.values
        assert content is not None
        told = [column.message.tolist(), column.at.tolist(), content.tolist()]
        level, row = column.level, column.row
        while level.parent is not None:
            told.append(level.ordinal[row].tolist())
            level, row = level.parent, level.owner[row]
        columns.append((column.path, column.field, told))
    return [walked.good.tolist(), columns]


def check(layout: Layout, bodies: list[bytes]) -> None:
    space, start, end = space_of(bodies)
    cut = np.arange(len(bodies)) % 2 == 0
    both = []
    with pytest.MonkeyPatch.context() as patch:
        for compiled in {kernel.COMPILED, False}:
            patch.setattr(kernel, "COMPILED", compiled)
            walked = walk(layout, space, start, end, frozenset(ROLES))
            both.append([walked, walk(layout, space, start, end, frozenset(ROLES), cut)])
    for pure, other in zip(both[0], both[-1], strict=True):
        assert arrays(pure) == arrays(other)
    explained = [explain(layout, body) for body in bodies]
    assert walked.good.tolist() == [each.error is None for each in explained]
    columns = found_by_columns(space, walked, len(bodies))
    for index, each in enumerate(explained):
        assert columns[index] == ({} if each.error else found_by_explaining(each))


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda x: f"{x.api}-{x.direction.name}-{x.version}")
def test_walkers_agree_on_every_layout(layout: Layout) -> None:
    pick = random.Random(f"{layout.api} {layout.direction} {layout.version}")
    bodies = [write(layout, pick) for _ in range(6)]
    damaged = []
    for body in bodies:
        if body:
            changed = bytearray(body)
            changed[pick.randrange(len(body))] ^= 1 << pick.randrange(8)
            damaged += [bytes(changed), body[: pick.randrange(len(body))]]
    check(layout, bodies)
    check(layout, [*damaged, *bodies, *[body + b"\0" for body in bodies]])
    check(layout, [pick.randbytes(size) for size in (0, 1, 5, 40)])


ROWS = Layout(
    0, "Rows", Direction.REQUEST, 0, False, 1,
    (
        Field(
            "rows", "struct", is_array=True,
            fields=(
                Field("name", "string", nullable=True, roles=("topic",)),
                Field("indexes", "int32", is_array=True, roles=("partition",)),
            ),
        ),
    ),
)  # fmt: skip


def rows(elements: list[tuple[bytes | None, list[int]]]) -> bytes:
    body = length(len(elements), False, "i")
    for name, indexes in elements:
        body += length(None if name is None else len(name), False, "h") + (name or b"")
        body += length(len(indexes), False, "i")
        body += b"".join(index.to_bytes(4, "big") for index in indexes)
    return body


def test_long_arrays_of_equal_and_unequal_elements() -> None:
    equal = rows([(b"topic-%03d" % index, [1, 2, 3]) for index in range(300)])
    growing = rows([(b"t" * index, list(range(index % 5))) for index in range(100)])
    mixed = rows([(b"ab", [index]) for index in range(50)] + [(None, [])] * 50 + [(b"x", [7])] * 9)
    check(ROWS, [equal, growing, mixed, rows([]), rows([(b"one", [])])])


def test_a_long_array_that_is_wrong_in_the_middle() -> None:
    good = rows([(b"topic", [1])] * 200)
    for at in range(4, len(good), 97):
        check(ROWS, [good[:at] + b"\xff" + good[at + 1 :], good])


def test_a_count_beyond_the_bytes_costs_nothing() -> None:
    check(ROWS, [b"\x7f\xff\xff\xff", b"\x7f\xff\xff\xff" + bytes(64), b"\xff\xff\xff\xfe"])


def test_pieces_read_as_one_row() -> None:
    pick = random.Random(1)
    layout = catalog.layout(1, Direction.RESPONSE, 12)
    bodies = [write(layout, pick) for _ in range(20)]
    flat, start, end = space_of(bodies)
    cuts = np.unique([0, *(pick.randrange(flat.size) for _ in range(60)), flat.size])
    length = np.diff(cuts)
    # The pieces lie in the opposite order in memory.
    position = flat.size - cuts[1:]
    data = np.zeros(flat.size + 8, np.uint8)
    for address, size, here in zip(cuts, length, position, strict=False):
        data[here : here + size] = flat.data[address : address + size]
    pieced = PiecedSpace(data, cuts[:-1], position, length)
    walked = walk(layout, pieced, start, end, frozenset(ROLES))
    assert walked.good.all()
    expected = walk(layout, flat, start, end, frozenset(ROLES))
    assert found_by_columns(pieced, walked, 20) == found_by_columns(flat, expected, 20)


def test_only_what_was_asked_for_is_kept() -> None:
    layout = catalog.layout(0, Direction.REQUEST, 7)
    space, start, end = space_of([write(layout, random.Random(3)) for _ in range(9)])
    walked = walk(layout, space, start, end, frozenset({"acks"}))
    assert [column.path for column in walked.columns] == [("acks",)]


def test_skip_tags() -> None:
    space = FlatSpace.of(b"\x00" + b"\x01\x05\x02ab" + b"\x7f")
    behind = skip_tags(space, np.array([0, 1]), np.array([1, 6]))
    assert behind.tolist() == [1, 6]
