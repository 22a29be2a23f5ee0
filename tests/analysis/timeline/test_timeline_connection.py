"""Timelines of connections; `test_timeline_exchange` compares them with tshark."""

from __future__ import annotations

from pathlib import Path

from analysis.timeline.connection import connection_timeline
from dissector.capture import open_capture
from tests.analysis.cutting.test_cutting_packets import answered, asked, written
from tests.analysis.timeline.test_timeline_exchange import BACK, SIZE, texts
from tests.dissector.streams.dialogue import Dialogue


def test_segments_name_the_messages_that_they_have(tmp_path: Path) -> None:
    dialogue, connection = Dialogue.connected()
    connection.exchange(asked(1) + asked(2)[:10], answered(1))
    connection.client(asked(2)[10:])
    connection.retransmit(0, asked(2)[10:], back=SIZE - 10)
    connection.packet(1)
    connection.broker(answered(2)[:-1])
    connection.packet(0)
    connection.broker(answered(2)[-1:])
    path = written(dialogue, tmp_path / "a.pcap")
    events = connection_timeline(path, list(open_capture(path).exchanges()))
    assert [text.replace("ApiVersions ", "") for _, _, text in texts(events)][3:] == [
        f"request 1, all {SIZE} bytes, request 2, bytes 1 to 10",
        f"response 1, all {BACK} bytes",
        f"request 2, bytes 11 to {SIZE}",
        f"request 2, bytes 11 to {SIZE}, retransmitted",
        "acknowledges request 2",
        f"response 2, bytes 1 to {BACK - 1}",
        f"acknowledges {BACK - 1} bytes of response 2",
        f"response 2, bytes {BACK} to {BACK}",
    ]
