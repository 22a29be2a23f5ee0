"""Kafka inside TLS, end to end: as tshark decrypts it, and what damage or wrong keys leave."""

from __future__ import annotations

import builtins
import importlib.util
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import analysis
from dissector import CaptureError, DissectorError
from dissector.capture import open_capture
from dissector.frame_reader import FrameReader
from dissector.packets import open_packets
from dissector.pipeline import Pipeline
from dissector.problems import UNUSED_SECRETS
from tests.captures.recorded import CAPTURES
from tests.robustness.robustness_damage import recording
from tests.tshark import needs_tshark, tshark
from tools.record.kafka.truth import read as truth

CAPTURE, KEYS = CAPTURES / "kafka-4-tls.pcap.zst", CAPTURES / "kafka-4-tls.keys.log"
CARRIED = CAPTURES / "kafka-4-tls-secrets.pcapng.zst"

pytest.importorskip("cryptography", reason="cryptography is not installed")

Key = tuple[Any, ...]


def read(path: Path, keylog: Path | None = None) -> dict[str, list[dict[str, Any]]]:
    tables = open_capture(path, keylog=keylog).tables()
    return {name: table.to_pylist() for name, table in tables.items()}


def packets() -> tuple[bytes, list[bytes]]:
    """The header of the capture, and its records."""
    whole = recording(CAPTURE)
    return whole.made_of(()), whole.packets


def exchanged(rows: list[dict[str, Any]]) -> Counter[Key]:
    names = ("client_port", "broker_port", "api_key", "api_version", "correlation_id", "client_id")
    names += ("request_bytes", "response_bytes", "status", "error_code", "record_count")
    return Counter(tuple(row[name] for name in names) for row in rows)


def tls_rows(tables: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [row for row in tables["exchanges"] if row["broker_port"] == 9092]


def test_keys_that_the_capture_carries_are_as_good_as_a_file() -> None:
    assert exchanged(read(CARRIED)["exchanges"]) == exchanged(read(CAPTURE, KEYS)["exchanges"])


@needs_tshark
def test_equal_to_what_tshark_decrypts() -> None:
    fields = ("tcp.srcport", "tcp.dstport", "kafka.correlation_id", "kafka.len")
    options = ["-d", "tcp.port==9092,tls", "-d", "tls.port==9092,kafka", "-Y", "kafka"]
    options += ["-o", f"tls.keylog_file:{KEYS}", "-o", "tcp.reassemble_out_of_order:TRUE"]
    theirs = Counter()
    for source, target, correlations, sizes in tshark(CAPTURE, fields, *options):
        for correlation, size in zip(correlations.split(","), sizes.split(","), strict=True):
            theirs[int(source), int(target), int(correlation), int(size) + 4] += 1
    ours = Counter()
    for row in tls_rows(read(CAPTURE, KEYS)):
        ends = row["client_port"], row["broker_port"]
        ours[(*ends, row["correlation_id"], row["request_bytes"])] += 1
        ours[(*ends[::-1], row["correlation_id"], row["response_bytes"])] += 1

    theirs = Counter({key: count for key, count in theirs.items() if 9092 in key[:2]})
    assert sum(theirs.values()) == 98
    assert ours == theirs


def test_columns_of_handshakes_without_keys() -> None:
    rows = read(CAPTURE)["connections"]
    keyed = read(CAPTURE, KEYS)["connections"]
    names = ("connection_id", "tls_version", "tls_cipher", "tls_sni")

    assert [[row[name] for name in names] for row in rows] == [
        [row[name] for name in names] for row in keyed
    ]
    assert Counter(row["tls_version"] for row in rows) == {None: 3, "1.3": 4, "1.2": 12}
    assert {row["protocol"] for row in rows if row["tls_version"]} == {"tls"}
    assert {row["protocol"] for row in keyed} == {"kafka"}


FAILURES = {
    "no client certificate": "an encrypted alert (sent by {broker})",
    "no client certificate, TLS 1.2": "alert bad_certificate (sent by {broker})",
    "expired certificate": "alert certificate_expired (sent by {client})",
    "expired certificate, TLS 1.2": "alert certificate_expired (sent by {client})",
    "unknown authority, no alert": "the connection ended before the client's Finished "
    "(sent by {client})",
    "no common version": "alert protocol_version (sent by {broker})",
    "client without TLS": "alert internal_error to a client without TLS (sent by {broker})",
    "broker without TLS": "the connection ended before the ServerHello (sent by {broker})",
}
"""The problem of each case of python/handshakes.py, without keys."""


@pytest.mark.parametrize("block_bytes", [40, 1 << 20])
def test_failed_handshakes_are_those_of_the_client(block_bytes: int) -> None:
    cases = [row for row in truth("kafka-4-handshakes") if row.get("event") == "handshake"]
    expected = Counter(f"TLS failed: {FAILURES[row['case']].format(**row)}" for row in cases)
    source = open_packets([CAPTURES / "kafka-4-handshakes.pcap.zst"], block_bytes=block_bytes)
    problems = Pipeline(source, []).tables(["problems"])["problems"]
    details = Counter(problems["detail"].to_pylist())
    # The Java client, which fails with an encrypted alert, has no case.
    assert len(details - expected) == 1
    assert not expected - details


def test_wrong_keys_are_one_problem_for_each_connection(tmp_path: Path) -> None:
    keys = tmp_path / "keys.log"
    keys.write_text(f"CLIENT_RANDOM {'ab' * 32} {'cd' * 48}\n")
    tables = read(CAPTURE, keys)

    assert tls_rows(tables) == []
    assert [row["kind"] for row in tables["problems"]] == ["tls_no_keys"] * 16
    assert len({row["connection_id"] for row in tables["problems"]}) == 16


def test_a_key_log_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="missing"):
        open_capture(CAPTURE, keylog=tmp_path / "missing")


