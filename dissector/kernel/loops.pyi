"""The compiled loops. Arrays are contiguous; those that are written come last.

ValueError for arrays that are too short, have items of another type, or overlap one that is
written, and for positions outside of the data.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
Int64: TypeAlias = NDArray[np.int64]
UInt8: TypeAlias = NDArray[np.uint8]
UInt64: TypeAlias = NDArray[np.uint64]

def walk_records(
    data: Bytes, begin: Int64, end: Int64, count: Int64, start: Int64, right: NDArray[np.bool_]
) -> None:
    """Follow each batch's chain of lengths for `count` records: where they begin, batch by batch.

    `start`: shape (sum of count,), zeros before; `right`: whether the chain ends where the batch
    does.
    """

def read_fields(
    data: Bytes,
    record: Int64,
    good: NDArray[np.bool_],
    timestamp_delta: Int64,
    offset_delta: Int64,
    key_at: Int64,
    key_length: Int64,
    value_at: Int64,
    value_length: Int64,
    header_count: Int64,
) -> int:
    """The fields of each record, and whether they fill it; how many headers all good ones have.

    `record`: where they begin. A damaged one has no key, no value and no headers.
    """

def read_headers(
    data: Bytes,
    at: Int64,
    count: Int64,
    key_at: Int64,
    key_length: Int64,
    value_at: Int64,
    value_length: Int64,
) -> None:
    """The headers of records that have `count` of them, record by record.

    `at`: where the count stands, behind each record's value.
    """

def make_views(
    data: Bytes, number: int, at: Int64, length: Int64, views: NDArray[np.uint64]
) -> None:
    """Arrow's views, shape (n, 2), of the strings in that buffer; -1 counts as a length of 0."""

def follow(
    data: Bytes,
    starts: Int64,
    end: int,
    big: bool,
    size_at: int,
    header: int,
    least: int,
    most: int,
    stop: int,
    limit: int,
) -> bytes:
    """Positions, as the bytes of an int64 array, of the records of the chain from starts[0] on.

    A record's number of 4 bytes at `size_at`, and `header` more, `least` in all, is the way to the
    next; it ends with one of which that is more than `most`, or before one that begins with the
    number `stop` (0: none), or at `limit` records, or where no record may begin, from `end` on. The
    other starts are sync points, as for `record_scan.follow`.
    """

def advance(
    data: Bytes,
    ethertypes: UInt8,
    protocols: UInt8,
    families: UInt8,
    kind: UInt8,
    at: Int64,
    end: Int64,
    wire_end: Int64,
    src_high: UInt64,
    src_low: UInt64,
    dst_high: UInt64,
    dst_low: UInt64,
) -> None:
    """Move packets past the common headers: link layers, VLAN tags, IPv4 and IPv6.

    All but the first four are the arrays of `headers.Packets`, and are changed.
    """

def read_tcp(
    data: Bytes,
    kind: UInt8,
    at: Int64,
    end: Int64,
    wire_end: Int64,
    src_port: NDArray[np.uint16],
    dst_port: NDArray[np.uint16],
    seq: NDArray[np.uint32],
    ack: NDArray[np.uint32],
    flags: UInt8,
    window: NDArray[np.uint16],
    payload: Int64,
    captured: NDArray[np.int32],
    length: NDArray[np.int32],
) -> int:
    """The TCP headers of packets that stand before one, as columns of a `PacketBlock`; how many.

    Those that cannot be read change their kind. All of shape (n,), packets that are not TCP too.
    """

def find_pairs(
    src_high: UInt64,
    src_low: UInt64,
    src_port: NDArray[np.uint16],
    dst_high: UInt64,
    dst_low: UInt64,
    dst_port: NDArray[np.uint16],
    key: UInt64,
    code: Int64,
    turned: NDArray[np.bool_],
    first: Int64,
) -> int:
    """Number the pairs of endpoints in order of appearance, either direction; how many.

    `turned`: whether a packet goes against its pair's first one, of which `first` has the index.
    `key`: see `kernel.HASH_KEY`. All others of shape (n,).
    """

def read_numbers(data: Bytes, at: Int64, width: int, numbers: NDArray[np.generic]) -> None:
    """The big-endian number of 2, 4 or 8 bytes at each position."""

def copy_ranges(data: Bytes, at: Int64, length: Int64, copies: Bytes) -> None:
    """The bytes of n ranges, one after the other."""

def hash_words(data: Bytes, at: Int64, length: Int64, key: UInt64, hashes: UInt64) -> None:
    """The hash by which `number_words` finds a word again: SipHash-1-3 of each range's bytes."""

def number_words(
    data: Bytes, at: Int64, length: Int64, key: UInt64, code: NDArray[np.int32], first: Int64
) -> int:
    """A code for each range's bytes, in order of appearance; how many.

    `first`: the index of the first range of each code. Both of shape (n,). `key`: see
    `kernel.HASH_KEY`.
    """

def locate(
    address: Int64,
    position: Int64,
    length: Int64,
    at: Int64,
    nowhere: int,
    found: Int64,
    left: Int64,
) -> None:
    """Where in the data each address is, and how many bytes of its piece follow from there.

    `nowhere` and 0 for one between pieces.
    """

def walk_frames(
    data: Bytes,
    address: Int64,
    position: Int64,
    length: Int64,
    said: Int64,
    first: Int64,
    end: Int64,
    limit: int,
    at: Int64,
    ended: Int64,
    behind: Int64,
) -> bytes:
    """`framing.Chains.walk` from each stream's address `at` on, which is moved to where it ended.

    `said`: the first four bytes of each piece as a number; `first`: each stream's first piece;
    `limit`: what no size is more than. The frames, as the bytes
    of an int64 array of shape (n, 3): start, size, piece.
    """

def walk_bodies(
    data: Bytes,
    nodes: NDArray[np.int32],
    columns: int,
    levels: int,
    flexible: bool,
    limit: int,
    part: int,
    start: Int64,
    end: Int64,
    cut: NDArray[np.bool_],
    behind: Int64,
    room: Int64,
) -> list[int | bytes]:
    """Walk message bodies by a program: see `dissector.protocol.decoder_program`.

    `limit` and `part`: see `LIMITS` and `PART` in `dissector.protocol.surplus`. `behind`: address
    behind the last field of each body, -1 where it is not what the program says. `room`: shape
    (3 * columns + 2 * levels, any number): row, address and value of each column, length for what
    is no number; then owner and ordinal of each level's rows. Returns how many there are of each;
    where they do not fit, the bytes of all instead.
    """
