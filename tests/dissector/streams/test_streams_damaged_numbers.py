"""Damaged or lost sequence numbers of SYNs and first segments; and what only looks like them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from dissector.packets.block import ACK, FIN
from tests.dissector.streams.dialogue import NO_ERROR, Dialogue, dissect, ipv4, request, response
from tests.dissector.streams.test_streams_damage import MESSAGES, REQUESTS, RESPONSES, dialogue_of


@pytest.mark.parametrize("wrong", [1 << 24, 1 << 16, 1 << 8, 1])
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("ahead", [1, -1])
def test_a_damaged_initial_sequence_number(wrong: int, end: int, ahead: int) -> None:
    packets = dialogue_of(RESPONSES).packets
    syn = packets[end]
    packets[end] = replace(syn, seq=(syn.seq + ahead * wrong) % 2**32)
    out = dissect(packets)
    assert out.messages() == MESSAGES
    assert out.problems == []


@pytest.mark.parametrize("wrong", [1 << 24, 1 << 8, 1])
@pytest.mark.parametrize("ahead", [1, -1])
@pytest.mark.parametrize("block", [1, 100])
def test_a_damaged_initial_sequence_number_in_a_one_way_capture(
    wrong: int, ahead: int, block: int
) -> None:
    syn, *later = (each for each in dialogue_of(RESPONSES).packets if each.source[1] == 40001)
    damaged = replace(syn, seq=(syn.seq + ahead * wrong) % 2**32)
    out = dissect([damaged, *later], cuts=range(block, len(later), block))
    assert out.messages() == (MESSAGES[0], [])
    assert out.problems == []


@pytest.mark.parametrize("cuts", [(), *((cut,) for cut in range(1, 6)), range(12)])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_lost_syn_in_blocks_of_any_size(is_late: bool, cuts: Iterable[int]) -> None:
    """The SYN and the first request are lost; with `is_late`, the SYN-ACK comes behind the ACK."""
    _, syn_ack, ack, _, *later = dialogue_of(RESPONSES).packets
    start = [ack, syn_ack] if is_late else [syn_ack, ack]
    out = dissect([*start, *later], cuts=cuts)
    assert out.messages() == (MESSAGES[0][1:], MESSAGES[1])
    assert int(out.streams.connections.lost.sum()) == len(REQUESTS[0])


@pytest.mark.parametrize("wrong", [1 << 31, 1 << 16, 1])
@pytest.mark.parametrize("cuts", [(), *((cut,) for cut in range(1, 6)), range(12)])
def test_a_syn_ack_with_a_damaged_acknowledgement(wrong: int, cuts: Iterable[int]) -> None:
    """The connection goes on behind the FIN of the client."""
    dialogue = dialogue_of(RESPONSES)
    packets = dialogue.packets
    packets[1] = replace(packets[1], ack=packets[1].ack ^ wrong)
    last = next(index for index, each in enumerate(packets) if each.payload == RESPONSES[-1])
    fin = replace(packets[last - 1], seq=packets[last].ack, payload=b"", flags=FIN | ACK)
    packets[last:] = [fin, replace(packets[last], ack=fin.seq + 1)]
    out = dissect(packets, cuts=cuts)
    assert out.streams.connections.count == 1
    assert out.messages() == MESSAGES


def test_reordered_packets_do_not_look_like_a_damaged_syn() -> None:
    packets = [each for each in dialogue_of(RESPONSES).packets if each.source[1] == 40001]
    syn, handshake_ack, first, acknowledgement, second, *later = packets
    out = dissect([syn, acknowledgement, second, first, handshake_ack, *later])
    assert out.messages()[0] == MESSAGES[0]


@pytest.mark.parametrize("cuts", [(), *((cut,) for cut in range(1, 12)), range(12)])
@pytest.mark.parametrize("has_request", [False, True])
def test_packets_before_the_syn_do_not_make_it_look_damaged(
    has_request: bool, cuts: Iterable[int]
) -> None:
    """An ACK arrives before the SYN, and with `has_request` the second request, too."""
    packets = dialogue_of(RESPONSES).packets
    client = [each for each in packets if each.source[1] == 40001]
    broker = [each for each in packets if each.source[1] != 40001]
    syn, _, first, second, *_ = client
    ack = replace(second, payload=b"")
    start = [ack, second, syn] if has_request else [ack, syn, second]
    packets = list(dict.fromkeys([*start, first, *broker, *client]))
    out = dissect(packets, cuts=cuts)
    assert out.streams.connections.count == 1
    assert out.messages() == MESSAGES
    assert out.problems == []


@pytest.mark.parametrize("block", [1, 2, 100])
@pytest.mark.parametrize("lost", [1, 2])
def test_lost_first_requests_do_not_look_like_a_damaged_syn(lost: int, block: int) -> None:
    """The last ACK before the first payload begins where the payload does."""
    packets = [each for each in dialogue_of(RESPONSES).packets if each.source[1] == 40001]
    packets = [each for each in packets if each.payload not in REQUESTS[:lost]]
    first = next(index for index, each in enumerate(packets) if each.payload)
    packets.insert(first, replace(packets[first], payload=b""))
    out = dissect(packets, packets_per_block=block)
    assert out.messages()[0] == MESSAGES[0][lost:]
    assert int(out.streams.connections.lost.sum()) == len(b"".join(REQUESTS[:lost]))


def test_a_lost_first_response_does_not_look_like_a_damaged_syn() -> None:
    packets = dialogue_of(RESPONSES).packets
    assert packets[5].payload == RESPONSES[0]
    out = dissect([*packets[:5], *packets[6:]])
    assert out.messages()[1] == MESSAGES[1][1:]
    assert int(out.streams.connections.lost.sum()) == len(RESPONSES[0])


def test_a_lost_syn_before_an_unknown_request() -> None:
    """The SYN-ACK shows where the client's stream begins, and so that these bytes are a request."""
    dialogue, connection = Dialogue.connected()
    unknown = request(18, 99, 1, b"what")
    connection.exchange(unknown, response(1, NO_ERROR))
    out = dissect(dialogue.packets[1:])
    assert out.messages() == ([unknown[4:]], [response(1, NO_ERROR)[4:]])


