"""Whole frames, byte by byte: headers, bodies, and their errors."""

from __future__ import annotations

import pytest

from dissector import (
    DecodeError,
    DissectorError,
    UnknownVersion,
    decode_records,
    decode_request,
    decode_response,
)
from dissector.protocol.message import explain_request, explain_response, is_fallback
from dissector.protocol.notation import Direction
from tests.programs import printed

HEARTBEAT_3 = bytes.fromhex(
    "000c 0003 00000007 0002 6d65"  # Heartbeat 3, correlation id 7, client id "me"
    "0005 67726f7570"  # group_id "group"
    "00000002"  # generation_id
    "0001 6d"  # member_id "m"
    "ffff"  # group_instance_id null
)
HEARTBEAT_4 = bytes.fromhex(
    "000c 0004 00000007 ffff 00"  # no client id; an empty tagged section
    "06 67726f7570"
    "00000002"
    "02 6d"
    "00"
    "01 07 02 abcd"  # a tagged section: tag 7, two bytes, unknown
)
BODY = {"group_id": "group", "generation_id": 2, "member_id": "m", "group_instance_id": None}


def test_a_plain_request() -> None:
    message = decode_request(HEARTBEAT_3)
    assert message.direction is Direction.REQUEST
    assert (message.api_key, message.api, message.api_version) == (12, "Heartbeat", 3)
    assert (message.correlation_id, message.client_id) == (7, "me")
    assert message.body == BODY


def test_a_flexible_request_with_a_tag_that_is_not_known() -> None:
    message = decode_request(HEARTBEAT_4)
    assert (message.api_version, message.client_id) == (4, None)
    assert message.body == BODY


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_any_buffer(buffer: type) -> None:
    assert decode_request(buffer(HEARTBEAT_3)).body == BODY
    assert decode_response(buffer(bytes.fromhex("00000007 0000")), 12, 0).body == {"error_code": 0}


def test_arguments_of_other_types() -> None:
    with pytest.raises(DissectorError, match=r"^frame must be bytes, not 7$"):
        decode_request(7)
    with pytest.raises(DissectorError, match=r"^frame must be bytes, not None$"):
        decode_response(None, 12, 0)
    with pytest.raises(DissectorError, match=r"^data must be bytes, not None$"):
        decode_records(None)
    with pytest.raises(DissectorError, match=r"^api_key must be an integer from -32768 to 32767"):
        decode_response(bytes(6), "12", 0)
    with pytest.raises(DissectorError, match=r"^api_version must be an integer .*, not 0\.0$"):
        decode_response(bytes(6), 12, 0.0)


def test_the_oldest_header_has_no_client_id() -> None:
    message = decode_request(bytes.fromhex("0007 0000 00000009 00000001"))
    assert (message.api, message.correlation_id) == ("ControlledShutdown", 9)
    assert (message.client_id, message.body) == (None, {"broker_id": 1})


def test_responses_with_and_without_a_tagged_section() -> None:
    plain = decode_response(bytes.fromhex("00000007 00000000 001b"), 12, 3)
    flexible = decode_response(bytes.fromhex("00000007 00 00000000 001b 00"), 12, 4)
    assert plain.body == flexible.body == {"throttle_time_ms": 0, "error_code": 27}
    assert (plain.direction, plain.client_id) == (Direction.RESPONSE, None)


API_VERSIONS_0 = bytes.fromhex("00000001 0023 00000001 0012 0000 0004")


@pytest.mark.parametrize("asked", [0, 3, 4, 99])
def test_a_broker_that_does_not_know_the_version_answers_in_version_0(asked: int) -> None:
    message = decode_response(API_VERSIONS_0, 18, asked)
    assert message.api_version == 0
    assert message.body == {
        "error_code": 35,
        "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 4}],
    }
    assert explain_response(API_VERSIONS_0, 18, asked).error is None


def test_error_35_in_the_requested_version() -> None:
    frame = bytes.fromhex("00000001 0023 02 0012 0000 0004 00 00000000 00")
    assert not is_fallback(frame)
    message = decode_response(frame, 18, 3)
    assert message.api_version == 3
    assert message.body["throttle_time_ms"] == 0


def test_a_version_from_the_future() -> None:
    with pytest.raises(UnknownVersion, match=r"unknown version 77 of Heartbeat .*: 4\)") as caught:
        decode_request(bytes.fromhex("000c 004d 00000007 ffff 00"))
    assert (caught.value.offset, caught.value.path) == (2, "header.api_version")
    explanation = explain_request(bytes.fromhex("000c 004d 00000007 ffff 00"))
    assert isinstance(explanation.error, UnknownVersion)
    assert explanation.events[2].value == 7


