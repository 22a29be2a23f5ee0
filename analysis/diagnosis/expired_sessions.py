"""Clients that do not authenticate again before their session ends, for the rule `no_response`.

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
from analysis.diagnosis.words import client, listed, ms, of_client
from analysis.display.terminal import counted
from analysis.sql.expressions import endpoint
from analysis.sql.query import Row

COMMAND: Final = "unanswered --by client_id,broker,api,reason"

_LEAST_MS: Final = 1000
"""A shorter session is not useful."""


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
        min(request_packet) as first_packet, min(request_time) as first_time,
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
