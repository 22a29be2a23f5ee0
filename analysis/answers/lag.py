"""Lag: how far each group is behind the end of its partitions, by what it commits and fetches.

The end of a partition is what the capture told of it by then, whoever was told: the high watermark
in a Fetch response, the latest offset of a ListOffsets, the last record that was produced. It only
grows, so the largest counts. A committed offset is the next one to read; so the lag is the end less
that.

A Fetch does not name its group: that travels on another connection, to the coordinator. So the
group is found by the client (its id and address) and the topic: whoever asks for, or commits, a
group's offset there. A reader without a group has a row of its own. Offsets that a transaction
commits count when it has committed; replicas' fetches do not count at all.
"""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
import pyarrow as pa

from analysis.answers.asof import as_of
from analysis.answers.common import Tables, shaped
from dissector.errors import DissectorError
from dissector.tables import TIME, TableColumn

_OFFSET: Final = pa.int64()

COLUMNS: Final = (
    TableColumn("group_id", pa.string(), "the group; null: a reader without one"),
    TableColumn("topic", pa.string(), "name of the topic"),
    TableColumn("partition", pa.int32(), "index of the partition"),
    TableColumn("time", TIME, "when this was so"),
    TableColumn("client_id", pa.string(), "client that committed or fetched there last"),
    TableColumn("committed_offset", _OFFSET, "offset that the group has committed, as far as told"),
    TableColumn("committed_time", TIME, "when that was told; null: it was asked for, not set"),
    TableColumn("position", _OFFSET, "offset that the reader fetches next"),
    TableColumn("end_offset", _OFFSET, "end of the partition, as far as told"),
    TableColumn("lag", _OFFSET, "records from the committed offset to the end"),
    TableColumn("position_lag", _OFFSET, "records from the position to the end"),
    TableColumn("max_lag", _OFFSET, "largest lag so far"),
)

_WHERE: Final = ["topic", "partition"]
_CLIENT: Final = ["client_id", "client_ip"]
_COMMITS: Final = ("OffsetCommit", "TxnOffsetCommit")
_SHOWN: Final = ("last", "all")


def lag(tables: Tables, *, show: str = "last") -> pd.DataFrame:
    """What each group left to read, the largest lag first; columns: `COLUMNS`.

    Needs partitions, exchanges and transactions. `show`: "last", a row for each group, topic and
    partition, at the end of the capture; or "all", a row each time that a commit or a fetch told
    something, in order of time. Raises DissectorError for another `show`.
    """
    if show not in _SHOWN:
        raise DissectorError(f"show {show} is neither {' nor '.join(_SHOWN)}")
    rows = _good(tables)
    ends = _ends(rows)
    told = pd.concat([_commits(rows, tables["transactions"]), _fetches(rows)])
    told = told.sort_values("time", kind="stable", ignore_index=True)
    reader = told["group_id"].fillna(told["client_id"]).fillna("")
    key = [told["group_id"].isna(), reader, told["topic"], told["partition"]]
    filled = told.groupby(key, sort=False)
    for name in ("client_id", "committed_offset", "committed_time", "position"):
        told[name] = filled[name].ffill()
    told = _with_lag(told, ends)
    told["max_lag"] = told.groupby(key, sort=False)["lag"].cummax()
    if show == "all":
        return shaped(told, COLUMNS)
    last = told.groupby(key, sort=False).tail(1)
    final = ends.drop_duplicates(_WHERE, keep="last").set_index(_WHERE)["time"]
    known = pd.MultiIndex.from_frame(last[_WHERE])
    final_time = final.reindex(known).set_axis(last.index)
    last = last.assign(time=last["time"].where(~(final_time > last["time"]), final_time))
    last = _with_lag(last, ends)
    last["max_lag"] = last["max_lag"].where(~(last["lag"] > last["max_lag"]), last["lag"])
    return shaped(last.sort_values("lag", ascending=False, kind="stable"), COLUMNS)


