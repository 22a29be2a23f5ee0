"""Credentials in clear: SASL sends a password or token on a connection without TLS.

SASL/PLAIN sends the password itself, and SASL/OAUTHBEARER a token that acts as one. Every host on
the path can read them. SCRAM and GSSAPI do not reveal a password.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.compute as pc

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits, rule
from analysis.diagnosis.words import capital, cells, clients, of_clients, span_of
from analysis.display.terminal import counted
from analysis.sql.query import Row


@rule(
    question="Do clients send credentials without encryption?",
    place=20,
    rests_on="security",
)
def plain_credentials(case: Case, limits: Limits) -> Iterator[Finding]:
    """Clients that authenticate in clear, by the answer `security`; one connection is enough."""
    for finding, secrets in (("clear password", "passwords"), ("clear token", "tokens")):
        if rows := case.answer_where("security", pc.field("finding") == finding):
            yield _finding(case, rows, secrets)


def _finding(case: Case, rows: list[Row], secrets: str) -> Finding:
    names = list(dict.fromkeys(row["client_id"] for row in rows))
    mechanism = "PLAIN" if secrets == "passwords" else "OAUTHBEARER"
    return Finding(
        severity="critical",
        **of_clients(names),
        sentence=f"{capital(secrets)} of {clients(names)} cross the network without encryption "
        f"(SASL/{mechanism})",
        evidence=f"{counted(sum(row['count'] for row in rows), 'connection')} without TLS. The "
        f"capture contains the {secrets}: handle it as a secret.",
        numbers=cells(rows[0], "finding client_id client protocol mechanism count"),
        cause="the listener has the protocol SASL_PLAINTEXT",
        side="broker",
        setting="listener.security.protocol.map",
        change=f"Use a SASL_SSL listener on brokers and clients, and replace the {secrets}. "
        "Without TLS, at least use SCRAM.",
        reference="Kafka documentation: Security, Authentication using SASL/PLAIN; RFC 4616",
        command="security",
        requests=sum(case.requests_of(name) for name in names),
        **span_of(rows),
    )
