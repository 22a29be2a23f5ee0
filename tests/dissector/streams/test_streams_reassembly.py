"""Rules of reassembly, one dialogue each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dissector.packets.block import FIN, RST, SYN
from tests.dissector.streams.dialogue import MS, Dialogue, Packet, dissect, request, response, split

ONE, TWO, THREE, FOUR = (request(3, 1, number, b"body" * number) for number in range(1, 5))


def counts(out, name: str) -> tuple[int, int]:
    """Of the first connection: what the client's and the broker's stream have."""
    client, broker = getattr(out.streams.connections, name)[0]
    return int(client), int(broker)


def test_segments_in_another_order():
    told = Dialogue()
    one = told.connect()
    for each in (ONE, TWO, THREE):
        one.client(each)
    told.packets[3:6] = [told.packets[5], told.packets[4], told.packets[3]]
    out = dissect(told.packets)
    assert out.messages()[0] == [ONE[4:], TWO[4:], THREE[4:]]
    assert counts(out, "out_of_order") == (2, 0)
    assert counts(out, "retransmitted") == (0, 0)


def test_a_retransmission_and_a_packet_seen_twice_are_counted_and_harmless():
    told = Dialogue()
    one = told.connect()
    one.client(ONE)
    told.packets.append(told.packets[-1])
    one.client(TWO)
    one.again(0, ONE + TWO, len(ONE + TWO))
    out = dissect(told.packets)
    assert out.messages()[0] == [ONE[4:], TWO[4:]]
    assert counts(out, "retransmitted") == (2, 0)


def test_a_retransmission_with_new_bytes_behind():
    told = Dialogue()
    one = told.connect()
    one.client(ONE)
    one.again(0, ONE + TWO, len(ONE))
    out = dissect(told.packets)
    assert out.messages()[0] == [ONE[4:], TWO[4:]]
    assert counts(out, "retransmitted") == (0, 0)


def test_keep_alive_probes_with_and_without_a_byte():
    told = Dialogue()
    one = told.connect()
    one.client(ONE)
    one.again(0, b"", 1)
    one.again(0, b"\0", 1)
    one.client(TWO)
    out = dissect(told.packets)
    assert out.messages()[0] == [ONE[4:], TWO[4:]]
    assert out.problems == []


def test_the_first_copy_wins_though_the_later_one_begins_before_it():
    told = Dialogue()
    one = told.connect()
    first = request(3, 1, 1, b"aaaabbbbcccc")
    one.client(first)
    whole = told.packets.pop()
    early = replace(whole, seq=whole.seq + 20, payload=b"BBBB")
    told.packets += [early, whole]
    expected = first[:20] + b"BBBB" + first[24:]
    assert dissect(told.packets).messages()[0] == [expected[4:]]
    assert dissect(told.packets, cuts=[4]).messages()[0] == [expected[4:]]


def test_a_size_that_comes_alone():
    told = Dialogue()
    one = told.connect()
    one.client(ONE[:4])
    one.client(ONE[4:])
    one.broker(response(1)[:3])
    one.broker(response(1)[3:])
    for cuts in ([], [4], [4, 6], [3, 4, 5, 6]):
        out = dissect(told.packets, cuts=cuts)
        assert out.messages() == ([ONE[4:]], [response(1)[4:]])
        first = out.frames[0]
        assert (first.packet, first.end_time - first.time) == (4, MS)


def test_a_lost_packet_costs_the_frames_it_touches():
    told = Dialogue()
    one = told.connect()
    one.client(ONE)
    one.client(TWO, sent=False)
    one.client(THREE)
    out = dissect(told.packets)
    assert out.messages()[0] == [ONE[4:], THREE[4:]]
    assert counts(out, "lost") == (len(TWO), 0)
    (lost,) = (each for each in out.problems if each.kind == "lost_bytes")
    assert (lost.stage, lost.bytes, lost.connection_id) == ("streams", len(TWO), 0)


def test_a_hole_inside_a_frame_leaves_the_chain_whole():
    told = Dialogue()
    one = told.connect()
    long = request(0, 3, 2, bytes(range(256)) * 12)
    one.client(long[:1000])
    one.client(long[1000:2000], sent=False)
    one.client(long[2000:])
    one.client(THREE)
    out = dissect(told.packets)
    assert [(each.size, len(each.message)) for each in out.frames] == [
        (len(long) - 4, 996), (len(THREE) - 4, len(THREE) - 4)
    ]  # fmt: skip
    assert out.frames[0].message == long[4:1000]
    assert out.kinds() == ["lost_bytes"]


def test_an_acknowledged_hole_is_waited_for_a_second():
    told = Dialogue()
    one = told.connect()
    one.client(ONE, sent=False)
    one.client(TWO)
    one.broker(response(1))
    told.wait(1500)
    one.broker(response(2))
    told.wait(1500)
    one.broker(response(3))
    out = dissect(told.packets, cuts=range(1, len(told.packets)))
    (frame,) = (each for each in out.frames if each.is_request)
    assert frame.message == TWO[4:]


def test_a_hole_that_nobody_acknowledges_is_waited_for_half_a_minute():
    told = Dialogue()
    one = told.connect()
    one.client(ONE)
    late = len(told.packets)
    one.client(TWO)
    one.client(THREE)
    told.wait(20_000)
    packets = told.packets
    missing = packets.pop(late)
    packets.append(replace(missing, time=told.now))
    out = dissect(packets, cuts=range(1, len(packets)))
    assert out.messages()[0] == [ONE[4:], TWO[4:], THREE[4:]]
    assert [each.time for each in out.frames][1:] == [told.now, told.now]
    assert out.problems == []


def test_too_much_behind_a_hole_is_not_waited_for():
    told = Dialogue()
    one = told.connect()
    one.client(ONE, sent=False)
    long = request(0, 3, 2, bytes(60_000))
    for _ in range(200):
        one.client(long)
    out = dissect(told.packets, cuts=range(10, 203, 10))
    assert len(out.messages()[0]) == 200
    assert out.reserved < 10 << 20


def test_a_stream_ends_with_its_fin():
    told = Dialogue()
    one = told.connect()
    one.client(ONE)
    one.client(TWO[:10])
    one.fin()
    other = told.connect()
    told.wait(10)
    other.client(ONE)
    other.client(TWO)
    cut = len(told.packets) - 2
    out = dissect(told.packets, cuts=[cut])
    broken = next(each for each in out.frames if len(each.message) < each.size)
    assert (broken.message, broken.size) == (TWO[4:10], len(TWO) - 4)
    assert out.frames.index(broken) == 1, "it comes with the block of the FIN"


def test_data_behind_a_rst_still_counts():
    told = Dialogue()
    one = told.connect()
    one.client(ONE)
    one.rst(1)
    one.client(TWO)
    out = dissect(told.packets)
    assert out.messages()[0] == [ONE[4:], TWO[4:]]
    assert out.streams.connections.count == 1
    assert out.streams.connections.closed[0] == 2


def test_over_the_wrap_of_sequence_numbers():
    told = Dialogue()
    one = told.connect(isn=(2**32 - 20, 2**32 - 5))
    for each in (ONE, TWO, THREE):
        one.client(each)
        one.broker(response(1))
    for packets in (told.packets, split(told.packets, 1)):
        assert dissect(packets).messages() == (
            [ONE[4:], TWO[4:], THREE[4:]], [response(1)[4:]] * 3
        )  # fmt: skip


def test_a_stream_beyond_four_gibibytes_of_which_little_was_captured():
    """65,000 bytes a packet, 96 of them captured: in a block, a stream goes round and round."""
    told = Dialogue()
    told.connect()
    size = 65_000
    count = 70_000
    message = request(0, 3, 1, bytes(size - 21))[:96]
    first = told.packets[2]
    head = (size - 4).to_bytes(4, "big") + message[4:]

    class Long(bytes):
        """Bytes of which only the first are there."""

        def __len__(self) -> int:
            return size

    packets = list(told.packets)
    packets += [
        replace(
            first, seq=(first.seq + index * size) % 2**32, payload=Long(head), cut=96,
            time=first.time + index, number=4 + index,
        )
        for index in range(count)
    ]  # fmt: skip
    out = dissect(packets)
    assert len(out.frames) == count
    assert {(each.size, len(each.message)) for each in out.frames} == {(size - 4, 92)}
    assert counts(out, "cut") == (count * (size - 96), 0)
    assert out.kinds() == ["cut_packets"]


def test_cut_packets_give_what_is_there():
    told = Dialogue()
    one = told.connect()
    one.client(request(3, 1, 1, bytes(500)), cut=60)
    one.client(request(3, 1, 2, bytes(500)), cut=60)
    one.broker(response(1, bytes(700)), cut=60)
    out = dissect(told.packets)
    assert [len(each.message) for each in out.frames] == [56, 56, 56]
    assert out.kinds() == ["cut_packets", "cut_packets"], "once for each stream"
    assert counts(out, "lost") == (0, 0)
    assert counts(out, "cut") == (2 * (516 - 60), 708 - 60)


def test_a_segment_that_cannot_be_of_the_stream_does_no_harm():
    told = Dialogue()
    one = told.connect()
    one.client(ONE)
    good = told.packets[-1]
    for ahead in (300_000_000, 1_900_000_000, 2_500_000_000):
        told.packets.append(replace(good, seq=(good.seq + ahead) % 2**32, payload=b"?" * 50))
    for number in range(50):
        told.wait(1000)
        one.client(request(3, 1, number))
        one.broker(response(number))
    packets = told.packets
    out = dissect(packets, cuts=range(5, len(packets), 5))
    assert [len(each) for each in out.messages()] == [51, 50]


def test_times_that_go_backwards_do_no_harm():
    told = Dialogue()
    one = told.connect()
    for number in range(20):
        one.client(request(3, 1, number))
        one.broker(response(number))
    packets = [
        replace(each, time=each.time - (index % 5) * 3_600 * 10**9)
        for index, each in enumerate(told.packets)
    ]
    out = dissect(packets, cuts=range(3, len(packets), 3))
    assert [len(each) for each in out.messages()] == [20, 20]
    assert out.problems == []


def test_one_time_in_the_far_future_does_not_end_all_waiting():
    told = Dialogue()
    one = told.connect()
    one.client(ONE)
    one.client(TWO)
    one.client(THREE)
    packets = told.packets
    packets[3] = replace(packets[3], time=packets[3].time * 2)
    packets[4], packets[5] = packets[5], packets[4]
    out = dissect(packets, cuts=[1, 2, 3, 4, 5])
    assert out.messages()[0] == [ONE[4:], TWO[4:], THREE[4:]]


def test_a_large_frame_over_many_blocks():
    told = Dialogue()
    one = told.connect()
    large = request(0, 3, 1, bytes(range(256)) * 40_000)
    for at in range(0, len(large), 1000):
        one.client(large[at : at + 1000])
    one.client(TWO)
    out = dissect(told.packets, cuts=range(100, len(told.packets), 100))
    assert out.messages()[0] == [large[4:], TWO[4:]]


def test_the_memory_budget_holds_and_what_is_given_up_is_told():
    told = Dialogue()
    every = [told.connect() for _ in range(40)]
    for one in every:
        large = request(0, 3, 1, bytes(1 << 20))
        for at in range(0, 1 << 19, 1 << 15):
            one.client(large[at : at + (1 << 15)])
    packets = told.packets
    out = dissect(packets, cuts=range(20, len(packets), 20), memory=8 << 20)
    assert out.reserved <= (2 << 20) + 20 * (1 << 15)
    assert len(out.frames) == 40
    assert out.kinds().count("memory") >= 30
    every[0].client(large[1 << 19 :])
    every[0].client(TWO)
    again = dissect(told.packets, cuts=range(20, len(packets), 20), memory=8 << 20)
    assert TWO[4:] in again.messages()[0], "the chain goes on behind a frame that was given up"


@pytest.mark.parametrize("flags", [SYN | FIN, SYN | RST, FIN | RST, 0xFF, 0])
def test_strange_flags_do_no_harm(flags):
    told = Dialogue()
    one = told.connect()
    one.client(ONE)
    one.packet(0, b"", flags=flags)
    other: Packet = replace(
        told.packets[-1],
        source=told.packets[-1].target,
        target=told.packets[-1].source,
        flags=flags,
    )
    told.packets += [other, replace(other, payload=b"x" * 9)]
    dissect(told.packets, cuts=[2, 4])
