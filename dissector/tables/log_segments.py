"""Log segments as inputs: which files are some, and their rows of `batches` and `records`.

A broker keeps each partition in a folder TOPIC-PARTITION, in files that are named after the first
offset in them, `00000000000000000042.log`; a KRaft snapshot, `….checkpoint`, is of the same format
(KIP-630). What a segment is, its first batch says: a header that can be one, and a checksum that
holds; a file whose first batch is damaged is known by its name. Indexes, snapshots of producers
and checkpoints of leader epochs, which lie beside segments, are none, and are passed over.

Topic and partition are what the folder's name says, where it is such a name. There is no message
around a batch: the columns that tell of one are null.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from dissector.errors import CaptureError
from dissector.problems import Problem
from dissector.records import log_segment
from dissector.records.batch_headers import FRONT, OVERHEAD
from dissector.records.batch_reader import read_batches
from dissector.records.log_segment import SegmentBlock, read_segment
from dissector.streams.byteview import ContiguousBytes
from dissector.tables.arrow import batch as as_table
from dissector.tables.problems import problem_rows
from dissector.tables.schema import BATCHES, RECORDS

_NAME: Final = re.compile(r"\d{20}(?:\.log|-\d{10}\.checkpoint)")
_BESIDE: Final = re.compile(
    r"\d{20}\.(?:index|timeindex|txnindex|snapshot)|leader-epoch-checkpoint|partition\.metadata"
)
_FOLDER: Final = re.compile(
    r"(?P<topic>[\w.-]+)-(?P<partition>\d{1,9})(?:\.[0-9a-f]{32}-(?:delete|future|stray))?",
    re.ASCII,
)
"""A folder gets a suffix when its partition is deleted, moved, or not the broker's any more."""


def is_segment(path: str) -> bool:
    """Whether the file at `path` is a log segment."""
    file = Path(path)
    try:
        if not file.is_file():
            return False
        with file.open("rb") as source:
            head = source.read(FRONT)
            if log_segment.is_segment(head):
                size = int.from_bytes(head[8:12]) + OVERHEAD
                first = head + source.read(size - FRONT)
                if len(first) == size and _holds(first):
                    return True
    except OSError:
        return False
    return _NAME.fullmatch(file.name) is not None


def _holds(first: bytes) -> bool:
    """Whether these bytes are a batch with the right checksum."""
    batches = read_batches(ContiguousBytes.of(first), np.array([0]), np.array([len(first)]))
    return len(batches) == 1 and bool(batches.crc_ok[0] == 1)


def lies_beside_segments(path: str) -> bool:
    """Whether the file is one of those that a broker keeps beside its segments, by its name."""
    return _BESIDE.fullmatch(Path(path).name) is not None


def place(path: str) -> tuple[str | None, int | None]:
    """Topic and partition, by the name of the folder; None where it is no such name."""
    found = _FOLDER.fullmatch(Path(os.path.abspath(path)).parent.name)  # noqa: PTH100
    return (found["topic"], int(found["partition"])) if found else (None, None)


def segment_rows(
    path: str, wanted: Collection[str], progress: Callable[[int], None]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows of the tables of batches, of `records` and of `problems`, block by block.

    `progress` is told how many bytes were read.
    """
    from dissector.records.record_reader import read_records
    from dissector.tables.records import header_columns, rows_of, size_column

    topic, partition = place(path)
    at = 0
    try:
        for block in read_segment(path):
            near = _near(topic, partition, len(block.batches))
            columns = {name: near[name] for name in near.column_names}
            columns |= header_columns(block.batches)
            if "batches" in wanted:
                yield "batches", as_table(BATCHES, columns)
            if "decompressed_batches" in wanted:
                columns |= size_column(block.space, block.batches)
                yield "decompressed_batches", as_table(BATCHES, columns)
            problems = [_placed(path, block, None, each) for _, each in block.batches.problems]
            if "records" in wanted:
                for part in read_records(block.space, block.batches):
                    problems += [_placed(path, block, *each) for each in part.problems]
                    yield "records", rows_of(part, block.batches, _of_records(near))[0]
            if "problems" in wanted:
                yield "problems", problem_rows(problems)
            read = block.position + block.space.size
            progress(read - at)
            at = read
    except CaptureError as error:
        problem = Problem("records", "unreadable_file", str(error), capture=path)
        if "problems" in wanted:
            yield "problems", problem_rows([problem])


def _near(topic: str | None, partition: int | None, count: int) -> pa.Table:
    """What is known beside the headers of n batches; the other columns of `batches` are null."""
    table = pa.table({column.name: pa.nulls(count, column.type) for column in BATCHES.columns})
    for name, value in (("topic", topic), ("partition", partition)):
        column = pa.repeat(pa.scalar(value, BATCHES.schema.field(name).type), count)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def _of_records(near: pa.Table) -> pa.Table:
    told = set(near.column_names) & set(RECORDS.schema.names)
    return near.select(sorted(told))


def _placed(path: str, block: SegmentBlock, index: int | None, problem: Problem) -> Problem:
    """A problem of a block, or of its batch of that index, with its place in the file."""
    start = block.position + (0 if index is None else int(block.batches.address[index]))
    return replace(problem, capture=path, offset=start + (problem.offset or 0))
