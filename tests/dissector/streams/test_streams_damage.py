"""One damaged packet costs only the messages that it carried."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import Any

import pytest

from dissector.packets.block import ACK, FIN
from dissector.streams.search import resync
from tests.dissector.streams.dialogue import (
    NO_ERROR,
    SASL_AUTHENTICATE,
    Dialogue,
    dissect,
    request,
    response,
    sasl_request,
    sasl_response,
)

REQUESTS = [sasl_request(number, b"what") for number in range(12)]
RESPONSES = [sasl_response(number, b"an answer" * number) for number in range(12)]
MESSAGES = [each[4:] for each in REQUESTS], [each[4:] for each in RESPONSES]
"""What `messages` returns for all of them."""


def dialogue_of(responses: list[bytes]) -> Dialogue:
    """Requests with these responses, each acknowledged: three packets per exchange."""
    dialogue, connection = Dialogue.connected()
    for request_bytes, response_bytes in zip(REQUESTS, responses, strict=True):
        connection.client(request_bytes)
        connection.packet(1)
        connection.broker(response_bytes)
    return dialogue


def with_wrong(sent: list[list[bytes]], end: int, number: int, wrong: bytes) -> Dialogue:
    """Messages of both ends in turn, of which one is `wrong`; `sent` then has only the others."""
    dialogue, connection = Dialogue.connected()
    sent[end][number] = wrong
    for pair in zip(*sent, strict=True):
        for each in (0, 1):
            connection.packet(each, pair[each])
    del sent[end][number]
    return dialogue


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("announced", [10, 300, 65_000])
def test_a_damaged_packet_length(end: int, announced: int) -> None:
    packets = dialogue_of(RESPONSES).packets
    for index, packet in enumerate(packets[3:], 3):
        if packet.source[1] == (9092 if end else 40001) and index < len(packets) - 2:
            longer = replace(
                packet, payload=packet.payload + bytes(announced), cut=len(packet.payload)
            )
            out = dissect([*packets[:index], longer, *packets[index + 1 :]])
            assert out.messages() == MESSAGES


def test_zeros_behind_a_hole_are_not_responses() -> None:
    zeros = response(1, b"\0\0\0\4" + bytes(4) + b"\0\0\0\4" + bytes(70))
    responses = [RESPONSES[0], zeros, *RESPONSES[2:]]
    packets = dialogue_of(responses).packets
    index = next(at for at, packet in enumerate(packets) if packet.payload == zeros)
    out = dissect(
        [*packets[:index], replace(packets[index], payload=zeros[8:],
         seq=packets[index].seq + 8), *packets[index + 1 :]]
    )  # fmt: skip
    assert out.messages()[1] == [each[4:] for each in (responses[0], *responses[2:])]


@pytest.mark.parametrize("count", [1, 5, 20, 90])
@pytest.mark.parametrize("block", [1 << 20, 20])
def test_records_that_contain_requests_behind_a_lost_header(count: int, block: int) -> None:
    """A topic may contain captured Kafka traffic: these requests begin no segment, and bytes of a
    record follow them."""
    content = b"".join(request(3, 1, 500 + each, NO_ERROR * 2, "other") for each in range(count))
    record = b"\x9e\x01\0\0\0\1" + content + b"\0"
    size = 43 * len(content) // count  # so no request in the content begins a segment
    sent = request(0, 3, 2, b"orders" * 10 + record * 4 + bytes(9))
    dialogue, connection = Dialogue.connected()
    for number in (0, 1, 2, 3, 4):
        segments = [sent[at : at + size] for at in range(0, len(sent), size)]
        for at, segment in enumerate(segments if number == 2 else [REQUESTS[number]]):
            connection.client(segment, sent=number != 2 or at > 0)
        connection.broker(RESPONSES[number])
    out = dissect(dialogue.packets, packets_per_block=block)
    assert out.messages()[0] == [MESSAGES[0][number] for number in (0, 1, 3, 4)]


@pytest.mark.parametrize("most", [40, 100])
def test_small_numbers_behind_holes_are_not_requests(most: int) -> None:
    """A list of partitions: a size, an API and a version may begin at each of them."""
    numbers = random.Random(most)
    listed = b"".join(struct.pack(">i", numbers.randrange(most)) for _ in range(20_000))
    sent = request(SASL_AUTHENTICATE, 0, 2, listed)
    dialogue, connection = Dialogue.connected()
    for number in (0, 1, 2, 3, 4):
        segments = [sent[at : at + 1448] for at in range(0, len(sent), 1448)]
        for at, segment in enumerate(segments if number == 2 else [REQUESTS[number]]):
            connection.client(segment, sent=number != 2 or at % 20 > 0)
        connection.broker(RESPONSES[number])
    requests = dissect(dialogue.packets).messages()[0]
    expected = [MESSAGES[0][number] for number in (0, 1, 3, 4)]
    assert set(requests) >= set(expected)
    assert len(requests) - len(expected) < len(listed) // 4 // 1000


@pytest.mark.parametrize("end", [0, 1])
def test_a_list_of_numbers_behind_a_hole_has_few_candidates(
    end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search takes time for each candidate, and 1 MB of such numbers took a minute."""
    numbers, node = random.Random(end), resync.Node
    candidates: list[tuple[object, ...]] = []

    def counted(*row: Any) -> resync.Node:
        candidates.append(row)
        return node(*row)

    monkeypatch.setattr(resync, "Node", counted)
    listed = b"".join(
        struct.pack(">ii", numbers.randrange(10, 60), 2 if end else numbers.randrange(16))
        for _ in range(10_000)
    )
    dialogue, connection = Dialogue.connected()
    for number in range(5):
        messages = REQUESTS[number], RESPONSES[number]
        for each, message in enumerate(messages):
            is_list = (number, each) == (2, end)
            sent = message[:-1] + listed if is_list else message
            for at in range(0, len(sent), 1448):
                connection.packet(each, sent[at : at + 1448], sent=not is_list or at > 0)
    assert dissect(dialogue.packets).messages()[end][-2:] == MESSAGES[end][3:5]
    assert 0 < len(candidates) < len(listed) // 40


