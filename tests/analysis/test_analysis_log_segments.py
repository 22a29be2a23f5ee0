"""Commands on log segments alone, which contain no requests or responses.

The numbers are those of DumpLogSegments: see tests/dissector/tables/test_tables_log_segments.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.commands import Ran
from tests.captures.recorded import CAPTURES

SEGMENT = "00000000000000000000.log"


@pytest.fixture
def damaged(brokers: Path, tmp_path: Path) -> Path:
    """A segment whose first batch has a wrong checksum."""
    data = bytearray((brokers / "kafka-4" / "orders-0" / SEGMENT).read_bytes())
    data[100] ^= 1
    path = tmp_path / "orders-0" / SEGMENT
    path.parent.mkdir()
    path.write_bytes(data)
    return path


def test_the_summary_has_a_row_for_each_partition(brokers: Path, ran: Ran) -> None:
    output = ran("summary", str(brokers / "kafka-4")).out
    rows = [line.split() for line in output.splitlines()]
    for folder in (brokers / "kafka-4").iterdir():
        printed = (folder / "dump.txt").read_text().splitlines()
        batches = sum(line.startswith("baseOffset") for line in printed)
        records = sum(line.startswith("|") for line in printed)
        size = (folder / SEGMENT).stat().st_size
        name, _, partition = folder.name.rpartition("-")
        row = [name, partition, *(f"{each:,}" for each in (batches, records, size, 0, records - 1))]
        assert row in rows
    assert "TCP" not in output


def test_the_summary_of_an_empty_segment(tmp_path: Path, ran: Ran) -> None:
    path = tmp_path / SEGMENT
    path.write_bytes(b"")
    assert "Log segments contain no requests" in ran("summary", str(path)).out
    assert "TCP" not in ran("summary", str(path)).out


@pytest.mark.parametrize(
    "command",
    ["latency", "topology", "diagnose", "show", "export", "encrypted", "report -o report.html",
     "trace --topic orders --partition 0 --offset 3"],
)  # fmt: skip
def test_other_commands_name_those_that_read_log_segments(
    command: str, brokers: Path, ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *options = command.split()
    path = brokers / "kafka-4" / "orders-0"
    assert "Log segments contain no requests" in ran(name, str(path), *options).err


def test_log_segments_cannot_be_compared(brokers: Path, ran: Ran) -> None:
    folders = (str(brokers / name / "orders-0") for name in ("kafka-3", "kafka-4"))
    assert "Log segments contain no requests" in ran("compare", *folders).out


def test_quality_reports_damage_of_segments_only(damaged: Path, brokers: Path, ran: Ran) -> None:
    undamaged = brokers / "kafka-4" / "orders-0" / SEGMENT
    assert ran("quality", str(undamaged)).err == "No flaws in this capture.\n"
    assert "damaged_file" in ran("quality", str(damaged)).out


def test_the_summary_reports_damage_of_segments(damaged: Path, ran: Ran) -> None:
    output = ran("summary", str(damaged)).out
    assert "byte 0: a batch with a wrong checksum" in output


def test_a_capture_beside_segments_is_summarised(brokers: Path, ran: Ran) -> None:
    capture, segment = CAPTURES / "kafka-4-kafkajs.pcap.zst", brokers / "kafka-4" / "orders-0"
    output = ran("summary", str(capture), str(segment)).out
    assert "83 exchanges" in output
    _, partitions = output.split("\nLog segments\n")
    assert "orders" in partitions
