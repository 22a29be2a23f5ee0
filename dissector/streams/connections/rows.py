"""Values of some rows: their place in an array of rows, or in a mapping by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from dissector.packets.block import Int64

Value = TypeVar("Value")


def places(values: Int64, rows: Int64) -> tuple[Int64, Int64]:
    """Indices of the values that are in `rows`, and the index in `rows` of each of them."""
    if not len(rows):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.argsort(rows)
    at = np.minimum(np.searchsorted(rows, values, sorter=order), len(rows) - 1)
    index = np.flatnonzero(rows[order[at]] == values)
    return index, order[at[index]]


def chosen(values: Mapping[int, Value], rows: Int64) -> dict[int, Value]:
    """The values of these rows, by index in `rows`."""
    keys = list(values)
    index, place = places(np.array(keys, np.int64), rows)
    return {to: values[keys[at]] for at, to in zip(index.tolist(), place.tolist(), strict=True)}
