"""Worker processes for one capture. They end with their work.

Workers are forked, so they begin with the state of their parent. If one of them ends early, all
end, and the parent raises a `DissectorError`: the worker's own DissectorError, missing memory, or
the signal that killed it. Workers exit when the parent does: each has a thread that waits for EOF
on a pipe that only the parent keeps open. They ignore SIGINT (Ctrl-C) and SIGHUP, which a terminal
sends to all of its processes: only the parent handles them. Until a worker does so, signals to it
wait, because it begins with the handlers of its parent.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import IO, Any, Final, TypeVar

import pyarrow as pa

from dissector.errors import DissectorError
from dissector.runs.rows import mapped

Known = TypeVar("Known")
Result = TypeVar("Result")

ENDING: Final = [
    signal.Signals[name]
    for name in ("SIGINT", "SIGHUP", "SIGTERM")
    if hasattr(signal, name)  # Windows has no SIGHUP
]
"""The signals that end a command."""
END_TIMEOUT: Final = 5.0
"""Seconds after which a process that has not ended is killed."""


def can_fork() -> bool:
    """Whether the system and this process can fork."""
    may_have_children = not multiprocessing.current_process().daemon
    return may_have_children and "fork" in multiprocessing.get_all_start_methods()


class Workers:
    """Worker processes; a context manager that ends them all."""

    def __init__(self) -> None:
        self._fork = multiprocessing.get_context("fork")
        self._lifeline = os.pipe()
        self._members: list[tuple[Any, Connection]] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def start(self, work: Callable[[], None], title: str) -> None:
        """Start a process that calls `work`. `title`: its work in a verb phrase, for errors."""
        failures, failed = self._fork.Pipe(duplex=False)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            process = self._fork.Process(
                target=_run, args=(work, self._lifeline, failed, mask), name=title, daemon=True
            )
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        failed.close()
        self._members.append((process, failures))

    def map(
        self, work: Callable[[int, Known], tuple[Result, IO[bytes]]], numbers: range, jobs: int,
        ahead: int, known: Callable[[], Known],
    ) -> Iterator[tuple[Result, pa.Buffer]]:  # fmt: skip
        """``work(number, known())`` of these numbers, in order.

        `work` also returns a file; its content is not copied. `known` is called in this process. At
        most `ahead` results are computed before their turn. Work begins at once, by ``jobs - 1``
        processes; by `jobs` when the first result is taken.
        """
        tasks = [self._fork.Pipe() for _ in range(min(jobs, len(numbers)))]
        for _, channel in tasks:
            self.start(partial(_work_off, work, channel), "dissects packets")
        channels = [channel for channel, _ in tasks]
        idle, waiting = list(channels), deque(numbers)

        def give(until: int, spare: int = 0) -> None:
            while len(idle) > spare and waiting and waiting[0] < until:
                with self._failures_raised():
                    idle.pop().send((waiting.popleft(), known()))

        def taken() -> Iterator[tuple[Result, pa.Buffer]]:
            results = dict[int, tuple[Result, pa.Buffer]]()
            for number in numbers:
                while number not in results:
                    give(number + ahead)
                    for ready in self.ready(channels):
                        with self._failures_raised():
                            done, result = pickle.loads(ready.recv_bytes())
                            with os.fdopen(reduction.recv_handle(ready), "rb") as file:
                                results[done] = result, mapped(file)
                        idle.append(ready)
                yield results.pop(number)

        give(numbers.start + ahead, max(len(channels) - jobs + 1, 0))
        return taken()

    def ready(self, channels: Sequence[Connection]) -> list[Connection]:
        """The channels with a message; raises DissectorError if a worker failed."""
        while not (ready := [channel for channel in channels if channel.poll()]):
            wait([*channels, *self._sentinels()])
        return ready

    @contextmanager
    def _failures_raised(self) -> Iterator[None]:
        """A context for messages. Raises DissectorError if a worker failed.

        A worker that ends closes its channel, and then its sentinel, before it has an exit code.
        """
        try:
            yield
        except (EOFError, ConnectionError):
            ended = wait([*self._sentinels()], END_TIMEOUT)
            for process, _ in self._members:
                if process.sentinel in ended:
                    process.join(END_TIMEOUT)
            list(self._sentinels())
            raise

    def _sentinels(self) -> Iterator[int]:
        """Sentinels of all running workers; raises DissectorError if one has failed."""
        for process, failures in self._members:
            code = process.exitcode
            if code:
                raise _failure(process.name, code, failures)
            if code is None:
                yield process.sentinel

    def close(self) -> None:
        """End all processes that have not ended."""
        os.close(self._lifeline[0])
        os.close(self._lifeline[1])
        for process, failures in self._members:
            process.join(END_TIMEOUT)
            if process.exitcode is None:
                process.kill()
                process.join()
            process.close()
            failures.close()
        self._members.clear()


def _work_off(work: Callable[[int, Known], tuple[object, IO[bytes]]], channel: Connection) -> None:
    """Compute results until the process is ended."""
    while True:
        number, known = channel.recv()
        result, file = work(number, known)
        file.flush()
        channel.send_bytes(pickle.dumps((number, result), protocol=5))
        reduction.send_handle(channel, file.fileno(), os.getppid())
        file.close()


def _failure(name: str, code: int, failures: Connection) -> DissectorError:
    """The error for a process that ended with this exit code."""
    if failures.poll():
        try:
            error: DissectorError = failures.recv()
        except EOFError:
            pass
        else:
            return error
    how = f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with status {code}"
    return DissectorError(f"the process that {name} ended {how}; --jobs 1 reads in one process")


def _run(
    work: Callable[[], None], lifeline: tuple[int, int], failed: Connection, mask: set[int]
) -> None:
    """The main function of a worker. `mask`: the signals that its parent blocks."""
    for number in ENDING:
        is_default = number == signal.SIGTERM
        signal.signal(number, signal.SIG_DFL if is_default else signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(lifeline[1])
    threading.Thread(target=_end_with_parent, args=(lifeline[0],), daemon=True).start()
    with _errors_sent_to(failed):
        work()


def _end_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


@contextmanager
def _errors_sent_to(failed: Connection) -> Iterator[None]:
    """Send expected errors to the parent, and exit."""
    try:
        yield
        return
    except DissectorError as error:
        failed.send(error)
    except MemoryError:
        failed.send(DissectorError("out of memory"))
    except (EOFError, BrokenPipeError):
        pass  # another process ended, which the parent sees
    except OSError as error:  # no space for rows
        failed.send(DissectorError(f"{tempfile.gettempdir()}: {error.strerror or error}"))
    os._exit(1)
