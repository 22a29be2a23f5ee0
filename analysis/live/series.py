"""Sums by labels, of a bounded number.

Label values come from the network, where a client id can be anything, and each combination of
labels costs memory here and in Prometheus. So a metric has at most `limit` combinations. Further
ones are counted with ``other`` for all labels except the first, which the protocol bounds.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

PREFIX: Final = "kafka_dissector_"
"""Of the names of metrics."""
OTHER: Final = "other"
UNKNOWN: Final = "unknown"

Key = tuple[str, ...]


class Series:
    """The label combinations of one metric, each with a vector of sums."""

    def __init__(self, limit: int, width: int = 1) -> None:
        self._limit = limit
        self._width = width
        self.values: dict[Key, Any] = {}

    def add(self, key: Key, values: Any) -> None:
        if key not in self.values and len(self.values) >= self._limit:
            key = (key[0], *[OTHER] * (len(key) - 1))
        if key not in self.values:
            self.values[key] = np.zeros(self._width)
        self.values[key] += values


def label_values(*words: str | None) -> Key:
    """The values of labels."""
    return tuple(UNKNOWN if word is None else word for word in words)
