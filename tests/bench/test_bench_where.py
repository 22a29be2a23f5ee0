"""The functions of the stages of `bench.where` exist, and stage times are exclusive."""

from __future__ import annotations

import pytest

from bench.where import BETWEEN, STAGES, Clock, insert, locate


@pytest.mark.parametrize("place", [place for places in STAGES.values() for place in places])
def test_functions_of_stages_exist(place: str) -> None:
    owner, name = locate(place)
    assert callable(getattr(owner, name))


def test_a_stage_pauses_the_one_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100))
    monkeypatch.setattr("time.thread_time", lambda: next(now))
    monkeypatch.setitem(globals(), "outer", outer)  # restored after the test
    monkeypatch.setitem(globals(), "inner", inner)
    clock = Clock()
    clock.watch("outside", f"{__name__}:outer")
    clock.watch("inside", f"{__name__}:inner")
    assert outer() == 3
    clock.lap()
    assert clock.seconds == {BETWEEN: 2, "outside": 3, "inside": 2}
    assert clock.calls == {"outside": 1, "inside": 2}


def test_a_table_is_inserted_into_a_page() -> None:
    page = "# Time\n<!-- where a -->\nold\n<!-- end -->\n<!-- where b -->\nkept\n<!-- end -->\n"
    once = insert(page, "a", "new")
    assert once.splitlines()[:6] == ["# Time", "<!-- where a -->", "", "new", "", "<!-- end -->"]
    assert "old" not in once
    assert "kept" in once
    assert insert(once, "a", "new") == once
    with pytest.raises(ValueError, match="no place for c"):
        insert(page, "c", "new")


def outer() -> int:
    return inner() + inner() + 1


def inner() -> int:
    return 1
