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
Int8: TypeAlias = NDArray[np.int8]
Int64: TypeAlias = NDArray[np.int64]
UInt64: TypeAlias = NDArray[np.uint64]
UInt16: TypeAlias = NDArray[np.uint16]
Bools: TypeAlias = NDArray[np.bool_]
Numbers: TypeAlias = NDArray[np.int16] | NDArray[np.int32] | NDArray[np.int64]

HASH_KEY: Final[UInt64]
"""Key of the hash tables. It is random in each process, so that no capture can be written whose
endpoints or words collide. No row depends on it."""
COMPILED: Final[bool]
"""Whether the loops are compiled: only tests and benchmarks ask."""

FUNCTIONS: Final[dict[str, list[str]]]
"""The loops, by module."""

def source(name: str) -> ModuleType:
    """A module of loops as Python, although it may be compiled."""

def as_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of such a module, with memory views in place of arrays: their items are integers
    of Python, which do not overflow."""

# packets

def follow_blocks(
    data: Bytes, at: int, end: int, is_big: bool, most: int, stop: int, positions: Int64
) -> int:
    """Follow the chain of blocks of pcapng from `at`. Returns the number of positions.

    The chain ends with a block of more than `most` bytes, before a block of the type `stop`, from
    `end` on, and when `positions` is full.
    """

def read_pcap(
    data: Bytes, begin: int, end: int, is_big: bool, header: int, most: int, unit: int, near: int,
    before: int, columns: Int64, is_likely: Bytes,
) -> tuple[int, bool]:  # fmt: skip
    """The complete records of a pcap file from `begin` on, up to an impossible one. Returns their
    number, and whether an impossible record follows.

    `header`: bytes of a record before the packet. `most`: bytes of the largest packet. `unit`: ns
    in the unit of a fraction. `near`: seconds between two successive packets that are likely.
    `before`: seconds of the packet before, -1 if there is none. `columns`: the first byte of each
    packet, captured bytes, bytes on the wire, and time in ns, in four parts. `is_likely`: whether
    each record is likely.
    """

def read_headers(
    data: Bytes, tables: list[Bytes], rows: Int64, layers: int, columns: list[NDArray[Any]]
) -> None:
    """Read the common headers of these packets, up to `layers`, and the header of TCP.

    `tables`: kinds by ethertype, protocol and address family. `columns`: those of
    `headers.Packets`.
    """

def find_damaged(
    data: Bytes, order: Int64, at: Int64, sound: Int64, src_high: UInt64, src_low: UInt64,
    dst_high: UInt64, dst_low: UInt64, src_port: UInt16, dst_port: UInt16,
    seq: NDArray[np.uint32], ack: NDArray[np.uint32], payload: Int64, length: NDArray[np.int32],
    is_damaged: Bytes,
) -> None:  # fmt: skip
    """Mark packets with a wrong TCP checksum, if packets with a right one contain all bytes of
    their payload, and differ from it.

    `order`: packets that were captured completely, by the positions `at` of their first bytes.
    Positions of two streams are apart. `sound`: as long; memory for the packets with a right
    checksum.
    """

# segments

def count_packets(
    slot: Int64, length: NDArray[np.int32], time: Int64, packets: Int64, bytes: Int64, first: Int64,
    last: Int64,
) -> None:  # fmt: skip
    """Add packets to the counts of their slots: number and bytes. `first` and `last` times are
    those of two slots: of a connection."""

def find_repeats(
    slot: Int64, seq: NDArray[np.uint32], length: NDArray[np.int32], reach: Int64, repeats: Int64
) -> int:
    """The number of payloads that begin before the end of an earlier one, and their packets.

    `reach`: by slot, the sequence number behind the payloads; -1 without one.
    """

def find_positions(
    slot: Int64, seq: NDArray[np.uint32], flags: Bytes, length: NDArray[np.int32],
    captured: NDArray[np.int32], time: Int64, near: Int64, reference: Int64, is_ignored: Bytes,
    least: Int64, limits: Int64, at: Int64, count: Int64, lowest: Int64, cut: Int64, end: Int64,
    highest: Int64, latest: Int64, repeated: Int64, in_order: bool, stray: Int64,
    payload_time: Int64, payload_end: Int64, jumps: Int64,
) -> tuple[int, bool]:  # fmt: skip
    """The position of each payload in its stream, or a number below all positions where there is
    none. Returns the number of payloads that are beyond any window, see `origins.LIMITS`: their
    packets and positions are in `stray`; and whether each payload is complete, and follows the one
    before it or repeats it.

    By slot: `near` and `reference`: position and sequence number of the next byte; then those
    behind the last payload, since a stream may go on by more than 2^31 bytes in a block. `count`
    and `lowest`: number and lowest position of the payloads. `cut`: truncated bytes. `end`,
    `highest` and `latest`: end, highest start and latest time of the payloads before, and then of
    all payloads if they follow each other. `repeated`: number of payloads from `least` on that only
    have bytes of others; they get no position. `in_order`: no segment was behind `end` before.
    `payload_time`, `payload_end`: time of the latest payload in the window, and sequence number
    behind it; -1 without one. A payload of one byte that ends there is a keep-alive, or a repeated
    probe of a zero window: it has no position. `jumps`: number of payloads
    beyond any window behind it that have a position.
    """

def place_segments(
    slot: Int64, at: Int64, length: NDArray[np.int32], captured: NDArray[np.int32], payload: Int64,
    time: Int64, capture: NDArray[np.int32], number: Int64, ack: NDArray[np.uint32], flags: Bytes,
    carried: Int64, is_plain: bool, base: Int64, first: Int64, highest: Int64, last: Int64,
    end: Int64, solid: Int64, table: Int64,
) -> bool:  # fmt: skip
    """Add carried segments, and payloads with a position, to a table: by slot and arrival. Returns
    whether the segments with new bytes are in order of position.

    `is_plain`: they are known to be; only the columns are filled that then differ from segment to
    segment, and nothing but `first` is read and set by slot.
    By slot: `first` row, `base`: the first position that is needed, `highest` start of a segment;
    `last`, `end` and `solid` begin as `base`.
    """

def trim_segments(
    fresh: int, reach: Int64, next_position: Int64, retransmitted: Int64, out_of_order: Int64,
    gap: Int64, table: Int64,
) -> int:  # fmt: skip
    """Remove the bytes that earlier segments of the table contain. Returns the number of segments
    that remain, and sets the number of missing bytes before each of them.

    By slot: `reach`: the first position that is needed. Segments that arrived before the one with
    the number `fresh` are not counted in `retransmitted` and `out_of_order`.
    """

def read_segments(
    slot: Int64, at: Int64, span: Int64, next_position: Int64, readable_before: Int64, time: Int64,
    end: Int64, readable: Int64,
) -> None:  # fmt: skip
    """Replace the time of each segment by the time when all bytes up to it had arrived.

    By slot: `end` and `readable`: position behind the last byte, and its time.
    """

# streams

def lay_out(
    stream: Int64, at: Int64, length: Int64, span: Int64, address: Int64, streams: Int64,
    gaps: Int64,
) -> tuple[int, int]:  # fmt: skip
    """The address of each piece, and of the missing bytes: their first one, and the one behind.

    `streams`: slot, first piece and end of each stream, in three parts. Returns the number of
    streams, and of gaps.
    """

def walk_frames(
    data: Bytes, address: Int64, position: Int64, length: Int64, first: Int64, end: Int64,
    limit: int, begin: int, at: Int64, ended: Int64, behind: Int64, until: Int64, frames: Int64,
    count: int,
) -> int:  # fmt: skip
    """Walk the frames of streams: `FrameChains.walk`, from the stream `begin` on.

    `address`, `position`, `length`: the pieces. `first`: the first piece of each stream. `limit`:
    the largest size. `at`: where each stream begins, and then where its walk ended. `until`: number
    of frames up to the last one of each stream. `frames`: the columns of `frame_chain.ChainFrames`,
    in six parts, of which the first `count` rows are kept. Returns the stream at which there was no
    more room.
    """

def find_unusual(
    until: Int64, is_client: Bytes, newest: Int64, lowest: Int64, highest: Int64, size: Int64,
    first: Int64, third: Int64, rows: Int64,
) -> int:  # fmt: skip
    """The rows of the frames whose headers may be implausible: `doubts` decides. Returns their
    number.

    By stream: `until`: number of frames up to its last one, `lowest` and `highest` correlation id
    of responses, which ascend. `newest`: highest version by API key.
    """

def read_request_ids(
    piece: Int64, first: Int64, second: Int64, slot: Int64, client: Int64, limit: int,
    least: Int64, most: Int64, fall: Int64, earliest: Int64, key: Int64, kind: NDArray[np.int32],
) -> int:  # fmt: skip
    """The key of each request in `bodies.RequestLog`, and its API and version. Returns the number
    of requests.

    `slot`: that of each piece. By slot: `client`: its stream, -1 if no client sends it; `least` and
    `most`: lowest and highest correlation id below `limit`; `fall`: how far an id is below the
    one that follows the highest before; `earliest`: first row, -1 if there is none.
    """

def read_response_ids(
    piece: Int64, first: Int64, slot: Int64, lowest: Int64, highest: Int64, latest: Int64
) -> None:
    """The latest correlation id of each slot between `lowest` and `highest`; see
    `read_request_ids`."""

def describe_frames(
    address: Int64, slot: Int64, at: Int64, length: Int64, position: Int64, time: Int64,
    capture: Int64, number: Int64, acknowledged: Int64, end: Int64, origin: Int64, client: Int64,
    order: Int64, start: Int64, size: Int64, holder: Int64, first: Int64, second: Int64,
    until: Int64, count: Int64, gaps: Int64, connections: Int64, captures: Int64, bodies: Int64,
    positions: Int64, sizes: Int64, readables: Int64, ids: Int64, packets: Int64, times: Int64,
    end_times: Int64, sequences: Int64, acknowledgements: Int64, ranks: Int64, runs: Int64,
) -> int:  # fmt: skip
    """The frames in `order`, requests first: the columns of `frames.FrameBlock`, from `connections`
    on. Returns the number of requests.

    By piece: `address` to `acknowledged`; `at` is its position in the stream, `position` that in
    the data. Columns of `frame_chain.ChainFrames`: `start` to `second`; `holder` is the piece. By
    slot: `end`: address behind the last byte, `origin`: sequence number of position 0, `client`:
    the connection if its client sends it, else -1 - connection, `until`: position behind the last
    frame, `count` of frames, and of `gaps` between them.
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

