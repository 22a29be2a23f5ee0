"""The nearest row, as a loop finds it."""

from __future__ import annotations

from typing import Literal

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.answers.asof import as_of

rows = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 20)), max_size=12)


@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("direction", ["backward", "forward"])
@given(left=rows, right=rows)
def test_the_nearest_row_of_the_same_key(
    left: list[tuple[str | None, int]],
    right: list[tuple[str | None, int]],
    direction: Literal["backward", "forward"],
) -> None:
    types = {"key": "str", "at": "int64"}
    one = pd.DataFrame(left, columns=["key", "at"]).astype(types)
    other = pd.DataFrame(right, columns=["key", "at"]).astype(types)
    other["found"] = other["at"]
    joined = as_of(one, other, on="at", by=["key"], direction=direction)
    assert sorted(joined.index) == list(one.index)
    assert joined["at"].is_monotonic_increasing
    for index, (key, at) in enumerate(left):
        if direction == "backward":
            expected = max((to for name, to in right if name == key and to <= at), default=None)
        else:
            expected = min((to for name, to in right if name == key and to >= at), default=None)
        found = joined.loc[index, "found"]
        assert found == expected or (expected is None and pd.isna(found))
