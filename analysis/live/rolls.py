"""Rolls: the tables as Parquet files, a folder for each table, a file for each stretch of time.

A file has ``.partial`` behind its name until it is complete. So what has a name of its own can be
read at any time, and a table's folder as one data set.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from io import BufferedWriter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet

from analysis.export import repeating
from analysis.live.rolling import Files, Rolling
from dissector.errors import DissectorError
from dissector.tables import TABLES

SECONDS: Final = 300.0
"""Of a file, where nothing else is asked for."""
GROUP_ROWS: Final = 1 << 15
"""Rows of a row group."""
PARTIAL: Final = ".partial"


class Rolls:
    """Writes `tables` below `folder`. Raises DissectorError where that cannot be made."""

    tables = frozenset(name for name, table in TABLES.items() if not table.opt_in)

    def __init__(self, folder: Path, rolling: Rolling, note: Callable[[str], None]) -> None:
        self._note = note
        self.failure: str | None = None
        """Why nothing more is written."""
        try:
            for name in self.tables:
                (folder / name).mkdir(parents=True, exist_ok=True)
                if (folder / name).is_symlink():
                    raise DissectorError(f"{folder / name}: is a symbolic link, not a folder")
        except OSError as error:
            raise DissectorError(f"{folder}: cannot be written to: {error.strerror}") from error
        self._rolls = {name: _Roll(name, folder, rolling) for name in self.tables}

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        self._try(self._rolls[name], partial(self._rolls[name].add, rows))

    def tick(self) -> None:
        for roll in self._rolls.values():
            self._try(roll, roll.roll)

    def close(self) -> None:
        for roll in self._rolls.values():
            self._try(roll, roll.close)

    def _try(self, roll: _Roll, step: Callable[[], None]) -> None:
        if self.failure is not None:
            return
        try:
            step()
        except OSError as error:
            for each in self._rolls.values():
                each.abandon()
            self.failure = f"{roll.name}: {error.strerror or error}: no more tables are written"
            self._note(self.failure)


class _Roll:
    """The files of one table."""

    def __init__(self, name: str, folder: Path, rolling: Rolling) -> None:
        self._schema = TABLES[name].schema
        self._files = Files(folder / name / name, ".parquet", rolling, PARTIAL)
        self.name = folder / name
        """The latest file, or the folder."""
        self._file: BufferedWriter | None = None
        self._writer: Any = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        if self._file is None:
            file = self._files.next()
            self.name = Path(str(file.name))
            self._file = BufferedWriter(file)
            self._writer = pa.parquet.ParquetWriter(
                self._file, self._schema, compression="zstd",
                use_dictionary=repeating(self._schema),
            )  # fmt: skip
        self._waiting.append(rows)
        self._rows += len(rows)
        if self._rows >= GROUP_ROWS:
            self._flush()

    def roll(self) -> None:
        if self._file is not None and self._files.is_over(self._file.tell()):
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._flush()
            self._writer.close()
            self._file.close()
            self._file = None
            self._files.finish()

    def abandon(self) -> None:
        """A file without its end cannot be read, and the disk may be full."""
        if self._file is not None:
            self._writer.is_open = False  # else it tries again to write its end
            self._file.raw.close()
            self._file = None
            self.name.unlink(missing_ok=True)

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._rows = [], 0
