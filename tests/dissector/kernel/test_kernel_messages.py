"""The compiled walk of bodies stays inside its arrays, for each program.

That it finds what NumPy's walker finds: `test_protocol_column_decoder`.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector import kernel
from dissector.protocol.decoder_program import ARRAY, FIXED, STRUCT

pytestmark = pytest.mark.skipif(not kernel.COMPILED, reason="no compiled loops")

DATA = np.arange(64, dtype=np.uint8)
INT32 = [FIXED, 4, 1, 0, -1, 0, -1, -1, 0, 0]
BODY = [STRUCT, 0, 0, 0, -1, -1, -1, -1, 1, 1]


def walked(
    nodes: list[list[int]], spans: list[tuple[int, int]], columns: int = 1, levels: int = 0,
    room: int = 2,
) -> tuple[list[list[int]], list[bool]]:  # fmt: skip
    start, end = np.array(spans, np.int64).reshape(-1, 2).T.copy()
    behind, cut = np.zeros(len(start), np.int64), np.zeros(len(start), np.bool_)
    places = np.zeros((max(3 * columns + 2 * levels, 0), room), np.int64)
    counts = kernel.loops.walk_bodies(
        DATA, np.array(nodes, np.int32), columns, levels, False, 0, 4, start, end, cut, behind,
        places,
    )  # fmt: skip
    arrays = [
        row[:each] if isinstance(each, int) else np.frombuffer(each, np.int64)
        for row, each in zip(places, counts, strict=True)
    ]
    return [each.tolist() for each in arrays], (behind >= 0).tolist()


@pytest.mark.parametrize("room", [0, 1, 2, 9])
def test_bodies_outside_of_the_data_are_not_good(room: int) -> None:
    spans = [(0, 4), (-4, 0), (62, 66), (4, 0), (60, 64), (2**62, -(2**62))]
    columns, good = walked([BODY, INT32], spans, room=room)
    assert good == [True, False, False, False, True, False]
    assert columns == [[0, 4], [0, 60], [0x00010203, 0x3C3D3E3F]]


@pytest.mark.parametrize(
    ("nodes", "columns", "levels"),
    [
        ([], 0, 0),
        ([BODY], 1, 0),
        ([BODY, INT32], 0, 0),
        ([BODY, INT32], -1, 0),
        ([BODY, INT32], 300, 0),
        ([[STRUCT, 0, 0, 0, -1, -1, -1, -1, 0, 1]], 0, 0),
        ([BODY, [ARRAY, 0, 0, 0, -1, -1, -1, 0, 2, 1], INT32], 1, 0),
        ([BODY, [FIXED, -1, 1, 0, -1, 0, -1, -1, 0, 0]], 1, 0),
        ([BODY, [7, 4, 1, 0, -1, 0, -1, -1, 0, 0]], 1, 0),
    ],
)
def test_an_invalid_program_is_refused(nodes: list[list[int]], columns: int, levels: int) -> None:
    with pytest.raises(ValueError, match="program"):
        walked(nodes, [(0, 4)], columns, levels)


@given(
    st.lists(st.lists(st.integers(-2, 6), min_size=10, max_size=10), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(-9, 70), st.integers(-9, 70)), max_size=5),
)
def test_no_program_reads_outside(nodes: list[list[int]], spans: list[tuple[int, int]]) -> None:
    try:
        columns, good = walked(nodes, spans, 3, 3)
    except ValueError:
        return
    assert len(columns) == 15
    assert all(
        0 <= start <= end <= 64 for (start, end), right in zip(spans, good, strict=True) if right
    )
