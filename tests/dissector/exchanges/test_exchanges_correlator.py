"""Dialogues: messages of a connection, and the exchanges expected from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dissector.exchanges.correlator import NO_REPLY_WAIT, Correlator
from dissector.exchanges.repeated_ids import RESPONSE_WAIT
from dissector.exchanges.topic_names import TopicNames
from dissector.packets.block import Int64
from dissector.streams.connections.table import LAST_TIME
from dissector.tables import exchanges
from dissector.tables.finalizer import with_topic_names
from dissector.tables.problems import decode_problems
from tests.dissector.exchanges.exchange_frames import (
    MS,
    SentFrame,
    Stream,
    block,
    request,
    response,
    sent_request,
    sent_response,
)
from tests.kafka_bytes import text

HEARTBEAT, PRODUCE, FETCH, API_VERSIONS, SASL_HANDSHAKE, METADATA = 12, 0, 1, 18, 17, 3


class FixedEndpoints:
    def columns(self, connection: Int64) -> dict[str, pa.Array]:
        ip, port = pa.array(["10.0.0.1"] * len(connection)), pa.array([9092] * len(connection))
        return {"client_ip": ip, "client_port": port, "broker_ip": ip, "broker_port": port}


class CorrelatorTest:
    """Feeds a correlator block by block, and returns rows of `exchanges`."""

    def __init__(self) -> None:
        self.names = TopicNames()
        self.correlator = Correlator(self.names)
        self.problems: list[Any] = []
        self.streams: dict[tuple[int, bool], Stream] = {}
        self.connections = 1

    def feed(
        self, *sent: SentFrame, now: int = 0, ended: bool = False, held_since: int = LAST_TIME,
        last: bool = False,
    ) -> list[Any]:  # fmt: skip
        """The exchanges that ended in this block. `held_since`: see `FrameBatch`."""
        now = max([now * MS, *(each.ms * MS for each in sent)])
        count = max([self.connections, *(each.connection + 1 for each in sent)])
        self.connections = count
        result = self.correlator.feed(
            block(*sent, streams=self.streams), now, np.full(count, ended),
            np.full(count, held_since), last=last,
        )  # fmt: skip
        self.names.learn(result.response.fields)
        self.problems += decode_problems(result, ["file"])
        rows = exchanges.exchanges(result, self.names, FixedEndpoints(), ["file"])
        return with_topic_names(rows, self.names).to_pylist()


def heartbeat(correlation: int, group: str = "g") -> bytes:
    return request(HEARTBEAT, 0, correlation, text(group) + b"\0\0\0\1" + text("member"))


def produce(correlation: int, acks: int) -> bytes:
    body = acks.to_bytes(2, "big", signed=True) + b"\0\0\1\0" + b"\0\0\0\0"
    return request(PRODUCE, 0, correlation, body)


def test_an_exchange() -> None:
    (row,) = CorrelatorTest().feed(
        sent_request(heartbeat(7), 10), sent_response(response(7, b"\0\x1b"), 14)
    )
    assert row["status"] == "answered"
    assert (row["api"], row["api_key"], row["api_version"]) == ("Heartbeat", 12, 0)
    assert (row["correlation_id"], row["client_id"]) == (7, "me")
    assert (row["group_id"], row["member_id"]) == ("g", "member")
    assert (row["error_code"], row["error"], row["error_count"]) == (27, "REBALANCE_IN_PROGRESS", 1)
    assert row["latency_ms"] == 4.0
    assert row["request_bytes"] == 4 + len(heartbeat(7))
    assert row["response_bytes"] == 4 + 6
    assert row["throttle_time_ms"] is None  # from version 1 on


def test_the_response_is_in_a_later_block() -> None:
    correlator = CorrelatorTest()
    assert correlator.feed(sent_request(heartbeat(1), 1)) == []
    (row,) = correlator.feed(sent_response(response(1, b"\0\0"), 2))
    assert (row["status"], row["group_id"], row["error"]) == ("answered", "g", "NONE")


def test_pipelined_requests_on_two_connections() -> None:
    correlator = CorrelatorTest()
    rows = correlator.feed(
        sent_request(heartbeat(1, "a"), 1), sent_request(heartbeat(2, "b"), 2),
        sent_request(heartbeat(1, "c"), 3, 1),
        sent_response(response(1, b"\0\0"), 4), sent_response(response(1, b"\0\0"), 5, 1),
        sent_response(response(2, b"\0\0"), 6),
    )  # fmt: skip
    assert [(row["group_id"], row["connection_id"], row["in_flight"]) for row in rows] == [
        ("a", 0, 1), ("b", 0, 2), ("c", 1, 1),
    ]  # fmt: skip


def test_acks_0_needs_no_response() -> None:
    correlator = CorrelatorTest()
    (answered,) = correlator.feed(
        sent_request(produce(1, acks=0), 1), sent_request(produce(2, acks=1), 2),
        sent_response(response(2, b"\0\0\0\0"), 3),
    )  # fmt: skip
    (silent,) = correlator.feed(now=NO_REPLY_WAIT // MS + 10)
    assert (silent["status"], silent["acks"]) == ("no_reply_expected", 0)
    assert (answered["status"], answered["acks"], answered["in_flight"]) == ("answered", 1, 1)


def test_acks_0_with_a_response() -> None:
    correlator = CorrelatorTest()
    assert correlator.feed(sent_request(produce(1, acks=0), 1)) == []
    (row,) = correlator.feed(sent_response(response(1, b"\0\0\0\0"), 2))
    assert (row["status"], row["acks"], row["latency_ms"]) == ("answered", 0, 1.0)


def test_an_unanswered_request_ends_with_its_connection() -> None:
    correlator = CorrelatorTest()
    assert correlator.feed(sent_request(heartbeat(1), 1)) == []
    assert correlator.feed(now=RESPONSE_WAIT // MS + 100) == []
    (row,) = correlator.feed(now=RESPONSE_WAIT // MS + 100, ended=True)
    assert (row["status"], row["latency_ms"], row["response_bytes"]) == ("unanswered", None, None)


def test_an_unanswered_request_ends_with_the_capture() -> None:
    correlator = CorrelatorTest()
    correlator.feed(sent_request(heartbeat(1), 1))
    (row,) = correlator.feed(last=True)
    assert row["status"] == "unanswered"


def test_a_response_without_request() -> None:
    correlator = CorrelatorTest()
    assert correlator.feed(sent_response(response(9, b"\0\0"), 1)) == []
    now = RESPONSE_WAIT // MS + 10
    assert correlator.feed(now=now, held_since=1 * MS) == []  # the request may be in these bytes
    (row,) = correlator.feed(now=now, held_since=2 * MS)
    assert (row["status"], row["correlation_id"], row["api"]) == ("request_missing", 9, None)
    assert row["response_bytes"] == 10


def test_a_request_after_its_response() -> None:
    correlator = CorrelatorTest()
    assert correlator.feed(sent_response(response(9, b"\0\x10"), 2)) == []
    (row,) = correlator.feed(sent_request(heartbeat(9), 1))
    assert (row["status"], row["error_code"]) == ("answered", 16)


def test_an_unknown_version() -> None:
    correlator = CorrelatorTest()
    (row,) = correlator.feed(
        sent_request(request(HEARTBEAT, 99, 5, b"whatever"), 1),
        sent_response(response(5, b"\0\0\0"), 2),
    )
    assert (row["status"], row["api"], row["api_version"]) == ("undecoded", "Heartbeat", 99)
    assert (row["client_id"], row["correlation_id"], row["error_code"]) == ("me", 5, None)
    assert {problem.kind for problem in correlator.problems} == {"unknown_version"}


def test_a_request_that_cannot_be_decoded_is_still_unanswered() -> None:
    correlator = CorrelatorTest()
    correlator.feed(sent_request(request(HEARTBEAT, 99, 5, b"whatever"), 1))
    (row,) = correlator.feed(last=True)
    assert (row["status"], row["api"], row["api_version"]) == ("unanswered", "Heartbeat", 99)
    assert {problem.kind for problem in correlator.problems} == {"unknown_version"}


def test_an_unknown_api() -> None:
    correlator = CorrelatorTest()
    (row,) = correlator.feed(
        sent_request(request(1234, 0, 5, b"x"), 1), sent_response(response(5, b"y"), 2)
    )
    assert (row["status"], row["api"], row["api_key"]) == ("undecoded", None, 1234)
    assert row["client_id"] == "me"


def test_a_token_without_its_handshake_has_no_client_id() -> None:
    # Where a client id's length would stand, this one has 0x0070: its password's first letter.
    token = b"\0service\0p" + b"assword" * 20
    (row,) = CorrelatorTest().feed(sent_request(token, 1), last=True)
    assert (row["status"], row["api_key"], row["client_id"]) == ("unanswered", 0x73, None)


def test_a_request_with_surplus_bytes_is_decoded_and_reported() -> None:
    correlator = CorrelatorTest()
    requests = [sent_request(heartbeat(each) + bytes(each), each) for each in (0, 1, 3, 500)]
    responses = [sent_response(response(each, b"\0\x19"), 600 + each) for each in (0, 1, 3, 500)]
    exchanges = correlator.feed(*requests, *responses)
    assert [row["status"] for row in exchanges] == ["answered"] * 4
    assert {(row["client_id"], row["group_id"], row["member_id"]) for row in exchanges} == {
        ("me", "g", "member")
    }
    assert {row["error"] for row in exchanges} == {"UNKNOWN_MEMBER_ID"}
    assert [(each.kind, each.stage, each.bytes, each.offset) for each in correlator.problems] == [
        ("surplus_bytes", "protocol", size, len(heartbeat(size))) for size in (1, 3, 500)
    ]
    assert correlator.problems[0].detail == "Heartbeat v0 request: 1 byte follows the last field"


def test_a_response_may_have_a_few_surplus_bytes() -> None:
    correlator = CorrelatorTest()
    exchanges = correlator.feed(
        sent_request(heartbeat(1), 1), sent_response(response(1, b"\0\x19" + bytes(4)), 2),
        sent_request(heartbeat(2), 3), sent_response(response(2, b"\0\x19" + bytes(5)), 4),
    )  # fmt: skip
    assert [(row["status"], row["error_code"]) for row in exchanges] == [
        ("answered", 25), ("undecoded", None),
    ]  # fmt: skip
    assert [(each.kind, each.bytes) for each in correlator.problems] == [
        ("surplus_bytes", 4), ("malformed", 15),
    ]  # fmt: skip
    assert "5 bytes are left over" in correlator.problems[1].detail


def test_missing_bytes_name_field_and_offset() -> None:
    correlator = CorrelatorTest()
    request_frame = sent_request(heartbeat(2)[:-3], 2)
    (row,) = correlator.feed(request_frame, sent_response(response(2, b"\0\0"), 4))
    assert row["status"] == "undecoded"
    (missing,) = correlator.problems
    assert (missing.kind, "member_id" in missing.detail) == ("malformed", True)


def test_a_message_truncated_in_its_surplus_bytes() -> None:
    sent = sent_request(heartbeat(1) + bytes(9), 1)
    cut = SentFrame(sent.connection, True, sent.frame, 1, readable=len(sent.frame) - 4)
    correlator = CorrelatorTest()
    (row,) = correlator.feed(cut, sent_response(response(1, b"\0\0"), 2))
    assert (row["status"], row["group_id"]) == ("answered", "g")
    assert [(each.kind, each.bytes) for each in correlator.problems] == [("surplus_bytes", 9)]


def test_a_truncated_message_is_not_undecoded() -> None:
    sent = sent_request(heartbeat(1), 1)
    (row,) = CorrelatorTest().feed(
        SentFrame(sent.connection, True, sent.frame, 1, readable=14),
        sent_response(response(1, b"\0\0"), 2),
    )
    assert (row["status"], row["api"], row["client_id"]) == ("answered", "Heartbeat", "me")
    assert row["request_bytes"] == 4 + len(sent.frame)


def test_api_versions_with_a_response_in_version_0() -> None:
    # KIP-511: error 35, one API: key 18, versions 0 to 3.
    body = b"\0\x23" + b"\0\0\0\1" + b"\0\x12\0\0\0\3"
    request_frame = request(API_VERSIONS, 4, 1, b"\2a\2b\0", flexible=True)
    (row,) = CorrelatorTest().feed(
        sent_request(request_frame, 1), sent_response(response(1, body), 2)
    )
    assert (row["status"], row["error"]) == ("answered", "UNSUPPORTED_VERSION")


def test_api_versions_of_an_unknown_version_with_a_response_in_version_0() -> None:
    body = b"\0\x23" + b"\0\0\0\1" + b"\0\x12\0\0\0\4"
    correlator = CorrelatorTest()
    (row,) = correlator.feed(
        sent_request(request(API_VERSIONS, 99, 1, b"\2a\2b\0", flexible=True), 1),
        sent_response(response(1, body), 2),
    )
    assert (row["status"], row["error"]) == ("undecoded", "UNSUPPORTED_VERSION")
    assert [each.kind for each in correlator.problems] == ["unknown_version"]


def test_sasl_tokens_without_headers() -> None:
    handshake = request(SASL_HANDSHAKE, 0, 1, text("PLAIN"))
    rows = CorrelatorTest().feed(
        sent_request(handshake, 1), sent_request(b"\0alice\0secret", 3),
        sent_request(heartbeat(2), 5),
        sent_response(response(1, b"\0\0" + b"\0\0\0\1" + text("PLAIN")), 2), sent_response(b"", 4),
        sent_response(response(2, b"\0\0"), 6),
    )  # fmt: skip
    assert [(row["api"], row["status"], row["latency_ms"]) for row in rows] == [
        ("SaslHandshake", "answered", 1.0),
        ("SaslToken", "answered", 1.0),
        ("Heartbeat", "answered", 1.0),
    ]
    token = rows[1]
    assert (token["api_key"], token["correlation_id"], token["client_id"]) == (None, None, None)
    assert (token["request_bytes"], token["response_bytes"]) == (4 + 13, 4)


def test_sasl_tokens_in_several_blocks() -> None:
    correlator = CorrelatorTest()
    correlator.feed(sent_request(request(SASL_HANDSHAKE, 0, 0, text("X")), 1))
    correlator.feed(sent_response(response(0, b"\0\0\0\0\0\0"), 2), sent_request(b"n,,n=a,r=b", 3))
    (first,) = correlator.feed(
        sent_response(b"r=bc,s=ZA==,i=4096", 4), sent_request(b"c=biws,r=bc,p=ZA==", 5)
    )
    (second,) = correlator.feed(sent_response(b"v=ZA==", 6), sent_request(heartbeat(0), 7))
    (third,) = correlator.feed(sent_response(response(0, b"\0\0"), 8))
    assert [row["api"] for row in (first, second, third)] == ["SaslToken", "SaslToken", "Heartbeat"]
    assert [row["latency_ms"] for row in (first, second, third)] == [1.0, 1.0, 1.0]


def test_gssapi_tokens_without_a_handshake() -> None:
    first = bytes.fromhex("601506092a864886f712010202") + bytes(10)
    correlator = CorrelatorTest()
    (row,) = correlator.feed(
        sent_request(first, 1), sent_response(first, 2), sent_request(heartbeat(0), 3)
    )
    assert (row["api"], row["status"], row["client_id"]) == ("SaslToken", "answered", None)
    (row,) = correlator.feed(sent_response(response(0, b"\0\0"), 4))
    assert (row["api"], row["status"]) == ("Heartbeat", "answered")
    assert correlator.problems == []


def test_a_last_gssapi_token_without_a_response() -> None:
    """Brokers do not respond to the last token of GSSAPI. Java clients number their handshake and
    their requests behind it from 0 on, each."""
    correlator = CorrelatorTest()
    rows = correlator.feed(
        sent_request(request(SASL_HANDSHAKE, 0, 0, text("GSSAPI")), 1),
        sent_response(response(0, b"\0\0\0\0\0\0"), 2),
        sent_request(b"\x60\x10" + bytes(16), 3), sent_response(b"\x60\x10" + bytes(16), 4),
        sent_request(b"\x05\x04" + bytes(30), 5),
        sent_request(heartbeat(0), 6), sent_response(response(0, b"\0\0"), 7),
        last=True,
    )  # fmt: skip
    assert [(row["api"], row["status"]) for row in rows] == [
        ("SaslHandshake", "answered"), ("SaslToken", "answered"),
        ("SaslToken", "no_reply_expected"), ("Heartbeat", "answered"),
    ]  # fmt: skip


def test_a_last_token_is_not_in_flight() -> None:
    """The requests behind it are in flight without it, in one block and in two."""
    token = b"\x05\x04" + bytes(30)
    sent = [
        sent_request(request(SASL_HANDSHAKE, 0, 0, text("GSSAPI")), 1),
        sent_response(response(0, b"\0\0\0\0\0\0"), 2),
        sent_request(token, 3), sent_response(token, 4), sent_request(token, 5),
        sent_request(heartbeat(0), 6), sent_request(heartbeat(1), 7),
        sent_response(response(0, b"\0\0"), 8), sent_response(response(1, b"\0\0"), 9),
        sent_request(heartbeat(2), 10), sent_response(response(2, b"\0\0"), 11),
    ]  # fmt: skip
    for border in range(len(sent)):
        correlator = CorrelatorTest()
        rows = [*correlator.feed(*sent[:border]), *correlator.feed(*sent[border:], last=True)]
        rows.sort(key=lambda row: row["request_time"])
        assert [row["in_flight"] for row in rows] == [1, 1, 1, 1, 2, 1]


@pytest.mark.parametrize("back", [3, 1000])
def test_a_clock_that_is_set_back_does_not_count_requests_in_flight(back: int) -> None:
    """Each request is answered before the next one, but for the last two; wherever a block ends."""
    times = [1, 2, 4, 5, *(each - back for each in (10, 11, 13, 14, 15, 16))]
    parts = [
        sent_request(heartbeat(0), 0), sent_response(response(0, b"\0\0"), 0),
        sent_request(heartbeat(1), 0), sent_response(response(1, b"\0\0"), 0),
        sent_request(heartbeat(2), 0), sent_response(response(2, b"\0\0"), 0),
        sent_request(heartbeat(3), 0), sent_request(heartbeat(4), 0),
        sent_response(response(3, b"\0\0"), 0), sent_response(response(4, b"\0\0"), 0),
    ]  # fmt: skip
    sent = [replace(each, ms=2000 + time) for each, time in zip(parts, times, strict=True)]
    actual = set()
    for border in range(len(sent) + 1):
        correlator = CorrelatorTest()
        rows = [*correlator.feed(*sent[:border]), *correlator.feed(*sent[border:], last=True)]
        rows.sort(key=lambda row: row["correlation_id"])
        actual.add(tuple(row["in_flight"] for row in rows))
    assert actual == {(1, 1, 1, 1, 2) if back == 3 else (1, 1, 1, 1, 1)}


def test_requests_in_flight_before_a_clock_is_set_back() -> None:
    """The clock is set back before the last response; wherever a block ends."""
    sent = [
        sent_request(heartbeat(0), 2001), sent_request(heartbeat(1), 2002),
        sent_response(response(0, b"\0\0"), 2003), sent_response(response(1, b"\0\0"), 2004),
        sent_request(heartbeat(2), 2005), sent_response(response(2, b"\0\0"), 1000),
    ]  # fmt: skip
    for border in range(len(sent) + 1):
        correlator = CorrelatorTest()
        rows = [*correlator.feed(*sent[:border]), *correlator.feed(*sent[border:], last=True)]
        rows.sort(key=lambda row: row["correlation_id"])
        assert [row["in_flight"] for row in rows] == [1, 2, 1]


def test_correlation_ids_that_wrap() -> None:
    rows = CorrelatorTest().feed(
        sent_request(heartbeat(2**31 - 1), 1), sent_request(heartbeat(-(2**31)), 2),
        sent_response(response(2**31 - 1, b"\0\0"), 3),
        sent_response(response(-(2**31), b"\0\0"), 4),
    )  # fmt: skip
    assert [(row["correlation_id"], row["status"]) for row in rows] == [
        (2**31 - 1, "answered"), (-(2**31), "answered"),
    ]  # fmt: skip


def test_a_frame_without_a_whole_header() -> None:
    correlator = CorrelatorTest()
    (row,) = correlator.feed(sent_request(b"\0\x0c\0", 1), last=True)
    assert row["status"] in ("undecoded", "unanswered")
    assert correlator.problems


@pytest.mark.parametrize(
    ("captured", "columns", "name"),
    [
        (0, (None, None, None, None), "request"),
        (2, (12, "Heartbeat", None, None), "request"),
        (7, (12, "Heartbeat", 0, None), "Heartbeat v0 request"),
        (8, (12, "Heartbeat", 0, 7), None),
    ],
)
def test_the_fields_of_a_header_that_are_not_captured_are_null(
    captured: int, columns: tuple[int | str | None, ...], name: str | None
) -> None:
    """A request without captured correlation id is not that of a response with the id 0."""
    correlator = CorrelatorTest()
    cut = SentFrame(0, True, heartbeat(7), 1, readable=captured)
    rows = correlator.feed(cut, sent_response(response(0, b"\0\0"), 2), last=True)
    names = ("api_key", "api", "api_version", "correlation_id")
    assert [(row["status"], *(row[each] for each in names)) for row in rows] == [
        ("unanswered", *columns), ("request_missing", None, None, None, 0),
    ]  # fmt: skip
    assert [(each.kind, each.detail.partition(":")[0]) for each in correlator.problems] == [
        ("cut_header", name)
    ][: captured < 8]


def test_a_response_without_captured_correlation_id() -> None:
    cut = SentFrame(0, False, response(7, b"\0\0"), 2, readable=3)
    rows = CorrelatorTest().feed(sent_request(heartbeat(7), 1), cut, last=True)
    assert [(row["status"], row["correlation_id"]) for row in rows] == [
        ("unanswered", 7), ("request_missing", None),
    ]  # fmt: skip


def test_a_frame_too_short_for_a_correlation_id_matches_no_request() -> None:
    rows = CorrelatorTest().feed(
        sent_request(heartbeat(0), 1), sent_response(b"", 2), sent_response(b"\0\0", 2),
        sent_response(response(0, b"\0\0"), 3), last=True,
    )  # fmt: skip
    assert [(row["status"], row["response_bytes"]) for row in rows] == [
        ("answered", 10), ("request_missing", 4), ("request_missing", 6),
    ]  # fmt: skip


ORDERS = bytes(range(1, 17))


def fetch_by_id(correlation: int) -> bytes:
    body = b"\0\0\1\xf4" + b"\0\0\0\1" + b"\0\0\4\0" + b"\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff"
    partition = b"\0\0\0\3" + b"\xff" * 4 + b"\0" * 8 + b"\xff" * 4 + b"\0" * 8 + b"\0\0\4\0\0"
    topics = b"\2" + ORDERS + b"\2" + partition + b"\0"
    return request(FETCH, 13, correlation, b"\xff" * 4 + body + topics + b"\1\1\0", flexible=True)


def metadata_v12() -> bytes:
    topic = b"\0\0" + b"\x07orders" + ORDERS + b"\0" + b"\1" + b"\x80\0\0\0" + b"\0"
    return b"\0" + b"\0\0\0\0" + b"\1" + b"\2c" + b"\0\0\0\1" + b"\2" + topic + b"\0"


def test_a_topic_named_by_id() -> None:
    correlator = CorrelatorTest()
    request_frame = request(METADATA, 12, 1, b"\0\0\0\0", flexible=True)
    nothing = b"\0" + b"\0\0\0\0" + b"\0\0" + b"\0\0\0\0" + b"\1" + b"\0"
    early, _, late = correlator.feed(
        sent_request(fetch_by_id(1), 1, 1), sent_response(response(1, nothing), 2, 1),
        sent_request(request_frame, 3), sent_response(response(1, metadata_v12()), 4),
        sent_request(fetch_by_id(2), 5, 1), sent_response(response(2, nothing), 6, 1),
    )  # fmt: skip
    assert early["topics"] == late["topics"] == ["orders"]
    assert (late["partition_count"], late["max_wait_ms"]) == (1, 500)


def test_a_topic_whose_name_comes_later() -> None:
    correlator = CorrelatorTest()
    nothing = b"\0" + b"\0\0\0\0" + b"\0\0" + b"\0\0\0\0" + b"\1" + b"\0"
    (row,) = correlator.feed(
        sent_request(fetch_by_id(1), 1), sent_response(response(1, nothing), 2)
    )
    assert row["topics"] == ["AQIDBAUGBwgJCgsMDQ4PEA"]
    waiting = pa.array([row["topics"]], pa.list_(pa.string()))
    assert correlator.names.missing == {"AQIDBAUGBwgJCgsMDQ4PEA"}
    request_frame = request(METADATA, 12, 2, b"\0\0\0\0", flexible=True)
    correlator.feed(sent_request(request_frame, 3), sent_response(response(2, metadata_v12()), 4))
    assert correlator.names.replace_ids(waiting).to_pylist() == [["orders"]]


def test_impossible_times() -> None:
    """A damaged capture: its times are reported as they are, centuries as well."""
    (row,) = CorrelatorTest().feed(
        sent_request(heartbeat(7), 0), sent_response(response(7, b"\0\0"), 9 * 10**12)
    )
    assert row["latency_ms"] == 9e12
