"""Network or broker: what of a latency is the way there and back, and how good that way is.

A capture is taken somewhere between a client and its broker. What it sees as latency has the way
from there to the broker and back in it, and that is measured on every connection, by what is
acknowledged at once (`dissector.streams.roundtrips`); where nothing was, the handshake less the way
to the client tells it. The broker's own time is the latency, net of wait (see `waits`), less that
way. The client waits longer by the other way, from the capture to it.

Packets that were sent again or came late, and windows of zero, by which an end says that it cannot
take any more, tell why a way is slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from analysis.sql.expressions import (
    column_names,
    counted,
    floored,
    quantiles,
    quoted,
    rows_by,
    shaped,
)
from analysis.sql.latency_breakdown import WAITED
from analysis.sql.query import Tables, asking
from dissector.errors import DissectorError
from dissector.tables import CONNECTIONS, TableColumn

if TYPE_CHECKING:
    import pandas as pd

_MS, _COUNT = pa.float64(), pa.int64()

COLUMNS: Final = (
    TableColumn("connections", _COUNT, "connections"),
    TableColumn("handshake_rtt_ms", _MS, "median round trip of their handshakes", "ms"),
    TableColumn("rtt_ms", _MS, "median running round trip between client and broker", "ms"),
    TableColumn("client_rtt_ms", _MS, "of that, from the capture to the client and back", "ms"),
    TableColumn("broker_rtt_ms", _MS, "of that, from the capture to the broker and back", "ms"),
    TableColumn("packets", _COUNT, "packets, both ways"),
    TableColumn("retransmitted", _COUNT, "packets that were sent again"),
    TableColumn("retransmitted_percent", _MS, "part of the packets that they are", "%"),
    TableColumn("out_of_order", _COUNT, "packets that came after a later one"),
    TableColumn("client_zero_windows", _COUNT, "packets in which a client says that it is full"),
    TableColumn("broker_zero_windows", _COUNT, "packets in which a broker says that it is full"),
    TableColumn("requests", _COUNT, "requests with an answer, and a latency net of wait"),
    TableColumn("latency_p50_ms", _MS, "median of that latency", "ms"),
    TableColumn("latency_p99_ms", _MS, "its 0.99 quantile", "ms"),
    TableColumn("broker_p50_ms", _MS, "median of the broker's own time", "ms"),
    TableColumn("broker_p99_ms", _MS, "its 0.99 quantile", "ms"),
    TableColumn("network_percent", _MS, "round trip's part of what a client waits: median", "%"),
)

_MEDIANS: Final = ("handshake_rtt_ms", "rtt_ms", "client_rtt_ms", "broker_rtt_ms")
_SUMS: Final = (
    "packets", "retransmitted", "out_of_order", "client_zero_windows", "broker_zero_windows",
)  # fmt: skip


def network(tables: Tables, *, by: str | Sequence[str] = ("client_id", "broker")) -> pd.DataFrame:
    """Kafka's connections, in groups; those with the longest round trip first.

    Needs connections, exchanges and batches. `by`: columns to group by: any of connections, or
    client_id, broker, client, software; they come first in the result. Then `COLUMNS`.
    Raises DissectorError for a column that does not exist.
    """
    if measured := {column.name for column in COLUMNS}.intersection(column_names(by)):
        raise DissectorError(f"{measured.pop()} is a column of the answer, and not to group by")
    links = rows_by(_LINKS, (*CONNECTIONS.schema.names, *_MADE), by)
    sums = {name: f"coalesce(sum({name}), 0)" for name in _SUMS}
    medians = {name: f"median({name})" for name in _MEDIANS}
    way = counted("links", by, connections="count(*)", **sums, **medians, nth="min(nth)")
    time = counted("requests", by, **_OF_REQUESTS)
    key = ", ".join(quoted(by))
    same = " and ".join(f"way.{each} is not distinct from time.{each}" for each in quoted(by))
    with asking(tables, ("connections", "exchanges", "batches")) as ask:
        found = ask(
            f"""
            with links as materialized (from {links}),
            requests as (
              select links.*, net_ms as latency_ms,
                {floored("net_ms - broker_rtt_ms")} as broker_ms,
                100 * (1 - broker_ms / nullif(net_ms + client_rtt_ms, 0)) as network_percent
              from {WAITED} as waited join links using (connection_id) where net_ms is not null)
            select way.*, time.* exclude ({key}) replace (coalesce(requests, 0) as requests),
              100 * retransmitted / nullif(packets, 0) as retransmitted_percent
            from ({way}) as way left join ({time}) as time on {same}
            order by rtt_ms desc, way.nth
            """
        )
    return shaped(found, COLUMNS, by)


_OF_REQUESTS: Final = {
    "requests": "count(*)",
    **quantiles("latency_ms", "latency_", (0.5, 0.99)),
    **quantiles("broker_ms", "broker_", (0.5, 0.99)),
    "network_percent": "median(network_percent)",
}
"""What is told of the answered requests of a group."""

_MADE: Final = ("client_id", "rtt_ms", "packets", "retransmitted", "out_of_order")

_LINKS: Final = f"""(
  with known as (
    select *, coalesce(broker_rtt_ms, {floored("handshake_rtt_ms - client_rtt_ms")}) as to_broker,
      coalesce(client_rtt_ms, {floored("handshake_rtt_ms - to_broker")}) as to_client
    from connections where protocol = 'kafka')
  select known.* exclude (to_broker, to_client)
      replace (to_broker as broker_rtt_ms, to_client as client_rtt_ms),
    coalesce(to_client + to_broker, handshake_rtt_ms) as rtt_ms, client_id,
    coalesce(client_packets, 0) + coalesce(broker_packets, 0) as packets,
    coalesce(client_retransmitted, 0) + coalesce(broker_retransmitted, 0) as retransmitted,
    coalesce(client_out_of_order, 0) + coalesce(broker_out_of_order, 0) as out_of_order
  from known left join (
    select connection_id, arg_min(client_id, nth) as client_id from exchanges group by all)
    using (connection_id))"""
"""SQL: the connections that carry Kafka, with what their ends add up to, which `_MADE` names."""