@pytest.mark.parametrize("order", [(1, 2, 0), (7, 3, 5)])
def test_a_response_behind_a_hole_if_correlation_ids_do_not_ascend(order) -> None:
    dialogue, connection = Dialogue.connected()
    for number in order:
        connection.client(request(3, 1, number))
        connection.broker(response(number, NO_ERROR), sent=number != order[1])
    out = dissect(dialogue.packets)
    assert out.messages()[1] == [response(each, NO_ERROR)[4:] for each in (order[0], order[2])]


@pytest.mark.parametrize("flipped", [*range(10), 100])
@pytest.mark.parametrize("block", [1 << 20, 4])
def test_a_damaged_first_request(flipped: int, block: int) -> None:
    """One byte of its head, or all bytes."""
    damaged = bytearray(REQUESTS[0])
    for at in range(len(damaged)) if flipped == 100 else (flipped,):
        damaged[at] ^= 0xFF
    packets = dialogue_of(RESPONSES).packets
    packets[3] = replace(packets[3], payload=bytes(damaged))
    out = dissect(packets, packets_per_block=block)
    requests, responses = out.messages()
    assert requests[-11:] == MESSAGES[0][1:]
    assert responses[-11:] == MESSAGES[1][1:]


def test_an_unknown_first_request_to_a_broker_found_in_the_same_block() -> None:
    dialogue = Dialogue()
    broker = dialogue.connect().ends[1][0], 19092
    for api in (237, 3):
        connection = dialogue.connect(broker=broker)
        connection.exchange(request(api, 1, 1), response(1, NO_ERROR))
    out = dissect(dialogue.packets)
    assert [len(each) for each in out.messages()] == [2, 2]


