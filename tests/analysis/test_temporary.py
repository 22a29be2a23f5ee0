"""Folders of temporary files, when a signal comes at the worst time."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from analysis import startup
from analysis.startup import Terminated, deferred_interruption
from analysis.temporary import temporary_folder


@pytest.fixture(autouse=True)
def interruptible(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that SIGTERM ends as it ends a command."""
    monkeypatch.setattr(startup, "_received", [])
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    startup._end_on_signals()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize(
    ("name", "number"), [("mkdir", 1), ("unlink", 1), ("unlink", 2), ("unlink", 3), ("rmdir", 1)]
)
def test_a_signal_leaves_nothing(
    name: str, number: int, is_after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before or after a call of a function. The first file that is removed is the one with which
    `tempfile` tries the folder."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    function: Callable[..., None] = getattr(os, name)
    calls: list[object] = []

    def interrupted(*given: Any, **options: Any) -> None:
        calls.append(given)
        steps = [partial(function, *given, **options)]
        if len(calls) == number:
            steps.insert(is_after, partial(signal.raise_signal, signal.SIGTERM))
        for step in steps:
            step()

    def use() -> None:
        with temporary_folder() as folder:
            assert [*tmp_path.iterdir()] == [Path(folder)]
            for file in "ab":
                Path(folder, file).touch()

    monkeypatch.setattr(os, name, interrupted)
    with pytest.raises(Terminated):
        use()
    assert not [*tmp_path.iterdir()]


def test_a_signal_comes_after_the_outer_of_two_contexts() -> None:
    ends = []

    def defer() -> None:
        with deferred_interruption():
            with deferred_interruption():
                signal.raise_signal(signal.SIGTERM)
            ends.append("inner")
        ends.append("outer")

    with pytest.raises(Terminated):
        defer()
    assert ends == ["inner"]


def test_another_thread_defers_no_signal() -> None:
    """The main thread, which gets it, would go on as if there was none."""
    raised = []

    def wait() -> None:
        with deferred_interruption():
            raised.append(list(startup._deferring))

    thread = Thread(target=wait)
    thread.start()
    thread.join()
    assert raised == [[]]
