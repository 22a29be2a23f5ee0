"""Tables that were exported: Parquet files of `export`, of `sniff --export` and of the Spark job.

A table is a file, or all files in a folder and the folders below it, such as
``exchanges/date=2026-11-21/run-000000-3fd0.parquet``. The columns of a file decide which table it
is. Spark's files have a second column with the nanoseconds of each time, and values in the names of
folders.

Several exports may be read as one, such as one for each day. Each of them numbers its connections
from 0. So if folders, or recordings of `sniff --export` in one folder, have rows of `connections`
with the same `connection_id`, each of them gets numbers of its own.

A folder may also have tables of several captures, after an export of only some tables into the
folder of another one. This is an error, because equal numbers are different connections.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.export.parquet import read_batches
from dissector.errors import CaptureError, DissectorError
from dissector.exchanges.columns import with_column
from dissector.packets.paths import STANDARD_INPUT, find, matches
from dissector.pipeline import collected, known_tables
from dissector.tables import TABLES
from dissector.tables.finalizer import NamedBatch

if TYPE_CHECKING:
    from dissector.exchanges.exchange import Exchange
    from dissector.problems import Problem

_SUFFIX: Final = ".parquet"
_LATER: Final = MappingProxyType({"errors": {"resource"}})
"""Columns that earlier exports lack, and no answer needs; they are null."""
_RECORDING: Final = re.compile(r"[a-z_]+-(\d{8}T\d{6})\.\d+Z-\d+")
"""The name of a file of `sniff`: see `analysis.live.rotation`."""
_DIVIDED: Final = ("date", "api")
"""Columns that the Spark job writes to the names of folders; earlier versions also wrote `api`."""
_DAMAGE: Final = (OSError, ValueError, KeyError, pa.ArrowException)
"""What PyArrow raises for damaged Parquet, and for columns that others wrote with these names."""
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""The name that stands for null in the name of a folder, as in Hive."""


def is_exported(paths: Sequence[str | os.PathLike[str]]) -> bool:
    """Whether all paths are Parquet files, or folders with Parquet files and without captures."""
    named = [match for path in paths for match in matches(os.fspath(path))]
    if not named or not all(next(_files(path), None) for path in named):
        return False
    return not find([path for path in named if Path(path).is_dir()])


