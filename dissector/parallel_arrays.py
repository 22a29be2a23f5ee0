"""Rows as parallel arrays: the base of dataclasses whose fields are arrays of the same length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray


class ParallelArrays:
    """Rows as arrays of the same length: the fields of a dataclass."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]]
    """Names of the fields."""

    def __len__(self) -> int:
        return len(getattr(self, self.__match_args__[0]))

    def __getitem__(self, rows: NDArray[np.integer] | NDArray[np.bool_] | slice) -> Self:
        if isinstance(rows, slice):
            return type(self)(*(column[rows] for column in self.values))
        if rows.dtype == np.bool_:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)
        return type(self)(*(column.take(rows) for column in self.values))

    @property
    def values(self) -> list[NDArray[Any]]:
        """The arrays, in the order of the fields."""
        return [getattr(self, name) for name in self.__match_args__]

    def __add__(self, other: Self) -> Self:
        if not len(self) or not len(other):
            return self if len(self) else other
        return self.joined([self, other])

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of one or more parts, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(*map(np.concatenate, zip(*(each.values for each in parts), strict=True)))

    @classmethod
    def empty(cls) -> Self:
        """No rows, in columns of int64."""
        return cls(*(np.zeros(0, np.int64) for _ in cls.__match_args__))
