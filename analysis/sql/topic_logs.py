"""Logs of topics with the same name: their offsets are not comparable.

A topic that was deleted and created again has a new id (KIP-516), and its offsets begin at 0 again.
Topics of the same name in several clusters have different ids, too. A row without an id, of an
older version of its API, belongs to the log of the id that was seen last. After an error of a
broker that does not know the topic, it belongs to the log of the next id.

Without ids, the log of a partition begins again if a Produce gets offset 0 after a larger one. Its
request is earlier than any response with records of the new log.
"""

from __future__ import annotations

from typing import Final

from analysis.sql.context import ALL_PARTITIONS
from analysis.sql.intermediate import intermediate_table

_UNKNOWN: Final = "coalesce(error_code in (3, 100, 103), false)"
"""SQL: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID or INCONSISTENT_TOPIC_ID."""
_OFFSETS: Final = {"batches": "base_offset"}
"""The column with the first offset of a Produce, if it is not `offset`."""


def with_several_ids(table: str) -> str:
    """SQL: topics with several ids in a table."""
    query = f"select topic from {table} group by topic having min(topic_id) != max(topic_id)"
    return intermediate_table(f"topics_with_several_ids of {table}", query)


def _restarts(table: str) -> str:
    """SQL: the times at which the log of a partition begins again, numbered from 1."""
    query = f"""
      select topic, partition, time as since,
        count(*) over (partition by topic, partition order by time) as restart
      from (
        select topic, partition, time, first_offset, lag(first_offset) over (
          partition by topic, partition order by time, nth) as previous
        from (select *, {_OFFSETS.get(table, '"offset"')} as first_offset from {table})
        where api = 'Produce' and error_code = 0 and first_offset is not null)
      where first_offset = 0 and previous > 0"""
    return intermediate_table(f"restarts of {table}", query)


def with_log(
    rows: str, time: str = "coalesce(response_time, time)", table: str = ALL_PARTITIONS
) -> str:
    """SQL: rows with the id of their topic as `log`; for topics with one id, the number of restarts
    of the partition, which is empty if there are none.

    `rows`: of `partitions` or `batches`. `time`: SQL that orders them. `table`: the rows that show
    the logs, whichever of them a filter selects.
    """
    several, restarts = with_several_ids(table), _restarts(table)
    # The rows of most topics, which have one log, are not sorted: half of the time.
    return f"""(
      with single as (from {rows} anti join {several} using (topic))
      select *, '' as log from single anti join {restarts} using (topic)
      union all by name
      select again.*, coalesce(restart::varchar, '') as log
      from (from single semi join {restarts} using (topic)) as again
        asof left join {restarts} as restarts
          on again.topic = restarts.topic and again.partition = restarts.partition
            and {time} >= since
      union all by name
      select * exclude (known_id), coalesce(topic_id,
        nullif(last_value(coalesce(known_id, case when {_UNKNOWN} then '' end) ignore nulls)
          over earlier, ''),
        first_value(known_id ignore nulls) over (partition by topic order by {time}
          rows between current row and unbounded following),
        last_value(known_id ignore nulls) over earlier) as log
      from (
        select *, case when not {_UNKNOWN} then topic_id end as known_id
        from {rows} semi join {several} using (topic))
      window earlier as (partition by topic order by {time}))"""
