"""The output folder of a job: a folder for each table, which appears when all tables are complete.

Tasks write below a hidden folder, whose name begins with a dot, so that no reader takes it for
data. When all rows of all tables are written and the driver has seen the files, the tables' folders
move to their places; `_SUCCESS` is written last, in each of them and beside them.

A job that is killed leaves its hidden folder behind. The next job removes it where it is certain
that its owner is not running. In it may be tables that the killed job was about to replace: those
are moved back.

This is done before Spark starts, and needs no part of it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from analysis.spark.writing import Folder
from dissector.errors import DissectorError
from dissector.packets.remote import is_url, located

MODES: Final = ("error", "overwrite")
SUCCESS: Final = "_SUCCESS"
HIDDEN: Final = ".kafka-dissector-"
_OWNER: Final = "_owner.json"
_REPLACED: Final = "replaced"


class Output:
    """The folder at a path or a URL that gets these tables."""

    def __init__(self, path: str, tables: Sequence[str], mode: str = "error") -> None:
        """`mode`: ``error`` where a table exists already, or ``overwrite``."""
        self.path = path.rstrip("/") if is_url(path) else str(Path(path).absolute())
        self._system, self._root = located(self.path)
        self._mode = mode
        self._hidden = f"{HIDDEN}{uuid4().hex}"
        self._is_new = False
        self.folders = {
            name: Folder(f"{self.path}/{self._hidden}/{name}", is_divided=True) for name in tables
        }
        """Where tasks write, by table."""

    def place(self, table: str) -> str:
        """Where a table is when all are complete."""
        return f"{self.path}/{table}"

    @contextmanager
    def opened(self) -> Iterator[Output]:
        """Check and prepare the folder. At the end, nothing is left of what was not committed.

        Raises DissectorError where the folder cannot be written to, or contains such a table.
        """
        with self._errors():
            if self._system.exists(self._root) and not self._system.isdir(self._root):
                raise DissectorError(f"{self.path}: is a file; tables are written to a folder")
            for leftover in self._leftovers():
                self._clean(leftover)
            for name in self.folders:
                self._check(name)
            self._is_new = not self._system.exists(self._root)
        try:
            with self._errors():
                self._system.makedirs(self._at(self._hidden))
                self._system.pipe_file(self._at(self._hidden, _OWNER), json.dumps(_me()).encode())
            for folder in self.folders.values():
                folder.begin()
            yield self
        finally:
            self._discard()

    def commit(self) -> None:
        """Move the tables to their places. Raises DissectorError."""
        with self._errors():
            if self._system.exists(self._at(SUCCESS)):
                self._system.rm_file(self._at(SUCCESS))
            self._system.makedirs(self._at(self._hidden, _REPLACED))
            for name in self.folders:
                self._check(name)
                if self._system.exists(self._at(name)):
                    self._move(self._at(name), self._at(self._hidden, _REPLACED, name))
                self._move(self._at(self._hidden, name), self._at(name))
            for name in self.folders:
                self._system.makedirs(self._at(name), exist_ok=True)  # a table without rows
                self._system.pipe_file(self._at(name, SUCCESS), b"")
            self._system.pipe_file(self._at(SUCCESS), b"")

    def _check(self, name: str) -> None:
        """Raises DissectorError where a table may not be written."""
        place = self._at(name)
        if not self._system.exists(place):
            return
        if not self._system.isdir(place):
            raise DissectorError(f"{self.place(name)}: is a file, where a folder would be written")
        if self._mode == "error":
            is_complete = self._system.exists(f"{place}/{SUCCESS}")
            state = "" if is_complete else f", without {SUCCESS}: its job did not finish"
            raise DissectorError(
                f"{self.place(name)}: exists already{state}; use another folder, or replace it "
                "with --mode overwrite"
            )
        for file in self._system.find(place):
            last = file.rpartition("/")[2]
            if not last.endswith(".parquet") and not last.startswith(("_", ".")):
                raise DissectorError(
                    f"{self.place(name)}: contains {last}, which no job wrote; it is not replaced"
                )

    def _leftovers(self) -> list[str]:
        """Names of the hidden folders of jobs."""
        if not self._system.exists(self._root):
            return []
        names = [path.rstrip("/").rpartition("/")[2] for path in self._listed(self._root)]
        return [name for name in names if name.startswith(HIDDEN)]

    def _listed(self, folder: str) -> list[str]:
        self._system.invalidate_cache()
        return sorted(self._system.ls(folder, detail=False))

    def _clean(self, leftover: str) -> None:
        """Remove what a job left that is over. Raises DissectorError where it may be running."""
        owner: dict[str, Any] = {}
        with suppress(FileNotFoundError, ValueError):
            owner = json.loads(self._system.cat_file(self._at(leftover, _OWNER)))
        here = owner.get("host") == socket.gethostname()
        name = f"{self.path}/{leftover}"
        if here and _is_running(owner["process"]):
            raise DissectorError(
                f"{self.path}: process {owner['process']} of this machine has been writing there "
                f"since {owner['began']}; if that is no longer so, remove {name}"
            )
        if not here and self._mode == "error":
            since = f" on {owner['host']}, begun at {owner['began']}" if owner else ""
            raise DissectorError(
                f"{self.path}: contains the unfinished output of another job{since}; if that job "
                f"is over, remove {name}, or use --mode overwrite"
            )
        self._remove(leftover)

    def _remove(self, hidden: str) -> None:
        """Remove a hidden folder. A table that was about to be replaced is moved back."""
        replaced = self._at(hidden, _REPLACED)
        for path in self._listed(replaced) if self._system.exists(replaced) else []:
            place = self._at(path.rstrip("/").rpartition("/")[2])
            if not self._system.exists(place):
                self._move(path, place)
        self._system.rm(self._at(hidden), recursive=True)

    def _discard(self) -> None:
        with suppress(OSError):
            self._system.invalidate_cache()
            if self._system.exists(self._at(self._hidden)):
                self._remove(self._hidden)
            if self._is_new and not is_url(self.path):
                Path(self._root).rmdir()  # which fails where it has a table

    def _move(self, path: str, place: str) -> None:
        self._system.mv(path, place, recursive=True)

    def _at(self, *names: str) -> str:
        return "/".join([self._root, *names])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DissectorError(
                f"{self.path}: cannot be written to: {error.strerror or error}"
            ) from error


def _me() -> dict[str, Any]:
    began = datetime.now(UTC).isoformat(timespec="seconds")
    return {"host": socket.gethostname(), "process": os.getpid(), "began": began}


def _is_running(process: int) -> bool:
    """Whether it is another process that runs. This one removes what it leaves."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
