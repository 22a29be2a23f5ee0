"""Names of error codes."""

from __future__ import annotations


def error_name(name: str | None, code: int | None) -> str:
    """The name of an error code; a substitute for a code of a later release, which has none."""
    return name or f"error {code}"
