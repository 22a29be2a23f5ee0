"""Which connections belong to which cluster of a capture.

The connection of a message with a cluster id belongs to that cluster (table `clusters`). Most
connections have none, such as those of a librdkafka client to the coordinator. They belong to the
cluster of the same broker address and port; or else to that whose responses contain this address
and port; or else to that of the same address with any port, which may be a controller. If these are
brokers of several clusters, or of none, the cluster of the connection is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from analysis.input.clusters import CLUSTERS, ENDPOINTS, listed, unknown_cluster
from analysis.names.addresses import Names, endpoint
from analysis.sql.stored import stored
from dissector.arrays import value
from dissector.exchanges.columns import Rows
from dissector.tables.finalizer import NamedBatch

if TYPE_CHECKING:
    import duckdb

CLUSTER_TABLES: Final = (CLUSTERS, "brokers", "connections")
"""The tables that `ClusterConnections` needs."""

_HOSTS: Final = "advertised_hosts"
"""Table of the hosts that each endpoint has in responses: broker_ip, port, host."""


@value
class ClusterConnections:
    """The connections of chosen clusters."""

    names: Sequence[str]
    """Ids of the clusters."""
    connections: pa.Array
    """The `connection_id` of each of their connections."""
    other_times: pa.Array
    """Times of messages with the id of another cluster."""
    unknown: int
    """Connections with Kafka whose cluster is unknown."""

    @classmethod
    def of(cls, rows: Iterable[NamedBatch], chosen: Sequence[str], names: Names) -> Self:
        """The connections of clusters, by the rows of `CLUSTER_TABLES`.

        `names`: of addresses; it learns those of brokers. Raises DissectorError if a cluster is not
        in the capture.
        """
        with stored(rows, CLUSTER_TABLES) as tables:
            known = listed(tables.sql(ENDPOINTS).to_arrow_table())
            for name in chosen:
                if name not in known:
                    raise unknown_cluster(name, known)
            brokers = "select distinct broker_id, host, port from brokers"
            names.learn_brokers(tables.sql(brokers).to_arrow_table())
            tables.register(_HOSTS, _hosts(tables, names))
            clusters = tables.sql(_CONNECTIONS).to_arrow_table()
            messages = tables.sql(f"select cluster_id, time from {CLUSTERS}").to_arrow_table()
        ids = pa.array(chosen, pa.string())
        connections = clusters["connection_id"].filter(pc.is_in(clusters["cluster_id"], ids))
        is_other = pc.invert(pc.is_in(messages["cluster_id"], ids))
        other_times = messages["time"].filter(is_other).cast(pa.int64())
        unknown = clusters["cluster_id"].null_count
        return cls(
            tuple(chosen), connections.combine_chunks(), other_times.combine_chunks(), unknown
        )

    def __str__(self) -> str:
        """The clusters, and the connections that may be missing."""
        text = f"cluster {' or '.join(self.names)}"
        if not self.unknown:
            return text
        number = "1 connection" if self.unknown == 1 else f"{self.unknown:,} connections"
        return f"{text} (without {number} of an unknown cluster)"

    def rows(self, batches: Iterable[NamedBatch]) -> Iterable[NamedBatch]:
        """The rows of these connections; rows of `problems` without a connection stay."""
        return ((name, self.of_rows(batch)) for name, batch in batches)

    def of_rows(self, rows: Rows) -> Rows:
        """The rows of a table that are of these connections, or of none.

        The table `topics` has no connections, but the times of responses with a cluster id.
        """
        if "connection_id" in rows.schema.names:
            connection = rows["connection_id"]
            is_selected = pc.or_(pc.is_in(connection, self.connections), pc.is_null(connection))
        else:
            is_other = pc.is_in(rows["time"].cast(pa.int64()), self.other_times)
            is_selected = pc.invert(is_other)
        selected: Rows = rows.filter(is_selected)
        return selected


def _hosts(tables: duckdb.DuckDBPyConnection, names: Names) -> pa.Table:
    """The rows of `_HOSTS`."""
    endpoints = tables.sql("select distinct broker_ip, broker_port from connections").fetchall()
    rows = [
        (ip, port, host) for ip, port in endpoints for host in names.all_names(endpoint(ip, port))
    ]
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    types = (pa.string(), pa.int32(), pa.string())
    arrays = [pa.array(each, type) for each, type in zip(columns, types, strict=True)]
    return pa.table(arrays, ["broker_ip", "port", "host"])


_CONNECTIONS: Final = f"""
  with
    named as (select connection_id, arg_min(cluster_id, nth) as id from {CLUSTERS} group by all),
    at_endpoint as (
      select broker_ip, broker_port, any_value(id) as id from connections
      join named using (connection_id) group by all having count(distinct id) = 1),
    advertised as (
      select broker_ip, port as broker_port, any_value(id) as id from brokers
      join named using (connection_id) join {_HOSTS} using (host, port)
      group by all having count(distinct id) = 1),
    at_address as (
      select broker_ip, any_value(id) as id from (from at_endpoint union all from advertised)
      group by all having count(distinct id) = 1)
  select connection_id,
    coalesce(named.id, at_endpoint.id, advertised.id, at_address.id) as cluster_id
  from connections left join named using (connection_id)
  left join at_endpoint using (broker_ip, broker_port)
  left join advertised using (broker_ip, broker_port) left join at_address using (broker_ip)
  where protocol = 'kafka' or named.id is not null"""
"""SQL: the cluster of each connection with Kafka; null if it is unknown."""
