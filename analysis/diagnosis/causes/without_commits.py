"""Groups that read the same records again and again without a commit, for the rule `growing_lag`.

A member begins to read a partition at the committed offset of its group, which OffsetFetch returns,
or without one by auto.offset.reset. If members begin again and again at the same offset, although
they read records behind it, the group does not commit its progress. With enable.auto.commit=true, a
consumer commits every auto.commit.interval.ms, before a rebalance, and when it closes.

The lag of such a group is unknown or grows only while records arrive, so that the rule needs the
offsets at which members begin. Consumers with assign() have no members. Members that keep their
offsets elsewhere seek to them, and members that read only new records (auto.offset.reset=latest)
begin at later offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import cells, known, listed, rows_by, span_of, sql, within
from analysis.display.terminal import counted
from analysis.sql.expressions import literal
from analysis.sql.query import Row
from analysis.sql.record_flow import GROUPS_OF_READERS

COMMITS_NS: Final = 15 * 10**9
"""Three times the default of auto.commit.interval.ms."""

_BEGINS: Final = """(
  select distinct group_id, topic, partition, response_time as begin, "offset" as committed
  from partitions semi join memberships using (connection_id, group_id)
  where api = 'OffsetFetch' and error_code = 0 and response_time is not null)"""
"""SQL: the committed offsets that members read; null without one."""

_UNCHANGED: Final = f"""
  with unchanged as (
    select group_id, topic, partition, committed, min(begin) as first_begin,
      max(begin) as last_begin
    from {_BEGINS} group by all
    having count(*) >= {{least}}
      and epoch_ns(last_begin) - epoch_ns(first_begin) >= {COMMITS_NS})
  from unchanged where not exists (
    from partitions where group_id = unchanged.group_id and (
      api = 'TxnOffsetCommit'
      or api = 'OffsetCommit' and topic = unchanged.topic and partition = unchanged.partition
        and time between first_begin and last_begin))"""
"""SQL: partitions whose committed offset, or its absence, members read several times, without a
commit in this time. Groups that commit in transactions are excluded: if these are aborted, other
rules report why."""


_STARTS: Final = f"""
  with unchanged as ({_UNCHANGED}),
  reads as (
    select readers.group_id, client_id, topic, partition, time, partitions.nth, "offset",
      last_offset
    from partitions join (
      select distinct connection_id, topic, partition, group_id from {GROUPS_OF_READERS})
      as readers using (connection_id, topic, partition)
    where api = 'Fetch' and replica_id is null and error_code = 0 and last_offset >= "offset"),
  starts as (
    select begins.*, min(time) as time, arg_min("offset", (time, nth)) as start,
      max(last_offset) as last_offset, list(distinct client_id order by client_id)
        as client_ids
    from reads asof join {_BEGINS} as begins on reads.group_id = begins.group_id
      and reads.topic = begins.topic and reads.partition = begins.partition
      and reads.time >= begins.begin
    group by all),
  again as (
    from starts semi join unchanged on starts.group_id = unchanged.group_id
      and starts.topic = unchanged.topic and starts.partition = unchanged.partition
      and starts.committed is not distinct from unchanged.committed
    qualify start <= first_value(start) over (
      partition by starts.group_id, starts.topic, starts.partition, committed order by begin))
  select group_id, topic, partition, committed, max(start) as start, count(*) as starts,
    max(last_offset) as last_offset, flatten(list(client_ids order by begin)) as client_ids,
    min(time) as first_time, max(time) as last_time
  from again group by group_id, topic, partition, committed
  having count(*) >= {{least}} and epoch_ns(max(time)) - epoch_ns(min(time)) >= {COMMITS_NS}
  order by group_id, starts desc, topic, partition"""
"""SQL: those at whose first offset members began to read again. A member that asks for its offset
between, or seeks, continues behind it."""


def without_commits(case: Case, least: float) -> list[list[Row]]:
    """For each group, its partitions that members began to read at the same offset this often."""
    apis = case.answer("latency --by broker,api")
    if sum(row["count"] for row in apis if row["api"] == "OffsetFetch") < least:
        return []
    unchanged = _UNCHANGED.format(least=least)
    starts = case.rows(_STARTS.format(least=least)) if case.rows(unchanged) else []
    return [*rows_by(starts, "group_id").values()]


def without_commits_finding(rows: Sequence[Row]) -> Finding:
    """The finding for the partitions of a group."""
    row = rows[0]
    committed = "no committed offset"
    if row["committed"] is not None:
        committed = f"the committed offset {row['committed']:,}"
    topics = listed(f"`{topic}`" for topic in dict.fromkeys(row["topic"] for row in rows))
    return Finding(
        severity="warning",
        subject=f"group `{row['group_id']}`",
        clients=known(name for row in rows for name in row["client_ids"]),
        sentence=f"Group `{row['group_id']}` reads the same records of {topics} again and again, "
        "because it does not commit offsets",
        evidence=f"Members began to read partition {row['partition']} of topic `{row['topic']}` "
        f"{row['starts']:,} times at offset {row['start']:,}{within(row)}, and read up to offset "
        f"{row['last_offset']:,}. OffsetFetch always returned {committed}, and the group sent no "
        f"OffsetCommit in this time. This concerns {counted(len(rows), 'partition')}.",
        numbers=cells(row, "group_id topic partition committed"),
        cause="enable.auto.commit is false and the application does not call commitSync or "
        "commitAsync, or it stops before it does",
        side="client",
        setting="enable.auto.commit",
        change="Commit offsets after the records are processed (commitSync), or set "
        "enable.auto.commit to true. Look at the log of the application if it stops before. If it "
        "has to read all records after each start, use assign() without group.id.",
        reference="Kafka documentation: Consumer Configs, enable.auto.commit",
        command=sql(f"""
          select group_id, topic, partition, partitions.offset as committed,
            count(*) as responses, min(time) as first_time, max(time) as last_time
          from partitions where api = 'OffsetFetch' and error_code = 0
            and group_id = {literal(row["group_id"])}
          group by all order by topic, partition, first_time"""),
        requests=sum(row["starts"] for row in rows),
        **span_of(rows),
    )  # fmt: skip
