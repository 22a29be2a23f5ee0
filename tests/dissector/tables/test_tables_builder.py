"""The rows of a batch of several blocks of frames: decrypted ones come before the others."""

from __future__ import annotations

from dissector.pipeline import Pipeline
from tests.dissector.streams.dialogue import NO_ERROR, Dialogue, block, request, response


def test_a_request_waits_for_all_frames_of_a_batch() -> None:
    """The response arrives in time, but the last packet of its block is an hour later."""
    dialogue, connection = Dialogue.connected()
    connection.client(request(18, 0, 7))
    asked = len(dialogue.packets)
    connection.broker(response(7, NO_ERROR + bytes(4)))
    dialogue.wait(3_600_000)
    dialogue.connect()
    packets = dialogue.packets
    reader, builder = Pipeline(None).stages.of_run(["exchanges"], ["a"])
    handshake, asks, answers = (
        reader.feed(block(each, reader.streams.reserve))
        for each in (packets[:3], packets[3:asked], packets[asked:])
    )
    answers.frames.extendleft(handshake.frames)
    batches = [asks, answers, reader.finish()]
    rows = [each for batch in batches for each in builder.rows(batch) if each.table == "exchanges"]
    status = [text for each in rows for text in each.batch.column("status").to_pylist()]
    assert status == ["answered"]
