"""`python -m tests.robustness.chance`: how often random bytes are taken for a message.

A Kafka connection loses a segment in each direction. Random bytes or compressed text follow, so
each frame after the lost segments is false. Prints the number of false frames for each kind of
bytes. Exit status 1 if there are any.
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import zstandard

import dissector
from tests.rewriting.cases import write
from tests.rewriting.flows import Chunk, Flow, Recording
from tests.rewriting.network import Options, packets

CLIENT, BROKER = (bytes([10, 0, 0, 1]), 40_001), (bytes([10, 0, 0, 9]), 9092)
EXCHANGES = 200
LOST = b"\xaa" * 1000
MEGABYTE = 1 << 20


def noise(kind: str, size: int, chance: random.Random) -> bytes:
    """Bytes without messages."""
    if kind == "random":
        return chance.randbytes(size)
    words = [chance.randbytes(chance.randrange(2, 9)).hex() for _ in range(3000)]
    parts, there = [], 0
    while there < size:
        text = " ".join(chance.choices(words, k=200_000)).encode()
        parts.append(zstandard.compress(text, 1))
        there += len(parts[-1])
    return b"".join(parts)[:size]


def false_frames(seed: int, kind: str, size: int) -> int:
    """Frames recognised after the lost segments. `size`: bytes of each direction."""
    chance = random.Random(f"{seed} {kind}")
    asked = [
        struct.pack(">ihhih", 19, 3, 1, number, 5) + b"chan1" + struct.pack(">i", -1)
        for number in range(EXCHANGES)
    ]
    answered = [struct.pack(">iiiii", 16, number, 0, 1, 0) for number in range(EXCHANGES)]
    flow, chunks, at = Flow((CLIENT, BROKER), True, 0), [], [0, 0]
    for end, data in [
        *(pair for both in zip(asked, answered, strict=True) for pair in enumerate(both)),
        *((end, data) for end in (0, 1) for data in (LOST, noise(kind, size, chance))),
    ]:
        chunks.append(Chunk(0, end, at[end], data, 0, at[1 - end]))
        at[end] += len(data)
    flow.sizes = at
    with tempfile.TemporaryDirectory() as folder:
        frames = packets(Recording("", [flow], chunks), Options(), chance)
        frames = [each for each in frames if LOST not in each.frame]
        paths = write(Path(folder), frames)
        table = dissector.open_capture(paths).tables(["connections"])["connections"]
    (row,) = table.to_pylist()
    lost = row["client_lost_bytes"], row["broker_lost_bytes"]
    if (
        lost != (len(LOST), len(LOST))
        or row["requests"] < EXCHANGES
        or row["responses"] < EXCHANGES
    ):
        raise AssertionError(row)
    return int(row["requests"] + row["responses"]) - 2 * EXCHANGES


def main() -> int:
    """Exit status: 1 if a frame is false."""
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.chance")
    parser.add_argument("--megabytes", type=int, default=1024, help="of each kind of bytes")
    parser.add_argument("--part", type=int, default=64, help="megabytes of a capture")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    os.nice(10)
    seeds, total = range(max(options.megabytes // options.part, 1)), 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for kind in ("random", "compressed"):
            work = partial(false_frames, kind=kind, size=options.part * MEGABYTE // 2)
            count = sum(pool.map(work, seeds))
            print(f"{kind}: {count} false frames in {len(seeds) * options.part} MB", flush=True)
            total += count
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
