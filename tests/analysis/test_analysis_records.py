"""The command `records`, and what `show` has in place of bytes."""

from __future__ import annotations

import io
import json
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import zstandard

from analysis.cli import main
from analysis.display.exchange_tree import tree
from dissector.exchanges.exchange import Exchange
from dissector.tables import RECORDS
from tests.analysis.made_rows import exchange

ROOT = Path(__file__).parents[2]
CAPTURE = ROOT / "captures" / "kafka-4-java.pcap.zst"


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A segment of a real broker, in a folder of its own."""
    packed = (ROOT / "tests" / "data" / "segments.tar.zst").read_bytes()
    data = zstandard.ZstdDecompressor().stream_reader(packed).read()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        log_file = archive.extractfile("kafka-4/orders-0/00000000000000000000.log")
        assert log_file is not None
        path = tmp_path / "orders-0" / "00000000000000000000.log"
        path.parent.mkdir()
        path.write_bytes(log_file.read())
    return path


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


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
def test_formats(form: str, segment: Path, tmp_path: Path) -> None:
    output = tmp_path / f"records.{form}"
    assert main(["records", str(segment), "--format", form, "-o", str(output)]) == 0
    read = {
        "csv": pa.csv.read_csv,
        "parquet": pa.parquet.read_table,
        "arrow": lambda path: pa.ipc.open_stream(path).read_all(),
    }[form]
    table = read(output)
    assert table["offset"].to_pylist() == list(range(100))
    assert set(table["topic"].to_pylist()) == {"orders"}


def test_other_tables_of_a_segment(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--table", "batches", str(segment)]) == 0
    batches = list(lines(capsys))
    assert [row["codec"] for row in batches] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert all(row["crc_ok"] for row in batches)
    assert main(["export", str(segment)]) == 0
    assert list(lines(capsys)) == []
    assert main(["summary", str(segment)]) == 0
    assert main(["show", str(segment)]) == 0


def test_the_input_is_not_overwritten(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = segment.read_bytes()
    assert main(["records", str(segment), "-o", str(segment)]) == 2
    assert segment.read_bytes() == before


def test_a_file_of_another_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "server.log"
    path.write_text("[2026-11-21 04:00:00,000] INFO started (kafka.server.KafkaServer)\n")
    assert main(["records", str(path)]) == 1
    assert "is not a pcap or pcapng file" in capsys.readouterr().err


# show


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def shown(secrets: bool = False, **columns: Any) -> list[str]:
    for name in ("request", "response"):
        frame = columns.setdefault(f"{name}_frame", None)
        columns.setdefault(f"{name}_bytes", None if frame is None else len(frame) + 4)
    made = Exchange(**exchange(**columns))
    return [line.plain for line in tree(made, secrets=secrets)]


def request(api_key: int, version: int, body: bytes) -> bytes:
    return struct.pack(">hhi", api_key, version, 7) + text("app") + body


def test_what_a_field_holds_stands_below_it() -> None:
    assignment = b"\0\0" + struct.pack(">i", 1) + text("orders") + struct.pack(">ii", 1, 4)
    assignment += struct.pack(">i", -1)
    frame = struct.pack(">ih", 7, 0) + struct.pack(">i", len(assignment)) + assignment
    lines = shown(api_key=14, api="SyncGroup", api_version=0, response_frame=frame)
    assert lines[-7:] == [
        "       6  assignment             ConsumerProtocolAssignment version 0",
        "      12    assigned_partitions  [1]",
        "      16      [0]",
        '      16        topic            "orders"',
        "      24        partitions       [1]",
        "      28          [0]            4",
        "      32    user_data            null",
    ]


def test_a_forwarded_request_with_a_secret_and_without() -> None:
    configs = struct.pack(">i", 2)
    for name, value in (("retention.ms", "1000"), ("my.token", "hunter2")):
        configs += text(name) + b"\0" + text(value)
    inside = request(44, 0, struct.pack(">ib", 1, 2) + text("orders") + configs + b"\0")
    frame = request(58, 0, b"\0" + bytes([len(inside) + 1]) + inside + b"\0\1\0")
    columns = {"api_key": 58, "api": "Envelope", "api_version": 0, "request_frame": frame}
    printed = "\n".join(shown(**columns))
    assert "  IncrementalAlterConfigs version 0 request\n" in printed
    assert "  44 IncrementalAlterConfigs\n" in printed
    assert '"1000"' in printed
    assert "hunter2" not in printed
    assert '"hunter2"' in "\n".join(shown(secrets=True, **columns))


def test_a_forwarded_request_that_is_wrong() -> None:
    inside = request(3, 0, struct.pack(">i", 9) + b"hunter2")
    frame = request(58, 0, b"\0" + bytes([len(inside) + 1]) + inside + b"\0\1\0")
    columns = {"api_key": 58, "api": "Envelope", "api_version": 0, "request_frame": frame}
    printed = "\n".join(shown(**columns))
    assert "    ! 9 elements are announced and 7 bytes are left at byte 13" in printed
    assert b"hunter2".hex() not in printed


def test_a_token_without_a_header() -> None:
    columns = {
        "api_key": None, "api": "SaslToken", "api_version": None, "correlation_id": None,
        "request_frame": b"\0alice\0hunter2", "response_frame": b"", "sasl_mechanism": "PLAIN",
    }  # fmt: skip
    lines = shown(**columns)
    assert lines[4:8] == [
        "       0  token       PLAIN message",
        '       0    authzid   ""',
        '       1    user      "alice"',
        "       7    password  [redacted]",
    ]
    assert lines[-1] == "       0  token  (empty)"


def test_a_cut_message_of_kraft_metadata_is_hidden() -> None:
    head = struct.pack(">iihiih", 7, 0, 0, 0, 1, 18) + b"__cluster_metadata"
    partition = struct.pack(">iihqqqii", 1, 0, 0, 5, 5, 0, -1, -1) + struct.pack(">i", 500)
    columns = {"api_key": 1, "api": "Fetch", "api_version": 11}
    frame = head + partition + b"some-salt"
    printed = "\n".join(shown(response_frame=frame, response_bytes=900, **columns))
    assert "[redacted]" in printed
    assert b"some".hex(" ") not in printed
    other = frame.replace(b"__cluster_metadata", b"_my-own-topic-here")
    printed = "\n".join(shown(response_frame=other, response_bytes=900, **columns))
    assert b"some".hex(" ") in printed
