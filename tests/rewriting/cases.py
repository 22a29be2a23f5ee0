"""One random case: a recording, what the network does to it, and whether its rows are the same.

Rows are compared without the columns that depend on the network. The expected rows are those of the
recording as it was captured, which other tests compare with the logs of brokers and clients.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from dissector.packets import open_packets
from dissector.pipeline import Pipeline
from tests.captures import recorded
from tests.rewriting.flows import CAPTURES, Incomplete, recording
from tests.rewriting.network import Options, Packet, drawn, packets

LEFT_OUT = (
    "capture", "connection_id", "request_packet", "response_packet", "request_time",
    "request_end_time", "response_time", "response_end_time", "latency_ms", "in_flight", "time",
)  # fmt: skip
"""Columns that depend on the network."""
COMPARED = (
    "exchanges", "errors", "batches", "decompressed_batches", "records", "partitions",
    "memberships", "transactions",
)  # fmt: skip
"""Tables that are compared. `topics` and `brokers` have changes only, which depend on
the order of connections."""
REPEATED_IDS = ("pykafka", "sasl")
"""Parts of the names of recordings in which correlation ids repeat."""
UNUSABLE = ("vxlan", "tls", "cut-responses")
"""Parts of the names of recordings that are not used: already in a tunnel, encrypted, or without
packets of the client, which the rewriter would add as acknowledgements."""
PORT = 9092
BLOCKS = {"default": (1 << 25, 1 << 25), "small": (3_000, 8_000), "packets": (40, 40)}
"""Bytes of a block, at least and at most."""
LARGEST = {"default": 3_000_000, "small": 3_000_000, "packets": 100_000}
"""Largest size of a recording in bytes, by blocks. A block of one packet takes several ms,
so larger recordings take too long."""


@dataclass
class Case:
    """Random options, and the result."""

    seed: int
    name: str
    options: Options
    block_bytes: int
    expected: int = 0
    """Rows of the recording."""
    lost: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    false: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    @property
    def is_equal(self) -> bool:
        return not self.lost and not self.false

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.name}, {self.options}, blocks of {self.block_bytes}: "
            f"{self.lost.total()} lost, {self.false.total()} false of {self.expected}"
        )


@cache
def _names() -> list[str]:
    return [
        path.name
        for path in sorted(CAPTURES.iterdir())
        if ".pcap" in path.name and not any(part in path.name for part in UNUSABLE)
    ]


def drawn_name(chance: random.Random, largest: int) -> str:
    """A complete recording of at most `largest` bytes."""
    while True:
        name = chance.choice(_names())
        with suppress(Incomplete):
            if 0 < recording(name).size <= largest:
                return name


def run(seed: int, folder: Path, *, blocks: str = "default", name: str | None = None) -> Case:
    """Draw a case by its seed, write its files into a folder, and read them.

    `blocks`: a key of `BLOCKS`. `name`: a recording; drawn where it is None.
    """
    chance = random.Random(seed)
    name = drawn_name(chance, LARGEST[blocks]) if name is None else name
    whole = recording(name)
    has_repeated_ids = any(part in name for part in REPEATED_IDS)
    options = drawn(chance, whole.size, has_repeated_ids=has_repeated_ids)
    case = Case(seed, name, options, chance.randint(*BLOCKS[blocks]))
    paths = write(folder, packets(whole, options, chance))
    actual = rows(paths, case.block_bytes)
    expected = original(name)
    case.expected = expected.total()
    case.lost, case.false = expected - actual, actual - expected
    return case


def rows(
    paths: list[Path], block_bytes: int = 1 << 25, *, keylog: Path | None = None
) -> Counter[tuple[Any, ...]]:
    """The rows of these files, each with the name of its table."""
    source = open_packets(paths, block_bytes=block_bytes)
    capture = Pipeline(source, [], ports=[PORT], keylog=keylog)
    counts: Counter[tuple[Any, ...]] = Counter()
    for name, table in capture.tables(COMPARED).items():
        columns = [column for column in table.column_names if column not in LEFT_OUT]
        values = [map(_hashable, table[column].to_pylist()) for column in columns]
        counts.update(zip([name] * len(table), *values, strict=True))
    return counts


def _hashable(value: object) -> object:
    return str(value) if isinstance(value, list) else value


@cache
def original(name: str) -> Counter[tuple[Any, ...]]:
    """The rows of the recording as it is."""
    return rows([CAPTURES / name])


def write(folder: Path, frames: list[Packet]) -> list[Path]:
    """Write the files of these packets."""
    return [
        recorded.write(folder / f"{number}.pcap", (each for each in frames if each.file == number))
        for number in sorted({each.file for each in frames})
    ]
