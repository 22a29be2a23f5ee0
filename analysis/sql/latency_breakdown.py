"""The parts of a latency: waiting in the queue, waiting by design (a poll), and the net latency.

Seven kinds of waiting are independent of the speed of the broker:

- Long polls. A Fetch waits up to max_wait_ms for min_bytes of records. A Fetch that got fewer
  waited for the whole latency, even if it ended with an error; one with a min_bytes of 0 does not
  wait. Any other Fetch waited until batches of min_bytes were readable; with the default of 1, the
  first batch of one of its partitions. If the capture contains the Produce of a batch, it was
  readable at the time of the response. Otherwise this is the timestamp of the batch, which another
  clock took, and which is earlier by the time that the producer kept the batch. A batch of a
  transaction whose marker is in the same response became readable when the marker was written.
- Followers. A consumer with a rack may fetch from a follower (KIP-392). It gets records when the
  follower knows that they are replicated, which is later than the response to the Produce by a
  Fetch of the follower or two. How much of such a latency was work is unknown.
- Controllers. The active controller of a KRaft quorum gathers records for up to
  controller.quorum.append.linger.ms (25 ms), and returns them to brokers when a majority has them
  (KIP-595). How much of the latency of a Fetch with such records was work is unknown.
- Fetches over a quota. Their response has no records, whether they waited for them or not
  (KIP-219). How much of such a latency was work is unknown.
- Long polls with an unknown max_wait_ms, as in a truncated request. How much of such a latency was
  work is unknown.
- Group barriers. JoinGroup and SyncGroup get responses when all members have joined (see `groups`).
  How much of their latency was work is unknown.
- The queue. A broker processes the requests of a connection one after the other: a request behind a
  long poll waits for its response, too. After a response with a throttle time, the broker reads no
  request of the connection until this time has passed (KIP-219).

The broker waits between the arrival of the request and its response, which the capture point sees
half a round trip earlier and later. The round trip is not a wait, so it is subtracted, up to that
of the handshake: acknowledgements of data may be late. Without a handshake, it is assumed to be 0.

The net latency is the rest: time on the network and in the broker.
"""

from __future__ import annotations

from typing import Final

from analysis.columns import Column
from analysis.kafka.normal import group_barriers, long_polls
from analysis.sql.context import ALL_CONNECTIONS, ALL_EXCHANGES, IS_SELECTED
from analysis.sql.expressions import client_waits_for_quota, literal, literals
from analysis.sql.intermediate import intermediate_table
from analysis.sql.round_trips import with_round_trips
from dissector.protocol.structures import METADATA_TOPIC

PARTS: Final = (
    Column("queue_ms", "double", "wait for earlier requests, and their throttle times", "ms"),
    Column("poll_ms", "double", "wait by design: for data, or for other group members", "ms"),
    Column("net_ms", "double", "latency excluding both waits", "ms"),
)
"""Columns of `exchanges_with_parts` besides those of `exchanges`."""

PART_NAMES: Final = tuple(column.name for column in PARTS)


def exchanges_with_parts() -> str:
    """SQL of the exchanges, each with the parts of its latency; needs `batches` and `connections`.

    Waits depend on all of these rows of the capture: see `analysis.sql.context`.

    queue_ms  the broker still processed earlier requests of the connection, or throttled it
    poll_ms   then it waited by design; the rest of the latency if it is unknown how much was work
    net_ms    the rest; null if it is unknown how much was work

    All are DOUBLE, in ms, and null without a latency, or without a time to compute the first.
    """
    return f"""(
    select exchanges.* exclude ({IS_SELECTED}), {", ".join(PART_NAMES)}
    from {ALL_EXCHANGES} as exchanges join {_LATENCY_PARTS} using (nth) where {IS_SELECTED})"""


_FORMAT: Final = "case when magic >= 2 then (magic, codec, timestamp_type) end"
"""SQL: what a broker may change, and the checksum with it (message.format.version, compression.type
and message.timestamp.type of the topic). Otherwise, it only sets fields before the checksum."""

_TIMED: Final = f"""
  with trips as (
    select connection_id, least(broker_rtt_ms, handshake_rtt_ms, shortest_ms) as trip_ms
    from {with_round_trips(ALL_CONNECTIONS)} where handshake_rtt_ms is not null)
  select exchanges.*,
    (least(coalesce(trip_ms, 0), greatest(latency_ms, 0)) * 5e5)::bigint as half_trip,
    epoch_ns(request_end_time) + half_trip as arrived,
    epoch_ns(response_time) - half_trip as replied
  from {ALL_EXCHANGES} as exchanges left join trips using (connection_id)"""
"""SQL: exchanges; when the broker received the request and sent the response, and half the round
trip between the capture point and the broker; ns."""

