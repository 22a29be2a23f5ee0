"""A different network: the same bytes, in other segments, orders, fragments and tunnels.

`packets` makes IP packets of the chunks of a recording; `Options` describes the network. Each byte
of each stream is in at least one packet, so a reader can find all messages.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace

from tests.rewriting.flows import ACK, FIN, SYN, Address, Chunk, Recording

PSH = 0x08
ETHERNET = 2 * (b"\2" + bytes(5))
"""Target and source address."""
MICROSECOND = 1_000
SEGMENTS = {
    "bytes": lambda chance: chance.randint(1, 12),
    "small": lambda chance: chance.randint(3, 200),
    "mss": lambda chance: 1448,
    "jumbo": lambda chance: chance.randint(1449, 9000),
    "mixed": lambda chance: int(chance.lognormvariate(5, 2)) % 9000 + 1,
}
"""Bytes of the next segment."""
LONGEST_MERGE = 200_000 * MICROSECOND
"""A sender waits for more bytes until the earlier ones are acknowledged (RFC 9293, section 3.7.4),
and a receiver acknowledges them after a fraction of a second."""
ACKNOWLEDGEMENTS = ("all", "some", "none", "stale")
TUNNELS: dict[str, Callable[[bytes], bytes]] = {}


@dataclass(frozen=True)
class Options:
    """Changes that the network makes. The defaults make as few as possible."""

    segments: str = "mss"
    merges: bool = False
    """Consecutive bytes of a stream share segments, independent of the original segments."""
    acknowledgements: str = "all"
    disorder: int = 0
    """Each packet moves by fewer than this number of places."""
    repeats: float = 0.0
    """Share of segments that are retransmitted with other borders."""
    overlaps: float = 0.0
    """Share of segments that begin before the end of the sent bytes."""
    keepalives: float = 0.0
    fragments: bool = False
    tunnel: str = "none"
    wraps: bool = False
    """Sequence numbers pass 2^32 within the recording."""
    skew: int = 0
    """ns that the clock of the servers' side is ahead; the packets are in order of the clocks."""
    jitter: int = 0
    """Largest delay of a packet in ns. The packets of a sender keep their order."""
    taps: bool = False
    """Each packet is captured twice."""
    files: str = "one"
    """"one"; "cut": two, one after the other; "ends": a file for each direction; "random"."""
    original_times: bool = False
    """Keep the recording's pauses. Else 50 microseconds pass from packet to packet."""

    def __str__(self) -> str:
        default = Options()
        changed = (
            f"{each.name}={getattr(self, each.name)}"
            for each in fields(self)
            if getattr(self, each.name) != getattr(default, each.name)
        )
        return " ".join(changed) or "plain"


@dataclass
class Packet:
    """An Ethernet frame and where it was captured."""

    time: int
    frame: bytes
    flow: int
    end: int
    file: int = 0


@dataclass
class _Sender:
    """One end of a flow."""

    isn: int
    sent: int = 0
    """Position behind the last byte sent."""
    seen: int = 0
    """Position up to which the other end's stream has arrived."""
    stream: bytearray = field(default_factory=bytearray)
    reported: int = 0
    """The acknowledgement number that the last packet had, as a position."""


def packets(whole: Recording, options: Options, chance: random.Random) -> list[Packet]:
    """The recording as this network would have carried it."""
    wire = _Wire(whole, options, chance)
    wire.run()
    frames = wire.frames
    if options.fragments:
        frames = list(_fragmented(frames, chance))
    if options.disorder:
        frames = _disordered(frames, options.disorder, chance)
    if options.taps:
        frames = [
            copy
            for each in frames
            for copy in (
                each,
                replace(each, time=each.time + chance.randrange(2000), frame=_hop(each.frame)),
            )
        ]
    if options.skew:
        for each in frames:
            each.time += options.skew * each.end
        frames.sort(key=lambda each: each.time)
    if options.jitter:
        _delay(frames, options.jitter, chance)
    tunnel = TUNNELS[options.tunnel]
    for each in frames:
        each.frame = tunnel(each.frame)
    _deal(frames, options.files, chance)
    return frames


