"""The selection of tests, and their distribution to processes.

`pytest --quick` runs each test function once, without slow ones. The marker `sampled` selects a
part of the parameters; `SLOW=1` runs all of them.

With `pytest -n`, the tests of a file are a group, and one process runs it. So the process makes
shared data, such as the tables of a capture, only once. The tests of Spark share a session, and
those of reports share a browser: each of these folders is one group. Long groups start first.

The groups of pytest-xdist itself have no effect with pytest 9.2: they change an attribute that no
longer exists.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import tarfile
from collections import Counter, defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from dissector import _native
from tests.captures.recorded import unpacked

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
    "tests/rewriting/",
    "tests/dissector/streams/",
    "tests/dissector/test_",
)
"""Prefixes of the test ids of long groups, the longest first."""

# Examples depend on the code alone, so that a change fails its own tests and no others.
# `pytest --hypothesis-profile random` takes new examples, and more of them.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("random", deadline=None, max_examples=1_000)
settings.load_profile("repeatable")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell does this for processes in the background; commands that tests interrupt inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if not _native.COMPILED:
    os.environ["KAFKA_DISSECTOR_PURE"] = "1"  # else each command reports it


# Output depends on the terminal of a test, not on that of `pytest`.
for variable in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PAGER", "LESS"):
    os.environ.pop(variable, None)


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disks of brokers, with log segments: see tests/data/README.md. Tests do not change it."""
    folder = tmp_path_factory.mktemp("brokers")
    data = unpacked(Path(__file__).parent / "data" / "segments.tar.zst")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        # Python 3.11.2 of Debian 12 has no `filter`; 3.14 has this one.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    config.option.loadscopereorder = False
    return Groups(config, log)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """`-n auto`: one process more than processors. Tests of Spark, commands and live capture wait
    a quarter of their time."""
    return (yield) + 1


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run each test function once, with its first parameters; leave out slow ones"
    parser.addoption("--quick", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--hypothesis-profile") is None:
        # Hypothesis also draws constants from the modules that are loaded. So examples would depend
        # on the tests that the process ran before, and on changes of other modules.
        providers._get_local_constants = lambda: providers._local_constants  # these are none


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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()  # what collection creates stays: searching it takes an eighth of the time
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    gc.freeze()  # a garbage collection skips the thousands of tests, also when pytest ends
    atexit.register(gc.unfreeze)  # DuckDB reports its objects that Python did not free


def sampled(items: list[pytest.Item]) -> list[pytest.Item]:
    """The items that the marker `sampled` keeps."""
    functions: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            functions[item.nodeid.partition("[")[0]].append(item)
    kept = {item.nodeid for each in functions.values() for item in sample(each)}
    return [item for item in items if item.nodeid in kept or not item.get_closest_marker("sampled")]


def sample(items: list[pytest.Item]) -> list[pytest.Item]:
    """One of `step` items of a function. They have each value of each parameter that has no more
    values than the sample has items."""
    (step,) = next(items[0].iter_markers("sampled")).args
    size = -(-len(items) // step)
    values = [
        {(name, repr(value)) for name, value in item.callspec.params.items()}  # type: ignore[attr-defined]
        for item in items
    ]
    counts = Counter(name for name, _ in set().union(*values))
    missing = {each for each in set().union(*values) if counts[each[0]] <= size}
    order = [*range(0, len(items), step), *range(len(items))]
    chosen: dict[int, None] = {}
    while missing:
        best = max(order, key=lambda index: len(values[index] & missing))  # the first of the best
        chosen[best] = None
        missing -= values[best]
    for index in order:
        if len(chosen) < size:
            chosen[index] = None
    return [items[index] for index in sorted(chosen)]


def group(test: str) -> str:
    """The group of a test, by its id."""
    return next((name for name in FOLDERS if test.startswith(name)), test.partition("::")[0])


def place(test: str) -> int:
    """The position of the group of a test in the order of groups."""
    return next((i for i, name in enumerate(LONG) if test.startswith(name)), len(LONG))
