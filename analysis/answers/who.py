"""Who moves records: the partitions of Produce and Fetch requests, with all that tells their owner.

The group of a consumer is not in a Fetch: it travels on the connection to the group's coordinator.
What the two have in common is the client, so a Fetch is given the group that the same client id at
the same address commits that topic for; where it commits none of it, every group that it speaks of.
Clients of one host that share a client id cannot be told apart, and get the groups of all.
"""

from __future__ import annotations

from typing import Final

from analysis.answers.common import SOFTWARE, mapped, words

ACTIONS: Final = {"Produce": "produces", "Fetch": "consumes", "ShareFetch": "consumes"}
REPLICATES: Final = "replicates"
"""What a broker does with the Fetch of a follower."""

MEMBERSHIP: Final = (
    "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch",
    "ConsumerGroupHeartbeat", "StreamsGroupHeartbeat",
)  # fmt: skip
"""What a member asks its coordinator; others ask about groups that they are not in."""


def _groups(rows: str, key: str) -> str:
    """Names of the groups of each key, in the order in which they came, as one text."""
    return f"""
      select {key}, string_agg(group_id, ', ' order by nth) as names
      from (select {key}, group_id, min(nth) as nth from {rows} group by all) group by all"""


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
  members as (
    select client_ip, client_id, topics, group_id, nth from exchanges
    where api in {words(MEMBERSHIP)} and group_id != ''),
  committers as (
    select *, unnest(topics) as topic from members where client_id is not null),
  of_topic as ({_groups("committers", "client_ip, client_id, topic")}),
  of_client as ({_groups("members", "client_ip, client_id")})
  select acts.*, coalesce(
    group_id, case when action = 'consumes' then coalesce(of_topic.names, of_client.names) end
  ) as groups
  from acts
    left join of_topic on of_topic.client_ip = client and of_topic.client_id = acts.client_id
      and of_topic.topic = acts.topic
    left join of_client on of_client.client_ip = client
      and of_client.client_id is not distinct from acts.client_id)"""
"""SQL: rows of `partitions` of Produce, Fetch and ShareFetch, whose topic is known.

With action, client (its address), software, and groups: names by comma, null for what no group
reads. Needs `partitions`, `exchanges` and `connections`.
"""
