"""Timelines of exchanges: in made captures, and compared with tshark in recordings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.timeline.connection import connection_timeline
from analysis.timeline.exchange import Event, timelines
from dissector.capture import open_capture
from dissector.exchanges.exchange import Exchange
from tests.analysis.commands import Ran
from tests.analysis.cutting.test_cutting_packets import answered, asked, written
from tests.captures.truth import CAPTURES
from tests.dissector.streams.dialogue import Dialogue
from tests.tshark import needs_tshark, tshark

SIZE, BACK = len(asked(1)), len(answered(1))


def events_of(path: Path, correlation: int, **options: object) -> list[Event]:
    exchanges = [e for e in open_capture(path).exchanges() if e.correlation_id == correlation]
    (events,) = timelines(path, exchanges, **options)
    return events


def texts(events: list[Event]) -> list[tuple[int, str, str]]:
    return [
        (each.packet.number, "client" if each.packet.is_from_client else "broker", each.text)
        for each in events
    ]


def test_many_exchanges_have_the_timelines_that_each_has_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("analysis.timeline.exchange.MARGIN", 10**8)
    path = CAPTURES / "kafka-4-net-loss.pcap.zst"
    exchanges = [*open_capture(path).exchanges()][::17]
    together = timelines(path, exchanges)
    assert all(together)
    assert together == [timelines(path, [exchange])[0] for exchange in exchanges]


def test_segments_acknowledgements_and_retransmissions(tmp_path: Path) -> None:
    dialogue, connection = Dialogue.connected()
    connection.exchange(asked(1), answered(1))
    connection.client(asked(2)[:10])
    connection.client(asked(2)[10:])
    connection.retransmit(0, asked(2)[10:], back=SIZE - 10)
    connection.packet(1, ack=connection.seq[0] - 5)
    connection.packet(1)
    connection.packet(1)
    connection.retransmit(0, b"?", back=1)
    connection.broker(answered(2))
    connection.packet(0)
    connection.client(asked(3))
    path = written(dialogue, tmp_path / "a.pcap")
    assert texts(events_of(path, 2)) == [
        (6, "client", "request, bytes 1 to 10"),
        (7, "client", f"request, bytes 11 to {SIZE}"),
        (8, "client", f"request, bytes 11 to {SIZE}, retransmitted"),
        (9, "broker", f"acknowledges {SIZE - 5} bytes of the request"),
        (10, "broker", "acknowledges the request"),
        (11, "broker", "duplicate acknowledgement"),
        (12, "client", "keep-alive"),
        (13, "broker", f"response, all {BACK} bytes"),
        (14, "client", "acknowledges the response"),
    ]
    assert [each.is_problem for each in events_of(path, 2)] == [False] * 2 + [True] + [False] * 6


def test_a_hole_and_a_reset(tmp_path: Path) -> None:
    dialogue, connection = Dialogue.connected()
    connection.client(asked(1)[:5])
    connection.client(asked(1)[5:8], sent=False)
    connection.client(asked(1)[8:])
    connection.retransmit(0, asked(1)[5:8], back=SIZE - 5)
    connection.broker(answered(1))
    connection.rst()
    path = written(dialogue, tmp_path / "a.pcap")
    assert texts(events_of(path, 1))[:3] == [
        (4, "client", "request, bytes 1 to 5"),
        (5, "client", f"request, bytes 9 to {SIZE}, 3 bytes before it are missing"),
        (6, "client", "request, bytes 6 to 8, late: sent again or reordered"),
    ]


@needs_tshark
@pytest.mark.parametrize("name", ["kafka-4-net-loss.pcap.zst", "librdkafka-mock-produce.pcap"])
def test_late_segments_are_those_of_tshark(name: str) -> None:
    exchanges = list(open_capture(CAPTURES / name).exchanges())
    marks = ("tcp.analysis.retransmission", "tcp.analysis.out_of_order")
    fields = ["frame.number", "tcp.stream", *marks]
    rows = tshark(CAPTURES / name, fields, "-o", "tcp.desegment_tcp_streams:FALSE")
    marked = {int(number) for number, _, *marks in rows if any(marks)}
    stream = {int(number): int(stream) for number, stream, *_ in rows if stream}
    flagged, timed = set(), set()
    for exchange, events in zip(exchanges, timelines(CAPTURES / name, exchanges), strict=True):
        numbers = {event.packet.number for event in events}
        assert {stream[number] for number in numbers} == {exchange.connection_id}
        assert {exchange.request_packet, exchange.response_packet} - {None} <= numbers
        timed |= {event.packet.number for event in events if event.packet.length}
        flagged |= late_packets(events)
    assert flagged == marked & timed
    for connection in {each.connection_id for each in exchanges}:
        own = [each for each in exchanges if each.connection_id == connection]
        events = connection_timeline(CAPTURES / name, own)
        assert late_packets(events) == marked & {event.packet.number for event in events}


def late_packets(events: list[Event]) -> set[int]:
    late = ("retransmitted", "late: ")
    return {each.packet.number for each in events if any(word in each.text for word in late)}


@needs_tshark
def test_the_display_filter_selects_the_packets(ran: Ran) -> None:
    """Wireshark numbers the connections of each file from 0."""
    paths = [CAPTURES / "librdkafka-mock-produce.pcap", CAPTURES / "kafka-python-mock.pcap"]
    options = ("--api", "Produce", "--limit", "999", "--format", "json")
    rows = ran("show", *map(str, paths), *options).rows
    chosen = [next(row for row in rows if row["capture"].endswith(path.name)) for path in paths]
    for row in chosen:
        numbers = tshark(row["capture"], ["frame.number"], "-Y", row["display_filter"])
        assert [int(number) for (number,) in numbers] == [
            row["request_packet"], row["response_packet"],
        ]  # fmt: skip


def test_encrypted_packets_have_no_messages() -> None:
    path = CAPTURES / "kafka-4-tls-secrets.pcapng.zst"
    exchanges: list[Exchange] = list(open_capture(path).exchanges(api="Produce"))
    assert exchanges
    for exchange, events in zip(exchanges, timelines(path, exchanges), strict=True):
        assert exchange.request_packet in {event.packet.number for event in events}
        assert not any("request" in event.text for event in events)
        assert any(event.text.startswith("TLS, ") for event in events)


def test_json(ran: Ran) -> None:
    path = str(CAPTURES / "librdkafka-mock-produce.pcap")
    command = ["show", path, "--packet", "81", "--timeline", "--format", "json"]
    row = json.loads(ran(*command).out)
    assert (row["api"], row["request_packet"], row["response_packet"]) == ("Produce", 81, 82)
    assert row["request_time"] == "2026-11-21T03:44:52.726281990Z"
    header, topics = row["request"]["fields"]["header"], row["request"]["fields"]["topic_data"]
    assert header == {"api_key": 0, "api_version": 10, "correlation_id": 3, "client_id": "acks-1"}
    (batch,) = topics[0]["partition_data"][0]["records"]["batches"]
    assert len(batch["records"]) == 3
    assert json.loads(batch["records"][0]["value"])["order"] == 1
    assert [each["packet"] for each in row["timeline"]][:2] == [81, 82]
    assert row["timeline"][0]["content"] == "request, all 386 bytes"


def test_reading_stops_at_the_limit(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    from dissector.packets import files

    monkeypatch.setattr("dissector.capture.BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(files, "PACKETS", 20)
    blocks: list[int] = []
    read = files.FileSource.read
    monkeypatch.setattr(
        files.FileSource, "read", lambda self, reserve: blocks.append(1) or read(self, reserve)
    )
    path = str(CAPTURES / "chatter-mock.pcap.zst")
    err = ran("show", path, "--packet", "14", "--limit", "1").err
    assert 0 < len(blocks) < 10
    assert "Stopped after 1 exchange; raise --limit for more." in err
