"""No secret of a recording is in an output, unless the caller passes `show_secrets`.

Every password in the recordings was made for them, and stands in the recorder's sources. What was
made of these on the way (nonces, salts, proofs, tokens, keys) is looked for on the wire, with
regular expressions where it is text. Then every output of the recordings is searched for all of
them: as they are, escaped, in base64 at any alignment, in hex.
"""

from __future__ import annotations

import io
import json
import re
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from rich.console import Console

from analysis.browse.message_pane import MessageContent
from analysis.cli import main
from analysis.display.exchange_tree import tree
from analysis.display.summary_screen import screen
from analysis.export.formats import FORMATS
from analysis.summary.counts import Summary
from dissector.capture import open_capture
from dissector.exchanges.exchange import Exchange
from dissector.tables import TABLES
from tests.captures.truth import ledger

CAPTURES = {name: row.path for name, row in ledger().items()}
WITH_SECRETS = ("kafka-4-sasl", "kafka-4-admin", "kafka-3-logins")
PASSWORDS = (
    *(b"alice-secret", b"broker-secret", b"not-the-secret"),
    *(b"made-for-the-recording", b"plugin-secret", b"bob-secret", b"keystore-secret"),
    *(b"jaas-secret", b"topic-secret"),
)
SHORTEST = 8
"""Bytes of a secret that are not found by chance; and that fill a word."""

SCRAM = re.compile(rb"(?:^|[,\x00-\x7f])([rspv])=([^,\x00]{8,})")
BEARER = re.compile(rb"Bearer ([\w.-]+)")
HMACS = {"CreateDelegationToken", "DescribeDelegationToken"}


@cache
def exchanges(name: str) -> list[Exchange]:
    return list(open_capture(CAPTURES[name]).exchanges())


@cache
def secrets() -> frozenset[bytes]:
    values = {*PASSWORDS, *keys_of_records()}
    for name in WITH_SECRETS:
        for exchange in exchanges(name):
            for frame in (exchange.request_frame or b"", exchange.response_frame or b""):
                if exchange.api == "SaslAuthenticate":
                    values |= {value for _, value in SCRAM.findall(frame)}
                    values.update(*(token.split(b".") for token in BEARER.findall(frame)))
            if exchange.api in HMACS and exchange.response:
                body = exchange.response.body
                values |= {each["hmac"] for each in body.get("tokens", [body])}
            if exchange.api == "AlterUserScramCredentials" and exchange.request:
                for each in exchange.request.body["upsertions"]:
                    values |= {each["salt"], each["salted_password"]}
    return frozenset(each for each in values if len(each) >= SHORTEST)


def keys_of_records() -> Iterator[bytes]:
    """Salts and keys of the credentials that KRaft keeps."""
    for name in ("kafka-4-admin", "kafka-3-logins"):
        capture = open_capture(CAPTURES[name], show_secrets=True)
        for row in capture.tables(["records"])["records"].to_pylist():
            if row["record_kind"] == "UserScramCredentialRecord":
                fields = json.loads(row["decoded"])
                keys = ("salt", "stored_key", "server_key")
                yield from (b64decode(fields[key]) for key in keys)


@cache
def forms() -> dict[bytes, list[bytes]]:
    """Every secret in every form that an output could give it, by its first bytes."""
    by_prefix: dict[bytes, list[bytes]] = defaultdict(list)
    for secret in secrets():
        escaped = json.dumps(secret.decode("utf-8", "backslashreplace"))[1:-1]
        encodings = {secret, escaped.encode(), secret.hex().encode(), secret.hex(" ").encode()}
        for shift in range(3):
            # The first and the last group of four hold neighbours, too.
            encoded = b64encode(bytes(shift) + secret)
            encodings.add(encoded[4 if shift else 0 : len(encoded) // 4 * 4 - 4])
        for form in encodings:
            by_prefix[form[:SHORTEST]].append(form)
    return by_prefix


@cache
def fronts() -> NDArray[np.bool_]:
    """Which hashes the first bytes of forms have."""
    has_prefix = np.zeros(1 << 20, np.bool_)
    has_prefix[hashes(np.frombuffer(b"".join(forms()), "<u8"))] = True
    return has_prefix


def hashes(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return (words * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(44)


def leaks(output: bytes) -> set[bytes]:
    """Which forms of secrets an output has in it."""
    padded = np.frombuffer(output + bytes(SHORTEST), np.uint8)
    words = np.ndarray((len(output),), "<u8", padded, strides=(1,))
    places = np.flatnonzero(fronts()[hashes(words)]).tolist()
    return {
        form
        for at in places
        for form in forms().get(output[at : at + SHORTEST], ())
        if output.startswith(form, at)
    }


def exported(table: pa.Table, form: str) -> bytes:
    sink = io.BytesIO()
    FORMATS[form](table.to_batches(), table.schema, sink)
    if form == "parquet":  # its bytes are compressed: look at what a reader gets
        sink = io.BytesIO(exported(pq.read_table(io.BytesIO(sink.getvalue())), "arrow"))
    return sink.getvalue()


def printed(exchanges: Iterable[Exchange], *, secrets: bool) -> bytes:
    lines = (line.plain for exchange in exchanges for line in tree(exchange, secrets=secrets))
    return "\n".join(lines).encode()


def test_there_are_secrets_to_look_for() -> None:
    assert len(secrets()) > 60
    assert leaks(b"xx" + b64encode(b"and alice-secret is in it"))
    assert leaks(b"alice-secret".hex(" ").encode())


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CAPTURES)
def test_tables_and_summary(name: str) -> None:
    capture = open_capture(CAPTURES[name])
    tables = capture.tables(TABLES)
    for table_name, table in tables.items():
        for form in FORMATS:
            assert leaks(exported(table, form)) == set(), (table_name, form)
    summary = Summary()
    summary.read((each, part) for each in Summary.TABLES for part in tables[each].to_batches())
    console = Console(width=200, file=io.StringIO(), record=True)
    for part in screen(summary, name, capture.packets, lambda arguments: arguments):
        console.print(part)
    assert leaks(console.export_text().encode()) == set()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CAPTURES)
def test_show(name: str) -> None:
    most = None if name in WITH_SECRETS else 50
    shown = islice(open_capture(CAPTURES[name]).exchanges(), most)
    assert leaks(printed(shown, secrets=False)) == set()


@pytest.mark.parametrize("name", WITH_SECRETS)
def test_browse(name: str) -> None:
    """The bytes of fields; most exchanges have the same ones."""
    for exchange in {(each.api, each.status): each for each in exchanges(name)}.values():
        content = MessageContent.of(exchange, secrets=False)
        for index in range(len(content.lines)):
            lines = (line.plain for line in content.details(index, 4096))
            assert leaks("\n".join(lines).encode()) == set()


# they are there where they are asked for


def test_show_with_secrets() -> None:
    output = printed(exchanges("kafka-4-sasl"), secrets=True)
    assert {b"alice-secret", b"not-the-secret"} <= leaks(output)


@pytest.mark.parametrize("command", [["records"], ["export", "--table", "records"]])
def test_records_with_secrets(command: list[str], tmp_path: Path) -> None:
    hidden, shown = tmp_path / "hidden", tmp_path / "shown"
    given = [*command, str(CAPTURES["kafka-4-admin"])]
    assert main([*given, "-o", str(hidden)]) == 0
    assert main([*given, "--show-secrets", "-o", str(shown)]) == 0
    assert leaks(hidden.read_bytes()) == set()
    assert leaks(shown.read_bytes())
    assert len(hidden.read_text().splitlines()) == len(shown.read_text().splitlines())