def _good(tables: Tables) -> pd.DataFrame:
    """What clients, not replicas, were told without an error, with the client's address."""
    rows = tables["partitions"]
    rows = rows[(rows["error_code"] == 0) & rows["response_time"].notna() & rows["topic"].notna()]
    keys = ["connection_id", "correlation_id"]
    who = tables["exchanges"][[*keys, "request_time", "client_ip", "transactional_id"]]
    who = who.rename(columns={"request_time": "time"}).drop_duplicates([*keys, "time"])
    return rows.merge(who, on=[*keys, "time"], how="left")


def _ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Each time that the end of a partition was told anew: topic, partition, time, end_offset."""
    latest = rows["offset"].where((rows["api"] == "ListOffsets") & (rows["asked_timestamp"] == -1))
    produced = rows["last_offset"].where(rows["api"] == "Produce") + 1
    end = rows["high_watermark"].fillna(latest).fillna(produced)
    ends = rows[_WHERE].assign(time=rows["response_time"], end_offset=end).dropna()
    ends = ends.sort_values("time", kind="stable")
    ends["end_offset"] = ends.groupby(_WHERE)["end_offset"].cummax()
    return ends


def _commits(rows: pd.DataFrame, transactions: pd.DataFrame) -> pd.DataFrame:
    """Each time that a group's committed offset was told: set, or asked for."""
    rows = rows[rows["api"].isin([*_COMMITS, "OffsetFetch"]) & rows["offset"].notna()]
    rows = rows[rows["group_id"].notna()]
    decided = rows[rows["api"] == "TxnOffsetCommit"]
    decided = decided.assign(response_time=_decided(decided, transactions))
    rows = pd.concat([rows[rows["api"] != "TxnOffsetCommit"], decided])
    rows = rows[rows["response_time"].notna()]
    time = rows["response_time"]
    return pd.DataFrame(
        {
            **{name: rows[name] for name in ("group_id", *_WHERE)},
            "client_id": rows["client_id"].where(rows["api"].isin(_COMMITS)),
            "time": time,
            "committed_offset": rows["offset"],
            "committed_time": time.where(rows["api"].isin(_COMMITS)),
            "position": pd.array([pd.NA] * len(rows), "Int64"),
        }
    )


def _decided(rows: pd.DataFrame, transactions: pd.DataFrame) -> pd.Series[Any]:
    """When the transaction of each TxnOffsetCommit committed; missing where it did not."""
    ends = transactions[(transactions["api"] == "EndTxn") & (transactions["error_code"] == 0)]
    ends = ends[["transactional_id", "response_time", "committed"]].dropna()
    ends["end"] = ends["response_time"]
    asked = rows[["transactional_id", "response_time"]].dropna()
    found = as_of(asked, ends, on="response_time", by=["transactional_id"], direction="forward")
    return found["end"].where(found["committed"].fillna(False)).reindex(rows.index)


def _fetches(rows: pd.DataFrame) -> pd.DataFrame:
    """Each time that a reader's position was told, with the groups that it reads for."""
    groups = rows.loc[rows["group_id"].notna(), [*_CLIENT, "topic", "group_id"]].drop_duplicates()
    rows = rows[(rows["api"] == "Fetch") & rows["replica_id"].isna()]
    rows["position"] = (rows["last_offset"] + 1).fillna(rows["offset"])
    rows = rows[rows["position"].notna()]  # in a session (KIP-227) what has not changed is not told
    rows = rows.drop(columns="group_id").merge(groups, on=[*_CLIENT, "topic"], how="left")
    return pd.DataFrame(
        {
            **{name: rows[name] for name in ("group_id", *_WHERE, "client_id")},
            "time": rows["response_time"],
            "committed_offset": pd.array([pd.NA] * len(rows), "Int64"),
            "committed_time": pd.Series(pd.NaT, rows.index, "datetime64[ns, UTC]"),
            "position": rows["position"],
        }
    )


def _with_lag(rows: pd.DataFrame, ends: pd.DataFrame) -> pd.DataFrame:
    """The rows in order of time, with the end of their partition by then, and what is left."""
    left = rows.drop(columns="end_offset", errors="ignore")
    found = as_of(left, ends, on="time", by=_WHERE)
    behind = {"lag": "committed_offset", "position_lag": "position"}
    for name, column in behind.items():
        found[name] = (found["end_offset"] - found[column]).clip(lower=0)
    return found
