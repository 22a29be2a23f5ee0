"""Queries of users: results in batches that every format of `analysis.export.formats` can write.

DuckDB reacts to Ctrl-C only in some of its calls. So they run in a worker thread: Ctrl-C interrupts
the wait of the main thread, which then interrupts the query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

import duckdb
import pyarrow as pa
from rich.cells import cell_len

from analysis.display.terminal import printable
from analysis.sql.exchange_columns import tables_used
from analysis.sql.expressions import identifier
from analysis.sql.views import CaptureTables, views

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

T = TypeVar("T")
Rows: TypeAlias = tuple[pa.Schema, Iterator[pa.RecordBatch]]

BATCH_ROWS: Final = 1 << 14
"""Maximum number of rows of a batch."""

_INTERRUPTIONS, _INTERRUPTION_S = 40, 0.05
"""Times that a query is interrupted, and seconds between them. One that waits for a pipe does not
end."""

WRITABLE: Final = frozenset({
    "boolean", "tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint",
    "uinteger", "ubigint", "uhugeint", "float", "double", "decimal", "varchar", "uuid", "blob",
    "date", "time", "timestamp", "timestamp_ms", "timestamp_ns", "timestamp_s",
    "timestamp with time zone",
})  # fmt: skip
"""DuckDB's types that every format can write, also in lists and structs. Other types, for example
intervals, maps, unions and enums, are written as DuckDB's text."""


class Session:
    """Queries on one capture, one after the other. As a context manager, it closes DuckDB."""

    def __init__(self, tables: CaptureTables) -> None:
        self._tables = tables
        self._duckdb = views(tables)
        self._worker = ThreadPoolExecutor(1)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.shutdown()
        self._duckdb.close()

    def rows(self, query: str) -> Rows | None:
        """The rows of the last statement of a query, as they are computed; None without a result.

        Raises duckdb.Error for a wrong query, and DissectorError or OSError if the capture cannot
        be read or stored; the iterator of batches raises the same.
        """
        self._tables.used.clear()
        self._tables.named.clear()
        bound: duckdb.DuckDBPyRelation | None = self._wait(lambda: self._duckdb.sql(query))
        if bound is None:  # a statement without rows, which has run
            return None
        relation = _writable(bound)
        self._tables.used |= self._wait(lambda: tables_used(relation))
        self._tables.named.clear()  # count only names in the run: see CaptureTables.pass_on
        reader: pa.RecordBatchReader = self._wait(lambda: relation.to_arrow_reader(BATCH_ROWS))
        return reader.schema, self._batches(reader)

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        while (batch := self._wait(lambda: next(reader, None))) is not None:
            yield batch

    def _wait(self, call: Callable[[], T]) -> T:
        try:
            return self._worker.submit(call).result()
        except KeyboardInterrupt:
            # DuckDB forgets an interruption that comes before a query begins.
            following = self._worker.submit(int)
            for _ in range(_INTERRUPTIONS):
                self._duckdb.interrupt()
                if wait([following], _INTERRUPTION_S).done:
                    break
            raise
        except (duckdb.Error, OSError):
            if (failure := self._tables.failure) is None:
                raise
            self._tables.failure = None
            raise failure from None


def message(error: duckdb.Error) -> str:
    """DuckDB's message without its kind: the reason, and the line with a caret, if any."""
    kind, separator, reason = str(error).partition(" Error: ")
    lines = [line for line in (reason if separator else kind).split("\n") if line.strip()]
    # Lists of candidates are indented with tabs.
    shown = [printable(re.sub(r"^\t", "  ", line)) for line in lines]
    if len(lines) > 1 and not lines[-1].strip(" ^"):
        shown[-1] = _below(lines[-2], lines[-1])
    return "\n".join(shown)


def _below(line: str, carets: str) -> str:
    """The carets, moved to their text in the printable line.

    DuckDB counts terminal cells, of which a control character has none.
    """
    column = len(carets) - len(carets.lstrip())
    before = max(n for n in range(len(line) + 1) if _cells(line[:n]) <= column)
    return " " * cell_len(printable(line[:before])) + carets.strip()


def _cells(text: str) -> int:
    """Cells of a terminal as DuckDB counts them. Versions of rich differ in control characters."""
    return cell_len("".join(filter(str.isprintable, text)))


def _writable(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The rows with names and types that every format can write."""
    if len(set(relation.columns)) < len(relation.columns):
        relation = relation.project("*")  # a repeated name gets a number: a_1
    texts = [
        f"{name}::varchar as {name}"
        for name, type in zip(map(identifier, relation.columns), relation.types, strict=True)
        if not _is_writable(type)
    ]
    return relation.project(f"* replace ({', '.join(texts)})") if texts else relation


def _is_writable(type: DuckDBPyType) -> bool:
    if type.id in ("list", "struct"):
        return all(_is_writable(cast("DuckDBPyType", child)) for _, child in type.children)
    return type.id in WRITABLE