class ExportedTables:
    """Exported tables. It has the methods of a `Capture` that return rows."""

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        """Raises CaptureError if a file cannot be read, or is not a table."""
        self.paths = tuple(os.fspath(path) for path in paths)
        self.packets: int | None = None
        """Unknown: the tables do not contain the number of packets of any kind."""
        self.host_names: Sequence[tuple[str, str]] = ()
        """None: tables contain no names of addresses."""
        self.file_problems: Sequence[Problem] = ()
        """Empty: problems of the capture are rows of `problems`, if that table was exported."""
        self.without_tcp: Mapping[str, int] = {}
        """Empty: tables do not contain other packets."""
        self._is_divided = False
        """Whether a table is a folder, as the Spark job writes it."""
        self._files: dict[str, list[Path]] = {}
        for path in self.paths:
            for match in matches(path):
                for name in TABLES:  # a folder without files is a table without rows
                    if Path(match, name).is_dir():
                        self._is_divided = True
                        self._files.setdefault(name, [])
                for file in sorted(_files(match)):
                    self._files.setdefault(_table_of(file), []).append(file)

    def has_table(self, name: str) -> bool:
        """Whether a table was exported."""
        return name in self._files

    def stream(self, tables: str | Collection[str] | None = None) -> Iterator[NamedBatch]:
        """The rows of tables, in order of files; None: all that were exported.

        Raises DissectorError for a table that was not exported.
        """
        names = [*self._files] if tables is None else known_tables(tables)
        if missing := [name for name in names if name not in self._files]:
            raise self._missing(missing)
        for name in TABLES:
            for file in self._files[name] if name in names else ():
                export = _export_of(name, file)
                first = self._first_connections.get(export, 0)
                for number, batch in enumerate(_batches(name, file)):
                    if number == 0 and "connections" in names:
                        self._check_capture(file, batch, export)
                    yield name, _numbered(batch, first) if first else batch

    def _check_capture(self, file: Path, rows: pa.RecordBatch, export: Path) -> None:
        """Raises CaptureError if the first rows of a file are not of the capture of `connections`.

        The time of a row of a capture is within that of its connection. Files of many rows are
        checked only for the first connections.
        """
        connections = self._some_connections.get(export)
        time = next((each for each in ("request_time", "time") if each in rows.schema.names), None)
        if connections is None or time is None or "connection_id" not in rows.schema.names:
            return
        times = pa.table({"connection_id": rows["connection_id"], "at": rows[time]})
        both = times.join(connections, "connection_id", join_type="inner")
        is_inside = pc.and_(
            pc.greater_equal(both["at"], both["first_time"]),
            pc.less_equal(both["at"], both["last_time"]),
        ).drop_null()
        if 2 * (pc.sum(is_inside).as_py() or 0) < len(is_inside):
            raise CaptureError(
                f"{file} and the table connections in {export} are of different captures: export "
                "all tables together into one folder"
            )

    @cached_property
    def _some_connections(self) -> Mapping[Path, pa.Table]:
        """The times of the first connections of each export."""
        columns = ["connection_id", "first_time", "last_time"]
        by_export: dict[Path, pa.Table] = {}
        for file in self._files.get("connections", ()):
            export = _export_of("connections", file)
            if export not in by_export:
                for rows in islice(_batches("connections", file), 1):
                    by_export[export] = pa.table(rows.select(columns))
        return by_export

    @cached_property
    def _first_connections(self) -> Mapping[Path, int]:
        """What is added to the connection ids of each export; empty if they are unique."""
        ids: dict[Path, NDArray[np.int64]] = {}
        for name in ("connections", "exchanges"):
            files: defaultdict[Path, list[Path]] = defaultdict(list)
            for file in self._files.get(name, ()):
                files[_export_of(name, file)].append(file)
            if name == "connections" and len(files) < 2:
                return {}
            for export, parts in files.items():
                known = [ids[export]] if export in ids else []
                ids[export] = np.unique(np.concatenate([*known, *map(_connection_ids, parts)]))
            if name == "connections" and _are_unique(ids.values()):
                return {}
        ends = np.cumsum([each.max(initial=-1) + 1 for each in ids.values()])
        return dict(zip(ids, [0, *ends[:-1].tolist()], strict=True))

    def tables(self, tables: str | Collection[str] | None = None) -> dict[str, pa.Table]:
        """Whole tables by name, as `Capture.tables`."""
        wanted = [*self._files] if tables is None else known_tables(tables)
        return collected(self.stream(wanted), wanted)

    def exchanges(self, **_: Any) -> Iterator[Exchange]:
        """Raises DissectorError: messages are not exported."""
        raise DissectorError(f"{', '.join(self.paths)}: exported tables do not contain messages")

    def _missing(self, names: Sequence[str]) -> DissectorError:
        """The error that tables were not exported, with the command that adds them."""
        tables = f"table {names[0]} was" if len(names) == 1 else f"tables {', '.join(names)} were"
        is_folder = len(self.paths) == 1 and Path(self.paths[0]).is_dir()
        target = Path(self.paths[0] if is_folder else "DIR")
        if len(names) == 1 and not self._is_divided:
            target /= f"{names[0]}{_SUFFIX}"
        words = ["spark" if self._is_divided else "export", "CAPTURE..."]
        words += [f"--table {name}" for name in names]
        command = " ".join(["kafka-dissector", *words, "-o", shlex.quote(str(target))])
        return DissectorError(f"{', '.join(self.paths)}: the {tables} not exported: {command}")

    @property
    def first_time(self) -> int | None:
        """The time of the first TCP packet, ns; without connections, of the first request."""
        name, column = "connections", "first_time"
        if name not in self._files:
            name, column = "exchanges", "request_time"
        times = [pc.min(batch[column]).cast(pa.int64()).as_py() for _, batch in self.stream(name)]
        return min((time for time in times if time is not None), default=None)


