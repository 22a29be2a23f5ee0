"""Recordings dealt to several files, and what one process says of them."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from analysis.spark.schemas import to_spark
from analysis.spark.writing import Folder, Written
from bench import inputs
from dissector.capture import open_capture
from dissector.packets import open_packets
from dissector.packets.byte_input import ByteInput

CAPTURES = Path(__file__).parents[3] / "captures"
RECORDINGS = sorted(path for path in CAPTURES.iterdir() if {".pcap", ".pcapng"} & {*path.suffixes})
CUT = (
    "exchanges", "errors", "connections", "topics", "partitions", "memberships", "transactions",
)  # fmt: skip
"""Tables for which records stay behind."""
TABLES = (*CUT, "batches", "decompressed_batches", "records")
SOME_TABLES = ("exchanges", "errors", "batches", "connections")
PCAPNG, ENHANCED_PACKET = b"\n\r\r\n", 6


def plain(path: Path) -> bytes:
    """The bytes of a capture, decompressed."""
    source = ByteInput(str(path))
    parts = []
    while part := source.take(1 << 20):
        parts.append(part)
    source.close()
    return b"".join(parts)


def packets(data: bytes) -> tuple[bytes, list[bytes]]:
    """What stands before the packets of a little-endian capture, and each packet's record."""
    is_ng = data.startswith(PCAPNG)
    head, found, at = (b"", [], 0) if is_ng else (data[:24], [], 24)
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at if is_ng else at + 4)
        record = data[at : at + (size if is_ng else 16 + size)]
        if is_ng and kind != ENHANCED_PACKET:
            head += record
        else:
            found.append(record)
        at += len(record)
    return head, found


def deal(path: Path, folder: Path, files: int, *, shuffled: bool = False) -> list[str]:
    """Write the packets of a capture to so many files, one after the other or at random."""
    head, every = packets(plain(path))
    cards = [index * files // max(len(every), 1) for index in range(len(every))]
    if shuffled:
        random.Random(files).shuffle(cards)
    paths = [folder / f"{path.name}.{files}.{index}" for index in range(files)]
    for index, target in enumerate(paths):
        mine = (each for each, card in zip(every, cards, strict=True) if card == index)
        target.write_bytes(head + b"".join(mine))
    return [str(each) for each in paths]


def every(recordings: Sequence[Path], folder: Path, files: int, shuffled: bool) -> list[str]:
    """All of these recordings, each dealt to so many files."""
    return [part for path in recordings for part in deal(path, folder, files, shuffled=shuffled)]


def made(kind: str, folder: Path, size: int) -> Path:
    """A capture of so many bytes, of many connections: many blocks, many splits."""
    source, connections = {"chatter": ("chatter-mock", 200), "bulk": ("bulk-tansu", 8)}[kind]
    one = inputs.Input(
        str(folder / "large"), CAPTURES / f"{source}.pcap.zst", connections, bytes=size
    )
    inputs.make(one)
    return one.path


def apart(paths: Iterable[Path]) -> list[list[Path]]:
    """The recordings in groups of which no two have connections between the same ends: what is one
    capture then is as if each were alone."""
    groups: list[tuple[set[tuple[int, ...]], list[Path]]] = []
    for path in paths:
        mine = _pairs(path)
        for pairs, group in groups:
            if not pairs & mine:
                pairs |= mine
                group.append(path)
                break
        else:
            groups.append((mine, [path]))
    return [group for _, group in groups]


def _pairs(path: Path) -> set[tuple[int, ...]]:
    source = open_packets([path])
    found: set[tuple[int, ...]] = set()
    while block := source.read(0):
        source_end = np.stack([block.src_high, block.src_low, block.src_port]).T.tolist()
        target_end = np.stack([block.dst_high, block.dst_low, block.dst_port]).T.tolist()
        found |= {
            (*low, *high) for low, high in map(sorted, zip(source_end, target_end, strict=True))
        }
    return found


def on_one_machine(
    paths: Sequence[str], tables: Sequence[str], output: Path, *, keylog: str | None = None
) -> None:
    """Write the rows of one process, as Spark has them; a folder of Parquet a table."""
    folders = {name: Folder(str(output / name)) for name in tables}
    found = open_capture(paths, keylog=keylog).tables(tables)
    for name, folder in folders.items():
        folder.begin()
        rows = (to_spark(name, batch) for batch in found[name].to_batches())
        folder.end(Written(**row) for batch in folder.write(rows) for row in batch.to_pylist())


def same_rows(one: Path, other: Path, *, without: str = "") -> int:
    """How many rows two folders of Parquet have, each the same as often, in any order.

    `without`: a column in which they may differ. Raises AssertionError where they do otherwise.
    """
    files = [[*map(str, each.rglob("*.parquet"))] for each in (one, other)]
    if not files[0] or not files[1]:
        assert files[0] == files[1]
        return 0
    tables = [duckdb.read_parquet(each) for each in files]
    if without:
        tables = [each.project(f"* exclude ({without})") for each in tables]
    count, *odd = (
        duckdb.sql(query).fetchall()
        for query in (
            "select count(*) from a", "from a except all from b limit 2",
            "from b except all from a limit 2",
        )
        for a, b in [tables]
    )  # fmt: skip
    assert odd == [[], []], f"{one.name}: {odd}"
    return int(count[0][0])


def texts(batches: Sequence[pa.RecordBatch]) -> list[str]:
    """Each row as text; sorted."""
    return sorted(repr(row) for batch in batches for row in batch.to_pylist())
