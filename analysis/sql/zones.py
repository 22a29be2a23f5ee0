"""Zones of connections and brokers, as SQL.

A zone is a name: that of the network around an address, from a file, or a rack. The rack of a
broker is in Metadata (KIP-36); the rack of a client is in its Fetch (KIP-392).

Metadata has ids and hosts of brokers, packets have addresses. If a host is a name, the broker at an
address is the one that leads most of the partitions that are produced there.
"""

from __future__ import annotations

from collections.abc import Mapping

from analysis.sql.expressions import literal


def address_zones(zones: Mapping[str, str]) -> str:
    """SQL: address and zone; `zones` may be empty."""
    pairs = (f"({literal(address)}, {literal(zone)})" for address, zone in zones.items())
    rows = ", ".join([*pairs, "(null, null)"])
    return f"(select address, zone from (values {rows}) as given (address, zone))"


BROKER_RACKS = """(
  select broker_id, arg_max(rack, nth) as rack from brokers where rack is not null group by all)"""
"""SQL: the rack of each broker, the last one if it changed."""

_ADVERTISED = """(
  select trim(host, '[]') as broker_ip, port as broker_port, arg_max(broker_id, nth) as broker_id
  from brokers group by all)"""

_LEADING = """(
  with led as (
    select broker_ip, broker_port, leader as broker_id, count(*) as amount,
      min(partitions.nth) as nth
    from partitions join connections using (connection_id)
      join (select topic, partition, arg_max(leader, nth) as leader from topics group by all)
        using (topic, partition)
    where api = 'Produce' and error_code = 0 and leader >= 0 group by all)
  select broker_ip, broker_port, arg_max(broker_id, (amount, -nth)) as broker_id
  from led group by all)"""

ENDPOINTS = f"""(
  select broker_ip, broker_port, coalesce(announced.broker_id, working.broker_id) as broker_id
  from (select distinct broker_ip, broker_port from connections)
    left join {_ADVERTISED} as announced using (broker_ip, broker_port)
    left join {_LEADING} as working using (broker_ip, broker_port))"""
"""SQL: the id of the broker at each address and port; null if it is unknown."""


def endpoint_zones(zones: Mapping[str, str]) -> str:
    """SQL: broker_ip, broker_port, broker_id and zone of each broker that has connections."""
    return f"""(
      select endpoints.*, coalesce(named.zone, rack) as zone
      from {ENDPOINTS} as endpoints left join {BROKER_RACKS} using (broker_id)
        left join {address_zones(zones)} as named on broker_ip = named.address)"""


def broker_zones(zones: Mapping[str, str]) -> str:
    """SQL: broker_id and zone of each broker in responses, also of those without connections."""
    return f"""(
      with hosts as (
        select broker_id, arg_max(zone, brokers.nth) as zone
        from brokers join {address_zones(zones)} on trim(host, '[]') = address group by all),
      seen as (
        select broker_id, min(zone) as zone from {endpoint_zones(zones)}
        where broker_id is not null group by all)
      select broker_id, coalesce(hosts.zone, seen.zone, rack) as zone
      from (select distinct broker_id from brokers) left join hosts using (broker_id)
        left join seen using (broker_id) left join {BROKER_RACKS} using (broker_id))"""


def connection_zones(zones: Mapping[str, str]) -> str:
    """SQL: connection_id, client_zone, broker_zone, client_rack and broker_id of connections.

    The zone of a client is that of its address in `zones`; the rack of the follower that it is; the
    rack of the broker with the same address; its own client.rack; or the client.rack of the clients
    at its address, if all have the same one. A client is a client id with its address.
    """
    return f"""(
      with racks as (
        select client_ip, client_id, arg_max(client_rack, nth) as client_rack from exchanges
        where client_rack is not null group by all),
      own as (
        select connection_id, arg_max(racks.client_rack, nth) as client_rack
        from exchanges join racks using (client_ip, client_id) group by all),
      followers as (
        select connection_id, arg_max(replica_id, nth) as broker_id from partitions
        where replica_id >= 0 group by all),
      hosts as (
        select broker_ip as client_ip, min(rack) as rack
        from {ENDPOINTS} join {BROKER_RACKS} using (broker_id)
        group by all having count(distinct rack) = 1),
      neighbours as (
        select client_ip, min(client_rack) as rack from exchanges
        where client_rack is not null group by all having count(distinct client_rack) = 1)
      select connection_id, endpoints.zone as broker_zone, endpoints.broker_id, client_rack,
        coalesce(named.zone, follower.rack, hosts.rack, client_rack, neighbours.rack) as client_zone
      from connections left join own using (connection_id)
        left join {endpoint_zones(zones)} as endpoints using (broker_ip, broker_port)
        left join followers using (connection_id)
        left join {BROKER_RACKS} as follower on followers.broker_id = follower.broker_id
        left join hosts using (client_ip) left join neighbours using (client_ip)
        left join {address_zones(zones)} as named on client_ip = named.address)"""
