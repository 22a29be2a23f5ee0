"""Calls of compiled loops in two threads: the loops run without Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

MANY_MESSAGES = 1 << 13
"""Loops over fewer messages take about as long as it takes to wake a thread."""
Result = TypeVar("Result")


def results(calls: Sequence[Callable[[], Result]], messages: int) -> list[Result]:
    """The results of calls that together read this number of messages, in order.

    Each thread makes the next call when it is free. So a second thread that gets no processor
    delays the first one by one call at most. If Arrow may use one processor only, as in tasks of
    Spark, there is no second thread.
    """
    if messages < MANY_MESSAGES or len(calls) < 2 or pa.cpu_count() < 2:
        return [call() for call in calls]
    made: dict[int, Result] = {}
    pending = enumerate(calls)

    def work() -> None:
        for index, call in pending:
            made[index] = call()

    helping = _helper().submit(work)
    work()
    if not helping.cancel():  # it has started
        helping.result()
    return [made[index] for index in range(len(calls))]


@cache
def _helper() -> ThreadPoolExecutor:
    # Its import takes longer than that of all other modules, and small captures do not need it.
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helper.cache_clear)  # a new process has no other threads
