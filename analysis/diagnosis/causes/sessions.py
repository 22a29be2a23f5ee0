"""Clients without SASL at a listener that requires it, and SASL sessions that expire.

A broker that requires SASL responds to ApiVersions, and closes the connection at the next request
without it. Only its log has the reason. The client connects again, and reports a timeout or a
disconnect.

If `connections.max.reauth.ms` is set, or a token expires, a broker closes the connection at the
first request after the end of the session (KIP-368). SaslAuthenticate 1 and newer return the
lifetime of the session; older clients do not know it. Such a client loses the request, connects
again, and loses another one after the same time.
"""

from __future__ import annotations

from typing import Final

from analysis.answers.unanswered import TIMEOUT_MS, unanswered_requests
from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import client, clients, listed, ms, of_client, of_ends, verb
from analysis.display.terminal import counted
from analysis.sql.expressions import endpoint, first_packet, literals
from analysis.sql.query import Row

COMMAND: Final = "unanswered --by client_id,broker,api,reason"

BEFORE_LOGIN: Final = ("ApiVersions", "SaslHandshake", "SaslAuthenticate")
_LEAST_MS: Final = 1000
"""A shorter session is not useful."""


def unauthenticated_clients(case: Case) -> list[Row]:
    """By client and broker: connections that ended at the first request after ApiVersions.

    A broker that responds to other requests of connections without SASL does not require it.
    """
    return case.rows(f"""
      with others as (
        select * from exchanges where api not in {literals(BEFORE_LOGIN)}),
      served as (
        select distinct connection_id, broker_ip, broker_port from others
        where status = 'answered'),
      plain as (select connection_id from connections where opened and sasl_mechanism is null),
      logins as (
        select broker_ip, broker_port, count(*) as logins from connections
        where sasl_mechanism is not null group by all)
      select client_id, {endpoint("broker")} as broker, arg_min(api, request_time) as api,
        arg_min(reason, request_time) as reason, count(*) as requests,
        count(distinct connection_id) as connections, list(distinct api order by api) as apis,
        coalesce(any_value(logins), 0) as logins,
        {first_packet()} as first_packet, min(request_time) as first_time,
        max(request_time) as last_time
      from {unanswered_requests()} left join logins using (broker_ip, broker_port)
      where reason in ('closed', 'reset') and wait_ms < {TIMEOUT_MS}
        and api not in {literals(BEFORE_LOGIN)} and connection_id in (from plain)
        and connection_id in (select connection_id from exchanges
          where api = 'ApiVersions' and status = 'answered')
        and (broker_ip, broker_port) not in (
          select (broker_ip, broker_port) from served where connection_id in (from plain))
      group by client_id, broker order by requests desc, client_id, broker""")


def unauthenticated_finding(rows: list[Row]) -> Finding:
    """The finding for rows of `unauthenticated_clients` with one broker."""
    row, names = rows[0], [row["client_id"] for row in rows]
    logins, connections = row["logins"], sum(row["connections"] for row in rows)
    apis = sorted({api for row in rows for api in row["apis"]})
    return Finding(
        severity="critical",
        **of_ends(rows, "client_id broker api reason"),
        sentence=f"{row['broker']} closes all connections of {clients(names)} after ApiVersions",
        evidence=f"{counted(connections, 'connection')} without SASL ended at the first "
        f"other request ({listed(apis)}). "
        + (f"{counted(logins, 'connection')} to this port {verb(logins, 'have')} SASL."
           if logins else "The broker does not respond to such requests of any client."),
        cause="the listener requires SASL, and the client does not authenticate",
        side="client",
        setting="security.protocol",
        change="Set security.protocol to SASL_PLAINTEXT or SASL_SSL, and sasl.mechanism and "
        "sasl.jaas.config of the client, or use the port of another listener. The log of the "
        "broker has the reason: Unexpected Kafka request during SASL handshake.",
        reference="Kafka documentation: Security, Authentication using SASL",
        command=COMMAND,
        requests=sum(row["requests"] for row in rows),
    )  # fmt: skip


def expired_sessions(case: Case) -> list[Row]:
    """By client and broker: connections that the broker closed at a request, all at the same age.

    The broker responds to no request of a connection that is older.
    """
    if not any(row["reason"] == "closed" for row in case.answer(COMMAND)):
        return []
    return case.rows(f"""
      with logins as (
        select connection_id, max(response_end_time) as login_time,
          max(api_version) filter (api = 'SaslAuthenticate') as login_version
        from exchanges join connections using (connection_id)
        where sasl_mechanism is not null and opened
          and api in ('SaslHandshake', 'SaslAuthenticate') and status = 'answered'
        group by connection_id),
      served as (
        select client_id, {endpoint("broker")} as broker,
          max(epoch_ns(request_time) - epoch_ns(login_time)) / 1e6 as served_ms
        from exchanges join logins using (connection_id)
        where status = 'answered' and request_time > login_time group by all),
      ends as (
        select *, {endpoint("broker")} as broker, (epoch_ns(request_time) - epoch_ns(login_time))
          / 1e6 as session_ms
        from {unanswered_requests()} join logins using (connection_id)
        where reason = 'closed' and wait_ms < {TIMEOUT_MS}
        qualify row_number() over (partition by connection_id order by request_time) = 1)
      select client_id, broker, arg_min(api, request_time) as api, any_value(reason) as reason,
        count(*) as connections, list(distinct api order by api) as apis,
        min(session_ms) as session_ms, max(login_version) as login_version,
        {first_packet()} as first_packet, min(request_time) as first_time,
        max(request_time) as last_time
      from ends join served using (client_id, broker)
      group by client_id, broker, served_ms
      having min(session_ms) >= greatest(served_ms, {_LEAST_MS})
      order by connections desc, client_id, broker""")


def expired_session_finding(row: Row) -> Finding:
    """The finding for a row of `expired_sessions`."""
    return Finding(
        severity="warning",
        **of_client(row, "client_id broker api reason connections"),
        sentence=f"{row['broker']} ends the sessions of {client(row['client_id'])}, which does not "
        "authenticate again",
        evidence=f"{counted(row['connections'], 'connection')} were closed at the first request "
        f"({listed(row['apis'])}) that came {ms(row['session_ms'])} or more after the login. No "
        "request later than that got a response."
        + (" The client sends SaslAuthenticate 0, whose response does not contain the lifetime of "
           "the session." if row["login_version"] == 0 else ""),
        cause="connections.max.reauth.ms is set, or the token of the client expires, and the "
        "client does not support or complete reauthentication",
        side="client",
        setting="connections.max.reauth.ms",
        change="Upgrade the client to a release with KIP-368 (Java 2.2), or raise "
        "connections.max.reauth.ms of the broker. Until then, let the client retry: each end of a "
        "session costs a request.",
        reference="KIP-368",
        command=COMMAND,
        requests=row["connections"],
    )  # fmt: skip
