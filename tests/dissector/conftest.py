"""Code with two implementations, in C and in NumPy, is tested with both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dissector import kernel


@pytest.fixture(scope="session", params=["compiled", "pure"])
def loops(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which of both is used meanwhile."""
    if request.param == "compiled" and not kernel.COMPILED:
        pytest.skip("the compiled loops are not there: no compiler at the installation")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "COMPILED", request.param == "compiled")
        yield request.param
