"""Settings of clients, by their names in the Java client: seen in requests, or inferred.

Seen values are fields of requests and batches. Inferred values are computed from the behaviour of a
client: the docstring of the answer `clients` describes how.
"""

from __future__ import annotations

from typing import Final

from analysis.sql.expressions import (
    EXCHANGE,
    SOFTWARE,
    first_record_age_ms,
    literal,
    literals,
    ms_between,
    natural,
)
from analysis.sql.record_flow import MEMBERSHIP


def _listed(rows: str, **settings: str) -> str:
    """SQL: a row for each setting of rows with client_id, connection_id and weight.

    `settings`: SQL of each value by name, with underscores for the dots.
    """
    pairs = (
        f"{{'setting': {literal(name.replace('_', '.'))}, 'value': ({value})::varchar}}"
        for name, value in settings.items()
    )
    return f"""
      select client_id, connection_id, unnest([{", ".join(pairs)}], recursive := true), weight
      from {rows}"""


_FOLLOWERS: Final = "(select connection_id from partitions where replica_id >= 0)"
"""SQL: connections of brokers that replicate; their settings have other names."""


def _unless_follower(column: str) -> str:
    is_reader = f"api in ('Fetch', 'ShareFetch') and connection_id not in {_FOLLOWERS}"
    return f"case when {is_reader} then {column} end"


_CODECS: Final = f"""(
  with produced as (
    select batches.client_id, connection_id, client_ip, codec, client_software
    from batches join connections using (connection_id) left join {SOFTWARE} using (connection_id)
    where api = 'Produce')
  select client_id, min(connection_id) as connection_id, codec, count(*) as weight,
    count(*) over client as codecs,
    codec != 'none' or coalesce(bool_or(
      bool_or(starts_with(client_software, 'apache-kafka-java'))) over client, false) as is_certain
  from produced group by client_id, client_ip, codec
  window client as (partition by client_id, client_ip))"""
"""SQL: the codecs of each client. Only the Java client compresses batches that do not shrink: if
those of librdkafka, franz-go or kafka-python have no codec, compression.type may have any value."""

_LONGEST_LINGER_MS: Final = 120_000
"""The default of delivery.timeout.ms, which linger.ms must not exceed (KIP-91): an older record has
another timestamp than its creation time, or the clocks differ."""

_BATCHES: Final = f"""(
  with produced as (
    select batches.client_id, batches.connection_id, client_ip, bytes, record_count,
      correlation_id, batches.time, batches.nth,
      {first_record_age_ms("batches.time")} as age_ms
    from batches join connections using (connection_id) where api = 'Produce'),
  sized as (
    select *, max(case when record_count > 1 then bytes end) over (
      partition by client_id, client_ip) as most,
      record_count > 1 and bytes > 0.9 * most as is_full,
      row_number() over (partition by {EXCHANGE} order by age_ms desc nulls last, nth) = 1
        as is_oldest
    from produced)
  select client_id, min(connection_id) as connection_id, max(most) as most, count(*) as weight,
    case when 2 * count(*) filter (is_oldest and not is_full) >= count(*) filter (is_oldest)
      then quantile_cont(age_ms, 0.25) filter (is_oldest and not is_full) end as age_ms
  from sized group by client_id, client_ip)"""
"""SQL: the size of the largest batch of each client, and the age of the first record of the oldest
batch of requests. If linger.ms has expired for one batch, Java clients and kafka-python send those
of other partitions of the same broker with it (RecordAccumulator.drain)."""

_HEARTBEATS: Final = f"""(
  with beats as (
    select client_id, connection_id, {
    ms_between("lag(time) over (partition by connection_id, member_id order by time, nth)", "time")
} as gap_ms
    from memberships where api = 'Heartbeat')
  select client_id, connection_id, median(gap_ms) as gap_ms, count(*) as weight
  from beats where gap_ms is not null group by all)"""
"""SQL: the time between the Heartbeats of members."""

_DESCRIPTIONS: Final = (
    "ListGroups", "DescribeGroups", "ConsumerGroupDescribe", "ShareGroupDescribe",
    "StreamsGroupDescribe",
)  # fmt: skip
_MEMBER_REQUESTS: Final = (*MEMBERSHIP, "ShareGroupHeartbeat", "ShareFetch")
_ADMINISTRATORS: Final = f"""(
  select client_ip, coalesce(client_id, '') from exchanges
  where api in {literals(_DESCRIPTIONS)})"""
"""SQL: clients that describe groups. They also read and reset offsets of groups."""
_IS_IN_GROUP: Final = f"""api in {literals(_MEMBER_REQUESTS)} and not (
  api in ('OffsetCommit', 'OffsetFetch')
  and (client_ip, coalesce(client_id, '')) in {_ADMINISTRATORS})"""

