"""Calls in two threads: the results are those of one."""

from __future__ import annotations

import multiprocessing
import threading
from functools import partial

import pyarrow as pa
import pytest

from dissector.exchanges import two_threads
from dissector.exchanges.two_threads import MANY_MESSAGES, results
from dissector.packets import open_packets
from dissector.pipeline import Pipeline
from tests.captures.recorded import CAPTURES


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa, "cpu_count", lambda: 2)


def square(number: int) -> tuple[int, int]:
    return number**2, threading.get_ident()


def squares(count: int) -> list[int]:
    made = results([partial(square, number) for number in range(count)], MANY_MESSAGES)
    return [number for number, _ in made]


def test_results_are_in_order_and_of_two_threads() -> None:
    """Each call waits until both threads have one: with one thread, the barrier would break."""
    both = threading.Barrier(2, timeout=180)

    def call(number: int) -> tuple[int, int]:
        both.wait()
        return square(number)

    made = results([partial(call, number) for number in range(8)], MANY_MESSAGES)
    assert [number for number, _ in made] == [number**2 for number in range(8)]
    assert len({thread for _, thread in made}) == 2


@pytest.mark.parametrize(("messages", "processors"), [(MANY_MESSAGES - 1, 2), (MANY_MESSAGES, 1)])
def test_few_messages_or_one_processor(
    messages: int, processors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pa, "cpu_count", lambda: processors)
    monkeypatch.setattr(two_threads, "_helper", None)
    assert results([partial(int, number) for number in range(8)], messages) == [*range(8)]


@pytest.mark.parametrize("in_helper", [False, True])
def test_an_error_in_either_thread(in_helper: bool) -> None:
    both = threading.Barrier(2, timeout=180)
    main = threading.get_ident()

    def call() -> None:
        both.wait()
        if (threading.get_ident() != main) == in_helper:
            raise MemoryError

    with pytest.raises(MemoryError):
        results([call, call], MANY_MESSAGES)


@pytest.mark.parametrize("capture", ["chatter-mock.pcap.zst", "kafka-4-quotas.pcap.zst"])
def test_rows_of_two_threads(capture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_threads, "MANY_MESSAGES", 1 << 60)
    expected = Pipeline(open_packets([CAPTURES / capture])).tables()
    monkeypatch.setattr(two_threads, "MANY_MESSAGES", 0)
    assert Pipeline(open_packets([CAPTURES / capture])).tables() == expected


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork")
def test_a_forked_process_has_a_thread_of_its_own() -> None:
    squares(8)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(squares, (8,)).get(180) == [number**2 for number in range(8)]
