"""`python -m bench.records`: records a second, against the parsers of clients, in one process.

Batches of 500 records, as aiokafka's builder writes them, are read to an Arrow table, and by
aiokafka's compiled parser and kafka-python's to objects, which are dropped at once. Keys of 10
bytes, values of words out of a few hundred, which compress as text does. All on one core, in turn,
so that whatever else the machine does falls on all alike; of several rounds the best counts.

A client compares checksums before it reads a batch, and so does this project; aiokafka is shown
with and without that. Its third column makes of its objects what the first has: a table.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import pyarrow as pa
from aiokafka.record import default_records
from aiokafka.record.memory_records import MemoryRecords
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from dissector.packets.block import Int64
from dissector.records.arrow import SCHEMA, records_table
from dissector.records.batch_headers import CODECS
from dissector.records.batch_reader import read_batches
from dissector.records.record_reader import read_records
from dissector.streams.byteview import ContiguousBytes

RECORDS = 500
BATCHES = 200
SLOW_BATCHES = 4
"""For who takes microseconds a record."""
SIZES = (100, 1_000)
ROUNDS = 7
FIRST_TIME = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """Some batches, each in a field of its own."""

    batches: list[bytes]
    space: ContiguousBytes
    start: Int64
    length: Int64

    @classmethod
    def of(cls, batches: list[bytes]) -> Load:
        """Those batches, in one row."""
        length = np.array([len(batch) for batch in batches], np.int64)
        space = ContiguousBytes.of(b"".join(batches))
        return cls(batches, space, np.cumsum(length) - length, length)


def written(size: int, codec: int) -> Load:
    """Batches with values of `size` bytes."""
    chance = random.Random(size)
    words = [chance.randbytes(4).hex().encode() for _ in range(500)]
    batches = []
    for number in range(BATCHES):
        builder = default_records.DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
        for index in range(RECORDS):
            value = b" ".join(chance.choices(words, k=size // 9 + 1))[:size]
            key = b"key-%06d" % (number * RECORDS + index)
            builder.append(index, FIRST_TIME + number * RECORDS + index, key, value, [])
        batches.append(bytes(builder.build()))
    return Load.of(batches)


def ours(load: Load) -> int:
    """To an Arrow table; checksums compared."""
    batches = read_batches(load.space, load.start, load.length)
    return sum(len(records_table(some, batches)) for some in read_records(load.space, batches))


def aiokafka(load: Load) -> int:
    """To objects; checksums compared, as aiokafka's consumer does."""
    count = 0
    for data in load.batches:
        batch = MemoryRecords(data).next_batch()
        assert batch.validate_crc()
        for _ in batch:
            count += 1
    return count


def aiokafka_unchecked(load: Load) -> int:
    """To objects, whatever the checksum."""
    count = 0
    for data in load.batches:
        for _ in MemoryRecords(data).next_batch():
            count += 1
    return count


def aiokafka_table(load: Load) -> int:
    """To an Arrow table; checksums compared."""
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


def kafka_python(load: Load) -> int:
    """To objects; checksums compared, as kafka-python's consumer does."""
    count = 0
    for data in load.batches[:SLOW_BATCHES]:
        batch = KafkaPythonRecords(data).next_batch()
        assert batch.validate_crc()
        for _ in batch:
            count += 1
    return count


READERS: dict[str, Callable[[Load], int]] = {
    "kafka-dissector, to a table": ours,
    "aiokafka, objects": aiokafka,
    "aiokafka, objects, unchecked": aiokafka_unchecked,
    "aiokafka, to a table": aiokafka_table,
    "kafka-python, objects": kafka_python,
}


def measure(load: Load) -> dict[str, float]:
    """Records a second of each reader; the best of its rounds."""
    best = dict.fromkeys(READERS, 0.0)
    for _ in range(ROUNDS):
        for name, read in READERS.items():
            begin = time.process_time()
            count = read(load)
            best[name] = max(best[name], count / (time.process_time() - begin))
    return best


def rows() -> Iterator[list[str]]:
    """A row for each size and codec."""
    yield ["value", "codec", *READERS, "over aiokafka", "unchecked"]
    yield ["---:", "---", *["---:"] * (len(READERS) + 2)]
    for size in SIZES:
        for codec, name in enumerate(CODECS):
            found = measure(written(size, codec))
            mine, checked, unchecked, *_ = found.values()
            yield [
                f"{size:,} B",
                name,
                *(f"{speed / 1e6:.2f} M" for speed in found.values()),
                f"{mine / checked:.2f}",
                f"{mine / unchecked:.2f}",
            ]


def main() -> None:
    """Print a Markdown table of records a second, and of what ours is over aiokafka's."""
    compiled = "_crecords" in default_records.DefaultRecordBatch.__module__
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(
        f"Records a second on one core, batches of {RECORDS} records; "
        f"aiokafka {version('aiokafka')} "
        f"{'with' if compiled else 'WITHOUT'} its compiled parser, "
        f"kafka-python {version('kafka-python')}.\n"
    )
    for row in rows():
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
