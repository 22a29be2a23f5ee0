"""Addresses that brokers advertise, for the rule `failed_connections`.

Which of the addresses that fail are wrong, and which clients connect to none of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits
from analysis.diagnosis.words import (
    capital,
    cells,
    client,
    clients,
    listed,
    ms,
    of_clients,
    rows_by,
    span_of,
    sql,
)
from analysis.display.terminal import counted
from analysis.sql.expressions import endpoint, first_packet, literals
from analysis.sql.query import Row

HOST_IP: Final = "case host when 'localhost' then '127.0.0.1' else trim(host, '[]') end"
"""SQL: the IP address of an advertised host, or its name. A capture does not have the addresses of
names, except for localhost (RFC 6761, section 6.3)."""

_LOOPBACK: Final = r"^(127\.|::1$)"
"""Loopback addresses (RFC 1122, section 3.2.1.3; RFC 4291, section 2.5.3)."""

ADVERTISED: Final = f"""
  with responses as (
    select list_sort(list(distinct {{'host': {HOST_IP}, 'port': port}})) as endpoints, time
    from brokers
    where api = 'Metadata' and host is not null group by connection_id, correlation_id, time)
  select endpoints, max(time) as last_time from responses group by all"""
"""SQL: the endpoints of Metadata responses, and the time of the last response with these."""

FORGOTTEN: Final = f"""
  with named as (
    select {endpoint("connections.broker")} as sender, connection_id, correlation_id, time,
      {HOST_IP} as broker_ip, port as broker_port
    from brokers join connections using (connection_id)
    where api = 'Metadata' and host is not null),
  responses as (
    select sender, time, list(row(broker_ip, broker_port)) as endpoints
    from named group by sender, connection_id, correlation_id, time),
  known as (select distinct sender, broker_ip, broker_port from named)
  select {endpoint("broker")} as broker, time from known join responses using (sender)
  where not list_contains(endpoints, row(broker_ip, broker_port))"""
"""SQL: Metadata responses without an endpoint that the same broker names at another time: the
session of that broker has ended."""

LOOPBACK: Final = f"""
  with named as (
    select distinct {HOST_IP} as host, port, broker_ip
    from brokers join connections using (connection_id) where host is not null)
  select distinct host, port from named
  where regexp_matches(host, '{_LOOPBACK}') and not regexp_matches(broker_ip, '{_LOOPBACK}')"""
"""SQL: loopback addresses in responses of brokers that their clients reach at other addresses."""

SESSION_MS: Final = 20_000
"""Metadata contains a broker that is down for up to broker.session.timeout.ms (9 s by default), or
zookeeper.session.timeout.ms (18 s)."""

PREPARING: Final = (
    "ApiVersions", "SaslHandshake", "SaslAuthenticate", "GetTelemetrySubscriptions",
    "PushTelemetry", "InitProducerId",
)  # fmt: skip
"""APIs that any broker serves, so that a client sends them to the first one that it reaches."""

LOOKUP: Final = "api in ('Metadata', 'FindCoordinator')"
LOOKUPS: Final = """count(*) filter (api = 'Metadata') as metadata_requests,
    count(*) filter (api = 'FindCoordinator') as coordinator_requests"""

LOOKUP_QUERY: Final = f"""
  with lookups as (
    from exchanges semi join (
      select client_id from exchanges group by client_id
      having bool_and({LOOKUP} or api in {literals(PREPARING)})) using (client_id)),
  advertised as (
    select connection_id, correlation_id, {HOST_IP} as node_ip, port as node_port,
      {endpoint("node")} || ' (id ' || broker_id || ')' as node
    from brokers where host is not null),
  named as (
    select client_id, string_agg(distinct node, ', ' order by node) as nodes,
      list(distinct {{'node_ip': node_ip, 'node_port': node_port}}) as addresses
    from advertised join lookups using (connection_id, correlation_id)
    where {LOOKUP} group by all)
  select client_id, nodes, addresses, {LOOKUPS},
    count(*) filter ({LOOKUP} and status = 'answered' and error_count = 0) as found,
    min(request_time) filter ({LOOKUP}) as first_time,
    max(request_time) filter ({LOOKUP}) as last_time,
    {first_packet()} filter ({LOOKUP}) as first_packet
  from lookups join named using (client_id) group by all
  having not bool_or((broker_ip, broker_port) in (select node_ip, node_port from advertised))
    and (coordinator_requests > 0 or count(distinct connection_id) = count(distinct client_ip))
  order by found desc, client_id"""
"""SQL: clients that get addresses of brokers, connect to none of them, and send no other request.

