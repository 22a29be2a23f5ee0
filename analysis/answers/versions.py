"""Versions: who speaks versions that Kafka 4.0 removed, and what would break for them (KIP-896).

A client and a broker speak the newest version that both know. What is seen with a broker of 3.x is
thus the client's newest, and where Kafka 4.0 has it no more, the client cannot do that with it;
with a broker that is itself as old as the client, the client may know more than it shows.

`REMOVED` is what brokers of Kafka 4 tell in their own ApiVersions answers, but for Produce: they
list it from version 0, since librdkafka would not start otherwise (KAFKA-18659), and take it from
version 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from analysis.answers.asking import Tables, asking
from analysis.answers.common import columns_of, counted, mapped, rows_by, shaped, words
from dissector.tables import EXCHANGES, TIME, TableColumn

if TYPE_CHECKING:
    import pandas as pd

COLUMNS: Final = (
    *columns_of(EXCHANGES, "client_id"),
    TableColumn("client", pa.string(), "address of the client"),
    TableColumn("software", pa.string(), "name and version of its software, if it tells"),
    *columns_of(EXCHANGES, "api", "api_version"),
    TableColumn("kept_since", pa.int16(), "first version that Kafka 4.0 has; null for none"),
    TableColumn("breaks", pa.string(), "what the client could do no more"),
    TableColumn("requests", pa.int64(), "requests in that version"),
    TableColumn("first_time", TIME, "first of the requests"),
    TableColumn("last_time", TIME, "last of the requests"),
)

REMOVED: Final[Mapping[str, tuple[int | None, str]]] = MappingProxyType(
    {
        "Produce": (3, "cannot produce"),
        "Fetch": (4, "cannot consume"),
        "ListOffsets": (1, "cannot find the first or last offset of a partition"),
        "LeaderAndIsr": (None, "brokers with ZooKeeper are no more"),
        "StopReplica": (None, "brokers with ZooKeeper are no more"),
        "UpdateMetadata": (None, "brokers with ZooKeeper are no more"),
        "ControlledShutdown": (None, "brokers with ZooKeeper are no more"),
        "OffsetCommit": (2, "cannot commit offsets"),
        "OffsetFetch": (1, "cannot go on where its group stopped"),
        "CreateTopics": (2, "cannot create topics"),
        "DeleteTopics": (1, "cannot delete topics"),
        "OffsetForLeaderEpoch": (2, "cannot tell records that a leader lost"),
        "WriteTxnMarkers": (1, "cannot end transactions"),
        "DescribeAcls": (1, "cannot list ACLs"),
        "CreateAcls": (1, "cannot create ACLs"),
        "DeleteAcls": (1, "cannot delete ACLs"),
        "DescribeConfigs": (1, "cannot read configurations"),
        "AlterReplicaLogDirs": (1, "cannot move replicas between disks"),
        "DescribeLogDirs": (1, "cannot see what is on the disks"),
        "CreateDelegationToken": (1, "cannot create delegation tokens"),
        "RenewDelegationToken": (1, "cannot renew delegation tokens"),
        "ExpireDelegationToken": (1, "cannot expire delegation tokens"),
        "DescribeDelegationToken": (1, "cannot list delegation tokens"),
        "AlterPartition": (2, "cannot change the replicas in sync"),
    }
)
"""APIs of which Kafka 4.0 removed versions: the first that is left, None for none, and the loss."""

_KEY: Final = ("client_id", "client", "software", "api", "api_version")


def versions(tables: Tables) -> pd.DataFrame:
    """Requests in versions that Kafka 4.0 removed: a row for each client, API and version.

    The columns are `COLUMNS`, in order of client and API.
    """
    query = counted(
        rows_by(_GONE, EXCHANGES.schema.names, _KEY),
        _KEY,
        ", ".join(_KEY),
        kept_since="any_value(kept_since)",
        breaks=mapped("api", {api: breaks for api, (_, breaks) in REMOVED.items()}),
        requests="count(*)",
        first_time="min(request_time)",
        last_time="max(request_time)",
    )
    with asking(tables, ("exchanges", "connections")) as ask:
        return shaped(ask(query), COLUMNS)


_GONE: Final = f"""(
  select *, {mapped("api", {api: since for api, (since, _) in REMOVED.items()})} as kept_since
  from exchanges
  where api in {words(REMOVED)} and coalesce(api_version < kept_since, true))"""
"""SQL: the exchanges in versions that were removed."""
