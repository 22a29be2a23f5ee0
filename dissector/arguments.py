"""Checks of the arguments that users pass to the public functions."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable
from numbers import Real
from operator import index
from typing import Any, Final

from dissector.errors import DissectorError, did_you_mean

LARGEST: Final = 2**63 - 1
"""The largest integer of Arrow and SQL."""


def integer(name: str, given: Any, least: int, most: int = LARGEST) -> int:
    """The argument `name` as an integer; NumPy's integers are ones, too, but booleans are not.

    Raises DissectorError for any other value, and for one that is not between `least` and `most`.
    """
    try:
        value = None if isinstance(given, bool) else index(given)
    except TypeError:
        value = None
    if value is None or not least <= value <= most:
        raise DissectorError(f"{name} must be an integer {_range(least, most)}, not {given!r}")
    return value


def integers(name: str, given: Any) -> list[int]:
    """The argument `name`, a collection of integers. Raises DissectorError for any other value."""
    try:
        return [index(item) for item in given]
    except TypeError as error:
        raise DissectorError(f"{name} must be a list of integers, not {given!r}") from error


def number(name: str, given: Any, least: float, most: float = math.inf) -> float:
    """The argument `name`, a finite number.

    Raises DissectorError for any other value, and for one that is not between `least` and `most`.
    """
    value = math.nan if isinstance(given, bool) or not isinstance(given, Real) else float(given)
    if not (math.isfinite(value) and least <= value <= most):
        raise DissectorError(f"{name} must be a number {_range(least, most)}, not {given!r}")
    return value


def choice(name: str, given: Any, choices: Collection[str]) -> str:
    """The argument `name`, one of the choices. Raises DissectorError for any other value."""
    if not isinstance(given, str) or given not in choices:
        raise DissectorError(
            f"{name}={given!r} is not one of {', '.join(choices)}{did_you_mean(given, choices)}"
        )
    return given


def text(name: str, given: Any) -> str:
    """The argument `name`, a text. Raises DissectorError for any other value."""
    if not isinstance(given, str):
        raise DissectorError(f"{name} must be a text, not {given!r}")
    return given


def texts(name: str, given: Any) -> tuple[str, ...]:
    """The argument `name`, a text or several. Raises DissectorError for any other value."""
    values = (
        tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    )
    if not all(isinstance(value, str) for value in values):
        raise DissectorError(f"{name} must be a text or several, not {given!r}")
    return values


def paths(name: str, given: Any) -> list[str | os.PathLike[str]]:
    """The argument `name`, a path or several. Raises DissectorError for any other value."""
    is_one = isinstance(given, str | os.PathLike) or not isinstance(given, Iterable)
    values = [given] if is_one else list(given)
    if not all(isinstance(value, str | os.PathLike) for value in values):
        raise DissectorError(f"{name} must be a path or several, not {given!r}")
    return values


def _range(least: float, most: float) -> str:
    return f"of at least {least}" if most in (LARGEST, math.inf) else f"from {least} to {most}"
