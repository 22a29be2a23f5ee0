"""Lag: how far each group is behind the end of its partitions, based on its commits and fetches.

    $ kafka-dissector lag captures/kafka-4-group-eager.pcap.zst

**How to read it.** `lag` counts the records from the committed offset to the end, and
`position_lag` those from the next offset to fetch. A reader without a group has its own row,
without a lag. `--show all` lists each state, so that you see whether the lag grows.

`--by minute` lists the state at the end of each interval in which an offset changed, which shows
when the lag grew. The columns have the values at that time.

**What to do.** If the lag grows, add consumers, up to the number of partitions, or make them
faster; see `fetches` and `groups`. If the lag is large but position_lag is small, the client reads,
but does not commit. If only one partition has a lag, see `skew`, and `stuck` for open transactions.

**How it is computed.** The end of a partition is the largest offset so far that the current leader
has sent to any client: the high watermark in a Fetch response, the latest offset in ListOffsets, or
the last produced record. A committed offset is the next offset to read.

A Fetch does not contain its group, which commits on another connection, to the coordinator.
`analysis.sql.record_flow` describes how connections are attributed to groups. Offsets in a
transaction count when it has committed. Fetches of replicas do not count.

A share group (KIP-932) commits no offsets. Its partition has a start offset, before which all
records are completed, and a count of the completed records after it (KIP-1226), which are not part
of the lag. The leader of a partition sends both to the share coordinator (WriteShareGroupState) on
a connection between brokers; elsewhere, an administrator receives the start offset and the lag.
With the start offset alone, the lag is an upper bound.

**Limitations.** A group that neither commits nor fetches in the capture is missing. Offsets include
those of transaction markers and of compacted records, so the lag may be larger than the number of
records. If the committed offset is beyond the end, which an administrator can cause, the lag is
negative.

If a topic was deleted and created again, its groups have no row until they commit or fetch again,
because brokers delete their offsets. Topic ids in Fetch (Kafka 3.1) or Produce (Kafka 4.1), or a
DeleteTopics request, show this. Without either, a topic has a new end once all responses for a
second show a smaller one than earlier responses of the same API, but committed offsets remain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from analysis.answers import ArrowTable, Option, Tables, answer, select
from analysis.columns import Column
from analysis.sql.context import ALL_PARTITIONS
from analysis.sql.expressions import By, column_names, identifier, literals, not_negative
from analysis.sql.intermediate import intermediate_table
from analysis.sql.intervals import interval_start, is_interval
from analysis.sql.record_flow import GROUPS_OF_READERS
from analysis.sql.topic_logs import with_log, with_several_ids

SHARE_STATE: Final = (
    "ReadShareGroupState", "ReadShareGroupStateSummary", "WriteShareGroupState",
)  # fmt: skip
_COMMITS: Final = "api in ('OffsetCommit', 'TxnOffsetCommit')"
_READER: Final = "group_id is null, coalesce(group_id, client_id, ''), topic, partition"
_SO_FAR: Final = f"""(
  partition by {_READER}, is_after order by time, source, nth
  rows between unbounded preceding and current row)"""


@answer(
    question="How far behind is each group, based on its commits and fetches?",
    place=8,
    tables=("partitions", "exchanges", "transactions"),
    options=(
        Option("show", "Show the last state, or all states", choices=("last", "all")),
        Option("by", "Show the last state in each interval, such as minute"),
    ),
    rows="offsets of consumers",
    columns=(
        Column("group_id", "string", "id of the group; null for a reader without a group"),
        Column("topic", "string", "name of the topic"),
        Column("partition", "int32", "index of the partition"),
        Column("time", "time", "time of this state"),
        Column(
            "client_id", "string", "client of the last commit, or if there is none, the last fetch"
        ),
        Column(
            "committed_offset",
            "int64",
            "committed offset of the group, or start offset of a share group; null if unknown",
        ),
        Column("committed_time", "time", "time of the commit; null if the offset was only read"),
        Column("position", "int64", "offset that the reader fetches next"),
        Column("end_offset", "int64", "end of the partition; null if unknown"),
        Column(
            "lag",
            "int64",
            "records from the committed offset to the end, excluding those that a share group "
            "completed; negative if the committed offset is beyond the end",
        ),
        Column("position_lag", "int64", "records from the position to the end"),
        Column("max_lag", "int64", "largest lag so far"),
        Column("done_count", "int64", "share groups: completed records after the committed offset"),
    ),
    essential="group_id topic partition lag",
    useful="time committed_offset end_offset position_lag client_id",
)
def lag(tables: Tables, *, show: str = "last", by: By = ()) -> ArrowTable:
    """The lag of each group, topic and partition at the end of the capture, the largest first.

    With ``show="all"``, a row for each commit and fetch, in order of time. With ``by="minute"``, or
    another interval, the state at its end, if the reader or the end of the partition moved in it.
    """
    if by:
        return select(tables, _by(column_names(by), show))
    return select(tables, LAST if show == "last" else f"from {STATES} order by {', '.join(_EVENT)}")


def _position_lag(end: str = "end_offset") -> str:
    return not_negative(f"try({end} - position)")


def _lag(end: str = "end_offset") -> str:
    """SQL for the lag. At least 0 in a share group: done records may be known before the end is."""
    return (
        f"case when done_count is null then try({end} - committed_offset) "
        f"else {not_negative(f'try({end} - committed_offset - done_count)')} end"
    )


_IN_RESPONSES: Final = "error_code = 0 and response_time is not null and topic is not null"
_LEADER_EPOCH: Final = "case when api in ('Fetch', 'ListOffsets') then leader_epoch end"
"""SQL: the epoch of the leader that responds without an error, if the request has one (KIP-320)."""
SUCCESSFUL: Final = f"(from partitions where {_IN_RESPONSES})"
"""SQL: partitions in responses without an error."""

RESPONDED: Final = f"(from {ALL_PARTITIONS} where {_IN_RESPONSES})"
_CREATED_AGAIN: Final = with_several_ids(ALL_PARTITIONS)
_LOG: Final = "topic, partition, log"

KNOWN_END: Final = """coalesce(high_watermark,
  case when api = 'ListOffsets' and asked_timestamp = -1 then "offset" end,
  case when api in ('Produce', 'ShareFetch') then try(last_offset + 1) end,
  try("offset" + told_lag))"""
"""SQL: the end of the partition that a response shows."""

_SOURCE: Final = """case when api = 'ListOffsets' then 'ListOffsets ' || coalesce(client_id, '')
  else api end"""
"""SQL: ends that are comparable. With acks=1, a produced record may be beyond the high watermark; a
client with read_committed gets the last stable offset from ListOffsets (KIP-98)."""

_EARLIER: Final = "rows between unbounded preceding and 1 preceding"
_LATER: Final = "rows between current row and unbounded following"
_FALLEN: Final = f"""(
  with ends as (
    select topic, partition, {_SOURCE} as source, response_time, {KNOWN_END} as known_end
    from {RESPONDED} anti join {_CREATED_AGAIN} using (topic)
    -- Share groups receive earlier records again (KIP-932).
    where api in ('Produce', 'Fetch', 'ListOffsets') and known_end is not null),
  candidates as (
    select topic, partition, source, max(response_time) as last_time from ends group by all
    having arg_max(known_end, response_time) < max(known_end)),
  around as (
    select topic, partition, response_time, last_time,
      max(known_end) over (of_partition {_EARLIER}) as earlier,
      max(known_end) over (of_partition {_LATER}) as later,
      max(known_end) over (of_source {_EARLIER}) as earlier_in_source,
      max(known_end) over (of_source {_LATER}) as later_in_source
    from ends semi join candidates using (topic, partition)
      left join candidates using (topic, partition, source)
    window of_partition as (partition by topic, partition order by response_time),
      of_source as (partition by topic, partition, source order by response_time))
  select topic, partition, min(response_time) as since from around
  where later < earlier and later_in_source < earlier_in_source
    and last_time >= response_time + interval 1 second group by all)"""
"""SQL: the time from which on all ends of a partition are smaller than before: it was created again
or truncated. Ends in responses of several brokers may be out of order for a moment only."""

ENDS: Final = intermediate_table("partition_ends", f"""
  with logged as (
    select topic, partition, response_time, {KNOWN_END} as known_end,
      {_LEADER_EPOCH} as leader_epoch,
      case when response_time >= since then log || ' again' else log end as log
    from {with_log(RESPONDED)} left join {_FALLEN} using (topic, partition)
    where partition is not null),
  led_again as (
    select topic, partition from logged group by all having min(leader_epoch) != max(leader_epoch)),
  -- The rows of most partitions, which have one leader epoch, are not sorted by it.
  led as (
    select *, null as epoch from logged anti join led_again using (topic, partition)
    union all
    select *, coalesce(max(leader_epoch) over (partition by {_LOG} order by response_time),
      min(leader_epoch) over (partition by {_LOG})) as epoch
    from logged semi join led_again using (topic, partition))
  select topic, partition, response_time as time, max(known_end) over (
    partition by {_LOG}, epoch order by response_time) as end_offset
  from led where known_end is not null""")  # fmt: skip
"""SQL: each response with the end of a partition, and the largest end so far. A new leader may have
a shorter log (KIP-101), so that ends under earlier leaders do not count; nor do those of a deleted
topic of the same name, whose epochs are not comparable. The end does not depend on a filter: see
`analysis.sql.context`."""

DECIDED: Final = f"""(
  with named as (
    from {SUCCESSFUL} join (
      select connection_id, correlation_id, request_time as time,
        arg_min_null(transactional_id, nth) as transactional_id
      from exchanges where api = 'TxnOffsetCommit' group by all)
      using (connection_id, correlation_id, time)
    where api = 'TxnOffsetCommit'),
  -- A producer that starts again aborts its open transaction.
  ends as (
    select transactional_id, connection_id, correlation_id, time, response_time, committed
    from transactions
    where error_code = 0 and (api = 'EndTxn' and committed is not null or api = 'InitProducerId'))
  select named.* exclude (transactional_id) replace (ends.connection_id as connection_id,
    ends.correlation_id as correlation_id, ends.time as time, ends.response_time as response_time)
  from named asof join ends
    on named.transactional_id = ends.transactional_id and named.response_time <= ends.response_time
  where committed)"""
"""SQL: offsets in committed transactions, with the ids and times of the EndTxn that commits."""

_DELETED: Final = f"""(
  with served as (
    select topic, topic_id, broker_ip, broker_port, min(response_time) as time
    from {RESPONDED} semi join {_CREATED_AGAIN} using (topic)
    join (select distinct connection_id, broker_ip, broker_port from exchanges)
      using (connection_id)
    where topic_id is not null group by topic, topic_id, broker_ip, broker_port
    qualify count(*) over (partition by topic, broker_ip, broker_port) > 1),
  created as (
    select topic, max(time) as time
    from (select topic, min(time) as time from served group by topic, topic_id) group by all),
  deleted as (
    select topic, max(response_time) as time
    from (select unnest(topics) as topic, response_time from exchanges
      where api = 'DeleteTopics' and error_code = 0)
    group by all)
  select topic, coalesce(deleted.time, created.time) as deleted_time
  from created full join deleted using (topic))"""
"""SQL: the last time at which each topic was deleted, or was first seen after that. The offsets
that groups committed before are deleted with the topic. Ids of different brokers may be those of
topics in different clusters."""

_SHARED: Final = f"""(
  with state as (
    select * from {SUCCESSFUL} where api in {literals(SHARE_STATE)} and group_id is not null),
  described as (
    from {SUCCESSFUL} anti join state using (group_id, topic, partition)
    where api = 'DescribeShareGroupOffsets')
  select * from state
  union all by name
  select described.* replace (
      {not_negative('try(end_offset - "offset" - told_lag)')} as done_count)
  from described asof left join {ENDS} as ends
    on described.topic = ends.topic and described.partition = ends.partition
      and response_time >= ends.time)"""
"""SQL: each response or request with the state of a share group.