def _is_over(held: Chunk, now: int) -> bool:
    """Whether a chunk is sent, although another one may follow."""
    return now - held.time > LONGEST_MERGE


def _disordered(frames: list[Packet], places: int, chance: random.Random) -> list[Packet]:
    """Delay packets by fewer places than the limit, at most 50 microseconds a place."""
    moved = sorted(
        frames, key=lambda each: each.time + chance.uniform(0, places) * 50 * MICROSECOND
    )
    for each, time in zip(moved, sorted(each.time for each in frames), strict=True):
        each.time = time
    return moved


def _delay(frames: list[Packet], limit: int, chance: random.Random) -> None:
    latest: dict[tuple[int, int], int] = {}
    for each in frames:
        sender = each.flow, each.end
        time = each.time + chance.randrange(limit)
        each.time = latest[sender] = max(time, latest.get(sender, 0))
    frames.sort(key=lambda each: each.time)


class _Wire:
    """Sends the chunks of all flows, in order, as segments."""

    def __init__(self, whole: Recording, options: Options, chance: random.Random) -> None:
        self.frames: list[Packet] = []
        self._whole = whole
        self._options = options
        self._chance = chance
        self._size = SEGMENTS[options.segments]
        self._senders = [[self._sender(size) for size in flow.sizes] for flow in whole.flows]
        self._begun = [False] * len(whole.flows)
        self._time = whole.chunks[0].time if whole.chunks else 0

    def _sender(self, size: int) -> _Sender:
        isn = self._chance.getrandbits(32)
        if self._options.wraps:
            isn = (1 << 32) - 1 - self._chance.randrange(size + 2)
        return _Sender(isn)

    def run(self) -> None:
        """All chunks; then the FINs."""
        for chunk in self._runs():
            self._open(chunk.flow)
            self._send(chunk)
        for flow in range(len(self._whole.flows)):
            self._open(flow)
            self._close(flow)

    def _runs(self) -> Iterator[Chunk]:
        """The chunks; with `merges`, joined with those that follow in the same direction within
        `LONGEST_MERGE`."""
        if not self._options.merges:
            yield from self._whole.chunks
            return
        waiting: dict[int, Chunk] = {}
        for each in self._whole.chunks:
            for flow in [flow for flow, held in waiting.items() if _is_over(held, each.time)]:
                yield waiting.pop(flow)
            held = waiting.get(each.flow)
            if held is not None and held.end == each.end:
                data = held.data + each.data
                waiting[each.flow] = Chunk(
                    held.flow, held.end, held.at, data, held.time, held.acknowledged
                )
                continue
            if held is not None:
                yield held
            waiting[each.flow] = each
        yield from waiting.values()

    def _open(self, flow: int) -> None:
        if self._begun[flow]:
            return
        self._begun[flow] = True
        if self._whole.flows[flow].has_syn:
            self._packet(flow, 0, -1, b"", SYN, time=self._whole.flows[flow].first_time)
            self._packet(flow, 1, -1, b"", SYN | ACK)
            self._packet(flow, 0, 0, b"", ACK)

    def _close(self, flow: int) -> None:
        for end, has_fin in enumerate(self._whole.flows[flow].has_fin):
            if has_fin:
                self._packet(flow, end, self._senders[flow][end].sent, b"", FIN | ACK)

    def _send(self, chunk: Chunk) -> None:
        options, chance = self._options, self._chance
        sender = self._senders[chunk.flow][chunk.end]
        other = self._senders[chunk.flow][1 - chunk.end]
        sender.stream += chunk.data
        assert chunk.at == sender.sent
        end = chunk.at + len(chunk.data)
        while sender.sent < end:
            start = sender.sent
            stop = min(end, start + self._size(chance))
            if chance.random() < options.overlaps:
                start = max(0, start - chance.randint(1, 3000))
            sender.sent = stop
            payload = bytes(sender.stream[start:stop])
            self._packet(chunk.flow, chunk.end, start, payload, ACK | PSH, time=chunk.time)
            other.seen = sender.sent
            if chance.random() < options.repeats:
                low = chance.randrange(sender.sent)
                high = min(sender.sent, low + self._size(chance))
                again = bytes(sender.stream[low:high])
                self._packet(chunk.flow, chunk.end, low, again, ACK | PSH)
            if chance.random() < options.keepalives:
                probe = bytes(sender.stream[sender.sent - 1 : sender.sent])
                data = probe if chance.random() < 0.5 else b""
                self._packet(chunk.flow, chunk.end, sender.sent - 1, data, ACK)
            if options.acknowledgements == "all" or (
                options.acknowledgements == "some" and chance.random() < 0.3
            ):
                self._packet(chunk.flow, 1 - chunk.end, other.sent, b"", ACK)

    def _packet(
        self, flow: int, end: int, at: int, payload: bytes, flags: int, *, time: int = 0
    ) -> None:
        """`at`: position of the first byte; -1 for a SYN."""
        self._time = max(self._time + 50 * MICROSECOND, time if self._options.original_times else 0)
        ends = self._whole.flows[flow].ends
        sender, other = self._senders[flow][end], self._senders[flow][1 - end]
        if self._options.acknowledgements != "stale" or self._chance.random() < 0.1:
            sender.reported = sender.seen
        seq = (sender.isn + 1 + at) % (1 << 32)
        ack = (other.isn + 1 + sender.reported) % (1 << 32) if flags & ACK else 0
        frame = _frame(ends[end], ends[1 - end], seq, ack, flags, payload)
        self.frames.append(Packet(self._time, frame, flow, end))


