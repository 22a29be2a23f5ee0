"""The large inputs, made by repeating small recordings; `python -m bench.inputs` makes one.

Every connection of an input is one of the recording, its body repeated for as many rounds as it
takes (see `template`), with a client port of its own, and a client address of its own where ports
run out. A round keeps the pace of the recording; the connections lie over one another in time,
each with a random phase, so that their packets mix as those of a busy broker do. TCP and IP
checksums are not made right: neither the project nor any peer looks at them.

An input lies in `bench/data`, with a JSON file beside it that says what is in it, and is made
again only where the recording, or how it is repeated, has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench import template
from bench.template import IP, Conversation, Template

HERE = Path(__file__).parent
DATA = HERE / "data"
HEADER = bytes.fromhex("4d3cb2a1 0200 0400 00000000 00000000 00000400 01000000")
"""Of a pcap with times in ns: snaplen 262144, Ethernet."""
FIRST_PORT, PORTS = 61_000, 4_500
"""Client ports: above those that systems choose, so never a broker's. tshark asks the lower of two
ports first which protocol it is, and shall find the broker's."""
GAP = 1_000_000
"""ns between the end of a round and the next, at least."""
WINDOW = 32_768
"""Packets that are made at once."""


@dataclass(frozen=True, slots=True)
class Input:
    """What an input is to be. It ends when it has so many messages, or so many bytes."""

    name: str
    recording: Path
    connections: int
    messages: int = 0
    bytes: int = 0
    longest: int = 0
    """The most exchanges of a body; 0 for as many as there are."""

    @property
    def path(self) -> Path:
        """Where the input lies."""
        return DATA / f"{self.name}.pcap"


@dataclass(frozen=True, slots=True)
class Content:
    """What is in an input."""

    packets: int
    bytes: int
    messages: int
    """Requests and responses; those in head and tail of a connection are not counted."""
    connections: int
    broker_ports: list[int]
    seconds: float
    """From the first packet to the last."""
    made_from: str
    """A digest of the recording, of how it is repeated, and how often."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Every packet of an input in order of time; arrays of shape (packets,)."""

    packet: NDArray[np.int64]
    """Index in the template."""
    connection: NDArray[np.int64]
    round: NDArray[np.int64]
    """How many bodies went before."""
    time: NDArray[np.int64]
    """ns since 1970."""


def ready(wanted: Input) -> Content:
    """What is in an input; makes it where it is not there, or out of date."""
    note = wanted.path.with_suffix(".json")
    digest = _digest(wanted)
    if wanted.path.exists() and note.exists():
        content = Content(**json.loads(note.read_text()))
        if content.made_from == digest:
            return content
    note.unlink(missing_ok=True)
    DATA.mkdir(exist_ok=True)
    content = make(wanted, digest)
    note.write_text(json.dumps(asdict(content), indent=1))
    return content


def _digest(wanted: Input) -> str:
    parts = [wanted.recording, Path(__file__), Path(template.__file__)]
    digest = hashlib.sha256(repr(astuple(wanted)[2:]).encode())
    for part in parts:
        digest.update(part.read_bytes())
    return digest.hexdigest()[:16]


def make(wanted: Input, digest: str = "") -> Content:
    """Write an input."""
    source = template.read(wanted.recording, wanted.longest)
    origins = [
        source.conversations[number % len(source.conversations)]
        for number in range(wanted.connections)
    ]
    rounds = _rounds(wanted, source, origins)
    plan = _plan(source, origins, rounds)
    with wanted.path.open("wb") as output:
        output.write(HEADER)
        for start in range(0, len(plan.time), WINDOW):
            output.write(_window(source, origins, plan, slice(start, start + WINDOW)))
    return Content(
        packets=len(plan.time),
        bytes=wanted.path.stat().st_size,
        messages=rounds * sum(2 * origin.exchanges for origin in origins),
        connections=len(origins),
        broker_ports=sorted({origin.broker_port for origin in origins}),
        seconds=float(plan.time[-1] - plan.time[0]) / 1e9,
        made_from=digest,
    )


def _rounds(wanted: Input, source: Template, origins: list[Conversation]) -> int:
    """How often every body is repeated. The same for all, so that the mix is the recording's."""
    if wanted.messages:
        return max(math.ceil(wanted.messages / sum(2 * origin.exchanges for origin in origins)), 1)
    size = sum(int(source.length[_packets(origin)[1]].sum()) for origin in origins)
    return max(math.ceil(wanted.bytes / size), 1)


