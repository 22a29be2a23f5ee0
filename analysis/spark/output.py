"""The output folder of a job.

Files of tables appear run by run, and stay under their names (`writing`). Manifests show which runs
are complete (`manifests`): a job that is repeated, after an interruption or with new captures, goes
on with the other runs. `_SUCCESS` is written last, in each table and next to them.

This module does not need Spark; the checks run before Spark starts.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

import dissector
from analysis.spark.manifests import OWNER, RUNS, SHARED, JobFolder, Manifest
from analysis.spark.options import Request
from analysis.spark.writing import PARTIAL, RUN_FILE, whole_file
from dissector.errors import DissectorError
from dissector.packets.formats.remote import is_url, located

SUCCESS: Final = "_SUCCESS"
JOB: Final = "job.json"
NO_ROWS: Final = "date=1970-01-01"
"""Folder of a file without rows."""
_KEPT: Final = (".json", ".result", ".topics")
"""Suffixes of files of a complete run that later runs need."""
_UNIMPORTANT: Final = ("paths", "columns", "result_dir", "state", "watermark", "plan_id")
"""Options on which the rows of a run do not depend, apart from its files."""


class Output:
    """An output folder for the tables of a request, at a path or URL."""

    def __init__(self, path: str, request: Request, mode: str = "error") -> None:
        """`mode`: ``error`` to stop if another job wrote a table, or ``overwrite``."""
        self.path = path.rstrip("/") if is_url(path) else str(Path(path).absolute())
        self.tables = request.tables
        self._system, self._root = located(self.path)
        self._mode = mode
        self._owner = _owner() | {"tables": [*request.tables]}
        self.job = JobFolder(self.path, digest(request), json.dumps(self._owner).encode())
        """The folder of the job."""

    def place(self, table: str) -> str:
        """The folder of a table."""
        return f"{self.path}/{table}"

    @contextmanager
    def opened(self) -> Iterator[Output]:
        """Check and prepare the folder. At the end, remove obsolete files.

        Raises DissectorError if the folder is not writable, or contains such a table.
        """
        with self.errors():
            if self._system.exists(self._root) and not self._system.isdir(self._root):
                raise DissectorError(f"{self.path} is a file; tables need a folder")
            self._refuse_running()
            is_own = self._system.exists(self._at(RUNS, self.job.digest, JOB))
            for name in self.tables:
                self._check(name, is_own=is_own)
            if self._mode == "overwrite" and self._system.exists(self._at(RUNS, self.job.digest)):
                self._system.rm(self._at(RUNS, self.job.digest), recursive=True)
        try:
            with self.errors():
                self.job.write(OWNER, self.job.owner)
                self.job.remove(name for name in self.job.names() if name.endswith(PARTIAL))
            yield self
        finally:
            self._close()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise a DissectorError in place of an OSError."""
        try:
            yield
        except OSError as error:
            raise DissectorError(f"cannot write {self.path}: {error.strerror or error}") from error

    def settings(self, run_bytes: int) -> dict[str, Any]:
        """The settings that all jobs of this request share. `run_bytes`: that of the first job."""
        with self.errors():
            if JOB not in self.job.names():
                key = [int.from_bytes(os.urandom(8)) for _ in range(2)]
                settings = {"tables": [*self.tables], "run_bytes": run_bytes, "hash_key": key}
                self.job.write(JOB, json.dumps(settings).encode())
            content = self.job.read(JOB)
        try:
            shared: dict[str, Any] = json.loads(content)
        except ValueError as error:
            raise DissectorError(
                f"{self.job.path}/{JOB} is damaged: use --mode overwrite"
            ) from error
        return shared

    def complete(self, names: Sequence[str], inputs: set[str]) -> dict[str, Manifest]:
        """The manifests of those runs that are complete. `inputs`: the paths of all captures.

        Raises DissectorError if a capture of a complete run is missing.
        """
        with self.errors():
            present = self.job.names()
            known = sorted(each for each in present - {JOB, OWNER} if each.endswith(".json"))
            manifests = {
                name.removesuffix(".json"): self._manifest(name, content)
                for name, content in self.job.read_all(known).items()
            }
            sizes = self._sizes()
        used = {file.path for manifest in manifests.values() for file in manifest.inputs}
        if missing := sorted(used - inputs):
            raise DissectorError(
                f"{self.path} has rows of {missing[0]}, which is not among the captures of this "
                "job; use another folder, or replace its tables with --mode overwrite"
            )
        return {
            name: manifest
            for name, manifest in manifests.items()
            if name in {*names} and all(sizes.get(f.file) == f.bytes for f in _files(manifest))
        }

    def _manifest(self, name: str, content: bytes) -> Manifest:
        """Without a manifest, it is unknown whether a capture of its run is missing."""
        try:
            return Manifest.decoded(content)
        except ValueError as error:
            raise self.job.damaged(name) from error

    def prune(self, manifests: Mapping[str, Manifest]) -> None:
        """Remove other manifests, and files of the tables that are not in these.

        Those of jobs with other options, too: else they would take these tables for their own.

        Raises DissectorError.
        """
        kept = {file.file for manifest in manifests.values() for file in _files(manifest)}
        with self.errors():
            for name in ("", *(f"{table}/" for table in self.tables)):
                with suppress(FileNotFoundError):
                    self._system.rm_file(self._at(f"{name}{SUCCESS}"))
            self._remove_other_jobs()
            names = self.job.names() - {JOB, OWNER} - {f"{name}.json" for name in manifests}
            self.job.remove(name for name in names if name.endswith(".json"))
            for file in self._sizes().keys() - kept:
                self._system.rm_file(self._at(file))

    def finish(
        self, names: Sequence[str], inputs: set[str], schema: Callable[[str], pa.Schema]
    ) -> dict[str, int]:
        """Check that all runs are complete, and remove what no later job needs.

        `schema`: of a table in its files. Returns the number of rows by table. Raises
        DissectorError.
        """
        manifests = self.complete(names, inputs)
        if missing := [name for name in names if name not in manifests]:
            raise DissectorError(
                f"{len(missing):,} of {len(names):,} parts that tasks wrote to {self.path} are "
                f"missing or incomplete for the driver ({missing[0]}): {SHARED}"
            )
        with self.errors():
            kept = {f"{name}{suffix}" for name in names for suffix in _KEPT} | {JOB, OWNER}
            waiting = tuple(name for name, each in manifests.items() if each.waiting)
            unused = self.job.names() - kept
            self.job.remove(each for each in unused if not (waiting and each.startswith(waiting)))
            filled = {table for manifest in manifests.values() for table in manifest.files}
            for table in self.tables:
                if table not in filled:
                    self._add_types(schema(table), f"{table}/{NO_ROWS}/{names[-1]}.parquet")
                self._system.pipe_file(self._at(table, SUCCESS), b"")
            self._system.pipe_file(self._at(SUCCESS), b"")
        rows = dict.fromkeys(self.tables, 0)
        for manifest in manifests.values():
            for table, files in manifest.files.items():
                rows[table] += sum(file.rows for file in files)
        return rows

    def _add_types(self, schema: pa.Schema, file: str) -> None:
        """Write a file without rows, unless it exists.

        A table that has no rows needs it: from its folder, Spark, pandas and DuckDB could not infer
        the types of the columns, or that of `date`.
        """
        if not self._system.exists(self._at(file)):
            with whole_file(f"{self.path}/{file}") as sink:
                pq.write_table(schema.empty_table(), sink)

    def _remove_other_jobs(self) -> None:
        """Remove the folders of jobs with other options that wrote one of these tables."""
        for file in self._system.glob(f"{escape(self._at(RUNS))}/*/{JOB}"):
            folder = file.rpartition("/")[0]
            tables = {*self.tables}
            with suppress(FileNotFoundError, ValueError):
                tables = {*json.loads(self._system.cat_file(file))["tables"]}
            if tables & {*self.tables} and folder != self._at(RUNS, self.job.digest):
                self._system.rm(folder, recursive=True)

    def _sizes(self) -> dict[str, int]:
        """The sizes of all Parquet files of the tables, also of partial ones."""
        self._system.invalidate_cache()
        return {
            path.removeprefix(f"{self._root}/"): info["size"]
            for table in self.tables
            if self._system.exists(self._at(table))
            for path, info in self._system.find(self._at(table), detail=True).items()
            if path.endswith((".parquet", PARTIAL))
        }

    def _check(self, table: str, *, is_own: bool) -> None:
        """Raises DissectorError if a table must not be written."""
        place = self._at(table)
        if not self._system.exists(place):
            return
        if not self._system.isdir(place):
            raise DissectorError(f"{self.place(table)} is a file, but must be a folder")
        if self._mode == "error" and not is_own:
            raise DissectorError(
                f"{self.place(table)} already exists, and has other options; use another folder, "
                "or replace it with --mode overwrite"
            )
        for file in self._system.find(place):
            last = file.rpartition("/")[2]
            if not RUN_FILE.fullmatch(last) and not last.startswith(("_", ".")):
                raise DissectorError(
                    f"{self.place(table)} contains {last}, which no job wrote; it is not replaced"
                )

    def _refuse_running(self) -> None:
        """Raises DissectorError if a job that writes these tables runs on this machine."""
        for owner_file in self._system.glob(f"{escape(self._at(RUNS))}/*/{OWNER}"):
            owner: dict[str, Any] = {}
            with suppress(FileNotFoundError, ValueError):
                owner = json.loads(self._system.cat_file(owner_file))
            is_local = owner.get("host") == self._owner["host"]
            if is_local and {*owner["tables"]} & {*self.tables} and _is_running(owner["process"]):
                raise DissectorError(
                    f"{self.path}: process {owner['process']} on this machine has been writing to "
                    f"it since {owner['began']}; if it is not running, remove {owner_file}"
                )

    def _close(self) -> None:
        """Remove the mark of this job, and all folders if no run was dissected."""
        with suppress(OSError):
            if self.job.read(OWNER) == self.job.owner:
                self.job.remove([OWNER])
            if not self.job.names() - {JOB}:
                self._system.rm(self._at(RUNS, self.job.digest), recursive=True)
            if not is_url(self.path):
                Path(self._root, RUNS).rmdir()  # fails if it contains a job
                Path(self._root).rmdir()

    def _at(self, *names: str) -> str:
        return "/".join([self._root, *names])


def _files(manifest: Manifest) -> list[Any]:
    return [file for files in manifest.files.values() for file in files]


def digest(request: Request) -> str:
    """A digest of everything that the rows depend on, apart from captures."""
    options = {name: value for name, value in asdict(request).items() if name not in _UNIMPORTANT}
    options |= {"tables": sorted(request.tables), "apis": sorted(request.apis)}
    text = json.dumps([dissector.__version__, options], default=list, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _owner() -> dict[str, Any]:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    process = {"host": socket.gethostname(), "process": os.getpid(), "began": started}
    return process | {"job": uuid4().hex}


def _is_running(process: int) -> bool:
    """Whether another process with this id runs."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
