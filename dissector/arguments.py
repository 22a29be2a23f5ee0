"""Checks of the arguments that users pass to the public functions."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable
from numbers import Integral, Real
from operator import index
from textwrap import shorten
from typing import Any, Final

from dissector.errors import DissectorError, did_you_mean
from dissector.redaction import without_credentials

LARGEST: Final = 2**63 - 1
"""The largest integer of Arrow and SQL."""
_MOST_SHOWN: Final = 100
"""Characters of a value in an error."""


def integer(name: str, given: Any, least: int, most: int = LARGEST) -> int:
    """The argument `name` as an integer; NumPy's integers are ones, too, but booleans are not.

    Raises DissectorError for any other value, and for one that is not between `least` and `most`.
    """
    value = None if isinstance(given, bool) or not isinstance(given, Integral) else int(given)
    if value is None or not least <= value <= most:
        expected = f"an integer {_range(least, most)}"
        raise DissectorError(f"{name} must be {expected}, not {_shown(given)}")
    return value


def integers(name: str, given: Any) -> list[int]:
    """The argument `name`, a collection of integers. Raises DissectorError for any other value."""
    try:
        return [index(item) for item in given]
    except TypeError as error:
        raise DissectorError(f"{name} must be a list of integers, not {_shown(given)}") from error


def number(name: str, given: Any, least: float, most: float = math.inf) -> float:
    """The argument `name`, a finite number.

    Raises DissectorError for any other value, and for one that is not between `least` and `most`.
    """
    value = math.nan if isinstance(given, bool) or not isinstance(given, Real) else float(given)
    if not (math.isfinite(value) and least <= value <= most):
        raise DissectorError(f"{name} must be a number {_range(least, most)}, not {_shown(given)}")
    return value


def choice(name: str, given: Any, choices: Collection[str]) -> str:
    """The argument `name`, one of the choices. Raises DissectorError for any other value."""
    if not isinstance(given, str) or given not in choices:
        raise DissectorError(
            f"{name}={_shown(given)} is not one of {', '.join(choices)}"
            f"{did_you_mean(given, choices)}"
        )
    return given


def text(name: str, given: Any) -> str:
    """The argument `name`, a text. Raises DissectorError for any other value."""
    if not isinstance(given, str):
        raise DissectorError(f"{name} must be a text, not {_shown(given)}")
    return _utf_8(name, given)


def texts(name: str, given: Any) -> tuple[str, ...]:
    """The argument `name`, a text or several. Raises DissectorError for any other value."""
    values = (
        tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    )
    if not all(isinstance(value, str) for value in values):
        raise DissectorError(f"{name} must be a text or several, not {_shown(given)}")
    return tuple(_utf_8(name, value) for value in values)


def _utf_8(name: str, given: str) -> str:
    """The argument `name`. Raises DissectorError if it has bytes that are not UTF-8."""
    try:
        given.encode()
    except UnicodeEncodeError as error:  # a lone surrogate
        raise DissectorError(f"{name} must be UTF-8, not {_shown(given)}") from error
    return given


def paths(name: str, given: Any) -> list[str | os.PathLike[str]]:
    """The argument `name`, a path or several; see `local_path`.

    Raises DissectorError for any other value.
    """
    is_one = isinstance(given, str | os.PathLike) or not isinstance(given, Iterable)
    values = [given] if is_one else list(given)
    if not all(map(_is_path, values)) or "" in values:  # which would be the current folder
        raise DissectorError(f"{name} must be a path or several, not {_shown(given)}")
    return [local_path(value) if isinstance(value, str) else value for value in values]


def local_path(path: str) -> str:
    """The path that a ``file:`` URI names (RFC 8089), or a path below ``~``; others as they are.

    Spark and fsspec do not percent-encode: a file with exactly the name in the URI is meant first.
    Nor does a shell expand the name of a file that begins with ``~``.
    """
    if path.startswith("~") and not os.path.lexists(path):
        return os.path.expanduser(path)  # noqa: PTH111 - Path raises without a home
    if not path.startswith("file:/"):
        return path
    from urllib.parse import unquote

    plain = path.removeprefix("file:")
    if plain.startswith("//"):
        plain = plain.removeprefix("//").removeprefix("localhost")
    return plain if os.path.lexists(plain) else unquote(plain)


def name_text(path: str) -> str:
    """The path as text, with the bytes escaped that are not UTF-8: ``\\xff``.

    Credentials in a URL are redacted.
    """
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return without_credentials(text)


def path(name: str, given: Any) -> str | os.PathLike[str]:
    """The argument `name`, a path; see `local_path`. Raises DissectorError for any other value."""
    if not _is_path(given):
        raise DissectorError(f"{name} must be a path, not {_shown(given)}")
    value: str | os.PathLike[str] = local_path(given) if isinstance(given, str) else given
    return value


def boolean(name: str, given: Any) -> bool:
    """The argument `name`, True or False. Raises DissectorError for any other value."""
    import numpy as np

    if not isinstance(given, bool | np.bool_):
        raise DissectorError(f"{name} must be True or False, not {_shown(given)}")
    return bool(given)


def buffer(name: str, given: Any) -> bytes:
    """The bytes of the argument `name`. Raises DissectorError for a value that has no bytes."""
    try:
        return given if isinstance(given, bytes) else bytes(memoryview(given))
    except (BufferError, TypeError, ValueError) as error:
        raise DissectorError(f"{name} must be bytes, not {_shown(given)}") from error


def _is_path(given: Any) -> bool:
    """Whether the system may have a file of this name."""
    try:
        return isinstance(given, str | os.PathLike) and b"\0" not in os.fsencode(given)
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _shown(given: Any) -> str:
    """The value in one line of an error."""
    return shorten(repr(given), _MOST_SHOWN, placeholder=" ...")


def _range(least: float, most: float) -> str:
    return f"of at least {least}" if most in (LARGEST, math.inf) else f"from {least} to {most}"
