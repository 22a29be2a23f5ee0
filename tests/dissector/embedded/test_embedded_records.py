"""Records in `show`: those of the recordings, and batches that kafka-python writes."""

from __future__ import annotations

import struct
from itertools import islice

from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from dissector.capture import open_capture
from dissector.embedded.contents import NOWHERE
from dissector.embedded.records import BATCHES, RECORDS, batches
from dissector.protocol.explain import Explained
from dissector.protocol.notation import Direction
from dissector.secrets import hidden
from tests.captures.recorded import CAPTURES
from tests.kafka_bytes import text

Pair = tuple[bytes | None, bytes | None]


def batch(*records: Pair, headers: tuple[tuple[str, bytes | None], ...] = ()) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for offset, (key, value) in enumerate(records):
        builder.append(offset, 1_700_000_000_123, key, value, list(headers))
    return bytes(builder.build())


def lines(events: list[Explained]) -> list[tuple[int, str, object]]:
    return [(event.depth, event.name, event.value) for event in events]


def batch_lines(data: bytes, topic: str | None = "orders") -> list[tuple[int, str, object]]:
    return lines(batches(data, topic).events)


def test_a_batch() -> None:
    tree = batches(batch((b"k", b"v"), (None, b"\xff"), headers=(("a", b"1"), ("b", None))), None)
    time = "2023-11-14T22:13:20.123Z"
    assert tree.name.startswith("1 batch, ")
    assert lines(tree.events) == [
        (0, "[0]", "magic 2, 2 records, offsets 0 to 1, none"),
        (1, "[0]", f"offset 0, {time}"),
        (2, "key", "k"), (2, "value", "v"), (2, "header", "a: 1"), (2, "header", "b: null"),
        (1, "[1]", f"offset 1, {time}"),
        (2, "key", None), (2, "value", b"\xff"), (2, "header", "a: 1"), (2, "header", "b: null"),
    ]  # fmt: skip
    assert [event.offset for event in tree.events] == [0] + [NOWHERE] * 10


def test_a_message_set() -> None:
    builder = LegacyRecordBatchBuilder(1, 1, 1 << 20)
    builder.append(0, 1000, b"k", b"v")
    ((_, _, words), *records) = batch_lines(bytes(builder.build()))
    assert words == "magic 1, 1 record, offset 0, gzip"
    assert records[1:] == [(2, "key", "k"), (2, "value", "v")]


def test_many_are_counted() -> None:
    data = batch(*((b"k", b"v") for _ in range(RECORDS + 5)))
    tree = batches(data * (BATCHES + 1234), "orders")
    assert tree.name == f"{BATCHES + 1234:,} batches, {len(data) * (BATCHES + 1234):,} bytes"
    assert lines(tree.events)[-2:] == [(1, "…", "5 more"), (0, "…", "1,234 more")]
    assert sum(name == "key" for _, name, _ in lines(tree.events)) == BATCHES * RECORDS
    offsets = [event.offset for event in tree.events if event.depth == 0]
    assert offsets == [len(data) * number for number in range(BATCHES)] + [NOWHERE]


def test_damage_is_shown() -> None:
    data = bytearray(batch((b"k", b"v")))
    data[-2] ^= 1
    assert "wrong checksum" in str(batch_lines(bytes(data))[0][2])
    ((_, _, words),) = batch_lines(batch((b"k", b"v"))[:-1])
    assert words == "magic 2, 1 record, offset 0, none, cut"
    ((_, _, words),) = batch_lines(bytes(70))
    assert words == "zeros at the expected start of a batch"


def test_times_that_no_calendar_has() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    builder.append(0, 1 << 60, None, b"v", [])
    assert batch_lines(bytes(builder.build()))[1][2] == f"offset 0, {1 << 60} ms"


# Kafka's own


KEY = b"\0\2" + text("g")
SUBSCRIPTION = b"\0\0\0\0\0\1" + text("orders") + b"\xff\xff\xff\xff"
GROUP = b"\0\0" + text("consumer") + struct.pack(">i", 1) + text("range") + text("m1")
GROUP += struct.pack(">i", 1) + text("m1") + text("c") + text("/h") + struct.pack(">i", 9)
GROUP += struct.pack(">i", len(SUBSCRIPTION)) + SUBSCRIPTION + struct.pack(">i", 0)


def test_a_group() -> None:
    events = batches(batch((KEY, GROUP)), "__consumer_offsets").events
    fields = {event.path: event.value for event in events}
    assert fields["[0].[0].key"] == "GroupMetadataKey version 0"
    assert fields["[0].[0].key.group"] == "g"
    assert fields["[0].[0].value"] == "GroupMetadataValue version 0"
    assert fields["[0].[0].value.members[0].member_id"] == "m1"


def test_unreadable_values_stay_bytes() -> None:
    events = batch_lines(batch((KEY, GROUP[:-1]), (b"\0\x63", b"\xff")), "__consumer_offsets")
    assert (2, "key", "GroupMetadataKey version 0") in events
    assert (2, "value", GROUP[:-1].decode("latin-1")) not in events
    assert (2, "value", b"\xff") in events


def test_metadata_that_cannot_be_read_is_hidden() -> None:
    events = batches(batch((None, b"\1\x0b\0 what is it"), (None, b"\2")), "__cluster_metadata")
    values = [event.path for event in events.events if event.name == "value"]
    assert hidden(events.events) == set(values)
    assert len(values) == 2


def test_records_of_recordings_in_show() -> None:
    secrets: set[str] = set()
    groups = 0
    for name, api in (("kafka-4-admin", "Fetch"), ("kafka-3-zookeeper", "Fetch")):
        capture = open_capture(CAPTURES / f"{name}.pcap.zst")
        for exchange in islice((each for each in capture.exchanges() if each.api == api), 400):
            explanation = exchange.unfold(Direction.RESPONSE)
            events = explanation.events if explanation else []
            assert all(event.offset >= NOWHERE for event in events)
            secret = hidden(events)
            secrets |= {event.name for event in events if event.path in secret}
            groups += sum(
                str(event.value).startswith("ConsumerProtocolSubscription") for event in events
            )
    assert secrets == {"salt", "stored_key", "server_key"}
    assert groups
