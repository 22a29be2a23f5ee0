"""Who moves records: the partitions of Produce and Fetch requests, with their client and group.

A Fetch does not name its group. A connection that speaks of groups reads for these. Most consumers
speak with the coordinator of their group on another connection. So a connection that speaks of no
group reads for a group if one with the same client id and address, open at the same time, names the
group together with the partition (OffsetCommit, OffsetFetch). Where a group never names a
partition, the same client id and address have to do. Clients of one host that share a client id and
read the same partitions at the same time cannot be told apart.
"""

from __future__ import annotations

from typing import Final

from analysis.sql.expressions import SOFTWARE, mapped, words

ACTIONS: Final = {"Produce": "produces", "Fetch": "consumes", "ShareFetch": "consumes"}
REPLICATES: Final = "replicates"
"""What a broker does with the Fetch of a follower."""

MEMBERSHIP: Final = (
    "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch",
    "ConsumerGroupHeartbeat", "StreamsGroupHeartbeat",
)  # fmt: skip
"""What a member asks its coordinator; others ask about groups that they are not in."""


READS_FOR: Final = f"""(
  with spans as (
    select connection_id, client_ip, client_id, min(time) as since, max(time) as until
    from partitions join (
      select connection_id, any_value(client_ip) as client_ip from exchanges group by all)
      using (connection_id)
    where api in ('Fetch', 'ShareFetch') group by all),
  reads as (
    select distinct connection_id, topic, partition from partitions
    where api in ('Fetch', 'ShareFetch') and topic is not null),
  members as (
    select connection_id, client_ip, client_id, group_id, min(nth) as nth,
      min(request_time) as since, max(coalesce(response_time, request_time)) as until
    from exchanges where api in {words(MEMBERSHIP)} and group_id != '' group by all),
  named as (
    select distinct connection_id, group_id, topic, partition from partitions
    where api in {words(MEMBERSHIP)} and group_id is not null),
  own_topics as (
    select distinct connection_id, unnest(topics) as topic, group_id from exchanges
    where api in {words(MEMBERSHIP)} and group_id != ''),
  own as (
    select connection_id, topic, partition, members.group_id, nth, own_topics.topic is null as rank
    from reads join spans using (connection_id)
      join members using (connection_id, client_ip)
      left join own_topics using (connection_id, topic, group_id)),
  near as (
    select reads.*, members.group_id, members.nth, named.topic is null as rank
    from reads join spans using (connection_id)
      join members on spans.client_ip = members.client_ip
        and spans.client_id is not distinct from members.client_id
        and spans.since <= members.until and members.since <= spans.until
      left join named on members.connection_id = named.connection_id
        and members.group_id = named.group_id and reads.topic = named.topic
        and reads.partition = named.partition
    where reads.connection_id not in (select connection_id from members)
      and (named.topic is not null or members.group_id not in (select group_id from named))),
  found as (from own union all by name from near)
  select connection_id, topic, partition, group_id, min(nth) as nth from (
    from found
    qualify rank = min(rank) over (partition by connection_id, topic, partition))
  group by all)"""
"""SQL: the groups that connections read partitions for; needs `partitions` and `exchanges`."""

MOVERS: Final = f"""(
  with moves as (from partitions where api in {words(ACTIONS)} and topic is not null),
  -- Since Fetch 15 a follower that ends its session does not name itself any more (KIP-903).
  followers as (select connection_id from moves where replica_id >= 0),
  acts as (
    select moves.*, client_ip as client, told_software as software,
      case when connection_id in (from followers) then '{REPLICATES}'
        else {mapped("api", ACTIONS)} end as action
    from moves left join connections using (connection_id)
      left join {SOFTWARE} using (connection_id)),
  readers as (
    select connection_id, topic, partition, string_agg(group_id, ', ' order by nth) as names
    from {READS_FOR} group by all)
  select acts.*, coalesce(group_id, case when action = 'consumes' then names end) as groups
  from acts left join readers using (connection_id, topic, partition))"""
"""SQL: rows of `partitions` of Produce, Fetch and ShareFetch, whose topic is known.

With action, client (its address), software, and groups: names by comma, null for what no group
reads. Needs `partitions`, `exchanges` and `connections`.
"""
