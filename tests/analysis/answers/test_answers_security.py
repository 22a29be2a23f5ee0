"""Findings about security agree with the log of the broker."""

from __future__ import annotations

import re
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import analysis
from analysis.answers import ANSWERS
from analysis.answers.security import FINDINGS
from tests.analysis.answering import CAPTURES, capture, made, path_of
from tests.analysis.made_rows import connection, exchange
from tests.dissector.streams.dialogue import Dialogue, request, response
from tools.record.kafka.truth import read

NAME = "kafka-4-guarded"


def rows(name: str = NAME) -> pd.DataFrame:
    return analysis.security(capture(name, ANSWERS["security"].tables))


def test_failed_logins_are_those_in_the_log() -> None:
    lines = [
        row["message"] for row in read(NAME) if "Failed authentication" in str(row.get("message"))
    ]
    (row,) = rows().query("finding == 'failed login'").to_dict("records")
    assert (row["client_id"], row["count"]) == ("mallory", len(lines))
    assert all(line.endswith(f"({row['message']})") for line in lines)


def test_denied_requests_are_those_in_the_log() -> None:
    denied = re.compile(
        r"Principal = User:(\S+) is Denied .* resource = (\w+):LITERAL:(\S+) for request = (\w+) "
    )
    matches = [denied.match(str(row.get("message"))) for row in read(NAME)]
    expected = Counter(match.group(1, 2, 4, 3) for match in matches if match)
    seen = {
        (row["client_id"], row["error"].split("_")[0].title(), *row["resource"].split()): row[
            "count"
        ]
        for row in rows().query("finding == 'denied request'").to_dict("records")
    }
    assert seen == expected
    assert "Metadata closed" in set(rows()["resource"])


def test_protocols_are_those_of_the_request_log() -> None:
    expected = {
        (row["client_id"], row["security_protocol"])
        for row in read(NAME)
        if row["source"] == "broker"
    }
    seen = rows()[["client_id", "protocol"]].drop_duplicates()
    # The broker does not log a request of a client that never logs in.
    assert set(seen.itertuples(index=False, name=None)) == expected | {
        ("mallory", "SASL_PLAINTEXT")
    }


def test_principals_are_the_users_of_each_mechanism() -> None:
    users = rows().query("finding in ('clear password', 'offline attack')")
    mechanisms = dict(zip(users["client_id"], users["mechanism"], strict=True))
    assert mechanisms == {
        "alice": "PLAIN", "broker": "PLAIN", "mallory": "PLAIN", "bob": "SCRAM-SHA-256"
    }  # fmt: skip


def test_encrypted_connections_have_a_finding_only_for_their_cipher() -> None:
    path = path_of("kafka-4-tls")
    keylog = CAPTURES / "kafka-4-tls.keys.log"
    tables = analysis.load(path, ANSWERS["security"].tables, keylog=keylog)
    clients = analysis.security(tables).query("protocol == 'SSL'")
    assert len(clients) == 8
    is_weak = clients["finding"] == "weak cipher"
    assert set(clients[is_weak]["client_id"]) == {"producer-1.2-cbc", "consumer-1.2-cbc"}
    assert clients[~is_weak]["finding"].isna().all()


@pytest.mark.parametrize(
    ("columns", "finding"),
    [
        ({}, "not encrypted"),
        ({"sasl_mechanism": "PLAIN"}, "clear password"),
        ({"sasl_mechanism": "PLAIN", "tls_version": "1.3"}, None),
        ({"sasl_mechanism": "OAUTHBEARER"}, "clear token"),
        ({"sasl_mechanism": "SCRAM-SHA-512"}, "offline attack"),
        ({"sasl_mechanism": "GSSAPI"}, None),
        ({"tls_version": "1.1", "protocol": "tls"}, "old TLS"),
        ({"tls_version": "1.2", "tls_cipher": "TLS_RSA_WITH_AES_256_GCM_SHA384"}, "weak cipher"),
        ({"tls_version": "1.2", "tls_cipher": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}, None),
        ({"protocol": "tls"}, None),
    ],
)
def test_a_connection(columns: dict[str, Any], finding: str | None) -> None:
    (row,) = analysis.security(made(connections=[connection(**columns)])).to_dict("records")
    assert row["finding"] == finding or (finding is None and pd.isna(row["finding"]))
    assert finding is None or finding in FINDINGS


