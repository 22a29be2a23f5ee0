"""Reads the records of batches into columns, for the `records` table.

Batches are read in groups. Compressed batches of a group are decompressed into one buffer, the
others stay where they are. Then the records of all batches of a format are read together
(`record_fields`, `message_fields`). Memory is bounded for any capture: by the bytes of a group
(`GROUP_BYTES` and one batch), and by the columns of some hundred thousand records.

A cut batch yields no records: the client did not read it either, and fetches it again. Damage costs
the damaged records only: records before them are kept, and records after them too, if the lengths
are intact.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain

import numpy as np

from dissector.byteview import ByteView
from dissector.errors import DecodeError
from dissector.packets.block import PAD, Int64
from dissector.records.batch_headers import MIN_SIZE, Batches
from dissector.records.codecs import Inflated, Limits, decompress_into
from dissector.records.contiguous import as_contiguous
from dissector.records.message_fields import (
    read_message_records,
    read_messages,
    read_wrapped_records,
)
from dissector.records.record_columns import (
    BatchBytes,
    Problems,
    RecordColumns,
    Records,
    add_problem,
    join_columns,
    no_records,
)
from dissector.records.record_fields import read_batch_records

GROUP_RECORDS = 16_000
"""Records of a group, by the counts in the headers. Their columns fit into the cache."""
MANY_RECORDS = 1 << 19
"""Records that are sorted by batch at most."""
GROUP_BYTES = 8 << 20
"""Bytes of a group, decompressed or not; a single batch may have more."""
_RATIO = 4
"""Initial size of the output buffer per compressed byte."""
_WRAPPED = 64
"""Assumed bytes of a compressed message per record."""


def read_records(
    space: ByteView, batches: Batches, limits: Limits | None = None
) -> Iterator[Records]:
    """The records of all batches, in groups and in the order of `batches`.

    Positions refer to the bytes of `space`, or to decompressed
    bytes; the columns keep both alive. Damage raises nothing: it is in `problems`.
    """
    limits = limits or Limits()
    rows = np.flatnonzero(~batches.truncated)
    claimed = np.where(
        batches.magic[rows] == 2,
        np.clip(batches.record_count[rows], 0, batches.size[rows]),
        1 + batches.size[rows] // _WRAPPED,
    )
    # Large batches count as more records, since a group has GROUP_BYTES at most.
    behind = np.cumsum(np.maximum(claimed, batches.size[rows] * GROUP_RECORDS // GROUP_BYTES))
    at = 0
    while at < len(rows):
        goal = (behind[at - 1] if at else 0) + GROUP_RECORDS
        until = max(at + 1, int(np.searchsorted(behind, goal, side="right")))
        at += yield from _read_group(space, batches, rows[at:until], limits)


def _inflate(
    space: ByteView, batches: Batches, group: Int64, limits: Limits, problems: Problems
) -> tuple[BatchBytes, int]:
    """Decompress the batches of a group; returns them, and how many of the group were taken."""
    taken = len(group)
    compressed = group[batches.codec[group] != 0]
    if not len(compressed):
        return BatchBytes(np.zeros(PAD, np.uint8), compressed, compressed, compressed), taken
    payload = _payloads(space, batches, compressed, problems)
    memory = payload.data.data
    guess = _RATIO * int((payload.end - payload.begin).sum())
    row = Inflated(min(guess + PAD, GROUP_BYTES))
    done: list[int] = []
    offsets = [0]
    codecs, magics = batches.codec[payload.batch], batches.magic[payload.batch]
    columns = payload.batch, payload.begin, payload.end, codecs, magics
    for index, low, high, codec, magic in zip(*(each.tolist() for each in columns), strict=True):
        try:
            decompress_into(row, codec, memory[low:high], limits, magic=magic)
        except DecodeError as error:
            add_problem(problems, batches, index, "decompression", error.detail)
            continue
        done.append(index)
        offsets.append(row.used)
        if row.used > GROUP_BYTES // 2:
            taken = int(np.searchsorted(group, index)) + 1
            break
    row.room(PAD)[:PAD] = bytes(PAD)
    borders = np.array(offsets, np.int64)
    data = row.data[: row.used + PAD]
    return BatchBytes(data, np.array(done, np.int64), borders[:-1], borders[1:]), taken


def decompressed_sizes(space: ByteView, batches: Batches, limits: Limits | None = None) -> Int64:
    """Uncompressed size of each batch, with header; -1 if it is cut or damaged."""
    limits = limits or Limits()
    compressed = np.flatnonzero((batches.codec != 0) & ~batches.truncated)
    sizes = np.where(batches.truncated | (batches.codec != 0), -1, batches.size)
    payload = _payloads(space, batches, compressed, problems=[])
    memory = payload.data.data
    row = Inflated()
    places = payload.batch.tolist(), payload.begin.tolist(), payload.end.tolist()
    for index, low, high in zip(*places, strict=True):
        row.used = 0
        codec, magic = int(batches.codec[index]), int(batches.magic[index])
        with suppress(DecodeError):
            decompress_into(row, codec, memory[low:high], limits, magic=magic)
            sizes[index] = batches.size[index] - (high - low) + row.used
    return sizes


def _payloads(
    space: ByteView, batches: Batches, compressed: Int64, problems: Problems
) -> BatchBytes:
    """The compressed bytes of batches: all bytes after a header, or the value of a message."""
    size = batches.size[compressed]
    data, at = as_contiguous(space, batches.address[compressed], size)
    magic = batches.magic[compressed]
    row = BatchBytes(data, compressed, at + MIN_SIZE[2], at + size)
    wrappers = np.flatnonzero(magic < 2)
    if not len(wrappers):
        return row
    messages = read_messages(data, at[wrappers], size[wrappers], magic[wrappers])
    value_at, value_length = messages.value
    row.begin[wrappers], row.end[wrappers] = value_at, value_at + value_length
    damaged = ~messages.good | (value_length < 0)
    is_intact = np.ones(len(size), np.bool_)
    is_intact[wrappers[damaged]] = False
    for index in compressed[~is_intact].tolist():
        detail = "key and value do not match the message length"
        add_problem(problems, batches, index, "record_fields", detail)
    return row.select(is_intact)


def _uncompressed(space: ByteView, batches: Batches, group: Int64) -> BatchBytes:
    plain = group[batches.codec[group] == 0]
    data, at = as_contiguous(space, batches.address[plain], batches.size[plain])
    header = np.where(batches.magic[plain] == 2, MIN_SIZE[2], 0)
    return BatchBytes(data, plain, at + header, at + batches.size[plain])


def _read_group(
    space: ByteView, batches: Batches, group: Int64, limits: Limits
) -> Generator[Records, None, int]:
    """The records of the first batches of a group. Returns the number of these batches.

    Nothing refers to the group afterwards, so that the next one has its memory, which is in the
    cache.
    """
    problems: Problems = []
    inflated, taken = _inflate(space, batches, group, limits, problems)
    both = inflated, _uncompressed(space, batches, group[:taken])
    sources = [each for each in both if len(each.batch)]
    readers: list[Iterator[RecordColumns]] = []
    for number, source in enumerate(sources):
        is_newest = batches.magic[source.batch] == 2
        is_wrapped = batches.codec[source.batch] != 0
        for selected, reader in (
            (is_newest, read_batch_records),
            (~is_newest & is_wrapped, read_wrapped_records),
            (~is_newest & ~is_wrapped, read_message_records),
        ):
            if selected.any():
                row = replace(source.select(selected), buffer=number)
                readers.append(reader(row, batches, problems))
    buffers = tuple(source.data for source in sources)
    # With several readers, all records are sorted by batch. Batches that have far more records than
    # announced are yielded out of order, to limit memory.
    most = MANY_RECORDS if len(readers) > 1 else 0
    parts: list[RecordColumns] = []
    for columns in chain.from_iterable(readers):
        parts.append(columns)
        if sum(map(len, parts)) > most:
            yield Records(join_columns(parts), buffers, problems.copy())
            parts = []
            problems.clear()
    if parts or problems:
        yield Records(join_columns(parts or [no_records()]), buffers, problems)
    return taken
