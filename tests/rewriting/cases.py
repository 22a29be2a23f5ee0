"""One random case: a recording, what the network does to it, and whether its rows are the same.

Rows are compared without what another network changes: times, packet numbers, files, the order of
connections, and how many requests were in flight. The expected rows are those of the recording as
it was captured, which other tests hold against the logs of brokers and clients.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from dissector.packets import open_packets
from dissector.pipeline import Pipeline
from tests.rewriting.flows import CAPTURES, Incomplete, recording
from tests.rewriting.network import Options, Packet, drawn, packets

COLUMNS = (
    "client_ip", "client_port", "broker_ip", "broker_port", "api", "api_key", "api_version",
    "correlation_id", "client_id", "status", "request_bytes", "response_bytes", "error_code",
    "throttle_time_ms", "topics",
)  # fmt: skip
REPEATED_IDS = ("pykafka", "sasl")
"""Parts of the names of recordings in which correlation ids repeat."""
LEFT_OUT = ("vxlan", "tls", "cut-responses")
"""Parts of the names of recordings that are not used: already in a tunnel, encrypted, or without a
packet of the client, of which the network would make acknowledgements."""
PORT = 9092
BLOCKS = {"default": (1 << 25, 1 << 25), "small": (3_000, 8_000), "packets": (40, 40)}
"""Bytes of a block, at least and at most."""
LARGEST = {"default": 3_000_000, "small": 3_000_000, "packets": 100_000}
"""Largest size of a recording in bytes, by blocks. Larger recordings take too long: a block of one
packet costs several milliseconds."""


@dataclass
class Case:
    """Random options, and the result."""

    seed: int
    name: str
    options: Options
    block_bytes: int
    exchanges: int = 0
    lost: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    false: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    @property
    def is_equal(self) -> bool:
        return not self.lost and not self.false

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.name}, {self.options}, blocks of {self.block_bytes}: "
            f"{self.lost.total()} lost, {self.false.total()} false of {self.exchanges}"
        )


@cache
def names(largest: int) -> list[str]:
    """Recordings of at most `largest` bytes that miss no byte."""
    complete = []
    for path in sorted(CAPTURES.iterdir()):
        if ".pcap" not in path.name or any(part in path.name for part in LEFT_OUT):
            continue
        try:
            whole = recording(path.name)
        except Incomplete:
            continue
        if 0 < whole.size <= largest:
            complete.append(path.name)
    return complete


def run(seed: int, folder: Path, *, blocks: str = "default", name: str | None = None) -> Case:
    """Draw a case by its seed, write its files into a folder, and read them.

    `blocks`: a key of `BLOCKS`. `name`: a recording; drawn where it is None.
    """
    chance = random.Random(seed)
    name = chance.choice(names(LARGEST[blocks])) if name is None else name
    whole = recording(name)
    has_repeated_ids = any(part in name for part in REPEATED_IDS)
    options = drawn(chance, whole.size, has_repeated_ids=has_repeated_ids)
    case = Case(seed, name, options, chance.randint(*BLOCKS[blocks]))
    paths = write(folder, packets(whole, options, chance))
    actual = rows(paths, case.block_bytes)
    expected = original(name)
    case.exchanges = expected.total()
    case.lost, case.false = expected - actual, actual - expected
    return case


def rows(paths: list[Path], block_bytes: int = 1 << 25) -> Counter[tuple[Any, ...]]:
    """The exchanges in these files."""
    capture = Pipeline(open_packets(paths, block_bytes=block_bytes), [], ports=[PORT])
    table = capture.tables(["exchanges"])["exchanges"].select(COLUMNS)
    return Counter(
        tuple(str(value) if isinstance(value, list) else value for value in row.values())
        for row in table.to_pylist()
    )


@cache
def original(name: str) -> Counter[tuple[Any, ...]]:
    """The exchanges of the recording as it is."""
    return rows([CAPTURES / name])


def write(folder: Path, frames: list[Packet]) -> list[Path]:
    """pcap files in ns of these packets."""
    paths = []
    for number in sorted({each.file for each in frames}):
        path = folder / f"{number}.pcap"
        with path.open("wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
            for each in frames:
                if each.file == number:
                    head = (*divmod(each.time, 10**9), len(each.frame), len(each.frame))
                    file.write(struct.pack("<IIII", *head) + each.frame)
        paths.append(path)
    return paths
