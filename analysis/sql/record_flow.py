"""Record flow: the clients that produce and consume each partition, and their groups.

A Fetch does not name its group. A connection with requests of one group reads for it. One with
requests of several groups is that of a proxy or a monitoring tool: it reads a topic for those that
name the topic. But most consumers talk to the coordinator of their group on another connection. A
connection without group requests therefore reads for a group if a connection with the same client
id and address, open at the same time, names the group together with the partition (OffsetCommit,
OffsetFetch). If a group never names a partition, the same client id and address are enough. Clients
on one host that share a client id and read the same partitions at the same time cannot be
distinguished.
"""

from __future__ import annotations

from typing import Final

from analysis.sql.expressions import SOFTWARE, by_api, literals
from analysis.sql.intermediate import intermediate_table

ACTIONS: Final = {"Produce": "produces", "Fetch": "consumes", "ShareFetch": "consumes"}
REPLICATES: Final = "replicates"
"""The action of a follower that fetches from a leader."""

MEMBERSHIP: Final = (
    "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch",
    "ConsumerGroupHeartbeat", "StreamsGroupHeartbeat",
)  # fmt: skip
"""Requests of a member to its coordinator. Other group requests may come from non-members."""


GROUPS_OF_READERS: Final = intermediate_table("groups_of_readers", f"""
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
    from exchanges where api in {literals(MEMBERSHIP)} and group_id != '' group by all),
  named as (
    select distinct connection_id, group_id, topic, partition from partitions
    where api in {literals(MEMBERSHIP)} and group_id is not null),
  own_topics as (
    select distinct connection_id, unnest(topics) as topic, group_id from exchanges
    where api in {literals(MEMBERSHIP)} and group_id != ''),
  own as (
    select connection_id, topic, partition, group_id, nth, false as rank
    from reads join own_topics using (connection_id, topic)
      join members using (connection_id, group_id)
    union all
    select connection_id, topic, partition, group_id, nth, true as rank
    from reads join (
      select connection_id, min(group_id) as group_id, min(nth) as nth from members
      group by connection_id having min(group_id) = max(group_id)) using (connection_id)),
  near as (
    select reads.*, members.group_id, members.nth, named.topic is null as rank
    from reads anti join members using (connection_id) join spans using (connection_id)
      join members on spans.client_ip = members.client_ip
        and spans.client_id is not distinct from members.client_id
        and spans.since <= members.until and members.since <= spans.until
      left join named on members.connection_id = named.connection_id
        and members.group_id = named.group_id and reads.topic = named.topic
        and reads.partition = named.partition
    where named.topic is not null or members.group_id not in (select group_id from named)),
  candidates as (from own union all by name from near)
  select connection_id, topic, partition, group_id, min(nth) as nth from (
    from candidates
    qualify rank = min(rank) over (partition by connection_id, topic, partition))
  group by all""")  # fmt: skip
"""SQL: the groups for which each connection reads each partition.

Needs `partitions` and `exchanges`.
"""

RECORD_FLOW: Final = f"""(
  with moves as (from partitions where api in {literals(ACTIONS)} and topic is not null),
  -- Since Fetch 15, a follower that ends its session has no replica id (KIP-903).
  followers as (select connection_id from moves where replica_id >= 0),
  acts as (
    select moves.*, client_ip as client, client_software as software,
      case when connection_id in (from followers) then '{REPLICATES}'
        else {by_api(ACTIONS)} end as action
    from moves left join connections using (connection_id)
      left join {SOFTWARE} using (connection_id)),
  readers as (
    select connection_id, topic, partition, string_agg(group_id, ', ' order by nth) as names
    from {GROUPS_OF_READERS} group by all)
  select acts.*, coalesce(group_id, case when action = 'consumes' then names end) as groups
  from acts left join readers using (connection_id, topic, partition))"""
"""SQL: rows of `partitions` of Produce, Fetch and ShareFetch with a known topic.

Additional columns: action, client (its address), software, and groups: names separated by commas;
null if no group reads the partition. Needs `partitions`, `exchanges` and `connections`.
"""
