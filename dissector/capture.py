"""The public facade of a `Pipeline`.

A `Pipeline` reads its input once. A `Capture` opens a pipeline for each pass, so that each call
returns the same rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypedDict, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from dissector import arguments
from dissector.arguments import boolean, integer, integers
from dissector.errors import CaptureError
from dissector.packets import prefetch
from dissector.packets.files import BLOCK_BYTES, FileSource
from dissector.packets.formats.byte_input import is_stream
from dissector.packets.paths import find, input_name, no_capture
from dissector.pipeline import Counts, Pipeline, Progress, collected, known_tables
from dissector.protocol.registry import find_api
from dissector.stages import MEMORY_SHARE
from dissector.streams.streaming import DEFAULT_MEMORY, STREAM_SHARE
from dissector.tables import TABLES
from dissector.tables.finalizer import NamedBatch
from dissector.tables.log_segments import (
    current_segments,
    is_segment,
    is_segment_companion,
)

if TYPE_CHECKING:
    from dissector.exchanges.exchange import Exchange
    from dissector.problems import Problem

FilePath: TypeAlias = str | os.PathLike[str]
Paths: TypeAlias = FilePath | Sequence[FilePath] | Iterator[FilePath]
Names: TypeAlias = str | Collection[str]
Row = TypeVar("Row")

_LEAST_MEMORY = 1 << 20
"""Smallest memory budget, in bytes: with less, few messages would be complete."""
_PATHS_SHOWN = 3
"""Paths in the repr of a capture."""


class OpenOptions(TypedDict, total=False):
    """The keyword arguments of `open_capture`."""

    ports: Collection[int] | None
    hold: bool
    show_secrets: bool
    keylog: str | os.PathLike[str] | None
    jobs: int
    memory: int
    progress: Progress | None


def open_capture(
    paths: Paths,
    *,
    ports: Collection[int] | None = None,
    hold: bool = True,
    show_secrets: bool = False,
    keylog: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> Capture:
    """Open files, globs, folders, or ``-`` for standard input, as one capture in time order.

    A broker's log segments are read after the captures; they provide `batches` and `records`.
    Those that the broker has deleted are only read if there are no others. Of the KRaft snapshots
    in a folder, only the latest is read, as a controller does (KIP-630).

    `ports`: broker ports, for connections whose start is not in the capture (None: 9092). If a
    connection to one of them is not Kafka, `problems` has a row for it. `hold`: keep rows with
    unknown topic names until the end of the capture, which may contain them. `show_secrets`: do not
    redact secrets in the tables; see `dissector.secrets`. `keylog`: a file of TLS secrets (NSS key
    log format), which may still grow. Secrets in a pcapng file are always used. `jobs`: number of
    processes for files of 256 MB or more in total; one process reads other input. They are forked
    when the first rows are requested. Rows do not depend on `jobs`, but their order may. `memory`:
    memory budget in bytes for input blocks and pending data. When it is exceeded, the oldest
    pending data is dropped and reported in `problems`. `progress`: called with the bytes read so
    far, and with the total, or None if it is unknown.

    Raises CaptureError if no input can be read as a capture, or if the key log cannot be read.
    Raises DissectorError if a port is not a TCP port, `jobs` is less than 1 or `memory` less than
    1 MB, or if there is a key log and the package `cryptography` is missing.
    """
    ports, memory = checked_ports(ports), checked_memory(memory)
    jobs = integer("jobs", jobs, 1)
    hold, show_secrets = boolean("hold", hold), boolean("show_secrets", show_secrets)
    given = arguments.paths("paths", paths)
    files = _find_files(given)
    return Capture(
        files,
        partial(
            _open_pipeline, *_by_kind(files), ports=ports, hold=hold, show_secrets=show_secrets,
            keylog=keylog, jobs=jobs, memory=memory, progress=progress,
        ),
    )  # fmt: skip


def _find_files(given: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The files of paths, and the folders without captures, which will be problems.

    Raises CaptureError if there is no file.
    """
    files = find(given, also=is_segment)
    if given and not files:
        raise CaptureError(no_capture(*given))
    return files + _empty_folders(given, files)


def checked_ports(ports: Collection[int] | None) -> list[int] | None:
    """Ports of `open_capture`. Raises DissectorError for any other value."""
    return None if ports is None else integers("ports", ports)


