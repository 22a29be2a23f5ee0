"""`sniff` on an interface: real clients, compared with their log, and messages in messages."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dissector.capture import open_capture
from tests.analysis.live.capturing import needs_privilege
from tests.dissector.test_capture_nested import DIALOGUES, SEGMENT, counted
from tools.record.truth import of_librdkafka

ROOT = Path(__file__).parents[3]
LOOPBACK = Path(__file__).with_name("loopback.py")
IDENTITY = ("client_id", "api", "api_version", "correlation_id", "request_bytes", "response_bytes")


def run_with_traffic(folder: Path, traffic: str, tool: str, *arguments: str) -> int:
    """Run traffic and `sniff`, which reads the pipe of `tool` if there is one; see `loopback`."""
    result = subprocess.run(
        [sys.executable, LOOPBACK, folder, traffic, tool, *arguments],
        check=False, timeout=300, cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )  # fmt: skip
    return result.returncode


def logged_requests(folder: Path) -> list[tuple[Any, ...]]:
    """The requests in the clients' log: `IDENTITY`."""
    facts = list(of_librdkafka((folder / "log").read_text().splitlines()))
    return [
        (f.client_id, f.api, f.version, f.correlation_id, f.request_bytes, f.response_bytes)
        for f in facts
    ]


@needs_privilege
@pytest.mark.parametrize("tool", ["none", "tcpdump", "dumpcap"])
def test_exchanges_are_those_of_the_clients_log(tmp_path: Path, tool: str) -> None:
    if tool != "none" and shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    origin, name = (["-i", "lo"], "lo") if tool == "none" else (["-"], "standard input")
    export, record = tmp_path / "tables", tmp_path / "kept.pcapng"
    status = run_with_traffic(
        tmp_path, "clients", tool, *origin,
        "--view", "jsonl", "--export", str(export),
    )  # fmt: skip
    assert (status, (tmp_path / "err").read_text()) == (0, f"capturing from {name}; Ctrl-C ends\n")
    facts = Counter(logged_requests(tmp_path))
    assert facts.total() > 30
    shown = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    kept = pq.read_table(export / "exchanges").to_pylist()
    recorded = open_capture([record]).tables(["exchanges"])["exchanges"].to_pylist()
    for rows in (shown, kept, recorded):
        actual = Counter(tuple(row[name] for name in IDENTITY) for row in rows)
        answered = Counter({fact: count for fact, count in facts.items() if fact[5] is not None})
        assert not answered - actual
        # For open requests, and acks=0, to which the mock responds, the log has no response.
        unanswered = Counter(row[:5] for row in (actual - answered).elements())
        assert unanswered == Counter(fact[:5] for fact in (facts - answered).elements())


@needs_privilege
@pytest.mark.sampled(3)  # test_capture_nested has all of them
@pytest.mark.parametrize("traffic", DIALOGUES)
def test_no_row_is_made_of_the_content_of_a_message(tmp_path: Path, traffic: str) -> None:
    export, segments = tmp_path / "tables", tmp_path / "segments"
    dialogue, expected = DIALOGUES[traffic]()
    cut = [
        (end, data[at : at + SEGMENT])
        for end, data in dialogue
        for at in range(0, len(data), SEGMENT)
    ]
    segments.write_bytes(pickle.dumps(cut))
    words = ("-i", "lo", "--view", "jsonl", "--export", str(export))
    assert run_with_traffic(tmp_path, str(segments), "none", *words) == 0
    shown = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    kept = pq.read_table(export / "exchanges").to_pylist()
    assert counted(shown) == counted(kept) == expected
    assert not (export / "problems").exists() or not len(pq.read_table(export / "problems"))
