"""One damaged packet costs what it carried, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.dissector.streams.dialogue import (
    NO_ERROR,
    Dialogue,
    answer,
    asked,
    dissect,
    request,
    response,
)

ASKED = [asked(number, b"what") for number in range(12)]
ANSWERS = [answer(number, b"an answer" * number) for number in range(12)]


def told(answers: list[bytes]) -> Dialogue:
    """Requests with these answers, each acknowledged; of each exchange three packets."""
    dialogue = Dialogue()
    one = dialogue.connect()
    for ask, reply in zip(ASKED, answers, strict=True):
        one.client(ask)
        one.packet(1)
        one.broker(reply)
    return dialogue


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("announced", [10, 300, 65_000])
def test_a_packet_that_says_to_be_longer_than_it_is(end: int, announced: int) -> None:
    packets = told(ANSWERS).packets
    for index, packet in enumerate(packets[3:], 3):
        if packet.source[1] == (9092 if end else 40001) and index < len(packets) - 2:
            longer = replace(
                packet, payload=packet.payload + bytes(announced), cut=len(packet.payload)
            )
            out = dissect([*packets[:index], longer, *packets[index + 1 :]])
            assert out.messages() == ([each[4:] for each in ASKED], [each[4:] for each in ANSWERS])


def test_zeros_behind_a_hole_are_no_responses() -> None:
    zeros = response(1, b"\0\0\0\4" + bytes(4) + b"\0\0\0\4" + bytes(70))
    answers = [ANSWERS[0], zeros, *ANSWERS[2:]]
    packets = told(answers).packets
    index = next(at for at, packet in enumerate(packets) if packet.payload == zeros)
    out = dissect(
        [*packets[:index], replace(packets[index], payload=zeros[8:],
         seq=packets[index].seq + 8), *packets[index + 1 :]]
    )  # fmt: skip
    assert out.messages()[1] == [each[4:] for each in (answers[0], *answers[2:])]


@pytest.mark.parametrize("order", [(1, 2, 0), (7, 3, 5)])
def test_a_response_behind_a_hole_whose_client_does_not_count_upwards(order) -> None:
    dialogue = Dialogue()
    one = dialogue.connect()
    for number in order:
        one.client(request(3, 1, number))
        one.broker(response(number, NO_ERROR), sent=number != order[1])
    out = dissect(dialogue.packets)
    assert out.messages()[1] == [response(each, NO_ERROR)[4:] for each in (order[0], order[2])]


@pytest.mark.parametrize("flipped", [*range(10), 100])
@pytest.mark.parametrize("block", [1 << 20, 4])
def test_a_first_request_that_is_damaged(flipped: int, block: int) -> None:
    """Byte for byte of its head, or all of it."""
    damaged = bytearray(ASKED[0])
    for at in range(len(damaged)) if flipped == 100 else (flipped,):
        damaged[at] ^= 0xFF
    packets = told(ANSWERS).packets
    packets[3] = replace(packets[3], payload=bytes(damaged))
    out = dissect(packets, cuts=range(block, len(packets), block))
    requests, responses = out.messages()
    assert requests[-11:] == [each[4:] for each in ASKED[1:]]
    assert responses[-11:] == [each[4:] for each in ANSWERS[1:]]


@pytest.mark.parametrize("wrong", [1 << 24, 1 << 16, 1 << 8, 1])
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("ahead", [1, -1])
def test_an_initial_sequence_number_that_is_damaged(wrong: int, end: int, ahead: int) -> None:
    packets = told(ANSWERS).packets
    syn = packets[end]
    packets[end] = replace(syn, seq=(syn.seq + ahead * wrong) % 2**32)
    out = dissect(packets)
    assert out.messages() == ([each[4:] for each in ASKED], [each[4:] for each in ANSWERS])
    assert out.problems == []


@pytest.mark.parametrize("wrong", [1 << 24, 1 << 8, 1])
@pytest.mark.parametrize("ahead", [1, -1])
def test_an_initial_sequence_number_that_is_damaged_where_only_one_end_is_there(
    wrong: int, ahead: int
) -> None:
    client, *rest = (each for each in told(ANSWERS).packets if each.source[1] == 40001)
    damaged = replace(client, seq=(client.seq + ahead * wrong) % 2**32)
    out = dissect([damaged, *rest])
    assert out.messages() == ([each[4:] for each in ASKED], [])
    assert out.problems == []


@pytest.mark.parametrize("wrong", [1 << 31, 1 << 16, 1])
def test_an_answer_to_a_syn_that_acknowledges_what_was_not_sent(wrong: int) -> None:
    packets = told(ANSWERS).packets
    packets[1] = replace(packets[1], ack=packets[1].ack ^ wrong)
    out = dissect(packets)
    assert out.messages() == ([each[4:] for each in ASKED], [each[4:] for each in ANSWERS])


def test_packets_of_one_end_in_another_order_are_no_damaged_syn() -> None:
    packets = [each for each in told(ANSWERS).packets if each.source[1] == 40001]
    syn, answer, first, acknowledgement, second, *rest = packets
    out = dissect([syn, acknowledgement, second, first, answer, *rest])
    assert out.messages()[0] == [each[4:] for each in ASKED]


def test_a_first_request_that_is_lost_is_no_damaged_syn() -> None:
    packets = [each for each in told(ANSWERS).packets if each.source[1] == 40001]
    assert packets[2].payload == ASKED[0]
    out = dissect([*packets[:2], *packets[3:]])
    assert out.messages()[0] == [each[4:] for each in ASKED[1:]]
    assert int(out.streams.connections.lost.sum()) == len(ASKED[0])


def test_a_first_answer_that_is_lost_is_no_damaged_syn() -> None:
    packets = told(ANSWERS).packets
    assert packets[5].payload == ANSWERS[0]
    out = dissect([*packets[:5], *packets[6:]])
    assert out.messages()[1] == [each[4:] for each in ANSWERS[1:]]
    assert int(out.streams.connections.lost.sum()) == len(ANSWERS[0])


def test_a_first_request_that_nobody_knows_at_a_broker_found_in_the_same_block() -> None:
    dialogue = Dialogue()
    broker = dialogue.connect().ends[1][0], 19092
    for api in (237, 3):
        one = dialogue.connect(broker=broker)
        one.client(request(api, 1, 1))
        one.broker(response(1, NO_ERROR))
    out = dissect(dialogue.packets)
    assert [len(each) for each in out.messages()] == [2, 2]


@pytest.mark.parametrize("size", [2_000, 65_000, 16 << 20])
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("block", [1 << 20, 7, 2])
def test_a_size_that_reaches_over_what_follows(
    end: int, number: int, size: int, block: int
) -> None:
    said = [list(ASKED), list(ANSWERS)]
    wrong = size.to_bytes(4, "big") + said[end][number][4:]
    dialogue = Dialogue()
    one = dialogue.connect()
    for at in range(len(ASKED)):
        for each in (0, 1):
            one.packet(each, wrong if (each, at) == (end, number) else said[each][at])
    out = dissect(dialogue.packets, cuts=range(block, len(dialogue.packets), block))
    del said[end][number]
    assert out.messages() == tuple([each[4:] for each in some] for some in said)
    assert out.kinds() == ["bad_size"]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("end", [0, 1])
def test_a_size_that_reaches_into_what_follows(number: int, end: int) -> None:
    """There a size is read that cannot be."""
    dialogue = Dialogue()
    one = dialogue.connect()
    said = [[asked(each, b"\xff" * 200) for each in range(4)],
            [answer(each, b"\xff" * 200) for each in range(4)]]  # fmt: skip
    wrong = (len(said[end][number]) + 50).to_bytes(4, "big") + said[end][number][4:]
    for at in range(4):
        for each in (0, 1):
            one.packet(each, wrong if (each, at) == (end, number) else said[each][at])
    out = dissect(dialogue.packets)
    del said[end][number]
    assert out.messages() == tuple([each[4:] for each in some] for some in said)
    assert out.kinds() == ["bad_size"]


def test_a_size_that_reaches_over_the_last_response() -> None:
    """That one has no other behind it which tells the same."""
    dialogue = Dialogue()
    one = dialogue.connect()
    for number in range(2):
        one.client(ASKED[number])
    one.broker((65_000).to_bytes(4, "big") + ANSWERS[0][4:])
    one.broker(ANSWERS[1])
    out = dissect(dialogue.packets)
    assert out.messages()[1] == [ANSWERS[1][4:]]
    assert out.kinds() == ["bad_size"]


@pytest.mark.parametrize("cut", [5, 40, 1_000])
def test_a_message_of_which_the_end_is_missing_is_cut_and_no_more(cut: int) -> None:
    dialogue = told([*ANSWERS[:-1], response(11, b"\0\0\0\1" * 1_000)])
    last = dialogue.packets[-1]
    out = dissect([*dialogue.packets[:-1], replace(last, payload=last.payload[:cut])])
    assert out.kinds() == ["cut_message"]
    assert out.frames[-1].message == last.payload[4:cut]


@pytest.mark.parametrize("last_byte", range(0, 256, 5))
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("number", [0, 4])
def test_any_wrong_size_among_small_messages(end: int, number: int, last_byte: int) -> None:
    """Behind it some bytes are sizes by chance, and the last of them may reach the end. One that
    ends where another message does says nothing."""
    said = [[asked(each, bytes(22)) for each in range(14)],
            [answer(each, bytes(11)) for each in range(14)]]  # fmt: skip
    wrong = bytearray(said[end][number])
    last_byte += (4 + last_byte) % len(wrong) == 0
    wrong[3] = last_byte
    dialogue = Dialogue()
    one = dialogue.connect()
    for at in range(len(said[0])):
        for each in (0, 1):
            one.packet(each, bytes(wrong) if (each, at) == (end, number) else said[each][at])
    found = dissect(dialogue.packets).messages()
    del said[end][number]
    for mine, messages in zip(found, said, strict=True):
        assert {each[4:] for each in messages} <= {*mine}


def test_a_whole_request_between_a_hole_and_a_damaged_one() -> None:
    dialogue = Dialogue()
    one = dialogue.connect()
    for number, each in enumerate(ASKED):
        damaged = each[:4] + bytes(byte ^ 0xFF for byte in each[4:])
        one.client(damaged if number == 3 else each, sent=number != 1)
    found = dissect(dialogue.packets).messages()[0]
    assert {each[4:] for at, each in enumerate(ASKED) if at not in (1, 3)} <= {*found}


def test_small_numbers_within_a_response_are_no_response() -> None:
    """A size of 53,764 and the awaited correlation id, as fields that stand side by side."""
    dialogue = Dialogue()
    one = dialogue.connect()
    large = response(1, b"\0\0\xd2\x04\0\0\0\x02\xff" * 400)
    for number in (1, 2):
        one.client(ASKED[number])
    one.broker(large[:74], sent=False)
    one.broker(large[74:])
    one.broker(ANSWERS[2])
    assert dissect(dialogue.packets).messages()[1] == [ANSWERS[2][4:]]


@pytest.mark.parametrize("end", [0, 1])
def test_a_size_that_ends_four_bytes_before_what_follows(end: int) -> None:
    """The last four bytes of that message are a size by chance."""
    by_chance = b"\0\0\1\0"
    said = [[asked(each, bytes(22) + by_chance) for each in range(8)],
            [answer(each, bytes(11) + by_chance) for each in range(8)]]  # fmt: skip
    wrong = (len(said[end][2]) - 8).to_bytes(4, "big") + said[end][2][4:]
    dialogue = Dialogue()
    one = dialogue.connect()
    for at in range(8):
        for each in (0, 1):
            one.packet(each, wrong if (each, at) == (end, 2) else said[each][at])
    found = dissect(dialogue.packets).messages()
    del said[end][2]
    for mine, messages in zip(found, said, strict=True):
        assert {each[4:] for each in messages} <= {*mine}


def test_responses_behind_a_hole_in_a_message_whose_size_is_wrong() -> None:
    """They wait for the hole to be filled until the capture ends."""
    dialogue = Dialogue()
    one = dialogue.connect()
    for each in ASKED[:4]:
        one.client(each)
    one.broker(ANSWERS[0])
    one.broker((65_000).to_bytes(4, "big") + ANSWERS[1][4:])
    one.broker(ANSWERS[2], sent=False)
    one.broker(ANSWERS[3])
    assert dissect(dialogue.packets).messages()[1] == [ANSWERS[0][4:], ANSWERS[3][4:]]


@pytest.mark.parametrize("block", [1 << 20, 4])
def test_responses_whose_first_request_comes_to_nothing(block: int) -> None:
    """They wait with the other requests, which a hole holds up."""
    packets = told(ANSWERS).packets
    damaged = packets[3]
    assert damaged.payload == ASKED[0]
    packets[3] = replace(damaged, seq=damaged.seq - 4)
    out = dissect(packets, cuts=range(block, len(packets), block))
    requests, responses = out.messages()
    assert requests[-11:] == [each[4:] for each in ASKED[1:]]
    assert responses[-11:] == [each[4:] for each in ANSWERS[1:]]


@pytest.mark.parametrize("left", [1, 3, 4, 13])
def test_a_first_request_of_which_a_few_bytes_are_left(left: int) -> None:
    packets = told(ANSWERS).packets
    first = packets[3]
    assert first.payload == ASKED[0]
    packets[3] = replace(first, seq=first.seq - len(first.payload) + left)
    requests, responses = dissect(packets).messages()
    assert requests == [each[4:] for each in ASKED[1:]]
    assert responses[-11:] == [each[4:] for each in ANSWERS[1:]]


def test_what_follows_the_last_four_bytes_of_a_message_that_another_covers() -> None:
    """These are a size by chance, as if it travelled alone."""
    said = [asked(each, bytes(22) + b"\0\0\1\0") for each in range(10)]
    said[1] = asked(1, bytes(150))
    covered = 4 * len(said[2]) - 4
    dialogue = Dialogue()
    one = dialogue.connect()
    for number, each in enumerate(said):
        one.client(each)
        one.broker(response(number, NO_ERROR))
    packets = [
        replace(each, seq=each.seq + covered) if each.payload == said[1] else each
        for each in dialogue.packets
    ]
    requests = dissect(packets).messages()[0]
    assert requests == [each[4:] for each in (said[0], said[1], *said[6:])]


def test_a_last_response_behind_a_hole_whose_client_also_said_sasl() -> None:
    """Java's numbers for that are the largest there are, and say nothing of others."""
    dialogue = Dialogue()
    one = dialogue.connect()
    numbers = [0, 2**31 - 8, 2**31 - 7, 1, 2]
    for number in numbers:
        one.client(request(3, 1, number))
        one.broker(response(number, NO_ERROR), sent=number != 1)
    responses = dissect(dialogue.packets).messages()[1]
    assert responses == [response(each, NO_ERROR)[4:] for each in numbers if each != 1]


