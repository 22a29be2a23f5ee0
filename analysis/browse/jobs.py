"""Jobs: work in threads, so that the event loop only draws."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

import duckdb
from rich.text import Text
from textual.app import App
from textual.worker import get_current_worker

from analysis.display.terminal import printable
from dissector.errors import DissectorError

T = TypeVar("T")


def job_is_cancelled() -> Callable[[], bool]:
    """Whether the job of this thread is cancelled: its group has a newer one, or the user left."""
    worker = get_current_worker()
    return lambda: worker.is_cancelled


class JobApp(App[Exception]):
    """A program with jobs; its result is the error that ended it, if any."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[str, str] = {}
        """Names of running jobs by their group; an empty name is not shown."""
        self.message = Text()
        """The latest message to the user."""

    @abstractmethod
    def show_status(self) -> None:
        """Show the jobs and the message."""

    def start(
        self,
        group: str,
        name: str,
        compute: Callable[[], T],
        show: Callable[[T], None],
        *,
        is_fatal: bool = False,
    ) -> None:
        """Compute in a thread, then show the result; drop it if the group has a newer job.

        `is_fatal`: an error ends the program.
        """

        def run() -> None:
            worker = get_current_worker()
            try:
                result = compute()
            except (DissectorError, OSError, duckdb.Error) as error:
                if not worker.is_cancelled:
                    self.call_from_thread(self._failed, group, error, is_fatal)
                return
            if not worker.is_cancelled:
                self.call_from_thread(self._finished, group, show, result)

        self.jobs[group] = name
        self.show_status()
        self.run_worker(run, group=group, thread=True, exclusive=True)

    def _finished(self, group: str, show: Callable[[T], None], result: T) -> None:
        if not self.is_running:
            return  # the widgets are removed
        self.jobs.pop(group, None)
        show(result)
        self.show_status()

    def _failed(self, group: str, error: Exception, is_fatal: bool) -> None:
        if not self.is_running:
            return
        self.jobs.pop(group, None)
        if is_fatal:
            self.exit(error)
        self.report(str(error).splitlines()[0], "bold red")

    def report(self, text: str, style: str = "") -> None:
        """Show a message in the last line."""
        self.message = Text(printable(text), style)
        self.show_status()