def test_a_denied_group_is_the_one_with_the_error(tmp_path: Path) -> None:
    """A request may name several groups; brokers may list those with an error first. The response
    of FindCoordinator 1 does not repeat the key."""
    dialogue, client = Dialogue.connected()
    names = b"".join(struct.pack(">h4s", 4, name) for name in (b"open", b"shut"))
    client.client(request(42, 0, 1, struct.pack(">i", 2) + names))
    results = (struct.pack(">h4sh", 4, *each) for each in ((b"shut", 30), (b"open", 0)))
    client.broker(response(1, struct.pack(">ii", 0, 2) + b"".join(results)))
    client.client(request(10, 1, 2, struct.pack(">h4sb", 4, b"shut", 0)))
    client.broker(response(2, struct.pack(">ihhihi", 0, 30, -1, -1, 0, -1)))
    path = dialogue.written(tmp_path / "denied.pcap")
    denied = analysis.security(path).query("finding == 'denied request'")
    assert denied["resource"].tolist() == ["DeleteGroups shut", "FindCoordinator shut"]


def test_a_request_for_several_partitions_of_a_topic_is_denied_once() -> None:
    error = {"api": "Produce", "error": "TOPIC_AUTHORIZATION_FAILED", "error_code": 29}
    rows = [
        error | {"connection_id": 0, "correlation_id": n, "time": n, "topic": topic, "partition": p}
        for n in (1, 2) for topic, partitions in (("t", 3), ("u", 1)) for p in range(partitions)
    ]  # fmt: skip
    denied = analysis.security(made(connections=[connection()], errors=rows))
    denied = denied.query("finding == 'denied request'")
    assert denied.set_index("resource")["count"].to_dict() == {"Produce t": 2, "Produce u": 2}


LOGINS = "kafka-3-logins"


def test_a_refused_mechanism_is_only_a_failed_login() -> None:
    """The client sends no token then, so there is nothing to attack."""
    by_client = rows(LOGINS).groupby("client_id")["finding"].agg(set)
    assert by_client["with-other-mechanism"] == {"failed login"}
    assert by_client["with-wrong-password"] == {"failed login", "offline attack"}


@pytest.mark.parametrize(
    ("mechanism", "apis", "findings"),
    [
        ("PLAIN", ["ApiVersions"], ["clear password"]),
        ("PLAIN", ["ApiVersions", "Metadata"], ["clear password", "not encrypted"]),
        (None, ["ApiVersions"], ["not encrypted", "not encrypted"]),
    ],
)
def test_a_connection_that_ends_before_its_login(
    mechanism: str | None, apis: list[str], findings: list[str]
) -> None:
    """A client that stops after a failed login closes its other connections to the brokers."""
    links = [connection(connection_id=0, sasl_mechanism=mechanism), connection(connection_id=1)]
    exchanges = [exchange(connection_id=0, client_id="other")]
    exchanges += [exchange(connection_id=1, correlation_id=n, api=api)
                  for n, api in enumerate(apis)]  # fmt: skip
    clients = analysis.security(made(connections=links, exchanges=exchanges))
    assert sorted(clients["finding"]) == findings


def test_failed_logins_of_passwords_and_tokens_are_those_in_the_log() -> None:
    """Clients without SaslAuthenticate get no error: the broker closes the connection."""
    lines = Counter(
        re.findall(r"\((Authentication failed.*|Unsupported SASL mechanism.*)\)", row["message"])[0]
        for row in read(LOGINS)
        if row["source"] == "security"
    )
    failed = rows(LOGINS).query("finding == 'failed login'")
    seen = failed.assign(
        message=failed["message"].fillna("Unsupported SASL mechanism " + failed["mechanism"])
    )
    counts = Counter(seen.groupby("message")["count"].sum().to_dict())
    raw = capture(LOGINS, ("exchanges",))["exchanges"]
    without_error = raw.query("api == 'SaslToken' and client_id.isna() and status != 'answered'")
    assert sum((lines - counts).values()) == len(without_error) > 0
    assert not counts - lines


def test_requests_that_a_login_by_token_does_not_allow_are_denied() -> None:
    (row,) = rows(LOGINS).query("finding == 'denied request'").to_dict("records")
    assert (row["client_id"], row["error"]) == (
        "with-token",
        "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    )
