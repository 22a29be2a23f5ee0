"""Who moves records: the partitions of Produce and Fetch requests, with all that tells their owner.

The group of a consumer is not in a Fetch: it travels on the connection to the group's coordinator.
What the two have in common is the client, so a Fetch is given the group that the same client id at
the same address commits that topic for; where it commits none of it, every group that it speaks of.
Clients of one host that share a client id cannot be told apart, and get the groups of all.
"""

from __future__ import annotations

from typing import Final

import pandas as pd

from analysis.answers.common import Tables, software

ACTIONS: Final = {"Produce": "produces", "Fetch": "consumes", "ShareFetch": "consumes"}
REPLICATES: Final = "replicates"
"""What a broker does with the Fetch of a follower."""

MEMBERSHIP: Final = (
    "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch",
    "ConsumerGroupHeartbeat", "StreamsGroupHeartbeat",
)  # fmt: skip
"""What a member asks its coordinator; others ask about groups that they are not in."""

_CLIENT: Final = ["client_ip", "client_id"]


def movers(tables: Tables) -> pd.DataFrame:
    """Rows of `partitions` of Produce, Fetch and ShareFetch, whose topic is known.

    With action, client_ip, software, and groups: names by comma, missing for what no group reads.
    Needs `partitions`, `exchanges` and `connections`.
    """
    rows = tables["partitions"]
    rows = rows[rows["api"].isin(ACTIONS) & rows["topic"].notna()]
    ends = tables["connections"].set_index("connection_id")["client_ip"]
    connection = rows["connection_id"]
    # Since Fetch 15 a follower that ends its session does not name itself any more (KIP-903).
    follows = connection.isin(connection[rows["replica_id"].fillna(-1) >= 0])
    action = rows["api"].map(ACTIONS).mask(follows, REPLICATES)
    rows = rows.assign(
        action=action.astype("str"),
        client_ip=connection.map(ends).astype("str"),
        software=connection.map(software(tables)).astype("str"),
    )
    by_topic, by_client = _groups(tables)
    keys = rows[[*_CLIENT, "topic"]]
    groups = keys.merge(by_topic, how="left", on=[*_CLIENT, "topic"])["groups"]
    groups = groups.fillna(keys.merge(by_client, how="left", on=_CLIENT)["groups"])
    groups = groups.set_axis(rows.index).where(action == ACTIONS["Fetch"])
    return rows.assign(groups=rows["group_id"].fillna(groups).astype("str"))


def _groups(tables: Tables) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Groups of each client and topic, and of each client: its key, and groups as text."""
    rows = tables["exchanges"]
    rows = rows[rows["api"].isin(MEMBERSHIP) & (rows["group_id"].fillna("") != "")]
    rows = rows[[*_CLIENT, "topics", "group_id"]]
    topics = rows.explode("topics").dropna().rename(columns={"topics": "topic"})
    return _joined(topics.astype({"topic": "str"}), [*_CLIENT, "topic"]), _joined(rows, _CLIENT)


def _joined(rows: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    rows = rows[[*key, "group_id"]].drop_duplicates()
    found = rows.groupby(key, sort=False, dropna=False)["group_id"].agg(", ".join)
    return found.astype("str").rename("groups").reset_index()
