"""Optional packages, which extras of this project install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed(extra: str) -> Iterator[None]:
    """A context for imports. Raises DissectorError with a pip command if a package is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        from dissector.errors import DissectorError

        raise DissectorError(
            f"the package {error.name} is not installed: pip install 'kafka-dissector[{extra}]'"
        ) from error
