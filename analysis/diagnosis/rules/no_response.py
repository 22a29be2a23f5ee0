"""Missing responses: clients wait in vain until a timeout, or until their connection is reset.

Requests without a response because the capture or the connection ended in order are not counted,
nor those whose response may be missing from the capture. Long polls are left out: a client that
stops leaves one behind. ApiVersions requests of connections that are closed at once belong to
`failed_connections`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.answers.unanswered import TIMEOUT_MS
from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import BROKER, NETWORK, WARNING, Finding, Limits, Threshold, rule
from analysis.diagnosis.words import capital, client, known, ms
from analysis.display.terminal import counted

COMMAND: Final = "unanswered --by client_id,broker,api,reason"


@rule(
    question="Do requests get no response?",
    place=7,
    rests_on="unanswered",
    thresholds=(
        Threshold(
            "requests",
            3,
            "requests",
            "Requests of an API that ended with a timeout "
            "or a reset. One or two occur when a process is killed.",
        ),
    ),
)
def no_response(case: Case, limits: Limits) -> Iterator[Finding]:
    """Clients that waited in vain, by the answer `unanswered`."""
    waiting = _waiting_apis()
    for row in case.answer(COMMAND):
        if (
            row["reason"] not in ("timeout", "reset")
            or row["api"] in waiting
            or (row["api"] == "ApiVersions" and (row["longest_ms"] or 0) < TIMEOUT_MS)
            or row["requests"] < limits["requests"]
        ):
            continue
        name, broker = row["client_id"], row["broker"]
        names = ("client_id", "broker", "api", "reason", "requests", "connections", "longest_ms")
        is_timeout = (row["longest_ms"] or 0) >= TIMEOUT_MS
        yield Finding(
            severity=WARNING,
            subject=client(name),
            clients=known([name]),
            sentence=f"{capital(client(name))} gets no response from {broker} to "
            f"{counted(row['requests'], row['api'] + ' request')}",
            evidence=f"{counted(row['connections'], 'connection')} ended "
            + ("with a reset (RST)" if row["reason"] == "reset" else "in order (FIN)")
            + f" before the response. The longest wait was {ms(row['longest_ms'])}.",
            numbers={n: row[n] for n in names},
            cause="the broker or its host stands still or is overloaded"
            if is_timeout
            else "a process was killed, or a proxy, firewall or load balancer dropped the "
            "connection",
            side=BROKER if is_timeout else NETWORK,
            setting="request.timeout.ms" if is_timeout else "connections.max.idle.ms",
            change="Look at the broker's log, garbage collection and disk at these times. "
            "request.timeout.ms is 30 s by default; a shorter one gives up early."
            if is_timeout
            else "Find the side that sends the RST. Keep connections.max.idle.ms below the idle "
            "timeout of proxies and firewalls.",
            reference="Kafka documentation: Producer Configs, request.timeout.ms",
            command=COMMAND,
            requests=row["requests"],
            first_packet=row["first_packet"],
            first_time=row["first_time"],
            last_time=row["last_time"],
        )


def _waiting_apis() -> set[str]:
    """APIs whose requests wait at the broker by design."""
    from dissector.protocol import registry

    apis = registry.all_apis()
    return {api.name for api in apis if api.is_long_poll or api.is_group_barrier}
