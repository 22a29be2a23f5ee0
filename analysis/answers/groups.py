"""Groups: when each rebalanced, for how long, who set it off, and why.

A rebalance is a span: from its first sign to the moment when the last member has its new part. The
coordinator numbers them, and every member learns the number, so that it tells what belongs
together, whichever connection it came by:

- A classic group has a *generation*. Somebody joins, leaves or falls silent; the members learn of
  it by REBALANCE_IN_PROGRESS, all join again (JoinGroup), and get their assignment (SyncGroup).
- Consumer (KIP-848), share (KIP-932) and streams groups (KIP-1071) have a group epoch. Members
  come to it one by one, with their heartbeats, and the others go on meanwhile.

What the coordinator notices by itself, such as a member's silence, is not on the wire: such a span
begins when the first member is told. Groups that nobody is left in do not rebalance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from analysis.answers.common import Tables, milliseconds, shaped
from dissector.tables import TIME, TableColumn

_TEXT: Final = pa.string()

COLUMNS: Final = (
    TableColumn("group_id", _TEXT, "the group"),
    TableColumn("group_type", _TEXT, "classic, consumer, share or streams"),
    TableColumn("start_time", TIME, "first sign of the rebalance"),
    TableColumn("end_time", TIME, "when the last member had its part, as far as it came"),
    TableColumn("duration_ms", pa.float64(), "from the one to the other", "ms"),
    TableColumn(
        "trigger",
        _TEXT,
        "what set it off: joined, rejoined (a member that was there), left, timed out (a member "
        "that is not heard of again), changed (topics, subscriptions or assignments), unknown",
    ),
    TableColumn("trigger_client_id", _TEXT, "client that set it off"),
    TableColumn("trigger_member_id", _TEXT, "its member id"),
    TableColumn("reason", _TEXT, "what that client says why (KIP-800)"),
    TableColumn("generation", pa.int64(), "generation, or epoch, that it led to; null: none yet"),
    TableColumn("member_count", pa.int64(), "members in it"),
    TableColumn("last_client_id", _TEXT, "client for which the others waited: it came last"),
    TableColumn("completed", pa.bool_(), "whether every member that was seen in it has its part"),
)

Row = dict[str, Any]

_LEAVES: Final = (-1, -2)
"""Member epochs that say good-bye; -2: a static member that comes back."""

_BEFORE_ALL: Final = pd.Timestamp(0, tz="UTC")


def groups(tables: Tables) -> pd.DataFrame:
    """The rebalances of all groups, in order of time; columns: `COLUMNS`. Needs memberships."""
    rows = tables["memberships"]
    rows = rows[rows["group_id"].notna()].sort_values("time", kind="stable")
    heard = rows.groupby("member_id")["time"].max()
    found: list[Row] = []
    for key, mine in rows[_matters(rows)].groupby(["group_id", "group_type"], sort=False):
        group_id, group_type = key
        spans = _classic(mine) if group_type == "classic" else _by_epoch(mine, heard)
        found += [{"group_id": group_id, "group_type": group_type, **span} for span in spans]
    table = pd.DataFrame(found, columns=[column.name for column in COLUMNS])
    for name in ("start_time", "end_time"):
        table[name] = pd.to_datetime(table[name], utc=True)
    table["duration_ms"] = milliseconds(table["end_time"] - table["start_time"])
    return shaped(table.sort_values("start_time", kind="stable"), COLUMNS)


def _matters(rows: pd.DataFrame) -> pd.Series[bool]:
    """Not the heartbeats that tell nothing new: they may be very many."""
    told, said = rows["generation"], rows["request_generation"]
    moved = (told != said).fillna(True) | (said <= 0).fillna(False)
    classic = rows["group_type"] == "classic"
    error = rows["error_code"].fillna(0) != 0
    quiet = classic & (rows["api"] == "Heartbeat") & ~error
    same = ~classic & ~moved & ~error
    return ~(quiet | same)


def _classic(rows: pd.DataFrame) -> Iterator[Row]:
    """The rebalances of one classic group."""
    good = rows["error_code"] == 0
    joins = rows[good & (rows["api"] == "JoinGroup") & rows["generation"].notna()]
    syncs = rows[good & (rows["api"] == "SyncGroup")].groupby("request_generation")
    leaves = rows[good & (rows["api"] == "LeaveGroup")]
    told = rows[rows["error"] == "REBALANCE_IN_PROGRESS"]
    before = pd.DataFrame(columns=joins.columns)
    since = _BEFORE_ALL
    for generation, joined in joins.groupby("generation"):
        got = syncs.get_group(generation) if generation in syncs.groups else joins.iloc[:0]
        if len(got):  # a static member that comes back later is given the same generation
            joined = joined[joined["time"] <= got["response_time"].min()]
            got = got[got["member_id"].isin(joined["member_id"])].drop_duplicates("member_id")
        if joined.empty:
            continue
        until = joined["response_time"].max()
        signs = told[(told["response_time"] > since) & (told["response_time"] <= until)]
        left = leaves[(leaves["time"] > since) & (leaves["time"] <= until)]
        cause = _cause_of_join(before, joined, left, signs)
        members = set(joined["member_id"])
        yield {
            **cause,
            "end_time": max(until, got["response_time"].max()) if len(got) else until,
            "generation": generation,
            "member_count": joined["member_count"].max() if joined["member_count"].notna().any()
            else len(members),
            "last_client_id": joined.sort_values("time")["client_id"].iloc[-1],
            "completed": members <= set(got["member_id"]),
        }  # fmt: skip
        before, since = joined, until
    yield from _unfinished(rows, since)


def _cause_of_join(
    before: pd.DataFrame, joined: pd.DataFrame, left: pd.DataFrame, signs: pd.DataFrame
) -> Row:
    """What set a classic group's rebalance off: the first thing that nobody was told to do.

    `before`: the joins that led to the generation before; `joined`: those that led to this one;
    `left`: who left between them; `signs`: who was told meanwhile that the group rebalances.
    """
    told = signs.groupby("member_id")["response_time"].min()
    was_told = told.reindex(joined["member_id"]).set_axis(joined.index) <= joined["time"]
    known = joined["member_id"].isin(before["member_id"])
    own = joined.assign(trigger=known.map({True: "rejoined", False: "joined"}))[~was_told]
    causes = pd.concat([own, left.assign(trigger="left")]).sort_values("time", kind="stable")
    first_sign = signs["response_time"].min()
    if len(causes) and not causes["time"].iloc[0] > first_sign:
        return _cause(causes.iloc[0])
    start = first_sign if len(signs) else joined["time"].min()
    gone = before[~before["member_id"].isin([*joined["member_id"], *left["member_id"]])]
    if len(gone):
        return _cause(gone.assign(trigger="timed out", reason=None).iloc[0]) | {"start_time": start}
    return {"start_time": start, "trigger": "unknown"}


def _cause(row: pd.Series[Any]) -> Row:
    return {
        "start_time": row["time"],
        "trigger": row.get("trigger"),
        "trigger_client_id": row["client_id"],
        "trigger_member_id": row["member_id"],
        "reason": row.get("reason"),
    }


def _unfinished(rows: pd.DataFrame, since: pd.Timestamp) -> Iterator[Row]:
    """Joins that are still waiting for their answer when the capture ends."""
    waiting = rows[
        (rows["api"] == "JoinGroup") & rows["response_time"].isna() & (rows["time"] > since)
    ]
    if len(waiting):
        yield {
            **_cause(waiting.assign(trigger="unknown").iloc[0]),
            "end_time": pd.NaT,
            "member_count": waiting["member_id"].nunique(),
            "last_client_id": None,
            "completed": False,
        }


def _by_epoch(rows: pd.DataFrame, heard: pd.Series[pd.Timestamp]) -> Iterator[Row]:
    """The rebalances of one group whose members have epochs; `heard`: when each was heard last."""
    good = rows[rows["error_code"] == 0]
    left = good[good["request_generation"].isin(_LEAVES)]
    reached = good[(good["generation"] > 0) & (good["generation"] != good["request_generation"])]
    reached = reached.sort_values("response_time", kind="stable")
    reached = reached.drop_duplicates(["member_id", "generation"])
    present: dict[str, pd.Series[Any]] = {}
    since = _BEFORE_ALL
    for epoch, mine in reached.groupby("generation"):
        first = mine.iloc[0]
        gone = left[(left["time"] > since) & (left["time"] <= first["response_time"])]
        silent = {member: row for member, row in present.items() if heard[member] < first["time"]}
        cause = _cause_of_epoch(mine, gone, present, silent)
        for member in {*gone["member_id"], *silent}:
            present.pop(member, None)
        present |= {row["member_id"]: row for _, row in mine.iterrows()}
        yield {
            **cause,
            "end_time": mine["response_time"].iloc[-1],
            "generation": epoch,
            "member_count": len(present),
            "last_client_id": mine["client_id"].iloc[-1],
            "completed": present.keys() <= set(mine["member_id"]),
        }
        since = first["response_time"]


def _cause_of_epoch(mine: pd.DataFrame, gone: pd.DataFrame, present: Row, silent: Row) -> Row:
    """What had a coordinator make a new epoch, which `mine` came to.

    `gone`: who left since the epoch before. `present`: who had come to that one; `silent`: those of
    them who were not heard of any more.
    """
    new = mine[mine["request_generation"] == 0]
    known = new["member_id"].isin(present)
    new = new.assign(trigger=known.map({True: "rejoined", False: "joined"}))
    causes = pd.concat([new, gone.assign(trigger="left")]).sort_values("time", kind="stable")
    if len(causes) and causes["time"].iloc[0] <= mine["response_time"].iloc[0]:
        return _cause(causes.iloc[0])
    start = {"start_time": mine["time"].iloc[0]}
    for row in silent.values():
        return _cause(row.drop("reason")) | start | {"trigger": "timed out"}
    return start | {"trigger": "changed" if present else "unknown"}
