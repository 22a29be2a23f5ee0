"""Bytes that the receiver acknowledged, behind the last captured byte of a stream."""

from __future__ import annotations

import pytest

from dissector.packets.block import ACK, FIN, RST
from tests.dissector.streams.dialogue import Connection, Dialogue, dissect, request, response


def unanswered(dialogue: Dialogue) -> Connection:
    """A connection with a request, whose response of 79 bytes was not captured."""
    connection = dialogue.connect()
    connection.client(request(3, 1, 7))
    connection.broker(response(7, bytes(71)), sent=False)
    return connection


@pytest.mark.parametrize("has_fin", [True, False])
@pytest.mark.parametrize("block", [1, 2, 100])
def test_acknowledged_bytes_are_lost(has_fin: bool, block: int) -> None:
    """Wireshark: "ACKed segment that wasn't captured". The number of a FIN that was not captured
    counts as a byte."""
    dialogue = Dialogue()
    connection = unanswered(dialogue)
    connection.packet(0, flags=FIN | ACK)
    connection.packet(1, flags=FIN | ACK, sent=has_fin)
    connection.packet(0)
    out = dissect(dialogue.packets, packets_per_block=block)
    lost = [each for each in out.problems if each.kind == "lost_bytes"]
    assert [(each.offset, each.bytes) for each in lost] == [(0, 79 + (not has_fin))]
    assert out.streams.connections.lost[0].tolist() == [0, 79 + (not has_fin)]


@pytest.mark.parametrize("pause", [0, 5000])
def test_bytes_of_an_open_connection_may_arrive_later(pause: float) -> None:
    dialogue = Dialogue()
    unanswered(dialogue).packet(0)
    dialogue.wait(pause)
    dialogue.connect().client(request(3, 1, 7))
    assert dissect(dialogue.packets).kinds() == ["lost_bytes"] * (pause > 0)


@pytest.mark.parametrize(
    "further", [[0, 1, 1], [0, 1 << 31, 0]], ids=["missing FIN", "damaged number"]
)
def test_acknowledgements_that_show_no_loss(further: list[int]) -> None:
    """The acknowledgement of a RST does not count."""
    dialogue, connection = Dialogue.connected()
    connection.client(request(3, 1, 7))
    for each in further:
        connection.packet(0, ack=connection.seq[1] + each)
    connection.packet(0, flags=RST, ack=connection.seq[1] + 79)
    assert "lost_bytes" not in dissect(dialogue.packets).kinds()


def test_a_capture_of_one_direction_has_no_lost_ends() -> None:
    dialogue = Dialogue()
    connection = unanswered(dialogue)
    connection.packet(0, flags=FIN | ACK)
    captured = [each for each in dialogue.packets if each.source[1] != 9092]
    assert "lost_bytes" not in dissect(captured).kinds()
