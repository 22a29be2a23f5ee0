"""Kafka 4: a client uses versions that Kafka 4.0 removed.

Kafka 4.0 removed the oldest versions of many APIs (KIP-896). A client that uses such a version with
a broker of 2.1 or newer supports no newer one, so it stops working after the upgrade. With an older
broker, the client may be newer. Kafka 4.0 removed the APIs of brokers with ZooKeeper completely
(KIP-500).

A Java client of 4.0 lacks these versions, too. It connects to a broker older than 0.11, asks for
its versions, and gives up: it sends neither Produce nor Fetch. The version of its Metadata requests
shows the age of the broker, because clients use the newest version that both know.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits, rule
from analysis.diagnosis.rules.fenced_producers import ERRORS
from analysis.diagnosis.words import (
    Advice,
    cells,
    clients,
    listed,
    of_clients,
    of_ends,
    rows_by,
    span_of,
    sql,
)
from analysis.display.terminal import counted
from analysis.kafka.client_ids import is_broker
from analysis.sql.expressions import first_packet
from analysis.sql.query import Row

_OLD: Final = Advice(
    "the client library or its broker is older than Kafka 2.1, or the client is configured for an "
    "old broker",
    "client", None,
    "Upgrade the client library before the brokers, at least to Java 2.1, librdkafka 1.8.2, Sarama "
    "1.30.1, KafkaJS 1.15.0 or kafka-python 2.0.2. Remove settings that select an old version "
    "(broker.version.fallback, api_version, Sarama's Config.Version).",
    "KIP-896",
)  # fmt: skip
_ZOOKEEPER: Final = Advice(
    "these clients are brokers, whose cluster uses ZooKeeper",
    "broker", "zookeeper.metadata.migration.enable",
    "Migrate the cluster to KRaft before the upgrade: Kafka 3.9 is the last release that can.",
    "KIP-500, KIP-866",
)  # fmt: skip

_TOO_NEW: Final = f"""
  select client_id, software_version, count(*) as requests,
    max(case when api = 'Metadata' then api_version end) as metadata_version,
    min(request_time) as first_time, max(request_time) as last_time,
    {first_packet()} as first_packet
  from exchanges join connections using (connection_id)
  where software_name = 'apache-kafka-java'
    and try_cast(split_part(software_version, '.', 1) as int) >= 4
  group by client_id, software_version
  having metadata_version < 3 and not bool_or(api in ('Produce', 'Fetch'))
  order by client_id, software_version"""
"""SQL: Java clients of Kafka 4 whose brokers are older than 0.11.

Kafka 0.11 added Metadata 3, and the oldest versions that these clients know: Produce 3 and Fetch 4.
"""


@rule(
    question="Would Kafka 4 refuse a client?",
    place=19,
    rests_on="versions errors exchanges connections",
)  # fmt: skip
def removed_versions(case: Case, limits: Limits) -> Iterator[Finding]:
    """Clients with requests in removed versions, by the answer `versions`; one is enough. Clients
    that lack the versions of their broker."""
    by_use: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for own in rows_by(case.answer("versions"), "client_id").values():
        columns = ("software", "api", "api_version", "breaks")
        use = tuple(tuple(row[column] for column in columns) for row in own)
        by_use[() if any(map(_is_of_broker, own)) else use] += own
    yield from map(_finding, by_use.values())
    # Such a broker does not know ApiVersions 3, with which a new client begins (KIP-511).
    if any(
        (row["api"], row["error"]) == ("ApiVersions", "UNSUPPORTED_VERSION")
        for row in case.answer(ERRORS)
    ):
        too_new = rows_by(case.rows(_TOO_NEW), "software_version", "metadata_version")
        yield from map(_too_new_finding, too_new.values())


def _is_of_broker(row: Row) -> bool:
    """Whether a broker sent the requests: no other client uses the APIs that were removed."""
    return row["kept_since"] is None or is_broker(row["client_id"])


def _finding(rows: list[Row]) -> Finding:
    """A finding for clients that use the same versions, or for brokers."""
    of_brokers = [row for row in rows if _is_of_broker(row)]
    effects = listed(dict.fromkeys(row["breaks"] for row in of_brokers or rows))
    most_used = max(rows, key=lambda row: row["requests"])
    names = list(dict.fromkeys(row["client_id"] for row in rows))
    software = listed(dict.fromkeys(row["software"] for row in rows if row["software"]))
    count = sum(row["requests"] for row in rows)
    used = dict.fromkeys(
        f"{row['api']} {row['api_version']} ({_kept(row['kept_since'])})" for row in rows
    )
    return Finding(
        severity="warning",
        **of_clients(names),
        sentence=f"Kafka 4 refuses {clients(names)}: {effects}",
        evidence=f"{counted(count, 'request')} in removed versions: {listed(used)}."
        + (f" Software: {software}." if software else "")
        + f" Addresses: {listed(dict.fromkeys(row['client'] for row in rows))}.",
        numbers=cells(most_used, "client_id api api_version kept_since breaks requests"),
        command="versions",
        requests=count,
        **span_of(rows),
        **(_ZOOKEEPER if of_brokers else _OLD)._asdict(),
    )


def _too_new_finding(rows: list[Row]) -> Finding:
    """A finding for rows of `_TOO_NEW` with the same versions."""
    first, count = rows[0], sum(row["requests"] for row in rows)
    return Finding(
        severity="warning",
        **of_ends(rows, "client_id software_version metadata_version requests"),
        sentence=f"{clients([row['client_id'] for row in rows])} can neither produce nor consume: "
        "the brokers are older than Kafka 0.11",
        evidence=f"The software is apache-kafka-java {first['software_version']}, but the newest "
        f"Metadata has version {first['metadata_version']}. There is no Produce and no Fetch in "
        f"{counted(count, 'request')}.",
        cause="Java clients of Kafka 4 support no version of Produce and Fetch that these brokers "
        "know",
        side="client",
        change="Upgrade the brokers to Kafka 2.1 or newer, or use a Java client older than 4.0.",
        reference="KIP-896",
        command=sql(_TOO_NEW),
        requests=count,
    )


def _kept(version: int | None) -> str:
    return "removed" if version is None else f"4.0: {version} or newer"