def _frame(
    source: Address, target: Address, seq: int, ack: int, flags: int, payload: bytes
) -> bytes:
    tcp = struct.pack(
        ">HHIIBBHHH", source[1], target[1], seq, ack, 5 << 4, flags, 0xFFFF, 0, 0
    ) + payload  # fmt: skip
    if len(source[0]) == 16:
        ip = struct.pack(">IHBB", 6 << 28, len(tcp), 6, 64) + source[0] + target[0]
        return ETHERNET + b"\x86\xdd" + ip + tcp
    return ETHERNET + b"\x08\0" + _ipv4(source[0], target[0], tcp)


def _ipv4(source: bytes, target: bytes, data: bytes, *, proto: int = 6, ident: int = 0,
          offset: int = 0) -> bytes:  # fmt: skip
    """`offset`: the fragment field, with its flags."""
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(data), ident, offset, 64, proto, 0)
    words = struct.unpack(">10H", head + source + target)
    total = sum(words)
    total = (total & 0xFFFF) + (total >> 16)
    check = ~(total + (total >> 16)) & 0xFFFF
    return head[:10] + struct.pack(">H", check) + source + target + data


def _hop(frame: bytes) -> bytes:
    """The frame behind one more router."""
    if frame[12:14] != b"\x08\0":
        return frame[:21] + bytes([frame[21] - 1]) + frame[22:]
    return frame[:22] + bytes([frame[22] - 1]) + frame[23:]


