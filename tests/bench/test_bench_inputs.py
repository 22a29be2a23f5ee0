"""A repeated recording is sound traffic: dpkt reads it, every stream is whole, ids go up."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import dpkt
import pytest

from bench import inputs
from bench.inputs import Content, Input

RECORDING = Path(__file__).parents[2] / "captures" / "bulk-tansu.pcap.zst"
Stream = tuple[bytes, int, bytes, int]


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Input:
    monkeypatch.setattr(inputs, "DATA", tmp_path)
    monkeypatch.setattr(inputs, "PORTS", 5)  # so that addresses have to help
    monkeypatch.setattr(inputs, "WINDOW", 1000)
    return Input("made", RECORDING, connections=17, bytes=10_000_000)


def streams(path: Path) -> dict[Stream, bytes]:
    """Both directions of every connection, joined by sequence; nothing may be missing."""
    first: dict[Stream, int] = {}
    joined: dict[Stream, bytearray] = defaultdict(bytearray)
    before = 0
    with path.open("rb") as file:
        for time, data in dpkt.pcap.Reader(file):
            assert time >= before
            before = time
            ip = dpkt.ethernet.Ethernet(data).data
            tcp = ip.data
            key = (ip.src, tcp.sport, ip.dst, tcp.dport)
            back = (ip.dst, tcp.dport, ip.src, tcp.sport)
            if tcp.flags & dpkt.tcp.TH_SYN:
                assert key not in first
                first[key] = (tcp.seq + 1) & 0xFFFFFFFF
            if tcp.data:
                at = (tcp.seq - first[key]) & 0xFFFFFFFF
                assert at <= len(joined[key])
                joined[key][at : at + len(tcp.data)] = tcp.data
            if tcp.flags & dpkt.tcp.TH_ACK:
                assert (tcp.ack - first[back]) & 0xFFFFFFFF <= len(joined[back]) + 1  # and a FIN
    return {key: bytes(stream) for key, stream in joined.items()}


def correlation_ids(stream: bytes, offset: int) -> list[int]:
    """Of every message of a stream, which must end with one."""
    ids, at = [], 0
    while at < len(stream):
        ids.append(int.from_bytes(stream[at + offset : at + offset + 4], "big"))
        at += 4 + int.from_bytes(stream[at : at + 4], "big")
    assert at == len(stream)
    return ids


def test_every_connection_is_whole_and_its_ids_go_up(wanted: Input) -> None:
    content = inputs.ready(wanted)
    found = streams(wanted.path)
    assert wanted.path.stat().st_size == content.bytes > wanted.bytes
    assert len(found) == 2 * content.connections == 2 * wanted.connections
    messages = 0
    for (source, port, target, broker_port), stream in found.items():
        if broker_port not in content.broker_ports:
            continue
        asked = correlation_ids(stream, 8)
        answered = correlation_ids(found[target, broker_port, source, port], 4)
        assert asked == answered == sorted(set(asked))
        messages += 2 * len(asked)
    assert messages == content.messages


def test_an_input_is_made_again_only_where_it_changed(wanted: Input) -> None:
    first = inputs.ready(wanted)
    wanted.path.write_bytes(b"as it was")
    assert inputs.ready(wanted) == first
    assert wanted.path.read_bytes() == b"as it was"
    again: Content = inputs.ready(Input("made", RECORDING, connections=3, bytes=1))
    assert wanted.path.stat().st_size == again.bytes < first.bytes