@pytest.mark.parametrize("size", [2_000, 65_000, 16 << 20])
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("block", [1 << 20, 7, 2])
def test_a_size_that_covers_the_next_messages(end: int, number: int, size: int, block: int) -> None:
    sent = [list(REQUESTS), list(RESPONSES)]
    wrong = size.to_bytes(4, "big") + sent[end][number][4:]
    packets = with_wrong(sent, end, number, wrong).packets
    out = dissect(packets, packets_per_block=block)
    assert out.messages() == tuple([each[4:] for each in messages] for messages in sent)
    assert out.kinds() == ["bad_size"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x7f\0\0\0", b"\0\0\0\0", b"\0\0\0\5"])
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("number", [0, 2])
def test_an_impossible_size_wherever_a_block_ends(size: bytes, end: int, number: int) -> None:
    """No block border makes frames of the bytes behind the size, or another problem."""
    sent = [list(REQUESTS), list(RESPONSES)]
    packets = with_wrong(sent, end, number, size + sent[end][number][4:]).packets
    whole = dissect(packets)
    problems = [(each.kind, each.offset, each.bytes) for each in whole.problems]
    for cut in range(3, len(packets)):
        out = dissect(packets, cuts=[cut])
        assert out.messages() == whole.messages()
        assert [(each.kind, each.offset, each.bytes) for each in out.problems] == problems


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("end", [0, 1])
def test_a_size_that_ends_inside_the_next_message(number: int, end: int) -> None:
    """The four bytes there are an impossible size."""
    sent = [[sasl_request(each, b"\xff" * 200) for each in range(4)],
            [sasl_response(each, b"\xff" * 200) for each in range(4)]]  # fmt: skip
    wrong = (len(sent[end][number]) + 50).to_bytes(4, "big") + sent[end][number][4:]
    out = dissect(with_wrong(sent, end, number, wrong).packets)
    assert out.messages() == tuple([each[4:] for each in messages] for messages in sent)
    assert out.kinds() == ["bad_size"]


def test_a_size_that_covers_the_last_response() -> None:
    """No later response confirms the last one."""
    dialogue, connection = Dialogue.connected()
    for number in range(2):
        connection.client(REQUESTS[number])
    connection.broker((65_000).to_bytes(4, "big") + RESPONSES[0][4:])
    connection.broker(RESPONSES[1])
    out = dissect(dialogue.packets)
    assert out.messages()[1] == [RESPONSES[1][4:]]
    assert out.kinds() == ["bad_size"]


@pytest.mark.parametrize("surplus", [1, 2, 3])
@pytest.mark.parametrize("is_readable", [True, False])
def test_a_size_that_covers_the_first_bytes_of_the_last_response(
    surplus: int, is_readable: bool
) -> None:
    """The bytes behind it are the size of a message that never arrives."""
    dialogue, connection = Dialogue.connected()
    requests = [sasl_request(each, b"x") if is_readable else REQUESTS[each] for each in range(2)]
    last = sasl_response(1, bytes(70)) if is_readable else response(1, bytes(70))
    for number, answer in enumerate((sasl_response(0, bytes(40)), last)):
        connection.client(requests[number])
        wrong = len(answer) - 4 + surplus * (number == 0)
        connection.broker(wrong.to_bytes(4, "big") + answer[4:])
    connection.fin()
    received = dissect(dialogue.packets).messages()[1]
    assert len(received) == 2
    assert received[1] == last[4:]


@pytest.mark.parametrize("cut", [5, 40, 1_000])
def test_an_incomplete_last_message_is_one_problem(cut: int) -> None:
    dialogue = dialogue_of([*RESPONSES[:-1], response(11, b"\0\0\0\1" * 1_000)])
    last = dialogue.packets[-1]
    out = dissect([*dialogue.packets[:-1], replace(last, payload=last.payload[:cut])])
    assert out.kinds() == ["cut_message"]
    assert out.frames[-1].message == last.payload[4:cut]


@pytest.mark.parametrize("last_byte", range(0, 256, 5))
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("number", [0, 4])
def test_all_wrong_sizes_of_small_messages(end: int, number: int, last_byte: int) -> None:
    """Behind it, other bytes are valid sizes by chance, and the last of them may reach the end. A
    wrong size that ends where another message does cannot be detected."""
    sent = [[sasl_request(each, bytes(22)) for each in range(14)],
            [sasl_response(each, bytes(11)) for each in range(14)]]  # fmt: skip
    wrong = bytearray(sent[end][number])
    last_byte += (4 + last_byte) % len(wrong) == 0
    wrong[3] = last_byte
    dissected = dissect(with_wrong(sent, end, number, bytes(wrong)).packets).messages()
    for received, messages in zip(dissected, sent, strict=True):
        assert {each[4:] for each in messages} <= {*received}


def test_a_complete_request_between_a_hole_and_a_damaged_request() -> None:
    dialogue, connection = Dialogue.connected()
    for number, each in enumerate(REQUESTS):
        damaged = each[:4] + bytes(byte ^ 0xFF for byte in each[4:])
        connection.client(damaged if number == 3 else each, sent=number != 1)
    requests = dissect(dialogue.packets).messages()[0]
    assert {each[4:] for at, each in enumerate(REQUESTS) if at not in (1, 3)} <= {*requests}


def test_small_numbers_inside_a_response_are_not_a_response() -> None:
    """Two adjacent fields look like a size of 53,764 and the expected correlation id."""
    dialogue, connection = Dialogue.connected()
    large = response(1, b"\0\0\xd2\x04\0\0\0\x02\xff" * 400)
    for number in (1, 2):
        connection.client(REQUESTS[number])
    connection.broker(large[:74], sent=False)
    connection.broker(large[74:])
    connection.broker(RESPONSES[2])
    assert dissect(dialogue.packets).messages()[1] == [RESPONSES[2][4:]]


@pytest.mark.parametrize("end", [0, 1])
def test_a_size_that_is_four_bytes_too_small(end: int) -> None:
    """The last four bytes of that message are a valid size by chance."""
    by_chance = b"\0\0\1\0"
    sent = [[sasl_request(each, bytes(22) + by_chance) for each in range(8)],
            [sasl_response(each, bytes(11) + by_chance) for each in range(8)]]  # fmt: skip
    wrong = (len(sent[end][2]) - 8).to_bytes(4, "big") + sent[end][2][4:]
    dissected = dissect(with_wrong(sent, end, 2, wrong).packets).messages()
    for received, messages in zip(dissected, sent, strict=True):
        assert {each[4:] for each in messages} <= {*received}


def test_responses_behind_a_hole_in_a_message_whose_size_is_wrong() -> None:
    """They wait until the capture ends, since the hole may be filled."""
    dialogue, connection = Dialogue.connected()
    for each in REQUESTS[:4]:
        connection.client(each)
    connection.broker(RESPONSES[0])
    connection.broker((65_000).to_bytes(4, "big") + RESPONSES[1][4:])
    connection.broker(RESPONSES[2], sent=False)
    connection.broker(RESPONSES[3])
    assert dissect(dialogue.packets).messages()[1] == [RESPONSES[0][4:], RESPONSES[3][4:]]


@pytest.mark.parametrize("block", [1 << 20, 4])
def test_responses_to_a_first_request_that_is_damaged(block: int) -> None:
    """They wait like the later requests, which are behind a hole."""
    packets = dialogue_of(RESPONSES).packets
    damaged = packets[3]
    assert damaged.payload == REQUESTS[0]
    packets[3] = replace(damaged, seq=damaged.seq - 4)
    out = dissect(packets, packets_per_block=block)
    requests, responses = out.messages()
    assert requests[-11:] == MESSAGES[0][1:]
    assert responses[-11:] == MESSAGES[1][1:]


@pytest.mark.parametrize("left", [1, 3, 4, 13])
def test_a_first_request_with_only_its_last_bytes(left: int) -> None:
    packets = dialogue_of(RESPONSES).packets
    first = packets[3]
    assert first.payload == REQUESTS[0]
    packets[3] = replace(first, seq=first.seq - len(first.payload) + left)
    requests, responses = dissect(packets).messages()
    assert requests == MESSAGES[0][1:]
    assert responses[-11:] == MESSAGES[1][1:]


def test_messages_behind_the_uncovered_last_four_bytes_of_another_message() -> None:
    """These bytes are a valid size by chance, in a segment of its own."""
    sent = [sasl_request(each, bytes(22) + b"\0\0\1\0") for each in range(10)]
    sent[1] = sasl_request(1, bytes(150))
    covered = 4 * len(sent[2]) - 4
    dialogue, connection = Dialogue.connected()
    for number, each in enumerate(sent):
        connection.exchange(each, response(number, NO_ERROR))
    packets = [
        replace(each, seq=each.seq + covered) if each.payload == sent[1] else each
        for each in dialogue.packets
    ]
    requests = dissect(packets).messages()[0]
    assert requests == [each[4:] for each in (sent[0], sent[1], *sent[6:])]


@pytest.mark.parametrize("block", [1, 30, 1000])
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_response_between_holes_waits_for_requests_behind_a_hole(
    block: int, is_closed: bool
) -> None:
    """The hole of the client stays open for longer, since its last request is lost, too."""
    count, isolated = 60, 9
    dialogue, connection = Dialogue.connected()
    for number in range(count):
        connection.client(request(3, 1, number), sent=number not in (5, count - 1))
        connection.packet(1)
        is_lost = abs(number - isolated) == 1
        connection.broker(response(number, bytes(60)), sent=not is_lost)
    if is_closed:
        connection.packet(1, flags=FIN | ACK)
    dialogue.connect().client(request(3, 1, 1))
    out = dissect(dialogue.packets, packets_per_block=block)
    lost = {isolated - 1, isolated + 1}
    expected = [response(each, bytes(60))[4:] for each in range(count) if each not in lost]
    assert out.messages(0)[1] == expected


def test_a_last_response_behind_a_hole_if_the_client_used_reserved_ids() -> None:
    """The reserved ids of Java clients are the largest ones, and no evidence about other ids."""
    dialogue, connection = Dialogue.connected()
    numbers = [0, 2**31 - 8, 2**31 - 7, 1, 2]
    for number in numbers:
        connection.client(request(3, 1, number))
        connection.broker(response(number, NO_ERROR), sent=number != 1)
    responses = dissect(dialogue.packets).messages()[1]
    assert responses == [response(each, NO_ERROR)[4:] for each in numbers if each != 1]


@pytest.mark.parametrize("damaged", [1, 2, 5])
@pytest.mark.parametrize("inside", [8, 11, 15])
def test_a_wrong_size_whose_chain_leads_back_to_a_boundary_by_chance(
    damaged: int, inside: int
) -> None:
    """Only the correlation ids show that the messages between are not responses to requests."""
    responses = [sasl_response(each, b"\x7f" * 15) for each in range(12)]
    size = len(responses[0])
    end = damaged * size + inside
    responses[0] = (end - 4).to_bytes(4, "big") + responses[0][4:]
    by_chance = (9 * size - end - 4).to_bytes(4, "big")
    responses[damaged] = responses[damaged][:inside] + by_chance + responses[damaged][inside + 4 :]
    dialogue, connection = Dialogue.connected()
    for number, each in enumerate(responses):
        connection.exchange(sasl_request(number, b"what"), each)
    received = dissect(dialogue.packets).messages()[1]
    assert received == [each[4:] for each in responses[1:]]


@pytest.mark.parametrize("api", [3, SASL_AUTHENTICATE])
def test_a_wrong_size_that_leads_to_bytes_like_the_next_response(api: int) -> None:
    """The correlation id 9 looks like the size of a response, and the bytes behind it look like its
    id, which is the next one. Only the bodies of `SASL_AUTHENTICATE` show the opposite."""
    body = b"\0\0\0\2no\0\0\0\x0f" + b"\xff" * 15
    responses = [response(each, body) for each in range(14)]
    covered = len(b"".join(responses[1:9]))
    damaged = [responses[0], struct.pack(">i", covered) + responses[1][4:], *responses[2:]]
    dialogue, connection = Dialogue.connected()
    for number, each in enumerate(damaged):
        connection.exchange(request(api, 0, number, b"\0\0\0\4what"), each)
    out = dissect(dialogue.packets)
    assert out.messages()[1] == [each[4:] for each in [responses[0], *responses[2:]]]
    assert out.kinds() == ["bad_size"]


def test_a_candidate_in_damaged_bytes_that_covers_the_next_segment() -> None:
    responses = [response(each, b"\0\0\0\x74\0\0\0\1" * 3) for each in range(3, 15)]
    damaged = responses[0][:4] + b"\xff" + responses[0][5:]
    dialogue, connection = Dialogue.connected(handshake=False)
    for number, each in enumerate([damaged, *responses[1:]], 3):
        connection.exchange(request(3, 1, number), each)
    assert dissect(dialogue.packets).messages()[1] == [each[4:] for each in responses[1:]]


def test_many_bytes_of_a_broker_wait_for_the_first_bytes_of_its_client() -> None:
    large = [response(each, bytes(50_000)) for each in range(12)]
    packets = dialogue_of(large).packets
    assert packets[3].payload == REQUESTS[0]
    out = dissect([*packets[:3], *packets[4:]])
    assert out.messages()[1] == [each[4:] for each in large]


def test_small_numbers_behind_a_hole_if_correlation_ids_are_swapped() -> None:
    """Correlation ids far below that of the last response are not expected."""
    numbers = [1, 2, 4, 3, *range(5, 12)]
    inside = b"\xff" * 8 + b"\0\0\0\x12\0\0\0\2" + bytes(14)
    tail = b"\1\1\x09\0\0\0\1\0" + b"\xff" * 20
    dialogue, connection = Dialogue.connected()
    for number in numbers:
        connection.client(request(3, 1, number))
    for number in numbers[:-2]:
        connection.broker(response(number, NO_ERROR))
    connection.broker(response(numbers[-2], bytes(8) + inside + tail)[:16], sent=False)
    connection.broker(inside)
    connection.broker(tail)
    connection.broker(response(numbers[-1], NO_ERROR))
    received = dissect(dialogue.packets).messages()[1]
    assert received == [response(each, NO_ERROR)[4:] for each in numbers if each != numbers[-2]]


@pytest.mark.parametrize("cut", range(1, 17))
def test_a_response_that_arrives_before_its_request_with_a_lower_id(cut: int) -> None:
    """A client may send requests in another order than that of their ids. The clock of the broker
    is ahead, and the body contains zeros: those are no response with the id 0."""
    zeros = bytes(139) + (260).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes(61)
    dialogue, connection = Dialogue.connected()
    connection.client(request(3, 1, 140))
    both = response(140, NO_ERROR) + response(139, zeros)
    connection.broker_segments(both, 20)
    connection.client(request(3, 1, 139))
    out = dissect(dialogue.packets, cuts=[cut])
    assert out.messages()[1] == [response(140, NO_ERROR)[4:], response(139, zeros)[4:]]
    assert out.problems == []


@pytest.mark.parametrize("in_a_segment", [1, 2])
def test_responses_in_any_order_behind_a_hole_need_no_search_if_they_are_segments(
    in_a_segment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[int] = []
    search = resync.Search.path

    def counted(self: resync.Search, chain: list[int], place: int) -> list[resync.Node]:
        searches.append(place)
        return search(self, chain, place)

    monkeypatch.setattr(resync.Search, "path", counted)
    dialogue, connection = Dialogue.connected()
    numbers = list(range(40))
    for number in numbers:
        connection.client(sasl_request(number, b"what"))
    random.Random(1).shuffle(numbers)
    for at in range(0, len(numbers), in_a_segment):
        chosen = numbers[at : at + in_a_segment]
        sent = b"".join(sasl_response(number, b"an answer" * number) for number in chosen)
        connection.broker(sent, sent=at != 4)
    out = dissect(dialogue.packets)
    assert len(out.messages()[1]) == len(numbers) - in_a_segment
    assert (searches == []) == (in_a_segment == 1)
