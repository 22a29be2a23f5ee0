"""A capture in SQL: its tables as views of DuckDB, over Arrow.

A view is an object of Arrow's C data interface. DuckDB asks it for its schema when a query is
bound, and for its rows when the query runs; so nothing is read before a query names a table, and
what no query names is never built. The rows are Arrow's own buffers: DuckDB copies none of them.

A table that was read is kept for the next query, in a file without a name that is mapped into
memory: what a capture of any size takes of memory is what the system can spare. A query that reads
one table once (`CaptureTables.pass_on`) needs not even that: the rows go by while the capture is
read. What DuckDB itself must hold, for a sort or an exact quantile, it writes to the folder of
temporary files (``TMPDIR``) beyond four fifths of the machine's memory.

Times are ``TIMESTAMP_NS``, in UTC without saying so: DuckDB has few functions for nanoseconds with
a time zone, and other types would round them.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import duckdb
import pyarrow as pa

import dissector
from dissector.errors import DissectorError
from dissector.tables import TABLES

if TYPE_CHECKING:
    from dissector.capture import Capture

Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def connect(paths: Paths, **options: Any) -> duckdb.DuckDBPyConnection:
    """A connection to DuckDB with a view for each table; `options`: of `dissector.open_capture`.

    A query reads those tables that it is the first to name, in one pass over the capture. Raises
    CaptureError when nothing can be read. What goes wrong later is an error of DuckDB's, with the
    reason in its text.
    """
    return views(CaptureTables(paths, **options))


def views(tables: CaptureTables) -> duckdb.DuckDBPyConnection:
    """A connection to DuckDB with a view for each of the tables."""
    connection = duckdb.connect(
        config={
            "temp_directory": tempfile.gettempdir(),
            # Nothing is fetched from anywhere because a query happens to name a function.
            "autoinstall_known_extensions": False,
        }
    )
    connection.execute("set timezone = 'UTC'")
    for name in TABLES:
        connection.register(name, _View(tables, name))
    tables.named.clear()
    return connection


def schema(name: str) -> pa.Schema:
    """Of a table as it is in SQL."""
    return pa.schema(
        [
            field.with_type(pa.timestamp("ns")) if pa.types.is_timestamp(field.type) else field
            for field in TABLES[name].schema
        ]
    )


class CaptureTables:
    """The tables of one capture, each read when a query needs it."""

    def __init__(self, paths: Paths, **options: Any) -> None:
        """As `dissector.open_capture`. Raises CaptureError."""
        self._paths: Sequence[str | os.PathLike[str]] = (
            [paths] if isinstance(paths, str | os.PathLike) else paths
        )
        self._options = options
        self._unread: Capture | None = dissector.open_capture(paths, **options)
        self._kept: dict[str, pa.Table] = {}
        self.named: Counter[str] = Counter()
        """How often queries have named each table."""
        self.pass_on = False
        """Keep no rows of a table that is named once, and alone. Whoever sets it clears `named`
        between a query's binding and its run."""
        self.failure: DissectorError | OSError | None = None
        """What stopped the reading; DuckDB tells its text only."""

    def reader(self, name: str) -> pa.RecordBatchReader:
        """The rows of a table. Tables that are named and not kept yet are read in one pass."""
        if name not in self._kept:
            if self.pass_on and self.named == {name: 1}:
                batches = (batch for _, batch in self._stream([name]))
                return pa.RecordBatchReader.from_batches(_SCHEMAS[name], batches)
            self.read(self.named)
        return self._kept[name].to_reader()

    def read(self, names: Collection[str]) -> None:
        """Read those of these tables that are not kept yet, in one pass, into mapped files."""
        names = [name for name in TABLES if name in names and name not in self._kept]
        with tempfile.TemporaryDirectory(prefix="kafka-dissector-") as folder:
            files = {name: Path(folder) / name for name in names}
            writers = {name: pa.ipc.new_file(files[name], _SCHEMAS[name]) for name in names}
            try:
                for name, batch in self._stream(names):
                    writers[name].write_batch(batch)
            finally:
                for writer in writers.values():
                    writer.close()
            # A mapping outlives the name of its file: there is nothing to tidy up later.
            for name, file in files.items():
                self._kept[name] = pa.ipc.open_file(pa.memory_map(str(file))).read_all()

    def _stream(self, names: Collection[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        try:
            for name, batch in self._capture().stream(names):
                yield name, batch.cast(_SCHEMAS[name])
        except (DissectorError, OSError) as error:
            self.failure = error
            raise

    def _capture(self) -> Capture:
        """A capture that was not read yet."""
        capture, self._unread = self._unread, None
        if capture is None and "-" in self._paths:
            raise DissectorError("standard input cannot be read again: name all tables at once")
        return capture or dissector.open_capture(self._paths, **self._options)


class _View:
    """What DuckDB takes for a table (Arrow's PyCapsule interface)."""

    def __init__(self, tables: CaptureTables, name: str) -> None:
        self._tables = tables
        self._name = name

    def __arrow_c_schema__(self) -> object:
        self._tables.named[self._name] += 1
        return _SCHEMAS[self._name].__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        try:
            return self._tables.reader(self._name).__arrow_c_stream__(requested_schema)
        except OSError as error:  # no room for what is kept
            self._tables.failure = error
            raise


_SCHEMAS: Final[Mapping[str, pa.Schema]] = {name: schema(name) for name in TABLES}
