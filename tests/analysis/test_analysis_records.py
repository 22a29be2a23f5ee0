"""The command `records`, and what `show` has in place of bytes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.cli import main
from dissector.tables import RECORDS
from tests.analysis.commands import Ran

ROOT = Path(__file__).parents[2]
CAPTURE = ROOT / "captures" / "kafka-4-java.pcap.zst"


@pytest.fixture
def segment(brokers: Path, tmp_path: Path) -> Path:
    """A segment of a real broker, in a folder of its own."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    name = "00000000000000000000.log"
    return Path(shutil.copy(brokers / "kafka-4" / "orders-0" / name, folder))


def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, capsys.readouterr().out.splitlines())


def test_records_of_a_segment(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["records", str(segment)]) == 0
    records = list(lines(capsys))
    assert [row["offset"] for row in records] == list(range(100))
    assert list(records[0]) == RECORDS.schema.names
    first = {name: value for name, value in records[0].items() if value is not None}
    assert first.pop("timestamp").endswith("Z")
    assert first.pop("value").startswith("cmVjb3JkIDAg")  # record 0
    assert first == {
        "topic": "orders", "partition": 0, "offset": 0, "key": "a2V5LTA=", "headers": [],
    }  # fmt: skip


def test_records_of_a_capture_are_its_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["records", str(CAPTURE)]) == 0
    records = list(lines(capsys))
    assert main(["export", "--table", "records", str(CAPTURE)]) == 0
    assert records == list(lines(capsys))
    assert len(records) == 200


def test_other_tables_of_a_segment(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--table", "batches", str(segment)]) == 0
    batches = list(lines(capsys))
    assert [row["codec"] for row in batches] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert all(row["crc_ok"] for row in batches)
    assert main(["export", str(segment)]) == 0
    assert list(lines(capsys)) == []
    assert main(["summary", str(segment)]) == 0
    assert main(["show", str(segment)]) == 0


def test_the_input_is_not_overwritten(segment: Path, ran: Ran) -> None:
    before = segment.read_bytes()
    ran("records", str(segment), "-o", str(segment), status=2)
    assert segment.read_bytes() == before


def test_a_file_of_another_format(tmp_path: Path, ran: Ran) -> None:
    path = tmp_path / "server.log"
    path.write_text("[2026-11-21 04:00:00,000] INFO started (kafka.server.KafkaServer)\n")
    assert "is text, not a pcap or pcapng file" in ran("records", str(path), status=1).err