@pytest.mark.parametrize("handshake", [True, False])
@pytest.mark.parametrize("end", [0, 1])
def test_a_damaged_sequence_number_in_the_first_segment(handshake: bool, end: int) -> None:
    dialogue, connection = Dialogue.connected(handshake=handshake, isn=(0x34000000, 0x34100000))
    for request_bytes, response_bytes in zip(REQUESTS, RESPONSES, strict=True):
        connection.exchange(request_bytes, response_bytes)
    packets = list(dialogue.packets)
    port = 9092 if end else 40001
    index = next(at for at, each in enumerate(packets) if each.source[1] == port and each.payload)
    packets[index] = replace(packets[index], seq=packets[index].seq ^ 0xFF000000)
    messages = dissect(packets).messages()
    kept = [*MESSAGES]
    kept[end] = kept[end][1:]
    assert [list(each)[-len(kept[side]) :] for side, each in enumerate(messages)] == kept


@pytest.mark.parametrize("back", [1_308_621_457, 1 << 24, 1 << 16, 3000])
@pytest.mark.parametrize("block", [1, 100])
def test_a_damaged_sequence_number_in_another_protocol(back: int, block: int) -> None:
    """Carried bytes before the beginning of a stream, whose protocol is decided at the end."""
    dialogue, connection = Dialogue.connected(broker=(ipv4("10.0.0.9"), 80))
    connection.client(b"GET /index.html HTTP/1.1\r\nHost: example.com\r\n\r\n")
    connection.broker(b"HTTP/1.1 200 OK\r\n\r\n", sent=False)
    connection.broker(b"text" * 300)
    connection.broker(b"text" * 300, sent=False)
    connection.packet(1, b"text" * 300, flags=FIN | ACK)
    syn, _, acknowledged, get, early, last = dialogue.packets
    damaged = replace(early, seq=(early.seq - back) % 2**32)
    packets = [syn, acknowledged, get, damaged, last]
    assert dissect(packets, cuts=range(block, 5, block)).messages() == ([], [])
