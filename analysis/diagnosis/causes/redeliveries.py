"""Records that a share group gets again and again (KIP-932), for the rule `growing_lag`.

A broker delivers a record again if a member releases it, or if the lock of a member expires. After
`group.share.delivery.count.limit` deliveries, it archives the record: no member gets it any more.

A response contains whole batches, of which the member gets some records. If ten responses contain a
batch of two records, one of these was delivered at least five times.
"""

from __future__ import annotations

from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import cells, known, span_of, sql, trace, verb
from analysis.display.terminal import counted
from analysis.sql.expressions import first_packet, literal
from analysis.sql.query import Row

_DELIVERED: Final = """
  select batches.*, group_id, request_packet
  from batches join exchanges using (connection_id, correlation_id)
  where batches.api = 'ShareFetch' and response_time = time and batches.record_count > 0"""


def redeliveries(case: Case, deliveries: float) -> list[Row]:
    """By share group and topic: batches with a record that was delivered this often, and the first
    of those with the most deliveries."""
    if not any(row["api"] == "ShareFetch" for row in case.answer("latency --by broker,api")):
        return []
    return case.rows(f"""
      with delivered as ({_DELIVERED}),
      repeated as (
        select group_id, topic, partition, base_offset, count(*) as responses,
          ceil(count(*) / record_count)::bigint as deliveries,
          list(distinct client_id order by client_id) as client_ids,
          {first_packet("time")} as first_packet, min(time) as first_time, max(time) as last_time
        from delivered group by group_id, topic, partition, base_offset, record_count
        having deliveries >= {deliveries}),
      first as (
        from repeated qualify row_number() over (
          partition by group_id, topic order by deliveries desc, partition, base_offset) = 1)
      select first.group_id, first.topic, first.partition, first.base_offset,
        count(*) as batches, min(repeated.deliveries) as least,
        sum(repeated.responses)::bigint as responses,
        flatten(list(repeated.client_ids order by repeated.first_time)) as client_ids,
        arg_min(repeated.first_packet, (repeated.first_time, repeated.first_packet))
          as first_packet,
        min(repeated.first_time) as first_time, max(repeated.last_time) as last_time
      from first join repeated using (group_id, topic) group by all order by batches desc""")


def redelivery_finding(row: Row) -> Finding:
    """The finding for a row of `redeliveries`."""
    batches, topic, offset = row["batches"], row["topic"], row["base_offset"]
    return Finding(
        severity="warning",
        subject=f"group `{row['group_id']}`",
        clients=known(row["client_ids"]),
        sentence=f"Share group `{row['group_id']}` gets records of topic `{topic}` again and again",
        evidence=f"{counted(batches, 'batch')} {verb(batches, 'have')} a record that members got "
        f"at least {row['least']:,} times; the first batch has offset {offset:,} of partition "
        f"{row['partition']}.",
        numbers=cells(row, "group_id topic partition base_offset"),
        cause="the members release these records, or do not acknowledge them before their lock "
        "expires. After group.share.delivery.count.limit deliveries (5 by default), the broker "
        "archives a record, so that it is never processed",
        side="client",
        change="Look at the log of the application, and at the record: "
        f"`{trace(row, offset)}`. Correct the application, or reject such records "
        "(AcknowledgeType.REJECT) and send them to another topic. Raise "
        "share.delivery.count.limit or share.record.lock.duration.ms of the group if a later "
        "attempt succeeds.",
        reference="KIP-932",
        command=sql(f"""
          select group_id, batches.topic, batches.partition, base_offset, count(*) as responses
          from batches join exchanges using (connection_id, correlation_id)
          where batches.api = 'ShareFetch' and response_time = time
            and group_id = {literal(row["group_id"])}
            and batches.topic = {literal(topic)} group by all order by responses desc"""),
        requests=row["responses"],
        **span_of([row]),
    )  # fmt: skip
