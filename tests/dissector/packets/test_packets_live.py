"""Packets of an interface, in a network that each test has for itself; of a pipe; and as pcapng."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ctypes.util import find_library
from functools import partial, wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dissector.errors import CaptureError
from dissector.packets import open_packets
from dissector.packets.af_packet import ANY, BLOCK_BYTES, PacketRing, filter_program
from dissector.packets.block import SYN, PacketBlock
from dissector.packets.formats.capture_reader import WIRE_LIMIT, PacketRecords
from dissector.packets.formats.pcapng_writer import (
    interface_block,
    named_interface,
    packet_blocks,
    section_header,
)
from dissector.packets.live import LiveSource, Pipe
from tests.analysis.live.capturing import needs_privilege
from tests.analysis.live.sniffing import wait_for
from tests.captures.recorded import CAPTURES
from tests.dissector.packets.packet_bytes import frame, ipv4, ipv6, rows_of, tcp

NEW_NETWORK = 0x40000000
TUNSETIFF, TUNSETLINK, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x400454CD, 1, 0x1000  # linux/if_tun.h
NEEDS_TUN = pytest.mark.skipif(
    not os.access("/dev/net/tun", os.R_OK | os.W_OK) or not Path("/sys/class/misc/tun").exists(),
    reason="the system has no tun devices",
)
NEEDS_LIBPCAP = pytest.mark.skipif(
    find_library("pcap") is None, reason="libpcap is not installed (Debian: libpcap0.8)"
)


def in_a_network(test: Callable[..., None]) -> Any:
    """Run a test in a thread that has left for a network with nothing but loopback."""

    @wraps(test)
    def run(*args: Any, **given: Any) -> None:
        def body() -> None:
            libc = ctypes.CDLL(None, use_errno=True)
            assert libc.unshare(NEW_NETWORK) == 0, os.strerror(ctypes.get_errno())
            ip("link set lo up")
            test(*args, **given)

        with ThreadPoolExecutor(1) as thread:
            thread.submit(body).result(180)

    return needs_privilege(run)


def ip(line: str) -> None:
    subprocess.run(["ip", *line.split()], check=True)


def state(interface: str) -> str:
    words = ["ip", "-details", "link", "show", interface]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def pair(first: str, second: str) -> None:
    """Two interfaces without addresses, connected to each other."""
    ip(f"link add {first} type veth peer name {second}")
    for name in (first, second):
        ip(f"link set {name} up")
    for name in (first, second):
        wait_until_up(name)


def wait_until_up(interface: str) -> None:
    """Before, the kernel drops what is sent over it, without an error."""
    wait_for(lambda: " state UP " in state(interface))


def talk(payload: bytes) -> tuple[int, int]:
    """Send it over loopback, and close; the client's port and the server's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            accepted, _ = server.accept()
            ports = client.getsockname()[1], server.getsockname()[1]
            with accepted, ThreadPoolExecutor(1) as sender:
                sent = sender.submit(client.sendall, payload)
                got = 0
                while got < len(payload):
                    got += len(accepted.recv(1 << 16))
                sent.result()
        return ports


def blocks(source: LiveSource) -> Iterator[PacketBlock]:
    """All that has come by now."""
    time.sleep(0.2)  # the kernel hands over a block of the ring after 50 ms
    source.stop()
    while (block := source.read(0)) is not None:
        yield block
    source.close()


def sent_by(block: PacketBlock, port: int) -> list[tuple[int, bytes]]:
    """Position in the stream of each payload, and its bytes."""
    (syn,) = np.flatnonzero((block.src_port == port) & (block.flags & SYN != 0)).tolist()
    rows = np.flatnonzero((block.src_port == port) & (block.captured > 0))
    at = (block.seq[rows] - block.seq[syn] - np.uint32(1)).tolist()
    view = block.data.data
    bounds = zip(block.payload[rows].tolist(), block.captured[rows].tolist(), strict=True)
    return [(seq, bytes(view[i : i + size])) for seq, (i, size) in zip(at, bounds, strict=True)]


@in_a_network
def test_loopback_whole_and_once() -> None:
    payload = np.random.default_rng(1).bytes(3_000_000)
    source = LiveSource([PacketRing("lo")])
    began = time.time_ns()
    port, _ = talk(payload)
    (block,) = [block for block in blocks(source) if len(block)]
    segments = sent_by(block, port)
    received = bytearray(len(payload))
    for at, part in segments:
        received[at : at + len(part)] = part
    assert received == payload
    assert sum(len(part) for _, part in segments) < 1.5 * len(payload)  # a few may be sent again
    assert max(len(part) for _, part in segments) > 60_000  # as large as loopback makes them
    assert (block.captured == block.length).all()
    assert began <= block.time.min() <= block.time.max() <= time.time_ns()
    assert block.packets_seen == len(block.number) == block.number[-1]
    assert block.problems == []
    assert source.names == ["lo"]