def test_text_that_is_not_utf_8_keeps_its_bytes() -> None:
    frame = HEARTBEAT_3.replace(b"group", b"gr\xffup")
    assert decode_request(frame).body["group_id"] == r"gr\xffup"


@pytest.mark.parametrize(
    ("frame", "offset", "path", "detail"),
    [
        ("", 0, "header.api_key", "2 bytes are needed and 0 are left"),
        ("000c 00", 2, "header.api_version", "2 bytes are needed and 1 are left"),
        ("000c 0003 00000007 0005 6d65", 8, "header.client_id", "5 bytes are needed"),
        ("000c 0003 00000007 fffe", 8, "header.client_id", "a length of -2"),
        ("000c 0003 00000007 ffff ffff", 10, "group_id", "null in a field that is not nullable"),
        ("000c 0004 00000007 ffff 00 00", 11, "group_id", "null in a field that is not nullable"),
        ("000c 0004 00000007 ffff 00 808080808001", 11, "group_id", "more than five bytes"),
        ("000c 0004 00000007 ffff 00 80", 11, "group_id", "end inside a varint"),
        ("000c 0004 00000007 ffff 01 0003 0000", 11, "header._tagged_fields", "tag 0 announces 3"),
    ],
)
def test_an_error_has_its_reason_and_place(frame: str, offset: int, path: str, detail: str) -> None:
    with pytest.raises(DecodeError, match=detail) as caught:
        decode_request(bytes.fromhex(frame))
    assert (caught.value.offset, caught.value.path) == (offset, path)


@pytest.mark.parametrize("surplus", [b"", b"abc", bytes(70_000)])
def test_surplus_bytes_of_a_request(surplus: bytes) -> None:
    message = decode_request(HEARTBEAT_3 + surplus)
    assert (message.body, message.surplus) == (BODY, surplus)
    explanation = explain_request(HEARTBEAT_3 + surplus)
    assert explanation.error is None
    assert (explanation.end, explanation.surplus) == (len(HEARTBEAT_3), len(surplus))


def test_surplus_bytes_of_a_response() -> None:
    frame = bytes.fromhex("00000007 0019")
    message = decode_response(frame + bytes(4), 12, 0)
    assert (message.body, message.surplus) == ({"error_code": 25}, bytes(4))
    with pytest.raises(DecodeError, match="5 bytes are left over") as caught:
        decode_response(frame + bytes(5), 12, 0)
    assert (caught.value.offset, caught.value.path) == (6, "error_code")
    assert str(explain_response(frame + bytes(5), 12, 0).error) == str(caught.value)


def test_a_response_of_another_form_is_not_read_with_surplus() -> None:
    # From librdkafka's mock cluster, to ApiVersions v3. As v3, it throttles for 20 minutes.
    frame = bytes.fromhex("00000001 0023 01 0012 0000 0002 00000000")
    with pytest.raises(DecodeError, match="5 bytes are left over"):
        decode_response(frame, 18, 3)


def test_metadata_of_librdkafka_with_three_surplus_bytes() -> None:
    # What follows the empty tagged section of the header: no topics, no booleans, no tags; 3 bytes.
    frame = bytes.fromhex("0003 000d 00000003 0007 6d6f6e69746f72 00 00 00 00 00 010000")
    message = decode_request(frame)
    assert message.client_id == "monitor"
    assert (message.body["topics"], message.surplus) == (None, b"\1\0\0")


def test_a_count_that_the_bytes_cannot_hold() -> None:
    frame = bytes.fromhex("0003 0001 00000001 ffff 7fffffff 0001 61")
    with pytest.raises(
        DecodeError, match="2147483647 elements are announced and 3 bytes"
    ) as caught:
        decode_request(frame)
    assert (caught.value.offset, caught.value.path) == (10, "topics")


def test_the_path_of_a_nested_field() -> None:
    frame = bytes.fromhex("00000001 00000002 0001 61 00000000 0001 62 00000002 00000005 0000 00")
    with pytest.raises(DecodeError) as caught:
        decode_response(frame, 8, 0)  # OffsetCommit
    assert caught.value.path == "topics[1].partitions[1].partition_index"


OFFSETS = "0000000000000000" * 3
PREFERRED = "ffffffff"


def fetch_response(tagged: str) -> bytes:
    """Fetch 12: a topic, a partition with no aborted transactions and no records, and its tags."""
    head = "00000001 00 00000000 0000 00000000 02 02 61 02 00000000 0000"
    return bytes.fromhex(head + OFFSETS + "01" + PREFERRED + "00" + tagged + "00 00")


