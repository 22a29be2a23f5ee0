"""Rows of `batches` and `records` from a broker's log segments.

A broker keeps each partition in a folder TOPIC-PARTITION. The files in it have the name of their
first offset, such as `00000000000000000042.log`. A KRaft snapshot, `….checkpoint`, has the same
format (KIP-630). A file is a segment if it starts with a valid batch header and a valid checksum; a
file whose first batch is damaged is recognised by its name. Indexes, producer snapshots and leader
epoch checkpoints are not segments.

Topic and partition come from the folder's name. Batches in segments are not inside a message: the
columns of messages are null.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from dissector.byteview import ContiguousBytes
from dissector.errors import CaptureError
from dissector.problems import UNREADABLE, Problem, file_problems
from dissector.records import log_segment
from dissector.records.batch_headers import FRONT, OVERHEAD
from dissector.records.batch_reader import read_batches
from dissector.records.log_segment import SegmentBlock, read_segment
from dissector.tables.arrow import to_batch
from dissector.tables.problems import problem_rows
from dissector.tables.schema import BATCHES, RECORDS

_SUFFIX: Final = r"(?:\.(?:deleted|cleaned|swap))?"
_NAME: Final = re.compile(rf"\d{{20}}(?:\.log|-\d{{10}}\.checkpoint){_SUFFIX}")
_SNAPSHOT: Final = re.compile(r"\d{20}-\d{10}\.checkpoint")
_OBSOLETE: Final = (".deleted", ".cleaned", ".checkpoint.part")
_COMPANION: Final = re.compile(
    rf"\d{{20}}\.(?:index|timeindex|txnindex|snapshot){_SUFFIX}"
    r"|leader-epoch-checkpoint|partition\.metadata"
)
_FOLDER: Final = re.compile(
    r"(?P<topic>[\w.-]+)-(?P<partition>\d{1,9})(?:\.[0-9a-f]{32}-(?:delete|future|stray))?",
    re.ASCII,
)
"""The folder of a partition that is deleted, moved or stray has a suffix."""


def is_segment(path: str) -> bool:
    """Whether the file at `path` is a log segment."""
    # A folder may have many files, and pathlib takes longer than all else here.
    try:
        if not os.path.isfile(path):  # noqa: PTH113
            return False
        with open(path, "rb", 0) as source:  # noqa: PTH123
            head = source.read(FRONT)
            if log_segment.is_segment(head):
                size = int.from_bytes(head[8:12]) + OVERHEAD
                first = head + source.read(size - FRONT)
                if len(first) == size and _has_valid_batch(first):
                    return True
    except OSError:
        return False
    return _NAME.fullmatch(os.path.basename(path)) is not None  # noqa: PTH119


def _has_valid_batch(first: bytes) -> bool:
    """Whether these bytes are a batch with a valid checksum."""
    batches = read_batches(ContiguousBytes.of(first), np.array([0]), np.array([len(first)]))
    return len(batches) == 1 and bool(batches.crc_ok[0] == 1)


def is_segment_companion(path: str) -> bool:
    """Whether a file has the name of a broker's file next to segments, such as an index."""
    return _COMPANION.fullmatch(os.path.basename(path)) is not None  # noqa: PTH119


def current_segments(paths: Sequence[str]) -> list[str]:
    """The segments that a broker would load, or all if it would load none.

    A broker deletes the others at its start, or later: their records were deleted or compacted, or
    they are not complete (LogLoader). Of the KRaft snapshots in a folder, it loads the latest,
    which contains the whole state (KIP-630).
    """
    kept = [path for path in paths if not path.endswith(_OBSOLETE)] or list(paths)
    snapshots = {path: os.path.dirname(path) for path in kept if _is_snapshot(path)}  # noqa: PTH120
    # Names have the end offset and the epoch, in 20 and 10 digits.
    latest = {folder: path for path, folder in sorted(snapshots.items())}
    return [path for path in kept if path not in snapshots or latest[snapshots[path]] == path]


def _is_snapshot(path: str) -> bool:
    return _SNAPSHOT.fullmatch(os.path.basename(path)) is not None  # noqa: PTH119


def topic_partition(path: str) -> tuple[str | None, int | None]:
    """Topic and partition from the name of the folder; None if it is not a partition's folder."""
    folder = _FOLDER.fullmatch(Path(os.path.abspath(path)).parent.name)  # noqa: PTH100
    return (folder["topic"], int(folder["partition"])) if folder else (None, None)


def segment_rows(
    path: str, wanted: Collection[str], progress: Callable[[int], None]
) -> Generator[tuple[str, pa.RecordBatch], None, list[Problem]]:
    """Rows of the tables of batches, of `records` and of `problems`, block by block.

    `progress` is called with the number of bytes read. Returns the first problem of the
    file: see `problems.FILE_KINDS`.
    """
    from dissector.records.record_reader import read_records
    from dissector.tables.batches import header_columns, size_column
    from dissector.tables.records import record_rows

    topic, partition = topic_partition(path)
    in_records = {column.name for column in RECORDS.columns}
    bytes_read = 0
    damage: list[Problem] = []
    try:
        for block in read_segment(path):
            shared = _shared_columns(topic, partition, len(block.batches))
            of_records = pa.table({name: shared[name] for name in shared if name in in_records})
            columns = shared | header_columns(block.batches)
            if "batches" in wanted:
                yield "batches", to_batch(BATCHES, columns)
            if "decompressed_batches" in wanted:
                columns |= size_column(block.space, block.batches)
                yield "decompressed_batches", to_batch(BATCHES, columns)
            problems = [replace(each, capture=path) for each in block.problems]
            damage = damage or list(file_problems(problems))[:1]
            if "records" in wanted:
                for part in read_records(block.space, block.batches):
                    problems += [_of_record(path, block, *each) for each in part.problems]
                    yield "records", record_rows(part, block.batches, of_records)[0]
            if "problems" in wanted:
                yield "problems", problem_rows(problems)
            progress(block.end - bytes_read)
            bytes_read = block.end
    except CaptureError as error:
        problem = Problem("records", UNREADABLE, str(error), capture=path)
        if "problems" in wanted:
            yield "problems", problem_rows([problem])
        damage = damage or [problem]
    return damage


def _shared_columns(topic: str | None, partition: int | None, count: int) -> dict[str, pa.Array]:
    """The columns of `batches` for n batches, null except for topic and partition."""
    values = {"topic": topic, "partition": partition}
    return {
        column.name: pa.repeat(pa.scalar(values.get(column.name), column.type), count)
        for column in BATCHES.columns
    }


def _of_record(path: str, block: SegmentBlock, index: int, problem: Problem) -> Problem:
    """A problem of a batch's records, with file and offset."""
    start = block.position + int(block.batches.address[index])
    return replace(problem, capture=path, offset=start + (problem.offset or 0))
