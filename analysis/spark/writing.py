"""Writing: rows to Parquet, by the tasks that make them.

Rows are made in Python, as Arrow, and Parquet is made of Arrow. To hand them to Spark's own writer
means a Java object for each value and back to columns: of small messages that took longer than to
dissect them. So tasks write, and Spark has a row from each that says where.

A task may run twice, or fail when it has written half. So it writes to a folder that it alone
knows, under `_temporary`; when all are done, the files of those folders which the driver was told
of take their places, and whatever else is there goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from analysis.export import repeating
from dissector.errors import DissectorError
from dissector.packets.remote import located

WRITTEN: Final = pa.schema([("part", pa.string()), ("rows", pa.int64())])
SPARK_WRITTEN: Final = "part string, rows long"
TIMES: Final = ("request_time", "response_time", "first_time", "time")
"""Those of which the first that a row has gives its date."""

_BY: Final = pa.schema([("date", pa.date32()), ("api", pa.string())])
_TEMPORARY: Final = "_temporary"
_GROUP_ROWS: Final = 1 << 17
_GATHERED_ROWS: Final = 1 << 15
"""Rows of a file that are gathered before they are written."""
_MOST_FILES: Final = 256
"""Files that a task has open."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of Parquet files, at a path or a URL that tasks and driver can reach."""

    path: str
    is_divided: bool = False
    """Whether rows go to folders by date, in UTC, and by API where they have one."""

    def must_be_new(self) -> None:
        """Raises DissectorError where it is there already."""
        system, root = located(self.path)
        if system.exists(root):
            raise DissectorError(f"{self.path} is there already")

    def begin(self) -> None:
        """Make it. Raises DissectorError where it is there, or cannot be made."""
        self.must_be_new()
        system, root = located(self.path)
        try:
            system.makedirs(f"{root}/{_TEMPORARY}")
        except OSError as error:
            raise DissectorError(f"{self.path}: {error.strerror or error}") from error

    def write(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a task: write rows of a table as Spark has them.

        Gives a row of `WRITTEN`, if there were any. Raises OSError.
        """
        import pyarrow.dataset as ds

        rows = map(_dated, rows) if self.is_divided else rows
        first = next(rows, None)
        if first is None:
            return
        part, schema, count = uuid4().hex, first.schema, 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal count
            for batch in chain([first], rows):
                count += len(batch)
                yield batch

        system, root = located(self.path)
        by = [_BY.field(name) for name in _BY.names if self.is_divided and name in schema.names]
        form = ds.ParquetFileFormat()
        options = form.make_write_options(compression="zstd", use_dictionary=repeating(schema))
        ds.write_dataset(
            pa.RecordBatchReader.from_batches(schema, counted()),
            f"{root}/{_TEMPORARY}/{part}",
            filesystem=system,
            format=form,
            file_options=options,
            basename_template=f"part-{part}-{{i}}.parquet",
            partitioning=ds.partitioning(pa.schema(by), flavor="hive"),
            use_threads=False,
            max_open_files=_MOST_FILES,
            max_rows_per_group=_GROUP_ROWS,
            min_rows_per_group=_GATHERED_ROWS,
        )
        yield pa.RecordBatch.from_arrays([pa.array([part]), pa.array([count])], schema=WRITTEN)

    def end(self, parts: Iterable[str]) -> None:
        """Give the files of these parts their places. Raises DissectorError."""
        system, root = located(self.path)
        try:
            for part in (f"{root}/{_TEMPORARY}/{each}" for each in parts):
                for file in system.find(part):
                    target = root + file[len(part) :]
                    system.makedirs(target.rpartition("/")[0], exist_ok=True)
                    system.mv(file, target)
            system.rm(f"{root}/{_TEMPORARY}", recursive=True)
        except OSError as error:
            raise DissectorError(f"{self.path}: {error.strerror or error}") from error


def _dated(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with the date of the first time that each has.

    Not by way of Spark's timestamps, whose date is that of the session's time zone.
    """
    times = [f"{name}_ns" for name in TIMES if f"{name}_ns" in rows.schema.names]
    date = pc.coalesce(*map(rows.column, times)).cast(pa.timestamp("ns")).cast(pa.date32())
    return rows.append_column(_BY.field("date"), date)
