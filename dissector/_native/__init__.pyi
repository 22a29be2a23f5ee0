"""The loops. Arrays are contiguous; those that a loop writes come last.

ValueError for an array of another type, and for ranges outside of the data that no caller passes.
IndexError for an array that is too short.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
Int64: TypeAlias = NDArray[np.int64]
UInt64: TypeAlias = NDArray[np.uint64]
UInt16: TypeAlias = NDArray[np.uint16]
Bools: TypeAlias = NDArray[np.bool_]

HASH_KEY: Final[UInt64]
"""Key of the hash tables. It is random in each process, so that no capture can be written whose
endpoints or words collide. No row depends on it."""
COMPILED: Final[bool]
"""Whether the loops are compiled: only tests and benchmarks ask."""

FUNCTIONS: Final[dict[str, tuple[str, ...]]]
"""The loops, by module."""

def source(name: str) -> ModuleType:
    """A module of loops as Python, although it may be compiled."""

def as_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of such a module, with memory views in place of arrays: their items are integers
    of Python, which do not overflow."""

# packets

def follow_chain(
    data: Bytes, begin: int, end: int, is_big: bool, size_at: int, header: int, least: int,
    most: int, stop: int, positions: Int64,
) -> int:  # fmt: skip
    """Follow the chain of records from `begin`. Returns the number of positions.

    The next record is as far as the number of 4 bytes at `size_at`, and `header` more, but at least
    `least`. The chain ends with a record whose number is more than `most`, before a record that
    begins with the number `stop` (0: no such number), from `end` on, and when `positions` is full.
    """

def read_headers(
    data: Bytes, tables: list[Bytes], rows: Int64, layers: int, columns: list[NDArray[Any]]
) -> None:
    """Read the common headers of these packets, up to `layers`, and the header of TCP.

    `tables`: kinds by ethertype, protocol and address family. `columns`: those of
    `headers.Packets`.
    """

# streams

def walk_frames(
    data: Bytes, address: Int64, position: Int64, length: Int64, first: Int64, end: Int64,
    limit: int, begin: int, at: Int64, ended: Int64, behind: Int64, frames: Int64, total: Int64,
) -> int:  # fmt: skip
    """Walk the frames of streams: `FrameChains.walk`, from the stream `begin` on.

    `address`, `position`, `length`: the pieces. `first`: the first piece of each stream. `limit`:
    the largest size. `at`: where each stream begins, and then where its walk ended. `frames`:
    start, size and piece of the frames, in three parts; `total`: their number. Returns the stream
    at which there was no more room.
    """

# messages

def read_numbers(
    data: Bytes, address: Int64, position: Int64, length: Int64, at: Int64, width: int,
    is_signed: bool, numbers: Int64,
) -> None:  # fmt: skip
    """The big-endian number of 1, 2, 4 or 8 bytes at each address; those of 8 bytes are signed."""

def copy_ranges(
    data: Bytes, address: Int64, position: Int64, length: Int64, at: Int64, count: Int64,
    copies: Bytes,
) -> None:  # fmt: skip
    """The bytes of n ranges, one range after the other."""

def walk_bodies(
    data: Bytes, address: Int64, position: Int64, length: Int64, nodes: NDArray[np.int32],
    columns: int, is_flexible: bool, limit: int, part: int, start: Int64, end: Int64, cut: Bools,
    most: Int64, first: int, base: Int64, behind: Int64, room: Int64, count: Int64,
) -> int:  # fmt: skip
    """Walk message bodies by a program (`protocol.decoder_program`), from the message `first` on.

    `limit`, `part`: see `protocol.surplus`. `most`: array elements that each message may have.
    `base`: elements of each level that earlier calls kept. `behind`: address behind the last field
    of each body, -1 if the body does not fit the program. `room`: for row, address and value of
    each column, then for owner and index of each level; parts of equal size. `count`: items of each
    column and level. Returns the message for which there was no more room.
    """

# records

def walk_records(
    data: Bytes, begin: Int64, end: Int64, first: Int64, start: Int64, count: Int64, reached: Int64
) -> None:
    """Follow each batch's chain of lengths.

    `first`: where the records of each batch begin in `start`, and the end of the last one. `count`:
    records of each batch, as many as there is room for. `reached`: where the walk ended, `end` + 1
    if the last record extends beyond the batch.
    """

def read_records(
    data: Bytes, start: Int64, is_good: Bools, timestamp_delta: Int64, offset_delta: Int64,
    key_at: Int64, key_length: Int64, value_at: Int64, value_length: Int64, header_count: Int64,
) -> int:  # fmt: skip
    """The fields of the records at `start`, and whether they fill the record. Returns the number of
    all headers. A damaged record has no key, no value and no headers."""

def read_record_headers(
    data: Bytes, at: Int64, count: Int64, key_at: Int64, key_length: Int64, value_at: Int64,
    value_length: Int64,
) -> None:  # fmt: skip
    """The headers of records that have `count` of them, record by record.

    `at`: the position of the count, behind each record's value.
    """

def make_views(data: Bytes, number: int, at: Int64, length: Int64, views: UInt64) -> None:
    """Arrow's views of the strings in the buffer `number`, two numbers each. The length -1 counts
    as 0."""

# words

def number_words(
    data: Bytes, at: Int64, length: Int64, key: UInt64, code: NDArray[np.int32], first: Int64
) -> int:
    """A code for the bytes of each range, in order of appearance. Returns the number of codes.

    `first`: the index of the first range of each code. `key`: see `HASH_KEY`.
    """

def hash_words(data: Bytes, at: Int64, length: Int64, key: UInt64, hashes: UInt64) -> None:
    """SipHash-1-3 of the bytes of each range."""

def number_pairs(
    src_high: UInt64, src_low: UInt64, src_port: UInt16, dst_high: UInt64, dst_low: UInt64,
    dst_port: UInt16, key: UInt64, code: Int64, end: Int64, first: Int64, hashes: UInt64,
) -> int:  # fmt: skip
    """A code for the endpoints of each packet, in order of appearance, the same for both
    directions. Returns the number of codes.

    `end`: 1 if the source is the larger endpoint. `first`: the index of the first packet of each
    code. `hashes`: SipHash-1-3 of its endpoints, the smaller one first.
    """