def follow_batches(
    data: Bytes, address: Int64, position: Int64, length: Int64, start: Int64, stop: Int64,
    smallest: Int64, field: Int64, at: Int64, size: Int64, magic: Int64, broken: Int64,
) -> int:  # fmt: skip
    """The batches between `start` and `stop` of n fields: field, address, size and magic of each.

    Returns their number. Those for which the arrays are too short are only counted. `smallest`:
    size of an empty batch, by magic. `broken`: where bytes are not a batch, in each field; or -1.
    """

def read_request_headers(
    data: Bytes, address: Int64, position: Int64, length: Int64, header_versions: Int8,
    largest: int, chosen: Int64, start: Int64, end: Int64, is_whole: Bools, first: int, keys: Int64,
    versions: Int64, lengths: Int64, bodies: Int64, is_cut: Bools, is_known: Bools,
) -> int:  # fmt: skip
    """The headers of the requests at the indices `chosen`, from the index `first` of it on.

    `header_versions`, `largest`: see `message_headers`. `lengths`, `bodies`, `is_cut`, `is_known`:
    those of its `RequestHeaders`. Returns the index of a header whose version is NEW.
    """

def read_response_headers(
    data: Bytes, address: Int64, position: Int64, length: Int64, header_versions: Int8,
    chosen: Int64, start: Int64, end: Int64, sizes: Int64, keys: Int64, first: int,
    versions: Int64, bodies: Int64,
) -> int:  # fmt: skip
    """The address of the body of each response, as `read_request_headers`.

    `versions`: those of the requests; 0 replaces them as KIP-511 has it. `sizes`: bytes of each
    response, with the 4 bytes of its size.
    """

