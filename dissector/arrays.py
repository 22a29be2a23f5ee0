"""Decorators for dataclasses that only type checkers keep from changes.

At run time nothing refuses a change. A frozen dataclass takes up to four times as long to import,
and longer to create: that was a fifth of the start of a command.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

Class = TypeVar("Class")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def arrays(each: type[Class]) -> type[Class]:
    """A class whose attributes are arrays: without comparison and text, which do not fit arrays."""
    return dataclass(slots=True, eq=False, repr=False)(each)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(each: type[Class]) -> type[Class]:
    """A class whose instances are compared by their attributes."""
    return dataclass(slots=True, unsafe_hash=True)(each)