@pytest.mark.parametrize(
    "text", [CAPTURE.read_bytes(), b"hello\n", b"\0", b"# no secret\nPassword: x\n"]
)
def test_a_key_log_without_a_line_of_its_format(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(text)
    with pytest.raises(CaptureError, match=r"keys is not a key log: no line .* NSS key log format"):
        open_capture(CAPTURE, keylog=tmp_path / "keys")


@pytest.mark.parametrize("text", [b"", b"# SSL/TLS secrets log file\n\n", b"CLIENT_RAND"])
def test_a_key_log_that_has_no_line_yet(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(text)
    open_capture(CAPTURE, keylog=tmp_path / "keys").close()


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    original = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "cryptography" else original(name)
    )
    with pytest.raises(DissectorError, match=r"kafka-dissector\[tls\]"):
        open_capture(CAPTURE, keylog=KEYS)
    tables = read(CARRIED)
    assert tls_rows(tables) == []
    assert [row["detail"] for row in tables["problems"]] == [UNUSED_SECRETS]
    findings = analysis.diagnose(CARRIED)
    encrypted = findings["sentence"].str.contains("encrypted")
    assert findings["change"][encrypted].tolist() == ["Install the package."]


def test_the_package_is_not_imported_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *arguments: Any, **options: Any) -> Any:
        assert not name.startswith(("cryptography", "dissector.tls.protection"))
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert read(CAPTURE)["connections"]


def altered(kind: str) -> Iterator[list[bytes]]:
    """The capture's packets, in ways that lose nothing, or almost nothing."""
    _, records = packets()
    rng = random.Random(9)
    if kind == "doubled":
        yield [packet for packet in records for _ in range(2)]
    elif kind == "swapped":
        mixed = list(records)
        for at in range(60, len(mixed) - 1, 3):
            mixed[at : at + 2] = mixed[at : at + 2][::-1]
        yield mixed
    else:
        for _ in range(20):
            yield [packet for packet in records if rng.random() > 0.01]


@pytest.mark.parametrize("kind", ["doubled", "swapped"])
def test_disorder_makes_no_difference(tmp_path: Path, kind: str) -> None:
    header, _ = packets()
    for records in altered(kind):
        path = tmp_path / "capture.pcap"
        path.write_bytes(header + b"".join(records))
        assert exchanged(tls_rows(read(path, KEYS))) == exchanged(tls_rows(read(CAPTURE, KEYS)))


def test_lost_packets_cost_no_other_rows(tmp_path: Path) -> None:
    header, _ = packets()
    names = ("client_port", "api_key", "api_version", "correlation_id", "request_bytes")
    whole = {tuple(row[name] for name in names) for row in tls_rows(read(CAPTURE, KEYS))}
    for records in altered("lost"):
        path = tmp_path / "capture.pcap"
        path.write_bytes(header + b"".join(records))
        tables = read(path, KEYS)
        rows = [row for row in tls_rows(tables) if row["request_time"] is not None]
        assert {tuple(row[name] for name in names) for row in rows} <= whole
        if len(tls_rows(tables)) < 49:
            assert tables["problems"]
        # Missing plaintext, whose length is unknown, counts neither in offsets nor in sizes.
        assert all(row["offset"] + (row["bytes"] or 0) < 69_300 for row in tables["problems"])


def test_lost_records_do_not_divide_a_block(tmp_path: Path) -> None:
    header, records = packets()
    path = tmp_path / "capture.pcap"
    lossy = [packet for number, packet in enumerate(records) if number % 9 or number < 40]
    path.write_bytes(header + b"".join(lossy))
    reader = FrameReader(open_packets([path]), ports=[9092], keylog=KEYS, memory=1 << 28)

    batches = [[*batch.frames] for batch in reader.batches()]
    problems = [each.kind for blocks in batches for block in blocks for each in block.problems]

    assert problems.count("tls_lost_records") > 10
    assert max(map(len, batches)) == 2  # a block of decrypted frames, and one of the others


def test_flipped_bytes_give_fewer_rows_and_problems(tmp_path: Path) -> None:
    header, records = packets()
    rng = random.Random(10)
    names = ("client_port", "api_key", "api_version", "correlation_id", "request_bytes")
    whole = {tuple(row[name] for name in names) for row in tls_rows(read(CAPTURE, KEYS))}
    path = tmp_path / "capture.pcap"
    for _ in range(20):
        altered_records = []
        for packet in records:
            changed = bytearray(packet)
            if rng.random() < 0.05 and len(packet) > 16 + 66:
                changed[rng.randrange(16 + 66, len(packet))] ^= 1 << rng.randrange(8)
            altered_records.append(bytes(changed))
        path.write_bytes(header + b"".join(altered_records))
        tables = read(path, KEYS)
        rows = [row for row in tls_rows(tables) if row["request_time"] is not None]
        assert {tuple(row[name] for name in names) for row in rows} <= whole
        assert tables["problems"]
