"""The plan of a job: its captures, and their parts.

A part is a run (`dissector.runs`), a log segment, or the end: the rows that the driver makes when
all runs are joined. The name of a part is a digest of its files and of all parts before it, by
names, sizes and modification times. So new captures do not change the names of earlier runs, apart
from the last one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from analysis.spark.dissection import Part, Task
from analysis.spark.manifests import InputFile
from analysis.spark.options import Request
from analysis.spark.output import Output
from dissector import runs
from dissector.arrays import value
from dissector.capture import captures_and_segments
from dissector.errors import CaptureError
from dissector.packets.files import BLOCK_BYTES, FileSource
from dissector.packets.formats import remote
from dissector.packets.formats.remote import is_url
from dissector.packets.paths import STANDARD_INPUT
from dissector.problems import Problem
from dissector.runs import planning
from dissector.runs.plan import AnyRun, TimeRun
from dissector.stages import MEMORY_SHARE
from dissector.streams.streaming import STREAM_SHARE
from dissector.tls.keylog_source import KeyLogSource

RUNS: Final = 4
"""Runs per core, to balance unequal runs; a single core needs no balance."""


@value
class Captures:
    """The input of a job."""

    source: FileSource | None
    """The captures; None: there are log segments only."""
    segments: Sequence[str]
    """The paths of log segments."""
    problems: Sequence[Problem]
    """Problems of files that cannot be read."""


@value
class JobPlan:
    """A job, and what only the driver needs."""

    task: Task
    captures: Captures

    @property
    def inputs(self) -> set[str]:
        """The paths of all files."""
        return {file.path for part in self.task.parts for file in part.inputs}

    @property
    def names(self) -> list[str]:
        """The names of all parts."""
        return [part.name for part in self.task.parts]


def opened(request: Request) -> Captures:
    """The input of a request; does not need Spark. Raises CaptureError if it has no capture that
    can be read."""
    files, segments = inputs(request.paths)
    if STANDARD_INPUT in files:
        raise CaptureError("Spark reads files, not standard input")
    source = FileSource([*files], block_bytes(request)) if files or not segments else None
    return Captures(source, segments, source.take_problems() if source else [])


def planned(request: Request, captures: Captures, output: Output, cores: int) -> JobPlan:
    """The plan of a request. Raises CaptureError if the key log cannot be read, and
    DissectorError."""
    source = captures.source
    secrets = [*keylog(request), *source.secrets] if source else []
    size = sum(source.sizes) // (RUNS * cores) if source and cores > 1 else planning.MOST_RUN
    settings = output.settings(request.run_bytes or size)
    plan = _divided(request, source, settings["run_bytes"], divides=not secrets)
    plan = replace(plan, hash_key=np.array(settings["hash_key"], np.uint64))
    names = source.names if source else []
    paths = [*map(absolute, names)]
    comments = source.comments if source else ()
    task = Task(request, plan, [], output.job, names, paths, secrets, comments)
    parts = _parts(task, [*map(absolute, captures.segments)], captures.problems)
    return JobPlan(replace(task, parts=[*parts]), captures)


def block_bytes(request: Request) -> int:
    """Bytes of a block of packets."""
    return min(BLOCK_BYTES, request.memory // MEMORY_SHARE)


def _divided(
    request: Request, source: FileSource | None, run_bytes: int, *, divides: bool
) -> runs.Plan:
    """The runs; a single one if the captures cannot be divided."""
    limits = request.memory // STREAM_SHARE, request.memory // MEMORY_SHARE
    times = request.since, request.until
    plan = runs.divided(source, run_bytes, 1, limits, times) if source and divides else None
    if plan is None:
        whole = [planning.whole(source, times)] if source else []
        plan = runs.Plan(whole, 0, 1, block_bytes(request), limits)
    return plan


def _parts(task: Task, segments: Sequence[str], problems: Sequence[Problem]) -> Iterator[Part]:
    """The runs, the log segments, and the end."""
    files = [_input_file(path) for path in task.paths]
    chain = hashlib.sha256(repr((task.plan.warm_up_bytes, task.secrets, task.comments)).encode())
    for number, run in enumerate(task.plan.runs):
        used = [files[index] for index in _files(run)]
        names = [task.names[index] for index in _files(run)]
        chain.update(repr((run, used, names)).encode())
        yield Part(f"run-{number:06}-{chain.hexdigest()[:16]}", used)
    for path in segments:
        file = _input_file(path)
        digest = hashlib.sha256(repr(file).encode()).hexdigest()[:16]
        chain.update(digest.encode())
        yield Part(f"segment-{digest}", [file], path)
    chain.update(repr(problems).encode())
    yield Part(f"end-{chain.hexdigest()[:16]}")


def _files(run: AnyRun) -> list[int]:
    """The indices of the files of a run."""
    return [index for _, index in run.files] if isinstance(run, TimeRun) else [run.file]


def _input_file(path: str) -> InputFile:
    if is_url(path):
        system, place = remote.located(path)
        return InputFile(path, system.size(place) or 0, str(system.ukey(place)))
    status = Path(path).stat()
    return InputFile(path, status.st_size, str(status.st_mtime_ns))


def absolute(name: str) -> str:
    """The absolute path of a file, or its URL."""
    return name if is_url(name) else str(Path(name).absolute())


def inputs(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """The capture files and log segments of paths and URLs. Raises CaptureError."""
    urls = [path for path in paths if is_url(path)]
    try:
        remote_files = [file for url in urls for file in remote.files(url)]
    except OSError as error:
        raise CaptureError(str(error)) from error
    captures, segments = captures_and_segments([path for path in paths if path not in urls])
    return [*captures, *dict.fromkeys(remote_files)], segments


def keylog(request: Request) -> Iterator[bytes]:
    """The text of the key log. Raises CaptureError, or DissectorError if it is invalid."""
    if request.keylog is not None:
        yield from KeyLogSource([], request.keylog).read_new()
