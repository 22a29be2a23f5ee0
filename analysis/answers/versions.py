"""Versions: who speaks versions that Kafka 4.0 removed, and what would break for them (KIP-896).

A client and a broker speak the newest version that both know. What is seen with a broker of 3.x is
thus the client's newest, and where Kafka 4.0 has it no more, the client cannot do that with it;
with a broker that is itself as old as the client, the client may know more than it shows.

The pages of the protocol have the versions that were removed. Brokers of Kafka 4 list the same ones
in ApiVersions, with one exception: they list Produce from version 0, since librdkafka would not
start otherwise (KAFKA-18659), and accept it from version 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from analysis.sql.expressions import columns_of, counted, mapped, rows_by, shaped, words
from analysis.sql.query import Tables, asking
from dissector.protocol import registry
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

REMOVED: Final = tuple(
    api for api in registry.all_apis() if api.removal and api.removal.release == "4.0"
)
"""The APIs of which Kafka 4.0 removed versions."""

_EFFECT: Final = {api.name: api.removal.effect for api in REMOVED if api.removal}
_KEPT_SINCE: Final = {api.name: api.kept_since for api in REMOVED}

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
        breaks=mapped("api", _EFFECT),
        requests="count(*)",
        first_time="min(request_time)",
        last_time="max(request_time)",
    )
    with asking(tables, ("exchanges", "connections")) as ask:
        return shaped(ask(query), COLUMNS)


_GONE: Final = f"""(
  select *, {mapped("api", _KEPT_SINCE)} as kept_since
  from exchanges
  where api in {words(_EFFECT)} and coalesce(api_version < kept_since, true))"""
"""SQL: the exchanges in versions that were removed."""
