"""Which packets of made captures are in a cut, and which of their bytes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, fragment
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import PcapReader, PcapWriter

from analysis.cutting.driver import CutResult, cut
from dissector.capture import open_capture
from dissector.errors import CaptureError, DissectorError
from dissector.packets.block import ACK, FIN, SYN
from tests.dissector.packets.packet_bytes import (
    ng_block,
    ng_enhanced,
    ng_interface,
    ng_option,
    ng_section,
)
from tests.dissector.streams.dialogue import Dialogue, request, response, spoken

API_VERSIONS = 18
NO_APIS = bytes(6)
"""The body of an ApiVersions response: no error, no API."""


def asked(correlation: int) -> bytes:
    return request(API_VERSIONS, 0, correlation)


def answered(correlation: int) -> bytes:
    return response(correlation, NO_APIS)


def address(end: tuple[int, int]) -> str:
    return ".".join(map(str, (end[0] & 0xFFFFFFFF).to_bytes(4, "big")))


def packet_of(packet) -> Ether:
    ip = IP(src=address(packet.source), dst=address(packet.target))
    ports = {"sport": packet.source[1], "dport": packet.target[1]}
    return (
        Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ip
        / TCP(**ports, seq=packet.seq, ack=packet.ack, flags=packet.flags) / Raw(packet.payload)
    )  # fmt: skip


def written(dialogue: Dialogue, path: Path) -> Path:
    """The dialogue as a pcap file."""
    with PcapWriter(str(path), nano=True, linktype=1) as writer:
        for packet in dialogue.packets:
            made = packet_of(packet)
            made.time = packet.time / 10**9
            writer.write(made)
    return path


def rows(path: Path) -> pa.Table:
    return open_capture(path).tables("exchanges")["exchanges"]


def cut_ids(path: Path, *ids: int, **options: object) -> tuple[CutResult, Path]:
    """A cut of the exchanges with these correlation ids."""
    table = rows(path)
    kept = [row for row, each in enumerate(table["correlation_id"].to_pylist()) if each in ids]
    output = path.with_suffix(".cut.pcapng")
    return cut(path, table.take(kept), output, overwrite=True, **options), output


def payloads(path: Path) -> list[bytes]:
    with PcapReader(str(path)) as reader:
        return [bytes(packet[TCP].payload) for packet in reader if len(packet[TCP].payload)]


def numbers(path: Path) -> list[tuple[str, int, int]]:
    with PcapReader(str(path)) as reader:
        return [(str(p[TCP].flags), p[TCP].seq, p[TCP].ack) for p in reader]


def ids_of(path: Path) -> list[int]:
    return rows(path)["correlation_id"].to_pylist()


def test_handshake_messages_and_their_acknowledgements(tmp_path: Path) -> None:
    dialogue, connection = Dialogue.connected()
    for each in (1, 2, 3):
        connection.client(asked(each))
        connection.packet(1)
        connection.broker(answered(each))
        connection.packet(0)
    connection.fin()
    dialogue.connect().client(asked(9))
    result, output = cut_ids(written(dialogue, tmp_path / "a.pcap"), 2)
    assert (result.exchanges, result.connections, result.trimmed) == (1, 1, 0)
    assert payloads(output) == [asked(2), answered(2)]
    size, back = len(asked(1)), len(answered(1))
    assert numbers(output) == [
        ("S", 1000, 0), ("SA", 5000, 1001), ("A", 1001, 5001),
        # They acknowledge the messages before, which end where the chosen ones begin.
        ("A", 5001, 1001 + size),
        ("A", 1001 + size, 5001 + back),
        ("A", 1001 + size, 5001 + back),
        ("A", 5001 + back, 1001 + 2 * size),
        ("A", 5001 + back, 1001 + 2 * size),
        ("A", 1001 + 2 * size, 5001 + 2 * back),
        ("FA", 1001 + 3 * size, 5001 + 3 * back),
        ("FA", 5001 + 3 * back, 1002 + 3 * size),
    ]  # fmt: skip
    assert ids_of(output) == [2]


def test_retransmissions_are_in_the_cut(tmp_path: Path) -> None:
    dialogue, connection = Dialogue.connected()
    connection.client(asked(1))
    connection.retransmit(0, asked(1), back=len(asked(1)))
    connection.broker(answered(1))
    connection.client(asked(2))
    _, output = cut_ids(written(dialogue, tmp_path / "a.pcap"), 1)
    assert payloads(output) == [asked(1), asked(1), answered(1)]


@settings(max_examples=10)
@given(data=st.data())
def test_any_choice_of_pipelined_messages(tmp_path_factory, data: st.DataObject) -> None:
    """Segments begin and end anywhere; sequence numbers wrap."""
    tmp_path = tmp_path_factory.mktemp("cut")
    count = data.draw(st.integers(1, 8))
    chosen = data.draw(st.sets(st.integers(1, count), min_size=1))
    isn = data.draw(st.sampled_from([1000, 2**32 - 90]))
    dialogue, connection = Dialogue.connected(isn=(isn, isn))
    for end, message in ((0, asked), (1, answered)):
        stream = b"".join(message(each) for each in range(1, count + 1))
        while stream:
            size = data.draw(st.integers(1, len(stream)))
            connection.packet(end, stream[:size])
            stream = stream[size:]
    path = written(dialogue, tmp_path / "a.pcap")
    if ids_of(path) != [*range(1, count + 1)]:
        raise AssertionError("the made capture is wrong")
    result, output = cut_ids(path, *chosen)
    expected = (b"".join(map(asked, sorted(chosen))), b"".join(map(answered, sorted(chosen))))
    with PcapReader(str(output)) as reader:
        packets = list(reader)
    for port, stream in ((9092, expected[0]), (40001, expected[1])):
        assert b"".join(bytes(p[TCP].payload) for p in packets if p[TCP].dport == port) == stream
    assert ids_of(output) == sorted(chosen)
    assert result.unreadable == 0
    if not result.closed:
        begins = {(isn + 1 + (each - 1) * len(asked(1))) % 2**32 for each in chosen}
        assert begins <= {p[TCP].seq + at & 0xFFFFFFFF for p in packets if p[TCP].dport == 9092
                          for at in range(max(len(p[TCP].payload), 1))}  # fmt: skip


def test_all_fragments_of_a_packet_are_in_the_cut(tmp_path: Path) -> None:
    """They arrive in reverse order, and are whole: the request before is in them, too."""
    dialogue = spoken(asked(1) + asked(2), answered(1), answered(2))
    path = tmp_path / "a.pcap"
    with PcapWriter(str(path), nano=True, linktype=1) as writer:
        for number, packet in enumerate(dialogue.packets):
            made = packet_of(packet)
            made[IP].id = number
            for each in reversed(fragment(made, fragsize=24)):
                each.time = packet.time / 10**9
                writer.write(each)
    result, output = cut_ids(path, 2)
    assert (result.unreadable, result.trimmed) == (0, 0)
    assert sorted(ids_of(output)) == [1, 2]
    with PcapReader(str(output)) as reader:
        offsets = [packet[IP].frag * 8 for packet in reader]
    # The handshake, the segment with both requests, and the response.
    assert offsets == [0, 0, 0, 48, 24, 0, 24, 0]


def test_the_handshake_and_the_end_may_be_in_segments_of_other_messages(tmp_path: Path) -> None:
    """Their headers stay, so the round trip of the handshake and the end stay, too."""
    dialogue, connection = Dialogue.connected()
    del dialogue.packets[-1]  # the ACK without payload
    connection.exchange(asked(1), answered(1))
    connection.exchange(asked(2), answered(2))
    connection.packet(0, asked(3), flags=FIN | ACK)
    path = written(dialogue, tmp_path / "a.pcap")
    _, output = cut_ids(path, 2)
    assert ids_of(output) == [2]
    size, back = len(asked(1)), len(answered(1))
    assert numbers(output) == [
        ("S", 1000, 0), ("SA", 5000, 1001), ("A", 1001, 5001),
        ("A", 1001 + size, 5001 + back), ("A", 5001 + back, 1001 + 2 * size),
        ("FA", 1001 + 3 * size, 5001 + 2 * back),
    ]  # fmt: skip
    names = ("opened", "closed", "first_time", "handshake_rtt_ms")
    rows = [open_capture(each).tables("connections")["connections"].select(names).to_pylist()
            for each in (path, output)]  # fmt: skip
    assert rows[0] == rows[1]
    assert (rows[0][0]["closed"], round(rows[0][0]["handshake_rtt_ms"])) == ("fin", 3)


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (1, [("S", 1000, 1), ("SA", 5000, 0), ("A", 5001, 1)]),
        (2, [("S", 1000, 0), ("", 1001, 2), ("SA", 5000, 0), ("A", 5001, 2)]),
        (3, [("S", 1000, 0), ("SA", 5000, 0), ("A", 1001, 3), ("A", 5001, 3)]),
    ],
)
def test_a_syn_may_have_other_messages(
    tmp_path: Path, kept: int, expected: list[tuple[str, int, int]]
) -> None:
    """TCP Fast Open (RFC 7413). Each packet: flags, sequence number and message."""
    dialogue, connection = Dialogue.connected(handshake=False)
    connection.seq = [1000, 5000]
    connection.packet(0, asked(1) + asked(2), flags=SYN, ack=0)
    connection.packet(1, flags=SYN | ACK)
    connection.client(asked(3))
    for each in (1, 2, 3):
        connection.broker(answered(each))
    _, output = cut_ids(written(dialogue, tmp_path / "a.pcap"), kept)
    assert ids_of(output) == [kept]
    size, back = len(asked(1)), len(answered(1))
    shift = {"S": 0, 1001: size * (kept - 1), 5000: 0, 5001: back * (kept - 1)}
    payload = {0: {0: b"", kept: asked(kept)}, 1: {0: b"", kept: answered(kept)}}
    with PcapReader(str(output)) as reader:
        packets = [(str(p[TCP].flags), p[TCP].seq, bytes(p[TCP].payload)) for p in reader]
    assert packets == [
        (flags, seq + shift.get(seq, 0), payload[int(seq >= 5000)][each])
        for flags, seq, each in expected
    ]


def test_the_comment_on_a_part_of_a_packet(tmp_path: Path) -> None:
    messages = [b"".join(map(message, (1, 2, 3))) for message in (asked, answered)]
    dialogue = spoken(*messages)
    result, output = cut_ids(written(dialogue, tmp_path / "a.pcap"), 1, 3)
    assert result.trimmed == 2
    assert payloads(output) == [asked(1), asked(3), answered(1), answered(3)]
    assert ids_of(output) == [1, 3]
    data = output.read_bytes()
    removed = f"{2 * len(asked(1)):,} payload bytes of other messages removed".encode()
    assert data.count(removed) == 2
    whole, output = cut_ids(tmp_path / "a.pcap", 1, 3, context=0)
    assert whole.trimmed == 0
    assert payloads(output) == messages


@pytest.mark.parametrize("order", "<>")
def test_interfaces_and_options_of_the_original(tmp_path: Path, order: str) -> None:
    """Microseconds of one interface and an offset of the other; a comment, flags, a speed."""
    dialogue = spoken(asked(1), answered(1))
    micro = ng_option(2, b"eth7", order=order) + ng_option(8, (10**9).to_bytes(
        8, "little" if order == "<" else "big"), order=order)  # fmt: skip
    nano = ng_option(9, b"\x09", order=order) + ng_option(14, (-1).to_bytes(
        8, "little" if order == "<" else "big", signed=True), order=order)  # fmt: skip
    flags = ng_option(1, b"theirs", order=order) + ng_option(
        2, (1).to_bytes(4, "little" if order == "<" else "big"), order=order)  # fmt: skip
    blocks = [
        ng_section(order=order),
        ng_interface(options=micro, snaplen=99, order=order),
        ng_interface(options=nano, order=order),
    ]
    for packet in dialogue.packets:
        is_client = packet.source[1] != 9092
        ticks = packet.time // 1000 if is_client else packet.time + 10**9
        made = bytes(packet_of(packet))
        enhanced = ng_enhanced(made, ticks, interface=0 if is_client else 1, order=order)
        blocks.append(ng_block(6, enhanced[8:-4] + flags, order=order))
    path = tmp_path / "a.pcapng"
    path.write_bytes(b"".join(blocks))
    _, output = cut_ids(path, 1)
    data = output.read_bytes()
    eth7 = ng_option(2, b"eth7") + ng_option(8, (10**9).to_bytes(8, "little"))
    assert ng_interface(snaplen=99, options=eth7 + ng_option(9, b"\x06") + bytes(4)) in data
    origin = ng_option(14, (-1).to_bytes(8, "little", signed=True))
    assert ng_interface(options=ng_option(9, b"\x09") + origin + bytes(4)) in data
    assert data.count(ng_option(1, b"theirs") + ng_option(2, (1).to_bytes(4, "little"))) == 5
    times = ("request_time", "response_time")
    assert rows(output).select(times).to_pylist() == rows(path).select(times).to_pylist()


def test_times_before_1970(tmp_path: Path) -> None:
    dialogue = spoken(asked(1), answered(1))
    origin = ng_option(14, (-1_000).to_bytes(8, "little", signed=True))
    blocks = [ng_section(), ng_interface(options=origin)]
    blocks += (ng_enhanced(bytes(packet_of(each)), n) for n, each in enumerate(dialogue.packets))
    path = tmp_path / "in.pcapng"
    path.write_bytes(b"".join(blocks))
    _, out = cut_ids(path, 1)
    assert rows(out)["request_time"].to_pylist() == rows(path)["request_time"].to_pylist()


def test_names_of_topics_come_with_the_cut(tmp_path: Path) -> None:
    """Fetch 18 has only ids of topics; the Metadata response with the names is not cut."""
    from tests.captures.truth import CAPTURES

    table = rows(CAPTURES / "kafka-4-followed.pcap.zst")
    fetches = table.filter(pa.compute.equal(table["api"], "Fetch"))
    cut(CAPTURES / "kafka-4-followed.pcap.zst", fetches, tmp_path / "cut.pcapng")
    names = {name for names in fetches["topics"].to_pylist() for name in names or ()}
    written_topics = rows(tmp_path / "cut.pcapng")["topics"].to_pylist()
    assert {name for topics in written_topics for name in topics or ()} == names


def test_long_comments_are_cut(tmp_path: Path) -> None:
    """An option of pcapng has at most 65,535 bytes; a topic name, 32,767."""
    dialogue, connection = Dialogue.connected()
    names = b"".join((30_000).to_bytes(2) + name * 30_000 for name in (b"a", b"b", b"c"))
    asked_topics = request(3, 0, 1, (3).to_bytes(4) + names)
    connection.client(asked_topics[:60_000])
    connection.exchange(asked_topics[60_000:], response(1, bytes(8)))
    _, output = cut_ids(written(dialogue, tmp_path / "a.pcap"), 1, title="ü" * 40_000)
    assert ids_of(output) == [1]
    data = output.read_bytes()
    assert ("ü" * 32_766 + "…").encode() in data
    assert b"Metadata v0 " + b"a" * 30_000 + b", " + b"b" * 30_000 + b", c" in data


def test_a_comment_on_an_error_code_without_a_name(tmp_path: Path) -> None:
    """Of a later release."""
    dialogue = spoken(asked(1), response(1, b"\x03\xe7" + NO_APIS[2:]))
    _, output = cut_ids(written(dialogue, tmp_path / "a.pcap"), 1)
    assert b"response to ApiVersions v0, 1.000 ms, error 999" in output.read_bytes()


def test_errors(tmp_path: Path) -> None:
    path = written(spoken(asked(1)), tmp_path / "a.pcap")
    table, output = rows(path), tmp_path / "b.pcapng"
    with pytest.raises(CaptureError, match="only once"):
        cut("-", table, output)
    with pytest.raises(DissectorError, match="none of these rows"):
        cut(path, table.slice(0, 0), output)
    with pytest.raises(DissectorError, match="no column topics"):
        cut(path, table.to_pandas().drop(columns="topics"), output)
    with pytest.raises(DissectorError, match="no column topics"):
        cut(path, table.drop_columns(["topics"]), output)
    with pytest.raises(DissectorError, match="exchanges must be a DataFrame or an Arrow table"):
        cut(path, None, output)
    with pytest.raises(DissectorError, match="output must be a path, not None"):
        cut(path, table, None)
    output.write_bytes(b"")
    with pytest.raises(FileExistsError):
        cut(path, table, output)
    assert cut(path, table.to_pandas(), output, overwrite=True).exchanges == 1
