"""Credentials in clear: SASL sends a password or token on a connection without TLS.

SASL/PLAIN sends the password itself, and SASL/OAUTHBEARER a token that acts as one. Every host on
the path can read them. SCRAM and GSSAPI do not reveal a password.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case, Row
from analysis.diagnosis.rule import BROKER, CRITICAL, Finding, Limits, rule
from analysis.diagnosis.words import capital, clients, known, listed, sql
from analysis.display.terminal import counted

QUERY: Final = """
  select client_id, sasl_mechanism, count(*) as connections,
    string_agg(distinct broker_ip || ' port ' || broker_port, ', '
      order by broker_ip || ' port ' || broker_port) as brokers,
    sum(requests)::bigint as requests, min(first_packet) as first_packet,
    min(first_time) as first_time, max(first_time) as last_time
  from connections join (
    select connection_id, arg_min(client_id, nth) as client_id,
      min(request_packet) filter (api in ('SaslHandshake', 'SaslAuthenticate')) as first_packet
    from exchanges group by all) using (connection_id)
  where sasl_mechanism in ('PLAIN', 'OAUTHBEARER') and tls_version is null
  group by client_id, sasl_mechanism order by connections desc, first_time"""


SHOWN: Final = """
  select client_id, sasl_mechanism, count(*) as connections from connections join (
    select connection_id, any_value(client_id) as client_id from exchanges group by all)
    using (connection_id)
  where sasl_mechanism is not null and tls_version is null group by all"""


@rule(
    question="Do clients send credentials without encryption?",
    place=20,
    rests_on="connections",
)
def plain_credentials(case: Case, limits: Limits) -> Iterator[Finding]:
    """Clients that authenticate in clear; one connection is enough."""
    by_mechanism: dict[str, list[Row]] = defaultdict(list)
    for row in case.rows(QUERY):
        by_mechanism[row["sasl_mechanism"]].append(row)
    for mechanism, rows in by_mechanism.items():
        names = [row["client_id"] for row in rows]
        secret = "passwords" if mechanism == "PLAIN" else "tokens"
        shown = ("client_id", "sasl_mechanism", "connections")
        brokers = dict.fromkeys(each for row in rows for each in row["brokers"].split(", "))
        connections = sum(row["connections"] for row in rows)
        yield Finding(
            severity=CRITICAL,
            subject=clients(names),
            clients=known(names),
            sentence=f"{capital(secret)} of {clients(names)} cross the network without encryption "
            f"(SASL/{mechanism})",
            evidence=f"{counted(connections, 'connection')} without TLS to {listed(brokers)}. This "
            f"capture contains the {secret}: handle it as a secret.",
            numbers={n: rows[0][n] for n in shown},
            cause="the listener has the protocol SASL_PLAINTEXT",
            side=BROKER,
            setting="security.protocol=SASL_SSL",
            change=f"Use a SASL_SSL listener on brokers and clients, and replace the {secret}. "
            "Without TLS, use SCRAM at least.",
            reference="Kafka documentation: Security, Authentication using SASL/PLAIN; RFC 4616",
            command=sql(SHOWN),
            requests=sum(row["requests"] for row in rows),
            first_packet=min(
                (row["first_packet"] for row in rows if row["first_packet"]), default=None
            ),
            first_time=min(row["first_time"] for row in rows),
            last_time=max(row["last_time"] for row in rows),
        )
