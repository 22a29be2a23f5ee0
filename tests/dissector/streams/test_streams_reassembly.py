"""Rules of reassembly, one dialogue per rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from dissector.packets.block import ACK, FIN, RST, SYN
from dissector.streams import Streams
from dissector.tables.connections import CLOSED
from tests.dissector.streams.dialogue import (
    MS,
    NEWEST,
    Dialogue,
    Packet,
    block,
    body_end,
    dissect,
    request,
    response,
    split,
)

ONE, TWO, THREE, FOUR = (request(3, 1, number, b"body" * number) for number in range(1, 5))


def counts(out, name: str) -> tuple[int, int]:
    """Counts of the first connection: of the client's stream and of the broker's."""
    client, broker = getattr(out.streams.connections, name)[0]
    return int(client), int(broker)


def test_reordered_segments():
    dialogue, connection = Dialogue.connected()
    for each in (ONE, TWO, THREE):
        connection.client(each)
    dialogue.packets[3:6] = [dialogue.packets[5], dialogue.packets[4], dialogue.packets[3]]
    out = dissect(dialogue.packets)
    assert out.messages()[0] == [ONE[4:], TWO[4:], THREE[4:]]
    assert counts(out, "out_of_order") == (2, 0)
    assert counts(out, "retransmitted") == (0, 0)


def test_retransmissions_and_duplicates_are_counted():
    dialogue, connection = Dialogue.connected()
    connection.client(ONE)
    dialogue.packets.append(dialogue.packets[-1])
    connection.client(TWO)
    connection.retransmit(0, ONE + TWO, len(ONE + TWO))
    out = dissect(dialogue.packets)
    assert out.messages()[0] == [ONE[4:], TWO[4:]]
    assert counts(out, "retransmitted") == (2, 0)


@pytest.mark.parametrize("cuts", [[], [5]])
def test_an_overlap_counts_alike_wherever_a_block_ends(cuts):
    """The second segment loses its first bytes, and waits for the rest of the message."""
    message = request(3, 1, 1, b"body" * 25)
    dialogue, connection = Dialogue.connected()
    for begin, end in ((0, 40), (0, 60), (20, len(message))):
        connection.seq[0] = 1001 + begin
        connection.client(message[begin:end])
    connection.client(TWO)
    out = dissect(dialogue.packets, cuts=cuts)
    assert out.messages()[0] == [message[4:], TWO[4:]]
    assert counts(out, "out_of_order") == (0, 0)


def test_a_retransmission_with_new_bytes_behind():
    dialogue, connection = Dialogue.connected()
    connection.client(ONE)
    connection.retransmit(0, ONE + TWO, len(ONE))
    out = dissect(dialogue.packets)
    assert out.messages()[0] == [ONE[4:], TWO[4:]]
    assert counts(out, "retransmitted") == (0, 0)


@pytest.mark.parametrize("packets_per_block", [1, 2, 3, 100])
@pytest.mark.parametrize("byte", [b"", b"\0", ONE[-1:]])
@pytest.mark.parametrize("isn", [1000, 2**32 - len(ONE) - 2, 2**32 - 1])
def test_keep_alives_are_no_retransmissions(byte: bytes, isn: int, packets_per_block: int):
    """A sender may repeat a byte that was acknowledged, or send any byte in its place (RFC 9293,
    section 3.8.4), also before all data."""
    dialogue, connection = Dialogue.connected(isn=(isn, 5000))
    for message in (ONE, TWO, THREE):
        for _ in range(3):
            dialogue.wait(75_000)
            connection.retransmit(0, byte, 1)
            connection.packet(1)
        connection.client(message)
    connection.retransmit(0, THREE, len(THREE))
    connection.retransmit(0, byte, 1)
    out = dissect(dialogue.packets, packets_per_block=packets_per_block)
    assert out.messages()[0] == [ONE[4:], TWO[4:], THREE[4:]]
    assert out.problems == []
    assert counts(out, "retransmitted") == (1, 0)
    assert counts(out, "out_of_order") == (0, 0)


@pytest.mark.parametrize("packets_per_block", [1, 2, 100])
def test_a_keep_alive_behind_a_hole(packets_per_block: int):
    dialogue, connection = Dialogue.connected()
    connection.client(ONE)
    connection.client(TWO, sent=False)
    connection.client(THREE)
    connection.retransmit(0, b"\0", 1)
    connection.client(FOUR)
    out = dissect(dialogue.packets, packets_per_block=packets_per_block)
    assert out.messages()[0] == [ONE[4:], THREE[4:], FOUR[4:]]
    assert counts(out, "retransmitted") == (0, 0)


@pytest.mark.parametrize("is_accepted", [False, True])
@pytest.mark.parametrize("packets_per_block", [1, 2, 100])
def test_probes_of_a_zero_window_are_no_retransmissions(is_accepted: bool, packets_per_block: int):
    """A sender with data sends its next byte, again and again (RFC 9293, section 3.8.6.1). Unless
    the receiver accepts the byte, it comes again with the data behind it."""
    dialogue, connection = Dialogue.connected()
    connection.client(ONE)
    for back in (0, 1, 1):
        connection.retransmit(0, TWO[:1], back)
        connection.seq[0] += not back
        connection.packet(1)
    connection.seq[0] -= not is_accepted
    connection.client(TWO[is_accepted:])
    connection.retransmit(0, TWO, len(TWO))
    out = dissect(dialogue.packets, packets_per_block=packets_per_block)
    assert out.messages()[0] == [ONE[4:], TWO[4:]]
    assert out.problems == []
    assert counts(out, "retransmitted") == (1, 0)


def test_the_first_copy_wins_if_a_later_one_begins_before_it():
    dialogue, connection = Dialogue.connected()
    first = request(3, 1, 1, b"aaaabbbbcccc")
    connection.client(first)
    whole = dialogue.packets.pop()
    early = replace(whole, seq=whole.seq + 20, payload=b"BBBB")
    dialogue.packets += [early, whole]
    expected = first[:20] + b"BBBB" + first[24:]
    assert dissect(dialogue.packets).messages()[0] == [expected[4:]]
    assert dissect(dialogue.packets, cuts=[4]).messages()[0] == [expected[4:]]


@pytest.mark.parametrize("cut", range(1, 7))
def test_positions_count_from_the_syn_wherever_it_arrives(cut: int):
    dialogue, connection = Dialogue.connected()
    connection.exchange(ONE, response(1))
    connection.client(TWO)
    connection.broker(response(2)[:6])  # incomplete
    syn, syn_ack, ack, sent, answer, *later = dialogue.packets
    out = dissect([syn, ack, sent, later[-1], syn_ack, answer, later[0]], cuts=[cut])
    assert next(each.message for each in out.frames if not each.is_request) == response(1)[4:]
    assert [(each.kind, each.offset) for each in out.problems] == [("cut_message", 8)]


def test_a_size_in_a_segment_of_its_own():
    dialogue, connection = Dialogue.connected()
    connection.client(ONE[:4])
    connection.exchange(ONE[4:], response(1)[:3])
    connection.broker(response(1)[3:])
    for cuts in ([], [4], [4, 6], [3, 4, 5, 6]):
        out = dissect(dialogue.packets, cuts=cuts)
        assert out.messages() == ([ONE[4:]], [response(1)[4:]])
        first = out.frames[0]
        assert (first.packet, first.end_time - first.time) == (4, MS)


def test_a_lost_packet_costs_the_frames_it_touches():
    dialogue, connection = Dialogue.connected()
    connection.client(ONE)
    connection.client(TWO, sent=False)
    connection.client(THREE)
    out = dissect(dialogue.packets)
    assert out.messages()[0] == [ONE[4:], THREE[4:]]
    assert counts(out, "lost") == (len(TWO), 0)
    (lost,) = (each for each in out.problems if each.kind == "lost_bytes")
    assert (lost.stage, lost.bytes, lost.connection_id) == ("streams", len(TWO), 0)


def test_a_hole_inside_a_frame_leaves_the_chain_whole():
    dialogue, connection = Dialogue.connected()
    long = request(0, 3, 2, bytes(range(256)) * 12)
    connection.client(long[:1000])
    connection.client(long[1000:2000], sent=False)
    connection.client(long[2000:])
    connection.client(THREE)
    out = dissect(dialogue.packets)
    assert [(each.size, len(each.message)) for each in out.frames] == [
        (len(long) - 4, 996), (len(THREE) - 4, len(THREE) - 4)
    ]  # fmt: skip
    assert out.frames[0].message == long[4:1000]
    assert out.kinds() == ["lost_bytes"]


def test_an_acknowledged_hole_is_waited_for_a_second():
    dialogue, connection = Dialogue.connected()
    connection.client(ONE, sent=False)
    connection.exchange(TWO, response(1))
    dialogue.wait(1500)
    connection.broker(response(2))
    dialogue.wait(1500)
    connection.broker(response(3))
    out = dissect(dialogue.packets, cuts=range(1, len(dialogue.packets)))
    (frame,) = (each for each in out.frames if each.is_request)
    assert frame.message == TWO[4:]


@pytest.mark.parametrize(
    ("packets", "ms", "lost_end", "waits"),
    [(64, 200, False, False), (50, 200, False, True), (64, 50, False, True), (64, 200, True, True)],
    ids=["long enough", "few packets", "too early", "acknowledged beyond all bytes"],
)
def test_an_acknowledged_hole_is_given_up_after_many_packets(
    packets: int, ms: int, lost_end: bool, waits: bool
):
    dialogue = Dialogue()
    connection, other = dialogue.connect(), dialogue.connect()
    connection.client(ONE, sent=False)
    connection.client(TWO)
    connection.client(THREE, sent=not lost_end)
    connection.broker(response(1))
    dialogue.wait(ms - packets)
    for number in range(packets):
        other.client(request(3, 1, number))
    streams = Streams(ports=(9092,), newest=NEWEST, body_end=body_end)
    frames = streams.feed(block(dialogue.packets, 0))
    assert (streams.reserve > 0) == waits
    assert len(frames) == packets + (0 if waits else 3)


def test_the_end_time_of_a_message_whose_end_is_missing():
    dialogue, connection = Dialogue.connected()
    long = request(0, 3, 2, bytes(200_000))
    for begin in range(0, len(long), 10_000):
        connection.client(long[begin : begin + 10_000], sent=begin not in (50_000, 200_000))
        if begin == 100_000:
            connection.broker(response(1))
            dialogue.wait(2000)
    connection.client(THREE)
    dialogue.wait(2000)
    connection.broker(response(2))
    times = [
        [each.end_time for each in dissect(dialogue.packets, cuts=cuts).frames if each.is_request]
        for cuts in ([], range(1, len(dialogue.packets)))
    ]
    assert times[0] == times[1]
    assert len(times[0]) == 2


@pytest.mark.parametrize("packets_per_block", [1, 3, 100])
@pytest.mark.parametrize("pause", [210, 1100])
def test_a_retransmission_behind_its_acknowledgement(pause: int, packets_per_block: int):
    """The queues of a network card may deliver the ACK before the data."""
    dialogue, connection = Dialogue.connected()
    connection.client(ONE)
    connection.client(TWO, sent=False)
    connection.client(THREE)
    received = connection.seq[0] - len(TWO) - len(THREE)
    other = dialogue.connect()
    for number in range(70):
        other.client(request(3, 1, number))
        connection.packet(1, ack=received)
    dialogue.wait(pause)
    connection.retransmit(0, TWO, len(TWO) + len(THREE))
    data = dialogue.packets.pop()
    connection.packet(1)
    dialogue.packets.append(data)
    connection.client(FOUR)
    out = dissect(dialogue.packets, packets_per_block=packets_per_block)
    assert out.messages(0)[0] == [each[4:] for each in (ONE, TWO, THREE, FOUR)]
    assert not out.problems


def test_an_unacknowledged_hole_is_waited_for_half_a_minute():
    dialogue, connection = Dialogue.connected()
    connection.client(ONE)
    late = len(dialogue.packets)
    connection.client(TWO)
    connection.client(THREE)
    dialogue.wait(20_000)
    packets = dialogue.packets
    missing = packets.pop(late)
    packets.append(replace(missing, time=dialogue.now))
    out = dissect(packets, cuts=range(1, len(packets)))
    assert out.messages()[0] == [ONE[4:], TWO[4:], THREE[4:]]
    assert [each.time for each in out.frames][1:] == [dialogue.now, dialogue.now]
    assert out.problems == []


def test_too_many_bytes_behind_a_hole_end_the_wait():
    dialogue, connection = Dialogue.connected()
    connection.client(ONE, sent=False)
    long = request(0, 3, 2, bytes(60_000))
    for _ in range(200):
        connection.client(long)
    out = dissect(dialogue.packets, cuts=range(10, 203, 10))
    assert len(out.messages()[0]) == 200
    assert out.reserved < 10 << 20


def test_a_stream_ends_with_its_fin():
    dialogue, connection = Dialogue.connected()
    connection.client(ONE)
    connection.client(TWO[:10])
    connection.fin()
    later_connection = dialogue.connect()
    dialogue.wait(10)
    later_connection.client(ONE)
    later_connection.client(TWO)
    cut = len(dialogue.packets) - 2
    out = dissect(dialogue.packets, cuts=[cut])
    broken = next(each for each in out.frames if len(each.message) < each.size)
    assert (broken.message, broken.size) == (TWO[4:10], len(TWO) - 4)
    assert out.frames.index(broken) == 1, "returned with the block of the FIN"


def test_data_behind_a_rst():
    dialogue, connection = Dialogue.connected()
    connection.client(ONE)
    connection.rst(1)
    connection.client(TWO)
    out = dissect(dialogue.packets)
    assert out.messages()[0] == [ONE[4:], TWO[4:]]
    assert out.streams.connections.count == 1
    assert out.streams.connections.closed[0] == 2


@pytest.mark.parametrize("cuts", [[], range(20)])
def test_a_rst_behind_a_fin_is_no_reset(cuts):
    """As librdkafka closes a connection: the host resets a response that comes later."""
    dialogue, connection = Dialogue.connected()
    connection.client(ONE)
    connection.packet(0, flags=FIN | ACK)
    connection.broker(TWO)
    connection.rst()
    out = dissect(dialogue.packets, cuts=cuts)
    assert CLOSED[int(out.streams.connections.closed[0])].as_py() == "fin"


def test_sequence_numbers_that_wrap():
    dialogue, connection = Dialogue.connected(isn=(2**32 - 20, 2**32 - 5))
    for each in (ONE, TWO, THREE):
        connection.exchange(each, response(1))
    for packets in (dialogue.packets, split(dialogue.packets, 1)):
        assert dissect(packets).messages() == (
            [ONE[4:], TWO[4:], THREE[4:]], [response(1)[4:]] * 3
        )  # fmt: skip


def truncated_packets(count: int) -> list[Packet]:
    """A handshake, and `count` requests of 65,000 bytes in a packet each, 96 of them captured."""
    dialogue = Dialogue()
    dialogue.connect()
    size = 65_000
    head = (size - 4).to_bytes(4, "big") + request(0, 3, 1, bytes(size - 21))[4:96]
    first = dialogue.packets[2]

    class Long(bytes):
        """Bytes that claim a length of `size`."""

        def __len__(self) -> int:
            return size

    return dialogue.packets + [
        replace(
            first, seq=(first.seq + index * size) % 2**32, payload=Long(head), cut=96,
            time=first.time + index, number=4 + index,
        )
        for index in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("jump", [3 << 29, 1 << 31, 5 << 29])
def test_bytes_beyond_any_window_are_stray_in_either_direction(jump: int):
    """Nothing but a damaged number, or more bytes lost than fit in a window, explains them."""
    dialogue, connection = Dialogue.connected()
    connection.exchange(ONE, response(1))
    connection.seq[0] = (connection.seq[0] + jump) % 2**32
    connection.client(TWO)
    out = dissect(dialogue.packets)
    assert out.messages() == ([ONE[4:]], [response(1)[4:]])
    assert out.kinds() == ["stray"]
    assert counts(out, "retransmitted") == (0, 0)


@pytest.mark.slow
def test_a_truncated_stream_of_more_than_four_gibibytes():
    """Sequence numbers wrap within a block."""
    count = 70_000
    out = dissect(truncated_packets(count))
    assert len(out.frames) == count
    assert {(each.size, len(each.message)) for each in out.frames} == {(64_996, 92)}
    assert counts(out, "cut") == (count * (65_000 - 96), 0)
    assert out.kinds() == ["cut_packets"]


@pytest.mark.slow
def test_truncated_packets_that_were_captured_twice():
    """Two interfaces of a machine have each packet: 2 GiB in a block are repeated."""
    count = 40_000
    out = dissect([each for packet in truncated_packets(count) for each in (packet, packet)])
    assert len(out.frames) == count
    assert counts(out, "retransmitted") == (count, 0)
    assert out.kinds() == ["cut_packets"]


@pytest.mark.slow
def test_truncated_packets_beyond_lost_ones():
    """More than 1 GiB follows within the time in which the lost packets may still arrive."""
    packets = truncated_packets(40_000)
    captured = packets[:10] + packets[11:100] + packets[3_000:]
    out = dissect(captured, cuts=[16_000])
    assert len(out.frames) == len(captured) - 3
    assert set(out.kinds()) == {"lost_bytes", "resync", "cut_packets"}


def test_truncated_packets_give_incomplete_frames():
    dialogue, connection = Dialogue.connected()
    connection.client(request(3, 1, 1, bytes(500)), cut=60)
    connection.client(request(3, 1, 2, bytes(500)), cut=60)
    connection.broker(response(1, bytes(700)), cut=60)
    out = dissect(dialogue.packets)
    assert [len(each.message) for each in out.frames] == [56, 56, 56]
    assert out.kinds() == ["cut_packets", "cut_packets"], "once for each stream"
    assert counts(out, "lost") == (0, 0)
    assert counts(out, "cut") == (2 * (516 - 60), 708 - 60)


@pytest.mark.parametrize("cut", [0, 3, 60])
@pytest.mark.parametrize("size", [100, 300, 9000])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_capture_point_that_truncates_packets_and_another_one(
    cut: int, size: int, is_first: bool
):
    """The other one has whole segments of at most this size."""
    dialogue, connection = Dialogue.connected()
    sent = [request(3, 1, number, bytes(range(250)) * 2) for number in range(4)]
    received = [response(number, bytes(range(250)) * 3) for number in range(4)]
    for pair in zip(sent, received, strict=True):
        connection.exchange(*pair)
    packets = dialogue.packets[:3]
    for each in dialogue.packets[3:]:
        copies = [replace(each, cut=cut), *split([each], size)]
        packets += copies if is_first else [*copies[1:], copies[0]]
    out = dissect(packets)
    assert out.messages() == ([each[4:] for each in sent], [each[4:] for each in received])
    assert set(out.kinds()) == {"cut_packets"}


@pytest.mark.parametrize("packets_per_block", [1, 100])
def test_a_keep_alive_behind_a_truncated_packet(packets_per_block: int):
    """The message ended with the packet, not with the byte of the keep-alive, which is not data."""
    dialogue, connection = Dialogue.connected()
    connection.client(request(3, 1, 1, bytes(500)), cut=60)
    sent = dialogue.now
    connection.broker(response(1, bytes(40)))
    dialogue.wait(75_000)
    connection.retransmit(0, b"\xff", 1)
    connection.client(request(3, 1, 2, bytes(500)), cut=60)
    out = dissect(dialogue.packets, packets_per_block=packets_per_block)
    first, second = (each for each in out.frames if each.is_request)
    assert (first.end_time, len(first.message)) == (sent, 56)
    assert second.end_time == dialogue.now
    assert counts(out, "retransmitted") == (0, 0)


def test_a_segment_beyond_the_window_does_no_harm():
    dialogue, connection = Dialogue.connected()
    connection.client(ONE)
    good = dialogue.packets[-1]
    for ahead in (300_000_000, 1_900_000_000, 2_500_000_000):
        dialogue.packets.append(replace(good, seq=(good.seq + ahead) % 2**32, payload=b"?" * 50))
    for number in range(50):
        dialogue.wait(1000)
        connection.exchange(request(3, 1, number), response(number))
    out = dissect(dialogue.packets, packets_per_block=5)
    assert [len(each) for each in out.messages()] == [51, 50]


def test_times_that_go_backwards_do_no_harm():
    dialogue, connection = Dialogue.connected()
    connection.exchanges(range(20))
    packets = [
        replace(each, time=each.time - (index % 5) * 3_600 * 10**9)
        for index, each in enumerate(dialogue.packets)
    ]
    out = dissect(packets, packets_per_block=3)
    assert [len(each) for each in out.messages()] == [20, 20]
    assert out.problems == []


@pytest.mark.parametrize("is_one", [True, False])
@pytest.mark.parametrize("packets_per_block", [1, 3, 100])
def test_messages_have_the_times_of_their_packets(is_one, packets_per_block):
    """One time is wrong, or the clock is set back. The third request waits for a byte of its own,
    which arrives out of order."""
    dialogue, connection = Dialogue.connected()
    for part in (ONE, TWO, THREE[:5], THREE[5:9], THREE[9:], FOUR):
        connection.client(part)
    times = [each.time for each in dialogue.packets]
    wrong = range(4, 5) if is_one else range(4)
    for index in wrong:
        times[index] += 3600 * 1000 * MS
    packets = [dialogue.packets[index] for index in (0, 1, 2, 3, 4, 5, 7, 6, 8)]
    sent = [replace(each, time=time) for each, time in zip(packets, times, strict=True)]
    out = dissect(sent, cuts=range(0, len(sent), packets_per_block))
    expected = [(times[3], times[3]), (times[4], times[4]), (times[5], times[7])]
    expected.append((times[8], times[8]))
    assert [(each.time, each.end_time) for each in out.frames] == expected


def test_one_wrong_time_does_not_end_the_wait():
    dialogue, connection = Dialogue.connected()
    connection.client(ONE)
    connection.client(TWO)
    connection.client(THREE)
    packets = dialogue.packets
    packets[3] = replace(packets[3], time=packets[3].time * 2)
    packets[4], packets[5] = packets[5], packets[4]
    out = dissect(packets, cuts=[1, 2, 3, 4, 5])
    assert out.messages()[0] == [ONE[4:], TWO[4:], THREE[4:]]


def test_a_large_frame_over_many_blocks():
    dialogue, connection = Dialogue.connected()
    large = request(0, 3, 1, bytes(range(256)) * 40_000)
    connection.client_segments(large, 1000)
    connection.client(TWO)
    out = dissect(dialogue.packets, packets_per_block=100)
    assert out.messages()[0] == [large[4:], TWO[4:]]


@pytest.mark.slow
def test_the_memory_budget_is_kept_and_its_problems_are_reported():
    dialogue = Dialogue()
    connections = [dialogue.connect() for _ in range(20)]
    for connection in connections:
        large = request(0, 3, 1, bytes(1 << 20))
        for at in range(0, 1 << 19, 1 << 15):
            connection.client(large[at : at + (1 << 15)])
    packets = dialogue.packets
    out = dissect(packets, packets_per_block=20, memory=8 << 20)
    assert out.reserved <= (2 << 20) + 20 * (1 << 15)
    assert len(out.frames) == 20
    assert out.kinds().count("memory") >= 10
    connections[0].client(large[1 << 19 :])
    connections[0].client(TWO)
    continued = dissect(dialogue.packets, cuts=range(20, len(packets), 20), memory=8 << 20)
    assert TWO[4:] in continued.messages()[0], "the chain goes on behind an incomplete frame"


@pytest.mark.parametrize("flags", [SYN | FIN, SYN | RST, FIN | RST, 0xFF, 0])
def test_invalid_flags_do_no_harm(flags):
    dialogue, connection = Dialogue.connected()
    connection.client(ONE)
    connection.packet(0, b"", flags=flags)
    reply: Packet = replace(
        dialogue.packets[-1],
        source=dialogue.packets[-1].target,
        target=dialogue.packets[-1].source,
        flags=flags,
    )
    dialogue.packets += [reply, replace(reply, payload=b"x" * 9)]
    dissect(dialogue.packets, cuts=[2, 4])


def test_a_stray_segment_far_ahead_does_not_end_a_stream_that_goes_on() -> None:
    """Its sequence number is damaged. The block ends when its wait is over."""
    requests = [request(3, 1, number) for number in range(40)]
    dialogue, connection = Dialogue.connected()
    for number, each in enumerate(requests):
        connection.client(each)
        if number == 2:
            damaged = dialogue.packets[-1]
            dialogue.packets[-1] = replace(damaged, seq=damaged.seq + 10_000)
        connection.packet(1)
        dialogue.wait(1500)
    for cut in range(5, len(dialogue.packets), 5):
        received = dissect(dialogue.packets, cuts=[cut]).messages()[0]
        assert [
            each[4:] for each in [*requests[:2], *requests[3:]] if each[4:] not in received
        ] == []


def test_bytes_behind_a_lost_packet_are_not_stray_in_a_block_of_hours() -> None:
    """The capture has one direction only, so that nothing shows whether they arrived."""
    requests = [request(3, 1, number) for number in range(20)]
    dialogue, connection = Dialogue.connected()
    for each in requests:
        connection.client(each)
        dialogue.wait(1500)
    dialogue.wait(7_200_000)
    dialogue.connect()
    client, _ = dialogue.packets[0].source
    packets = [
        each
        for each in dialogue.packets
        if each.source[0] == client and each.payload != requests[5]
    ]
    received = dissect(packets).messages()[0]
    assert received == [each[4:] for each in [*requests[:5], *requests[6:]]]


@pytest.mark.parametrize("packets_per_block", [1, 1 << 20])
@pytest.mark.parametrize("step", [-100, -3_000, -3_600_000])
def test_bytes_behind_a_lost_packet_are_not_stray_if_the_clock_is_set_back(
    step: int, packets_per_block: int
) -> None:
    """The receiver acknowledged the lost bytes. `step`: ms."""
    dialogue, connection = Dialogue.connected()
    connection.exchanges(range(1, 6), bytes(9))
    connection.client(request(3, 1, 6))
    connection.broker(response(6, bytes(9)), sent=False)
    dialogue.wait(step)
    connection.packet(0)
    connection.exchange(request(3, 1, 7), response(7, bytes(9)))
    connection.fin()
    out = dissect(dialogue.packets, packets_per_block=packets_per_block)
    assert [len(each) for each in out.messages()] == [7, 6]
    assert "stray" not in out.kinds()


@pytest.mark.parametrize("cuts", [(), range(1, 12), (6,), (7,)])
@pytest.mark.parametrize("pause", [10, 8_000])
def test_bytes_behind_a_hole_are_not_stray_if_bytes_before_it_are_sent_again(
    pause: int, cuts: Iterable[int]
) -> None:
    """The packets of one end: no acknowledgement shows that the bytes of the hole are lost."""
    dialogue, connection = Dialogue.connected()
    sent = [request(3, 1, number) for number in range(8)]
    for number in range(4):
        connection.client(sent[number], sent=number not in (0, 2))
    dialogue.wait(1_200)  # lost before the capture point
    connection.retransmit(0, sent[0], sum(map(len, sent[:4])))
    for each in sent[4:]:
        dialogue.wait(pause)
        connection.client(each)
    connection.fin()
    packets = [each for each in dialogue.packets if each.source == connection.ends[0]]
    out = dissect(packets, cuts=[each for each in cuts if each < len(packets)])
    assert out.messages()[0] == [each[4:] for each in (*sent[:2], *sent[3:])]
    assert "stray" not in out.kinds()