def walk_bodies(
    data: Bytes, address: Int64, position: Int64, length: Int64, nodes: NDArray[np.int32],
    columns: int, is_flexible: bool, limit: int, part: int, start: Int64, end: Int64, cut: Bools,
    least: int, most: int, element_bytes: int, first: int, base: Int64, surplus: Int64, room: Int64,
    count: Int64,
) -> int:  # fmt: skip
    """Walk message bodies by a program (`protocol.decoder_program`), from the message `first` on.

    `limit`, `part`, `least`, `most`, `element_bytes`: see `protocol.limits`.
    `base`: elements of each level that earlier calls kept. `surplus`:
    bytes behind the last field of each body, -1 if the body does not fit the program. `room`: for
    row, address and value of each column, then for owner and index of each level; parts of equal
    size. `count`: items of each column and level. Returns the message for which there was no more
    room.
    """

def find_body_end(
    data: Bytes, nodes: NDArray[np.int32], is_flexible: bool, start: int, size: int, most: int
) -> int:
    """Where a body ends that begins at `start`, in a message of `size` bytes, by a program without
    columns; -1 if it is impossible.

    `data`: the message, or its first bytes. `most`: elements that it may have. Returns `size` if
    it has more, or if the end depends on bytes behind `data`.
    """

# matching

