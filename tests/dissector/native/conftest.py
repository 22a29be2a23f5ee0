"""All tests of loops run compiled, and as Python."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def both(loops: str) -> str:
    """For every test here."""
    return loops
