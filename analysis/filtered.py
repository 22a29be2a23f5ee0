"""The rows that a filter selects, from a capture or from tables.

Exchanges are filtered as they are read. An exchange may come after its rows of other tables (see
`dissector.tables.finalizer`). So those rows, and the keys of the selected exchanges, wait in
temporary files until the last exchange has been read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.exported import ExportedTables
from analysis.filters import Filter, Rows
from analysis.names import Names
from analysis.sql.conditions import Condition
from analysis.sql.stored import TableFiles, connect
from dissector.capture import Capture, captures_and_segments
from dissector.errors import DissectorError
from dissector.packets import open_packets
from dissector.packets.byte_input import is_stream
from dissector.pipeline import collected, known_tables
from dissector.tables import EXCHANGES, TABLES
from dissector.tables.finalizer import NamedBatch

if TYPE_CHECKING:
    from dissector.exchanges.exchange import Exchange

INDEPENDENT: Final = frozenset({"topics", "brokers", "problems"})
"""Tables that do not follow from exchanges."""

_FIRST_BYTES: Final = 1 << 16
"""Bytes of a block that is read for its first packet."""
_KEYS: Final = pa.schema(
    [
        EXCHANGES.schema.field(name)
        for name in ("connection_id", "correlation_id", "request_time", "response_time")
    ]
)


class Selection:
    """A filter of the rows of one pass. It counts exchanges.

    Raises DissectorError if a time of the filter is relative.
    """

    def __init__(self, chosen: Filter) -> None:
        self._sql = chosen.sql
        self._condition = Condition(self._sql, chosen.names)
        self.selected = 0
        """Exchanges that were selected."""
        self.total = 0
        """All exchanges so far."""

    def __str__(self) -> str:
        return f"{' '.join(self._sql.split())}: {self.selected:,} of {self.total:,} exchanges"

    def exchanges(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The selected rows of a batch of `exchanges`."""
        chosen = self._condition(rows)
        self.selected += len(chosen)
        self.total += len(rows)
        return chosen

    def rows(self, rows: Iterable[NamedBatch], names: Collection[str]) -> Iterator[NamedBatch]:
        """The selected rows of the tables `names`. `rows` must contain these and `exchanges`."""
        self.selected = self.total = 0
        with tempfile.TemporaryDirectory(prefix="kafka-dissector-") as folder:
            following = [n for n in TABLES if n in {*names} - INDEPENDENT - {EXCHANGES.name}]
            files = {name: Path(folder, name) for name in ("keys", *following)}
            schemas = {name: TABLES[name].schema for name in following} | {"keys": _KEYS}
            with TableFiles(files, schemas) as waiting:
                for name, batch in rows:
                    if name == EXCHANGES.name:
                        batch = self.exchanges(batch)
                        waiting.add("keys", batch.select(_KEYS.names))
                    if name in following:
                        waiting.add(name, batch)
                    elif name in names and len(batch):
                        yield name, batch
            for name in following:
                for batch in _following(name, files[name], files["keys"]):
                    yield name, batch


class FilteredCapture:
    """A capture of which only the selected rows are returned."""

    def __init__(self, capture: Capture | ExportedTables, chosen: Filter) -> None:
        """Raises as `Selection`, unless the first time of the capture is known."""
        if chosen.is_relative:
            if isinstance(capture, ExportedTables):
                start = capture.first_time
            else:
                start = first_time(capture.paths)
            chosen = chosen if start is None else chosen.starting(start)
        if chosen.has_broker_ids:
            _learn_brokers(capture, chosen.names)
        self._capture = capture
        self.selection = Selection(chosen)

    @property
    def report(self) -> str:
        """The filter, and how many exchanges the latest pass selected."""
        return f"Filter: {self.selection}"

    @property
    def packets(self) -> int | None:
        """As `Capture.packets`."""
        return self._capture.packets

    @property
    def host_names(self) -> Sequence[tuple[str, str]]:
        """As `Capture.host_names`."""
        return self._capture.host_names

    def has_table(self, name: str) -> bool:
        """As `ExportedTables.has_table`."""
        return self._capture.has_table(name)

    def stream(self, tables: str | Collection[str] | None = None) -> Iterator[NamedBatch]:
        """As `Capture.stream`."""
        wanted = known_tables(tables)
        needed = [name for name in TABLES if name in {*wanted, EXCHANGES.name}]
        return self.selection.rows(self._capture.stream(needed), wanted)

    def exchanges(self) -> Iterator[Exchange]:
        """As `Capture.exchanges`."""
        return self._capture.exchanges(select=self.selection.exchanges)


