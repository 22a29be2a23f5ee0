"""Each capture has a row in the ledger and a file of facts; the rows are correct."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import dpkt
import pytest

from tests.captures.recorded import unpacked
from tests.captures.truth import CAPTURES, CLIENTS, ROOT, client_logs, facts, ledger

LARGEST, ALL_TOGETHER = 400_000, 20_000_000
LEDGER = ledger()
FILES = sorted(path for path in CAPTURES.iterdir() if path.is_file() and path.name != "README.md")
PLACES = re.compile(rb"/(?:home|root|Users|work)/")
"""Folders of a recording machine, which must not be in a capture or a log."""


def test_every_capture_has_a_row_and_every_row_a_capture() -> None:
    captures = {path.name for path in FILES if re.search(r"\.pcap(ng)?\b", path.name)}
    assert {row.capture for row in LEDGER.values()} == captures


def test_every_file_belongs_to_a_capture() -> None:
    assert {path.name.partition(".")[0] for path in FILES} == set(LEDGER)


@pytest.mark.parametrize("name", LEDGER)
def test_facts_parse_and_their_count_is_that_of_the_ledger(name: str) -> None:
    lines = unpacked(CAPTURES / f"{name}.truth.jsonl.zst").decode().splitlines()
    rows = [json.loads(line) for line in lines]
    assert rows
    assert all({"source", "time"} <= row.keys() for row in rows)
    if name in client_logs():
        assert len(facts(name)) == LEDGER[name].requests
        assert {fact.source for fact in facts(name)} <= set(CLIENTS)


def test_facts_are_those_of_the_logs() -> None:
    check = [sys.executable, "-m", "tools.record.truth", "--check"]
    run = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count(": agrees") == len(client_logs()) > 0


@pytest.mark.parametrize("name", LEDGER)
def test_the_number_of_packets_is_that_of_the_ledger(name: str) -> None:
    assert sum(1 for _ in packets(LEDGER[name].path)) == LEDGER[name].packets


def packets(path: Path) -> dpkt.pcap.UniversalReader:
    """The packets of a capture, as dpkt reads them."""
    return dpkt.pcap.UniversalReader(io.BytesIO(unpacked(path)))


def test_captures_stay_small() -> None:
    sizes = {path.name: path.stat().st_size for path in FILES}
    assert {name: size for name, size in sizes.items() if size > LARGEST} == {}
    assert sum(sizes.values()) <= ALL_TOGETHER


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_of_the_recording_machine_is_kept(path: Path) -> None:
    assert PLACES.search(unpacked(path)) is None


def test_formats_and_links_of_all_kinds_are_there() -> None:
    text = (CAPTURES / "README.md").read_text()
    for kind in ("pcap in µs", "pcap in ns", "pcapng in ns", "LINUX_SLL,", "LINUX_SLL2"):
        assert kind in text
    assert {"", ".gz", ".zst"} <= {
        re.sub(r".*\.pcap(ng)?", "", row.capture) for row in LEDGER.values()
    }
