"""Connections: an endpoint refuses them, does not reply, or closes them before it responds.

If there is no connection to a port, clients retry and report no error until a timeout. The answer
`network` defines which connections fail, and `failed_handshakes` reports TLS handshakes.

A broker that is down disappears from Metadata when its session ends, and clients no longer connect
to it. So its outage continues while Metadata does not contain it. If responses still contain its
address, or only addresses that fail, the broker is running but advertises a wrong address.

Clients retry within seconds while they need a broker. If they soon stop trying, and continue with
others, the broker was restarted or shut down cleanly, and its finding is not critical. The same
holds if the broker then fetches as a follower.

A client that gets broker addresses but keeps requesting them cannot reach the brokers. If it cannot
resolve their host names, the capture contains no connection attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.advertised import (
    FORGOTTEN,
    HOST_IP,
    address,
    is_loopback,
    unreached_brokers,
    wrong_addresses,
)
from analysis.diagnosis.causes.failed_endpoints import COMMAND, FailedEndpoint, endpoints_finding
from analysis.diagnosis.rule import DECLARED, Finding, Limits, Threshold, rule
from analysis.diagnosis.rules.late_followers import LAST_FETCHES
from analysis.diagnosis.rules.slow_broker import IDS
from analysis.diagnosis.words import clients, known, ms, rows_by
from analysis.display.terminal import counted
from analysis.sql.expressions import CLIENT_IDS, endpoint, ms_between
from analysis.sql.failures import CLOSED, FAILED_ENDPOINTS, NO_REPLY, OUTAGES, REFUSED
from analysis.sql.query import Row

_OUTAGES: Final = f"""
  select {endpoint("broker")} as broker, * from {OUTAGES} order by first_time"""

_CLIENTS: Final = f"""
  select {endpoint("broker")} as broker, failure, client_id
  from {FAILED_ENDPOINTS} join {CLIENT_IDS} using (connection_id)
  group by all order by count(*) desc, client_id"""

_USERS: Final = f"""
  with named as (from connections join {CLIENT_IDS} using (connection_id)),
  users as (
    select client_ip, client_id, broker_ip, broker_port from named
    union select client_ip, client_id, {HOST_IP}, port
    from brokers join named using (connection_id) where host is not null)
  select {endpoint("broker")} as broker, failure, client_id
  from {FAILED_ENDPOINTS} join users using (client_ip, broker_ip, broker_port)
  group by all order by client_id"""
"""SQL: clients that were connected to an endpoint, or got its address, on the hosts whose attempts
failed. An attempt itself does not contain a client id."""

_QUIET: Final = f"""
  with active as (select client_ip, max(request_time) as time from exchanges group by all),
  hosts as (
    select {endpoint("broker")} as broker, failure, client_ip, max(first_time) as last_attempt
    from {FAILED_ENDPOINTS} group by all)
  select broker, failure,
    min(coalesce({ms_between("last_attempt", "active.time")}, 0)) as quiet_ms
  from hosts left join active using (client_ip) group by all"""
"""SQL: for how long the clients on all these hosts sent requests after the last attempt."""


_FOLLOWING: Final = f"""
  select broker, last_time from ({LAST_FETCHES}) join ({IDS}) on replica_id = id"""
"""SQL: the last Fetch of each broker as a follower: its process runs."""


@rule(
    question="Do connections to a broker fail?",
    place=0,
    rests_on="network brokers unanswered",
    thresholds=(
        Threshold("connections", 3, "connections", "Connections that failed since the endpoint "
                  "last accepted one. One or two occur when a process stops."),
        Threshold("recovered_ms", 10_000, "ms", "For an endpoint that accepts connections again: "
                  "the time from the first failure to the last, or to the last Metadata response "
                  "without the broker, without times in which it accepted connections. A broker "
                  "starts in a few seconds."),
        Threshold("critical_ms", 30_000, "ms", "Critical if the time from the first failure to the "
                  "last is as long as request.timeout.ms, 30 s by default: calls of clients fail."),
        Threshold("closed", 10, "connections", "For an endpoint that closes connections at once, "
                  "but serves others: a broker that stops closes a few."),
        Threshold("lookups", 10, "requests", "Responses with broker addresses to a client "
                  "that sends no other requests: a client needs two or three."),
        Threshold("lookup_ms", 2_000, "ms", "The mean time between these requests, for one of "
                  "the clients with the same addresses: clients retry at least once a second, and "
                  "health checks send them less often."),
    ),
)  # fmt: skip
def failed_connections(case: Case, limits: Limits) -> Iterator[Finding]:
    """Endpoints that fail, by the answer `network`; if there is none, clients that do not connect
    to any."""
    alike: dict[tuple[object, ...], list[FailedEndpoint]] = {}
    for failed in _failed(case, limits):
        alike.setdefault(failed.kind, []).append(failed)
    yield from map(endpoints_finding, alike.values())
    if not alike:
        yield from unreached_brokers(case, limits)


def refusing_brokers(case: Case) -> set[str]:
    """Brokers of findings, with default thresholds, about refused connections."""
    failed = _failed(case, DECLARED["failed_connections"].limits)
    return {each.broker for each in failed if each.failure == REFUSED}


def _failed(case: Case, limits: Limits) -> Iterator[FailedEndpoint]:
    rows = rows_by(case.answer(COMMAND), "failure")
    unreachable = rows.get(REFUSED, []) + rows.get(NO_REPLY, [])
    wrong = wrong_addresses(case, unreachable)
    failed = [
        _unreachable(case, row, limits, is_wrong=address(row) in wrong) for row in unreachable
    ]
    failed += [_closing(case, row, limits) for row in rows.get(CLOSED, [])]
    yield from filter(None, failed)


def _unreachable(case: Case, row: Row, limits: Limits, *, is_wrong: bool) -> FailedEndpoint | None:
    """An endpoint that refuses connections or does not reply, if it does so for long enough."""
    outages = _same(case, _OUTAGES, row)
    lasts_ms = sum(each["lasts_ms"] for each in outages)
    gone_ms = sum(_gone_ms(case, each) for each in outages)
    is_down = row["after"] >= limits["connections"]
    was_down = row["connections"] >= limits["connections"] and not row["after"]
    if not is_down and not (was_down and max(lasts_ms, gone_ms) >= limits["recovered_ms"]):
        return None
    quiet_ms = _quiet_ms(case, row, outages, limits) if is_down else 0
    is_critical = not quiet_ms and (is_down or lasts_ms >= limits["critical_ms"])
    lost = _lost(case, row)
    if quiet_ms and _follows(case, row, limits):
        lost += " It runs again: it fetches as a follower."
    if gone_ms > lasts_ms and not is_down:
        lost = f" It was down for {ms(gone_ms)} or longer: Metadata lacked it.{lost}"
    return FailedEndpoint(
        row=row,
        role=case.role(row["broker"]),
        clients=known(each["client_id"] for each in _same(case, _USERS, row)),
        severity="critical" if is_critical else "warning",
        is_down=is_down,
        outages=tuple(outages),
        lost=lost,
        quiet_ms=quiet_ms,
        is_wrong=is_down and not quiet_ms and is_wrong,
        is_loopback=is_loopback(case, *address(row)),
    )


def _closing(case: Case, row: Row, limits: Limits) -> FailedEndpoint | None:
    """An endpoint that closes connections before it sends any byte, if it closes enough of them."""
    is_down = row["after"] >= limits["connections"]
    are_many = row["connections"] >= max(limits["closed"], 1)
    lasts_ms = (row["last_time"] - row["first_time"]) / 1e6
    lasts = row["connections"] >= limits["connections"] and lasts_ms >= limits["recovered_ms"]
    if not are_many and (not (is_down or lasts) or _ends(case, row, limits)):
        return None
    return FailedEndpoint(
        row=row,
        role=case.role(row["broker"]),
        clients=known(each["client_id"] for each in _same(case, _CLIENTS, row)),
        severity="critical" if is_down else "warning",
        is_down=is_down,
    )


def _same(case: Case, query: str, row: Row) -> list[Row]:
    """The rows of a query about the failure of an endpoint."""
    return case.matching(query, row, "broker failure")


def _ends(case: Case, row: Row, limits: Limits) -> bool:
    """Whether an endpoint refuses connections soon after it closed some: its process ended, and
    the kernel closed those that it had not accepted."""
    return any(
        (outage["broker"], outage["failure"]) == (row["broker"], REFUSED)
        and 0 <= (outage["first_time"] - row["first_time"]) / 1e6 <= limits["recovered_ms"]
        for outage in case.rows(_OUTAGES)
    )  # fmt: skip


def _quiet_ms(case: Case, row: Row, outages: list[Row], limits: Limits) -> float:
    """The time for which clients did not need an endpoint any more, or 0.

    It worked before, and they soon stopped trying.
    """
    if row["worked_time"] is None or outages[-1]["lasts_ms"] >= limits["recovered_ms"]:
        return 0
    (quiet,) = _same(case, _QUIET, row)
    is_over = quiet["quiet_ms"] >= limits["critical_ms"] or _follows(case, row, limits)
    return float(quiet["quiet_ms"]) if is_over else 0


def _follows(case: Case, row: Row, limits: Limits) -> bool:
    """Whether the broker fetches as a follower, long after the last attempt to connect to it."""
    return any(
        (last["last_time"] - row["last_time"]) / 1e6 >= limits["recovered_ms"]
        for last in case.matching(_FOLLOWING, row, "broker")
    )


def _gone_ms(case: Case, outage: Row) -> float:
    """The time from the first failure to the last Metadata response without the broker, or 0."""
    start, end = outage["first_time"], outage["end_time"]
    times = [row["time"] for row in case.matching(FORGOTTEN, outage, "broker")]
    gone = [time for time in times if start <= time and (end is None or time <= end)]
    return float((max(gone, default=start) - start) / 1e6)


def _lost(case: Case, broker: Row) -> str:
    """A sentence about requests that the broker left without a response, when it stopped."""
    rows = [
        row for row in case.answer("unanswered --by client_id,broker,api,reason")
        if row["broker"] == broker["broker"] and row["reason"] == "reset"
    ]  # fmt: skip
    names = list(dict.fromkeys(row["client_id"] for row in rows))
    lost = counted(sum(row["requests"] for row in rows), "request")
    return f" {lost} of {clients(names)} got no response." if rows else ""
