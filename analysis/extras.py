"""What is optional: packages that an extra of this project brings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed(extra: str) -> Iterator[None]:
    """Around imports: raises DissectorError with what to install where a package is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        from dissector.errors import DissectorError

        raise DissectorError(
            f"the package {error.name} is not installed: pip install 'kafka-dissector[{extra}]'"
        ) from error
