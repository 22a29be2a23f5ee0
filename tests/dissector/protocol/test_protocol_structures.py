"""Structures, as Kafka's own classes and serializers wrote them: `tests/data/README.md`."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from dissector.errors import DecodeError, UnknownVersion
from dissector.protocol import registry
from dissector.protocol.explain import explain
from dissector.protocol.notation import Direction, StructureLayout
from dissector.protocol.structures import (
    COORDINATOR_PAGES,
    RECORD_TOPICS,
    DecodedStructure,
    StructureBytes,
    decode_control_record,
    decode_record,
    decode_versioned,
    unfold_structures,
)
from dissector.protocol.tree_decoder import decode
from tests.dissector.protocol.protocol_writer import write
from tests.vectors import plain, vectors

VECTORS = vectors("structure")
RANDOM = [vector for vector in VECTORS if "body" in vector]
FRAMED = {vector["name"]: vector for vector in VECTORS if "body" not in vector}

OURS = {
    "EndTxnMarker": "CommitMarker",
    "SubscriptionInfoData": "SubscriptionInfo",
    "LegacyOffsetCommitKey": "OffsetCommitKey",
    "LegacyOffsetCommitValue": "OffsetCommitValue",
}
NOT_ON_THE_WIRE = {"AbortedTxn", "ControlRecordTypeSchema", "ProducerSnapshot", "QuorumStateData"}

LAYOUTS = [
    registry.structure_layout(structure.name, version)
    for structure in registry.all_structures().values()
    for version in structure.versions
]

TOPIC = "AAAAAAAAAAEAAAAAAAAAAg"
OTHER = "AAAAAAAAAAMAAAAAAAAABA"


@pytest.mark.parametrize("vector", RANDOM, ids=lambda each: f"{each['name']}-{each['version']}")
def test_every_structure(vector: dict[str, Any]) -> None:
    if vector["name"] in NOT_ON_THE_WIRE:
        return
    name = OURS.get(vector["name"], vector["name"])
    body = StructureBytes(name, vector["version"], 0).decode(bytes.fromhex(vector["data"]))
    assert plain(body, lambda name: name.replace("k_raft", "kraft")) == vector["body"]


def test_all_structures_have_a_vector() -> None:
    known = {(OURS.get(each["name"], each["name"]), each["version"]) for each in RANDOM}
    elsewhere = {"AbortMarker", "AssignmentInfo", "ConnectSubscription", "ConnectAssignment"}
    early_access = {"ShareGroupPartitionMetadataKey", "ShareGroupPartitionMetadataValue"}
    missing = {(each.name, each.version) for each in LAYOUTS} - known
    assert {name for name, _ in missing} == elsewhere | early_access


def value(name: str) -> bytes:
    return bytes.fromhex(FRAMED[name]["value"])


# consumer groups

OWNED = [{"topic": "a", "partitions": [0, 1]}]


@pytest.mark.parametrize("version", range(4))
def test_consumer_subscription(version: int) -> None:
    read = decode_versioned("ConsumerProtocolSubscription", value(f"subscription-{version}"))
    assert (read.name, read.version) == ("ConsumerProtocolSubscription", version)
    body: dict[str, Any] = {"topics": ["a", "b"], "user_data": b"\x07"}
    later = [{}, {"owned_partitions": OWNED}, {"generation_id": 5}, {"rack_id": "r1"}]
    for new_fields in later[: version + 1]:
        body |= new_fields
    assert read.body == body


def test_consumer_assignment() -> None:
    read = decode_versioned("ConsumerProtocolAssignment", value("assignment"))
    assert read.body == {"assigned_partitions": OWNED, "user_data": None}


@pytest.mark.parametrize("version", range(4))
def test_what_kafka_python_writes(version: int) -> None:
    # Another writer: kafka-python reads the same schemas by itself.
    part = ConsumerProtocolSubscription.TopicPartition(topic="a", partitions=[0, 1])
    subscription = ConsumerProtocolSubscription(
        topics=["a", "b"], user_data=b"x", owned_partitions=[part], version=version
    )
    read = decode_versioned("ConsumerProtocolSubscription", subscription.encode())
    assert read.version == version
    assert (read.body["topics"], read.body["user_data"]) == (["a", "b"], b"x")
    assert read.body.get("owned_partitions", OWNED) == OWNED
    part = ConsumerProtocolAssignment.TopicPartition(topic="a", partitions=[0, 1])
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[part], user_data=None, version=version
    )
    read = decode_versioned("ConsumerProtocolAssignment", assignment.encode())
    assert read.body == {"assigned_partitions": OWNED, "user_data": None}


# Streams

TASK = {"topic_group_id": 0, "partition": 1}


@pytest.mark.parametrize("version", range(1, 12))
def test_streams_subscription(version: int) -> None:
    body = decode_versioned("SubscriptionInfo", value(f"streams-subscription-{version}")).body
    assert body["version"] == version
    assert body.get("latest_supported_version") == (11 if version >= 3 else None)
    assert body["process_id"] == TOPIC
    assert body.get("user_end_point") == (b"host:80" if version >= 2 else None)
    if version < 7:
        assert (body["prev_tasks"], body["standby_tasks"]) == ([], [TASK])
    elif version < 10:
        sums = [{"partition": 1, "offset_sum": 9}]
        assert body["task_offset_sums"] == [{"topic_group_id": 0, "partition_to_offset_sum": sums}]
    else:
        assert body["task_offset_sums"] == [{**TASK, "offset_sum": 9, "named_topology": None}]
    assert body.get("unique_field") == (3 if version >= 8 else None)
    assert body.get("error_code") == (0 if version >= 9 else None)
    tags = [{"key": b"zone", "value": b"z1"}] if version == 11 else None
    assert body.get("client_tags") == tags


@pytest.mark.parametrize("version", range(1, 12))
def test_streams_assignment(version: int) -> None:
    body = decode_versioned("AssignmentInfo", value(f"streams-assignment-{version}")).body
    named = {"named_topology": []} if version >= 10 else {}
    partitions = [{"topic": "a", "partition": 1}]
    by_number = [{"topic_index": 0, "partition": 1}]
    expected: dict[str, Any] = {
        "version": version,
        "active_tasks": [{**TASK, **named}],
        "standby_tasks": [{"topic_group_id": 2, "partition": 3, **named, "partitions": partitions}],
    }
    if version >= 2:
        where = by_number if version >= 5 else partitions
        expected["partitions_by_host"] = [{"host": "h", "port": 80, "partitions": where}]
    if version >= 3:
        expected["latest_supported_version"] = 11
    if version >= 4:
        expected["error_code"] = 0
    if version >= 5:
        expected["topics"] = [{"index": 0, "topic": "a"}]
    if version >= 6:
        expected["standby_partitions_by_host"] = [
            {"host": "s", "port": 81, "partitions": by_number}
        ]
    if version >= 7:
        expected["next_rebalance_ms"] = 77
    assert body == expected


def test_streams_named_topology() -> None:
    body = decode_versioned("AssignmentInfo", value("streams-assignment-named")).body
    name = body["active_tasks"][0]["named_topology"]
    assert "".join(map(chr, name)) == "topo"
    assert body["error_code"] == 1


# Connect


def test_connect() -> None:
    worker = {"url": "http://w:8083", "config_offset": 7}
    sink = {"connector": "sink", "tasks": [-1, 0, 1]}
    source = {"connector": "source", "tasks": [-1]}
    runs: dict[str, Any] = {
        "error": 0,
        "leader": "leader",
        "leader_url": "http://l:8083",
        "config_offset": 7,
        "assignment": [sink],
    }
    assert decode_versioned("ConnectSubscription", value("connect-subscription-0")).body == worker
    assert decode_versioned("ConnectAssignment", value("connect-assignment-0")).body == runs
    runs |= {"revoked": [source], "delay": 300}
    for version in (1, 2):
        name = f"connect-subscription-new-{version}"
        read = decode_versioned("ConnectSubscription", value(name))
        assert read == DecodedStructure(
            "ConnectSubscription", version, {**worker, "allocation": None}
        )
        read = decode_versioned("ConnectAssignment", value(f"connect-assignment-{version}"))
        assert read == DecodedStructure("ConnectAssignment", version, runs)
        read = decode_versioned("ConnectAssignment", value(f"connect-assignment-empty-{version}"))
        assert (read.body["error"], read.body["assignment"], read.body["revoked"]) == (1, [], [])


# records of internal topics


def record(topic: str, name: str) -> DecodedStructure:
    vector = FRAMED[name]
    key, data = (bytes.fromhex(each) if each else None for each in (vector["key"], vector["value"]))
    return decode_record(topic, key, data)


@pytest.mark.parametrize("version", range(5))
def test_offset_commit(version: int) -> None:
    read = record("__consumer_offsets", f"offset-commit-{version}")
    assert (read.name, read.version) == ("OffsetCommit", version)
    assert read.body["key"] == {"group": "g", "topic": "a", "partition": 1}
    committed = {"offset": 42, "metadata": "m", "commit_timestamp": 1000}
    assert committed.items() <= read.body["value"].items()
    assert ("leader_epoch" in read.body["value"]) == (version >= 3)


def test_offset_commit_that_is_gone_and_one_that_is_old() -> None:
    key = {"group": "g", "topic": "a", "partition": 1}
    gone = record("__consumer_offsets", "offset-commit-gone")
    assert gone == DecodedStructure("OffsetCommit", None, {"key": key, "value": None})
    old = record("__consumer_offsets", "offset-commit-legacy")
    committed = {"offset": 42, "metadata": "m", "commit_timestamp": 1000}
    assert old == DecodedStructure("OffsetCommit", 0, {"key": key, "value": committed})


def test_group_metadata_with_its_members() -> None:
    read = record("__consumer_offsets", "group-metadata")
    assert (read.name, read.version) == ("GroupMetadata", 3)
    fields = registry.structure_layout("GroupMetadataValue", 3).fields
    unfolded = unfold_structures(fields, read.body["value"])
    assert unfolded["members"][0]["subscription"] == {
        "structure": "ConsumerProtocolSubscription",
        "version": 1,
        "topics": ["a"],
        "user_data": None,
        "owned_partitions": [],
    }
    assert unfolded["members"][0]["assignment"] == b""


def test_consumer_group_target_assignment() -> None:
    read = record("__consumer_offsets", "consumer-group-target")
    assert read.name == "ConsumerGroupTargetAssignmentMember"
    assert read.body == {
        "key": {"group_id": "g", "member_id": "m"},
        "value": {"topic_partitions": [{"topic_id": TOPIC, "partitions": [1]}]},
    }


def test_share_group_state() -> None:
    read = record("__share_group_state", "share-update")
    assert (read.name, read.version) == ("ShareUpdate", 0)
    assert read.body["key"] == {"group_id": "g", "topic_id": TOPIC, "partition": 4}
    value = {"snapshot_epoch": 1, "leader_epoch": 2, "start_offset": 3}
    assert value.items() <= read.body["value"].items()


def test_transaction_state() -> None:
    read = record("__transaction_state", "transaction-gone")
    key = {"transactional_id": "tx"}
    assert read == DecodedStructure("TransactionLog", None, {"key": key, "value": None})


def test_cluster_metadata() -> None:
    topic = "__cluster_metadata"
    read = record(topic, "topic-record")
    assert read == DecodedStructure("TopicRecord", 0, {"name": "a", "topic_id": TOPIC})
    assert record(topic, "no-op-record") == DecodedStructure("NoOpRecord", 0, {})
    read = record(topic, "partition-change-record")
    assert (read.name, read.version) == ("PartitionChangeRecord", 2)
    assert read.body == {
        "partition_id": 1,
        "topic_id": TOPIC,
        "isr": [2, 3],
        "leader": 2,
        "eligible_leader_replicas": [4],
    }


def test_remote_log_metadata() -> None:
    topic = "__remote_log_metadata"
    read = record(topic, "remote-segment")
    where = {"name": "a", "id": TOPIC, "partition": 1}
    assert (read.name, read.version) == ("RemoteLogSegmentMetadataRecord", 0)
    assert read.body["remote_log_segment_id"] == {"topic_id_partition": where, "id": OTHER}
    assert (read.body["end_offset"], read.body["segment_size_in_bytes"]) == (9, 333)
    read = record(topic, "remote-segment-update")
    assert read.name == "RemoteLogSegmentMetadataUpdateRecord"
    assert (read.body["event_timestamp_ms"], read.body["remote_log_segment_state"]) == (3000, 1)
    read = record(topic, "remote-partition-delete")
    assert read.name == "RemotePartitionDeleteMetadataRecord"
    assert (read.body["topic_id_partition"], read.body["event_timestamp_ms"]) == (where, 4000)


VOTER = {"voter_id": 1, "voter_directory_id": TOPIC}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("abort", DecodedStructure("AbortMarker", 0, {"coordinator_epoch": 6})),
        ("commit", DecodedStructure("CommitMarker", 0, {"coordinator_epoch": 6})),
        (
            "leader-change-0",
            DecodedStructure(
                "LeaderChangeMessage",
                0,
                {"version": 0, "leader_id": 1, "voters": [{"voter_id": 1}], "granting_voters": []},
            ),
        ),
        (
            "leader-change-1",
            DecodedStructure(
                "LeaderChangeMessage",
                1,
                {"version": 1, "leader_id": 1, "voters": [VOTER], "granting_voters": []},
            ),
        ),
        (
            "snapshot-header",
            DecodedStructure(
                "SnapshotHeaderRecord", 0, {"version": 0, "last_contained_log_timestamp": 5}
            ),
        ),
        ("snapshot-footer", DecodedStructure("SnapshotFooterRecord", 0, {"version": 0})),
        (
            "kraft-version",
            DecodedStructure("KRaftVersionRecord", 0, {"version": 0, "k_raft_version": 1}),
        ),
        (
            "kraft-voters",
            DecodedStructure(
                "VotersRecord",
                0,
                {
                    "version": 0,
                    "voters": [
                        {
                            **VOTER,
                            "endpoints": [],
                            "k_raft_version_feature": {
                                "min_supported_version": 0,
                                "max_supported_version": 0,
                            },
                        }
                    ],
                },
            ),
        ),
    ],
)
def test_control_records(name: str, expected: DecodedStructure) -> None:
    key = bytes.fromhex(FRAMED[name]["key"])
    assert decode_control_record(key, value(name)) == expected


def test_principal() -> None:
    read = decode_versioned("DefaultPrincipalData", value("principal"))
    assert read.body == {"type": "User", "name": "alice", "token_authenticated": True}


# what cannot be read


def test_types_and_versions_from_the_future() -> None:
    with pytest.raises(UnknownVersion, match="unknown type 99 in consumer_offsets"):
        decode_record("__consumer_offsets", b"\x00\x63\x00\x01g", b"")
    with pytest.raises(UnknownVersion, match=r"unknown version 9 of OffsetCommitValue .*: 4\)"):
        decode_record(
            "__consumer_offsets", b"\x00\x01\x00\x01g\x00\x01a\x00\x00\x00\x01", b"\0\x09"
        )
    with pytest.raises(UnknownVersion, match="unknown framing version 2"):
        decode_record("__cluster_metadata", None, b"\x02\x02\x00")
    with pytest.raises(UnknownVersion, match="unknown type 63 in cluster_metadata"):
        decode_record("__cluster_metadata", None, b"\x01\x3f\x00")
    with pytest.raises(UnknownVersion, match="unknown type 7 in control_records"):
        decode_control_record(b"\x00\x00\x00\x07", b"\x00\x00")


def test_records_that_are_not_there() -> None:
    for topic in COORDINATOR_PAGES:
        with pytest.raises(DecodeError, match="no key"):
            decode_record(topic, None, b"")
    for topic in ("__cluster_metadata", "__remote_log_metadata"):
        with pytest.raises(DecodeError, match="no value"):
            decode_record(topic, b"", None)


@settings(max_examples=200)
@given(
    st.sampled_from(sorted(RECORD_TOPICS)),
    st.binary(max_size=3).map(lambda tail: b"\0" + tail),
    st.binary(max_size=60).map(lambda tail: b"\1" + tail) | st.none(),
)
def test_any_record(topic: str, key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(DecodeError):
        decode_record(topic, key, value)


# unfolding


def unfold_message(api: int, direction: Direction, version: int, body: dict[str, Any]) -> Any:
    return unfold_structures(registry.layout(api, direction, version).fields, body)


def join(protocol_type: str, name: str, metadata: bytes) -> Any:
    body = {
        "group_id": "g",
        "protocol_type": protocol_type,
        "protocols": [{"name": name, "metadata": metadata}],
    }
    unfolded = unfold_message(11, Direction.REQUEST, 5, body)
    assert unfolded["group_id"] == "g"
    return unfolded["protocols"][0]["metadata"]


def test_unfold_join_group() -> None:
    metadata = join("consumer", "range", value("subscription-3"))
    assert (metadata["structure"], metadata["version"]) == ("ConsumerProtocolSubscription", 3)
    assert (metadata["topics"], metadata["user_data"]) == (["a", "b"], b"\x07")
    metadata = join("connect", "compatible", value("connect-subscription-1"))
    assert metadata["structure"] == "ConnectSubscription"
    assert metadata["allocation"]["structure"] == "ConnectAssignment"
    assert metadata["allocation"]["delay"] == 300


def test_unfold_streams() -> None:
    info = value("streams-subscription-11")
    metadata = bytes.fromhex("0000 00000001 0001 61") + len(info).to_bytes(4, "big") + info
    subscription = join("consumer", "stream", metadata)
    assert subscription["user_data"]["structure"] == "SubscriptionInfo"
    assert subscription["user_data"]["version"] == 11
    assert join("consumer", "range", metadata)["user_data"] == info


def test_unfold_leaves_unreadable_bytes() -> None:
    assert join("sr", "v0", b'{"version":1}') == b'{"version":1}'
    assert join("consumer", "range", b"\x00\x09") == b"\x00\x09"
    assert join("consumer", "range", b"") == b""


def test_unfold_without_a_protocol_type() -> None:
    # SyncGroup has the protocol type from version 5 on.
    for name, structure in (
        ("assignment", "ConsumerProtocolAssignment"),
        ("connect-assignment-1", "ConnectAssignment"),
    ):
        body = {"assignment": value(name)}
        unfolded = unfold_message(14, Direction.RESPONSE, 3, body)
        assert unfolded["assignment"]["structure"] == structure


def test_unfold_principal() -> None:
    body = {"request_data": b"\x00", "request_principal": value("principal")}
    unfolded = unfold_message(58, Direction.REQUEST, 0, body)
    assert unfolded["request_principal"]["name"] == "alice"
    assert unfolded["request_data"] == b"\x00"


# every layout


@pytest.mark.parametrize("which", LAYOUTS, ids=lambda each: f"{each.name}-{each.version}")
def test_cut_and_left_over(which: StructureLayout) -> None:
    data = write(which, random.Random(which.name))
    decode(which, data)
    assert explain(which, data).error is None
    for size in range(len(data)):
        with pytest.raises(DecodeError):
            decode(which, data[:size])
    with pytest.raises(DecodeError, match="left over"):
        decode(which, data + b"\0")
