"""Clients without SASL at a listener that requires it, for the rule `no_response`.

Such a broker responds to ApiVersions, and closes the connection at the next request. Only its log
has the reason. The client connects again, and reports a timeout or a disconnect.
"""

from __future__ import annotations

from typing import Final

from analysis.answers.unanswered import TIMEOUT_MS, unanswered_requests
from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import client, listed, of_client, verb
from analysis.display.terminal import counted
from analysis.sql.expressions import endpoint, literals
from analysis.sql.query import Row

_BEFORE_LOGIN: Final = ("ApiVersions", "SaslHandshake", "SaslAuthenticate")

COMMAND: Final = "unanswered --by client_id,broker,api,reason"


def unauthenticated_clients(case: Case) -> list[Row]:
    """By client and broker: connections that ended at the first request after ApiVersions.

    A broker that responds to other requests of connections without SASL does not require it.
    """
    return case.rows(f"""
      with others as (
        select * from exchanges where api not in {literals(_BEFORE_LOGIN)}),
      served as (
        select connection_id, broker_ip, broker_port from others where status = 'answered'),
      plain as (select connection_id from connections where opened and sasl_mechanism is null),
      logins as (
        select broker_ip, broker_port, count(*) as logins from connections
        where sasl_mechanism is not null group by all)
      select client_id, {endpoint("broker")} as broker, arg_min(api, request_time) as api,
        arg_min(reason, request_time) as reason, count(*) as requests,
        count(distinct connection_id) as connections, list(distinct api order by api) as apis,
        coalesce(any_value(logins), 0) as logins,
        min(request_packet) as first_packet, min(request_time) as first_time,
        max(request_time) as last_time
      from {unanswered_requests()} left join logins using (broker_ip, broker_port)
      where reason in ('closed', 'reset') and wait_ms < {TIMEOUT_MS}
        and api not in {literals(_BEFORE_LOGIN)} and connection_id in (from plain)
        and connection_id in (select connection_id from exchanges
          where api = 'ApiVersions' and status = 'answered')
        and (broker_ip, broker_port) not in (
          select (broker_ip, broker_port) from served where connection_id in (from plain))
      group by client_id, broker order by requests desc, client_id, broker""")


def unauthenticated_finding(row: Row) -> Finding:
    """The finding for a row of `unauthenticated_clients`."""
    logins = row["logins"]
    return Finding(
        severity="critical",
        **of_client(row, "client_id broker api reason"),
        sentence=f"{row['broker']} closes all connections of {client(row['client_id'])} after "
        "ApiVersions",
        evidence=f"{counted(row['connections'], 'connection')} without SASL ended at the first "
        f"other request ({listed(row['apis'])}). "
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
        requests=row["requests"],
    )  # fmt: skip