def _packets(origin: Conversation) -> list[NDArray[np.int64]]:
    """Indices of the packets of a connection: head, body, tail."""
    index = np.array([segment.index for segment in origin.segments], np.int64)
    return np.split(index, [origin.body.start, origin.body.stop])


def _plan(source: Template, origins: list[Conversation], rounds: int) -> Plan:
    """Lay the rounds of all connections over the same span, and sort all packets by time."""
    parts = [_packets(origin) for origin in origins]
    every = GAP + max(int(np.ptp(source.time[body])) for _, body, _ in parts)
    phases = np.random.default_rng(1).integers(every, size=len(origins))
    packets, connections, numbers, moments = [], [], [], []
    for connection, (head, body, tail) in enumerate(parts):
        packet = np.concatenate([head, np.tile(body, rounds), tail])
        number = np.zeros(len(packet), np.int64)
        number[len(head) :] = rounds - 1
        number[len(head) :][: rounds * len(body)] = np.repeat(np.arange(rounds), len(body))
        packets.append(packet)
        connections.append(np.full(len(packet), connection, np.int64))
        numbers.append(number)
        pace = source.time[packet] - source.time[body[0]]
        moments.append(pace + number * every + phases[connection])
    time = np.concatenate(moments)
    time += source.time[0] - time.min()
    order = np.argsort(time, kind="stable")
    return Plan(
        np.concatenate(packets)[order],
        np.concatenate(connections)[order],
        np.concatenate(numbers)[order],
        time[order],
    )


def _window(source: Template, origins: list[Conversation], plan: Plan, part: slice) -> bytearray:
    """Some packets of a plan as they stand in the file."""
    packet, connection = plan.packet[part], plan.connection[part]
    number, time = plan.round[part], plan.time[part]
    data = bytearray().join([source.records[index] for index in packet.tolist()])
    length = source.length[packet]
    at = np.cumsum(length) - length
    by_client = source.from_client[packet]
    tcp = at + source.tcp[packet]
    _write(data, at, time // 10**9, "<u4")
    _write(data, at + 4, time % 10**9, "<u4")
    _write(data, tcp + np.where(by_client, 0, 2), FIRST_PORT + connection % PORTS, ">u2")
    _move(data, at + IP + np.where(by_client, 12, 16), connection // PORTS)
    body_bytes = np.array([origin.body_bytes for origin in origins], np.int64)
    _move(data, tcp + 4, number * body_bytes[connection, by_client.astype(np.int64)])
    _move(data, tcp + 8, number * body_bytes[connection, 1 - by_client])
    exchanges = np.array([origin.exchanges for origin in origins], np.int64)
    _renumber(data, source, packet, at, number * exchanges[connection])
    return data


def _field(data: bytearray, dtype: str) -> NDArray[np.generic]:
    """Overlapping view: element i is the number that begins at byte i."""
    width = np.dtype(dtype).itemsize
    return np.ndarray((len(data) - width + 1,), dtype, data, strides=(1,))


def _write(data: bytearray, at: NDArray[np.int64], value: NDArray[np.int64], dtype: str) -> None:
    _field(data, dtype)[at] = value


def _move(data: bytearray, at: NDArray[np.int64], by: NDArray[np.int64]) -> None:
    """Add to big-endian numbers of 32 bits, modulo 2**32."""
    view = _field(data, ">u4")
    view[at] = (view[at].astype(np.int64) + by) & 0xFFFFFFFF


def _renumber(
    data: bytearray,
    source: Template,
    packet: NDArray[np.int64],
    at: NDArray[np.int64],
    by: NDArray[np.int64],
) -> None:
    """Add to the correlation ids, byte by byte, since a packet may end within one."""
    first = source.mark_start[packet]
    count = source.mark_start[packet + 1] - first
    owner = np.repeat(np.arange(len(packet)), count)
    mark = np.arange(len(owner)) + np.repeat(first - (np.cumsum(count) - count), count)
    value = (source.mark_id[mark] + by[owner]) >> source.mark_shift[mark]
    np.frombuffer(data, np.uint8)[at[owner] + source.mark_offset[mark]] = value & 0xFF


def main() -> None:
    """Make one input where it is needed, and say as JSON what is in it."""
    parser = argparse.ArgumentParser(prog="python -m bench.inputs", description=main.__doc__)
    parser.add_argument("name", help="the file is bench/data/NAME.pcap")
    parser.add_argument("recording", type=Path)
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--bytes", type=int, default=0)
    parser.add_argument("--longest", type=int, default=0)
    options = parser.parse_args()
    print(json.dumps(asdict(ready(Input(**vars(options))))))


if __name__ == "__main__":
    main()
