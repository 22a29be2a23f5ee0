"""Loops run compiled and as Python: tests select one with the fixture `loops`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dissector import _native


@contextmanager
def loops_as_python() -> Iterator[None]:
    """Run the loops as Python meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for name, functions in _native.FUNCTIONS.items():
            module = _native.source(name)
            for function in functions:
                patch.setattr(_native, function, _native.as_python(getattr(module, function)))
        yield


@pytest.fixture(scope="session", params=["compiled", "python"])
def loops(request: pytest.FixtureRequest) -> Iterator[str]:
    """How the loops run."""
    if request.param == "python":
        with loops_as_python():
            yield request.param
    elif _native.COMPILED:
        yield request.param
    else:
        pytest.skip("the loops are not compiled: no compiler at installation")
