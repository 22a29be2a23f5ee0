"""The command `records`, and what `show` has in place of bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

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


def test_records_of_a_segment(segment: Path, ran: Ran) -> None:
    records = ran("records", str(segment)).rows
    assert [row["offset"] for row in records] == list(range(100))
    assert list(records[0]) == RECORDS.schema.names
    first = {name: value for name, value in records[0].items() if value is not None}
    assert first.pop("timestamp").endswith("Z")
    assert first.pop("value").startswith("cmVjb3JkIDAg")  # record 0
    assert first == {
        "topic": "orders", "partition": 0, "offset": 0, "key": "a2V5LTA=", "headers": [],
    }  # fmt: skip


def test_records_of_a_capture_are_its_table(ran: Ran) -> None:
    records = ran("records", str(CAPTURE)).rows
    assert records == ran("export", "--table", "records", str(CAPTURE)).rows
    assert len(records) == 200


def test_other_tables_of_a_segment(segment: Path, ran: Ran) -> None:
    batches = ran("export", "--table", "batches", str(segment)).rows
    assert [row["codec"] for row in batches] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert all(row["crc_ok"] for row in batches)
    assert ran("export", str(segment)).rows == []
    ran("summary", str(segment))
    ran("show", str(segment))


def test_a_file_of_another_format(tmp_path: Path, ran: Ran) -> None:
    path = tmp_path / "server.log"
    path.write_text("[2026-11-21 04:00:00,000] INFO started (kafka.server.KafkaServer)\n")
    assert "is text, not a pcap or pcapng file" in ran("records", str(path), status=1).err