_MEMBERS: Final = f"""(
  select memberships.*,
    coalesce(bool_or(protocol in ('default', 'compatible', 'sessioned')) over (
      partition by group_id), false) as is_worker,
    coalesce(starts_with(client_software, 'apache-kafka-java')
      or starts_with(client_software, 'kafka-python') or contains(client_software, 'rdkafka'),
      false) and not is_worker as polls
  from memberships left join {SOFTWARE} using (connection_id))"""
"""SQL: requests of members. `is_worker`: of Kafka Connect, by its protocols (KIP-415, KIP-507).
`polls`: its rebalance timeout is max.poll.interval.ms (KIP-62). aiokafka, franz-go, KafkaJS and
Sarama have a setting of its own for it, as Connect has: rebalance.timeout.ms."""

_SEEN: Final = (
    _listed(
        f"""(
        select client_id, connection_id, api, acks, max_wait_ms, min_bytes, max_bytes,
          isolation_level, client_rack, case when {_IS_IN_GROUP} then group_id end as group_id,
          transactional_id, count(*) as weight
        from exchanges group by all)""",
        acks="case acks when -1 then 'all' else acks::varchar end",
        fetch_max_wait_ms=_unless_follower("max_wait_ms"),
        fetch_min_bytes=_unless_follower("min_bytes"),
        fetch_max_bytes=_unless_follower("max_bytes"),
        isolation_level=_unless_follower("isolation_level"),
        client_rack="client_rack",
        group_id="nullif(group_id, '')",
        transactional_id="case when api in ('InitProducerId', 'Produce', 'EndTxn') "
        "then nullif(transactional_id, '') end",
    ),
    _listed(
        """(
        select client_id, connection_id, producer_id is not null as idempotent,
          count(*) as weight
        from batches where api = 'Produce' group by all)""",
        enable_idempotence="idempotent",
    ),
    _listed(_CODECS, compression_type="case when is_certain then codec end"),
    _listed(
        f"""(
        select client_id, connection_id, max_bytes, count(*) as weight from partitions
        where api = 'Fetch' and connection_id not in {_FOLLOWERS} group by all)""",
        max_partition_fetch_bytes="max_bytes",
    ),
    _listed(
        f"""(
        select client_id, connection_id, group_type, protocol, group_instance_id, is_worker, polls,
          session_timeout_ms, rebalance_timeout_ms, count(*) as weight
        from {_MEMBERS} group by all)""",
        group_protocol="case when group_type in ('classic', 'consumer') and not is_worker "
        "then group_type end",
        partition_assignment_strategy="case when group_type = 'classic' and not is_worker "
        "then protocol end",
        connect_protocol="case when is_worker then replace(protocol, 'default', 'eager') end",
        group_remote_assignor="case when group_type = 'consumer' then protocol end",
        group_instance_id="group_instance_id",
        session_timeout_ms="session_timeout_ms",
        max_poll_interval_ms="case when polls then rebalance_timeout_ms end",
        rebalance_timeout_ms="case when not polls then rebalance_timeout_ms end",
    ),
    _listed(
        """(
        select client_id, connection_id, transaction_timeout_ms, count(*) as weight
        from transactions where transactional_id is not null group by all)""",
        transaction_timeout_ms="transaction_timeout_ms",
    ),
)

_INFERRED: Final = (
    _listed(_CODECS, compression_type="case when not is_certain and codecs = 1 then codec end"),
    _listed(
        _BATCHES,
        batch_size="'at least ' || most",
        linger_ms=f"case when age_ms <= {_LONGEST_LINGER_MS} "
        "then 'about ' || round(age_ms)::bigint end",
    ),
    _listed(
        """(
        select client_id, min(connection_id) as connection_id, max(in_flight) as most,
          count(*) as weight
        from exchanges where api = 'Produce' group by client_id, client_ip)""",
        max_in_flight_requests_per_connection="case when most > 1 then 'at least ' || most end",
    ),
    _listed(_HEARTBEATS, heartbeat_interval_ms="'about ' || round(gap_ms)::bigint"),
)

SETTINGS: Final = f"""(
  with collected as (
    select *, 'seen' as evidence from ({" union all ".join(_SEEN)})
    union all select *, 'inferred' from ({" union all ".join(_INFERRED)})),
  counted as (
    select client_id, client_ip as client, setting, value, evidence, sum(weight) as weight
    from collected join connections using (connection_id) where value is not null group by all)
  select client_id, client, setting, evidence,
    string_agg(value, ', ' order by weight desc, {natural("value")}) as value
  from counted group by all)"""
"""SQL: a row for each setting of each client: client_id, client, setting, value, evidence.

Needs `exchanges`, `connections`, `batches`, `partitions`, `memberships` and `transactions`.
"""
