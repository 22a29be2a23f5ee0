"""Connections: an endpoint refuses them, does not reply, or closes them before it responds.

If there is no connection to a port, clients retry and report no error until a timeout. The answer
`network` defines which connections fail, and `failed_handshakes` reports TLS handshakes.

A broker that is down disappears from Metadata when its session ends, and clients no longer connect
to it. So its outage continues while Metadata does not contain it. If responses still contain its
address, or only addresses that fail, the broker is running but advertises a wrong address.

Clients retry within seconds while they need a broker. If they soon stop trying, and continue with
others, the broker was restarted or shut down cleanly, and its finding is not critical.

A client that gets broker addresses but keeps requesting them cannot reach the brokers. If it cannot
resolve their host names, the capture contains no connection attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.advertised import (
    FORGOTTEN,
    HOST_IP,
    address,
    is_loopback,
    unreached_brokers,
    wrong_address,
    wrong_addresses,
)
from analysis.diagnosis.rule import DECLARED, Finding, Limits, Threshold, rule
from analysis.diagnosis.words import (
    addresses,
    capital,
    cells,
    clients,
    known,
    listed,
    matching,
    ms,
    span_of,
    within,
)
from analysis.display.terminal import counted
from analysis.sql.expressions import CLIENT_IDS, endpoint, ms_between
from analysis.sql.failures import CLOSED, FAILED_ENDPOINTS, NO_REPLY, OUTAGES, REFUSED
from analysis.sql.query import Row

COMMAND: Final = "network --show failures"

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
    alike: dict[tuple[str, ...], list[Finding]] = {}
    for finding in _failed(case, limits):
        fails = finding.sentence.partition(f"{finding.numbers['broker']} ")[2]
        alike.setdefault((finding.severity, finding.cause, fails), []).append(finding)
    yield from map(_shared, alike.values())
    if not alike:
        yield from unreached_brokers(case, limits)


def refusing_brokers(case: Case) -> set[str]:
    """Brokers of findings, with default thresholds, about refused connections."""
    return {
        str(finding.numbers["broker"])
        for finding in _failed(case, DECLARED["failed_connections"].limits)
        if finding.numbers["failure"] == REFUSED
    }


def _shared(findings: list[Finding]) -> Finding:
    """One finding for endpoints that fail alike, for example because all brokers are down."""
    finding, *others = findings
    if not others:
        return finding
    role, broker = finding.subject.split(" ", 1)
    brokers = addresses((str(each.numbers["broker"]) for each in findings), f"{role}s")
    fails = finding.sentence.partition(f"{broker} ")[2]
    for singular, plural in _PLURALS.items():
        fails = fails.replace(singular, plural)
    also = listed(
        f"{each.numbers['broker']} with {each.numbers['connections']:,}" for each in others
    )
    return replace(
        finding,
        subject=brokers,
        clients=known(name for each in findings for name in each.clients),
        sentence=f"{capital(brokers)} {fails}",
        evidence=f"{broker}: {finding.evidence} Others: {also}.",
        first_time=min(each.first_time or 0 for each in findings),
        last_time=max(each.last_time or 0 for each in findings),
    )


_PLURALS: Final = {
    "refuses": "refuse", "does not": "do not", "closes": "close", "this address": "these addresses",
}  # fmt: skip


def _failed(case: Case, limits: Limits) -> Iterator[Finding]:
    rows = case.answer(COMMAND)
    wrong = wrong_addresses(case, [row for row in rows if row["failure"] in (REFUSED, NO_REPLY)])
    for row in rows:
        outages = matching(case.rows(_OUTAGES), row, "broker failure")
        lasts_ms = sum(each["lasts_ms"] for each in outages)
        if row["failure"] == CLOSED:
            lasts_ms = (row["last_time"] - row["first_time"]) / 1e6
        is_down = row["after"] >= limits["connections"]
        was_down = row["connections"] >= limits["connections"] and not (
            row["after"] and row["failure"] != CLOSED
        )
        closes_many = row["failure"] == CLOSED and row["connections"] >= max(limits["closed"], 1)
        gone_ms = sum(_gone_ms(case, each) for each in outages)
        was_down_long = was_down and max(lasts_ms, gone_ms) >= limits["recovered_ms"]
        if not is_down and not closes_many and not was_down_long:
            continue
        if row["failure"] == CLOSED and not closes_many and _ends(case, row, limits):
            continue
        role = case.role(row["broker"])
        if row["failure"] == CLOSED:
            rows_of_clients = matching(case.rows(_CLIENTS), row, "broker failure")
            names = known(each["client_id"] for each in rows_of_clients)
            yield _closed(row, role, names, is_down=is_down)
        elif row["failure"] in (REFUSED, NO_REPLY):
            users = matching(case.rows(_USERS), row, "broker failure")
            names = known(each["client_id"] for each in users)
            lost = _lost(case, row)
            if gone_ms > lasts_ms and not is_down:
                lost = f" It was down for {ms(gone_ms)} or longer: Metadata lacked it.{lost}"
            finding = _unreachable(row, role, names, outages, lost, is_down=is_down)
            quiet_ms = _quiet_ms(case, row, outages, limits) if is_down else 0
            if quiet_ms:
                finding = _given_up(finding, role, outages[-1], quiet_ms)
            elif is_down or lasts_ms >= limits["critical_ms"]:
                finding = replace(finding, severity="critical")
            if is_down and address(row) in wrong:
                is_refused, is_local = row["failure"] == REFUSED, is_loopback(case, *address(row))
                finding = wrong_address(finding, is_refused=is_refused, is_local=is_local)
            yield finding


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
    (quiet,) = matching(case.rows(_QUIET), row, "broker failure")
    return float(quiet["quiet_ms"]) if quiet["quiet_ms"] >= limits["critical_ms"] else 0


def _given_up(finding: Finding, role: str, outage: Row, quiet_ms: float) -> Finding:
    """The finding for an endpoint that clients no longer need."""
    is_broker = role == "broker"
    doing = "refused connections" if outage["failure"] == REFUSED else "did not reply to attempts"
    return replace(
        finding,
        sentence=f"{_named(role, str(finding.numbers['broker']))} {doing} for "
        f"{ms(outage['lasts_ms'])}; since then, no client tried again",
        evidence=f"{finding.evidence} They sent requests to other {role}s for another "
        f"{ms(quiet_ms)}.",
        cause=f"the {role} was restarted or stopped"
        + ", and its partitions have leaders on other brokers" * is_broker,
        change=f"Check that the {role} runs again{', and elect preferred leaders' * is_broker}.",
    )


def _gone_ms(case: Case, outage: Row) -> float:
    """The time from the first failure to the last Metadata response without the broker, or 0."""
    start, end = outage["first_time"], outage["end_time"]
    times = [row["time"] for row in matching(case.rows(FORGOTTEN), outage, "broker")]
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


_MOVED: Final = {
    "broker": "bootstrap.servers of the clients and advertised.listeners of the broker",
    "controller": "controller.quorum.bootstrap.servers, or controller.quorum.voters, of the "
    "brokers and controllers",
}
"""The settings with an address, by the role of the endpoint (KIP-595, KIP-853)."""


def _unreachable(
    row: Row, role: str, names: tuple[str, ...], outages: list[Row], lost: str, *, is_down: bool
) -> Finding:
    """`role`: broker or controller. `names`: clients on the hosts of the attempts. `outages`: in
    order of time; the last one continues if the endpoint is down.
    """
    broker, is_refused = row["broker"], row["failure"] == REFUSED
    longest = outages[-1] if is_down else max(outages, key=lambda outage: outage["lasts_ms"])
    times = {name: longest[name] for name in ("first_time", "last_time")}
    doing = "refuses connections" if is_refused else "does not reply to connection attempts"
    after = "It accepted no connection in the capture."
    if not is_down:
        lasts_ms = sum(each["lasts_ms"] for each in outages)
        doing = f"{'refused connections' if is_refused else 'did not reply'} for {ms(lasts_ms)}"
        after = "It accepts connections again."
        if len(outages) > 1:
            after = (
                f"It accepted connections again {len(outages):,} times; the longest outage took "
                f"{ms(longest['lasts_ms'])}."
            )
    elif row["worked_time"] is not None:
        after = (
            f"{counted(row['after'], 'attempt')} came after the last connection that it accepted."
        )
    return Finding(
        severity="warning",
        subject=f"{role} {broker}",
        clients=names,
        sentence=f"{_named(role, broker)} {doing}",
        evidence=f"{counted(row['connections'], 'attempt')} from {counted(row['hosts'], 'host')}"
        f"{within(row)} ended "
        + ("with a reset (RST) instead of a handshake. " if is_refused
           else "without any packet from the other side. ") + after + lost
        + (f" Clients on {'this host' if row['hosts'] == 1 else 'these hosts'} that use the "
           f"address: {listed(f'`{name}`' for name in names)}." if names else ""),
        numbers=cells(row, "broker failure connections hosts"),
        cause=f"no process listens on this port: the {role} is down or restarts, or the address "
        "is wrong" if is_refused
        else "the host is down, or a firewall, security group or route drops the packets",
        side="broker" if is_refused else "network",
        setting="listeners" if is_refused else None,
        change=f"Look at the {role}'s log, and start the {role}. If it moved or was retired, "
        f"correct {_MOVED[role]}."
        if is_refused
        else f"Check the host and the path to it from a client: nc -vz HOST PORT. If the {role} "
        f"moved, correct {_MOVED[role]}.",
        reference=f"RFC 9293, section {'3.5.2' if is_refused else '3.8.3'}",
        command=COMMAND,
        **times,
    )  # fmt: skip


def _named(role: str, address: str) -> str:
    """The endpoint as the subject of a sentence; an address alone is that of a broker."""
    return address if role == "broker" else f"Controller {address}"


def _closed(row: Row, role: str, names: tuple[str, ...], *, is_down: bool) -> Finding:
    """The finding for an endpoint that closes connections before it sends any byte."""
    broker, served = row["broker"], row["served"]
    return Finding(
        severity="critical" if is_down else "warning",
        subject=f"{role} {broker}",
        clients=names,
        sentence=f"{_named(role, broker)} closes new connections without a response",
        evidence=f"{counted(row['connections'], 'connection')} from "
        f"{counted(row['hosts'], 'host')}{within(row)} ended at once, without any data from the "
        f"{role}. {served:,} other connections to this {role} had data in both directions."
        + (f" Clients: {listed(f'`{name}`' for name in names)}." if names else ""),
        numbers=cells(row, "broker failure connections hosts"),
        # A listener that expects TLS serves no other client, either.
        cause="a limit of connections is reached, "
        + ("or a proxy closes them" if served
           else "the listener expects TLS, or a proxy has no broker behind it"),
        side="broker",
        setting="max.connections.per.ip",
        change=f"Look for the reason in the {role}'s log. Compare max.connections.per.ip and "
        "max.connections with its open connections"
        + ("." if served else ", and security.protocol of the clients with its listener."),
        reference="KIP-308, KIP-402",
        command=COMMAND,
        requests=row["connections"],
        **span_of([row]),
    )  # fmt: skip
