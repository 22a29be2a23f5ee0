"""Messages above the broker's default of socket.request.max.bytes, 100 MiB: users may raise it."""

from __future__ import annotations

import struct

import pytest

from tests.dissector.streams.dialogue import Dialogue, dissect, request, response, sasl_request

LARGE = (100 << 20) + 1
SEGMENT = 1 << 20
"""The capture has the first bytes of each segment."""
REQUEST = struct.pack(">ihhih", LARGE, 0, 3, 3, 2) + b"me"
RESPONSE = struct.pack(">ii", LARGE, 3)
SMALL_REQUEST, SMALL_RESPONSE = request(3, 1, 3), response(3)


def dialogue_of(large: bytes, *, end: int, before: bytes = b"", lost: int = -1) -> Dialogue:
    """A message of which `large` is the header, in the stream of one end, between others.

    `before`: a message in its first segment. `lost`: number of a segment that is missing.
    """
    dialogue, connection = Dialogue.connected()
    connection.exchange(request(3, 1, 1), response(1))
    if end:
        connection.client(request(3, 1, 2) * bool(before) + request(1, 4, 3))
    connection.packet(end, before + large + bytes(SEGMENT - len(large)), cut=64)
    for number in range(1, LARGE // SEGMENT + 1):
        size = min(SEGMENT, LARGE + 4 - number * SEGMENT)
        connection.packet(end, bytes(size), cut=64, sent=number != lost)
    if not end:
        connection.broker(response(2) * bool(before) + response(3))
    connection.exchanges(range(4, 8))
    connection.fin()
    return dialogue


@pytest.mark.parametrize("step", [1, 10, 1000])
@pytest.mark.parametrize("lost", [-1, 1, 50])
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("end", [0, 1])
def test_a_message_larger_than_usual(end, before, lost, step):
    inner = (request(3, 1, 2), response(2))[end] * before
    dialogue = dialogue_of((REQUEST, RESPONSE)[end], end=end, before=inner, lost=lost)
    out = dissect(dialogue.packets, packets_per_block=step)
    sizes = [[each.size for each in out.frames if each.is_request is not bool(of)] for of in (0, 1)]
    small = [len(SMALL_REQUEST) - 4, len(SMALL_RESPONSE) - 4]
    expected = [[small[0]] * (6 + before), [small[1]] * (6 + before)]
    expected[end][1 + before] = LARGE
    assert sizes == expected
    assert set(out.kinds()) <= {"cut_packets", "lost_bytes"}
    (large,) = (each for each in out.frames if each.size == LARGE)
    assert large.end_time - large.time == (LARGE // SEGMENT) * 10**6


@pytest.mark.parametrize("step", [1, 10, 1000])
def test_a_body_refutes_a_larger_size(step):
    """A damaged size of a request whose body ends soon: later requests are not inside it."""
    message = bytearray(sasl_request(2, b"token"))
    message[0] ^= 0x40
    dialogue, connection = Dialogue.connected()
    connection.exchange(request(3, 1, 1), response(1))
    connection.exchange(bytes(message), response(2))
    connection.exchanges(range(3, 9))
    connection.fin()
    out = dissect(dialogue.packets, packets_per_block=step)
    assert [len(each) for each in out.messages()] == [7, 8]
    assert out.kinds() == ["bad_size", "resync"]


def test_an_unexpected_response_larger_than_usual_is_damage():
    dialogue, connection = Dialogue.connected()
    connection.exchange(request(3, 1, 1), response(1))
    connection.broker(struct.pack(">ii", LARGE, 1 << 30) + bytes(100))
    connection.exchanges(range(3, 6))
    out = dissect(dialogue.packets)
    assert [len(each) for each in out.messages()] == [4, 4]
    assert out.kinds() == ["bad_size", "resync"]


def test_the_first_message_may_be_larger_than_usual():
    dialogue, connection = Dialogue.connected()
    connection.client(REQUEST + bytes(SEGMENT - len(REQUEST)), cut=64)
    for number in range(1, LARGE // SEGMENT + 1):
        connection.client(bytes(min(SEGMENT, LARGE + 4 - number * SEGMENT)), cut=64)
    connection.broker(response(3))
    connection.exchange(request(3, 1, 4), response(4))
    out = dissect(dialogue.packets)
    assert [each.size for each in out.frames if each.is_request] == [LARGE, len(SMALL_REQUEST) - 4]
    assert out.kinds() == ["cut_packets"]
