"""Versions: which clients use versions that Kafka 4.0 removed, and what would break (KIP-896).

    $ kafka-dissector versions captures/kafka-3-java-0-9.pcap.zst | head -4

**How to read it.** A row is a client with an API version that Kafka 4.0 has removed. `kept_since`
is the first version that Kafka 4.0 supports. `breaks` is what would stop working.

**What to do.** Update these clients before the brokers: see [clients that Kafka 4
refuses](../howto/kafka-4.md). `software` shows their library, if they are new enough to send it.

**How it is computed.** A client and a broker use the newest version that both support. With a
broker of 3.x, this is the newest version of the client; if Kafka 4.0 has removed it, the client
cannot use that API with Kafka 4.0. The protocol pages list the removed versions. ApiVersions
responses of Kafka 4 agree with them, with one exception: they list Produce from version 0, because
librdkafka does not start otherwise (KAFKA-18659), although brokers accept it only from version 3.

A broker that uses such versions, as its client id shows, needs ZooKeeper, which Kafka 4.0 does not
have.

**Limitations.** With a broker as old as the client, the client may support newer versions than the
capture shows. Clients that sent nothing during the capture are missing. With brokers of Kafka 4, so
are clients that negotiate versions, because they do not send requests that are refused. Kafka 4.0.0
alone also refuses JoinGroup 0 and 1 (KAFKA-19444); the result does not include them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from analysis.answers import ArrowTable, Tables, answer, select
from analysis.columns import Column, columns_of, first_and_last
from analysis.kafka.client_ids import BROKER_CLIENT_IDS
from analysis.sql.expressions import by_api, grouped, literal, literals, natural, with_columns

if TYPE_CHECKING:
    from dissector.protocol.notation import Api

_KEY: Final = ("client_id", "client", "software", "api", "api_version")


@answer(
    question="Which clients use versions that Kafka 4.0 removed, and what would break?",
    place=6,
    tables=("exchanges", "connections"),
    rows="requests in versions that Kafka 4.0 removed",
    columns=(
        *columns_of("exchanges", "client_id"),
        Column("client", "string", "address of the client"),
        Column("software", "string", "name and version of the client's software, if known"),
        *columns_of("exchanges", "api", "api_version"),
        Column("kept_since", "int16", "first version that Kafka 4.0 supports; null if none"),
        Column("breaks", "string", "effect of the upgrade on the client"),
        Column("requests", "int64", "requests in the version"),
        *first_and_last("request"),
    ),
    essential="client_id client api api_version breaks",
    useful="software kept_since requests",
    lists_problems=True,
)
def versions(tables: Tables) -> ArrowTable:
    """Requests in removed versions: a row for each client, API and version, in that order."""
    effect = {api.name: api.removal.effect for api in removed_apis() if api.removal}
    removed = f"(select *, {kept_since()} as kept_since from exchanges where {is_removed()})"
    query = grouped(
        with_columns(removed, _KEY, "exchanges"),
        _KEY,
        f"client_id, client, {natural('min(software)')}, api, api_version",
        kept_since="any_value(kept_since)",
        breaks=f"""case when regexp_full_match(client_id, {literal(BROKER_CLIENT_IDS)})
          then {literal(effect["LeaderAndIsr"])} else {by_api(effect)} end""",
        requests="count(*)",
        first_time="min(request_time)",
        last_time="max(request_time)",
    )
    return select(tables, query)


def is_removed() -> str:
    """SQL: whether Kafka 4.0 has removed the version of a request."""
    names = literals(api.name for api in removed_apis())
    return f"(api in {names} and coalesce(api_version < {kept_since()}, true))"


def kept_since() -> str:
    """SQL: the first version of an API that Kafka 4.0 supports; null if none."""
    return by_api({api.name: api.kept_since for api in removed_apis()})


def removed_apis() -> tuple[Api, ...]:
    """The APIs of which Kafka 4.0 removed versions."""
    from dissector.protocol import registry

    return tuple(a for a in registry.all_apis() if a.removal and a.removal.release == "4.0")
