"""A crew: processes that share one piece of work, and live no longer than it.

They are forked, so that they begin with all that their parent has, and before anything has been
done with it. Whatever ends one of them before its work is done ends all, and becomes a
`DissectorError` in the parent: an exception of that kind that it raised itself, memory that did not
suffice, a signal that killed it. And however the parent ends, or loses interest, the others end,
too: each of them waits, in a thread, for the end of a pipe that only the parent holds open. So what
a terminal sends to all its processes (Ctrl-C) is for the parent alone to act upon.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from dissector.errors import DissectorError

LAST_WORDS: Final = 5.0
"""Seconds that a process gets to end before it is killed."""


def can_fork() -> bool:
    """Whether processes can be forked here: by the system, and by this process."""
    may_have_children = not multiprocessing.current_process().daemon
    return may_have_children and "fork" in multiprocessing.get_all_start_methods()


class Crew:
    """Some processes; a context, which ends them all."""

    def __init__(self) -> None:
        self._fork = multiprocessing.get_context("fork")
        self._lifeline = os.pipe()
        self._members: list[tuple[Any, Connection]] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def start(self, work: Callable[[], None], title: str) -> None:
        """Let a process do some work. `title`: what it is called where it fails."""
        failures, failed = self._fork.Pipe(duplex=False)
        process = self._fork.Process(
            target=_run, args=(work, self._lifeline, failed), name=title, daemon=True
        )
        process.start()
        failed.close()
        self._members.append((process, failures))

    def receive(self, channel: Connection) -> bytes:
        """The next message; raises DissectorError where it will not come."""
        while not channel.poll():
            wait([channel, *self._sentinels()])
        return channel.recv_bytes()

    def _sentinels(self) -> Iterator[int]:
        """Of all that are at work; raises DissectorError where one ended before its time."""
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
            process.join(LAST_WORDS)
            if process.exitcode is None:
                process.kill()
                process.join()
            process.close()
            failures.close()
        self._members.clear()


def _failure(name: str, code: int, failures: Connection) -> DissectorError:
    """Why a process ended with this exit code."""
    if failures.poll():
        try:
            error: DissectorError = failures.recv()
        except EOFError:
            pass
        else:
            return error
    how = f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with status {code}"
    return DissectorError(f"the process that {name} ended {how}; --jobs 1 does without it")


def _run(work: Callable[[], None], lifeline: tuple[int, int], failed: Connection) -> None:
    """What a process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.close(lifeline[1])
    threading.Thread(target=_end_with_parent, args=(lifeline[0],), daemon=True).start()
    with _told(failed):
        work()


def _end_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


@contextmanager
def _told(failed: Connection) -> Iterator[None]:
    """Tell the parent what it can do something about."""
    try:
        yield
        return
    except DissectorError as error:
        failed.send(error)
    except MemoryError:
        failed.send(DissectorError("memory did not suffice"))
    except (EOFError, BrokenPipeError):
        pass  # of another process, of which the parent knows
    os._exit(1)
