"""The byte streams of a recording, read with dpkt instead of this project's own code.

A flow is one TCP connection: its ends, whether its SYNs and FINs were captured, and the bytes that
each end sent, in order of capture. A recording without all bytes of its streams raises Incomplete.
"""

from __future__ import annotations

import io
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import dpkt

from tests.captures.recorded import CAPTURES, unpacked

SYN, FIN, ACK = dpkt.tcp.TH_SYN, dpkt.tcp.TH_FIN, dpkt.tcp.TH_ACK
_MODULO = 1 << 32

Address = tuple[bytes, int]
"""An IP address, 4 or 16 bytes, and a port."""


class Incomplete(Exception):
    """A stream of the recording has missing bytes."""


@dataclass(frozen=True)
class Chunk:
    """Bytes that one end sent."""

    flow: int
    end: int
    """0 or 1: index into `Flow.ends`."""
    at: int
    """Position of the first byte in its stream."""
    data: bytes
    time: int
    """ns."""
    acknowledged: int
    """Position up to which the sender had received the other end's stream."""


@dataclass
class Flow:
    """One TCP connection. End 0 is the client where a SYN was captured."""

    ends: tuple[Address, Address]
    has_syn: bool
    first_time: int
    has_fin: list[bool] = field(default_factory=lambda: [False, False])
    sizes: list[int] = field(default_factory=lambda: [0, 0])
    """Bytes that each end sent."""


@dataclass(frozen=True)
class Recording:
    """All flows of a recording, and their bytes in order of capture."""

    name: str
    flows: list[Flow]
    chunks: list[Chunk]

    @property
    def size(self) -> int:
        return sum(len(each.data) for each in self.chunks)


@dataclass
class _Stream:
    origin: int
    """Sequence number of position 0."""
    reach: int = 0
    """Position behind the last byte that came in order."""
    early: dict[int, bytes] = field(default_factory=dict)

    def position(self, seq: int) -> int:
        near = (self.origin + self.reach) % _MODULO
        ahead = (seq - near) % _MODULO
        return self.reach + (ahead if ahead < _MODULO // 2 else ahead - _MODULO)

    def feed(self, at: int, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The new bytes of the stream, in order."""
        if len(data) > len(self.early.get(at, b"")):
            self.early[at] = data
        for start in sorted(self.early):
            if start > self.reach:
                break
            new = self.early.pop(start)[self.reach - start :]
            if new:
                yield self.reach, new
                self.reach += len(new)


@cache
def recording(name: str) -> Recording:
    """A committed capture. Raises Incomplete."""
    current: dict[frozenset[Address], tuple[int, list[_Stream | None]]] = {}
    flows: list[Flow] = []
    chunks: list[Chunk] = []
    for time, source, target, tcp in _packets(CAPTURES / name):
        key = frozenset((source, target))
        opens = bool(tcp.flags & SYN) and not tcp.flags & ACK
        if key not in current or (opens and flows[current[key][0]].ends[0] == source
                                  and _is_new(current[key][1][0], tcp.seq)):  # fmt: skip
            current[key] = len(flows), [None, None]
            flows.append(Flow((source, target), opens, time))
        index, streams = current[key]
        flow = flows[index]
        end = flow.ends.index(source)
        if tcp.flags & SYN:
            streams[end] = streams[end] or _Stream((tcp.seq + 1) % _MODULO)
            continue
        stream = streams[end]
        if stream is None:
            stream = streams[end] = _Stream(tcp.seq)
        other = streams[1 - end]
        at = stream.position(tcp.seq)
        if at < 0 and not flow.has_syn and at > -(1 << 20) and stream.reach:
            raise Incomplete(name)  # the first segments of a late start are out of order
        acknowledged = other.position(tcp.ack) if other and tcp.flags & ACK else 0
        if tcp.data and at > -(1 << 20):
            chunks += (
                Chunk(index, end, start, new, time, acknowledged)
                for start, new in stream.feed(at, bytes(tcp.data))
            )
        if tcp.flags & FIN:
            flow.has_fin[end] = True
        flow.sizes[end] = stream.reach
    if any(stream and stream.early for _, streams in current.values() for stream in streams):
        raise Incomplete(name)
    return Recording(name, flows, chunks)


def _is_new(stream: _Stream | None, isn: int) -> bool:
    return stream is None or (isn + 1) % _MODULO != stream.origin


def _packets(path: Path) -> Iterator[tuple[int, Address, Address, dpkt.tcp.TCP]]:
    """Time in ns, source, target and header of each TCP packet."""
    data = unpacked(path)
    file = io.BytesIO(data)
    is_pcapng = data.startswith(b"\x0a\x0d\x0d\x0a")
    reader = dpkt.pcapng.Reader(file) if is_pcapng else dpkt.pcap.Reader(file)
    open_link = {
        dpkt.pcap.DLT_EN10MB: dpkt.ethernet.Ethernet,
        101: dpkt.ip.IP,
        dpkt.pcap.DLT_LINUX_SLL: dpkt.sll.SLL,
        dpkt.pcap.DLT_LINUX_SLL2: dpkt.sll2.SLL2,
    }[reader.datalink()]
    for time, packet in reader:
        ip = open_link(packet).data
        if not isinstance(ip, (dpkt.ip.IP, dpkt.ip6.IP6)) or not isinstance(ip.data, dpkt.tcp.TCP):
            continue
        tcp = ip.data
        length = _payload_length(ip, tcp)
        if length > len(tcp.data):
            raise Incomplete(path.name)  # captured in part
        tcp.data = tcp.data[:length]
        yield round(time * 10**9), (ip.src, tcp.sport), (ip.dst, tcp.dport), tcp


def _payload_length(ip: dpkt.ip.IP | dpkt.ip6.IP6, tcp: dpkt.tcp.TCP) -> int:
    """Without what Ethernet pads. A length of 0 is that of a packet that the kernel segments."""
    header = tcp.off * 4
    if isinstance(ip, dpkt.ip.IP):
        return ip.len - ip.hl * 4 - header if ip.len else len(tcp.data)
    return ip.plen - header if ip.plen else len(tcp.data)


def text(address: bytes) -> str:
    """An address as the tables have it."""
    return str(ipaddress.ip_address(address))
