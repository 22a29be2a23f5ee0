"""`python -m bench.records`: records per second, compared with the parsers of clients.

The input is batches of 500 records, written by aiokafka's builder. This project reads them to an
Arrow table. aiokafka's compiled parser and kafka-python make objects, which are dropped at once.
Keys have 10 bytes; values are words out of a few hundred, which compress like text. All parsers run
in one process on one core, in turn, so that other load affects all of them; the best of several
rounds counts.

Clients verify checksums before they read a batch, and so does this project. aiokafka is shown with
and without this check. A third column converts its objects to a table.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
from aiokafka.record import default_records
from aiokafka.record.memory_records import MemoryRecords
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from bench.measure import best_rates
from dissector.byteview import ContiguousBytes
from dissector.packets.block import Int64
from dissector.records.arrow import SCHEMA, records_table
from dissector.records.batch_headers import CODECS
from dissector.records.batch_reader import read_batches
from dissector.records.record_reader import read_records

RECORDS = 500
BATCHES = 200
SLOW_BATCHES = 4
"""Batches for parsers that take microseconds per record."""
SIZES = (100, 1_000)
ROUNDS = 7
FIRST_TIME = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """Batches, each in its own field."""

    batches: list[bytes]
    space: ContiguousBytes
    start: Int64
    length: Int64

    @classmethod
    def of(cls, batches: list[bytes]) -> Load:
        length = np.array([len(batch) for batch in batches], np.int64)
        space = ContiguousBytes.of(b"".join(batches))
        return cls(batches, space, np.cumsum(length) - length, length)


def written(size: int, codec: int) -> Load:
    """Batches with values of `size` bytes."""
    random_source = random.Random(size)
    words = [random_source.randbytes(4).hex().encode() for _ in range(500)]
    batches = []
    for number in range(BATCHES):
        builder = default_records.DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
        for index in range(RECORDS):
            value = b" ".join(random_source.choices(words, k=size // 9 + 1))[:size]
            key = b"key-%06d" % (number * RECORDS + index)
            builder.append(index, FIRST_TIME + number * RECORDS + index, key, value, [])
        batches.append(bytes(builder.build()))
    return Load.of(batches)


def ours(load: Load) -> int:
    """Read to an Arrow table; checksums are verified."""
    batches = read_batches(load.space, load.start, load.length)
    parts = read_records(load.space, batches)
    # No variable keeps a part, so its memory serves the next one.
    return sum(map(len, map(records_table, parts, repeat(batches))))


def objects(parser: type[Any], batches: Sequence[bytes], *, is_checked: bool = True) -> int:
    """Read to objects of a client; checksums are verified, as in its consumer."""
    count = 0
    for data in batches:
        batch = parser(data).next_batch()
        assert not is_checked or batch.validate_crc()
        for _ in batch:
            count += 1
    return count


def aiokafka_table(load: Load) -> int:
    """Read to an Arrow table; checksums are verified."""
    count = 0
    for data in load.batches:
        batch = MemoryRecords(data).next_batch()
        assert batch.validate_crc()
        records = list(batch)
        columns = {
            name: [getattr(record, name) for record in records]
            for name in ("offset", "timestamp", "key", "value", "headers")
        }
        table = pa.table(columns, pa.schema([SCHEMA.field(name) for name in columns]))
        count += len(table)
    return count


READERS: dict[str, Callable[[Load], int]] = {
    "kafka-dissector, to a table": ours,
    "aiokafka, objects": lambda load: objects(MemoryRecords, load.batches),
    "aiokafka, objects, unchecked": lambda load: objects(
        MemoryRecords, load.batches, is_checked=False
    ),
    "aiokafka, to a table": aiokafka_table,
    "kafka-python, objects": lambda load: objects(KafkaPythonRecords, load.batches[:SLOW_BATCHES]),
}


def rows() -> Iterator[list[str]]:
    """One row per size and codec."""
    yield ["value", "codec", *READERS, "ratio to aiokafka", "to unchecked"]
    yield ["---:", "---", *["---:"] * (len(READERS) + 2)]
    for size in SIZES:
        for codec, name in enumerate(CODECS):
            speeds = best_rates(READERS, written(size, codec), ROUNDS)
            own, checked, unchecked, *_ = speeds.values()
            yield [
                f"{size:,} B",
                name,
                *(f"{speed / 1e6:.2f} M" for speed in speeds.values()),
                f"{own / checked:.2f}",
                f"{own / unchecked:.2f}",
            ]


def main() -> None:
    """Print a Markdown table of records per second, and the ratio to aiokafka."""
    compiled = "_crecords" in default_records.DefaultRecordBatch.__module__
    print(
        f"Records per second on one core, batches of {RECORDS} records; "
        f"aiokafka {version('aiokafka')} "
        f"{'with' if compiled else 'WITHOUT'} its compiled parser, "
        f"kafka-python {version('kafka-python')}.\n"
    )
    for row in rows():
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
