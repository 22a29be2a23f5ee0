"""Writing: rows to Parquet, by the tasks that make them.

Rows are made in Python, as Arrow, and Parquet is made of Arrow. To hand them to Spark's own writer
means a Java object for each value and back to columns: of small messages that took longer than to
dissect them. So tasks write, and Spark has a row for each file that they wrote.

A task may run twice, or fail when it has written half. So each attempt writes files of its own
names. When all are done, the driver compares the files that tasks reported with those that it sees,
and removes the others.

A task may also run on a machine where the path means another folder. So the driver leaves a mark in
the folder, and a task that does not see the mark writes nothing.
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

from analysis.export import repeating
from dissector.errors import DissectorError
from dissector.packets.remote import located

WRITTEN: Final = pa.schema([("file", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())])
SPARK_WRITTEN: Final = "file string, rows long, bytes long"
TIMES: Final = ("request_time", "response_time", "first_time", "time")
"""Those of which the first that a row has gives its date."""
SHARED: Final = (
    "the driver and all executors need one folder, on a shared file system or behind a URL such as "
    "s3:// or hdfs://"
)

_BY: Final = pa.schema([("date", pa.date32()), ("api", pa.string())])
_MARK: Final = "_unfinished"
_GROUP_ROWS: Final = 1 << 17
_GATHERED_ROWS: Final = 1 << 15
"""Rows of a file that are gathered before they are written."""
_MOST_FILES: Final = 256
"""Files that a task has open."""


class Written(NamedTuple):
    """A file that a task reports: a row of `WRITTEN`."""

    file: str
    """Its path in the folder."""
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of Parquet files, at a path or a URL that tasks and driver can reach."""

    path: str
    is_divided: bool = False
    """Whether rows go to folders by date, in UTC, and by API where they have one."""

    def begin(self) -> Folder:
        """Create and mark it. Raises DissectorError where it exists, or cannot be created."""
        system, root = located(self.path)
        try:
            system.makedirs(root)
            system.pipe_file(f"{root}/{_MARK}", b"")
        except OSError as error:
            raise DissectorError(f"{self.path}: {error.strerror or error}") from error
        return self

    def check(self) -> None:
        """In a task: raises DissectorError where the driver's mark is not in this folder."""
        system, root = located(self.path)
        if not system.exists(f"{root}/{_MARK}"):
            raise DissectorError(
                f"{self.path} on {socket.gethostname()} is not the driver's folder: {SHARED}"
            )

    def write(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a task: write rows of a table as Spark has them.

        Gives the rows of `WRITTEN`, if there were any. Raises OSError and DissectorError.
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
        """Leave the files that tasks reported, and no others.

        Raises DissectorError where the driver does not see all of them.
        """
        system, root = located(self.path)
        sizes = {each.file: each.bytes for each in reported}
        try:
            system.invalidate_cache()
            seen = {
                path.partition(f"{root}/")[2]: info["size"]
                for path, info in system.find(root, detail=True).items()
            }
            lacking = sorted(file for file, size in sizes.items() if seen.get(file) != size)
            if lacking:
                raise DissectorError(
                    f"{len(lacking):,} of {len(sizes):,} files that tasks wrote to {self.path} are "
                    f"not there for the driver, or not complete ({lacking[0]}): {SHARED}"
                )
            for file in seen.keys() - sizes.keys():
                system.rm_file(f"{root}/{file}")
        except OSError as error:
            raise DissectorError(f"{self.path}: {error.strerror or error}") from error


def _dated(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with the date of the first time that each has.

    Not by way of Spark's timestamps, whose date is that of the session's time zone.
    """
    times = [f"{name}_ns" for name in TIMES if f"{name}_ns" in rows.schema.names]
    date = pc.coalesce(*map(rows.column, times)).cast(pa.timestamp("ns")).cast(pa.date32())
    return rows.append_column(_BY.field("date"), date)
