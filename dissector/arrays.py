"""Decorators for dataclasses that are quick to import.

The methods that `dataclasses` writes are compiled from text for each class: that was a fifth of the
start of a command. Only type checkers keep values and arrays from changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, cast, dataclass_transform

Class = TypeVar("Class")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def arrays(each: type[Class]) -> type[Class]:
    """A class whose attributes are arrays: without comparison and text, which do not fit arrays."""
    return dataclass(slots=True, eq=False, repr=False)(each)


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def mutable(each: type[Class]) -> type[Class]:
    """A class whose attributes change: without comparison and text."""
    return dataclass(slots=True, eq=False, repr=False)(each)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(each: type[Class]) -> type[Class]:
    """A class whose instances are compared by their attributes, apart from its own methods.

    The methods are closures. Those of `dataclasses` are compiled for each class, which takes longer
    than all else here.
    """
    made: Any = dataclass(slots=True, eq=False, repr=False)(each)
    compared = attrgetter(*(item.name for item in fields(made) if item.compare))
    shown = [item.name for item in fields(made) if item.repr]

    def is_equal(self: object, other: object) -> bool:
        return compared(self) == compared(other) if type(other) is made else NotImplemented

    def text(self: object) -> str:
        return f"{made.__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in shown)})"

    def hashed(self: object) -> int:
        return hash(compared(self))

    for method, name in (is_equal, "__eq__"), (hashed, "__hash__"), (text, "__repr__"):
        if name not in vars(each):
            setattr(made, name, method)
    return cast("type[Class]", made)