@in_a_network
def test_the_kernel_filters() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        wanted = other.getsockname()[1]
        source = LiveSource([PacketRing("lo", expression=f"tcp port {wanted}")])
        talk(b"not wanted")
        socket.create_connection(("127.0.0.1", wanted)).close()
        (block,) = [block for block in blocks(source) if len(block)]
    assert set(block.src_port.tolist()) | set(block.dst_port.tolist()) >= {wanted}
    assert ((block.src_port == wanted) | (block.dst_port == wanted)).all()


@contextmanager
def tunnel(name: str, kind: int = 65534) -> Iterator[Callable[[bytes], int]]:
    """An interface without link headers; gives the function by which it receives a packet.

    `kind`: its type, ARPHRD_… of linux/if_arp.h.
    """
    device = os.open("/dev/net/tun", os.O_RDWR)
    try:
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
        fcntl.ioctl(device, TUNSETLINK, kind)
        ip(f"link set {name} up")
        yield partial(os.write, device)
    finally:
        os.close(device)


@NEEDS_TUN
@NEEDS_LIBPCAP
@in_a_network
@pytest.mark.parametrize("interface", ["tun7", ANY])
@pytest.mark.parametrize(
    ("expression", "in_tunnel", "elsewhere"),
    [
        ("tcp port 9092", [b"first", b"second"], [b"on Ethernet"]),
        ("ip6", [b"second"], []),
        ("ether src 02:00:00:00:00:02", [], [b"on Ethernet"]),
    ],
)
def test_a_filter_on_interfaces_without_link_headers(
    interface: str, expression: str, in_tunnel: list[bytes], elsewhere: list[bytes]
) -> None:
    pytest.importorskip("scapy")
    with tunnel("tun7") as receive, socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        source = LiveSource([PacketRing(interface, expression=expression)])
        receive(ipv4(tcp(b"first")))
        receive(ipv4(tcp(b"other", dst=80)))
        receive(ipv6(tcp(b"second")))
        raw.bind(("lo", 0))
        raw.send(frame(b"on Ethernet"))
        payloads = [row.payload for block in blocks(source) for row in rows_of(block)]
    assert payloads == in_tunnel + (elsewhere if interface == ANY else [])


@NEEDS_TUN
@NEEDS_LIBPCAP
@in_a_network
@pytest.mark.parametrize("kind", [519, 768, 769, 776, 778, 823, 65534])
def test_types_of_interfaces_without_link_headers(kind: int) -> None:
    """RAWIP, TUNNEL (IP in IPv4), TUNNEL6, SIT (IPv6 in IPv4), IPGRE, IP6GRE, and NONE."""
    pytest.importorskip("scapy")
    with tunnel("tun7", kind) as receive:
        source = LiveSource([PacketRing("tun7", expression="tcp port 9092")])
        receive(ipv4(tcp(b"first")))
        receive(ipv6(tcp(b"second")))
        payloads = [row.payload for block in blocks(source) for row in rows_of(block)]
    assert payloads == [b"first", b"second"]


@in_a_network
def test_several_interfaces_and_any() -> None:
    pair("kafka0", "kafka1")
    frame = bytes.fromhex(
        "020000000001 020000000002 0800 45000028 00010000 4006 0000 0a000001 0a000002"
        "1388 2384 00000001 00000000 5002 0400 0000 0000"
    )
    for feeds, names in (
        ([PacketRing("lo"), PacketRing("kafka1")], {"lo", "kafka1"}),
        ([PacketRing(ANY)], {"lo", "kafka0", "kafka1"}),
    ):
        source = LiveSource(feeds)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as raw:
            raw.bind(("kafka0", 0))
            raw.send(frame)
        port, _ = talk(b"hello")
        (block,) = [block for block in blocks(source) if len(block)]
        by_port = {
            number: {source.names[c] for c in block.capture[block.src_port == number].tolist()}
            for number in (5000, port)
        }
        assert by_port[port] == {"lo"}
        assert by_port[5000] == names - {"lo"}
        assert len(feeds) == 1 or (np.diff(block.time) >= 0).all()


@in_a_network
def test_packets_dropped_by_the_kernel_are_a_problem() -> None:
    pair("kafka0", "kafka1")
    ring = PacketRing("kafka1", expression="tcp", buffer_bytes=4 * BLOCK_BYTES)
    source = LiveSource([ring])
    frame = bytes.fromhex("020000000001 020000000002 0800 450005dc 00010000 4006 0000") + bytes(
        1488
    )
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as raw:
        raw.bind(("kafka0", 0))
        for _ in range(4000):
            raw.send(frame)
    seen, problems = 0, []
    for block in blocks(source):
        seen += block.packets_seen
        problems += [each for each in block.problems if each.kind == "dropped_packets"]
    assert 0 < seen < 4000
    assert seen + ring.dropped == 4000
    assert problems[0].detail == f"kafka1: the kernel dropped {ring.dropped} packets"
    assert problems[0].count == ring.dropped


