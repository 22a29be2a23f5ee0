"""Writing: tasks write their rows to Parquet files.

Tasks have rows as Arrow in Python, and Parquet is written from Arrow. Spark's own writer would make
a Java object of each value and convert it back to columns; for small messages that took longer than
the dissection. So tasks write the files, and Spark gets one row per file.

A task may run twice, or fail after it has written a part. So each attempt uses its own file names.
When all tasks are done, the driver compares the files that tasks reported with those that it sees,
and removes the others.

A task may also run on a machine where the path is a different folder. So the driver writes a marker
file to the folder, and a task that does not see the marker writes nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from analysis.export.formats import repeating
from dissector.errors import DissectorError
from dissector.packets.remote import located

WRITTEN: Final = pa.schema([("file", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())])
SPARK_WRITTEN: Final = "file string, rows long, bytes long"
TIMES: Final = ("request_time", "response_time", "first_time", "time")
"""The date of a row is that of the first of these columns that is not null."""
SHARED: Final = (
    "the driver and all executors need one folder, on a shared file system or behind a URL such as "
    "s3:// or hdfs://"
)

_BY: Final = pa.schema([("date", pa.date32()), ("api", pa.string())])
_MARKER: Final = "_unfinished"
_GROUP_ROWS: Final = 1 << 17
_GATHERED_ROWS: Final = 1 << 15
"""Rows of a file that are collected before they are written."""
_MOST_FILES: Final = 256
"""Open files per task."""


class Written(NamedTuple):
    """A file that a task reports; a row of `WRITTEN`."""

    file: str
    """Path inside the folder."""
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of Parquet files, at a path or URL that tasks and driver can access."""

    path: str
    is_divided: bool = False
    """Whether rows are divided into folders by date (UTC) and by API, if the table has one."""

    def begin(self) -> Folder:
        """Create the folder and its marker. Raises DissectorError if it exists or on errors."""
        system, root = located(self.path)
        try:
            system.makedirs(root)
            system.pipe_file(f"{root}/{_MARKER}", b"")
        except OSError as error:
            raise DissectorError(f"{self.path}: {error.strerror or error}") from error
        return self

    def check(self) -> None:
        """In a task: raises DissectorError if the driver's marker is not in this folder."""
        system, root = located(self.path)
        if not system.exists(f"{root}/{_MARKER}"):
            raise DissectorError(
                f"{self.path} on {socket.gethostname()} is not the driver's folder: {SHARED}"
            )

    def write(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a task: write rows in Spark's schema.

        Yields rows of `WRITTEN`, if there are any. Raises OSError and DissectorError.
        """
        import pyarrow.dataset as ds

        rows = map(_dated, rows) if self.is_divided else rows
        first = next(rows, None)
        if first is None:
            return
        self.check()
        schema, files = first.schema, []
        system, root = located(self.path)

        def report(file: Any) -> None:
            name = file.path.partition(f"{root}/")[2]
            files.append(Written(name, file.metadata.num_rows, file.size))

        by = [_BY.field(name) for name in _BY.names if self.is_divided and name in schema.names]
        form = ds.ParquetFileFormat()
        options = form.make_write_options(compression="zstd", use_dictionary=repeating(schema))
        ds.write_dataset(
            pa.RecordBatchReader.from_batches(schema, chain([first], rows)),
            root,
            filesystem=system,
            format=form,
            file_options=options,
            basename_template=f"part-{uuid4().hex}-{{i}}.parquet",
            existing_data_behavior="overwrite_or_ignore",  # files of other tasks
            partitioning=ds.partitioning(pa.schema(by), flavor="hive"),
            use_threads=False,
            max_open_files=_MOST_FILES,
            max_rows_per_group=_GROUP_ROWS,
            min_rows_per_group=_GATHERED_ROWS,
            file_visitor=report,
        )
        columns = zip(*files, strict=True)
        yield pa.RecordBatch.from_arrays([*map(pa.array, columns)], schema=WRITTEN)

    def end(self, reported: Iterable[Written]) -> None:
        """Keep the files that tasks reported, and remove all others.

        Raises DissectorError if the driver does not see all of them.
        """
        system, root = located(self.path)
        sizes = {written.file: written.bytes for written in reported}
        try:
            system.invalidate_cache()
            seen = {
                path.partition(f"{root}/")[2]: info["size"]
                for path, info in system.find(root, detail=True).items()
            }
            missing = sorted(file for file, size in sizes.items() if seen.get(file) != size)
            if missing:
                raise DissectorError(
                    f"{len(missing):,} of {len(sizes):,} files that tasks wrote to {self.path} are "
                    f"missing or incomplete for the driver ({missing[0]}): {SHARED}"
                )
            for file in seen.keys() - sizes.keys():
                system.rm_file(f"{root}/{file}")
        except OSError as error:
            raise DissectorError(f"{self.path}: {error.strerror or error}") from error


def _dated(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Add the date of each row's first time.

    Spark's own function would use the time zone of the session.
    """
    times = [f"{name}_ns" for name in TIMES if f"{name}_ns" in rows.schema.names]
    date = pc.coalesce(*map(rows.column, times)).cast(pa.timestamp("ns")).cast(pa.date32())
    return rows.append_column(_BY.field("date"), date)
