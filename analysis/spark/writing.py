"""Writing: the Parquet files of a run, which appear under their names when they are complete.

Tasks have rows as Arrow in Python, and Parquet is written from Arrow. Spark's own writer would make
a Java object of each value and convert it back to columns; for small messages that took longer than
the dissection.

A run is one file per table and date, so a reader of a table sees all rows of a run and date, or
none. The file is written under a hidden name and renamed. Object stores need no second name: there
an object appears when it is complete. The name is that of the run, so a task that runs twice
replaces its own files.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.export.files import writer
from analysis.export.parquet import ParquetFile
from dissector.packets.formats.remote import located
from dissector.tables.schema import TIMES

PARTIAL: Final = ".partial"
"""Suffix of a file that is not complete; its name starts with a dot, so that readers ignore it."""
RUN_FILE: Final = re.compile(r"(run-\d+|segment|end)-[0-9a-f]{16}\.parquet")
"""Names of the files of a part of a job; see `analysis.spark.plan`."""

_DAY: Final = 86_400 * 10**9
_GROUP_ROWS: Final = 1 << 17
_OBJECT_STORES: Final = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss"}
"""Protocols of fsspec whose files appear when they are complete."""


class Written(NamedTuple):
    """A Parquet file of a run."""

    file: str
    """Path inside the output folder."""
    rows: int
    bytes: int


@contextmanager
def whole_file(path: str) -> Iterator[Any]:
    """A new file for writing at a path or URL, which appears there when the body has ended.

    Raises OSError.
    """
    system, place = located(path)
    folder, _, name = place.rpartition("/")
    growing = f"{folder}/.{name}.{uuid4().hex}{PARTIAL}"
    protocols = {system.protocol} if isinstance(system.protocol, str) else {*system.protocol}
    is_local, is_store = "file" in protocols, bool(protocols & _OBJECT_STORES)
    system.makedirs(folder, exist_ok=True)
    try:
        if is_local:
            with writer(growing, path) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())  # or it may be empty after the machine has failed
            Path(growing).replace(place)
            return
        with tempfile.NamedTemporaryFile(prefix="kafka-dissector-") as copy:
            yield copy
            copy.flush()
            system.put_file(copy.name, place if is_store else growing)
        if not is_store:
            system.mv(growing, place)
    except BaseException:
        with suppress(OSError):
            system.rm_file(growing)
        raise


class RunFiles:
    """The Parquet files of a run; a context manager. They appear together, after `finish`."""

    def __init__(self, path: str, name: str) -> None:
        """`path`: the output folder. `name`: of the run."""
        self._path = path
        self._name = name
        self._stack = ExitStack()
        self._files: dict[tuple[str, str], tuple[Any, ParquetFile]] = {}
        """The sink and the file of each table and date."""

    def __enter__(self) -> Self:
        self._stack.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.__exit__(*raised)

    def write(self, table: str, rows: pa.RecordBatch) -> None:
        """Add rows of a table in Spark's schema. Raises OSError."""
        for date, part in _by_date(rows):
            if (table, date) not in self._files:
                path = f"{self._path}/{self._place(table, date)}"
                sink = self._stack.enter_context(whole_file(path))
                self._files[table, date] = sink, ParquetFile(sink, rows.schema, _GROUP_ROWS)
            _, file = self._files[table, date]
            file.add(part)

    def finish(self) -> dict[str, list[Written]]:
        """Complete all files; they get their names when the context ends. Raises OSError."""
        written: dict[str, list[Written]] = {}
        for (table, date), (sink, file) in self._files.items():
            file.close()
            size = sink.seek(0, os.SEEK_CUR)
            written.setdefault(table, []).append(Written(self._place(table, date), file.rows, size))
        return written

    def _place(self, table: str, date: str) -> str:
        """The path of a file inside the output folder."""
        return f"{table}/date={date}/{self._name}.parquet"


def _by_date(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows by the date (UTC) of their time; 1970-01-01 without a time.

    From Hive's name for no value, pandas cannot read a folder: PyArrow does not unify dictionaries
    with nulls.
    """
    if not len(rows):
        return
    times = [f"{name}_ns" for name in TIMES if f"{name}_ns" in rows.schema.names]
    day = pc.coalesce(*map(rows.column, times)).fill_null(0).to_numpy() // _DAY
    days = [day[0]] if day.min() == day.max() else np.unique(day)  # mostly one
    for each in days:
        part = rows if len(days) == 1 else rows.filter(pa.array(day == each))
        yield str(np.datetime64(int(each), "D")), part
