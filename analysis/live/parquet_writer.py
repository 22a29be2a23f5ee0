"""Writes tables to Parquet files: one folder per table, one file per time span.

A file's name ends in ``.partial`` until the file is complete. So complete files can be read at any
time, and a table's folder can be read as one data set.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import partial
from io import BufferedWriter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet  # before privileges.drop

from analysis.export.parquet import ParquetFile
from analysis.live.privileges import reason
from analysis.live.rotation import RotatedFiles, Rotation
from analysis.live.session import Watcher
from analysis.summary.counts import Summary
from dissector.errors import DissectorError
from dissector.tables import TABLES

SECONDS: Final = 300.0
"""Default time span of a file."""
PARTIAL: Final = ".partial"


DEFAULT: Final = frozenset(Summary.TABLES).union(
    name for name, table in TABLES.items() if not table.opt_in
)
"""The tables that most answers, and the summary, are made of."""


class TableWriter(Watcher):
    """Writes `tables` below `folder`. Raises DissectorError if it cannot be created."""

    def __init__(
        self, folder: Path, rotation: Rotation, report: Callable[[str], None],
        tables: Collection[str] = DEFAULT,
    ) -> None:  # fmt: skip
        self.tables = frozenset(tables)
        self._report = report
        self.failure: str | None = None
        """Why writing stopped."""
        try:
            for name in self.tables:
                (folder / name).mkdir(parents=True, exist_ok=True)
                if (folder / name).is_symlink():
                    raise DissectorError(f"{folder / name} is a symbolic link, not a folder")
        except OSError as error:
            raise DissectorError(f"cannot write {folder}: {reason(error)}") from error
        started = datetime.now(UTC)  # one time in all names shows that they belong together
        self._files = {name: _TableFiles(name, folder, rotation, started) for name in self.tables}

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        self._try(self._files[name], partial(self._files[name].add, rows))

    def tick(self) -> None:
        for files in self._files.values():
            self._try(files, files.rotate)

    def close(self) -> None:
        for files in self._files.values():
            self._try(files, files.close)

    def _try(self, files: _TableFiles, step: Callable[[], None]) -> None:
        if self.failure is not None:
            return
        try:
            step()
        except OSError as error:
            for table_files in self._files.values():
                table_files.abandon()
            self.failure = f"{files.name}: {error.strerror or error}: stopped writing tables"
            self._report(self.failure)


class _TableFiles:
    """The files of one table."""

    def __init__(self, name: str, folder: Path, rotation: Rotation, started: datetime) -> None:
        self._schema = TABLES[name].schema
        self._files = RotatedFiles(folder / name / name, ".parquet", rotation, PARTIAL, started)
        self.name = folder / name
        """The latest file, or the folder."""
        self._file: BufferedWriter | None = None
        self._rows: Any = None
        """The `ParquetFile` of the latest file."""

    def add(self, rows: pa.RecordBatch) -> None:
        if self._file is None:
            self._open()
        self._rows.add(rows)

    def _open(self) -> None:
        file = self._files.next()
        self.name = Path(str(file.name))
        self._file = BufferedWriter(file)
        self._rows = ParquetFile(self._file, self._schema)

    def rotate(self) -> None:
        if self._rows is None:
            self._open()  # even without rows: readers cannot read a folder without files
        if self._file is not None and self._files.is_complete(self._file.tell()):
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._rows.close()
            self._file.close()
            self._file = None
            self._files.finish()

    def abandon(self) -> None:
        """Remove the file: without its footer it cannot be read, and the disk may be full."""
        if self._file is not None:
            self._rows.abandon()
            self._file.raw.close()
            self._file = None
            self.name.unlink(missing_ok=True)
