"""``kafka-dissector encrypted``."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from analysis import response_times
from analysis.encrypted.response_times import COLUMNS
from analysis.input.filters import Filter
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
    (piped,), (read,) = rows("-", stdin=plain.stdout), rows(RECORDING)
    assert piped == read | {"slowest_capture": "-"}


def test_filters() -> None:
    (whole,) = rows(RECORDING)
    parts = [rows(RECORDING, *times) for times in (("--since", "6"), ("--until", "6"))]
    assert sum(row["turns"] for (row,) in parts) == 42
    assert all(row["connections"] < 16 for (row,) in parts)
    done = run("encrypted", RECORDING, "--since", "6")
    assert re.search(rb"^Filter: .*: [1-9]\d* of 42 turns; times in UTC$", done.stderr)
    assert rows(RECORDING, "--broker", "127.0.0.1:9092", "--client", "127.0.*") == [whole]
    assert rows(RECORDING, "--client", "10.0.0.1") == []
    done = run("encrypted", RECORDING, "--broker", "1")
    assert done.returncode == 2
    assert b"encrypted connections do not show broker ids: use the address" in done.stderr
    with pytest.raises(DissectorError, match="do not show what --api selects"):
        response_times(ROOT / RECORDING, chosen=Filter(api=["Fetch"]))


def test_filters_by_name(tmp_path: Path) -> None:
    names = tmp_path / "names.csv"
    names.write_text("127.0.0.1,laptop\n")
    assert len(rows(RECORDING, "--names", str(names), "--client", "lap*")) == 1
    assert rows(RECORDING, "--names", str(names), "--client", "server") == []


def test_several_captures() -> None:
    """The slowest packet has a number in one of them."""
    other = "captures/kafka-4-handshakes.pcap.zst"
    by_broker = {row["broker"]: row for row in rows(other, RECORDING)}
    slowest = by_broker["127.0.0.1:9092"]
    assert (slowest["slowest_packet"], slowest["slowest_capture"]) == (93, RECORDING)
    assert by_broker["127.0.0.1:9094"]["slowest_capture"] is None


def test_no_encrypted_connection() -> None:
    for arguments in ((PLAIN,), (RECORDING, "--keylog", KEYS)):
        done = run("encrypted", *arguments)
        assert done.stderr.decode() == "No encrypted connections in this capture.\n"
        assert not done.returncode
        assert not done.stdout
    for chosen in (("--client", "127.0.0.1"), ("--since", "0")):
        done = run("encrypted", PLAIN, *chosen)
        assert b"0 of 0 turns" in done.stderr
        assert not done.returncode


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
