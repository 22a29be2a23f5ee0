"""Large inputs, made by repeating small recordings; `python -m bench.inputs` makes one.

Without a recording, messages are random: see `generated`. Otherwise each connection of an input is
a connection of the recording whose body is repeated (see `template`), with its own client port, and
its own client address when ports run out. A round keeps the timing of the recording. Connections
overlap in time with random phases, so that their packets mix like those of a busy broker. TCP and
IP checksums are not updated, because neither the project nor any peer checks them.

An input is in `bench/data`, with a JSON file that describes it. It is made again only if the
recording or the method of repetition has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench import generated, template
from bench.pcap import HEADER, Content
from bench.template import IP, Conversation, Template

HERE = Path(__file__).parent
DATA = HERE / "data"
FIRST_PORT, PORTS = 61_000, 4_500
"""Client ports above those that systems choose, so never a broker port. tshark looks up the lower
of two ports first, which must be the broker port."""
GAP = 1_000_000
"""Minimum time between rounds; ns."""
WINDOW = 32_768
"""Packets per block."""


@dataclass(frozen=True, slots=True)
class Input:
    """The specification of an input. It ends at `messages` or `bytes`."""

    name: str
    recording: Path | None
    """None: messages with random values, see `generated`."""
    connections: int
    messages: int = 0
    bytes: int = 0
    longest: int = 0
    """Most exchanges of a body; 0: no limit."""

    @property
    def path(self) -> Path:
        return DATA / f"{self.name}.pcap"


@dataclass(frozen=True, slots=True)
class Plan:
    """The packets of an input in order of time; arrays of shape (packets,)."""

    packet: NDArray[np.int64]
    """Index in the template."""
    connection: NDArray[np.int64]
    round: NDArray[np.int64]
    """Number of preceding bodies."""
    time: NDArray[np.int64]
    """ns since 1970."""


def ready(specification: Input) -> Content:
    """The content of an input, which is made if it is missing or outdated."""
    note = specification.path.with_suffix(".json")
    digest = _digest(specification)
    if specification.path.exists() and note.exists():
        content = Content(**json.loads(note.read_text()))
        if content.made_from == digest:
            return content
    note.unlink(missing_ok=True)
    DATA.mkdir(exist_ok=True)
    content = make(specification, digest)
    note.write_text(json.dumps(asdict(content), indent=1))
    os.sync()  # else the disk writes while programs are measured
    return content


def _digest(specification: Input) -> str:
    method = Path(template.__file__) if specification.recording else Path(generated.__file__)
    parts = [specification.recording, Path(__file__), method]
    digest = hashlib.sha256(repr(astuple(specification)[2:]).encode())
    for part in filter(None, parts):
        digest.update(part.read_bytes())
    return digest.hexdigest()[:16]


def make(specification: Input, digest: str = "") -> Content:
    """Write an input."""
    if specification.recording is None:
        return _generate(specification, digest)
    source = template.read(specification.recording, specification.longest)
    origins = [
        source.conversations[number % len(source.conversations)]
        for number in range(specification.connections)
    ]
    rounds = _rounds(specification, source, origins)
    plan = _plan(source, origins, rounds)
    with specification.path.open("wb") as output:
        output.write(HEADER)
        for start in range(0, len(plan.time), WINDOW):
            output.write(_window(source, origins, plan, slice(start, start + WINDOW)))
    return Content(
        packets=len(plan.time),
        bytes=specification.path.stat().st_size,
        messages=rounds * sum(2 * origin.exchanges for origin in origins),
        connections=len(origins),
        broker_ports=sorted({origin.broker_port for origin in origins}),
        seconds=float(plan.time[-1] - plan.time[0]) / 1e9,
        made_from=digest,
    )


def _generate(specification: Input, digest: str) -> Content:
    path, exchanges = specification.path, specification.messages // 2
    packets = generated.write(path, specification.connections, exchanges)
    return Content(
        packets=packets, bytes=path.stat().st_size, messages=2 * exchanges,
        connections=specification.connections, broker_ports=[generated.BROKER_PORT],
        seconds=exchanges * generated.STEP / 1e9, made_from=digest,
    )  # fmt: skip


def _rounds(specification: Input, source: Template, origins: list[Conversation]) -> int:
    """Repetitions of each body; the same for all, to keep the mix of the recording."""
    if specification.messages:
        return max(
            math.ceil(specification.messages / sum(2 * origin.exchanges for origin in origins)), 1
        )
    size = sum(int(source.length[_packets(origin)[1]].sum()) for origin in origins)
    return max(math.ceil(specification.bytes / size), 1)


def _packets(origin: Conversation) -> list[NDArray[np.int64]]:
    """Indices of the packets of a connection: head, body, tail."""
    index = np.array([segment.index for segment in origin.segments], np.int64)
    return np.split(index, [origin.body.start, origin.body.stop])


def _plan(source: Template, origins: list[Conversation], rounds: int) -> Plan:
    """Distribute the rounds of all connections over one time span; sort packets by time."""
    parts = [_packets(origin) for origin in origins]
    period = GAP + max(int(np.ptp(source.time[body])) for _, body, _ in parts)
    phases = np.random.default_rng(1).integers(period, size=len(origins))
    packets, connections, numbers, times = [], [], [], []
    for connection, (head, body, tail) in enumerate(parts):
        packet = np.concatenate([head, np.tile(body, rounds), tail])
        number = np.zeros(len(packet), np.int64)
        number[len(head) :] = rounds - 1
        number[len(head) :][: rounds * len(body)] = np.repeat(np.arange(rounds), len(body))
        packets.append(packet)
        connections.append(np.full(len(packet), connection, np.int64))
        numbers.append(number)
        pace = source.time[packet] - source.time[body[0]]
        times.append(pace + number * period + phases[connection])
    time = np.concatenate(times)
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
    """Overlapping view: element i is the number that starts at byte i."""
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
    """Add to correlation ids, byte by byte, because a packet may end within one."""
    first = source.mark_start[packet]
    count = source.mark_start[packet + 1] - first
    owner = np.repeat(np.arange(len(packet)), count)
    mark = np.arange(len(owner)) + np.repeat(first - (np.cumsum(count) - count), count)
    value = (source.mark_id[mark] + by[owner]) >> source.mark_shift[mark]
    np.frombuffer(data, np.uint8)[at[owner] + source.mark_offset[mark]] = value & 0xFF


def main() -> None:
    """Make an input if needed, and print its content as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.inputs", description=main.__doc__)
    parser.add_argument("name", help="the file is bench/data/NAME.pcap")
    parser.add_argument("recording", type=Path, nargs="?", help="default: random messages")
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--bytes", type=int, default=0)
    parser.add_argument("--longest", type=int, default=0)
    options = parser.parse_args()
    print(json.dumps(asdict(ready(Input(**vars(options))))))


if __name__ == "__main__":
    main()