def checked_memory(memory: int) -> int:
    """The budget of `open_capture`. Raises DissectorError for any other value."""
    return integer("memory", memory, _LEAST_MEMORY)


def _empty_folders(given: Sequence[str | os.PathLike[str]], files: Sequence[str]) -> list[str]:
    """Those of the given folders that have no capture; opening one of them raises an error.

    `files`: all that were found. A folder that was named twice has its files there once.
    """
    folders = [os.fspath(path) for path in given if os.path.isdir(path)]  # noqa: PTH112 - faster
    return [
        folder
        for folder in folders
        if not any(file.startswith(f"{folder.rstrip('/')}/") for file in files)
        and not find([folder], also=is_segment)
    ]


def _open_pipeline(
    captures: list[str], segments: list[str], *, jobs: int, memory: int, hold: bool,
    keylog: str | os.PathLike[str] | None, **options: Any,
) -> Pipeline:  # fmt: skip
    """Open captures and log segments for one pass."""
    block_bytes = min(BLOCK_BYTES, memory // MEMORY_SHARE)
    source = FileSource(captures, block_bytes) if captures or not segments else None
    plan = None
    if jobs > 1 and hold and keylog is None:
        from dissector import runs

        limits = memory // STREAM_SHARE, memory // MEMORY_SHARE
        plan = runs.plan(source, jobs, limits)
    return Pipeline(
        prefetch.ReadAhead(source) if plan is None and prefetch.helps(source) else source, segments,
        plan=plan, memory=memory, hold=hold, keylog=keylog, **options,
    )  # fmt: skip


def captures_and_segments(
    paths: Sequence[str | os.PathLike[str]],
) -> tuple[list[str], list[str]]:
    """The files of paths: captures, and log segments. Files next to segments are skipped.

    Of the segments, those are returned that a broker would load. Raises CaptureError if there is no
    file. A folder without captures is one of the captures.
    """
    return _by_kind(_find_files(paths))


def _by_kind(files: Sequence[str]) -> tuple[list[str], list[str]]:
    segments = [path for path in files if is_segment(path)]
    known = set(segments)
    captures = [p for p in files if p not in known and not is_segment_companion(p)]
    return captures, current_segments(segments)


class Capture:
    """Files that are opened as one capture; `open_capture` returns it.

    There are two ways to iterate: `stream` returns batches of rows, and `exchanges` objects.
    `tables` collects the rows of `stream`. Each call reads the files from the start. Standard input
    and named pipes can be read only once: the second call raises CaptureError. A capture is also a
    context manager, which closes the files.
    """

    def __init__(self, paths: Sequence[str], open_pipeline: Callable[[], Pipeline]) -> None:
        """`open_pipeline` opens the files at `paths` for one pass."""
        self.paths = tuple(paths)
        """The files, in the given order; ``-`` is standard input."""
        self._open_pipeline = open_pipeline
        self._unread = [open_pipeline()]
        """A pipeline that was not read yet, if there is one. Shallow copies share the list."""
        self._streams = [path for path in paths if is_stream(path)]
        self._passes: list[Generator[Any]] = []
        """Passes that have started and not ended."""
        self._seen: dict[str, None] = {}
        """Names of the requested tables, in order."""
        self._counts = Counts()
        self.host_names: Sequence[tuple[str, str]] = ()
        """Addresses with their names, from name resolution blocks of pcapng, once a pass has ended.
        An address may have several names."""
        self.file_problems: Sequence[Problem] = ()
        """Problems of files that could not be read, or not wholly, in the latest pass so far."""
        self.without_tcp: Mapping[str, int] = {}
        """If no packet contains TCP: the number of packets by the layer at which reading ended."""
        self._mechanisms: Mapping[int, str] = {}
        self._topic_names: Mapping[str, str] = {}
        self._is_closed = False

    def tables(self, tables: Names | None = None) -> dict[str, pa.Table]:
        """Whole tables by name: ``tables("errors")["errors"]``. None: all that are not opt-in.

        Raises DissectorError for a table that does not exist.
        """
        wanted = known_tables(tables)
        return collected(self.stream(wanted), wanted)

    def stream(
        self, tables: Names | None = None, *, with_messages: bool = False,
        dictionaries: bool = False,
    ) -> Iterator[tuple[str, pa.RecordBatch]]:  # fmt: skip
        """Rows of the tables as they are read, in bounded memory: name of the table, and a batch.

        None: all tables that are not opt-in. The rows of a table are roughly in time order.
        `with_messages`: rows of `exchanges` also have the bytes of their messages, in which secrets
        are not redacted: the columns of an `Exchange`. In this case, one process reads the capture.
        `dictionaries`: the texts of `exchanges` may be dictionaries, which takes less time. Raises
        DissectorError for a table that does not exist.
        """
        wanted = known_tables(tables)
        with_messages = boolean("with_messages", with_messages)
        dictionaries = boolean("dictionaries", dictionaries)
        return self._read(
            wanted,
            lambda pipeline: _not_empty(
                pipeline.stream(wanted, with_messages=with_messages, dictionaries=dictionaries)
            ),
        )

    def has_table(self, name: str) -> bool:
        """Whether there is a table of this name."""
        return name in TABLES

    def exchanges(
        self,
        *,
        api: Names | None = None,
        client_id: Names | None = None,
        select: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda rows: rows,
    ) -> Iterator[Exchange]:
        """Exchanges one by one, with the bytes of their messages. Secrets are not redacted.

        `api`, `client_id`: return only exchanges with these names. `select`: a function from rows
        of `exchanges` to those to return. Raises DissectorError for an API that does not exist,
        and for a name that is not text.
        """
        wanted: dict[str, list[str]] = {}
        if api is not None:
            wanted["api"] = [find_api(name) for name in arguments.texts("api", api)]
        if client_id is not None:
            wanted["client_id"] = list(arguments.texts("client_id", client_id))

        def named(rows: pa.RecordBatch) -> pa.RecordBatch:
            for column, names in wanted.items():
                rows = rows.filter(pc.is_in(rows.column(column), pa.array(names, pa.string())))
            return select(rows)

        return self._read(["exchanges"], lambda pipeline: pipeline.exchanges(named))

    def as_exchanges(self, rows: pa.RecordBatch) -> Iterator[Exchange]:
        """The exchanges in rows of `exchanges` that the latest pass returned with messages."""
        from dissector.exchanges.exchange import as_exchanges

        return as_exchanges(rows, self._mechanisms, self._topic_names)

    def close(self) -> None:
        """Close all files. A started pass ends with CaptureError, and no pass can start."""
        self._is_closed = True
        while self._unread:
            self._unread.pop().close()
        for rows in self._passes:
            rows.close()

    @property
    def packets(self) -> int:
        """Number of packets of any kind that the latest pass has read so far."""
        return self._counts.packets

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        shown = [repr(path) for path in self.paths[:_PATHS_SHOWN]]
        if self.paths[_PATHS_SHOWN:]:
            shown.append(f"and {len(self.paths) - _PATHS_SHOWN} more")
        parts = [f"<Capture {', '.join(shown)}: {self._state}"]
        if self._seen:
            parts += [f"{self.packets:,} packets", f"tables {', '.join(self._seen)}"]
        return f"{'; '.join(parts)}>"

    @property
    def _state(self) -> str:
        if self._is_closed:
            return "closed"
        if self._passes:
            return "being read"
        return "read" if self._seen else "not read yet"

    def _read(
        self, tables: Collection[str], rows_of: Callable[[Pipeline], Generator[Row]]
    ) -> Generator[Row]:
        """The rows of one pass, which starts when the first row is requested."""
        pipeline = self._pipeline()
        self._counts = pipeline.counts
        self.file_problems = pipeline.file_problems
        self.without_tcp = pipeline.without_tcp
        self._mechanisms, self._topic_names = pipeline.mechanisms, pipeline.names.names
        self._seen |= dict.fromkeys(tables)
        rows = rows_of(pipeline)
        self._passes.append(rows)
        try:
            yield from rows
            self._check_open()
        finally:
            self.host_names = pipeline.host_names
            self._passes.remove(rows)

    def _pipeline(self) -> Pipeline:
        """A pipeline that was not read yet."""
        self._check_open()
        if self._unread:
            return self._unread.pop()
        if self._streams:
            name = input_name(self._streams[0])
            raise CaptureError(f"{name} cannot be read again: request all tables at once")
        return self._open_pipeline()

    def _check_open(self) -> None:
        if self._is_closed:
            raise CaptureError(f"the capture is closed: {', '.join(self.paths)}")


def _not_empty(rows: Generator[NamedBatch]) -> Generator[NamedBatch]:
    with closing(rows):
        for table, batch in rows:
            if len(batch):
                yield table, batch