@pytest.mark.parametrize("damaged", [1, 2, 5])
@pytest.mark.parametrize("inside", [8, 11, 15])
def test_a_wrong_size_behind_which_chance_leads_back_to_a_boundary(
    damaged: int, inside: int
) -> None:
    """Then only a correlation id tells that nobody asked for what was read between."""
    answers = [answer(each, b"\x7f" * 15) for each in range(12)]
    size = len(answers[0])
    end = damaged * size + inside
    answers[0] = (end - 4).to_bytes(4, "big") + answers[0][4:]
    by_chance = (9 * size - end - 4).to_bytes(4, "big")
    answers[damaged] = answers[damaged][:inside] + by_chance + answers[damaged][inside + 4 :]
    dialogue = Dialogue()
    one = dialogue.connect()
    for number, each in enumerate(answers):
        one.client(asked(number, b"what"))
        one.broker(each)
    found = dissect(dialogue.packets).messages()[1]
    assert found == [each[4:] for each in answers[1:]]


def test_a_place_among_damaged_bytes_that_reaches_over_the_next_segment() -> None:
    answers = [response(each, b"\0\0\0\x74\0\0\0\1" * 3) for each in range(3, 15)]
    damaged = answers[0][:4] + b"\xff" + answers[0][5:]
    dialogue = Dialogue()
    one = dialogue.connect(handshake=False)
    for number, each in enumerate([damaged, *answers[1:]], 3):
        one.client(request(3, 1, number))
        one.broker(each)
    assert dissect(dialogue.packets).messages()[1] == [each[4:] for each in answers[1:]]


