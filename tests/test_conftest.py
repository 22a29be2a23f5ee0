"""What the tests of all packages have in common."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st


def examples() -> list[int]:
    """The examples of a test with the settings of all tests."""
    drawn: list[int] = []

    @given(st.integers())
    def draw(number: int) -> None:
        drawn.append(number)

    draw()
    return drawn


def test_the_modules_of_a_process_change_no_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = examples()
    (tmp_path / "with_constants.py").write_text(f"NUMBERS = {[*range(1_000_000, 1_001_000)]}")
    monkeypatch.syspath_prepend(tmp_path)
    import_module("with_constants")
    assert examples() == before
