"""`sniff` beside real clients, and as its user meets it: what it says, writes, and how it ends."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.analysis.live.capturing import needs_right
from tools.record.truth import of_librdkafka

ROOT = Path(__file__).parents[3]
LOOPBACK = Path(__file__).with_name("loopback.py")
SNIFF = "import sys; from analysis.cli import main; sys.exit(main(['sniff', *sys.argv[1:]]))"
IDENTITY = ("client_id", "api", "api_version", "correlation_id", "request_bytes", "response_bytes")


def beside_clients(folder: Path, tool: str, *arguments: str) -> int:
    """Clients talk, and `sniff` listens, or reads what `tool` writes; see `loopback`."""
    done = subprocess.run(
        [sys.executable, LOOPBACK, folder, tool, *arguments], check=False, timeout=120, cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )  # fmt: skip
    return done.returncode


def told(folder: Path) -> list[tuple[Any, ...]]:
    """What the clients say of their requests: `IDENTITY`."""
    facts = list(of_librdkafka((folder / "log").read_text().splitlines()))
    return [
        (f.client_id, f.api, f.version, f.correlation_id, f.request_bytes, f.response_bytes)
        for f in facts
    ]


@needs_right
@pytest.mark.parametrize("tool", ["none", "tcpdump", "dumpcap"])
def test_exchanges_are_those_of_the_clients_log(tmp_path: Path, tool: str) -> None:
    if tool != "none" and shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    origin, name = (["-i", "lo"], "lo") if tool == "none" else (["-"], "standard input")
    export, record = tmp_path / "tables", tmp_path / "kept.pcapng"
    status = beside_clients(
        tmp_path, tool, *origin, "--view", "jsonl", "--export", str(export), "--write", str(record)
    )
    assert (status, (tmp_path / "err").read_text()) == (0, f"capturing from {name}; Ctrl-C ends\n")
    facts = Counter(told(tmp_path))
    assert facts.total() > 30
    shown = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    kept = pq.read_table(export / "exchanges").to_pylist()
    again = subprocess.run(
        [sys.executable, "-c", "from analysis.cli import main; main()", "export", str(record)],
        capture_output=True, check=True, cwd=ROOT,
    )  # fmt: skip
    recorded = [json.loads(line) for line in again.stdout.splitlines()]
    for rows in (shown, kept, recorded):
        found = Counter(tuple(row[name] for name in IDENTITY) for row in rows)
        answered = Counter({fact: count for fact, count in facts.items() if fact[5] is not None})
        assert not answered - found
        # Of what had no answer by then, and of acks=0, which the mock answers, the log tells less.
        others = Counter(each[:5] for each in (found - answered).elements())
        assert others == Counter(each[:5] for each in (facts - answered).elements())
