"""Trees of single exchanges: every field in its place, and no secret among them."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from analysis.display.exchange_json import as_json
from analysis.display.exchange_tree import tree
from dissector.capture import open_capture
from tests.analysis.made_rows import made_exchange
from tests.captures.truth import CAPTURES
from tests.kafka_bytes import request, text


def shown(*, secrets: bool = False, **columns: Any) -> list[str]:
    """The lines of an exchange."""
    return [line.plain for line in tree(made_exchange(**columns), secrets=secrets)]


METADATA_0 = {"api_key": 3, "api": "Metadata", "api_version": 0}


def test_every_field_has_its_offset_and_value() -> None:
    lines = shown(
        **METADATA_0,
        request_frame=request(3, 0, struct.pack(">i", 2) + text("one") + text("two")),
        response_frame=bytes.fromhex("00000007 00000000 00000001 0003 0001 74 00000000"),
        error_count=1,
        error_code=3,
        error="UNKNOWN_TOPIC_OR_PARTITION",
    )
    assert lines == [
        "Metadata version 0, answered after 2.000 ms",
        "client 10.0.0.1:50000, broker 10.0.0.9:9092, connection 0, correlation id 7, "
        'client id "app"',
        "Wireshark: frame.number in {4, 5}",
        "error UNKNOWN_TOPIC_OR_PARTITION",
        "\nRequest: packet 4, 2023-11-14 22:13:20.000000000 UTC, 31 bytes",
        "       0  header.api_key         3 Metadata",
        "       2  header.api_version     0",
        "       4  header.correlation_id  7",
        '       8  header.client_id       "app"',
        "      13  topics                 [2]",
        "      17    [0]",
        '      17      name               "one"',
        "      22    [1]",
        '      22      name               "two"',
        "\nResponse: packet 5, 2023-11-14 22:13:20.002000000 UTC, 25 bytes",
        "       0  header.correlation_id  7",
        "       4  brokers                [0]",
        "       8  topics                 [1]",
        "      12    [0]",
        "      12      error_code         3 UNKNOWN_TOPIC_OR_PARTITION",
        '      14      name               "t"',
        "      17      partitions         [0]",
    ]


def test_a_list_of_apis_has_their_names() -> None:
    apis = struct.pack(">hihhhhhh", 0, 2, 1, 4, 18, 32767, 0, 1)
    lines = shown(
        api_key=18, api="ApiVersions", api_version=0,
        request_frame=request(18, 0, b""), response_frame=struct.pack(">i", 7) + apis,
    )  # fmt: skip
    keys = [line.split() for line in lines if " api_key " in line]
    assert [key[2:] for key in keys] == [["1", "Fetch"], ["32767"]]


def test_an_error_is_at_its_offset_and_the_bytes_follow() -> None:
    frame = request(3, 0, struct.pack(">i", 1) + b"\x7f\xffab")
    assert shown(**METADATA_0, request_frame=frame, secrets=True)[-5:-1] == [
        "      13  topics                 [1]",
        "      17    [0]",
        "      17  ! topics[0].name: 32767 bytes are needed and 2 are left",
        f"      17  {'7f ff 61 62':<47}  ..ab",
    ]


def test_a_cut_message_has_a_note() -> None:
    whole = request(3, 0, struct.pack(">i", 1) + text("topic"))
    lines = shown(**METADATA_0, request_frame=whole[:-2], request_bytes=len(whole) + 4)
    assert "28 bytes, 26 of them in the capture" in lines[3]
    assert any("! topics[0].name: 5 bytes are needed and 3 are left" in line for line in lines)


def test_an_unknown_version_shows_its_header_and_bytes() -> None:
    lines = shown(
        api_key=3, api="Metadata", api_version=99, status="undecoded",
        request_frame=request(3, 99, bytes(range(20))),
    )  # fmt: skip
    assert lines[0] == "Metadata version 99, undecoded after 2.000 ms"
    assert "       2  header.api_version     99" in lines
    assert any("unknown version 99 of Metadata" in line for line in lines)


UNKNOWN = {"an API": (1234, 0), "an API of today": (95, 1), "a version": (3, 99)}


@pytest.mark.parametrize(("api_key", "version"), UNKNOWN.values(), ids=UNKNOWN)
def test_bodies_of_unknown_apis_and_versions_are_redacted(api_key: int, version: int) -> None:
    asked, answered = request(api_key, version, SECRET.encode()), b"\0\0\0\7" + SECRET.encode()
    columns = {
        "api_key": api_key, "api": None, "api_version": version, "status": "undecoded",
        "request_frame": asked, "response_frame": answered,
    }  # fmt: skip
    lines = shown(**columns)
    for unread in (asked[8:], answered):  # the header of a request ends behind the correlation id
        assert any(line.endswith(f"  {len(unread)} bytes [redacted]") for line in lines)
    assert not leaks("\n".join(lines))
    assert leaks("\n".join(shown(**columns, secrets=True)))


def test_a_screen_shows_the_first_fields_of_a_large_message() -> None:
    """Metadata of a cluster with 200,000 partitions has 2.5 million fields."""
    frame = request(3, 0, struct.pack(">i", 30_000) + text("name") * 30_000)
    row = made_exchange(**METADATA_0, request_frame=frame)
    whole, screen = ([each.plain for each in tree(row, most=most)] for most in (None, 20_000))
    (at,) = (n for n, line in enumerate(screen) if "more fields" in line)
    assert screen[at].endswith("… 40,005 more fields; a pipe, or --format json, has all")
    assert screen[:at] == whole[:at]
    assert screen[at + 1 :] == whole[-len(screen[at + 1 :]) :]


def test_surplus_bytes_are_shown_as_such() -> None:
    frame = request(3, 0, struct.pack(">i", 0) + b"abc")
    assert shown(**METADATA_0, request_frame=frame)[-4:-1] == [
        "      13  topics                 [0]",
        "      17  ! 3 surplus bytes after the last field",
        f"      17  {'61 62 63':<47}  abc",
    ]


def test_surplus_bytes_may_be_secret() -> None:
    frame = request(36, 1, text("token", ">i") + SECRET.encode())
    columns = {"api_key": 36, "api": "SaslAuthenticate", "api_version": 1, "request_frame": frame}
    lines = shown(**columns)
    assert "22 surplus bytes" in lines[-3]
    assert lines[-2].endswith("22 bytes [redacted]")
    assert leaks("\n".join(shown(**columns, secrets=True)))


def test_missing_messages_have_a_note() -> None:
    lines = shown(**METADATA_0, request_frame=request(3, 0, bytes(4)), status="unanswered")
    assert lines[-1] == "\nResponse: not in the capture"
    lines = shown(
        api_key=0, api="Produce", api_version=3, status="no_reply_expected",
        request_frame=request(0, 3, bytes(12)),
    )  # fmt: skip
    assert lines[-1] == "\nResponse: none is sent"


def test_long_values_are_cut_and_show_their_length() -> None:
    body = struct.pack(">i", 1) + text("x" * 1000)
    lines = shown(**METADATA_0, request_frame=request(3, 0, body))
    (line,) = [each for each in lines if "xxx" in each]
    assert line.endswith('x"… (1,000 characters)')
    assert line.count("x") == 249


def test_text_from_the_wire_moves_no_cursor() -> None:
    lines = shown(
        **METADATA_0, client_id="\x1b[2J",
        request_frame=request(3, 0, struct.pack(">i", 1) + text("\x9b2J\u2028"), "\x1b[2J"),
    )  # fmt: skip
    assert all(line.removeprefix("\n").isprintable() for line in lines)


SECRET = "hunter2-and-more-of-it"

SECRET_REQUESTS = {
    "SaslAuthenticate": (36, 1, text(SECRET, ">i")),
    "SaslAuthenticate, cut": (36, 1, text(SECRET + "!", ">i")[:-1]),
    "SaslAuthenticate, too new": (36, 30, text(SECRET, ">i")),
    "IncrementalAlterConfigs": (
        44,
        0,
        struct.pack(">ib", 1, 4) + text("1") + struct.pack(">i", 1)
        + text("ssl.key.password") + b"\0" + text(SECRET) + b"\0",
    ),
    "Envelope": (58, 0, b"\0" + bytes([len(SECRET) + 1]) + SECRET.encode() + b"\0\1\0"),
    "Envelope, cut": (58, 0, b"\0" + bytes([len(SECRET) + 9]) + SECRET.encode()),
    "a token taken for a request": (0x61, 0x6263, SECRET.encode()),
}  # fmt: skip


@pytest.mark.parametrize(
    ("api_key", "version", "body"), SECRET_REQUESTS.values(), ids=SECRET_REQUESTS
)
def test_secrets_are_hidden_by_default(api_key: int, version: int, body: bytes) -> None:
    columns = {
        "api_key": api_key, "api": None, "api_version": version,
        "request_frame": request(api_key, version, body),
    }  # fmt: skip
    hidden = "\n".join(shown(**columns))
    assert "[redacted]" in hidden
    assert not leaks(hidden)
    assert leaks("\n".join(shown(**columns, secrets=True)))


def leaks(lines: str) -> bool:
    """Whether a part of the secret occurs, as text, in hex, or in a dump."""
    parts = [SECRET[at : at + 4] for at in range(len(SECRET) - 3)]
    forms = [form for part in parts for form in (part, part.encode().hex(), part.encode().hex(" "))]
    return any(form in lines for form in forms)


def test_a_token_without_a_header_is_a_secret() -> None:
    columns = {
        "api_key": None, "api": "SaslToken", "api_version": None, "correlation_id": None,
        "request_frame": b"\0user\0" + SECRET.encode(), "response_frame": SECRET.encode(),
    }  # fmt: skip
    hidden = "\n".join(shown(**columns))
    assert hidden.count("[redacted]") == 2
    assert not leaks(hidden)
    assert leaks("\n".join(shown(**columns, secrets=True)))


def test_a_response_whose_request_is_missing_may_hold_a_secret() -> None:
    frame = struct.pack(">i", 7) + text(SECRET)
    lines = shown(
        api_key=None, api=None, api_version=None, status="request_missing", response_frame=frame
    )
    hidden = "\n".join(lines)
    assert "[redacted]" in hidden
    assert not leaks(hidden)


@pytest.mark.parametrize(
    ("secrets", "unread"), [(False, "8 bytes [redacted]"), (True, "0000000700000000")]
)
def test_a_response_whose_request_is_missing_is_an_object(secrets: bool, unread: str) -> None:
    """Its fields are unknown."""
    columns = {"api_key": None, "api": None, "api_version": None, "status": "request_missing"}
    exchange = made_exchange(**columns, response_frame=struct.pack(">ii", 7, 0))
    row = as_json(exchange, secrets=secrets)
    assert (row["response"]["fields"], row["response"]["unread"]) == ({}, unread)


@pytest.mark.parametrize(
    ("api_key", "version", "body", "field", "expected"),
    [
        (3, 1, "ffffffff", "topics", None),
        (3, 1, "00000000", "topics", []),
        (20, 1, "00000000 00000000", "topic_names", []),
        (20, 1, "00000001 0001 61 00000000", "topic_names", ["a"]),
        (75, 0, "00 01 00000001 ff 00", "cursor", None),
    ],
    ids=["null structs", "no structs", "no strings", "strings", "a null struct"],
)
def test_null_is_not_empty(
    api_key: int, version: int, body: str, field: str, expected: object
) -> None:
    """Metadata without topics requests none; with null, all."""
    frame = request(api_key, version, bytes.fromhex(body))
    row = as_json(made_exchange(api_key=api_key, api_version=version, request_frame=frame))
    assert "error" not in row["request"]
    assert row["request"]["fields"][field] == expected


def test_the_first_records_of_a_batch_are_a_list() -> None:
    capture = open_capture(CAPTURES / "kafka-4-group-share.pcap.zst")
    (produce,) = (each for each in capture.exchanges(api="Produce") if each.request_packet == 95)
    (topic,) = as_json(produce)["request"]["fields"]["topic_data"]
    (batch,) = topic["partition_data"][0]["records"]["batches"]
    assert [each["key"] for each in batch["records"]][:2] == ["key-1", "key-2"]
    assert (len(batch["records"]), batch["…"]) == (20, "6 more")


@pytest.mark.parametrize("is_sensitive", [False, True])
def test_a_value_that_the_broker_calls_not_sensitive_is_shown(is_sensitive: bool) -> None:
    synonym = text("log.retention.ms") + text("123456") + b"\5"
    config = text("retention.ms") + text("604800000") + b"\0\1" + bytes([is_sensitive])
    config += struct.pack(">i", 1) + synonym
    result = struct.pack(">hhb", 0, -1, 2) + text("topic") + struct.pack(">i", 1) + config
    frame = struct.pack(">iii", 7, 0, 1) + result
    lines = shown(api_key=32, api="DescribeConfigs", api_version=1, response_frame=frame)
    output = "\n".join(lines)
    assert ("604800000" in output) is not is_sensitive
    assert ("123456" in output) is not is_sensitive
    assert ("[redacted]" in output) is is_sensitive


def test_the_content_of_a_field_is_below_it() -> None:
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
    columns["response_bytes"] = 4 + len(head + partition) + 500
    printed = "\n".join(shown(response_frame=frame, **columns))
    assert "[redacted]" in printed
    assert b"some".hex(" ") not in printed
    other = frame.replace(b"__cluster_metadata", b"_my-own-topic-here")
    printed = "\n".join(shown(response_frame=other, **columns))
    assert b"some".hex(" ") in printed
