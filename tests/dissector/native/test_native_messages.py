"""The walk of bodies stays inside its arrays, for each program.

That it finds the fields of messages: `test_protocol_column_decoder`.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector import _native
from dissector.byteview import ContiguousBytes
from dissector.protocol.decoder_program import ARRAY, FIXED, STRUCT

DATA = np.arange(64, dtype=np.uint8)
INT32 = [FIXED, 4, 1, 0, -1, 0, -1, -1, 0, 0]
BODY = [STRUCT, 0, 0, 0, -1, -1, -1, -1, 1, 1]


def walked(
    nodes: list[list[int]], spans: list[tuple[int, int]], columns: int = 1, levels: int = 0,
    room: int = 2,
) -> tuple[list[list[int]], list[bool], int]:  # fmt: skip
    """Row, address and value of each column; which bodies are good; and how many were walked."""
    start, end = np.array(spans, np.int64).reshape(-1, 2).T.copy()
    surplus, cut = np.full(len(start), -1), np.zeros(len(start), np.bool_)
    base = np.zeros(levels, np.int64)
    parts = 3 * columns + 2 * levels
    places, count = np.zeros(parts * room, np.int64), np.zeros(columns + levels, np.int64)
    done = _native.walk_bodies(
        *ContiguousBytes(DATA).pieces, np.array(nodes, np.int32).reshape(-1), columns, False, 0, 4,
        start, end, cut, 99, 99, 4, 0, base, surplus, places, count,
    )  # fmt: skip
    filled = np.repeat(count, [3] * columns + [2] * levels).tolist()
    items = [places[part * room :][:size].tolist() for part, size in enumerate(filled)]
    return items, (surplus >= 0).tolist(), done


@pytest.mark.parametrize("room", [0, 1, 2, 9])
def test_bodies_until_the_room_is_used(room: int) -> None:
    spans = [(0, 4), (4, 0), (0, 3), (60, 64), (8, 12)]
    columns, good, done = walked([BODY, INT32], spans, room=room)
    assert done == {0: 0, 1: 3, 2: 4, 9: 5}[room]
    assert good == [room > 0, False, False, room > 1, room > 2]
    values = [0x00010203, 0x3C3D3E3F, 0x08090A0B]
    assert columns == [[0, 3, 4][:room], [0, 60, 8][:room], values[:room]]


def test_bodies_outside_of_the_data_are_not_good() -> None:
    size = len(DATA)  # the last bytes are padding
    spans = [(-4, 0), (size, size + 4), (size + 8, size + 12), (2**62, -(2**62)), (0, 4)]
    columns, good, _ = walked([BODY, INT32], spans)
    assert good == [False, False, False, False, True]
    assert columns == [[4], [0], [0x00010203]]


@pytest.mark.parametrize(
    ("nodes", "columns", "levels"),
    [
        ([], 0, 0),
        ([BODY, INT32], -1, 0),
        ([[STRUCT, 0, 0, 0, -1, -1, -1, -1, 0, 1]], 0, 0),
        ([BODY, [ARRAY, 0, 0, 0, -1, -1, -1, -1, 1, 1], INT32], 1, 0),
        ([BODY, [FIXED, -1, 1, 0, -1, 0, -1, -1, 0, 0]], 1, 0),
        ([BODY] * 5_000, 0, 0),
    ],
)
def test_an_invalid_program_is_refused(nodes: list[list[int]], columns: int, levels: int) -> None:
    with pytest.raises((ValueError, IndexError)):
        walked(nodes, [(0, 64)], columns, levels, room=0)


@given(
    st.lists(st.lists(st.integers(-2, 6), min_size=10, max_size=10), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(-9, 70), st.integers(-9, 70)), max_size=5),
)
def test_no_program_reads_outside(nodes: list[list[int]], spans: list[tuple[int, int]]) -> None:
    try:
        columns, good, _ = walked(nodes, spans, 3, 3, room=40)
    except (ValueError, IndexError):
        return
    assert len(columns) == 15
    assert all(start <= end for (start, end), right in zip(spans, good, strict=True) if right)


def test_the_end_of_a_body_is_found_without_reading_on_behind_the_available_bytes() -> None:
    """A count of 2**32 - 1 tagged fields (KIP-482), of which none is available: without the rule,
    the loop reads on for minutes.
    """
    tags = np.array([0xFF, 0xFF, 0xFF, 0xFF, 0x0F], np.uint8)
    empty = np.array([STRUCT, 0, 0, 0, -1, -1, -1, -1, 1, 0], np.int32)
    size, elements = 1 << 40, 1 << 40
    assert _native.find_body_end(tags, empty, True, 0, size, elements) == size
