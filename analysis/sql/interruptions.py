"""Interruptions: times in which a group did not read a partition, because it rebalanced.

A Fetch that waits for records reads all partitions of its session, also those that it does not name
(KIP-227). So a partition is read while a Fetch is in progress on the connection that named it last,
and an interruption is a time between two of them. If another connection names the partition, the
Fetches of the previous one count until the last rebalance before, at whose end the partition was
revoked at the latest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from analysis.answers.lag import ENDS
from analysis.sql.expressions import literal, not_negative
from analysis.sql.record_flow import GROUPS_OF_READERS

SHORTEST_NS: Final = 10 * 10**6
"""Shorter times between two Fetches are usual without a rebalance, too."""


def interruptions(rebalances: Iterable[tuple[int, str, int, int]]) -> str:
    """SQL: number, partitions, unread_ms and lag_growth of rebalances with an interruption.

    `rebalances`: number, group, start and end of each; times in ns. Needs `partitions` and
    `exchanges`.
    """
    values = ", ".join(
        f"({number}, {literal(group)}, {start}, {end})" for number, group, start, end in rebalances
    )
    return f"""
      with spans as (
        from (values {values or "(null, null, null, null)"})
          as given (number, group_id, span_start, span_end)), {_OF_SPANS}"""


_OF_SPANS: Final = f"""
  readers as materialized (
    select connection_id, topic, partition, group_id from {GROUPS_OF_READERS}
    where group_id in (select group_id from spans)),
  named as (
    select readers.group_id, topic, partition, connection_id, epoch_ns(time) as since, nth
    from partitions join readers using (connection_id, topic, partition)
    where api = 'Fetch'),
  turns as (
    from named qualify connection_id is distinct from lag(connection_id) over (
      partition by group_id, topic, partition order by since, nth)),
  followed as (
    select *, lead(since) over (
      partition by group_id, topic, partition order by since, nth) as next_since
    from turns),
  tenures as (
    select followed.* exclude (nth), coalesce(
      max(span_end) filter (span_end > since and span_end <= next_since),
      any_value(next_since)) as until
    from followed left join spans using (group_id) group by all),
  reads as (
    select connection_id, epoch_ns(request_time) as read_start,
      epoch_ns(coalesce(response_time, request_time)) as read_end
    from exchanges
    where api = 'Fetch' and request_time is not null
      and connection_id in (select connection_id from readers)),
  pauses as (
    select connection_id, read_end as gap_start, lead(read_start) over (
      partition by connection_id order by read_start) as gap_end
    from reads qualify gap_end - gap_start >= {SHORTEST_NS}),
  last_reads as (
    select tenures.*, read_end
    from tenures asof join reads
      on tenures.connection_id = reads.connection_id and until >= read_start
    where next_since is not null),
  gaps as (
    select group_id, topic, partition, gap_start, gap_end
    from pauses join tenures on pauses.connection_id = tenures.connection_id
      and gap_start >= since and (until is null or gap_end <= until)
    union all
    select group_id, topic, partition, least(read_end, until), next_since
    from last_reads
    where next_since - least(read_end, until) >= {SHORTEST_NS}),
  ends as materialized (
    select topic, partition, epoch_ns(time) as end_time, end_offset from {ENDS}),
  begun as (
    select number, gaps.*, end_offset as first_end
    from (select number, gaps.* from gaps join spans
        on gaps.group_id = spans.group_id and gap_start < span_end and gap_end > span_start)
      as gaps asof left join ends
      on gaps.topic = ends.topic and gaps.partition = ends.partition and gap_start >= end_time),
  grown as (
    select begun.*, {not_negative("try(end_offset - first_end)")} as growth
    from begun asof left join ends
      on begun.topic = ends.topic and begun.partition = ends.partition and gap_end >= end_time)
  select number, count(distinct (topic, partition)) as partitions,
    max(gap_end - gap_start) / 1e6 as unread_ms, sum(growth) as lag_growth
  from grown group by all"""
"""SQL: the rest of the query of `interruptions`, which reads the rebalances as `spans`."""
