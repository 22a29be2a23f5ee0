"""Leadership: which partitions changed their leader, when, and how this affected clients.

    $ kafka-dissector leadership captures/kafka-4-errors.pcap.zst

    $ kafka-dissector leadership captures/kafka-4-unbalanced.pcap.zst --show brokers

**How to read it.** A row is a new leader, or a new epoch of the same leader. `errors` are requests
that were refused because of it, and `errors_ms` is the time from the first to the last of them.
`--show clients` lists reconnects and Metadata requests of each client. `--show brokers` compares
the partitions that each broker leads with those that it should lead: `preferred` counts the
partitions of which the broker is the first replica.

**What to do.** A few errors for a second are normal when a broker restarts. Moves without a restart
indicate lost sessions or a full disk: see the log of the controller. Clients that get errors for a
long time do not refresh their metadata: see their version in `versions`. If a broker leads more
partitions than it should, elect the preferred leaders (`kafka-leader-election.sh`).

**How it is computed.** Metadata contains the leader of a partition, and so do the requests that a
controller with ZooKeeper sends to brokers (LeaderAndIsr and UpdateMetadata): `reported_by` is
metadata for both. Since KIP-951, a broker also names the leader when it refuses a request because
it is no longer the leader. Every election raises the leader epoch, so if two messages disagree, the
one with the higher epoch is right. A refused request is counted with the move of its partition that
is nearest in time, if it is within 10 s. Refused requests without such a move have a row without a
leader.

`--show brokers` is the state in the last metadata, without the leaders that brokers name when they
refuse a request. It omits topics that were deleted: by a DeleteTopics request, or if Metadata has
the error UNKNOWN_TOPIC_OR_PARTITION for them 10 s after their last use.

**Limitations.** A move becomes visible when a message contains it, not when it happens; refused
requests may show it earlier. Metadata responses before version 7 have no epoch. In a
capture of several clusters, select one with `--cluster`.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Option, Tables, Variant, answer, select
from analysis.columns import Column
from analysis.sql.expressions import CLIENT_IDS, EXCHANGE, literals, ms_between

CLIENT_COLUMNS: Final = (
    Column("client_id", "string", "client id"),
    Column("client_ip", "string", "address of the client"),
    Column("metadata_requests", "int64", "Metadata requests"),
    Column("metadata_busiest", "int64", "most Metadata requests within ten seconds"),
    Column("leader_errors", "int64", "requests refused because of a changed leader or epoch"),
    Column(
        "coordinator_errors",
        "int64",
        "requests refused because of a changed coordinator or controller",
    ),
    Column("connections", "int64", "connections that the client opened"),
    Column("reconnects", "int64", "connections to a broker to which it had as many open before"),
    Column("resets", "int64", "connections that ended with a reset"),
)

BROKER_COLUMNS: Final = (
    Column("broker_id", "int32", "id of the broker"),
    Column("leads", "int64", "partitions that the broker leads, by the last metadata of each"),
    Column("ratio", "double", "leads, divided by the mean of all brokers with replicas"),
    Column("share_percent", "double", "share of the partitions with a leader", "%"),
    Column(
        "preferred", "int64", "partitions of which it is the preferred leader: the first replica"
    ),
    Column("replicas", "int64", "partitions of which it has a replica"),
)

LEADER_ERRORS: Final = (
    "NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH",
    "LEADER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR",
)  # fmt: skip
COORDINATOR_ERRORS: Final = (
    "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_CONTROLLER",
)  # fmt: skip

TOGETHER: Final = 10 * 10**9
"""ns: refused clients request metadata at once, and again about a second later."""

_KEY: Final = "topic, partition"
_CLIENT: Final = "client_id, client_ip"


@answer(
    question="Which partitions changed their leader, and how did this affect clients?",
    place=12,
    tables=("topics", "errors", "partitions", "exchanges", "connections"),
    options=(Option("show", "Show moves of leaders, clients, or brokers with their partitions"),),
    rows="changes of a leader",
    columns=(
        Column("topic", "string", "name of the topic"),
        Column("partition", "int32", "index of the partition"),
        Column("time", "time", "first message with the new leader; null if there is none"),
        Column("previous_leader", "int32", "broker id of the previous leader"),
        Column("leader", "int32", "broker id of the new leader; -1 if there is none"),
        Column("previous_epoch", "int32", "leader epoch of the previous leader"),
        Column("leader_epoch", "int32", "leader epoch of the new leader"),
        Column(
            "reported_by",
            "string",
            "metadata, or broker: the broker that refused a request (KIP-951)",
        ),
        Column("errors", "int64", "refused requests for the partition"),
        Column("clients", "int64", "clients that received these errors"),
        Column("error", "string", "names of the errors, separated by commas"),
        Column("first_error_time", "time", "time of the first error"),
        Column("last_error_time", "time", "time of the last error"),
        Column("errors_ms", "double", "time during which requests were refused", "ms"),
    ),
    variants=(
        Variant("show", "clients", CLIENT_COLUMNS, rows="clients"),
        Variant("show", "brokers", BROKER_COLUMNS, rows="brokers with replicas"),
    ),
    essential=(
        "topic partition time previous_leader leader errors client_id client_ip leader_errors "
        "reconnects metadata_requests broker_id leads ratio preferred"
    ),
    useful="errors_ms error clients coordinator_errors metadata_busiest",
)
def leadership(tables: Tables, *, show: str = "moves") -> ArrowTable:
    """Partitions whose leader or leader epoch changed, in order of time.

    With ``show="clients"``, a row for each client; the most errors and reconnects first. With
    ``show="brokers"``, a row for each broker; the most partitions first.
    """
    return select(tables, {"moves": _MOVES, "clients": _CLIENTS, "brokers": _BROKERS}[show])


_IN_TIME: Final = f"partition by {_KEY}, topic_id order by time, reported_by desc, nth"
"""SQL: the window of the reports of a partition. A topic that is deleted and created again has
another id, and its epochs start again (KIP-516)."""

_NEWEST: Final = f"""(
  with reports as (
    select {_KEY}, topic_id, time, leader, leader_epoch, 'metadata' as reported_by, nth, replicas
    from topics
    union all
    select {_KEY}, topic_id, response_time, told_leader, told_leader_epoch, 'broker', nth, null
    from partitions),
  known as (
    from reports where topic is not null and partition is not null and leader is not null),
  identified as (
    -- Metadata 9 and older has no ids.
    select * replace (coalesce(
      last_value(topic_id ignore nulls) over (of_topic rows unbounded preceding),
      first_value(topic_id ignore nulls) over (
        of_topic rows between current row and unbounded following)) as topic_id)
    from known window of_topic as (partition by topic order by time, reported_by desc, nth))
  from identified
  qualify not coalesce(leader_epoch < max(leader_epoch) over (
    {_IN_TIME} rows unbounded preceding), false))"""
"""SQL: reports of leaders, without those that are older than an earlier one."""

_CHANGES: Final = f"""(
  with newest as (select * exclude (replicas) from {_NEWEST}),
  changed as (
    select *, coalesce(leader != lag(leader) over ({_IN_TIME}), false) as is_other from newest),
  terms as (
    select *, sum(is_other::int) over ({_IN_TIME} rows unbounded preceding) as term from changed),
  -- Old versions do not report epochs: that of other reports of the same leader counts.
  known as (
    select * replace (coalesce(
      last_value(leader_epoch ignore nulls) over (of_term rows unbounded preceding),
      first_value(leader_epoch ignore nulls) over (
        of_term rows between current row and unbounded following)) as leader_epoch)
    from terms
    window of_term as (
      partition by {_KEY}, topic_id, term order by time, reported_by desc, nth)),
  followed as (
    select *, lag(leader) over ({_IN_TIME}) as previous_leader,
      lag(leader_epoch) over ({_IN_TIME}) as previous_epoch
    from known)
  select *, row_number() over (order by time, reported_by desc, nth) as move from followed
  where leader != previous_leader
    or (previous_leader is not null and leader_epoch > previous_epoch))"""
"""SQL: each report of a leader that differs from the previous one, or has a higher epoch."""

_MOVES: Final = f"""
  with moves as materialized (from {_CHANGES}),
  refused as (
    select * replace (coalesce(topic, '') as topic, coalesce(client_id, '') as client_id)
    from errors where error in {literals(LEADER_ERRORS)} and partition is not null),
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
    select *, row_number() over (partition by {_KEY}, move, error order by nth) = 1 as is_new
    from nearest),
  seen as (
    select {_KEY}, move, count(*) as errors,
      count(distinct client_id || ' ' || client_ip) as clients,
      string_agg(error, ', ' order by nth) filter (is_new) as error,
      min(time) as first_error_time, max(time) as last_error_time, min(nth) as first_error
    from named group by all)
  select moves.* exclude ({_KEY}), seen.* exclude ({_KEY}, errors, clients),
    coalesce(moves.topic, seen.topic) as topic,
    coalesce(moves.partition, seen.partition) as partition,
    coalesce(errors, 0) as errors, coalesce(clients, 0) as clients,
    {ms_between("first_error_time", "last_error_time")} as errors_ms
  from moves full join seen using (move)
  order by coalesce(time, first_error_time), move, first_error"""


_OPENED: Final = f"""(
  with named as (
    select connections.*, coalesce(client_id, '') as client_id
    from connections left join {CLIENT_IDS} using (connection_id)
    where opened and protocol = 'kafka'),
  events as (
    select {_CLIENT}, broker_ip, broker_port, first_time as moment, 1 as step, closed, nth
    from named
    union all
    select {_CLIENT}, broker_ip, broker_port, last_time, -1, null, nth from named),
  counts as (
    select *, sum(step) over in_time as live from events
    window in_time as (
      partition by {_CLIENT}, broker_ip, broker_port order by moment, step desc, nth
      rows unbounded preceding)),
  opens as (
    select *, live <= max(live) over (
      partition by {_CLIENT}, broker_ip, broker_port order by moment, nth
      rows between unbounded preceding and 1 preceding) as again
    from counts where step = 1)
  -- A new connection is a reconnect if the client has had as many open ones before.
  select {_CLIENT}, count(*) as connections, count(*) filter (again) as reconnects,
    count(*) filter (closed = 'rst') as resets
  from opens group by all)"""
"""SQL: connections, reconnects to the same broker, and resets of each client."""

_CLIENTS: Final = f"""
  with metadata as (
    select coalesce(client_id, '') as client_id, client_ip, count(*) over (
      partition by {_CLIENT} order by epoch_ns(request_time)
      range between {TOGETHER - 1} preceding and current row) as together
    from exchanges where api = 'Metadata' and request_time is not null),
  counts as (
    select {_CLIENT}, count(*) as metadata_requests, max(together) as metadata_busiest
    from metadata group by all
    union all by name
    select coalesce(client_id, '') as client_id, client_ip,
      count(distinct ({EXCHANGE})) filter (error in {literals(LEADER_ERRORS)}) as leader_errors,
      count(distinct ({EXCHANGE})) filter (error in {literals(COORDINATOR_ERRORS)})
        as coordinator_errors
    from errors where error in {literals(LEADER_ERRORS + COORDINATOR_ERRORS)} group by all
    union all by name from {_OPENED}),
  clients as (
    select {_CLIENT}, coalesce(sum(columns(* exclude ({_CLIENT}))), 0) from counts group by all)
  from clients
  order by leader_errors + coordinator_errors + reconnects desc, metadata_busiest desc, {_CLIENT}"""

_DELETED: Final = f"""(
  with uses as (
    select topic, epoch_ns(time) as moment from topics
    union all
    select topic, epoch_ns(response_time) from partitions where error_code = 0),
  ends as (
    select unnest(topics) as topic, epoch_ns(response_time) as moment
    from exchanges where api = 'DeleteTopics' and error_count = 0
    union all
    -- A broker that does not know a new topic yet responds with the same error.
    select topic, epoch_ns(time) - {TOGETHER} from errors
    where api = 'Metadata' and error = 'UNKNOWN_TOPIC_OR_PARTITION')
  select topic from (select topic, max(moment) as last_use from uses group by topic)
    join ends using (topic) where ends.moment > last_use)"""
"""SQL: topics that were deleted, and not created again."""

_BROKERS: Final = f"""
  with newest as (
    select *, last_value(topic_id) over (partition by topic order by time, nth
      rows between unbounded preceding and unbounded following) as last_id
    from {_NEWEST} where reported_by = 'metadata'),
  last as (
    from newest anti join {_DELETED} using (topic) where topic_id is not distinct from last_id
    qualify row_number() over (partition by {_KEY} order by time desc, nth desc) = 1),
  named as (
    select leader as broker_id, 1 as leads, 0 as replicas, 0 as preferred from last
    where leader >= 0
    union all by name
    select unnest(replicas) as broker_id, 0 as leads, 1 as replicas,
      (broker_id = replicas[1])::int as preferred
    from last)
  select broker_id, sum(leads) as leads, sum(preferred) as preferred, sum(replicas) as replicas,
    sum(leads) * count(*) over () / sum(sum(leads)) over () as ratio,
    100 * sum(leads) / sum(sum(leads)) over () as share_percent
  from named group by broker_id order by leads desc, broker_id"""
