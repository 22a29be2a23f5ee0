"""Rolls: the tables as Parquet files, a folder for each table, a file for each stretch of time.

A file has ``.partial`` behind its name until it is complete. So what has a name of its own can be
read at any time, and a table's folder as one data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
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
            self._rolls = {name: _Roll(name, folder, rolling) for name in self.tables}
        except OSError as error:
            raise DissectorError(f"{folder}: cannot be written to: {error.strerror}") from error

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        self._try([partial(self._rolls[name].add, rows)])

    def tick(self) -> None:
        self._try([roll.roll for roll in self._rolls.values()])

    def close(self) -> None:
        self._try([roll.close for roll in self._rolls.values()])

    def _try(self, steps: Iterable[Callable[[], None]]) -> None:
        if self.failure is not None:
            return
        try:
            for step in steps:
                step()
        except OSError as error:
            for roll in self._rolls.values():
                roll.abandon()
            reason = error.strerror or error
            self.failure = f"{error.filename or 'export'}: {reason}: no more tables are written"
            self._note(self.failure)


class _Roll:
    """The files of one table."""

    def __init__(self, name: str, folder: Path, rolling: Rolling) -> None:
        self._schema = TABLES[name].schema
        self._files = Files(folder / name / name, ".parquet", rolling)
        self._writer: Any = None
        self._path = Path()
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        if self._writer is None:
            self._path = self._files.next()
            self._writer = pa.parquet.ParquetWriter(
                self._partial, self._schema, compression="zstd",
                use_dictionary=repeating(self._schema),
            )  # fmt: skip
        self._waiting.append(rows)
        self._rows += len(rows)
        if self._rows >= GROUP_ROWS:
            self._flush()

    def roll(self) -> None:
        if self._writer is not None and self._files.is_over(self._partial.stat().st_size):
            self.close()

    def close(self) -> None:
        if self._writer is not None:
            self._flush()
            self._writer.close()
            self._writer = None
            self._partial.rename(self._path)

    def abandon(self) -> None:
        """A file without its end cannot be read, and the disk may be full."""
        if self._writer is not None:
            self._writer.is_open = False  # else it tries again to write its end
            self._writer = None
            self._partial.unlink(missing_ok=True)

    @property
    def _partial(self) -> Path:
        return self._path.with_name(f"{self._path.name}.partial")

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._rows = [], 0
