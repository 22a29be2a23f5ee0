"""What the loops use of the package `cython` when they run as Python, without that package.

Types are only names then, and decorators do nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any] | type)
_Value = TypeVar("_Value")

compiled = False


class _Type:
    """A type of C."""


short = int = longlong = ulonglong = _Type()


class _NoLock(nullcontext[None]):
    """`nogil`: a decorator, and the context in which other threads run."""

    def __call__(self, function: _Function) -> _Function:
        return function


nogil: _NoLock = _NoLock()


def cfunc(function: _Function) -> _Function:
    """A function that only its module calls."""
    return function


inline = cclass = final = cfunc


def exceptval(value: Any = None, *, check: bool = True) -> Callable[[_Function], _Function]:
    """The result of a function that raises an exception."""
    return cfunc


def boundscheck(is_checked: bool) -> Callable[[_Function], _Function]:
    """Whether an index outside of an array raises IndexError; in Python it always does."""
    return cfunc


def touch(data: object, position: int) -> None:
    """Ask for the memory of a byte that is read later; only compiled loops do."""


def declare(kind: _Type, value: _Value) -> _Value:
    """A variable of the module."""
    return value


def fused_type(*kinds: _Type) -> _Type:
    """A name for any one of these types."""
    return kinds[0]
