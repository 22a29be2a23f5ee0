"""Consumers without a committed offset that do not look for another one, for `recurring_errors`.

If a group has no committed offset for a partition, the consumer asks for the start or the end of
the log (ListOffsets) by auto.offset.reset. With auto.offset.reset=none, it raises an exception
instead (NoOffsetForPartitionException). No response has an error code. The application then closes
the consumer and starts a new one, or polls again, so that the consumer repeats OffsetFetch.
"""

from __future__ import annotations

from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import capital, client, listed, of_client, sql, within
from analysis.display.terminal import counted
from analysis.sql.expressions import first_packet, literal
from analysis.sql.query import Row

WITHOUT_OFFSET: Final = """(
  with missing as (
    select distinct client_id, topic, partition from partitions
      semi join (
        select topic, partition from partitions where api in ('Produce', 'ListOffsets', 'Fetch'))
        using (topic, partition)
      anti join (
        select client_id, topic, partition from partitions where api in ('ListOffsets', 'Fetch'))
        using (client_id, topic, partition)
    where api = 'OffsetFetch' and error_code = 0 and "offset" is null),
  requests as (
    select partitions.*, client_ip, request_packet, lead(time) over (
      partition by client_id, client_ip, topic, partition order by time) as next_time
    from partitions semi join missing using (client_id, topic, partition)
      join exchanges using (connection_id, correlation_id, client_id)
    where time = request_time and partitions.api = 'OffsetFetch')
  select client_id, client_ip, group_id, topic, partition, connection_id, time, response_time,
    request_packet
  from requests semi join memberships using (client_id, group_id)
    join (select connection_id, case when closed is not null then last_time end as end_time
      from connections) using (connection_id)
  where error_code = 0 and "offset" is null
    and epoch_ns(least(next_time, end_time)) - epoch_ns(response_time) < 5e9)"""
"""SQL: partitions without a committed offset that a group member never reads, although the capture
has requests for them: the member sends OffsetFetch again or closes its connection within seconds. A
member that cannot reach a leader waits longer (default.api.timeout.ms)."""

_ROWS: Final = f"""
  select client_id, group_id, any_value(topic order by time) as topic,
    count(distinct (connection_id, time)) as responses,
    list(distinct topic || '-' || partition order by topic || '-' || partition) as partitions,
    {first_packet("time")} as first_packet, min(time) as first_time, max(response_time) as last_time
  from {WITHOUT_OFFSET} group by client_id, group_id order by responses desc, client_id, group_id"""


def without_offset(case: Case, least: float) -> list[Row]:
    """The clients and groups with at least this number of responses without an offset."""
    return [row for row in case.rows(_ROWS) if row["responses"] >= least]


def without_offset_finding(row: Row) -> Finding:
    """The finding for a row of `without_offset`."""
    return Finding(
        severity="critical" if row["responses"] >= 10 else "warning",
        **of_client(row, "client_id group_id topic"),
        sentence=f"{capital(client(row['client_id']))} does not start to read, because group "
        f"`{row['group_id']}` has no committed offset",
        evidence=f"{counted(row['responses'], 'OffsetFetch response')}{within(row)} "
        f"{'have' if row['responses'] > 1 else 'has'} no offset for "
        f"{listed(row['partitions'])}. The client sent neither ListOffsets nor Fetch for these "
        "partitions: it closed its connection, or sent OffsetFetch again.",
        cause="auto.offset.reset is none, and the group never committed an offset, or its offsets "
        "expired",
        side="client",
        setting="auto.offset.reset",
        change="Set auto.offset.reset to earliest or latest, or set the offsets of the group "
        "(kafka-consumer-groups.sh --reset-offsets). If the group had offsets, compare the time "
        "without members with offsets.retention.minutes of the broker (7 days by default).",
        reference="KIP-211; Kafka documentation: Consumer Configs, auto.offset.reset",
        command=sql(f"""
          select client_id, group_id, topic, partition, count(*) as responses from partitions
          where api = 'OffsetFetch' and error_code = 0 and partitions.offset is null
            and client_id = {literal(row["client_id"])} and group_id = {literal(row["group_id"])}
          group by all"""),
        requests=row["responses"],
    )  # fmt: skip
