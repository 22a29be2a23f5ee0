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
from typing import Final

import pandas as pd
import pyarrow as pa

from analysis.answers.common import Tables, grouped, rows_by, shaped
from analysis.answers.waits import waits
from dissector.errors import DissectorError
from dissector.tables import TableColumn

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


def network(tables: Tables, *, by: Sequence[str] = ("client_id", "broker")) -> pd.DataFrame:
    """Kafka's connections, in groups; those with the longest round trip first.

    Needs connections, exchanges and batches. `by`: columns to group by: any of connections, or
    client_id, broker, client, software; they come first in the result. Then `COLUMNS`.
    Raises DissectorError for a column that does not exist.
    """
    if measured := {column.name for column in COLUMNS}.intersection(by):
        raise DissectorError(f"{measured.pop()} is a column of the answer, and not to group by")
    connections = rows_by(_connections(tables), tables, by)
    groups = grouped(connections, by)
    sums, medians = dict.fromkeys(_SUMS, "sum"), dict.fromkeys(_MEDIANS, "median")
    found = groups.agg(sums | medians).join(groups.size().rename("connections"))
    found["retransmitted_percent"] = 100 * found["retransmitted"] / found["packets"]
    requests = grouped(_requests(tables, connections), by)
    found = found.join(requests.size().rename("requests"))
    found["requests"] = found["requests"].fillna(0)
    for name, quantile in (("p50", 0.5), ("p99", 0.99)):
        for what in ("latency", "broker"):
            found[f"{what}_{name}_ms"] = requests[f"{what}_ms"].quantile(quantile)
    found["network_percent"] = requests["network_percent"].median()
    found = found.reset_index().sort_values("rtt_ms", ascending=False, kind="stable")
    return shaped(found, COLUMNS, by)


def _connections(tables: Tables) -> pd.DataFrame:
    """The connections that carry Kafka, with what their ends add up to."""
    rows = tables["connections"]
    rows = rows[rows["protocol"] == "kafka"]
    names = tables["exchanges"].groupby("connection_id")["client_id"].first()
    to_broker = rows["broker_rtt_ms"].fillna(
        (rows["handshake_rtt_ms"] - rows["client_rtt_ms"]).clip(lower=0)
    )
    to_client = rows["client_rtt_ms"].fillna((rows["handshake_rtt_ms"] - to_broker).clip(lower=0))
    both = {
        name: rows[f"client_{name}"].fillna(0) + rows[f"broker_{name}"].fillna(0)
        for name in ("packets", "retransmitted", "out_of_order")
    }
    return rows.assign(
        client_id=rows["connection_id"].map(names).astype("str"),
        broker_rtt_ms=to_broker,
        client_rtt_ms=to_client,
        rtt_ms=(to_client + to_broker).fillna(rows["handshake_rtt_ms"]),
        **both,
    )


def _requests(tables: Tables, connections: pd.DataFrame) -> pd.DataFrame:
    """A row for each answered request, in ms: its latency, the broker's part, the network's."""
    latency = waits(tables)["net_ms"]
    rows = tables["exchanges"][["connection_id"]].assign(latency_ms=latency)
    rows = rows.merge(connections, on="connection_id")
    rows = rows[rows["latency_ms"].notna()]
    broker = (rows["latency_ms"] - rows["broker_rtt_ms"]).clip(lower=0)
    waited = rows["latency_ms"] + rows["client_rtt_ms"]
    return rows.assign(broker_ms=broker, network_percent=100 * (1 - broker / waited))
