"""Records of internal topics: decoded fields, problems and redacted values.

test_tables_log_segments.py compares decoded records with the output of Kafka's own tool.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.protocol.structures import RECORD_TOPICS
from dissector.tables import RECORDS
from dissector.tables.internal_topics import decode_internal_records
from tests.kafka_bytes import text

REDACTED = b"[redacted]"
OFFSETS = "__consumer_offsets"
METADATA = "__cluster_metadata"


def compact(value: bytes) -> bytes:
    return bytes([len(value) + 1]) + value


COMMIT_KEY = b"\0\1" + text("g") + text("orders") + b"\0\0\0\2"
COMMIT_VALUE = b"\0\3" + struct.pack(">qi", 42, 7) + text("m") + struct.pack(">q", 1000)
MARKER_KEY, MARKER_VALUE = b"\0\0\0\1", b"\0\0\0\0\0\6"
CREDENTIAL = (
    b"\1\x0b\0" + compact(b"alice") + b"\1" + compact(b"some-salt") + compact(b"stored-key")
    + compact(b"server-key") + struct.pack(">i", 4096) + b"\0"
)  # fmt: skip


def config(name: bytes, value: bytes) -> bytes:
    return b"\1\4\0\4" + compact(b"1") + compact(name) + compact(value) + b"\0"


def row(topic: str | None, key: bytes | None, value: bytes | None, **fields: Any) -> dict[str, Any]:
    known = {"topic": topic, "key": key, "value": value, "partition": 0, "offset": 5}
    known |= {"connection_id": 3, "time": 1_000}
    return dict.fromkeys(RECORDS.schema.names) | known | {"headers": []} | fields


def decoded(*rows: dict[str, Any], **options: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    batch = pa.RecordBatch.from_pylist(list(rows), RECORDS.schema)
    actual, problems = decode_internal_records(batch, **options)
    assert actual.schema == RECORDS.schema
    return actual.to_pylist(), problems


def test_an_offset_commit() -> None:
    (record,), problems = decoded(row(OFFSETS, COMMIT_KEY, COMMIT_VALUE))
    assert record["record_kind"] == "OffsetCommit"
    assert json.loads(record["decoded"]) == {
        "version": 3,
        "key": {"group": "g", "topic": "orders", "partition": 2},
        "value": {"offset": 42, "leader_epoch": 7, "metadata": "m", "commit_timestamp": 1000},
    }
    assert (record["key"], record["value"], problems) == (COMMIT_KEY, COMMIT_VALUE, [])


def test_a_record_that_deletes() -> None:
    (record,), problems = decoded(row(OFFSETS, COMMIT_KEY, None))
    assert record["record_kind"] == "OffsetCommit"
    fields = json.loads(record["decoded"])
    assert (fields["version"], fields["value"]) == (None, None)
    assert (record["value"], problems) == (None, [])


def test_subscriptions_are_unfolded_and_other_bytes_are_base64() -> None:
    subscription = b"\0\0\0\0\0\1" + text("orders") + b"\0\0\0\2\xfe\xff"
    member = text("m1") + text("c") + text("/h") + struct.pack(">i", 9)
    member += struct.pack(">i", len(subscription)) + subscription + struct.pack(">i", 3) + b"\1\2\3"
    value = b"\0\0" + text("consumer") + struct.pack(">i", 1) + text("range") + text("m1")
    (record,), _ = decoded(row(OFFSETS, b"\0\2" + text("g"), value + struct.pack(">i", 1) + member))
    (fields,) = json.loads(record["decoded"])["value"]["members"]
    assert fields["subscription"] == {
        "structure": "ConsumerProtocolSubscription", "version": 0, "topics": ["orders"],
        "user_data": "/v8=",
    }  # fmt: skip
    assert fields["assignment"] == "AQID"


def test_control_records_of_any_topic() -> None:
    (record,), problems = decoded(row("ledger", MARKER_KEY, MARKER_VALUE, record_kind="commit"))
    assert record["record_kind"] == "commit"
    assert json.loads(record["decoded"]) == {"version": 0, "coordinator_epoch": 6}
    assert problems == []


def test_other_records_are_left_alone() -> None:
    rows = [row("orders", COMMIT_KEY, CREDENTIAL), row("__mine", None, None)]
    batch = pa.RecordBatch.from_pylist(rows, RECORDS.schema)
    actual, problems = decode_internal_records(batch)
    assert actual.equals(batch)
    assert problems == []


def test_rows_keep_their_order_among_others() -> None:
    commit = row(OFFSETS, COMMIT_KEY, COMMIT_VALUE)
    records, _ = decoded(row("orders", b"k", b"v"), commit, row("orders", None, None))
    assert [each["record_kind"] for each in records] == [None, "OffsetCommit", None]
    assert [each["value"] for each in records] == [b"v", COMMIT_VALUE, None]


# what cannot be read


@pytest.mark.parametrize(
    ("topic", "key", "value", "why"),
    [
        (OFFSETS, COMMIT_KEY[:-1], COMMIT_VALUE, "4 bytes are needed and 3 are left"),
        (OFFSETS, COMMIT_KEY, COMMIT_VALUE + b"\0", "1 bytes are left over"),
        (OFFSETS, COMMIT_KEY, b"", "2 bytes are needed and 0 are left"),
        (OFFSETS, None, COMMIT_VALUE, "the record has no key"),
        (OFFSETS, b"\0\x63", b"", "unknown type 99"),
        (OFFSETS, COMMIT_KEY, b"\0\x63", "unknown version 99"),
        ("__remote_log_metadata", None, b"\1\x63\0", "unknown type 99"),
        (METADATA, None, b"\2\x0b\0", "unknown framing version 2"),
        (METADATA, None, None, "the record has no value"),
    ],
)
def test_damage_is_a_problem(topic: str, key: bytes, value: bytes, why: str) -> None:
    good = row(OFFSETS, COMMIT_KEY, COMMIT_VALUE)
    (bad, other), (problem,) = decoded(row(topic, key, value), good)
    assert (bad["record_kind"], bad["decoded"]) == (None, None)
    assert other["decoded"] is not None
    assert (problem.stage, problem.kind) == ("records", "undecoded_record")
    assert (problem.time, problem.connection_id) == (1_000, 3)
    assert problem.bytes == len(value or b"")
    assert f"record 5 of {topic}-0: " in problem.detail
    assert why in problem.detail


def test_a_control_record_without_a_value() -> None:
    (record,), (problem,) = decoded(row("ledger", MARKER_KEY, None, record_kind="commit"))
    assert (record["record_kind"], record["decoded"]) == ("commit", None)
    assert problem.kind == "undecoded_record"


@given(st.sampled_from(sorted(RECORD_TOPICS)), st.binary(max_size=40), st.binary(max_size=60))
def test_any_bytes(topic: str, key: bytes, value: bytes) -> None:
    (record,), problems = decoded(row(topic, key, value))
    assert (record["decoded"] is None) == (len(problems) == 1)
    if record["decoded"] is not None:
        json.loads(record["decoded"], parse_constant=lambda name: pytest.fail(name))


# secrets


def test_a_credential_is_redacted_as_a_whole_and_in_its_fields() -> None:
    (record,), _ = decoded(row(METADATA, None, CREDENTIAL))
    assert record["value"] == REDACTED
    assert json.loads(record["decoded"]) == {
        "version": 0, "name": "alice", "mechanism": 1, "salt": "[redacted]",
        "stored_key": "[redacted]", "server_key": "[redacted]", "iterations": 4096,
    }  # fmt: skip
    (record,), _ = decoded(row(METADATA, None, CREDENTIAL), show_secrets=True)
    assert record["value"] == CREDENTIAL
    assert json.loads(record["decoded"])["salt"] == "c29tZS1zYWx0"


@pytest.mark.parametrize(
    ("name", "is_open"),
    [
        (b"retention.ms", True),
        (b"log.cleaner.threads", True),
        (b"ssl.key.password", False),
        (b"listener.name.clients.plain.sasl.jaas.config", False),
        (b"my.plugin.token", False),
        (b"SCRAM-SHA-256", False),
    ],
)
def test_configurations(name: bytes, is_open: bool) -> None:
    value = config(name, b"12345678")
    (record,), _ = decoded(row(METADATA, None, value))
    assert record["value"] == (value if is_open else REDACTED)
    assert json.loads(record["decoded"])["value"] == ("12345678" if is_open else "[redacted]")


def test_unreadable_values_may_be_secrets() -> None:
    (record,), _ = decoded(row(METADATA, None, CREDENTIAL[:-1]))
    assert record["value"] == REDACTED
    (record,), _ = decoded(row(METADATA, None, CREDENTIAL[:-1]), show_secrets=True)
    assert record["value"] == CREDENTIAL[:-1]


@pytest.mark.parametrize("topic", [None, "__cluster_mutadata"])
def test_where_the_topic_is_not_known_only_secrets_are_hidden(topic: str | None) -> None:
    rows = [row(topic, None, each) for each in (CREDENTIAL, b"\1\x0b\0 and so on", b"", None)]
    rows += [row(topic, None, config(b"retention.ms", b"1")), row(topic, None, config(b"x", b"1"))]
    records, problems = decoded(*rows)
    assert [each["value"] == REDACTED for each in records] == [True, *[False] * 4, True]
    assert {each["decoded"] for each in records} == {None}
    assert problems == []
    assert decoded(*rows, show_secrets=True)[0] == rows_as_read(rows)


def rows_as_read(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return pa.RecordBatch.from_pylist(rows, RECORDS.schema).to_pylist()
