"""Queries to DuckDB, and what they give: batches that every format of `analysis.export` can write.

DuckDB heeds Ctrl-C in some of its calls only. So its calls are made in a thread, and whoever waits
for one can be interrupted, and interrupts the query then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

import duckdb
import pyarrow as pa
from rich.cells import cell_len

from analysis.display.terminal import printable
from analysis.sql.exchange_columns import tables_used
from analysis.sql.views import CaptureTables, views

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

T = TypeVar("T")
Rows: TypeAlias = tuple[pa.Schema, Iterator[pa.RecordBatch]]

BATCH_ROWS: Final = 1 << 14
"""Rows of a batch that comes out, at most."""

WRITABLE: Final = frozenset(
    {
        "boolean", "tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint",
        "uinteger", "ubigint", "uhugeint", "float", "double", "decimal", "varchar", "uuid", "blob",
        "date", "time", "timestamp", "timestamp_ms", "timestamp_ns", "timestamp_s",
        "timestamp with time zone",
    }
)  # fmt: skip
"""Types, as DuckDB calls them, that every format can write, and so lists and structs of them.
Others go out as the text that DuckDB has for them: intervals, maps, unions, enums."""


class Session:
    """Queries to one capture, one after the other; a context, at whose end DuckDB ends."""

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
        """What the last statement of a query gives, as it is found; None where it gives nothing.

        Raises duckdb.Error when the query is wrong, and DissectorError or OSError when the capture
        could not be read or kept; so does asking for the next batch.
        """
        self._tables.used.clear()
        self._tables.named.clear()
        if (relation := self._wait(lambda: self._bound(query))) is None:
            return None
        relation = _writable(relation)
        self._tables.used |= self._wait(lambda: tables_used(relation))
        self._tables.named.clear()  # only its run is to count: see CaptureTables.pass_on
        reader: pa.RecordBatchReader = self._wait(lambda: relation.to_arrow_reader(BATCH_ROWS))
        return reader.schema, self._batches(reader)

    def _bound(self, query: str) -> duckdb.DuckDBPyRelation | None:
        """None for a statement that gives no rows, which has run."""
        return self._duckdb.sql(query)

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        while (batch := self._wait(lambda: next(reader, None))) is not None:
            yield batch

    def _wait(self, call: Callable[[], T]) -> T:
        try:
            return self._worker.submit(call).result()
        except KeyboardInterrupt:
            self._duckdb.interrupt()
            raise
        except (duckdb.Error, OSError):
            if (failure := self._tables.failure) is None:
                raise
            self._tables.failure = None
            raise failure from None


def message(error: duckdb.Error) -> str:
    """DuckDB's message without its kind: the reason, and where there is one, the line and caret."""
    kind, separator, reason = str(error).partition(" Error: ")
    lines = [line for line in (reason if separator else kind).split("\n") if line.strip()]
    shown = [printable(line) for line in lines]
    if len(lines) > 1 and not lines[-1].strip(" ^"):
        shown[-1] = _below(lines[-2], lines[-1])
    return "\n".join(shown)


def _below(line: str, carets: str) -> str:
    """The carets, moved to where the text that they point to is once the line is printable.

    DuckDB counts cells of a terminal, of which a control character has none.
    """
    column = len(carets) - len(carets.lstrip())
    before = max(n for n in range(len(line) + 1) if _cells(line[:n]) <= column)
    return " " * cell_len(printable(line[:before])) + carets.strip()


def _cells(text: str) -> int:
    """Cells of a terminal as DuckDB counts them. Versions of rich differ in control characters."""
    return cell_len("".join(filter(str.isprintable, text)))


def _writable(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    texts = [
        f"{quoted}::varchar as {quoted}"
        for name, type in zip(relation.columns, relation.types, strict=True)
        if not _is_writable(type)
        for quoted in ['"' + name.replace('"', '""') + '"']
    ]
    return relation.project(f"* replace ({', '.join(texts)})") if texts else relation


def _is_writable(type: DuckDBPyType) -> bool:
    if type.id in ("list", "struct"):
        return all(_is_writable(cast("DuckDBPyType", each)) for _, each in type.children)
    return type.id in WRITABLE