A host may be a name. A client that lists topics then has a second connection, to that host.
"""

LOOKUP_COMMAND: Final = sql(f"""
  select client_id, {LOOKUPS} from exchanges group by client_id""")


def address(row: Row) -> tuple[str, int]:
    """IP address and port of an endpoint."""
    host, _, port = row["broker"].rpartition(":")
    return host.strip("[]"), int(port)


def wrong_addresses(case: Case, rows: list[Row]) -> set[tuple[str, int]]:
    """Endpoints that fail, though working brokers advertise them.

    `rows`: endpoints with failed attempts, of the answer `network`.
    """
    down = {address(row): row for row in rows if row["after_time"] is not None}
    wrong = set()
    for response in case.rows(ADVERTISED) if down else ():
        time = response["last_time"]
        endpoints = {(each["host"], each["port"]) for each in response["endpoints"]}
        # One of them is the broker that responds.
        is_alone = all(
            each in down and _is_named_while_down(down[each], time) for each in endpoints
        )
        for each in endpoints & down.keys():
            # Without an active controller, no session ends, so a broker that stopped is named.
            is_new = down[each]["worked_time"] is None
            if is_alone or (is_new and (time - down[each]["after_time"]) / 1e6 >= SESSION_MS):
                wrong.add(each)
    return wrong


def _is_named_while_down(row: Row, time: int) -> bool:
    return row["worked_time"] is None or time > row["after_time"]


def is_loopback(case: Case, host: str, port: int) -> bool:
    """Whether an advertised address is one of `LOOPBACK`."""
    return {"host": host, "port": port} in case.rows(LOOPBACK)


def wrong_address(finding: Finding, *, is_refused: bool, is_local: bool) -> Finding:
    """The finding for an address that a working broker advertises; `is_local`: `is_loopback`."""
    finding = replace(
        finding,
        evidence=f"{finding.evidence} Metadata responses contain this address.",
        cause="the broker works, but not at this address: advertised.listeners is wrong for the "
        "listener that the client uses" if is_refused
        else "clients cannot reach the address: advertised.listeners is wrong for their network, "
        "or a firewall or route drops the packets",
        side="broker",
        setting="advertised.listeners",
        change="Advertise a host and a port that clients can reach (nc -vz HOST PORT on the host "
        "of a client), for the listener of their bootstrap.servers.",
        reference="KIP-103; Kafka documentation: Broker Configs, advertised.listeners",
    )  # fmt: skip
    return _loopback(finding) if is_local else finding


def _loopback(finding: Finding) -> Finding:
    """The finding for addresses of `LOOPBACK`."""
    return replace(
        finding,
        cause="the broker advertises a loopback address (localhost): clients on other hosts then "
        "connect to their own host",
        change="Advertise a name or address of the broker's host that clients can reach. If the "
        "broker runs in a container, clients inside and outside of its network need a listener "
        "each.",
    )


def unreached_brokers(case: Case, limits: Limits) -> Iterator[Finding]:
    """Clients that ask for the addresses of brokers, and send nothing to these.

    One of those with the same addresses asks often. Where names are resolved slowly, others do not.
    """
    repeated = [row for row in case.rows(LOOKUP_QUERY) if row["found"] >= limits["lookups"]]
    for nodes, rows in rows_by(repeated, "nodes").items():
        if any(
            (row["last_time"] - row["first_time"]) / 1e6 <= row["found"] * limits["lookup_ms"]
            for row in rows
        ):
            finding = _lookup_finding(rows, nodes.split(", "))
            hosts = ((node["node_ip"], node["node_port"]) for node in rows[0]["addresses"])
            is_local = all(is_loopback(case, *host) for host in hosts)
            yield _loopback(finding) if is_local else finding


def _lookup_finding(rows: list[Row], nodes: list[str]) -> Finding:
    """A finding for clients that got the same addresses."""
    row, names = rows[0], [row["client_id"] for row in rows]
    lasts_ms = (row["last_time"] - row["first_time"]) / 1e6
    s, es = ("s", "es") if len(rows) == 1 else ("", "")
    return Finding(
        severity="critical",
        **of_clients(names),
        sentence=f"{capital(clients(names))} get{s} addresses of brokers, but do{es} not "
        "connect to them",
        evidence=f"{capital(client(names[0]))} sent "
        f"{counted(row['metadata_requests'], 'Metadata request')} and "
        f"{counted(row['coordinator_requests'], 'FindCoordinator request')} within "
        f"{ms(lasts_ms)}, and nothing that uses the responses. {row['found']:,} of them have no "
        f"error. They name {listed(nodes)}.",
        numbers=cells(row, "client_id metadata_requests coordinator_requests"),
        cause="the client cannot resolve or reach the address that the brokers advertise",
        side="broker",
        setting="advertised.listeners",
        change="Check these addresses on the host of the client: nc -vz HOST PORT. Advertise a "
        "name that clients can resolve, for the listener that they use.",
        reference="KIP-103; Kafka documentation: Broker Configs, advertised.listeners",
        command=LOOKUP_COMMAND,
        requests=sum(row["metadata_requests"] + row["coordinator_requests"] for row in rows),
        **span_of(rows),
    )