def test_a_tagged_struct() -> None:
    frame = fetch_response("01 01 09 00000005 00000006 00")
    partition = decode_response(frame, 1, 12).body["responses"][0]["partitions"][0]
    assert partition["current_leader"] == {"leader_id": 5, "leader_epoch": 6}
    assert "diverging_epoch" not in partition
    event = next(
        each
        for each in explain_response(frame, 1, 12).events
        if each.path == "responses[0].partitions[0].current_leader"
    )
    assert (event.type, event.length, event.value) == ("{}", 11, 2)


@pytest.mark.parametrize(
    ("tagged", "detail"),
    [
        ("01 01 0a 00000005 00000006 00", "tag 1 announces 10 bytes and takes 9"),
        ("01 01 08 00000005 00000006 00", "tag 1 announces 8 bytes and takes 9"),
    ],
)
def test_a_tagged_field_fills_its_size(tagged: str, detail: str) -> None:
    with pytest.raises(DecodeError, match=detail) as caught:
        decode_response(fetch_response(tagged), 1, 12)
    assert caught.value.path == "responses[0].partitions[0].current_leader"


def test_tags_twice_and_out_of_order() -> None:
    once = "01 09 00000005 00000006 00"
    again = "01 09 00000007 00000008 00"
    earlier = "00 0d 00000001 0000000000000002 00"
    frame = fetch_response(f"03 {once} {again} {earlier}")
    partition = decode_response(frame, 1, 12).body["responses"][0]["partitions"][0]
    assert partition["current_leader"] == {"leader_id": 7, "leader_epoch": 8}
    assert partition["diverging_epoch"] == {"epoch": 1, "end_offset": 2}


def test_events() -> None:
    explanation = explain_request(HEARTBEAT_4)
    assert explanation.error is None
    actual = [(e.path, e.type, e.value, e.offset, e.length) for e in explanation.events]
    assert actual == [
        ("header.api_key", "int16", 12, 0, 2),
        ("header.api_version", "int16", 4, 2, 2),
        ("header.correlation_id", "int32", 7, 4, 4),
        ("header.client_id", "string", None, 8, 2),
        ("header._tagged_fields", "tags", 0, 10, 1),
        ("group_id", "string", "group", 11, 6),
        ("generation_id", "int32", 2, 17, 4),
        ("member_id", "string", "m", 21, 2),
        ("group_instance_id", "string", None, 23, 1),
        ("_tagged_fields", "tags", 1, 24, 1),
        ("tag 7", "bytes", b"\xab\xcd", 25, 4),
    ]  # fmt: skip
    assert explanation.events[5].roles == ("group_id",)


def test_events_of_arrays_and_structs() -> None:
    frame = bytes.fromhex("00000001 00000001 0001 61 00000002 00000005 0000 00000006 0003")
    events = explain_response(frame, 8, 0).events[1:]
    assert [(each.path, each.type, each.value, each.depth, each.length) for each in events] == [
        ("topics", "[]", 1, 0, 23),
        ("topics[0]", "{}", 2, 1, 19),
        ("topics[0].name", "string", "a", 2, 3),
        ("topics[0].partitions", "[]", 2, 2, 16),
        ("topics[0].partitions[0]", "{}", 2, 3, 6),
        ("topics[0].partitions[0].partition_index", "int32", 5, 4, 4),
        ("topics[0].partitions[0].error_code", "int16", 0, 4, 2),
        ("topics[0].partitions[1]", "{}", 2, 3, 6),
        ("topics[0].partitions[1].partition_index", "int32", 6, 4, 4),
        ("topics[0].partitions[1].error_code", "int16", 3, 4, 2),
    ]
    assert (events[0].name, events[1].name, events[2].name) == ("topics", "[0]", "name")


def test_fields_before_the_error_stay() -> None:
    frame = bytes.fromhex("00000001 00000001 0001 61 00000002 00000005 0000 00000006")
    explanation = explain_response(frame, 8, 0)
    assert explanation.error is not None
    assert explanation.events[-1].value == 6
    assert explanation.events[1].length == len(frame) - 4 == explanation.end - 4


def test_a_null_struct_and_a_null_array() -> None:
    frame = bytes.fromhex("00000001 00 00000000 01 ff 00")  # DescribeTopicPartitions, no cursor
    message = decode_response(frame, 75, 0)
    assert message.body == {"throttle_time_ms": 0, "topics": [], "next_cursor": None}
    assert explain_response(frame, 75, 0).events[-2].value is None
    message = decode_request(bytes.fromhex("0003 0001 00000001 ffff ffffffff"))
    assert message.body == {"topics": None}
    with pytest.raises(DecodeError, match="invalid nullable-struct marker 2: expected 1"):
        decode_response(bytes.fromhex("00000001 00 00000000 01 02 00"), 75, 0)


def test_reading_a_message_needs_no_numpy() -> None:
    code = "import sys, dissector.protocol.message; print('numpy' in sys.modules)"
    assert printed(code) == "False\n"
