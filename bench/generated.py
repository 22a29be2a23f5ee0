"""Chatter with random field values, in place of a repeated recording.

Each packet has one message. Connections take turns at random, and brokers respond in order. Names
of groups, members and topics are drawn from those of a large cluster. tshark decodes these versions
completely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from struct import pack

from bench.pcap import HEADER

BROKER_PORT, FIRST_PORT = 9092, 20_000
BEGIN = 1_700_000_000 * 10**9
STEP, LATENCY = 20_000, 2_000_000
"""ns between two requests, and until a response: on average."""
SYN, ACK, PUSH_ACK = 2, 16, 24


def write(path: Path, connections: int, exchanges: int) -> int:
    """Write a capture. Returns the number of its packets."""
    chance = Random(1)
    names = Names(chance)
    free = [0] * connections
    events: list[tuple[int, int, int, bytes]] = []
    time = BEGIN
    for identity in range(exchanges):
        connection = chance.randrange(connections)
        request, response = exchange(chance, names, connection, identity)
        time += chance.randrange(2 * STEP)
        free[connection] = max(free[connection], time) + chance.randrange(2 * LATENCY)
        events.append((time, 2 * connection, PUSH_ACK, request))
        events.append((free[connection], 2 * connection + 1, PUSH_ACK, response))
    for connection in range(connections):
        begin = BEGIN - STEP * (connections - connection)
        for number, flags in enumerate((SYN, SYN | ACK, ACK)):
            events.append((begin + number, 2 * connection + number % 2, flags, b""))
    events.sort(key=lambda event: event[0])
    with path.open("wb") as file:
        file.write(HEADER)
        for packet in packets(events, connections):
            file.write(packet)
    return len(events)


def packets(events: list[tuple[int, int, int, bytes]], connections: int) -> Iterator[bytes]:
    """The records of a pcap: time, stream, flags and payload of each packet, in order of time."""
    following = [1000] * (2 * connections)
    for time, stream, flags, payload in events:
        connection, is_broker = divmod(stream, 2)
        client = bytes([10, 1, connection >> 8 & 255, connection & 255])
        ends = [(client, FIRST_PORT + connection % 40_000), (bytes([10, 0, 0, 1]), BROKER_PORT)]
        (source, source_port), (target, target_port) = ends[::-1] if is_broker else ends
        size = 40 + len(payload)
        record = pack("<IIII", time // 10**9, time % 10**9, 14 + size, 14 + size)
        ip = pack(">BBHHHBBH4s4s", 0x45, 0, size, 0, 0x4000, 64, 6, 0, source, target)
        sequence, acknowledged = following[stream], following[stream ^ 1]
        tcp = pack(
            ">HHIIBBHHH", source_port, target_port, sequence & 0xFFFFFFFF,
            acknowledged & 0xFFFFFFFF, 0x50, flags, 65_000, 0, 0,
        )  # fmt: skip
        following[stream] += len(payload) + (flags & SYN > 0)
        yield record + bytes(12) + b"\x08\x00" + ip + tcp + payload


def text(value: str) -> bytes:
    return pack(">h", len(value)) + value.encode()


def array(*items: bytes) -> bytes:
    return pack(">i", len(items)) + b"".join(items)


class Names:
    """Names that messages contain."""

    def __init__(self, chance: Random) -> None:
        def draw(prefix: str, count: int) -> list[bytes]:
            return [text(f"{prefix}-{chance.getrandbits(48):012x}") for _ in range(count)]

        self.groups, self.members = draw("group", 200), draw("member", 4000)
        self.topics, self.hosts = draw("topic", 500), draw("broker", 3)


def exchange(
    chance: Random, names: Names, connection: int, correlation_id: int
) -> tuple[bytes, bytes]:
    """A request with its response, each with its size."""
    api_key, version, bodies = chance.choice(APIS)
    body, answer = bodies(chance, names)
    client = text(f"client-{connection}")
    request = pack(">hhi", api_key, version, correlation_id) + client + body
    response = pack(">i", correlation_id) + answer
    return pack(">i", len(request)) + request, pack(">i", len(response)) + response


Bodies = Callable[[Random, Names], tuple[bytes, bytes]]


def heartbeat(chance: Random, names: Names) -> tuple[bytes, bytes]:
    generation = pack(">i", chance.randrange(1000))
    group, member = chance.choice(names.groups), chance.choice(names.members)
    request = group + generation + member + pack(">h", -1)
    return request, pack(">ih", chance.randrange(50), error(chance))


def offset_commit(chance: Random, names: Names) -> tuple[bytes, bytes]:
    topic, partitions = chance.choice(names.topics), range(chance.randrange(1, 5))
    wanted = [pack(">iqh", each, chance.getrandbits(40), -1) for each in partitions]
    done = [pack(">ih", each, error(chance)) for each in partitions]
    front = chance.choice(names.groups) + pack(">i", 7) + chance.choice(names.members)
    request = front + pack(">q", -1) + array(topic + array(*wanted))
    return request, array(topic + array(*done))


def list_offsets(chance: Random, names: Names) -> tuple[bytes, bytes]:
    topic, partitions = chance.choice(names.topics), range(chance.randrange(1, 5))
    wanted = [pack(">iq", each, chance.choice((-1, -2))) for each in partitions]
    known = [pack(">ihqq", each, error(chance), -1, chance.getrandbits(40)) for each in partitions]
    request = pack(">i", -1) + array(topic + array(*wanted))
    return request, array(topic + array(*known))


def fetch(chance: Random, names: Names) -> tuple[bytes, bytes]:
    topic, partitions = chance.choice(names.topics), range(chance.randrange(1, 5))
    ends = [chance.getrandbits(40) for _ in partitions]
    wanted = [pack(">iqi", each, end, 1 << 20) for each, end in zip(partitions, ends, strict=True)]
    empty = [
        pack(">ihqqii", each, error(chance), end, end, -1, 0)
        for each, end in zip(partitions, ends, strict=True)
    ]
    front = pack(">iiiib", -1, chance.randrange(600), 1, 1 << 24, chance.randrange(2))
    request = front + array(topic + array(*wanted))
    return request, pack(">i", chance.randrange(50)) + array(topic + array(*empty))


def metadata(chance: Random, names: Names) -> tuple[bytes, bytes]:
    topics = chance.sample(names.topics, chance.randrange(1, 4))
    brokers = [
        pack(">i", each) + host + pack(">ih", BROKER_PORT, -1)
        for each, host in enumerate(names.hosts)
    ]
    replicas = array(*(pack(">i", each) for each in range(3)))
    known = [
        pack(">h", error(chance)) + topic + b"\0"
        + array(pack(">hii", 0, 0, chance.randrange(3)) + replicas + replicas)
        for topic in topics
    ]  # fmt: skip
    return array(*topics), array(*brokers) + pack(">i", 0) + array(*known)


def error(chance: Random) -> int:
    """An error code, mostly 0."""
    return chance.choice((3, 6, 16, 25)) if chance.random() < 0.02 else 0


APIS: list[tuple[int, int, Bodies]] = [
    (12, 3, heartbeat), (8, 2, offset_commit), (2, 1, list_offsets), (1, 4, fetch),
    (3, 1, metadata),
]  # fmt: skip
"""Key and version of each API, and its bodies."""
