"""All tests of streams run with and without compiled loops."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def both(loops: str) -> str:
    """Applies to all tests of this folder."""
    return loops