def test_many_bytes_of_a_broker_wait_for_the_beginning_of_its_client() -> None:
    large = [response(each, bytes(50_000)) for each in range(12)]
    packets = told(large).packets
    assert packets[3].payload == ASKED[0]
    out = dissect([*packets[:3], *packets[4:]])
    assert out.messages()[1] == [each[4:] for each in large]


def test_a_syn_is_lost_before_a_request_that_nobody_knows() -> None:
    """Its answer tells where the client begins, and so that this is a request."""
    dialogue = Dialogue()
    one = dialogue.connect()
    unknown = request(18, 99, 1, b"what")
    one.client(unknown)
    one.broker(response(1, NO_ERROR))
    out = dissect(dialogue.packets[1:])
    assert out.messages() == ([unknown[4:]], [response(1, NO_ERROR)[4:]])


def test_small_numbers_behind_a_hole_whose_client_is_out_of_order_by_one() -> None:
    """Of its correlation ids, those far below the last one answered do not come again."""
    numbers = [1, 2, 4, 3, *range(5, 12)]
    inside = b"\xff" * 8 + b"\0\0\0\x12\0\0\0\2" + bytes(14)
    tail = b"\1\1\x09\0\0\0\1\0" + b"\xff" * 20
    dialogue = Dialogue()
    one = dialogue.connect()
    for number in numbers:
        one.client(request(3, 1, number))
    for number in numbers[:-2]:
        one.broker(response(number, NO_ERROR))
    one.broker(response(numbers[-2], bytes(8) + inside + tail)[:16], sent=False)
    one.broker(inside)
    one.broker(tail)
    one.broker(response(numbers[-1], NO_ERROR))
    found = dissect(dialogue.packets).messages()[1]
    assert found == [response(each, NO_ERROR)[4:] for each in numbers if each != numbers[-2]]


@pytest.mark.parametrize("handshake", [True, False])
@pytest.mark.parametrize("end", [0, 1])
def test_a_damaged_sequence_number_in_the_first_segment(handshake: bool, end: int) -> None:
    dialogue = Dialogue()
    one = dialogue.connect(handshake=handshake, isn=(0x34000000, 0x34100000))
    for ask, reply in zip(ASKED, ANSWERS, strict=True):
        one.client(ask)
        one.broker(reply)
    packets = list(dialogue.packets)
    port = 9092 if end else 40001
    index = next(at for at, each in enumerate(packets) if each.source[1] == port and each.payload)
    packets[index] = replace(packets[index], seq=packets[index].seq ^ 0xFF000000)
    messages = dissect(packets).messages()
    kept = [[each[4:] for each in ASKED], [each[4:] for each in ANSWERS]]
    kept[end] = kept[end][1:]
    assert [list(each)[-len(kept[side]) :] for side, each in enumerate(messages)] == kept
