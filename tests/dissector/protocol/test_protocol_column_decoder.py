"""The walkers agree: on the layouts of the pages and on random ones, on right and damaged bytes."""

from __future__ import annotations

import random
import struct
from base64 import urlsafe_b64encode
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.byteview import ByteView, ContiguousBytes
from dissector.errors import DecodeError
from dissector.exchanges.decoded_fields import LayoutGroup
from dissector.protocol import registry
from dissector.protocol.column_decoder import decode_columns
from dissector.protocol.explain import Explanation, explain
from dissector.protocol.field_columns import DecodedColumns, FieldColumn
from dissector.protocol.limits import is_accepted
from dissector.protocol.notation import Direction, Field, Layout
from dissector.protocol.roles import ROLES
from dissector.protocol.tree_decoder import decode_fields
from tests.dissector.conftest import loops_as_python
from tests.dissector.protocol.protocol_pages import layouts
from tests.dissector.protocol.protocol_writer import length, write

LAYOUTS = [
    registry.layout(key, direction, version)
    for key in registry.apis()
    for direction in Direction
    for version in registry.versions(key)
]


def space_of(bodies: list[bytes]) -> tuple[ContiguousBytes, Any, Any]:
    sizes = [len(body) for body in bodies]
    end = np.cumsum(sizes, dtype=np.int64)
    return ContiguousBytes.of(b"".join(bodies)), end - sizes, end


def values_by_columns(space: ByteView, walked: DecodedColumns, count: int) -> list[dict[str, Any]]:
    """Path and value of every kept field of each message."""
    group = LayoutGroup(space, np.arange(count), walked)
    values: list[dict[str, Any]] = [{} for _ in range(count)]
    for column in walked.columns:
        rows = np.arange(len(column.row))
        paths = group.paths(column, rows).to_pylist()
        for index, path in enumerate(paths):
            values[column.message[index]][path] = value(space, column, index)
    return values


def value(space: ByteView, column: FieldColumn, index: int) -> Any:
    if column.values is not None:
        return comparable(column.field.type, column.values[index].item())
    assert column.length is not None
    size = int(column.length[index])
    if size < 0:
        return None
    raw = space.bytes(int(column.at[index]), size)
    if column.field.type == "uuid":
        return urlsafe_b64encode(raw)[:22].decode()
    return raw.decode("utf-8", "backslashreplace") if column.field.type == "string" else raw


def comparable(type: str, number: Any) -> Any:
    """The number as a value that equals itself, which NaN does not."""
    if type == "float64":
        return struct.pack(">d", number)
    return bool(number) if type == "bool" else number


def values_by_explaining(explanation: Explanation) -> dict[str, Any]:
    return {
        event.path: comparable(event.type, event.value)
        for event in explanation.events
        if ROLES.keys() & {*event.roles} and not event.type.startswith(("[", "{"))
    }


def arrays(walked: DecodedColumns) -> list[Any]:
    """The result of a walk, without its row numbers of arrays."""
    columns = []
    for column in walked.columns:
        if not len(column.row):
            continue
        content = column.length if column.values is None else column.values
        assert content is not None
        values = [column.message.tolist(), column.at.tolist(), [*map(repr, content.tolist())]]
        level, row = column.level, column.row
        while level.parent is not None:
            values.append(level.ordinal[row].tolist())
            level, row = level.parent, level.owner[row]
        columns.append((column.path, column.field, values))
    return [walked.good.tolist(), walked.surplus.tolist(), columns]


def surplus_by_decoding(layout: Layout, body: bytes) -> int | None:
    """Bytes behind the last field of a body; None where it cannot be read."""
    try:
        _, behind = decode_fields(layout, body)
    except DecodeError:
        return None
    surplus = len(body) - behind
    return surplus if is_accepted(layout.direction, behind, surplus) else None


def check(layout: Layout, bodies: list[bytes]) -> None:
    space, start, end = space_of(bodies)
    cut = np.arange(len(bodies)) % 2 == 0
    walked = decode_columns(layout, space, start, end, frozenset(ROLES))
    mended = decode_columns(layout, space, start, end, frozenset(ROLES), cut)
    with loops_as_python():
        assert arrays(walked) == arrays(decode_columns(layout, space, start, end, frozenset(ROLES)))
        in_python = decode_columns(layout, space, start, end, frozenset(ROLES), cut)
        assert arrays(mended) == arrays(in_python)
    surplus = [surplus_by_decoding(layout, body) for body in bodies]
    assert walked.good.tolist() == [each is not None for each in surplus]
    assert walked.surplus.tolist() == [each or 0 for each in surplus]
    columns = values_by_columns(space, walked, len(bodies))
    for index, body in enumerate(bodies):
        explained = explain(layout, body)
        assert (explained.error is None) == (surplus[index] == 0)
        readable = surplus[index] is not None
        assert columns[index] == (values_by_explaining(explained) if readable else {})


