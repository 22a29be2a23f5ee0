"""Several processes give the rows of one process, in the same order, for each capture."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from analysis.cli import main
from dissector import parallel
from dissector.packets import open_packets
from dissector.packets.byte_input import ByteInput
from dissector.pipeline import Pipeline
from dissector.tables import TABLES
from tests.dissector.streams import rewriting

BLOCKS = 4
"""And what is left at the end: more than there are slots for, so that memory is used again."""

RECORDINGS = sorted(rewriting.CAPTURES.glob("*.pcap*"))[::2]
"""Every other one, for the time it takes."""


def tables(*paths: Path, jobs: int, block: int, **options: Path) -> dict[str, pa.Table]:
    """All tables, the opt-in ones too."""
    source = open_packets(paths, block_bytes=block)
    return Pipeline(source, [], jobs=jobs, **options).tables(list(TABLES))


def part_of(*paths: Path) -> int:
    """A block size that divides the captures into several blocks."""
    size = 0
    for path in paths:
        source = ByteInput(str(path))
        while count := len(source.take(1 << 20)):
            size += count
        source.close()
    return max(size // BLOCKS, 10_000)


def assert_same(paths: list[Path], jobs: int, **options: Path) -> dict[str, pa.Table]:
    block = part_of(*paths)
    expected = tables(*paths, jobs=1, block=block, **options)
    actual = tables(*paths, jobs=jobs, block=block, **options)
    for name, table in expected.items():
        assert actual[name].equals(table), name
    return expected


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_every_recording(path: Path) -> None:
    # With two processes, one makes the rows; with three, two share the connections.
    assert_same([path], 2 if RECORDINGS.index(path) % 4 == 0 else 3)


def test_secrets_in_a_file_of_their_own(tmp_path: Path) -> None:
    carried = open_packets([rewriting.CAPTURES / "kafka-4-tls-secrets.pcapng.zst"])
    keylog = tmp_path / "keys"
    keylog.write_bytes(b"\n".join(carried.secrets))
    carried.close()
    rows = assert_same([rewriting.CAPTURES / "kafka-4-tls.pcap.zst"], 3, keylog=keylog)
    assert {"Produce", "Fetch"} <= {*rows["exchanges"]["api"].to_pylist()}


def test_files_one_after_the_other(tmp_path: Path) -> None:
    packets = rewriting.read("kafka-4-kafkajs.pcap.zst")
    third = len(packets) // 3
    paths = [
        rewriting.write(tmp_path / f"{part}.pcap", packets[part * third : (part + 1) * third])
        for part in range(3)
    ]
    assert len(assert_same(paths, 3)["exchanges"]) > 10


def test_files_of_the_same_time(tmp_path: Path) -> None:
    packets = rewriting.read("kafka-4-kafkajs.pcap.zst")
    paths = [
        rewriting.write(tmp_path / f"{part}.pcap", packets[part::2]) for part in range(2)
    ]  # fmt: skip
    assert len(assert_same(paths, 3)["exchanges"]) > 10


def test_names_from_connections_of_another_process(tmp_path: Path) -> None:
    """A consumer fetches by topic id only; other connections have the names."""
    packets = rewriting.read("kafka-4-kafkajs.pcap.zst")
    path = rewriting.write(tmp_path / "one.pcap", packets)
    rows = assert_same([path], 4)
    topics = {name for each in rows["exchanges"]["topics"].to_pylist() for name in each or ()}
    assert topics


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_command_writes_the_same_file(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "LEAST_BYTES", 0)
    path = rewriting.CAPTURES / "librdkafka-mock-produce.pcap"
    written = []
    for jobs in ("1", "2", "3"):
        target = tmp_path / f"{jobs}.{form}"
        assert not main(["export", str(path), "--format", form, "--jobs", jobs, "-o", str(target)])
        written.append(target.read_bytes())
    assert written[0] == written[1] == written[2] != b""


def test_blocks_without_any_packet_of_tcp(tmp_path: Path) -> None:
    """Data that continues in later blocks passes through these blocks."""
    packets = rewriting.read("bulk-tansu.pcap.zst")[:600]
    data = rewriting.write(tmp_path / "plain.pcap", packets).read_bytes()
    parts, at, count = [data[:24]], 24, 0
    while at < len(data):
        size = 16 + int.from_bytes(data[at + 8 : at + 12], "little")
        parts.append(data[at : at + size])
        count += 1
        if count % 50 == 0:
            head = data[at : at + 8] + 2 * (1000).to_bytes(4, "little")
            parts += [head + bytes(1000)] * 300
        at += size
    path = tmp_path / "mixed.pcap"
    path.write_bytes(b"".join(parts))
    expected, actual = (tables(path, jobs=jobs, block=100_000) for jobs in (1, 3))
    assert len(expected["exchanges"]) > 5
    for name, table in expected.items():
        assert actual[name].equals(table), name
