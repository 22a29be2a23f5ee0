"""Logs of topics with the same name: their offsets are not comparable.

A topic that was deleted and created again has a new id (KIP-516), and its offsets begin at 0 again.
Topics of the same name in several clusters have different ids, too. A row without an id, of an
older version of its API, belongs to the log of the id that was seen last. After an error of a
broker that does not know the topic, it belongs to the log of the next id.
"""

from __future__ import annotations

from typing import Final

_UNKNOWN: Final = "coalesce(error_code in (3, 100, 103), false)"
"""SQL: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID or INCONSISTENT_TOPIC_ID."""


def with_several_ids(table: str) -> str:
    """SQL: topics with several ids in a table."""
    return f"""(
      select topic from {table} group by topic having min(topic_id) != max(topic_id))"""


def with_log(rows: str, time: str, table: str = "partitions") -> str:
    """SQL: rows with the id of their topic as `log`, which is empty for topics with one id.

    `rows`: of `partitions` or `batches`. `time`: the column that orders them. `table`: see
    `with_several_ids`.
    """
    several = with_several_ids(table)
    return f"""(
      select *, '' as log from {rows} anti join {several} using (topic)
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