def _files(path: str) -> Iterator[Path]:
    """The Parquet files at a path, and below it; without hidden and unfinished ones."""
    if path == STANDARD_INPUT:
        return
    if Path(path).is_file():
        yield from [Path(path)] if has_suffix(path) else []
    for parent, folders, files in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in files:
            if has_suffix(name) and not name.startswith((".", "_")):
                yield Path(parent, name)


def has_suffix(name: str) -> bool:
    """Whether the name is that of a Parquet file, as for `export`."""
    return name.lower().endswith((_SUFFIX, ".pq"))


def _table_of(file: Path) -> str:
    """The name of the table in a file. Raises CaptureError."""
    import pyarrow.parquet as pq

    try:
        names = set(pq.read_schema(file).names)
    except _DAMAGE as error:
        raise CaptureError(f"{file} cannot be read as Parquet: {error}") from error
    columns = {n for n in names if n.removesuffix("_ns") not in names - {n}} | _values(file).keys()
    columns -= {"date"}
    same = [
        name
        for name, table in TABLES.items()
        if columns <= set(table.schema.names) <= columns | _LATER.get(name, set())
    ]
    if not same:
        raise CaptureError(f"{file} does not have the columns of a table of kafka-dissector")
    # Tables with the same columns differ by their names.
    words = {word for part in file.parts for word in (part, part.partition(".")[0])}
    words |= {part.rpartition("-")[0] for part in file.parts}
    return max(same, key=lambda name: (name in words, name == same[0]))


def _export_of(name: str, file: Path) -> Path:
    """What identifies the export of a file: its folder, in which a table is a file, or a folder
    with its name; for a recording of `sniff`, with the second in which it started."""
    if file.stem == name:
        return file.parent
    folder = next((each.parent for each in file.parents if each.name == name), file.parent)
    recording = _RECORDING.fullmatch(file.stem)
    return folder / recording[1] if recording else folder


def _connection_ids(file: Path) -> NDArray[np.int64]:
    """The `connection_id` of each row of a file."""
    import pyarrow.parquet as pq

    try:
        column = pq.read_table(file, columns=["connection_id"], partitioning=None)[0]
        return np.asarray(column.drop_null().cast(pa.int64()))
    except _DAMAGE as error:
        raise CaptureError(f"{file} cannot be read: {error}") from error


def _are_unique(ids: Iterable[NDArray[np.int64]]) -> bool:
    """Whether no number is in several of these arrays of distinct numbers."""
    together = np.concatenate([np.zeros(0, np.int64), *ids])
    return len(np.unique(together)) == len(together)


def _numbered(rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """The rows with `first` added to their connection ids, if they have any."""
    if "connection_id" not in rows.schema.names:
        return rows
    return with_column(rows, "connection_id", pc.add(rows["connection_id"], first))


def _values(file: Path) -> dict[str, str | None]:
    """Values of columns in the names of folders: ``api=Fetch``."""
    pairs = (part.partition("=") for part in file.parts[:-1])
    return {
        name: None if value == NO_VALUE else value for name, _, value in pairs if name in _DIVIDED
    }


def _batches(name: str, file: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a file, in the schema of the table."""
    schema, values = TABLES[name].schema, dict.fromkeys(_LATER.get(name, ())) | _values(file)
    try:
        for batch in read_batches(file):
            rows = in_schema(batch, schema, values)
            rows.validate(full=True)  # PyArrow does not check that texts are UTF-8
            yield rows
    except _DAMAGE as error:
        raise CaptureError(f"{file} cannot be read: {error}") from error


def in_schema(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    values: Mapping[str, str | None] = MappingProxyType({}),
) -> pa.RecordBatch:
    """Rows of Spark in the schema of their table; `values`: columns that are missing in the rows.

    A time is taken from its column of nanoseconds, if there is one.
    """
    columns = []
    for field in schema:
        exact = f"{field.name}_ns"
        name = exact if exact in batch.schema.names else field.name
        if name in batch.schema.names:
            columns.append(batch[name].cast(field.type))
        else:
            value = pa.scalar(values[field.name], pa.string())
            columns.append(pa.repeat(value, len(batch)).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
