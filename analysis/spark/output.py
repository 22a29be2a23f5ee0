"""The output folder of a job. Tables appear in it when all of them are complete.

Tasks write to a hidden folder, whose name starts with a dot, so that readers ignore it. When all
tables are written and the driver has seen their files, the folders of the tables move to their
places. `_SUCCESS` is written last, in each of them and next to them.

A killed job leaves its hidden folder behind. The next job removes it if the owner is certainly not
running, and restores tables that the killed job was about to replace.

This module does not need Spark; the checks run before Spark starts.
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
    """An output folder for these tables, at a path or URL."""

    def __init__(self, path: str, tables: Sequence[str], mode: str = "error") -> None:
        """`mode`: ``error`` to stop if a table exists, or ``overwrite``."""
        self.path = path.rstrip("/") if is_url(path) else str(Path(path).absolute())
        self._system, self._root = located(self.path)
        self._mode = mode
        self._hidden = f"{HIDDEN}{uuid4().hex}"
        self._is_new = False
        self.folders = {
            name: Folder(f"{self.path}/{self._hidden}/{name}", is_divided=True) for name in tables
        }
        """Folders that tasks write to, by table."""

    def place(self, table: str) -> str:
        """The final folder of a table."""
        return f"{self.path}/{table}"

    @contextmanager
    def opened(self) -> Iterator[Output]:
        """Check and prepare the folder. At the end, remove everything that was not committed.

        Raises DissectorError if the folder is not writable, or contains such a table.
        """
        with self._errors():
            if self._system.exists(self._root) and not self._system.isdir(self._root):
                raise DissectorError(f"{self.path} is a file; tables need a folder")
            for leftover in self._leftovers():
                self._clean(leftover)
            for name in self.folders:
                self._check(name)
            self._is_new = not self._system.exists(self._root)
        try:
            with self._errors():
                self._system.makedirs(self._at(self._hidden))
                owner = json.dumps(_owner()).encode()
                self._system.pipe_file(self._at(self._hidden, _OWNER), owner)
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
        """Raises DissectorError if a table must not be written."""
        place = self._at(name)
        if not self._system.exists(place):
            return
        if not self._system.isdir(place):
            raise DissectorError(f"{self.place(name)} is a file, but must be a folder")
        if self._mode == "error":
            is_complete = self._system.exists(f"{place}/{SUCCESS}")
            state = "" if is_complete else f", without {SUCCESS}: its job did not finish"
            raise DissectorError(
                f"{self.place(name)} already exists{state}; use another folder, or replace it "
                "with --mode overwrite"
            )
        for file in self._system.find(place):
            last = file.rpartition("/")[2]
            if not last.endswith(".parquet") and not last.startswith(("_", ".")):
                raise DissectorError(
                    f"{self.place(name)} contains {last}, which no job wrote; it is not replaced"
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
        """Remove the folder of an ended job. Raises DissectorError if the job may be running."""
        owner: dict[str, Any] = {}
        with suppress(FileNotFoundError, ValueError):
            owner = json.loads(self._system.cat_file(self._at(leftover, _OWNER)))
        is_local = owner.get("host") == socket.gethostname()
        name = f"{self.path}/{leftover}"
        if is_local and _is_running(owner["process"]):
            raise DissectorError(
                f"{self.path}: process {owner['process']} on this machine has been writing to it "
                f"since {owner['began']}; if it is not running, remove {name}"
            )
        if not is_local and self._mode == "error":
            since = f" on {owner['host']}, started at {owner['began']}" if owner else ""
            raise DissectorError(
                f"{self.path} contains the unfinished output of another job{since}; if that job "
                f"has ended, remove {name}, or use --mode overwrite"
            )
        self._remove(leftover)

    def _remove(self, hidden: str) -> None:
        """Remove a hidden folder. Move back a table that was about to be replaced."""
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
                Path(self._root).rmdir()  # fails if it contains a table

    def _move(self, path: str, place: str) -> None:
        self._system.mv(path, place, recursive=True)

    def _at(self, *names: str) -> str:
        return "/".join([self._root, *names])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DissectorError(f"cannot write {self.path}: {error.strerror or error}") from error


def _owner() -> dict[str, Any]:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return {"host": socket.gethostname(), "process": os.getpid(), "began": started}


def _is_running(process: int) -> bool:
    """Whether another process with this id runs. This process removes its own folders."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
