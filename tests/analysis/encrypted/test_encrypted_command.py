"""``kafka-dissector encrypted``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from analysis import response_times
from analysis.encrypted.response_times import COLUMNS
from dissector.errors import DissectorError
from tests.analysis.commands import PLAIN, ROOT, run

RECORDING = "captures/kafka-4-tls.pcap.zst"
KEYS = "captures/kafka-4-tls.keys.log"


def rows(*arguments: str, stdin: bytes | None = None) -> list[dict[str, object]]:
    done = run("encrypted", *arguments, "--format", "jsonl", stdin=stdin)
    assert not done.returncode, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_clients_and_brokers() -> None:
    (row,) = rows(RECORDING)
    assert [*row] == ["client", "broker", *(column.name for column in COLUMNS)]
    assert (row["client"], row["broker"]) == ("127.0.0.1", "127.0.0.1:9092")
    assert (row["connections"], row["slowest_packet"]) == (16, 93)


def test_the_longest_sum_of_response_times_is_first() -> None:
    by_connection = rows(RECORDING, "--by", "connection_id")
    assert len(by_connection) == 16
    assert by_connection[0]["slowest_packet"] == 93


def test_intervals() -> None:
    times = [row["1s"] for row in rows(RECORDING, "--by", "1s")]
    assert len(times) > 2
    assert times == sorted(times, key=str)


def test_a_pipe_is_read_once() -> None:
    plain = subprocess.run(["zstd", "-dc", ROOT / RECORDING], capture_output=True, check=True)
    assert rows("-", stdin=plain.stdout) == rows(RECORDING)


def test_no_encrypted_connection() -> None:
    for arguments in ((PLAIN,), (RECORDING, "--keylog", KEYS)):
        done = run("encrypted", *arguments)
        assert done.stderr.decode() == "No encrypted connections in this capture.\n"
        assert not done.returncode
        assert not done.stdout


def test_an_unknown_column_is_an_error() -> None:
    done = run("encrypted", RECORDING, "--by", "client_id")
    assert done.returncode == 2
    assert b"no column client_id to group by; choose from: connection_id, " in done.stderr


def test_exported_tables_have_no_packets(tmp_path: Path) -> None:
    folder = str(tmp_path / "tables")
    assert not run("export", RECORDING, "-o", folder, "--table", "all").returncode
    done = run("encrypted", folder)
    assert done.returncode == 1
    assert b"exported tables do not contain packets; use the capture" in done.stderr
    assert b"kafka-dissector encrypted" not in run("summary", folder).stdout


def test_the_function_returns_the_rows_of_the_command() -> None:
    frame = response_times(ROOT / RECORDING, by="client_port")
    assert frame["slowest_packet"].tolist() == [
        row["slowest_packet"] for row in rows(RECORDING, "--by", "client_port")
    ]
    with pytest.raises(DissectorError, match="no column to group by"):
        response_times(ROOT / RECORDING, by=())


def test_the_summary_names_the_command() -> None:
    assert (
        f"more: kafka-dissector encrypted {RECORDING}\n".encode()
        in run("summary", RECORDING).stdout
    )