def _fragmented(frames: Sequence[Packet], chance: random.Random) -> Iterator[Packet]:
    """Some IPv4 packets in fragments, in any order."""
    for number, each in enumerate(frames):
        data = each.frame[34:]
        if each.frame[12:14] != b"\x08\0" or len(data) < 24 or chance.random() < 0.5:
            yield each
            continue
        step = 8 * chance.randint(1, max(1, len(data) // 16))
        parts = []
        for at in range(0, len(data), step):
            flags = 0x2000 if at + step < len(data) else 0
            ip = _ipv4(
                each.frame[26:30], each.frame[30:34], data[at : at + step],
                ident=number % 65536, offset=flags | at // 8,
            )  # fmt: skip
            parts.append(replace(each, frame=each.frame[:14] + ip))
        chance.shuffle(parts)
        yield from parts


def _deal(frames: list[Packet], how: str, chance: random.Random) -> None:
    """Give each packet a file."""
    border = chance.randrange(len(frames) + 1)
    for index, each in enumerate(frames):
        if how == "cut":
            each.file = int(index >= border)
        elif how == "ends":
            each.file = each.end
        elif how == "random":
            each.file = chance.randrange(2)


def _tunnel(name: str) -> Callable[[Callable[[bytes], bytes]], Callable[[bytes], bytes]]:
    def add(wrap: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        TUNNELS[name] = wrap
        return wrap

    return add


HERE, THERE = bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2])
"""Ends of tunnels (RFC 5737)."""


@_tunnel("none")
def _plain(frame: bytes) -> bytes:
    return frame


@_tunnel("vlan")
def _vlan(frame: bytes) -> bytes:
    return frame[:12] + b"\x81\0\0\7" + frame[12:]


@_tunnel("qinq")
def _qinq(frame: bytes) -> bytes:
    return frame[:12] + b"\x88\xa8\0\5\x81\0\0\7" + frame[12:]


@_tunnel("mpls")
def _mpls(frame: bytes) -> bytes:
    return frame[:12] + b"\x88\x47" + struct.pack(">I", 17 << 12 | 1 << 8 | 64) + frame[14:]


@_tunnel("pppoe")
def _pppoe(frame: bytes) -> bytes:
    protocol = b"\0\x21" if frame[12:14] == b"\x08\0" else b"\0\x57"
    head = struct.pack(">BBHH", 0x11, 0, 9, len(frame) - 12)
    return frame[:12] + b"\x88\x64" + head + protocol + frame[14:]


def _outer(payload: bytes, proto: int) -> bytes:
    return ETHERNET + b"\x08\0" + _ipv4(HERE, THERE, payload, proto=proto)


def _udp(port: int, payload: bytes) -> bytes:
    return _outer(struct.pack(">HHHH", 50_000, port, 8 + len(payload), 0) + payload, 17)


@_tunnel("gre")
def _gre(frame: bytes) -> bytes:
    return _outer(b"\0\0" + frame[12:], 47)


@_tunnel("ip-in-ip")
def _ip_in_ip(frame: bytes) -> bytes:
    return _outer(frame[14:], 4 if frame[12:14] == b"\x08\0" else 41)


@_tunnel("vxlan")
def _vxlan(frame: bytes) -> bytes:
    return _udp(4789, struct.pack(">II", 0x08000000, 42 << 8) + frame)


@_tunnel("geneve")
def _geneve(frame: bytes) -> bytes:
    return _udp(6081, struct.pack(">BBHI", 0, 0, 0x6558, 42 << 8) + frame)


def drawn(chance: random.Random, size: int, *, has_repeated_ids: bool) -> Options:
    """Random options for a recording of this size in bytes.

    `has_repeated_ids`: its correlation ids repeat, so that only acknowledgements and order pair
    its messages. The two ends then share a clock unless all acknowledgements are current.
    """
    tiny = ["bytes"] if size < 60_000 else []
    small = ["small"] if size < 1_000_000 else []
    acknowledgements = chance.choice(ACKNOWLEDGEMENTS)
    is_timed = chance.random() < 0.3
    is_free = acknowledgements == "all" or not has_repeated_ids
    skewed, delayed = (is_free and chance.random() < share for share in (0.3, 0.15))
    skew = chance.randrange(-160, 161) if is_timed else chance.randrange(-20, 21)
    return Options(
        segments=chance.choice([*tiny, *small, "mss", "jumbo", "mixed" if small else "mss"]),
        merges=chance.random() < 0.5,
        acknowledgements=acknowledgements,
        disorder=chance.choice([0, 0, 2, 8, 30]),
        repeats=chance.choice([0, 0, 0.05, 0.3]),
        overlaps=chance.choice([0, 0, 0.05, 0.3]),
        keepalives=chance.choice([0, 0, 0.1]),
        fragments=chance.random() < 0.2,
        tunnel=chance.choice(["none"] * 6 + list(TUNNELS)),
        wraps=chance.random() < 0.3,
        skew=skew * 50 * MICROSECOND if skewed else 0,
        jitter=3_000 * MICROSECOND if delayed else 0,
        taps=chance.random() < 0.15,
        files=chance.choice(["one", "one", "cut", "ends", "random"]),
        original_times=is_timed,
    )
