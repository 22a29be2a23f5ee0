"""What answers have in common: their shape, their groups, and who is at the ends of a connection.

Exchanges can be grouped by any of their columns, and by four more that are made when asked for:

    broker     address and port of the broker: "10.0.0.9:9092"
    client     address of the client
    software   name and version of the client's software, as its connection tells (KIP-511)
    topic      each topic that the exchange names: it counts once for each of them

Answers are SQL over tables (see `asking`). It is put together of constants, each the SQL of some
rows within brackets, and of the parts that are here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from analysis.frames import frame
from analysis.sql.query import Tables
from dissector.errors import DissectorError, did_you_mean
from dissector.tables import TABLES, Table, TableColumn

if TYPE_CHECKING:
    import pandas as pd

By: TypeAlias = str | Sequence[str]
"""A column to group by, or several."""

QUANTILES: Final = (0.5, 0.95, 0.99)
"""Linear between the two nearest values, as NumPy, pandas and SQL's quantile_cont have them."""


def no_rows(columns: Iterable[TableColumn]) -> pd.DataFrame:
    """An empty frame with these columns, in the dtypes that `analysis.load` gives them."""
    return frame(pa.schema([(column.name, column.type) for column in columns]).empty_table())


def no_tables(names: Iterable[str]) -> Tables:
    """The tables of a capture in which nothing is."""
    return {name: no_rows(TABLES[name].columns) for name in names}


def columns_of(table: Table, *names: str) -> tuple[TableColumn, ...]:
    """Columns that a table of the dissector declares."""
    declared = {column.name: column for column in table.columns}
    return tuple(declared[name] for name in names)


def shaped(rows: pd.DataFrame, columns: Iterable[TableColumn], by: By = ()) -> pd.DataFrame:
    """The columns of `by`, and then the other declared ones in their dtypes; rows numbered anew."""
    by = column_names(by)
    dtypes = no_rows(column for column in columns if column.name not in by).dtypes
    return rows.reset_index(drop=True)[[*by, *dtypes.index]].astype(dtypes.to_dict())


def text(value: str | int | None) -> str:
    """A value in SQL."""
    if isinstance(value, str):
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    return "null" if value is None else str(value)


def words(given: Iterable[str]) -> str:
    """A list of texts in SQL: ``('Fetch', 'ShareFetch')``."""
    return f"({', '.join(map(text, given))})"


def column_names(by: By) -> tuple[str, ...]:
    """The columns to group by, of which one may be given as a text."""
    return (by,) if isinstance(by, str) else tuple(by)


def checked_names(by: By, columns: Iterable[str]) -> tuple[str, ...]:
    """As `column_names`. Raises DissectorError where it is empty, or names a column twice, or one
    that is not among `columns`."""
    names, known = column_names(by), list(columns)
    if not names or len(set(names)) < len(names):
        raise DissectorError("name at least one column to group by, and each of them once")
    for name in names:
        if name not in known:
            raise DissectorError(
                f"there is no column {name} to group by; there are: {', '.join(known)}"
                f"{did_you_mean(name, known)}"
            )
    return names


def quoted(columns: By) -> list[str]:
    """Names of columns in SQL."""
    columns = column_names(columns)
    return ['"' + each.replace('"', '""') + '"' for each in columns]


def ms(start: str, end: str) -> str:
    """SQL for the time from one to the other, in ms; null where either is."""
    return f"(epoch_ns({end}) - epoch_ns({start})) / 1e6"


def floored(value: str) -> str:
    """SQL for a number that is not below 0; null where it is null."""
    return f"case when {value} < 0 then 0 else {value} end"


def mapped(key: str, values: Mapping[str, str | int | None]) -> str:
    """SQL for what a text stands for; null where it stands for nothing."""
    pairs = (f"{text(each)}: {text(value)}" for each, value in values.items())
    return f"map {{{', '.join(pairs)}}}[{key}]"


def quantiles(column: str, prefix: str = "", of: Sequence[float] = QUANTILES) -> dict[str, str]:
    """SQL for quantiles of a column, by name: p50_ms and so on, with a prefix."""
    every = f"quantile_cont({column}, {list(of)})"  # once for all: it holds the values
    return {f"{prefix}p{each * 100:.0f}_ms": f"{every}[{n}]" for n, each in enumerate(of, 1)}


def counted(rows: str, by: By, order: str = "", **columns: str) -> str:
    """A query for groups of rows: `by`, and then the other columns, each as an aggregate in SQL.

    `order`: what to order the groups by; where they are alike in that, their names tell.
    """
    key = quoted(by)
    names = column_names(by)
    made = [f"{how} as {name}" for name, how in columns.items() if name not in names]
    ordered = f"order by {', '.join([order, *key])}" if order else ""
    return f"select {', '.join([*key, *made])} from {rows} group by all {ordered}"


def first_of(column: str, table: str) -> str:
    """SQL for a column of the exchanges, by connection_id and correlation_id, as `table` has them.

    Where several exchanges have these, the first of them counts.
    """
    key = "connection_id, correlation_id"
    return f"""(
      select {key}, arg_min_null({column}, nth) as {column} from exchanges
      where ({key}) in (select ({key}) from {table}) group by all)"""


def rows_by(rows: str, columns: Iterable[str], by: By) -> str:
    """SQL of rows with every column of `by`; lists of text as text. May need `connections`.

    `rows`: SQL of rows that say who is at both ends, or its name; `columns`: what they have.
    Raises DissectorError where `by` is empty, or names a column twice, or one that is not there.
    """
    there = list(columns)
    made = [name for name, (source, _) in _MADE.items() if source in there and name not in there]
    by = checked_names(by, (*there, *made))
    more = "".join(f", {_MADE[name][1]} as {name}" for name in by if name not in there)
    texts = "replace (array_to_string(topics, ', ') as topics)" if "topics" in by else ""
    told = f"left join {SOFTWARE} using (connection_id)" if "software" in by else ""
    return f"(select * {texts}{more} from {rows} as given {told})"


def endpoint(side: str) -> str:
    """SQL for address and port of a side, client or broker, as one text; IPv6 within brackets."""
    address = f"{side}_ip"
    shown = f"case when contains({address}, ':') then '[' || {address} || ']' else {address} end"
    return f"{shown} || ':' || {side}_port"


SOFTWARE: Final = """(
  select connection_id, software_name || coalesce(' ' || software_version, '') as told_software
  from connections where software_name is not null)"""
"""SQL: name and version of the client's software by connection_id, where it tells them."""

CLIENT: Final = TableColumn("client", pa.string(), "address of the client")
BROKER: Final = TableColumn("broker", pa.string(), "address and port of the broker")
SOFTWARE_OF_CLIENT: Final = TableColumn(
    "software", pa.string(), "name and version of the client's software, where ApiVersions has it"
)

_MADE: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "broker": ("broker_ip", endpoint("broker")),
        "client": ("client_ip", "client_ip"),
        "software": ("connection_id", "told_software"),
        "topic": (
            "topics",
            "unnest(case when len(given.topics) > 0 then given.topics else [null] end)",
        ),
    }
)
"""Columns that are made when asked for, each with the column that it needs, and its SQL."""