@pytest.mark.sampled(6)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda x: f"{x.api}-{x.direction.name}-{x.version}")
def test_walkers_agree_on_every_layout(layout: Layout) -> None:
    check_all(layout, random.Random(f"{layout.api} {layout.direction} {layout.version}"))


@pytest.mark.slow
@settings(max_examples=100)
@given(layouts(), st.integers(0, 1 << 32))
def test_walkers_agree_on_random_layouts(layout: Layout, seed: int) -> None:
    check_all(layout, random.Random(seed))


@pytest.mark.parametrize(
    ("body", "value"),
    [("00000005 01 00 01 00", None), ("00000005 01 00 06 01 00000009 00", 9)],
    ids=["null", "present"],
)
def test_nullable_struct_in_a_tagged_field(body: str, value: int | None) -> None:
    # KIP-893: an unsigned varint, 0 for null and 1 for a struct; an int8, -1 for null, elsewhere.
    inside = Field("v", "int32", roles=("offset",))
    tagged = Field("s", "struct", nullable=True, tag=0, fields=(inside,))
    number = Field("a", "int32", roles=("partition",))
    layout = Layout(0, "Made", Direction.REQUEST, 0, True, 2, (number, tagged))
    data = bytes.fromhex(body)
    space, start, end = space_of([data])
    walked = decode_columns(layout, space, start, end, frozenset({"partition", "offset"}))
    assert (walked.good.tolist(), walked.surplus.tolist()) == ([True], [0])
    assert values_by_columns(space, walked, 1) == [
        {"a": 5} if value is None else {"a": 5, "s.v": value}
    ]


def test_a_response_with_much_surplus_is_not_good() -> None:
    heartbeat = [registry.layout(12, direction, 0) for direction in Direction]
    bodies = [bytes.fromhex("0000") + bytes(surplus) for surplus in (0, 1, 4, 5, 500)]
    space, start, end = space_of(bodies)
    walked = decode_columns(heartbeat[Direction.RESPONSE], space, start, end, frozenset())
    assert walked.good.tolist() == [True, True, True, False, False]
    assert walked.surplus.tolist() == [0, 1, 4, 0, 0]
    member = bytes.fromhex("0001 67 00000001 0001 6d")  # group g, generation 1, member m
    space, start, end = space_of([member + bytes(surplus) for surplus in (0, 1, 16, 17, 500)])
    walked = decode_columns(heartbeat[Direction.REQUEST], space, start, end, frozenset())
    assert walked.good.tolist() == [True] * 5
    assert walked.surplus.tolist() == [0, 1, 16, 17, 500]


def check_all(layout: Layout, pick: random.Random) -> None:
    """Compare the walkers on right bodies, damaged ones, ones with surplus, and random bytes."""
    bodies = [write(layout, pick) for _ in range(6)]
    damaged = []
    for body in bodies:
        if body:
            changed = bytearray(body)
            changed[pick.randrange(len(body))] ^= 1 << pick.randrange(8)
            damaged += [bytes(changed), body[: pick.randrange(len(body))]]
    check(layout, bodies)
    longer = [body + bytes(pick.choice((1, 3, 4, 5, 60))) for body in bodies]
    check(layout, [*damaged, *bodies, *longer])
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


@pytest.mark.slow
def test_a_long_array_that_is_wrong_in_the_middle() -> None:
    good = rows([(b"topic", [1])] * 200)
    for at in range(4, len(good), 97):
        check(ROWS, [good[:at] + b"\xff" + good[at + 1 :], good])


def test_a_count_beyond_the_bytes_costs_nothing() -> None:
    check(ROWS, [b"\x7f\xff\xff\xff", b"\x7f\xff\xff\xff" + bytes(64), b"\xff\xff\xff\xfe"])


def test_pieces_read_as_one_row() -> None:
    pick = random.Random(1)
    layout = registry.layout(1, Direction.RESPONSE, 12)
    bodies = [write(layout, pick) for _ in range(20)]
    flat, start, end = space_of(bodies)
    cuts = np.unique([0, *(pick.randrange(flat.size) for _ in range(60)), flat.size])
    length = np.diff(cuts)
    # The pieces lie in the opposite order in memory.
    position = flat.size - cuts[1:]
    data = np.zeros(flat.size + 8, np.uint8)
    for address, size, here in zip(cuts, length, position, strict=False):
        data[here : here + size] = flat.data[address : address + size]
    pieced = ByteView(data, cuts[:-1], position, length)
    walked = decode_columns(layout, pieced, start, end, frozenset(ROLES))
    assert walked.good.all()
    expected = decode_columns(layout, flat, start, end, frozenset(ROLES))
    assert values_by_columns(pieced, walked, 20) == values_by_columns(flat, expected, 20)


def test_only_requested_columns_are_kept() -> None:
    layout = registry.layout(0, Direction.REQUEST, 7)
    space, start, end = space_of([write(layout, random.Random(3)) for _ in range(9)])
    walked = decode_columns(layout, space, start, end, frozenset({"acks"}))
    assert [column.path for column in walked.columns] == [("acks",)]
