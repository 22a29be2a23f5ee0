"""Requests in versions that a broker does not know.

Brokers return UNSUPPORTED_VERSION for ApiVersions only, and since 0.10 (KIP-35, KIP-511). At any
other request of an unknown API or version, they close the connection at once, without a response.
Clients that ask for the versions first do not send such requests. A client that is newer than a
broker of 0.8 or 0.9 does: with ApiVersions, or with the requests of members of groups. So does an
old client with a broker of Kafka 4, which removed versions (KIP-896): the rule `removed_versions`
reports it if the broker is newer than 0.9.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from analysis.answers.unanswered import unanswered_requests
from analysis.answers.versions import is_removed
from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.sessions import COMMAND
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import client, of_client
from analysis.display.terminal import counted
from analysis.sql.expressions import endpoint, first_packet, literals, ms_between
from analysis.sql.query import Row

_ENDS: Final = ("closed", "reset")
_AT_ONCE_MS: Final = 100
"""The longest time in which a broker closes a connection at such a request."""


@cache
def unsupported_requests() -> str:
    """SQL: requests at which a connection ended at once, of APIs and versions to which their broker
    did not respond, although it responded to others. Without versions that Kafka 4.0 removed if the
    broker is newer than 0.9: it has removed them."""
    return f"""(
  with answered as (
    select distinct broker_ip, broker_port, api, api_version from exchanges
    where status = 'answered'),
  newer as (
    select distinct broker_ip, broker_port from answered
    where api = 'ApiVersions' or api = 'Metadata' and api_version > 0)
  select *, {endpoint("broker")} as broker from {unanswered_requests()} as unanswered
  where reason in {literals(_ENDS)} and wait_ms < {_AT_ONCE_MS} and api != 'Produce'
    and (broker_ip, broker_port) in (select (broker_ip, broker_port) from answered)
    and (broker_ip, broker_port, api, api_version) not in (
      select (broker_ip, broker_port, api, api_version) from answered)
    and not ({is_removed()} and (broker_ip, broker_port) in (
      select (broker_ip, broker_port) from newer)))"""


def unsupported_clients(case: Case, least: int) -> list[Row]:
    """Such requests that ended `least` connections or more, by client, broker, API and version."""
    if not any(
        row["reason"] in _ENDS and row["connections"] >= least for row in case.answer(COMMAND)
    ):
        return []
    return case.rows(f"""
      select client_id, broker, api, api_version, any_value(reason) as reason,
        count(*) as requests, count(distinct connection_id) as connections,
        bool_or({is_removed()}) as is_removed, max(wait_ms) as longest_ms,
        {first_packet()} as first_packet,
        min(request_time) as first_time, max(request_time) as last_time
      from {unsupported_requests()} group by client_id, broker, api, api_version
      -- A broker that is killed ends connections, too, but all of them at the same time.
      having connections >= {least}
        and {ms_between("first_time", "last_time")} >= {_AT_ONCE_MS}
      order by requests desc, client_id, broker, api, api_version""")


def unsupported_finding(row: Row) -> Finding:
    """The finding for a row of `unsupported_clients`."""
    request = f"{row['api']} {row['api_version']}"
    return Finding(
        severity="warning",
        **of_client(row, "client_id broker api reason requests connections longest_ms"),
        sentence=f"{row['broker']} closes the connection at {request} of "
        f"{client(row['client_id'])}",
        evidence=f"{counted(row['connections'], 'connection')} ended at once after this request. "
        "The broker responds to other requests, and never to this one.",
        cause="the broker is older than the client, and does not know this API or version"
        + (", or it is Kafka 4 or newer, which removed this version" if row["is_removed"] else ""),
        side="client",
        change="Use a client library that supports the release of the broker: Java clients since "
        "0.10.2 support brokers since 0.10.0. Set api.version.request=false and "
        "broker.version.fallback of librdkafka for older brokers; or upgrade the broker.",
        reference="KIP-35, KIP-97",
        command=COMMAND,
        requests=row["requests"],
    )
