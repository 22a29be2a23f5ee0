"""Log segments of real brokers, compared with the output of Kafka's own tool.

`tests/data/segments.tar.zst`: see tests/data/README.md. `dump.txt` is what DumpLogSegments of the
broker's release printed of the segment beside it: each batch, each record, and of Kafka's own
topics each record as Kafka reads it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dissector.capture import open_capture
from dissector.errors import CaptureError
from dissector.tables.log_segments import is_segment, topic_partition
from tests.captures.recorded import CAPTURES

SEGMENT = "00000000000000000000.log"
PARTITIONS = ("orders-0", "ledger-0", "__consumer_offsets-0", "__transaction_state-0",
              "__cluster_metadata-0")  # fmt: skip
BROKERS = ("kafka-3", "kafka-4")
FOLDERS = [f"{broker}/{name}" for broker in BROKERS for name in PARTITIONS]
FOLDERS += ["kafka-4/__share_group_state-0"]
Row = dict[str, Any]

BATCH = re.compile(r"baseOffset: (\d+) .* crc: (\d+) isvalid: (\w+)")
PAIR = re.compile(r"(\w+): (\S+)")
RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) \w+: (?P<time>-?\d+) keySize: (?P<key_size>-?\d+) "
    r"valueSize: (?P<value_size>-?\d+) sequence: -?\d+ headerKeys: \[(?P<headers>.*?)\] ?"
    r"(?P<rest>.*)"
)


def read(path: Path, **options: Any) -> dict[str, list[Row]]:
    tables = open_capture(path, **options).tables(["batches", "records", "problems"])
    return {name: table.to_pylist() for name, table in tables.items()}


def lines(folder: Path, start: str) -> Iterator[str]:
    for line in (folder / "dump.txt").read_text().splitlines():
        if line.startswith(start):
            yield line


def ns(ms: str) -> int:
    return int(ms) * 1_000_000


# what Kafka's tool says


@pytest.mark.parametrize("partition", FOLDERS)
def test_batches(brokers: Path, partition: str) -> None:
    folder = brokers / partition
    tables = read(folder / SEGMENT)
    printed = [dict(PAIR.findall(line)) for line in lines(folder, "baseOffset")]
    assert len(printed) == len(tables["batches"]) > 0
    assert tables["problems"] == []
    position = 0
    for batch, expected in zip(tables["batches"], printed, strict=True):
        assert (batch["topic"], batch["partition"]) == (folder.name[:-2], 0)
        assert batch["crc_ok"] is (expected["isvalid"] == "true")
        assert batch["codec"] == expected["compresscodec"]
        assert batch["is_transactional"] is (expected["isTransactional"] == "true")
        assert batch["is_control"] is (expected["isControl"] == "true")
        assert batch["max_timestamp"].value == ns(expected["CreateTime"])
        assert position == int(expected["position"])
        position += batch["bytes"]
        for column, name in (
            ("base_offset", "baseOffset"), ("last_offset", "lastOffset"), ("record_count", "count"),
            ("magic", "magic"), ("bytes", "size"), ("leader_epoch", "partitionLeaderEpoch"),
            ("producer_id", "producerId"), ("base_sequence", "baseSequence"),
        ):  # fmt: skip
            assert (-1 if batch[column] is None else batch[column]) == int(expected[name]), column


@pytest.mark.parametrize("partition", FOLDERS)
def test_records(brokers: Path, partition: str) -> None:
    folder = brokers / partition
    records = read(folder / SEGMENT, show_secrets=True)["records"]
    printed = [RECORD.fullmatch(line) for line in lines(folder, "|")]
    assert len(records) == len(printed) > 0
    for record, expected in zip(records, printed, strict=True):
        assert expected is not None
        assert record["offset"] == int(expected["offset"])
        assert record["timestamp"].value == ns(expected["time"])
        assert size(record["key"]) == int(expected["key_size"])
        assert size(record["value"]) == int(expected["value_size"])
        assert record["headers"] == []
        assert expected["headers"] == ""
        if not folder.name.startswith("__") and record["record_kind"] is None:
            key, value = record["key"].decode(), record["value"].decode()
            assert expected["rest"] == f"key: {key} payload: {value}"


def size(value: bytes | None) -> int:
    return -1 if value is None else len(value)


@pytest.mark.parametrize("broker", BROKERS)
def test_markers_of_transactions(brokers: Path, broker: str) -> None:
    folder = brokers / broker / "ledger-0"
    text = (folder / "dump.txt").read_text()
    printed = re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", text)
    ours = [
        (row["record_kind"].upper(), str(json.loads(row["decoded"])["coordinator_epoch"]))
        for row in read(folder / SEGMENT)["records"]
        if row["record_kind"]
    ]
    assert ours == printed
    assert {kind for kind, _ in printed} == {"COMMIT", "ABORT"}


def in_snake_case(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def agree(ours: Any, theirs: Any) -> None:
    """All our values are among theirs, which also have defaults for missing fields."""
    if isinstance(ours, dict):
        named = {in_snake_case(name): value for name, value in theirs.items()}
        for name, value in ours.items():
            if name not in ("structure", "version"):
                agree(value, named[name.replace("kraft", "k_raft")])
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for ours_item, theirs_item in zip(ours, theirs, strict=True):
            agree(ours_item, theirs_item)
    else:
        assert ours == theirs


@pytest.mark.parametrize("broker", BROKERS)
def test_kraft_metadata_as_kafka_reads_it(brokers: Path, broker: str) -> None:
    folder = brokers / broker / "__cluster_metadata-0"
    records = read(folder / SEGMENT, show_secrets=True)["records"]
    kinds = set()
    for record, line in zip(records, lines(folder, "|"), strict=True):
        _, is_data, text = line.partition("payload: ")
        decoded = json.loads(record["decoded"])
        if is_data:
            expected = json.loads(text)
            assert in_snake_case(record["record_kind"]).upper() == expected["type"]
            assert decoded.pop("version") == expected["version"]
            agree(decoded, expected["data"])
            kinds.add(record["record_kind"])
        elif "{" in line:
            agree(decoded, json.loads(line[line.index("{") :]))
    assert {"UserScramCredentialRecord", "ConfigRecord", "TopicRecord", "PartitionRecord"} <= kinds


@pytest.mark.parametrize(
    ("partition", "expected_kinds"),
    [
        ("kafka-3/__consumer_offsets-0", {"OffsetCommit", "GroupMetadata"}),
        ("kafka-4/__consumer_offsets-0", {"OffsetCommit", "GroupMetadata", "ShareGroupMetadata",
                                          "ConsumerGroupCurrentMemberAssignment"}),
        ("kafka-4/__share_group_state-0", {"ShareSnapshot"}),
    ],
)  # fmt: skip
def test_groups_as_kafka_reads_them(
    brokers: Path, partition: str, expected_kinds: set[str]
) -> None:
    folder = brokers / partition
    kinds = set()
    for record, line in zip(read(folder / SEGMENT)["records"], lines(folder, "|"), strict=True):
        if "endTxnMarker" in line:
            assert record["record_kind"] == "commit"
            continue
        key, _, payload = line.partition(" key: ")[2].partition(" payload: ")
        decoded = json.loads(record["decoded"])
        agree(decoded["key"], json.loads(key)["data"])
        kinds.add(record["record_kind"])
        if payload == "<DELETE>":
            assert decoded["value"] is None
            continue
        expected = json.loads(payload)
        assert decoded["version"] == int(expected["version"])
        agree(decoded["value"], expected["data"])
    assert expected_kinds <= kinds


def test_transactions_as_kafka_reads_them(brokers: Path) -> None:
    folder = brokers / "kafka-3" / "__transaction_state-0"
    pattern = re.compile(
        r"transactionalId=(\S+) payload: producerId:(-?\d+),producerEpoch:(-?\d+),.*"
        r"txnLastUpdateTimestamp=(-?\d+),txnTimeoutMs=(\d+)"
    )
    for record, line in zip(read(folder / SEGMENT)["records"], lines(folder, "|"), strict=True):
        match = pattern.search(line)
        assert match is not None
        decoded = json.loads(record["decoded"])
        value = decoded["value"]
        assert decoded["key"]["transactional_id"] == match[1]
        assert [str(value[name]) for name in (
            "producer_id", "producer_epoch", "transaction_last_update_timestamp_ms",
            "transaction_timeout_ms",
        )] == [match[number] for number in range(2, 6)]  # fmt: skip


def test_transactions_as_kafka_4_reads_them(brokers: Path) -> None:
    # As in Kafka's TransactionState; the tool prints the name.
    states = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit",
              "CompleteAbort"]  # fmt: skip
    folder = brokers / "kafka-4" / "__transaction_state-0"
    seen = set()
    for record, line in zip(read(folder / SEGMENT)["records"], lines(folder, "|"), strict=True):
        key, _, payload = line.partition(" key: ")[2].partition(" payload: ")
        decoded, expected = json.loads(record["decoded"]), json.loads(payload)
        agree(decoded["key"], json.loads(key)["data"])
        assert decoded["version"] == int(expected["version"])
        state = states[decoded["value"].pop("transaction_status")]
        assert state == expected["data"]["transactionStatus"]
        agree(decoded["value"], expected["data"])
        seen.add(state)
    assert seen == set(states)


def test_groups_of_kafka_4(brokers: Path) -> None:
    """The requests of the scenario must have rows, all decoded."""
    tables = read(brokers / "kafka-4")
    assert tables["problems"] == []
    own = [row for row in tables["records"] if row["topic"].startswith("__")]
    assert all(row["decoded"] for row in own)
    groups = {
        json.loads(row["decoded"])["key"].get("group_id"): row["record_kind"]
        for row in own
        if row["record_kind"] in ("ConsumerGroupMetadata", "ShareGroupMetadata")
    }
    assert groups == {
        "new-readers": "ConsumerGroupMetadata", "sharers": "ShareGroupMetadata",
    }  # fmt: skip
    assert "ShareSnapshot" in {row["record_kind"] for row in own}


# which files are segments


def test_a_folder_has_its_segments_only(brokers: Path) -> None:
    whole = read(brokers / "kafka-3")
    parts = [read(brokers / "kafka-3" / partition / SEGMENT) for partition in PARTITIONS]
    assert len(whole["records"]) == sum(len(part["records"]) for part in parts)
    assert whole["problems"] == []
    companions = list((brokers / "kafka-3").glob("*/*index"))
    assert companions
    assert not any(map(is_segment, map(str, companions)))


def test_all_files_of_a_partition_by_name(brokers: Path) -> None:
    # As a shell expands orders-0/*.
    paths = [path for path in (brokers / "kafka-3" / "orders-0").iterdir() if path.suffix != ".txt"]
    assert len(paths) > 1
    tables = open_capture(paths).tables(["records", "problems"])
    assert (len(tables["records"]), len(tables["problems"])) == (100, 0)


def test_deleted_segments_are_read_only_alone(brokers: Path, tmp_path: Path) -> None:
    # Compaction and retention rename files, and delete them a minute later.
    folder = tmp_path / "orders-0"
    folder.mkdir()
    for path in (brokers / "kafka-3" / "orders-0").glob("0*"):
        for name in (path.name, f"{path.name}.deleted", f"{path.name}.cleaned"):
            shutil.copy(path, folder / name)
    (folder / f"{20:020}.log.deleted").write_bytes(b"")
    for paths in ([folder], sorted(folder.iterdir())):
        tables = open_capture(paths).tables(["records", "problems"])
        assert (len(tables["records"]), len(tables["problems"])) == (100, 0)
    assert len(read(folder / f"{SEGMENT}.deleted")["records"]) == 100


def test_the_latest_snapshot_of_a_folder_is_read(brokers: Path, tmp_path: Path) -> None:
    # A controller loads the latest snapshot, and the log after it (KIP-630).
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    log = brokers / "kafka-4" / "__cluster_metadata-0" / SEGMENT
    whole, first = log.read_bytes(), read(log)["batches"][0]["bytes"]
    older = [f"{9:020}-{2:010}", f"{10:020}-{1:010}"]
    for name in older:
        (folder / f"{name}.checkpoint").write_bytes(whole[:first])
    latest = folder / f"{10:020}-{2:010}.checkpoint"
    latest.write_bytes(whole)
    (folder / f"{20:020}-{2:010}-1234.checkpoint.part").write_bytes(whole[:first])
    count = len(read(latest)["batches"])
    assert len(read(folder)["batches"]) == count > 1
    assert len(read(folder / f"{older[0]}.checkpoint")["batches"]) == 1
    shutil.copy(log, folder)
    assert len(read(folder)["batches"]) == 2 * count


def test_segments_beside_captures(brokers: Path, tmp_path: Path) -> None:
    capture = CAPTURES / "kafka-4-kafkajs.pcap.zst"
    shutil.copy(capture, tmp_path)
    shutil.copytree(brokers / "kafka-3" / "orders-0", tmp_path / "orders-0")
    both = open_capture(tmp_path).tables(["exchanges", "records"])
    alone = open_capture(capture).tables(["exchanges", "records"])
    assert len(both["exchanges"]) == len(alone["exchanges"])
    assert len(both["records"]) == len(alone["records"]) + 100
    assert list(open_capture(brokers / "kafka-3" / "orders-0" / SEGMENT).exchanges()) == []


def test_a_segment_is_known_by_content(brokers: Path, tmp_path: Path) -> None:
    other = tmp_path / "backup"
    shutil.copy(brokers / "kafka-3" / "orders-0" / SEGMENT, other)
    assert is_segment(str(other))
    records = read(other)["records"]
    assert len(records) == 100
    assert {(row["topic"], row["partition"], row["api"], row["time"]) for row in records} == {
        (None, None, None, None)
    }
    damaged = bytearray(other.read_bytes())
    damaged[100] ^= 1
    other.write_bytes(damaged)
    assert not is_segment(str(other))
    with pytest.raises(CaptureError, match="is not a"):
        open_capture(other)


def test_a_damaged_segment_is_known_by_name(brokers: Path, tmp_path: Path) -> None:
    damaged = bytearray((brokers / "kafka-3" / "orders-0" / SEGMENT).read_bytes())
    damaged[100] ^= 1
    path = tmp_path / "orders-3" / SEGMENT
    path.parent.mkdir()
    path.write_bytes(damaged)
    tables = read(path)
    assert [row["crc_ok"] for row in tables["batches"]][:2] == [False, True]
    assert {row["partition"] for row in tables["batches"]} == {3}
    assert [row["offset"] for row in tables["records"]][-80:] == list(range(20, 100))
    (problem,) = tables["problems"]
    assert (problem["kind"], problem["offset"]) == ("damaged_file", 0)


def test_an_empty_segment_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "orders-0" / SEGMENT
    path.parent.mkdir()
    path.write_bytes(b"")
    assert read(path) == {"batches": [], "records": [], "problems": []}


def test_the_last_batch_after_a_crash(brokers: Path, tmp_path: Path) -> None:
    whole = (brokers / "kafka-3" / "orders-0" / SEGMENT).read_bytes()
    path = tmp_path / "orders-0" / SEGMENT
    path.parent.mkdir()
    path.write_bytes(whole[:-5])
    tables = read(path)
    assert [row["truncated"] for row in tables["batches"]][-1] is True
    assert [row["offset"] for row in tables["records"]] == list(range(80))
    start = len(whole) - tables["batches"][-1]["bytes"]
    (problem,) = tables["problems"]
    assert (problem["kind"], problem["offset"]) == ("truncated_file", start)
    capture = open_capture(path)
    capture.tables(["records"])
    (warned,) = capture.file_problems
    assert (warned.capture, warned.detail) == (str(path), problem["detail"])


def test_zeros_are_one_problem_with_its_offset(brokers: Path, tmp_path: Path) -> None:
    whole = (brokers / "kafka-3" / "orders-0" / SEGMENT).read_bytes()
    path = tmp_path / "orders-0" / SEGMENT
    path.parent.mkdir()
    path.write_bytes(whole + bytes(100_000))
    tables = read(path)
    assert len(tables["records"]) == 100
    (problem,) = tables["problems"]
    assert (problem["capture"], problem["stage"]) == (str(path), "records")
    assert (problem["offset"], problem["bytes"]) == (len(whole), 100_000)


def test_a_segment_larger_than_a_block(
    brokers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (brokers / "kafka-3" / "orders-0" / SEGMENT).read_bytes()
    path = tmp_path / "orders-0" / SEGMENT
    path.parent.mkdir()
    path.write_bytes(whole * 30)
    monkeypatch.setattr(
        "dissector.records.log_segment.read_segment.__kwdefaults__", {"block": 5000}
    )
    seen: list[tuple[int, int | None]] = []
    tables = read(path, progress=lambda got, total: seen.append((got, total)))
    assert [row["offset"] for row in tables["records"]] == list(range(100)) * 30
    assert seen[-1] == (len(whole) * 30, len(whole) * 30)
    assert len(seen) > 20


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("orders-0", ("orders", 0)),
        ("my-topic-12", ("my-topic", 12)),
        ("__consumer_offsets-49", ("__consumer_offsets", 49)),
        ("a.b_c-7.0123456789abcdef0123456789abcdef-delete", ("a.b_c", 7)),
        ("orders", (None, None)),
        ("two words-0", (None, None)),
        ("orders-99999999999", (None, None)),
    ],
)
def test_topic_and_partition_by_the_folder(
    folder: str, expected: tuple[str | None, int | None]
) -> None:
    assert topic_partition(f"/data/{folder}/{SEGMENT}") == expected


# secrets


def test_secrets_of_a_segment(brokers: Path, tmp_path: Path) -> None:
    path = brokers / "kafka-4" / "__cluster_metadata-0" / SEGMENT
    moved = tmp_path / "moved"
    shutil.copy(path, moved)
    shown = read(path, show_secrets=True)["records"]
    secrets = [
        (row, json.loads(row["decoded"]))
        for row in shown
        if row["record_kind"] == "UserScramCredentialRecord" or b"plugin-secret" in row["value"]
    ]
    kinds = [row["record_kind"] for row, _ in secrets]
    assert kinds == ["UserScramCredentialRecord", "ConfigRecord"]
    for place_of_it in (path, moved):
        hidden = read(place_of_it)["records"]
        assert len(hidden) == len(shown)
        for row, decoded in secrets:
            (same,) = [each for each in hidden if each["offset"] == row["offset"]]
            assert same["value"] == b"[redacted]"
            if place_of_it == path:
                fields = json.loads(same["decoded"])
                assert fields.keys() == decoded.keys()
                assert "[redacted]" in fields.values()
        harmless = [each for each in hidden if each["value"] != b"[redacted]"]
        assert len(harmless) == len(shown) - len(secrets)
    assert any(b"log.cleaner.threads" in row["value"] for row in harmless)