_READABLE: Final = f"""
  with responses as (
    select connection_id, correlation_id, request_time as time, replied,
      row(broker_ip, broker_port) as broker
    from timed where api = 'Produce' and replied is not null),
  produced as (
    select topic, partition, base_offset, crc, {_FORMAT} as format,
      min(replied) as written, arg_min(broker, replied) as leader
    from all_batches join responses using (connection_id, correlation_id, time)
    where api = 'Produce' and base_offset is not null group by all),
  -- Without Metadata, a Fetch may have the id of a topic that a Produce before version 13 names
  -- (KIP-516).
  named as (
    select fetched.topic as id, min(sent.topic) as name
    from all_batches as fetched join all_batches as sent using (partition, base_offset, crc)
    where fetched.api in ('Fetch', 'ShareFetch') and fetched.topic = fetched.topic_id
      and sent.api = 'Produce' and sent.topic_id is null
    group by all having count(distinct sent.topic) = 1)
  select connection_id, correlation_id, time as response_time, fetched.topic,
    fetched.partition, fetched.base_offset, leader, bytes,
    coalesce(written, epoch_ns(max_timestamp)) as written,
    -- In a transaction: when the marker after the batch was written.
    case when is_transactional and not is_control then
      min(case when is_control then epoch_ns(max_timestamp) end) over (
        partition by connection_id, correlation_id, time, fetched.topic, fetched.partition,
          producer_id
        order by fetched.base_offset rows between 1 following and unbounded following)
    end as ended
  from (select * replace (coalesce(name, topic) as topic), {_FORMAT} as format
      from all_batches left join named on topic = id) as fetched
    -- Another batch has this offset if a topic was created again, or is in several clusters.
    left join produced on fetched.topic = produced.topic
      and fetched.partition = produced.partition
      and fetched.base_offset = produced.base_offset
      and coalesce(fetched.crc = produced.crc or fetched.format != produced.format, true)
  where api in ('Fetch', 'ShareFetch')"""
"""SQL: batches in responses to Fetches, when each was written, and when its transaction ended."""

_FETCHED: Final = f"""
  with readable as ({_READABLE}),
  needed as (
    select connection_id, correlation_id, response_time, min_bytes from all_exchanges
    where api in ('Fetch', 'ShareFetch') and min_bytes > 1),
  firsts as (
    select connection_id, correlation_id, response_time,
      arg_min(greatest(written, coalesce(ended, written)), (coalesce(base_offset, -1), written))
        as written,
      arg_min(leader, (coalesce(base_offset, -1), written)) as leader
    from readable anti join needed using (connection_id, correlation_id, response_time)
    group by connection_id, correlation_id, response_time, topic, partition),
  in_order as (
    select connection_id, correlation_id, response_time, min_bytes, bytes, leader,
      max(greatest(written, coalesce(ended, written))) over (
        partition by connection_id, correlation_id, response_time, topic, partition
        order by coalesce(base_offset, -1), written) as written
    from readable join needed using (connection_id, correlation_id, response_time)),
  filled as (
    select *, sum(bytes) over (of_response order by written) as readable_bytes,
      -- A snap length may have cut the last batches.
      least(min_bytes, sum(bytes) over of_response) as needed_bytes
    from in_order
    window of_response as (partition by connection_id, correlation_id, response_time))
  select connection_id, correlation_id, response_time, min(written) as written,
    arg_min(leader, written) as leader
  from firsts group by all
  union all
  select connection_id, correlation_id, response_time, min(written) as written,
    arg_min(leader, written) as leader
  from filled where readable_bytes >= needed_bytes group by all"""
"""SQL: when the batches that each Fetch waited for were readable, and the leader of the first."""


def _queued() -> str:
    """SQL: requests that waited for earlier ones of their connection, and until when."""
    return f"""
      -- The time from which the broker reads other requests of the connection. Few columns, because
      -- they are sorted.
      with busy as (
        select nth, connection_id, request_end_time, arrived, replied + case
          when throttle_time_ms != 0 and {client_waits_for_quota()}
          then throttle_time_ms::bigint else 0 end * 1000000 as until
        from timed)
      select nth, max(until) over (
        partition by connection_id order by request_end_time, nth
        rows between unbounded preceding and 1 preceding) as busy_until
      from busy qualify busy_until > arrived"""


def _parts() -> str:
    """SQL of the number and the parts of each exchange of `all_exchanges`."""
    barriers = literals(group_barriers())
    return f"""
    with timed as ({_TIMED}),
    fetched as ({_FETCHED}),
    queued as ({_queued()}),
    queue_times as (
      select timed.nth, max_wait_ms, min_bytes, record_bytes,
        case when arrived is not null and replied is not null
          then greatest(least(coalesce(busy_until, arrived), replied) - arrived, 0) / 1e6
          end as queue_ms,
        latency_ms - queue_ms as own_ms, own_ms - half_trip / 5e5 as broker_ms,
        coalesce((written - arrived) / 1e6, 0) - queue_ms as unwritten_ms,
        coalesce(list_contains(topics, {literal(METADATA_TOPIC)}), false) as is_kraft,
        -- KRaft ignores min_bytes.
        min_bytes <= 0 and not is_kraft as returns_at_once,
        coalesce(case when client_rack != '' then leader != row(broker_ip, broker_port) end, false)
          or coalesce(api in {barriers}, false)
          or coalesce(api in {literals(long_polls())} and max_wait_ms is null, false)
          or coalesce(api = 'Fetch' and throttle_time_ms > 0, false)
            and coalesce(record_bytes, 0) = 0
          or is_kraft and coalesce(api = 'Fetch' and record_bytes > 0, false) as is_unknown
      from timed left join queued using (nth)
        left join fetched on timed.connection_id = fetched.connection_id
          and timed.correlation_id = fetched.correlation_id
          and coalesce(timed.response_time = fetched.response_time, true)),
    polled as (
      select *,
        case when own_ms is null or is_unknown then own_ms
          when max_wait_ms is null or returns_at_once then 0
          when coalesce(record_bytes, 0) < greatest(coalesce(min_bytes, 1), 1)
          then least(greatest(broker_ms, 0), broker_ms, max_wait_ms)
          else least(greatest(unwritten_ms, 0), broker_ms, max_wait_ms) end as poll_ms
      from queue_times)
    select nth, queue_ms, poll_ms,
      case when is_unknown then null else own_ms - poll_ms end as net_ms
    from polled"""


_LATENCY_PARTS: Final = intermediate_table("latency_parts", _parts)
