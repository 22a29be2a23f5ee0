"""Structures in fields: of recordings, and of Kafka's encoder (`tests/data/structure_vectors`)."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.capture import open_capture
from dissector.embedded import ERROR, MessageContext, unfold
from dissector.embedded.contents import NOWHERE
from dissector.exchanges.exchange import Exchange
from dissector.protocol.explain import Explained
from dissector.protocol.message import explain_request, explain_response
from dissector.protocol.notation import Direction
from dissector.secrets import hidden
from tests.kafka_bytes import envelope, request, text
from tests.vectors import vectors
from tools.record.kafka import truth

ROOT = Path(__file__).parents[3]
CAPTURES = ROOT / "captures"

VALUES = {
    vector["name"]: bytes.fromhex(vector["value"])
    for vector in vectors("structure")
    if vector.get("value")
}


def unfolded(frame: bytes) -> list[Explained]:
    return unfold(explain_request(frame), MessageContext()).events


def values(events: list[Explained]) -> dict[str, object]:
    return {event.path: event.value for event in events}


def join(protocol_type: str, protocol: str, metadata: bytes) -> dict[str, object]:
    body = text("g") + struct.pack(">i", 1000) + text("") + text(protocol_type)
    body += struct.pack(">i", 1) + text(protocol) + text(metadata, ">i")
    fields = values(unfolded(request(11, 0, body)))
    start = "protocols[0]."
    return {path.removeprefix(start): each for path, each in fields.items() if start in path}


# groups


def test_a_subscription() -> None:
    fields = join("consumer", "range", VALUES["subscription-3"])
    assert fields["metadata"] == "ConsumerProtocolSubscription version 3"
    assert fields["metadata.topics[1]"] == "b"
    assert fields["metadata.owned_partitions[0].partitions[1]"] == 1
    assert fields["metadata.user_data"] == b"\7"


@pytest.mark.parametrize("version", range(1, 12))
def test_streams_in_a_subscription(version: int) -> None:
    info = VALUES[f"streams-subscription-{version}"]
    metadata = b"\0\0" + struct.pack(">i", 1) + text("a") + text(info, ">i")
    fields = join("consumer", "stream", metadata)
    assert fields["metadata.user_data"] == f"SubscriptionInfo version {version}"
    assert fields["metadata.user_data.version"] == version
    assert join("consumer", "range", metadata)["metadata.user_data"] == info


@pytest.mark.parametrize("version", [1, 2])
def test_connect(version: int) -> None:
    fields = join("connect", "sessioned", VALUES[f"connect-subscription-{version}"])
    assert fields["metadata"] == f"ConnectSubscription version {version}"
    assert fields["metadata.url"] == "http://w:8083"
    assert fields["metadata.allocation"] == f"ConnectAssignment version {version}"
    assert fields["metadata.allocation.assignment[0].connector"] == "sink"


@pytest.mark.parametrize(
    ("protocol_type", "metadata"),
    [("sr", b'{"host":"a"}'), ("consumer", b"\0\x09"), ("connect", b"\0"), ("consumer", b"")],
)
def test_bytes_of_unknown_protocols_stay(protocol_type: str, metadata: bytes) -> None:
    fields = join(protocol_type, "range", metadata)
    assert fields["metadata"] == metadata


@given(st.sampled_from(["consumer", "connect"]), st.binary(max_size=60))
def test_any_metadata(protocol_type: str, metadata: bytes) -> None:
    join(protocol_type, "stream", metadata)


# recordings


@cache
def exchanges(name: str) -> list[Exchange]:
    return list(open_capture(CAPTURES / f"{name}.pcap.zst").exchanges())


def messages(name: str) -> Iterator[tuple[Exchange, Direction, list[Explained]]]:
    for exchange in exchanges(name):
        for direction in Direction:
            explanation = exchange.unfold(direction)
            if explanation is not None:
                yield exchange, direction, explanation.events


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("kafka-4-group-eager", {"ConsumerProtocolSubscription", "ConsumerProtocolAssignment"}),
        ("kafka-4-group-cooperative", {"ConsumerProtocolSubscription"}),
        ("kafka-4-sasl", {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"}),
        ("kafka-4-telemetry", {"OTLP"}),
        ("kafka-4-quorum", {"CreateTopics", "DefaultPrincipalData"}),
    ],
)
def test_unfolded_values_are_within_their_field(name: str, needed: set[str]) -> None:
    unfolded_names = set()
    for exchange, direction, events in messages(name):
        plain = exchange.explain(direction)
        assert plain is not None
        kept = iter(events)
        for event in plain.events:
            same = next(each for each in kept if each.path == event.path)
            assert (same.offset, same.length, same.depth) == (
                event.offset, event.length, event.depth
            )  # fmt: skip
            if same.value != event.value:
                assert isinstance(event.value, bytes)
                unfolded_names.add(str(same.value).split()[0])
        outer: list[Explained] = []
        for event in events:
            outer = [each for each in outer if each.depth < event.depth]
            if outer and event.offset != NOWHERE:
                end = outer[-1].offset + outer[-1].length
                assert outer[-1].offset <= event.offset
                assert event.offset + event.length <= end
            outer.append(event)
    assert needed <= unfolded_names


@pytest.mark.parametrize(
    "name", ["kafka-4-quorum", "kafka-4-admin", "kafka-4-quotas", "kafka-4-errors"]
)
def test_forwarded_requests_are_those_that_the_controller_logged(name: str) -> None:
    logged = Counter(
        (row["api_key"], row["version"], row["correlation_id"], row["client_id"])
        for row in truth.read(name)
        if row["source"] == "envelope"
    )
    ours = Counter[tuple[object, ...]]()
    for exchange, direction, events in messages(name):
        if exchange.api == "Envelope":
            fields = values(events)
            if direction == Direction.REQUEST:
                head = [f"request_data.header.{part}" for part in (
                    "api_key", "api_version", "correlation_id", "client_id"
                )]  # fmt: skip
                ours[tuple(fields[path] for path in head)] += 1
                asked = fields["request_data.header.correlation_id"]
            elif fields["response_data"] is not None:
                assert fields["response_data.header.correlation_id"] == asked
    assert logged
    assert logged - ours == Counter()


# envelopes


def test_an_envelope() -> None:
    inside = request(3, 0, struct.pack(">i", 1) + text("orders"))
    frame = envelope(inside)
    events = unfolded(frame)
    fields = values(events)
    assert fields["request_data"] == "Metadata version 0 request"
    assert fields["request_data.header.client_id"] == "app"
    assert fields["request_data.topics[0].name"] == "orders"
    (topic,) = [event for event in events if event.path == "request_data.topics[0].name"]
    assert frame[topic.offset :].startswith(text("orders"))
    answer = struct.pack(">i", 9) + b"\0\x0d" + struct.pack(">iii", 7, 0, 0) + b"\0\0\0"
    response = unfold(explain_response(answer, 58, 0), MessageContext(request=frame))
    assert values(response.events)["response_data"] == "Metadata version 0 response"
    assert values(response.events)["response_data.brokers"] == 0


@pytest.mark.parametrize(
    ("inside", "name", "why"),
    [
        (request(3, 0, struct.pack(">i", 9)), "Metadata version 0 request", "9 elements"),
        (request(3, 99, b"what follows"), "Metadata version 99 request", "unknown version 99"),
        (request(999, 0, b"what follows"), "API 999 version 0 request", "unknown API key 999"),
        (b"\0", "API -1 version -1 request", "2 bytes are needed"),
    ],
)
def test_a_forwarded_request_that_cannot_be_read(inside: bytes, name: str, why: str) -> None:
    events = unfolded(envelope(inside))
    assert values(events)["request_data"] == name
    (error,) = [event for event in events if event.type == ERROR]
    assert why in error.value
    (remainder,) = [event for event in events if event.name == "rest"]
    assert inside.endswith(remainder.value)
    assert not remainder.value or remainder.path in hidden(events)


def test_surplus_bytes_of_a_forwarded_request() -> None:
    events = unfolded(envelope(request(3, 0, struct.pack(">i", 0) + b"abc")))
    (surplus,) = [event for event in events if event.path == "request_data.surplus"]
    assert surplus.value == b"abc"
    assert surplus.path in hidden(events)


def test_an_envelope_in_an_envelope_stays_closed() -> None:
    inside = request(3, 0, struct.pack(">i", 0))
    events = unfolded(envelope(envelope(inside)))
    assert values(events)["request_data"] == envelope(inside)
    assert "request_data" in hidden(events)


def test_an_answer_without_its_question_stays_closed() -> None:
    answer = struct.pack(">i", 9) + b"\0\x0d" + struct.pack(">iii", 7, 0, 0) + b"\0\0\0"
    for asked in (None, b"", request(3, 0, struct.pack(">i", 0))):
        response = unfold(explain_response(answer, 58, 0), MessageContext(request=asked))
        assert isinstance(values(response.events)["response_data"], bytes)
        assert "response_data" in hidden(response.events)
