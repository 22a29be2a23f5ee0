"""Rows of `batches`, and the counts of `exchanges` that follow from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dissector.packets import open_packets
from dissector.pipeline import Pipeline
from tests.dissector.records.records_writers import batch, message, record
from tests.dissector.streams.dialogue import Dialogue
from tests.dissector.test_capture_nested import fetch, fetched


def tables(folder: Path, records: bytes) -> dict[str, list[dict[str, Any]]]:
    dialogue, connection = Dialogue.connected()
    connection.exchange(fetch(1), fetched(1, records))
    path = dialogue.written(folder / "fetch.pcap")
    pipeline = Pipeline(open_packets([path]))
    wanted = pipeline.tables(["exchanges", "batches", "records", "problems"])
    return {name: table.to_pylist() for name, table in wanted.items()}


def test_a_batch_that_the_fetch_limit_cuts_has_no_fetched_records(tmp_path: Path) -> None:
    whole, cut = batch(record(), 1), batch(record() + record(1) + record(2), 3, base_offset=1)
    for size in (16, 17, 60, 61, len(cut) - 1):
        rows = tables(tmp_path, whole + cut[:size])
        (exchange,) = rows["exchanges"]
        assert (exchange["record_count"], exchange["record_bytes"]) == (1, len(whole) + size)
        assert rows["problems"] == []


def test_fields_that_are_cut_are_null(tmp_path: Path) -> None:
    """The checksum of magic 2 ends at byte 21, the attributes at byte 23 (KIP-98)."""
    cut = batch(record(), 1, attributes=0x30)
    crc = int.from_bytes(cut[17:21])
    for size, expected in (
        (17, (None, None, None)), (20, (None, None, None)), (21, (crc, None, None)),
        (22, (crc, None, None)), (23, (crc, True, True)), (60, (crc, True, True)),
    ):  # fmt: skip
        (row,) = tables(tmp_path, cut[:size])["batches"]
        assert (row["crc"], row["is_transactional"], row["is_control"]) == expected
        assert (row["crc_ok"], row["truncated"]) == (None, True)
    for magic in (0, 1):
        whole = message(magic, b"value")
        (row,) = tables(tmp_path, whole[:17])["batches"]
        assert (row["crc"], row["is_control"]) == (int.from_bytes(whole[12:16]), None)


def test_times_before_1970_and_the_absent_time(tmp_path: Path) -> None:
    """Only -1 is Kafka's null. Times that are too far away for a column of ns are null."""
    times = {-1: None, -2: -2, -86_400_000: -86_400_000, -(1 << 42): -(1 << 42), -(1 << 60): None}
    for number, (first, expected) in enumerate(times.items()):
        records = batch(record(), 1, base_timestamp=first, max_timestamp=first)
        (tmp_path / f"{number}").mkdir()
        shown = tables(tmp_path / f"{number}", records)
        for row in (
            *((each["base_timestamp"], each["max_timestamp"]) for each in shown["batches"]),
            *((each["timestamp"],) for each in shown["records"]),
        ):
            assert {None if each is None else each.value // 10**6 for each in row} == {expected}


def test_a_delete_horizon_is_not_a_timestamp_of_a_record(tmp_path: Path) -> None:
    """KIP-534: the cleaner replaces the base timestamp by it."""
    horizon, last = 1_800_000_000_000, 1_700_000_000_000
    records = batch(
        record(0, last - horizon), 1, attributes=0x40, base_timestamp=horizon, max_timestamp=last
    )
    (row,) = tables(tmp_path, records)["batches"]
    assert (row["base_timestamp"], row["max_timestamp"].timestamp()) == (None, last / 1000)