def count_in_flight(
    connection: Int64, ordinal: Int64, time: Int64, answered_connection: Int64,
    answered_ordinal: Int64, answered_time: Int64, answered_before: Int64, counts: Int64,
) -> bool:  # fmt: skip
    """See `exchanges.matching.in_flight`. Returns whether the responses of each connection are in
    order of time; if not, `counts` is not filled.
    """

# rows

def gather(
    values: Numbers, rows: Int64, is_valid: Bytes, offset: int, chosen: Numbers, has_value: Bytes
) -> int:
    """The values of an Arrow array at these rows: both of the same type; null for the row -1.
    Returns the number of nulls.

    `is_valid`: the bits of the array's values, from the bit `offset` on; empty if none is null.
    `has_value`: those of the chosen values. They are set before.
    """

def list_words(
    message: Int64, address: Int64, code: NDArray[np.int32], last: Int64, begin: NDArray[np.int32],
    listed: NDArray[np.int32],
) -> int:  # fmt: skip
    """The codes of each message, without repetitions and without -1. Returns their number, or -1 if
    the words of a message are not in order of address.

    `last`: a zero for each code. `begin`: where the list of each message begins, and the end of the
    last one.
    """

# records

def walk_records(data: Bytes, begin: Int64, end: Int64, count: Int64, reached: Int64) -> None:
    """Follow each batch's chain of lengths.

    `count`: records of each batch. `reached`: where the walk ended, `end` + 1 if the last record
    extends beyond the batch.
    """

def read_records(
    data: Bytes, buffer: int, at: Int64, end: Int64, take: Int64, batch: Int64,
    base_offset: Int64, base_timestamp: Int64, mask: Int64, batches: Int64, offset: Int64,
    timestamp: Int64, key: UInt64, value: UInt64, header_at: Int64, header_count: Int64,
    is_good: Bools,
) -> int:  # fmt: skip
    """The next records of several batches, and whether their fields fill them. Returns the number
    of all headers. A damaged record has no key, no value and no headers.

    By batch: `at`: position of the next record, which is set to the one behind the records that are
    read. `end`: position behind the batch. `take`: number of records; where the batch has fewer,
    `header_count` and `is_good` are 0, and other columns are not written. `batch`: the number in
    `batches`. `mask`: -1, or 0 where timestamp deltas do not count. `buffer`: number of `data`
    among the buffers of the views `key` and `value`. `header_at`: position of the number of
    headers, if there are any.
    """

def read_record_headers(
    data: Bytes, buffer: int, at: Int64, count: Int64, key: UInt64, value: UInt64
) -> None:
    """The views of the headers of records that have `count` of them, record by record.

    `at`: the position of the count, behind each record's value.
    """

def make_views(data: Bytes, buffer: int, at: Int64, length: Int64, views: UInt64) -> None:
    """Arrow's views of the strings in the buffer `buffer`, two numbers each. Null has the length -1
    here, and the length 0xFFFF_FFFF in its view."""

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
    dst_port: UInt16, key: UInt64, sender: Int64, first: Int64, hashes: UInt64, words: UInt64,
) -> int:  # fmt: skip
    """A code for the endpoints of each packet, in order of appearance, the same for both
    directions. Returns the number of codes.

    `sender`: twice the code, plus 1 if the source is the larger endpoint. `first`: the index of the
    first packet of each code. `hashes`: SipHash-1-3 of its endpoints, the smaller one first;
    `words`: these endpoints, five words for each code.
    """
