"""Endpoints that refuse connections, do not reply, or close connections before they respond.

Those that fail alike, for example because all brokers are down, are one finding of the rule
`failed_connections`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from analysis.diagnosis.causes.advertised import wrong_address
from analysis.diagnosis.rule import Finding, Severity
from analysis.diagnosis.words import addresses, capital, cells, known, listed, ms, verb, within
from analysis.display.terminal import counted
from analysis.sql.failures import CLOSED, REFUSED
from analysis.sql.query import Row
from dissector.arrays import value

COMMAND: Final = "network --show failures"

_MOVED: Final = {
    "broker": "bootstrap.servers of the clients and advertised.listeners of the broker",
    "controller": "controller.quorum.bootstrap.servers, or controller.quorum.voters, of the "
    "brokers and controllers",
}
"""The settings with an address, by the role of the endpoint (KIP-595, KIP-853)."""


@value
class FailedEndpoint:
    """An endpoint whose connections fail in one way."""

    row: Row
    """Of `COMMAND`."""
    role: Literal["broker", "controller"]
    clients: tuple[str, ...]
    """Client ids: of the failed connections, or on the hosts that tried to connect."""
    severity: Severity
    is_down: bool
    """Whether it fails until the end of the capture."""
    outages: tuple[Row, ...] = ()
    """In order of time; the last one continues if it is down. Empty if it closes connections."""
    lost: str = ""
    """Sentences about the effects of an outage."""
    quiet_ms: float = 0
    """For how long clients continue with others, if they no longer need it."""
    is_wrong: bool = False
    """Whether a broker that works advertises the address."""
    is_loopback: bool = False

    @property
    def broker(self) -> str:
        """Address and port."""
        return str(self.row["broker"])

    @property
    def failure(self) -> str:
        return str(self.row["failure"])

    @property
    def longest(self) -> Row:
        """The outage that continues, or the longest one."""
        if self.is_down:
            return self.outages[-1]
        return max(self.outages, key=lambda outage: outage["lasts_ms"])

    @property
    def lasts_ms(self) -> float:
        """The time of all outages, or of the one after which clients no longer need it."""
        return float(sum(each["lasts_ms"] for each in self.outages[-1 if self.quiet_ms else 0 :]))

    @property
    def kind(self) -> tuple[object, ...]:
        """What endpoints have in common that fail alike."""
        return (
            self.role, self.failure, self.severity, self.is_down, bool(self.quiet_ms),
            self.is_wrong, self.is_wrong and self.is_loopback,
            self.failure == CLOSED and bool(self.row["served"]),
        )  # fmt: skip


def endpoints_finding(alike: Sequence[FailedEndpoint]) -> Finding:
    """A finding for endpoints of one kind, that with the most connections first."""
    first, *others = alike
    finding = _closing(alike) if first.failure == CLOSED else _unreachable(alike)
    if not others:
        return finding
    also = listed(f"{each.broker} with {each.row['connections']:,}" for each in others)
    return replace(finding, evidence=f"{first.broker}: {finding.evidence} Others: {also}.")


def _unreachable(alike: Sequence[FailedEndpoint]) -> Finding:
    """The finding for endpoints that refuse connections or do not reply."""
    first, is_refused = alike[0], alike[0].failure == REFUSED
    role = first.role
    finding = Finding(
        severity=first.severity,
        **_endpoints(alike),
        sentence=f"{_named(alike)} {_failing(alike)}",
        evidence=_evidence(first),
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
        first_time=min(each.longest["first_time"] for each in alike),
        last_time=max(each.longest["last_time"] for each in alike),
    )  # fmt: skip
    if first.quiet_ms:
        finding = _unused(finding, first)
    if not first.is_wrong:
        return finding
    return wrong_address(finding, is_refused=is_refused, is_local=first.is_loopback)


def _unused(finding: Finding, first: FailedEndpoint) -> Finding:
    """The finding for endpoints that clients no longer need."""
    role, is_broker = first.role, first.role == "broker"
    return replace(
        finding,
        cause=f"the {role} was restarted or stopped"
        + ", and its partitions have leaders on other brokers" * is_broker,
        change=f"Check that the {role} runs again{', and elect preferred leaders' * is_broker}.",
    )


def _closing(alike: Sequence[FailedEndpoint]) -> Finding:
    """The finding for endpoints that close connections before they send any byte."""
    first = alike[0]
    row, role, served = first.row, first.role, first.row["served"]
    return Finding(
        severity=first.severity,
        **_endpoints(alike),
        sentence=f"{_named(alike)} {verb(len(alike), 'close')} new connections without a response",
        evidence=f"{counted(row['connections'], 'connection')} from "
        f"{counted(row['hosts'], 'host')}{within(row)} ended at once, without any data from the "
        f"{role}. {served:,} other connections to this {role} had data in both directions."
        + (f" Clients: {_quoted(first.clients)}." if first.clients else ""),
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
        requests=sum(each.row["connections"] for each in alike),
        first_time=min(each.row["first_time"] for each in alike),
        last_time=max(each.row["last_time"] for each in alike),
    )  # fmt: skip


def _failing(alike: Sequence[FailedEndpoint]) -> str:
    """How endpoints fail: the predicate of a sentence."""
    first, count = alike[0], len(alike)
    if first.is_down and not first.quiet_ms:
        doing = (
            f"{verb(count, 'refuse')} connections" if first.failure == REFUSED
            else f"{verb(count, 'do')} not reply to connection attempts"
        )  # fmt: skip
        advertised = "this address" if count == 1 else "these addresses"
        return doing + f", but a broker advertises {advertised}" * first.is_wrong
    doing = "refused connections" if first.failure == REFUSED else "did not reply to attempts"
    lasts = "up to " * (count > 1) + ms(max(each.lasts_ms for each in alike))
    return f"{doing} for {lasts}" + "; since then, no client tried again" * bool(first.quiet_ms)


def _evidence(endpoint: FailedEndpoint) -> str:
    """The attempts to connect to an endpoint, and what happened after them."""
    row, names = endpoint.row, endpoint.clients
    after = "It accepted no connection in the capture."
    if not endpoint.is_down:
        after = "It accepts connections again."
        if len(endpoint.outages) > 1:
            after = (
                f"It accepted connections again {len(endpoint.outages):,} times; the longest "
                f"outage took {ms(endpoint.longest['lasts_ms'])}."
            )
    elif row["worked_time"] is not None:
        after = (
            f"{counted(row['after'], 'attempt')} came after the last connection that it accepted."
        )
    hosts = "this host" if row["hosts"] == 1 else "these hosts"
    return (
        f"{counted(row['connections'], 'attempt')} from {counted(row['hosts'], 'host')}"
        f"{within(row)} ended "
        + ("with a reset (RST) instead of a handshake. " if endpoint.failure == REFUSED
           else "without any packet from the other side. ") + after + endpoint.lost
        + (f" Clients on {hosts} that use the address: {_quoted(names)}." if names else "")
        + (f" They sent requests to other {endpoint.role}s for another {ms(endpoint.quiet_ms)}."
           if endpoint.quiet_ms else "")
    )  # fmt: skip


def _quoted(names: Sequence[str]) -> str:
    return listed(f"`{name}`" for name in names)


def _endpoints(alike: Sequence[FailedEndpoint]) -> dict[str, Any]:
    """The fields of a finding that name its endpoints."""
    first = alike[0]
    return {
        "subject": f"{first.role} {first.broker}" if len(alike) == 1 else _named(alike),
        "clients": known(name for each in alike for name in each.clients),
        "numbers": cells(first.row, "broker failure connections hosts"),
        "command": COMMAND,
    }


def _named(alike: Sequence[FailedEndpoint]) -> str:
    """The endpoints as the subject of a sentence; an address alone is that of a broker."""
    first, brokers = alike[0], (each.broker for each in alike)
    if len(alike) == 1 and first.role == "controller":
        return f"Controller {first.broker}"
    return capital(addresses(brokers, f"{first.role}s"))
