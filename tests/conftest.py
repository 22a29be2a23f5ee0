"""How tests are dealt to several processes (`pytest -n`), which are quick (`pytest --quick`), and
which parameters are a sample (all of them with `SLOW=1`).

A file is a group, and one process runs it: what its tests share, such as a capture's tables, is
made once. The tests of Spark are one group, because they share a session; so are those that share a
browser. Groups that take long come first, so that no process is left with one at the end.

pytest-xdist's own groups have no effect with pytest 9.2: they change an attribute that is no longer
there.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from dissector import _native

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

FOLDERS: Final = ("tests/analysis/spark/", "tests/analysis/report/")
"""Folders that are one group."""
LONG: Final = (
    *FOLDERS,
    "tests/notebooks/",
    "tests/docs/",
    "tests/captures/",
    "tests/analysis/live/",
    "tests/dissector/runs/",
    "tests/dissector/streams/",
    "tests/dissector/test_",
)
"""Beginnings of the ids of tests whose groups take long, the longest first."""

if not _native.COMPILED:
    os.environ["KAFKA_DISSECTOR_PURE"] = "1"  # so that commands do not report it, each on its own


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    config.option.loadscopereorder = False
    return Groups(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run each test function once, with its first parameters; leave out slow ones"
    parser.addoption("--quick", action="store_true", help=text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place(item.nodeid))
    if not os.environ.get("SLOW"):
        items[:] = sampled(items)
    if config.getoption("quick"):
        first = {item.nodeid.partition("[")[0]: item for item in reversed(items)}
        items[:] = [
            item
            for item in items
            if first[item.nodeid.partition("[")[0]] is item and not item.get_closest_marker("slow")
        ]


def pytest_collection_finish() -> None:
    gc.freeze()  # commands collect garbage, which would look at the thousands of tests each time


def sampled(items: list[pytest.Item]) -> list[pytest.Item]:
    """The items without those that the marker `sampled` leaves out: neighbours are alike."""
    kept = []
    counts: Counter[str] = Counter()
    for item in items:
        function = item.nodeid.partition("[")[0]
        marker = item.get_closest_marker("sampled")
        if marker is None or counts[function] % marker.args[0] == 0:
            kept.append(item)
        counts[function] += 1
    return kept


def group(test: str) -> str:
    """The group of a test, by its id."""
    return next((name for name in FOLDERS if test.startswith(name)), test.partition("::")[0])


def place(test: str) -> int:
    """The position of the group of a test in the order of groups."""
    return next((i for i, name in enumerate(LONG) if test.startswith(name)), len(LONG))
