"""Gaps of more bytes than any window: a file of the capture is missing, or packets were dropped for
seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.dissector.streams.dialogue import MS, Dialogue, dissect, request, response

GIB = 1 << 30
EXCHANGES = 30
"""Before a gap, and behind it."""
SILENCE = 8_000
"""ms; within the time after which a jump is another connection."""
CUTS = [(), (95,), range(400)]


def exchange(connection, number: int) -> None:
    connection.client(request(1, 4, number, b"fetch" * 4))
    sent = response(number, bytes(2000))
    connection.broker_segments(sent, 1000)
    connection.packet(0)


def with_gap(
    *missing: int, silence: float = SILENCE, has_ack: bool = False, before: int = EXCHANGES
) -> Dialogue:
    """`before` exchanges, then `missing` bytes of client and broker, then more exchanges; with
    `has_ack` half a second after an acknowledgement."""
    dialogue, connection = Dialogue.connected()
    for number in range(before):
        exchange(connection, number)
    dialogue.wait(silence)
    for end, size in enumerate(missing):
        connection.seq[end] += size
    if has_ack:
        connection.packet(0)
        dialogue.wait(500)
    for number in range(5000, 5000 + EXCHANGES):
        exchange(connection, number)
    return dialogue


def received(out) -> list[int]:
    """Correlation ids of the responses."""
    return [int.from_bytes(each[:4], "big") for each in out.messages()[1]]


BOTH = [*range(EXCHANGES), *range(5000, 5000 + EXCHANGES)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("gib", [1.5, 2, 2.5, 3, 3.5, 5.3])
@pytest.mark.parametrize("client", [4000, 2 * GIB])
def test_a_connection_goes_on_behind_a_gap(gib: float, client: int, cuts) -> None:
    """The receiver acknowledges the bytes behind it. Sequence numbers count modulo 4 GiB."""
    missing = int(gib * GIB)
    out = dissect(with_gap(client, missing).packets, cuts=cuts)
    assert received(out) == BOTH
    assert out.streams.connections.known == 1
    lost = out.streams.connections.lost[0].tolist()
    assert lost == [client, missing % (4 * GIB)]
    assert set(out.kinds()) == {"lost_bytes", "resync"}


@pytest.mark.parametrize("cuts", [(), (3,), range(400)])
@pytest.mark.parametrize("missing", [(0, 3 * GIB // 2), (3 * GIB, 0), (3 * GIB // 2, 5 * GIB // 2)])
def test_a_gap_directly_behind_the_handshake(missing: tuple[int, int], cuts) -> None:
    packets = with_gap(*missing, before=0).packets
    out = dissect(packets, cuts=[each for each in cuts if each < len(packets)])
    assert received(out) == BOTH[EXCHANGES:]
    assert out.streams.connections.lost[0].tolist() == list(missing)
    assert set(out.kinds()) == {"lost_bytes", "resync"}


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("missing", [3 * GIB // 2, 3 * GIB])
def test_one_direction_goes_on_behind_a_gap(end: int, missing: int, cuts) -> None:
    dialogue = with_gap(missing, missing)
    source = dialogue.packets[end].source
    packets = [each for each in dialogue.packets if each.source == source]
    out = dissect(packets, cuts=[each for each in cuts if each < len(packets)])
    assert [len(each) for each in out.messages()] == [len(BOTH) * (1 - end), len(BOTH) * end]
    assert not [each for each in out.problems if each.kind == "stray"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("jump", [3 * GIB // 2, 5 * GIB // 2, 7 * GIB // 2])
@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("before", [0, EXCHANGES])
def test_a_damaged_number_behind_a_silence_is_not_a_gap(
    jump: int, is_last: bool, before: int, cuts
) -> None:
    packets = with_gap(0, 0, before=before).packets
    behind = [each.time - packets[0].time > SILENCE * MS for each in packets]
    damaged = behind.index(True) + 1
    packets[damaged] = replace(packets[damaged], seq=(packets[damaged].seq + jump) % 2**32)
    if is_last:
        del packets[damaged + 1 :]
    out = dissect(packets, cuts=[each for each in cuts if each < len(packets)])
    later = [] if is_last else range(5001, 5000 + EXCHANGES)
    assert received(out) == [*range(before), *later]
    assert out.kinds().count("stray") == 1
    assert out.streams.connections.lost.max() == 1000 * (not is_last)


@pytest.mark.parametrize("cuts", CUTS)
def test_more_than_any_window_missing_without_a_silence(cuts) -> None:
    """Numbers that jump within a second are damaged."""
    out = dissect(with_gap(4000, 2 * GIB, silence=500).packets, cuts=cuts)
    assert received(out) == BOTH[:EXCHANGES]


@pytest.mark.parametrize("cuts", [*CUTS, (154,), (155,)])
@pytest.mark.parametrize("has_ack", [False, True])
def test_the_first_packet_behind_a_long_silence_begins_a_connection(has_ack: bool, cuts) -> None:
    """As far as the capture shows, with and without payload, wherever a block ends."""
    out = dissect(with_gap(0, 2 * GIB, silence=31_000, has_ack=has_ack).packets, cuts=cuts)
    assert received(out) == BOTH
    assert out.streams.connections.known == 2
    assert not out.problems
