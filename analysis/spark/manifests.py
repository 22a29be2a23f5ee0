"""The folder of a job: manifests of complete runs, and files that tasks and driver exchange.

It is `_runs/DIGEST` in the output folder, where the digest is that of the request. Readers of
tables ignore it, since its name starts with an underscore.

    job.json      the size of runs, and the key of hashes
    owner.json    the process that runs the job
    RUN.result    the state at the borders of a run; stays, so that later runs can be joined
    RUN.*.rows    its rows, before they are joined
    RUN.own       rows that the driver has made for the run
    RUN.join      what completes the rows
    RUN.topics    its reports of topics; stays
    RUN.json      the manifest; written last

A run has a name that depends on the request and on the names, sizes and modification times of its
files and of all files before. So a run with a manifest is complete, whenever the job is repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from glob import escape
from pathlib import Path
from socket import gethostname
from typing import Any, Final

import pyarrow as pa

from analysis.spark.writing import Written, whole_file
from dissector.arrays import value
from dissector.errors import DissectorError
from dissector.packets.formats.remote import located
from dissector.runs.rows import Content, mapped

RUNS: Final = "_runs"
OWNER: Final = "owner.json"
UNFINISHED: Final = (".rows", ".own", ".join")
"""Suffixes of files with rows that no manifest has yet."""
SHARED: Final = (
    "the driver and all executors need one folder, on a shared file system or behind a URL such as "
    "s3:// or hdfs://"
)


@value
class InputFile:
    """A file that a run was made from."""

    path: str
    bytes: int
    changed: str
    """Its modification time, or version."""


@value
class Manifest:
    """What a complete run was made from, and its files."""

    inputs: Sequence[InputFile]
    files: Mapping[str, Sequence[Written]]
    """By table."""
    waiting: Sequence[str] = ()
    """Topic ids in the rows whose names are unknown so far."""

    def encoded(self) -> bytes:
        """The manifest as JSON."""
        return json.dumps(asdict(self), indent=1).encode()

    @classmethod
    def decoded(cls, content: bytes) -> Manifest:
        """The manifest in JSON. Raises ValueError if it is damaged."""
        given = json.loads(content)
        try:
            files = {name: [Written(*each) for each in of] for name, of in given["files"].items()}
            return cls([InputFile(**each) for each in given["inputs"]], files, given["waiting"])
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not a manifest: {error!r}") from error


@value
class JobFolder:
    """The folder of a job, for driver and tasks. Methods raise OSError."""

    output: str
    """Path or URL of the output folder."""
    digest: str
    owner: bytes = b""
    """Content of `OWNER`: differs for each job."""

    @property
    def path(self) -> str:
        """Path or URL."""
        return f"{self.output}/{RUNS}/{self.digest}"

    def check(self) -> None:
        """In a task: raises DissectorError if this is not the folder of the driver, or if another
        job has taken it over."""
        try:
            owner = self.read(OWNER)
        except FileNotFoundError:
            raise DissectorError(
                f"{self.output} on {gethostname()} is not the driver's folder: {SHARED}"
            ) from None
        if owner != self.owner:
            other = json.loads(owner)
            raise DissectorError(
                f"{self.output}: process {other['process']} on {other['host']} has been writing to "
                f"it since {other['began']}, and continues in place of this job"
            )

    def damaged(self, name: str) -> DissectorError:
        """The error that a file cannot be decoded."""
        return DissectorError(
            f"{self.path}/{name} is damaged: remove it, and the job repeats its part"
        )

    def read(self, name: str) -> bytes:
        """The content of a file."""
        system, path = located(f"{self.path}/{name}")
        content: bytes = system.cat_file(path)
        return content

    def read_all(self, names: Iterable[str]) -> dict[str, bytes]:
        """The content of files by name."""
        system, root = located(self.path)
        paths = [escape(f"{root}/{name}") for name in names]  # `cat` expands patterns
        contents = system.cat(paths) if paths else {}
        contents = contents if isinstance(contents, dict) else {paths[0]: contents}
        return {path.rpartition("/")[2]: content for path, content in contents.items()}

    def names(self) -> set[str]:
        """The names of all files."""
        system, root = located(self.path)
        system.invalidate_cache()
        return {path.rpartition("/")[2] for path in system.find(root)}

    def write(self, name: str, content: bytes | pa.Buffer) -> None:
        """Write a file, or replace it."""
        with self.create(name) as file:
            file.write(content)

    def create(self, name: str) -> AbstractContextManager[Any]:
        """A file for writing, which appears when the context ends."""
        return whole_file(f"{self.path}/{name}")

    def content(self, name: str) -> Content:
        """The content of a file; parts of a remote one are read when they are needed."""
        system, path = located(f"{self.path}/{name}")
        if "file" in system.protocol:
            with Path(path).open("rb") as file:
                content: Content = mapped(file)
            return content
        return _RemoteContent(system.open(path, "rb"))

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        system, path = located(f"{self.path}/{name}")
        system.invalidate_cache()
        return bool(system.exists(path))

    def remove_unfinished(self, run: str) -> None:
        """Remove the rows of a run."""
        system, root = located(self.path)
        for suffix in UNFINISHED:
            for path in system.glob(f"{escape(root)}/{run}*{suffix}"):
                system.rm_file(path)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files."""
        system, root = located(self.path)
        for name in names:
            system.rm_file(f"{root}/{name}")


@value
class _RemoteContent:
    file: Any

    def slice(self, offset: int, length: int) -> pa.Buffer:
        self.file.seek(offset)
        return pa.py_buffer(self.file.read(length))
