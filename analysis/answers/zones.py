"""Zones: which traffic leaves its zone, and which consumers could read from a closer replica.

Traffic between zones is slower, and cloud providers charge for it. A consumer reads from the leader
of a partition, which is often in another zone. If client.rack is set and the brokers have a replica
selector (KIP-392), it reads from an in-sync replica in its zone.

    $ kafka-dissector zones captures/kafka-4-racks.pcap.zst
    $ kafka-dissector zones captures/kafka-4-racks.pcap.zst --show consumers

**How to read it.** In the first table, a row is a pair of zones. `sent_bytes` went from clients to
brokers, and `received_bytes` from brokers to clients. In the second table, `far_bytes` were fetched
from another zone. `avoidable_bytes` are the part of them that an in-sync replica in the zone of the
consumer also had. `finding` is the cause:

- no client.rack: the consumer does not name its rack;
- unknown rack: no broker has this client.rack;
- not selected: the leader does not name the closer replica, because it has no replica selector;
- no replica: no in-sync replica is in the zone of the consumer.

**What to do.** For no client.rack, set it to the zone of the consumer. For unknown rack, use a
value of broker.rack. For not selected, set replica.selector.class of the brokers to
org.apache.kafka.common.replica.RackAwareReplicaSelector. For no replica, assign a replica to the
zone. Producers must write to the leader; `--by client_zone,broker_zone,api` shows their share.

**How it is computed.** `--zones FILE` has lines with a network and a zone: ``10.1.0.0/16 zone-a``,
or any other format of `--names`. Otherwise a zone is a rack: that of a broker in Metadata, or that
of a client in its Fetch. A client without a rack gets that of other clients or of the broker at its
address. Replicas are those of the last Metadata before the Fetch. The bytes are those of Kafka's
messages. A connection with TLS that is not decrypted counts with all its bytes. With `--by topic`,
an exchange counts for each of its topics, and `percent` is a share of their sum.

**Limitations.** The capture must contain Metadata, which clients request when they start: without
it, `avoidable_bytes` is null. Behind a proxy or address translation, addresses are those of the
proxy. In a capture of several clusters, select one with `--cluster`. A custom replica selector may
choose other replicas on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Final, TypeAlias

from analysis.answers import ArrowTable, Option, Tables, Variant, answer, grouped_by, select
from analysis.columns import Column, columns_of, first_and_last
from analysis.names.addresses import Names
from analysis.sql.expressions import EXCHANGE, By, by_frequency, grouped, with_columns
from analysis.sql.zones import BROKER_RACKS, broker_zones, connection_zones
from dissector.arguments import path
from dissector.errors import DissectorError

CONSUMER_COLUMNS: Final = (
    *columns_of("partitions", "client_id"),
    Column("client", "string", "address of the client"),
    *columns_of("partitions", "topic"),
    Column("finding", "string", "no client.rack, unknown rack, not selected, no replica, or null"),
    Column("client_zone", "string", "zone of the client; null if unknown"),
    *columns_of("exchanges", "client_rack"),
    Column("broker_zones", "string", "zones of the brokers, the zone with the most Fetches first"),
    Column("bytes", "int64", "size of the fetched records", "bytes"),
    Column("far_bytes", "int64", "size of those from another zone; null if unknown", "bytes"),
    Column(
        "avoidable_bytes", "int64",
        "size of those that a replica in the zone also had; null if unknown", "bytes",
    ),
    Column("redirected", "int64", "responses that name a closer replica"),
    *first_and_last("Fetch"),
)  # fmt: skip


Zones: TypeAlias = "str | PathLike[str] | Mapping[str, str] | Names"
"""A file, zones of networks, or the same as an object."""


def zone_names(given: Zones | None) -> Names:
    """The zones of networks: in the file with this name, or as given.

    Raises DissectorError if the file cannot be read.
    """
    from analysis.names.files import network, read_names

    if isinstance(given, Names):
        return given
    if isinstance(given, Mapping):
        return Names((network(text, "zones"), zone) for text, zone in given.items())
    if given is not None:
        given = path("zones", given)
    try:
        return Names(read_names(Path(given)) if given else ())
    except OSError as error:
        raise DissectorError(f"cannot read {given}: {error.strerror}") from error


@answer(
    question="Which traffic leaves its zone, and which consumers could read from a closer replica?",
    place=23,
    tables=("exchanges", "partitions", "connections", "topics", "brokers"),
    options=(
        grouped_by(
            "any column of exchanges, or client_zone, broker_zone, broker, client, software, topic",
            needs=("show", "pairs"),
        ),
        Option("show", "Show pairs of zones, or consumers"),
        Option(
            "zones", "Read zones from FILE, with a network and a zone on each line", read=zone_names
        ),
    ),
    rows="requests and responses",
    columns=(
        Column("requests", "int64", "requests"),
        Column("sent_bytes", "int64", "size of the requests", "bytes"),
        Column("received_bytes", "int64", "size of the responses", "bytes"),
        Column("bytes", "int64", "size of both", "bytes"),
        Column("percent", "double", "share of all bytes", "%"),
        Column("record_bytes", "int64", "size of the records in them", "bytes"),
        Column("connections", "int64", "connections"),
        *first_and_last("request"),
    ),
    variants=(Variant("show", "consumers", CONSUMER_COLUMNS, rows="consumers"),),
    essential="client_id topic finding bytes percent client_zone client_rack broker_zones",
    useful="avoidable_bytes far_bytes sent_bytes received_bytes record_bytes client redirected",
)
def zones(
    tables: Tables,
    *,
    by: By = ("client_zone", "broker_zone"),
    show: str = "pairs",
    zones: Zones = "",
) -> ArrowTable:
    """Traffic by zones, most bytes first; or consumers, most avoidable bytes first."""
    named = _zones_of_addresses(tables, zone_names(zones))
    if show == "consumers":
        return select(tables, _consumers(named))
    query = grouped(
        with_columns(_traffic(named), by, "exchanges", "client_zone", "broker_zone"),
        by,
        "sum(bytes) desc, min(nth)",
        requests="count(request_packet)",
        sent_bytes="coalesce(sum(request_bytes), 0)",
        received_bytes="coalesce(sum(response_bytes), 0)",
        bytes="sum(bytes)",
        percent="100 * sum(bytes) / nullif(sum(sum(bytes)) over (), 0)",
        record_bytes="coalesce(sum(record_bytes), 0)",
        connections="count(distinct connection_id)",
        first_time="min(request_time)",
        last_time="max(request_time)",
    )
    return select(tables, query)


def _zones_of_addresses(tables: Tables, names: Names) -> Mapping[str, str]:
    """The zones of the addresses in the tables, where known."""
    if not names:
        return {}
    addresses = select(
        tables,
        """select client_ip as address from connections union select broker_ip from connections
        union select trim(host, '[]') from brokers""",
    )["address"]
    zones = {address: names.name(address) for address in addresses.drop_null().to_pylist()}
    return {address: zone for address, zone in zones.items() if zone}


def _traffic(zones: Mapping[str, str]) -> str:
    """SQL: exchanges, and connections that are not decrypted, with their zones and bytes."""
    return f"""(
      with traffic as (
        select *, coalesce(request_bytes, 0) + coalesce(response_bytes, 0) as bytes from exchanges
        union all by name
        select connection_id, client_ip, client_port, broker_ip, broker_port, nth,
          first_time as request_time, client_bytes as request_bytes, broker_bytes as response_bytes,
          client_bytes + broker_bytes as bytes
        from connections where protocol = 'tls')
      select traffic.*, client_zone, broker_zone
      from traffic left join {connection_zones(zones)} using (connection_id))"""


def _consumers(zones: Mapping[str, str]) -> str:
    """SQL: a row for each client and topic."""
    return f"""
      with known as materialized (from {broker_zones(zones)}),
      states as (
        select topic, partition, isr, case when row_number() over (
          partition by topic, partition order by time, nth) = 1 then 0 else epoch_ns(time) end
          as since
        from topics),
      zones_of_states as (
        select topic, partition, since, list(distinct zone) as replica_zones
        from (select topic, partition, since, unnest(isr) as broker_id from states)
          join known using (broker_id) group by all),
      fetches as (
        select partitions.*, client_ip as client, located.client_rack, client_zone, broker_zone,
          epoch_ns(time) as at
        from partitions join connections using (connection_id)
          join {connection_zones(zones)} as located using (connection_id)
        where api = 'Fetch' and replica_id is null and error_code = 0
          and topic is not null and topic != '__cluster_metadata'),
      judged as (
        select fetches.*, case when broker_zone != client_zone then coalesce(bytes, 0)
          when broker_zone = client_zone then 0 end as far_bytes,
          -- Without the replicas, only the bytes of the same zone are known: none is avoidable.
          case when far_bytes = 0 then 0
            when list_contains(replica_zones, client_zone) then far_bytes
            when replica_zones is not null and far_bytes is not null then 0
          end as avoidable_bytes
        from fetches asof left join zones_of_states as states
          on fetches.topic = states.topic and fetches.partition = states.partition
            and fetches.at >= states.since),
      clients as (
        select client_id, client, topic, client_zone, client_rack,
          {by_frequency("broker_zone")} as broker_zones,
          coalesce(sum(bytes), 0) as bytes, sum(far_bytes) as far_bytes,
          sum(avoidable_bytes) as avoidable_bytes,
          count(distinct case when preferred_replica is not null
            then ({EXCHANGE}) end) as redirected, min(time) as first_time, max(time) as last_time,
          min(nth) as nth
        from judged group by all),
      racks as (
        select list(rack) as racks, any_value(zones) as zones
        from (select count(distinct zone) as zones from known) left join {BROKER_RACKS} on true),
      judgements as (
        select clients.*, case
            when far_bytes = 0 and bytes > 0 then null
            when client_rack is null and (avoidable_bytes > 0 or far_bytes is null and zones > 1)
              then 'no client.rack'
            when not list_contains(racks, client_rack) then 'unknown rack'
            when avoidable_bytes > 0 then 'not selected'
            when far_bytes > 0 and avoidable_bytes is not null then 'no replica' end as finding
        from clients, racks)
      from judgements
      order by coalesce(avoidable_bytes, 0) desc, finding is null, far_bytes desc, nth"""