@in_a_network
def test_an_interface_goes_and_comes_back() -> None:
    pair("kafka0", "kafka1")
    ring = PacketRing("kafka0")
    assert ring.watch() == []
    for is_deleted in (False, True):
        ip("link delete kafka0" if is_deleted else "link set kafka0 down")
        assert [each.kind for each in ring.watch()] == ["interface_down"]
        assert ring.watch() == []
        if is_deleted:
            pair("kafka0", "kafka1")
        ip("link set kafka0 up")
        assert [each.kind for each in ring.watch()] == ["interface_up"]
        wait_until_up("kafka0")
        assert "promiscuity 1 " in state("kafka0")
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as raw:
            raw.bind(("kafka0", 0))
            raw.send(bytes(60))
        wait_for(lambda: sum(len(piece.columns.time) for piece in ring.take()) >= 1)
        ring.release()
    ring.close()


@in_a_network
def test_an_interface_that_is_not_there() -> None:
    with pytest.raises(CaptureError, match=r"there is no interface 'eth7'; choose from lo, any"):
        PacketRing("eth7")


@NEEDS_LIBPCAP
@pytest.mark.parametrize("expression", ["port", "tcp prot 9092", "host 1.2.3.4.5.6", "ß"])
def test_a_filter_that_cannot_be_understood(expression: str) -> None:
    pytest.importorskip("scapy")
    with pytest.raises(CaptureError, match="is invalid"):
        filter_program(expression)


@NEEDS_LIBPCAP
def test_a_filter_cuts_no_packet() -> None:
    """The kernel cuts to what the program returns (SO_ATTACH_FILTER, socket(7))."""
    pytest.importorskip("scapy")
    program = np.frombuffer(filter_program("tcp port 9092"), "=u2, u1, u1, u4")
    returned = program["f3"][program["f0"] == 6]  # BPF_RET | BPF_K
    assert set(returned.tolist()) == {0, WIRE_LIMIT}


def test_a_pipe_gives_what_the_file_gives() -> None:
    path = str(CAPTURES / "kafka-python-mock.pcap")
    whole = open_packets([path])
    columns = ("number", "time", "src_port", "dst_port", "seq", "captured")
    expected: dict[str, list[Any]] = {name: [] for name in columns}
    while (block := whole.read(0)) is not None:
        for name in columns:
            expected[name] += getattr(block, name).tolist()
    source = LiveSource([Pipe(path)], interval=0.01)
    actual: dict[str, list[Any]] = {name: [] for name in columns}
    while (block := source.read(5)) is not None:
        assert block.reserve == 5
        for name in columns:
            actual[name] += getattr(block, name).tolist()
    assert actual == expected
    assert source.names == [path]


def test_time_goes_on_in_a_pipe_that_is_silent(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    data = (CAPTURES / "kafka-python-mock.pcap").read_bytes()
    with ThreadPoolExecutor(1) as opener:
        opening = opener.submit(fifo.open, "wb", 0)
        # The reader waits for the head of the capture.
        writing = opener.submit(lambda: opening.result().write(data))
        source = LiveSource([Pipe(str(fifo))], interval=0.01)
        writing.result()
        latest = 0
        while (block := source.read(0)) is not None and (len(block) or not latest):
            latest = max([latest, *block.time.tolist()])
        assert block is not None  # an empty block with a time
        assert block.until is not None
        assert block.until > latest
        opening.result().close()
        assert source.read(0) is None


def test_what_is_written_is_what_was_read(tmp_path: Path) -> None:
    path, copy = CAPTURES / "kafka-4-net-vxlan.pcap.zst", tmp_path / "copy.pcapng"
    kept: list[bytes] = [section_header()]

    def keep(names: Any, records: PacketRecords, capture: Any) -> None:
        if len(kept) == 1:
            kept.append(
                interface_block(
                    named_interface("a name of odd length", int(records.columns.link[0]))
                )
            )
        packets, ends = packet_blocks(records.data, records.columns, capture)
        assert len(ends) == len(records.number)
        assert ends[-1] == len(packets)
        kept.append(bytes(packets))

    source = LiveSource([Pipe(str(path))], interval=0.01, tap=keep)
    while source.read(0) is not None:
        pass
    copy.write_bytes(b"".join(kept))
    original, copied = open_packets([path]).read(0), open_packets([copy]).read(0)
    assert original is not None
    assert copied is not None
    assert copied.problems == []
    for name in ("number", "time", "src_low", "seq", "captured", "length", "flags"):
        assert getattr(original, name).tolist() == getattr(copied, name).tolist()
    plain = ["tshark", "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len", "-e", "data"]
    try:
        printed = [
            subprocess.run([*plain, "-r", str(file)], capture_output=True, check=True).stdout
            for file in (path, copy)
        ]
    except FileNotFoundError:
        return
    if printed[0]:  # a tshark that reads zstd
        assert printed[0] == printed[1]
