"""Leadership: which partitions got another leader, when, and what their clients went through.

The leader of a partition is told by Metadata, and since KIP-951 by a broker that refuses a request
because it is not the leader any more. Every election raises the leader's epoch, so that of two that
disagree the higher epoch is right; an epoch may also grow with the same leader, which was elected
again. A move is on the wire when somebody is told, not when it happens; what shows it earlier is
that requests are refused. Those are counted with the move of their partition that is nearest in
time, if that is within `TOGETHER`; those that no move explains have a row without a leader.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from analysis.sql.expressions import ms, shaped, words
from analysis.sql.query import Tables, asking
from dissector.errors import DissectorError
from dissector.tables import TIME, TableColumn

if TYPE_CHECKING:
    import pandas as pd

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

TOGETHER: Final = 10 * 10**9
"""ns: clients ask for metadata when they are refused, and again within a second or so."""

_WHERE: Final = "topic, partition"
_WHO: Final = "client_id, client_ip"


def leadership(tables: Tables, *, show: str = "moves") -> pd.DataFrame:
    """The partitions whose leader or leader epoch changed, in order of time; columns: `COLUMNS`.

    Needs topics, errors, partitions, exchanges and connections. `show`: "moves"; or "clients", a
    row for each client, those with most such errors and reconnects first, with `CLIENT_COLUMNS`.
    Raises DissectorError for another `show`.
    """
    if show not in _SHOWN:
        raise DissectorError(f"show {show} is neither {' nor '.join(_SHOWN)}")
    query, columns = _SHOWN[show]
    names = ("topics", "errors", "partitions", "exchanges", "connections")
    with asking(tables, names) as ask:
        return shaped(ask(query), columns)


_CHANGES: Final = f"""(
  with told as (
    select {_WHERE}, time, leader, leader_epoch, 'metadata' as told_by, nth from topics
    union all
    select {_WHERE}, response_time, told_leader, told_leader_epoch, 'broker', nth from partitions),
  known as (
    select * replace (last_value(leader_epoch ignore nulls) over so_far as leader_epoch) from told
    where topic is not null and partition is not null and leader is not null
    window so_far as (
      partition by {_WHERE} order by time, told_by desc, nth rows unbounded preceding)),
  newest as (
    from known
    qualify not coalesce(leader_epoch < max(leader_epoch) over (
      partition by {_WHERE} order by time, told_by desc, nth rows unbounded preceding), false)),
  followed as (
    select *, lag(leader) over in_time as leader_before,
      lag(leader_epoch) over in_time as epoch_before
    from newest window in_time as (partition by {_WHERE} order by time, told_by desc, nth))
  select *, row_number() over (order by time, told_by desc, nth) as move from followed
  where leader != leader_before or (leader_before is not null and leader_epoch > epoch_before))"""
"""SQL: each time that a leader was told that is not the one before, or has a higher epoch."""

_MOVES: Final = f"""
  with moves as materialized (from {_CHANGES}),
  refused as (
    select * replace (coalesce(topic, '') as topic, coalesce(client_id, '') as client_id)
    from errors where error in {words(LEADER_ERRORS)} and partition is not null),
  since as (
    select refused.*, move as move_before, epoch_ns(refused.time) - epoch_ns(moves.time) as since
    from refused asof left join moves on refused.topic = moves.topic
      and refused.partition = moves.partition and refused.time >= moves.time),
  nearest as (
    select since.*, epoch_ns(moves.time) - epoch_ns(since.time) as until,
      case when not least(since, until) <= {TOGETHER} then null
        when coalesce(until <= since, since is null) then move else move_before end as move
    from since asof left join moves on since.topic = moves.topic
      and since.partition = moves.partition and since.time <= moves.time),
  named as (
    select *, row_number() over (partition by {_WHERE}, move, error order by nth) = 1 as is_new
    from nearest),
  seen as (
    select {_WHERE}, move, count(*) as errors,
      count(distinct client_id || ' ' || client_ip) as clients,
      string_agg(error, ', ' order by nth) filter (is_new) as error,
      min(time) as first_error_time, max(time) as last_error_time, min(nth) as first_error
    from named group by all)
  select moves.* exclude ({_WHERE}), seen.* exclude ({_WHERE}, errors, clients),
    coalesce(moves.topic, seen.topic) as topic,
    coalesce(moves.partition, seen.partition) as partition,
    coalesce(errors, 0) as errors, coalesce(clients, 0) as clients,
    {ms("first_error_time", "last_error_time")} as errors_ms
  from moves full join seen using (move)
  order by coalesce(time, first_error_time), move, first_error"""


_OPENED: Final = f"""(
  with named as (
    select connections.*, coalesce(client_id, '') as client_id
    from connections left join (
      select connection_id, arg_min(client_id, nth) as client_id from exchanges group by all)
      using (connection_id)
    where opened and protocol = 'kafka'),
  events as (
    select {_WHO}, broker_ip, broker_port, first_time as moment, 1 as step, closed, nth from named
    union all
    select {_WHO}, broker_ip, broker_port, last_time, -1, null, nth from named),
  counts as (
    select *, sum(step) over in_time as live from events
    window in_time as (
      partition by {_WHO}, broker_ip, broker_port order by moment, step desc, nth
      rows unbounded preceding)),
  opens as (
    select *, live <= max(live) over (
      partition by {_WHO}, broker_ip, broker_port order by moment, nth
      rows between unbounded preceding and 1 preceding) as again
    from counts where step = 1)
  -- A connection takes the place of one that is over where they are no more than before.
  select {_WHO}, count(*) as connections, count(*) filter (again) as reconnects,
    count(*) filter (closed = 'rst') as resets
  from opens group by all)"""
"""SQL: of each client the connections that it opened, again to the same broker, and resets."""

_CLIENTS: Final = f"""
  with asked as (
    select coalesce(client_id, '') as client_id, client_ip, count(*) over (
      partition by {_WHO} order by epoch_ns(request_time)
      range between {TOGETHER - 1} preceding and current row) as together
    from exchanges where api = 'Metadata' and request_time is not null),
  counts as (
    select {_WHO}, count(*) as metadata_requests, max(together) as metadata_busiest
    from asked group by all
    union all by name
    select coalesce(client_id, '') as client_id, client_ip,
      count(*) filter (error in {words(LEADER_ERRORS)}) as leader_errors,
      count(*) filter (error in {words(COORDINATOR_ERRORS)}) as coordinator_errors
    from errors where error in {words(LEADER_ERRORS + COORDINATOR_ERRORS)} group by all
    union all by name from {_OPENED}),
  clients as (
    select {_WHO}, coalesce(sum(columns(* exclude ({_WHO}))), 0) from counts group by all)
  from clients
  order by leader_errors + coordinator_errors + reconnects desc, metadata_busiest desc, {_WHO}"""

_SHOWN: Final[Mapping[str, tuple[str, tuple[TableColumn, ...]]]] = MappingProxyType(
    {"moves": (_MOVES, COLUMNS), "clients": (_CLIENTS, CLIENT_COLUMNS)}
)
"""Query and columns of what can be shown."""
