"""Lag: how far each group is behind the end of its partitions, by what it commits and fetches.

The end of a partition is what the capture told of it by then, whoever was told: the high watermark
in a Fetch response, the latest offset of a ListOffsets, the last record that was produced. It only
grows, so the largest counts. A committed offset is the next one to read; so the lag is the end less
that.

A Fetch does not name its group: that travels on another connection, to the coordinator.
`analysis.sql.record_flow` describes how connections are attributed to groups. A reader without a
group has a row of its own. Offsets that a transaction commits count when it has committed. Fetches
of replicas do not count. A committed offset beyond the end, as an administrator can set it, gives a
negative lag.

A share group (KIP-932) commits no offset. Its partition has a start offset, before which all is
done, and a count of the records behind it that are done, too (KIP-1226), which are not behind. A
partition's leader tells both to the share coordinator (WriteShareGroupState), where brokers speak
with each other; elsewhere an administrator is told the start and the lag. Where only the start is
told, the lag is the most that it can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from analysis.sql.expressions import floored, shaped, words
from analysis.sql.query import Tables, asking
from analysis.sql.record_flow import READS_FOR
from dissector.errors import DissectorError
from dissector.tables import TIME, TableColumn

if TYPE_CHECKING:
    import pandas as pd

_OFFSET: Final = pa.int64()

COLUMNS: Final = (
    TableColumn("group_id", pa.string(), "the group; null: a reader without one"),
    TableColumn("topic", pa.string(), "name of the topic"),
    TableColumn("partition", pa.int32(), "index of the partition"),
    TableColumn("time", TIME, "when this was so"),
    TableColumn(
        "client_id",
        pa.string(),
        "client that committed last; where no commit is in the capture, that fetched there last",
    ),
    TableColumn(
        "committed_offset",
        _OFFSET,
        "offset that the group has committed, or where a share group begins, as far as told",
    ),
    TableColumn("committed_time", TIME, "when that was told; null: it was asked for, not set"),
    TableColumn("position", _OFFSET, "offset that the reader fetches next"),
    TableColumn("end_offset", _OFFSET, "end of the partition, as far as told"),
    TableColumn(
        "lag",
        _OFFSET,
        "records from the committed offset to the end, but for those done; negative where the "
        "committed offset lies beyond the end",
    ),
    TableColumn("position_lag", _OFFSET, "records from the position to the end"),
    TableColumn("max_lag", _OFFSET, "largest lag so far"),
    TableColumn("done_count", _OFFSET, "share groups: records behind the committed offset, done"),
)

_SHARE_STATE: Final = (
    "ReadShareGroupState", "ReadShareGroupStateSummary", "WriteShareGroupState",
)  # fmt: skip
_COMMITS: Final = "api in ('OffsetCommit', 'TxnOffsetCommit')"
_READER: Final = "group_id is null, coalesce(group_id, client_id, ''), topic, partition"
_SO_FAR: Final = f"""(
  partition by {_READER} order by time, source, nth
  rows between unbounded preceding and current row)"""


def lag(tables: Tables, *, show: str = "last") -> pd.DataFrame:
    """What each group left to read, the largest lag first; columns: `COLUMNS`.

    Needs partitions, exchanges and transactions. `show`: "last", a row for each group, topic and
    partition, at the end of the capture; or "all", a row each time that a commit or a fetch told
    something, in order of time. Raises DissectorError for another `show`.
    """
    if show not in _SHOWN:
        raise DissectorError(f"show {show} is neither {' nor '.join(_SHOWN)}")
    with asking(tables, ("partitions", "exchanges", "transactions")) as ask:
        return shaped(ask(_SHOWN[show]), COLUMNS)


def _behind(offset: str, end: str = "end_offset") -> str:
    return floored(f"{end} - {offset}")


def _lag(end: str = "end_offset") -> str:
    """Of a share group not below 0: what is done may have been told before the end."""
    return (
        f"case when done_count is null then {end} - committed_offset "
        f"else greatest({end} - committed_offset - done_count, 0) end"
    )


_GOOD: Final = """(
  from partitions where error_code = 0 and response_time is not null and topic is not null)"""
"""SQL: what was told without an error."""

_ENDS: Final = f"""(
  select topic, partition, response_time as time, max(told) over (
    partition by topic, partition order by response_time) as end_offset
  from (
    select *, coalesce(high_watermark,
      case when api = 'ListOffsets' and asked_timestamp = -1 then "offset" end,
      case when api in ('Produce', 'ShareFetch') then last_offset + 1 end,
      "offset" + told_lag) as told
    from {_GOOD})
  where told is not null and partition is not null)"""
"""SQL: each time that the end of a partition was told, with the largest so far."""

_DECIDED: Final = f"""(
  with named as (
    from {_GOOD} join (
      select connection_id, correlation_id, request_time as time,
        arg_min_null(transactional_id, nth) as transactional_id
      from exchanges where api = 'TxnOffsetCommit' group by all)
      using (connection_id, correlation_id, time)
    where api = 'TxnOffsetCommit'),
  ends as (
    select transactional_id, response_time as end_time, committed from transactions
    where api = 'EndTxn' and error_code = 0 and committed is not null)
  select named.* exclude (transactional_id) replace (end_time as response_time)
  from named asof join ends
    on named.transactional_id = ends.transactional_id and response_time <= end_time
  where committed)"""
"""SQL: the offsets that transactions commit, told when their transaction has committed."""

_SHARED: Final = f"""(
  with state as (
    select * from {_GOOD} where api in {words(_SHARE_STATE)} and group_id is not null),
  described as (
    from {_GOOD} anti join state using (group_id, topic, partition)
    where api = 'DescribeShareGroupOffsets')
  select * from state
  union all by name
  select described.* replace (
      greatest(end_offset - "offset" - told_lag, 0) as done_count)
  from described asof left join {_ENDS} as ends
    on described.topic = ends.topic and described.partition = ends.partition
      and response_time >= ends.time)"""
"""SQL: each time that the state of a share group was told. What an administrator is told may be
older than what leaders told before, and so counts only without them."""

_TOLD: Final = f"""(
  with good as {_GOOD},
  readers as (
    select connection_id, topic, partition, group_id as reads_for, nth as since
    from {READS_FOR}),
  commits as (
    from {_GOOD} where api in ('OffsetCommit', 'OffsetFetch') union all by name from {_DECIDED})
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
  from good where api = 'ShareFetch' and group_id is not null
  union all
  -- In a session (KIP-227) what has not changed is not told.
  select reads_for, topic, partition, response_time, client_id, null, null,
    coalesce(last_offset + 1, "offset") as position, null, 2, nth, since
  from good left join readers using (connection_id, topic, partition)
  where api = 'Fetch' and replica_id is null and position is not null)"""
"""SQL: each time that the committed offset of a group was told, set or asked for; or the position
of a reader, with the groups that it reads for."""

STATES: Final = f"""(
  with known as (
    select group_id, topic, partition, time,
      coalesce(
        last_value(case when committed_time is not null then client_id end ignore nulls)
          over so_far,
        last_value(client_id ignore nulls) over so_far) as client_id,
      last_value(committed_offset ignore nulls) over so_far as committed_offset,
      last_value(committed_time ignore nulls) over so_far as committed_time,
      last_value(position ignore nulls) over so_far as position,
      last_value(done_count ignore nulls) over so_far as done_count, source, nth, since
    from {_TOLD} window so_far as {_SO_FAR}),
  behind as (
    select known.*, end_offset, {_lag()} as lag,
      {_behind("position")} as position_lag
    from known asof left join {_ENDS} as ends
      on known.topic = ends.topic and known.partition = ends.partition and known.time >= ends.time)
  select *, max(lag) over so_far as max_lag from behind window so_far as {_SO_FAR})"""
"""SQL: the same, with all that was known by then."""

_LAST: Final = f"""
  with last as (
    from {STATES} qualify row_number() over (
      partition by {_READER} order by time desc, source desc, nth desc) = 1),
  final as (
    select topic, partition, max(time) as final_time, max(end_offset) as final_offset
    from {_ENDS} group by all)
  select last.* replace (
      greatest(last.time, final_time) as time, final_offset as end_offset,
      {_lag("final_offset")} as lag,
      {_behind("position", "final_offset")} as position_lag,
      greatest(max_lag, {_lag("final_offset")}) as max_lag)
  from last left join final using (topic, partition)
  order by lag desc, time, last.time, source, nth, since"""
"""The last state of each group, topic and partition, moved to when the end was last told."""

_ALL: Final = f"from {STATES} order by time, source, nth, since"

_SHOWN: Final[Mapping[str, str]] = MappingProxyType({"last": _LAST, "all": _ALL})
