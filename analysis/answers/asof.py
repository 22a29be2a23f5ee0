"""Joins as of a time or an offset: each row with the nearest one before it, or after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import pandas as pd

_KEY: Final = "_key"


def as_of(
    left: pd.DataFrame,
    right: pd.DataFrame,
    *,
    on: str,
    by: Sequence[str],
    direction: Literal["backward", "forward"] = "backward",
) -> pd.DataFrame:
    """The rows of `left`, each with the other columns of one row of `right`.

    It is the last one (backward) or the first (forward) whose columns `by` are the same and whose
    `on` is not beyond; its columns are missing where there is none. Rows keep the index of `left`,
    and come in the order of `on`; both frames may be in any. `on` may have no missing values.
    """
    keys = pd.concat([left[[*by]], right[[*by]]], ignore_index=True)
    code = keys.groupby([*by], dropna=False, sort=False).ngroup().to_numpy()
    one = left.assign(**{_KEY: code[: len(left)]}).reset_index(names="_index")
    other = right.drop(columns=[*by]).assign(**{_KEY: code[len(left) :]})
    found: pd.DataFrame = pd.merge_asof(
        one.sort_values(on, kind="stable"),
        other.sort_values(on, kind="stable"),
        on=on,
        by=_KEY,
        direction=direction,
    )
    found.index = pd.Index(found["_index"], name=None)
    return found.drop(columns=["_index", _KEY])
