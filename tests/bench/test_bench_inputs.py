"""A repeated recording is valid traffic: complete streams with ascending correlation ids."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import dpkt
import pytest

import dissector
from bench import inputs
from bench.inputs import Input
from bench.pcap import Content, divide
from tests.captures.recorded import CAPTURES
from tests.tshark import needs_tshark, tshark

RECORDING = CAPTURES / "bulk-tansu.pcap.zst"
Stream = tuple[bytes, int, bytes, int]


@pytest.fixture
def specification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Input:
    monkeypatch.setattr(inputs, "DATA", tmp_path)
    monkeypatch.setattr(inputs, "PORTS", 5)  # so that several addresses are needed
    monkeypatch.setattr(inputs, "WINDOW", 1000)
    return Input("made", RECORDING, connections=17, bytes=10_000_000)


def streams(path: Path) -> dict[Stream, bytes]:
    """Both directions of each connection, joined by sequence number; asserts completeness."""
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
    """Correlation ids of a stream, which must end with a complete message."""
    ids, at = [], 0
    while at < len(stream):
        ids.append(int.from_bytes(stream[at + offset : at + offset + 4], "big"))
        at += 4 + int.from_bytes(stream[at : at + 4], "big")
    assert at == len(stream)
    return ids


def test_connections_are_complete_with_ascending_ids(specification: Input) -> None:
    content = inputs.ready(specification)
    payloads = streams(specification.path)
    assert specification.path.stat().st_size == content.bytes > specification.bytes
    assert len(payloads) == 2 * content.connections == 2 * specification.connections
    messages = 0
    for (source, port, target, broker_port), stream in payloads.items():
        if broker_port not in content.broker_ports:
            continue
        request_ids = correlation_ids(stream, 8)
        response_ids = correlation_ids(payloads[target, broker_port, source, port], 4)
        assert request_ids == response_ids == sorted(set(request_ids))
        messages += 2 * len(request_ids)
    assert messages == content.messages


def test_an_input_is_made_again_only_if_it_changed(specification: Input) -> None:
    first = inputs.ready(specification)
    specification.path.write_bytes(b"as it was")
    assert inputs.ready(specification) == first
    assert specification.path.read_bytes() == b"as it was"
    changed: Content = inputs.ready(Input("made", RECORDING, connections=3, bytes=1))
    assert specification.path.stat().st_size == changed.bytes < first.bytes


@needs_tshark
def test_random_messages_are_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "DATA", tmp_path)
    content = inputs.ready(Input("random", None, connections=20, messages=2_000))
    path = tmp_path / "random.pcap"
    assert len(streams(path)) == 40
    tables = dissector.open_capture(path).tables(["exchanges", "problems"])
    rows = tables["exchanges"].to_pandas()
    assert content.messages == 2 * len(rows) == 2_000
    assert set(rows["status"]) == {"answered"}
    assert not len(tables["problems"])
    assert rows["api"].nunique() == 5
    fields = ["kafka.correlation_id", "_ws.malformed"]
    messages = [row for row in tshark(path, fields, "-d", "tcp.port==9092,kafka") if any(row)]
    assert len(messages) == 2_000
    assert {malformed for _, malformed in messages} == {""}
    assert sorted({int(number) for number, _ in messages}) == list(range(1_000))


def test_files_of_a_divided_input_have_its_packets(specification: Input, tmp_path: Path) -> None:
    inputs.make(specification)
    divide(specification.path, tmp_path / "files", 50)
    files = sorted((tmp_path / "files").iterdir())
    assert 40 <= len(files) <= 50
    sizes = [path.stat().st_size for path in files]
    assert max(sizes[:-1]) < 1.1 * min(sizes[:-1])

    def packets(path: Path) -> list[tuple[float, bytes]]:
        with path.open("rb") as file:
            return [*dpkt.pcap.Reader(file)]

    assert [p for path in files for p in packets(path)] == packets(specification.path)
