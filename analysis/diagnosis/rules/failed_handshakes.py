"""TLS handshakes that fail: certificates, versions, and TLS on one side only.

The problems `tls_alert` and `tls_closed` show them, even without a key log. TLS 1.3 encrypts most
alerts, so their reason needs a key log, or the log of the broker or client. Some clients close the
connection without an alert, and so does a process that ends.

With a key log, the problem `tls_aborted` shows alerts that end a connection after its handshake.
Retransmissions repair what TCP detects, so an alert about a TLS record is not caused by loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import Advice, addresses, cells, span_of, within
from analysis.display.terminal import counted
from analysis.sql.expressions import endpoint
from analysis.sql.failures import TLS
from analysis.sql.query import Row
from dissector.problems import AFTER_DATA

_TLS: Final = (
    "Kafka documentation: Security, Encryption and Authentication using SSL; RFC 8446, section 6"
)
_BROKER_EXPIRED: Final = Advice(
    "the certificate of the broker has expired, or the clock of the client is wrong",
    "broker", "ssl.keystore.location", "Renew the certificate of the broker.",
    _TLS,
)  # fmt: skip
_BROKER_CERTIFICATE: Final = Advice(
    "the client does not accept the certificate of the broker: it has expired, it is for another "
    "host name, or the trust store lacks its authority",
    "client", "ssl.truststore.location",
    "Compare the certificate (openssl s_client -connect HOST:PORT) with the trust store of the "
    "client, and its names with bootstrap.servers and advertised.listeners.",
    _TLS,
)  # fmt: skip
_CLIENT_CERTIFICATE: Final = Advice(
    "the listener requires a certificate of the client (ssl.client.auth=required): the client "
    "sends none, or one that the broker does not accept",
    "client", "ssl.keystore.location",
    "Give the client a valid certificate whose authority is in the trust store of the broker.",
    _TLS,
)  # fmt: skip
_VERSIONS: Final = Advice(
    "client and broker have no TLS version or cipher suite in common, or the certificate of the "
    "broker does not match them",
    "broker", "ssl.enabled.protocols",
    "Compare ssl.enabled.protocols and ssl.cipher.suites of both sides, and the key of the "
    "broker's certificate with the suites.",
    _TLS,
)  # fmt: skip
_NO_TLS_OF_CLIENT: Final = Advice(
    "the client does not use TLS, but the listener requires it",
    "client", "security.protocol=SSL",
    "Set security.protocol to SSL or SASL_SSL in the client, or correct the port in "
    "bootstrap.servers.",
    _TLS,
)  # fmt: skip
_NO_TLS_OF_BROKER: Final = Advice(
    "the client uses TLS, but the listener does not",
    "client", "security.protocol=PLAINTEXT",
    "Correct the port in bootstrap.servers, or set security.protocol of the client to that of the "
    "listener.",
    _TLS,
)  # fmt: skip
_CLOSED: Final = Advice(
    "the broker closes connections although its listener uses TLS: it stops, or a limit of "
    "connections is reached",
    "broker", "max.connections.per.ip",
    "Read the log of the broker, and compare the number of its connections with max.connections "
    "and max.connections.per.ip.",
    "KIP-402; Kafka documentation: Broker Configs, max.connections.per.ip",
)  # fmt: skip
_CHANGED_BYTES: Final = Advice(
    "a device on the path changed bytes of the connection, or the TLS library of one side is "
    "defective",
    "network", None,
    "Capture at the client and at the broker, and compare the TCP payload. If it is equal, read "
    "the log of the side that sent the alert.",
    _TLS,
)  # fmt: skip
_NEITHER: Final = Advice(
    "the other side sent data that violates the TLS protocol",
    "broker", "ssl.enabled.protocols",
    "Read the log of the broker, which contains the reason.",
    _TLS,
)  # fmt: skip

_CERTIFICATE_ALERTS: Final = (
    "bad_certificate", "unsupported_certificate", "certificate_revoked", "certificate_expired",
    "certificate_unknown", "unknown_ca", "access_denied", "certificate_required",
)  # fmt: skip
_RECORD_ALERTS: Final = (
    "unexpected_message", "bad_record_mac", "record_overflow", "decode_error", "decrypt_error",
)  # fmt: skip
"""Alerts of an end that cannot read a TLS record."""
_BY_CLIENT: Final[Mapping[str, Advice]] = {
    **{f"alert {name}": _BROKER_CERTIFICATE for name in _CERTIFICATE_ALERTS},
    "alert certificate_expired": _BROKER_EXPIRED,
    "an encrypted alert": _BROKER_CERTIFICATE,
    "the connection ended before the client's Finished": _BROKER_CERTIFICATE,
}
"""Advice by the reason, if the client ended the handshake."""
_BY_BROKER: Final[Mapping[str, Advice]] = {
    **{f"alert {name}": _CLIENT_CERTIFICATE for name in _CERTIFICATE_ALERTS},
    "an encrypted alert": _CLIENT_CERTIFICATE,
    "the connection ended before the ServerHello": _NO_TLS_OF_BROKER,
}
_BY_EITHER: Final = {
    **{
        f"alert {name}": _VERSIONS
        for name in ("handshake_failure", "protocol_version", "insufficient_security")
    },
    **{f"alert {name}{AFTER_DATA}": _CHANGED_BYTES for name in _RECORD_ALERTS},
}

COMMAND: Final = "network --show failures"

_LISTENERS: Final = f"""
  select distinct {endpoint("broker")} as broker from connections where tls_version is not null"""
"""SQL: brokers that sent a ServerHello."""


@rule(
    question="Do TLS handshakes fail, or alerts end connections?",
    place=24,
    rests_on="network connections",
    thresholds=(
        Threshold("alerts", 1, "connection", "Connections that ended with an alert. Java "
                  "clients do not retry after one."),
        Threshold("closed", 3, "connections", "Connections that were closed during the handshake. "
                  "One or two occur when a process stops."),
    ),
)  # fmt: skip
def failed_handshakes(case: Case, limits: Limits) -> Iterator[Finding]:
    """Endpoints with failures of TLS, by the reason; by the answer `network`."""
    alike: dict[tuple[str, Advice], list[Row]] = {}
    for row in case.answer(COMMAND):
        is_alert = "alert" in row["failure"]
        is_failed = row["connections"] >= limits["alerts" if is_alert else "closed"]
        if is_failed and row["failure"].startswith(TLS):
            has_tls = {"broker": row["broker"]} in case.rows(_LISTENERS)
            reason = row["failure"].removeprefix(TLS)
            given = _advice(reason, by_broker=row["ended_by"] == "broker", has_tls=has_tls)
            alike.setdefault((reason, given), []).append(row)
    for (reason, given), rows in alike.items():
        yield _finding(rows, reason, given)


def _finding(rows: list[Row], reason: str, given: Advice) -> Finding:
    """A finding for brokers with the same failure, that with the most connections first."""
    row, connections = rows[0], sum(row["connections"] for row in rows)
    brokers = addresses((row["broker"] for row in rows), "brokers")
    served, span = sum(row["served"] for row in rows), span_of(rows)
    others = counted(served, "other connection") if served else "No other connection"
    sent = f" The {row['ended_by']} sent the alert." if "alert" in reason else ""
    part = "connections" if reason.endswith(AFTER_DATA) else "handshakes"
    hosts = f" from {counted(row['hosts'], 'host')}" if len(rows) == 1 else ""
    return Finding(
        severity="warning" if all(row["served"] for row in rows) else "critical",
        subject=f"broker {brokers}" if len(rows) == 1 else brokers,
        sentence=f"TLS {part} with {brokers} fail: {reason}",
        evidence=f"{counted(connections, 'connection')}{hosts}{within(span)}.{sent} {others} to "
        f"{'this broker' if len(rows) == 1 else 'these brokers'} had data in both directions.",
        numbers=cells(row, "broker failure ended_by connections hosts"),
        command=COMMAND,
        **span,
        **given._asdict(),
    )


def _advice(reason: str, *, by_broker: bool, has_tls: bool) -> Advice:
    """The advice; `has_tls`: whether other handshakes show that the listener uses TLS."""
    if reason.endswith("without TLS"):
        return _NO_TLS_OF_CLIENT
    advice = (_BY_BROKER if by_broker else _BY_CLIENT).get(reason)
    if has_tls and advice == _NO_TLS_OF_BROKER:
        return _CLOSED
    return advice or _BY_EITHER.get(reason, _NEITHER)
