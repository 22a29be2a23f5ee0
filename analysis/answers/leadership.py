"""Leadership: which partitions got another leader, when, and what their clients went through.

The leader of a partition is told by Metadata, and since KIP-951 by a broker that refuses a request
because it is not the leader any more. Every election raises the leader's epoch, so that of two that
disagree the higher epoch is right; an epoch may also grow with the same leader, which was elected
again. A move is on the wire when somebody is told, not when it happens; what shows it earlier is
that requests are refused. Those are counted with the move of their partition that is nearest in
time, if that is within `TOGETHER`; those that no move explains have a row without a leader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import pandas as pd
import pyarrow as pa

from analysis.answers.asof import as_of
from analysis.answers.common import Tables, milliseconds, shaped
from dissector.errors import DissectorError
from dissector.tables import TIME, TableColumn

_TEXT, _COUNT, _NUMBER = pa.string(), pa.int64(), pa.int32()

COLUMNS: Final = (
    TableColumn("topic", _TEXT, "name of the topic"),
    TableColumn("partition", _NUMBER, "index of the partition"),
    TableColumn("time", TIME, "when the new leader was first told; null: it never was"),
    TableColumn("leader_before", _NUMBER, "id of the leader before"),
    TableColumn("leader", _NUMBER, "id of the new leader; -1: there is none"),
    TableColumn("epoch_before", _NUMBER, "epoch of the leader before"),
    TableColumn("leader_epoch", _NUMBER, "epoch of the new one"),
    TableColumn("told_by", _TEXT, "metadata, or broker: one that refused a request (KIP-951)"),
    TableColumn("errors", _COUNT, "requests for the partition that were refused"),
    TableColumn("clients", _COUNT, "clients whose they were"),
    TableColumn("error", _TEXT, "names of the errors"),
    TableColumn("first_error_time", TIME, "first of these"),
    TableColumn("last_error_time", TIME, "last of these"),
    TableColumn("errors_ms", pa.float64(), "from the one to the other", "ms"),
)

CLIENT_COLUMNS: Final = (
    TableColumn("client_id", _TEXT, "client, as it calls itself"),
    TableColumn("client_ip", _TEXT, "its address"),
    TableColumn("metadata_requests", _COUNT, "times that it asked for metadata"),
    TableColumn("metadata_busiest", _COUNT, "most of them within any ten seconds"),
    TableColumn("leader_errors", _COUNT, "refused because a leader had moved, or its epoch"),
    TableColumn("coordinator_errors", _COUNT, "refused because a coordinator or controller had"),
    TableColumn("connections", _COUNT, "connections that it opened"),
    TableColumn("reconnects", _COUNT, "of these, to a broker that it had been connected to before"),
    TableColumn("resets", _COUNT, "connections that ended with a reset"),
)

OTHER_COLUMNS: Final = MappingProxyType({"--show clients": CLIENT_COLUMNS})

LEADER_ERRORS: Final = (
    "NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH",
    "LEADER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR",
)  # fmt: skip
COORDINATOR_ERRORS: Final = (
    "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_CONTROLLER",
)  # fmt: skip

TOGETHER: Final = pd.Timedelta(seconds=10)
"""Clients ask for metadata when they are refused, and again within a second or so."""

_WHERE: Final = ["topic", "partition"]
_WHO: Final = ["client_id", "client_ip"]


def leadership(tables: Tables, *, show: str = "moves") -> pd.DataFrame:
    """The partitions whose leader or leader epoch changed, in order of time; columns: `COLUMNS`.

    Needs topics, errors, partitions, exchanges and connections. `show`: "moves"; or "clients", a
    row for each client, those with most such errors and reconnects first, with `CLIENT_COLUMNS`.
    Raises DissectorError for another `show`.
    """
    if show not in _SHOWN:
        raise DissectorError(f"show {show} is neither {' nor '.join(_SHOWN)}")
    return _SHOWN[show](tables)


def _moves(tables: Tables) -> pd.DataFrame:
    moves = _changes(tables).reset_index(drop=True)
    errors = tables["errors"]
    errors = errors[errors["error"].isin(LEADER_ERRORS) & errors["partition"].notna()]
    errors = errors[[*_WHERE, "time", "client_id", "client_ip", "error"]]
    errors = errors.assign(move=_nearest(errors, moves))
    seen = errors.fillna({"client_id": "", "topic": ""}).fillna({"move": -1})
    seen["client"] = seen["client_id"] + " " + seen["client_ip"]
    seen = seen.groupby([*_WHERE, "move"], sort=False, as_index=False).agg(
        errors=("time", "size"),
        clients=("client", "nunique"),
        error=("error", lambda names: ", ".join(names.drop_duplicates())),
        first_error_time=("time", "min"),
        last_error_time=("time", "max"),
    )
    explained = seen["move"] >= 0
    with_move = seen[explained].set_index("move").drop(columns=_WHERE)
    found = pd.concat([moves.join(with_move), seen[~explained]], ignore_index=True)
    found["errors"] = found["errors"].fillna(0)
    found["clients"] = found["clients"].fillna(0)
    found["errors_ms"] = milliseconds(found["last_error_time"] - found["first_error_time"])
    when = found["time"].fillna(found["first_error_time"]).sort_values(kind="stable")
    return shaped(found.loc[when.index], COLUMNS)


def _changes(tables: Tables) -> pd.DataFrame:
    """Each time that a leader was told that is not the one before, or has a higher epoch."""
    wanted = [*_WHERE, "time", "leader", "leader_epoch", "told_by"]
    rows = tables["partitions"]
    rows = rows[rows["told_leader"].notna()]
    rows = rows.drop(columns=["time", "leader_epoch"]).rename(
        columns={
            "told_leader": "leader",
            "told_leader_epoch": "leader_epoch",
            "response_time": "time",
        }
    )
    told = pd.concat(
        [
            tables["topics"].assign(told_by="metadata")[wanted],
            rows.assign(told_by="broker")[wanted],
        ]
    )
    told = told.dropna(subset=["topic", "leader"]).sort_values("time", kind="stable")
    told["leader_epoch"] = told.groupby(_WHERE)["leader_epoch"].ffill()
    newest = told.groupby(_WHERE)["leader_epoch"].cummax()
    told = told[~(told["leader_epoch"] < newest).fillna(False)]
    before = told.groupby(_WHERE)
    told["leader_before"] = before["leader"].shift()
    told["epoch_before"] = before["leader_epoch"].shift()
    moved = told["leader"] != told["leader_before"]
    raised = told["leader_epoch"] > told["epoch_before"]
    return told[told["leader_before"].notna() & (moved | raised.fillna(False))]


def _nearest(errors: pd.DataFrame, moves: pd.DataFrame) -> pd.Series[float]:
    """Index of the move that explains each error; missing where none does."""
    other = moves[[*_WHERE, "time"]].assign(move=moves.index.astype("float64"), at=moves["time"])
    before = as_of(errors, other, on="time", by=_WHERE).reindex(errors.index)
    after = as_of(errors, other, on="time", by=_WHERE, direction="forward").reindex(errors.index)
    since, until = errors["time"] - before["at"], after["at"] - errors["time"]
    found = before["move"].where(~(until <= since) & since.notna(), after["move"])
    return found.where((since <= TOGETHER) | (until <= TOGETHER))


def _clients(tables: Tables) -> pd.DataFrame:
    exchanges, errors = tables["exchanges"], tables["errors"]
    asked = exchanges[(exchanges["api"] == "Metadata") & exchanges["request_time"].notna()]
    asked = asked.sort_values("request_time", kind="stable").fillna({"client_id": ""})
    counts = asked.groupby(_WHO).agg(metadata_requests=("request_time", "size"))
    busiest = asked.groupby(_WHO)["request_time"].apply(_busiest)
    counts["metadata_busiest"] = busiest.astype("int64")
    for name, of in (("leader_errors", LEADER_ERRORS), ("coordinator_errors", COORDINATOR_ERRORS)):
        some = errors[errors["error"].isin(of)].fillna({"client_id": ""})
        counts = counts.join(some.groupby(_WHO).size().rename(name), how="outer")
    counts = counts.join(_connections(tables), how="outer").fillna(0).reset_index()
    counts["trouble"] = counts[["leader_errors", "coordinator_errors", "reconnects"]].sum(axis=1)
    counts = counts.sort_values(["trouble", "metadata_busiest"], ascending=False, kind="stable")
    return shaped(counts, CLIENT_COLUMNS)


def _busiest(times: pd.Series[pd.Timestamp]) -> int:
    """Most of these times, which are in order, within ten seconds."""
    ones = pd.Series(1, index=pd.DatetimeIndex(times))
    return int(ones.rolling("10s").sum().max())


def _connections(tables: Tables) -> pd.DataFrame:
    """Of each client: the connections that it opened, again to the same broker, and resets."""
    rows = tables["connections"]
    rows = rows[rows["opened"].fillna(False).astype("bool") & (rows["protocol"] == "kafka")]
    names = tables["exchanges"].groupby("connection_id")["client_id"].first()
    rows = rows.assign(client_id=rows["connection_id"].map(names).astype("str"))
    rows = rows.fillna({"client_id": ""}).sort_values("first_time", kind="stable")
    broker = [*_WHO, "broker_ip", "broker_port"]
    rows = rows.assign(again=_again(rows, broker), reset=rows["closed"] == "rst")
    return rows.groupby(_WHO).agg(
        connections=("again", "size"), reconnects=("again", "sum"), resets=("reset", "sum")
    )


def _again(rows: pd.DataFrame, broker: list[str]) -> pd.Series[bool]:
    """Whether each connection takes the place of one that is over: they are no more than before."""
    opens = rows[broker].assign(at=rows["first_time"], step=1, row=rows.index)
    ends = rows[broker].assign(at=rows["last_time"], step=-1)
    events = pd.concat([opens, ends]).sort_values(["at", "step"], ascending=[True, False])
    events["live"] = events.groupby(broker)["step"].cumsum()
    opens = events[events["step"] == 1]
    opens = opens.assign(most=opens.groupby(broker)["live"].cummax())
    most = opens.groupby(broker)["most"].shift()
    return (opens["live"] <= most).set_axis(opens["row"]).reindex(rows.index)


_SHOWN: Final[Mapping[str, Callable[[Tables], pd.DataFrame]]] = MappingProxyType(
    {"moves": _moves, "clients": _clients}
)