An administrator may receive an older state than leaders sent before, so its responses count only if
there are none of leaders.
"""

_ALL_EVENTS: Final = f"""(
  with successful as {SUCCESSFUL},
  readers as (
    select connection_id, topic, partition, group_id as reads_for, nth as since
    from {GROUPS_OF_READERS}),
  commits as (
    from {SUCCESSFUL} where api in ('OffsetCommit', 'OffsetFetch')
    union all by name from {DECIDED})
  select group_id, topic, partition, response_time as time,
    case when {_COMMITS} then client_id end as client_id, "offset" as committed_offset,
    case when {_COMMITS} then response_time end as committed_time, null::bigint as position,
    null::bigint as done_count, (api = 'TxnOffsetCommit')::int as source, nth, 0 as since
  from commits where "offset" is not null and group_id is not null
  union all
  select group_id, topic, partition, response_time, null, "offset",
    case when api = 'WriteShareGroupState' then response_time end, null, done_count, 0, nth, 0
  from {_SHARED} where "offset" is not null or done_count is not null
  union all
  select group_id, topic, partition, response_time, client_id, null, null, null, null, 2, nth, 0
  from successful where api = 'ShareFetch' and group_id is not null
  union all
  -- A fetch session (KIP-227) omits unchanged partitions.
  select reads_for, topic, partition, response_time, client_id, null, null,
    coalesce(try(last_offset + 1), "offset") as position, null, 2, nth, since
  from successful left join readers using (connection_id, topic, partition)
  where api = 'Fetch' and replica_id is null and position is not null)"""
"""SQL: each event that shows the committed offset of a group, or the position of a reader with the
groups for which it reads."""

_EVENTS: Final = f"""(
  select events.*, deleted_time, coalesce(time >= deleted_time, false) as is_after
  from {_ALL_EVENTS} as events left join {_DELETED} using (topic))"""
"""SQL: the events; whether the topic was deleted before."""

STATES: Final = intermediate_table("lag_states", f"""
  with known as (
    select group_id, topic, partition, time,
      coalesce(
        last_value(case when committed_time is not null then client_id end ignore nulls)
          over so_far,
        last_value(client_id ignore nulls) over so_far) as client_id,
      last_value(committed_offset ignore nulls) over so_far as committed_offset,
      last_value(committed_time ignore nulls) over so_far as committed_time,
      last_value(position ignore nulls) over so_far as position,
      last_value(done_count ignore nulls) over so_far as done_count, source, nth, since,
      deleted_time, is_after
    from {_EVENTS} window so_far as {_SO_FAR}),
  behind as (
    select known.*, end_offset, {_lag()} as lag,
      {_position_lag()} as position_lag
    from known asof left join {ENDS} as ends
      on known.topic = ends.topic and known.partition = ends.partition and known.time >= ends.time)
  select *, max(lag) over so_far as max_lag from behind window so_far as {_SO_FAR}""")  # fmt: skip
"""SQL: the state of each group, topic and partition after each event."""

_EVENT: Final = ("time", "source", "nth", "since")


def _last(slot: str) -> str:
    """SQL: the last state of each group, topic and partition in each slot of time.

    `slot`: SQL for the slot of a `time`. A slot without an event of the reader has a row if the end
    of the partition moved; the reader then is where it was before.
    """
    reader = "is_alone, reader, topic, partition"
    return f"""(
      with states as (
        select *, {slot} as slot, group_id is null as is_alone,
          coalesce(group_id, client_id, '') as reader
        from {STATES}),
      ends as (
        select topic, partition, {slot} as slot, max(time) as end_time,
          arg_max(end_offset, time) as last_offset
        from {ENDS} group by all),
      slots as (
        select distinct {reader}, slot from states
        union
        select {reader}, ends.slot
        from (select {reader}, min(slot) as first from states group by all) as readers
          join ends using (topic, partition)
        where ends.slot >= first),
      last as (
        from states qualify row_number() over (
          partition by {reader}, slot order by {", ".join(f"{each} desc" for each in _EVENT)}) = 1),
      known as (
        select last.* exclude (slot), slots.slot from slots asof join last
          on slots.is_alone = last.is_alone and slots.reader = last.reader
            and slots.topic = last.topic and slots.partition = last.partition
            and slots.slot >= last.slot),
      final as (
        select known.*, end_time, last_offset from known asof left join ends
          on known.topic = ends.topic and known.partition = ends.partition
            and known.slot >= ends.slot
        where is_after or deleted_time is null or greatest(time, end_time) < deleted_time)
      select * exclude (is_alone, end_time, last_offset) replace (
          greatest(time, end_time) as time, last_offset as end_offset,
          {_lag("last_offset")} as lag,
          {_position_lag("last_offset")} as position_lag,
          max(greatest(max_lag, {_lag("last_offset")})) over (
            partition by {reader} order by slot) as max_lag),
        time as event_time
      from final)"""


_STATE_ORDER: Final = "lag desc, time, event_time, source, nth, since"
LAST: Final = f"from {_last('0')} order by {_STATE_ORDER}"
"""SQL: the last state of each group, topic and partition, at the time of the last known end."""


def _by(names: Sequence[str], show: str) -> str:
    """SQL: the states at the end of each interval. Raises DissectorError."""
    name = names[0]
    if len(names) > 1 or not is_interval(name) or show != "last":
        from analysis.input.times import LENGTHS
        from dissector.errors import DissectorError

        raise DissectorError(
            f"lag by {', '.join(names)}: pass one interval ({LENGTHS}), and show the last state"
        )
    rows = _last(interval_start(name, "time"))
    return f"select *, slot as {identifier(name)} from {rows} order by slot, {_STATE_ORDER}"
