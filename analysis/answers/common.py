"""What answers have in common: their shape, their groups, and who is at the ends of a connection.

Exchanges can be grouped by any of their columns, and by four more that are made when asked for:

    broker     address and port of the broker: "10.0.0.9:9092"
    client     address of the client
    software   name and version of the client's software, as its connection tells (KIP-511)
    topic      each topic that the exchange names: it counts once for each of them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import pandas as pd
import pyarrow as pa

from analysis.frames import frame
from dissector.errors import DissectorError
from dissector.tables import TABLES, Table, TableColumn

Tables: TypeAlias = Mapping[str, pd.DataFrame]
"""What `analysis.load` gives."""

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


def shaped(
    rows: pd.DataFrame, columns: Iterable[TableColumn], by: Sequence[str] = ()
) -> pd.DataFrame:
    """The columns of `by`, and then the other declared ones in their dtypes; rows numbered anew."""
    dtypes = no_rows(column for column in columns if column.name not in by).dtypes
    return rows.reset_index(drop=True)[[*by, *dtypes.index]].astype(dtypes.to_dict())


def packets(rows: pd.DataFrame, exchanges: pd.DataFrame, which: str) -> pd.Series[int]:
    """Of rows with connection_id and correlation_id, a packet number of their exchange."""
    key = ["connection_id", "correlation_id"]
    found = rows[key].merge(exchanges.drop_duplicates(key)[[*key, which]], how="left", on=key)
    return found[which].set_axis(rows.index)


def grouped(rows: pd.DataFrame, by: Sequence[str]) -> Any:
    """Groups in order of their first row; what is missing is a group of its own."""
    return rows.groupby(list(by), sort=False, dropna=False, observed=True)


def counted(rows: pd.DataFrame, by: Sequence[str], **columns: tuple[str, Any]) -> pd.DataFrame:
    """A row for each group, with `by` and, as pandas' `agg` takes them, the other columns."""
    found: pd.DataFrame = grouped(rows, by).agg(
        **{name: how for name, how in columns.items() if name not in by}
    )
    return found.reset_index()


def exchanges_by(tables: Tables, by: Sequence[str]) -> pd.DataFrame:
    """The exchanges, with every column of `by`: see `rows_by`."""
    return rows_by(tables["exchanges"], tables, by)


def rows_by(rows: pd.DataFrame, tables: Tables, by: Sequence[str]) -> pd.DataFrame:
    """Rows that say who is at both ends, with every column of `by`; lists of text as text.

    Raises DissectorError where `by` is empty, or names a column twice, or one that is not there.
    """
    made = [name for name, (source, _) in _MADE.items() if source in rows and name not in rows]
    known = [*rows.columns, *made]
    if not by or len(set(by)) < len(by):
        raise DissectorError("name at least one column to group by, and each of them once")
    for name in by:
        if name not in known:
            raise DissectorError(
                f"there is no column {name} to group by; there are: {', '.join(known)}"
            )
        if name not in rows:
            rows = _MADE[name][1](rows, tables)
        elif name == "topics":
            rows = rows.assign(topics=text_lists(rows["topics"]))
    return rows


def endpoint(rows: pd.DataFrame, side: str) -> pd.Series[str]:
    """Address and port of a side, client or broker, as one text; IPv6 within brackets."""
    address = rows[f"{side}_ip"]
    bracketed = address.where(~address.str.contains(":", na=False), "[" + address + "]")
    return bracketed + ":" + rows[f"{side}_port"].astype("str")


def software(tables: Tables) -> pd.Series[str]:
    """Name and version of the client's software by connection_id, where it tells them."""
    rows = tables["connections"]
    rows = rows[rows["software_name"].notna()]
    told = rows["software_name"] + (" " + rows["software_version"]).fillna("")
    return told.set_axis(rows["connection_id"])


def milliseconds(duration: pd.Series[Any]) -> pd.Series[float]:
    """Durations in ms, NaN where missing."""
    ms: pd.Series[float] = duration.dt.total_seconds() * 1000
    return ms


def text_lists(column: pd.Series[Any]) -> pd.Series[str]:
    """Lists of text as one text each, missing where missing."""
    return column.map(", ".join, na_action="ignore").astype("str")


def _with_topic(rows: pd.DataFrame, _: Tables) -> pd.DataFrame:
    each = rows.assign(topic=rows["topics"]).explode("topic", ignore_index=True)
    return each.astype({"topic": "str"})


_Make: TypeAlias = Callable[[pd.DataFrame, Tables], pd.DataFrame]
_MADE: Final[Mapping[str, tuple[str, _Make]]] = MappingProxyType(
    {
        "broker": ("broker_ip", lambda rows, _: rows.assign(broker=endpoint(rows, "broker"))),
        "client": ("client_ip", lambda rows, _: rows.assign(client=rows["client_ip"])),
        "software": (
            "connection_id",
            lambda rows, tables: rows.assign(
                software=rows["connection_id"].map(software(tables)).astype("str")
            ),
        ),
        "topic": ("topics", _with_topic),
    }
)
"""Columns that are made when asked for, each with the column that it needs."""