def _learn_brokers(capture: Capture | ExportedTables, names: Names) -> None:
    """Learn the addresses of brokers by id, in a pass of its own.

    Raises DissectorError if the capture can be read only once, or brokers were not exported.
    """
    if isinstance(capture, Capture) and any(map(is_stream, capture.paths)):
        raise DissectorError("--broker ID needs a second pass; use the address of the broker")
    columns = ("broker_id", "host", "port")
    for _, batch in capture.stream(["brokers"]):
        names.learn_brokers(zip(*(batch[name].to_pylist() for name in columns), strict=True))


def first_time(paths: Sequence[str]) -> int | None:
    """The time of the first TCP packet in captures, ns; None if there is none, or it can be read
    only once, as from standard input."""
    captures, _ = captures_and_segments(paths)
    if not captures or any(map(is_stream, captures)):
        return None
    source = open_packets(captures, block_bytes=_FIRST_BYTES)
    try:
        while (block := source.read(0)) is not None:
            if len(block):
                return int(block.time.min())
    finally:
        source.close()
    return None


def apply(chosen: Filter, tables: Mapping[str, Rows]) -> dict[str, Rows]:
    """As `Filter.apply`. The start of the capture is the first time of `connections`, if given."""
    from analysis.frames import frame
    from analysis.sql.query import in_schema

    if EXCHANGES.name not in tables:
        raise DissectorError("a filter needs the table exchanges")
    if chosen.is_relative and "connections" in tables and len(tables["connections"]):
        first = pc.min(pa.array(tables["connections"]["first_time"]))
        chosen = chosen.starting(first.cast(pa.int64()).as_py())
    arrow = {name: in_schema(rows, TABLES[name].schema) for name, rows in tables.items()}
    batches = ((name, batch) for name, rows in arrow.items() for batch in rows.to_batches())
    chosen_rows = collected(Selection(chosen).rows(batches, arrow), arrow)
    return {
        name: rows if isinstance(tables[name], pa.Table) else frame(rows)
        for name, rows in chosen_rows.items()
    }


def _following(name: str, file: Path, keys: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a table that belong to the exchanges of `keys`, in their order."""
    with connect(str(file.parent)) as connection:
        query = _numbers(name).format(
            rows=f"read_parquet('{file}', file_row_number=true)", keys=f"read_parquet('{keys}')"
        )
        numbers = np.asarray(connection.sql(query).fetchnumpy()["nth"])
    start = 0
    for batch in pq.ParquetFile(file).iter_batches():
        first, last = np.searchsorted(numbers, [start, start + len(batch)])
        if first < last:
            yield batch.take(pa.array(numbers[first:last] - start)).cast(TABLES[name].schema)
        start += len(batch)


def _numbers(name: str) -> str:
    """SQL for the numbers of the rows of a table that belong to the exchanges."""
    if name == "connections":
        return """
          select file_row_number as nth from {rows}
          where connection_id in (select connection_id from {keys}) order by nth"""
    # Of several exchanges with the same ids, the time selects one: that of the message.
    has_request_time = "response_time" in TABLES[name].schema.names
    time = "coalesce(time, response_time)" if has_request_time else "time"
    return f"""
      select file_row_number as nth from (select *, {time} as at from {{rows}}) as rows
      semi join (
        select connection_id, correlation_id, request_time as at from {{keys}}
        union all select connection_id, correlation_id, response_time from {{keys}}) as keys
      on rows.connection_id = keys.connection_id and rows.at = keys.at
        and rows.correlation_id is not distinct from keys.correlation_id
      order by nth"""
