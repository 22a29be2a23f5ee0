# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=False, infer_types=True
"""Records of magic 2 (KIP-98), and Arrow's views of their keys and values.

A view is two numbers. The low half of the first is the length, or NULL. A string of up to INLINE
bytes follows, padded with zeros. Of a longer string, the high half of the first number has the
first four bytes, and the second number the buffer and the position in it.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from dissector._native import uncompiled as cython
if cython.compiled:
    from cython.cimports.dissector._native.memory import *

ALL = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
"""Mask of a word: numbers of C wrap, those of Python do not."""
HALF = cython.declare(cython.ulonglong, 0x7FFF_FFFF_FFFF_FFFF)
"""Largest signed number."""
NULL = cython.declare(cython.ulonglong, 0xFFFF_FFFF)
"""Length of null in a view."""
MIN_RECORD = cython.declare(cython.longlong, 7)
"""Bytes of the smallest record: length, attributes, two deltas, two lengths and a count."""
MAX_WIDTH = cython.declare(cython.longlong, 10)
"""Bytes of the longest varint, which has 64 bits."""
INLINE = cython.declare(cython.longlong, 12)
"""Bytes of the longest string that a view contains."""
MAX_VIEW = cython.declare(cython.longlong, 0x7FFF_FFFF)


@cython.final
@cython.cclass
class _Reader:
    """Reads varints, strings and records. Positions are arguments, which stay in registers."""

    data: Bytes
    at: Int
    length: Int
    """The string that `string` read."""
    buffer: Word
    """Number of the data among the buffers of views."""
    front: Word
    back: Word
    """The view that `view` made."""
    key_at: Int
    key_length: Int
    timestamp_delta: Int
    offset_delta: Int
    header_at: Int
    """Of the record that `fields` read."""

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1)
    def width(self, at: Int, stop: Int) -> Int:
        """Bytes of the varint at a position; 0 if it does not end before the stop."""
        if at + 1 < stop:
            if self.data[at] < 0x80:
                return 1
            if self.data[at + 1] < 0x80:
                return 2
        return self.long_width(at, stop)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def long_width(self, at: Int, stop: Int) -> Int:
        """`width` for any length, up to the stop."""
        for index in range(min(stop - at, MAX_WIDTH)):
            if self.data[at + index] < 0x80:
                return index + 1
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-0x7FFF_FFFF_FFFF_FF00)
    def number(self, at: Int, width: Int) -> Int:
        """The signed number in a varint, in zigzag form: 0, 1, 2, 3 mean 0, -1, 1, -2."""
        first: Int
        second: Int
        if width > 2:
            return self.long_number(at, width)
        first = self.data[at]
        if width == 1:
            return (first >> 1) ^ -(first & 1)
        second = self.data[at + 1]
        return (second << 6 | (first & 0x7F) >> 1) ^ -(first & 1)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-0x7FFF_FFFF_FFFF_FF00)
    def long_number(self, at: Int, width: Int) -> Int:
        """`number` for any width."""
        raw: Word = 0
        byte: Word
        half: Int
        for index in range(width):
            byte = self.data[at + index]
            raw |= (byte & 0x7F) << 7 * index
        half = (raw & ALL) >> 1
        return half if raw & 1 == 0 else -half - 1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1)
    def string(self, at: Int, stop: Int, least: Int) -> Int:
        """Read a length and find its string; the length -1 is null. Returns the position behind it,
        0 if it is damaged."""
        width: Int = self.width(at, stop)
        if width == 0:
            return 0
        length = self.number(at, width)
        at += width
        if length < least or length > stop - at:
            return 0
        self.at, self.length = at, length
        return at + max(length, 0)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(0xFFFF_FFFF_FFFF_FFFE)
    @cython.boundscheck(False)
    def word(self, at: Int) -> Word:
        """The eight bytes at a position, the first one lowest; zeros beyond the data."""
        byte: Word
        word: Word = 0
        if at < 0:
            raise IndexError
        # One check of bounds serves all bytes, and a fixed number of bytes needs no loop.
        if at <= self.data.shape[0] - 8:
            for index in range(8):
                byte = self.data[at + index]
                word |= byte << 8 * index
        else:
            for index in range(self.data.shape[0] - at):
                byte = self.data[at + index]
                word |= byte << 8 * index
        return word

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def view(self, at: Int, length: Int) -> cython.int:
        """Make the view of a string; the length -1 is null."""
        if length <= 0:
            self.front, self.back = NULL if length < 0 else 0, 0
            return 0
        word = self.word(at)
        self.front, self.back = length, 0
        if length > INLINE:
            self.back = at
            self.back = self.back << 32 | self.buffer
        elif length > 8:
            self.back = self.word(at + 4) & ALL >> 8 * (INLINE - length)
        else:
            word &= ALL >> 8 * (8 - length)
            self.back = word >> 32
        self.front |= (word << 32) & ALL
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(-2)
    def fields(self, at: Int, stop: Int) -> Int:
        """Read the fields of a record; its value is the string. Returns the number of its headers;
        -1 if it is damaged."""
        width: Int = self.width(at, stop)
        if width == 0:
            return -1
        self.timestamp_delta = self.number(at, width)
        at += width
        width = self.width(at, stop)
        if width == 0:
            return -1
        self.offset_delta = self.number(at, width)
        at = self.string(at + width, stop, -1)
        if at == 0:
            return -1
        self.key_at, self.key_length = self.at, self.length
        at = self.string(at, stop, -1)
        if at == 0:
            return -1
        width = self.width(at, stop)
        if width == 0:
            return -1
        self.header_at = at
        headers = self.number(at, width)
        at += width
        if headers == 0:
            return 0 if at == stop else -1
        return headers if self.ends_with(headers, at, stop) else -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def ends_with(self, headers: Int, at: Int, stop: Int) -> cython.int:
        """Whether a record ends with so many headers."""
        value_at: Int = self.at
        value_length: Int = self.length
        if not 0 <= headers <= (stop - at) >> 1:
            return 0
        for header in range(headers):
            at = self.string(at, stop, 0)  # the key of a header is never null
            if at > 0:
                at = self.string(at, stop, -1)
            if at == 0:
                return 0
        self.at, self.length = value_at, value_length
        return at == stop


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def _next_record(reader: _Reader, at: Int, stop: Int) -> Int:
    """The position behind the record at `at`: `stop` + 1 if it extends beyond the stop, 0 if its
    length is invalid."""
    width: Int = reader.width(at, stop)
    if width == 0:
        return 0
    length = reader.number(at, width)
    if length < MIN_RECORD - 1:
        return 0
    return stop + 1 if length > stop - at - width else at + width + length


def walk_records(data: Bytes, begin: Ints, end: Ints, count: IntsOut, reached: IntsOut) -> None:
    lanes: Int = begin.shape[0]
    is_going: cython.int
    reader: _Reader = _Reader()
    reader.data = data
    with cython.nogil:
        for lane in range(lanes):
            if begin[lane] < 0 or end[lane] > data.shape[0]:
                raise ValueError("a batch outside of the data")
            reached[lane] = begin[lane]
            count[lane] = 0
        # Eight batches in turn: the next record of one is known only once its memory arrived.
        for group in range(0, lanes, 8):
            is_going = 1
            while is_going:
                is_going = 0
                for lane in range(group, min(group + 8, lanes)):
                    if reached[lane] >= end[lane]:
                        continue
                    following = _next_record(reader, reached[lane], end[lane])
                    if following == 0:
                        continue
                    count[lane] += 1
                    reached[lane] = following
                    is_going = 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _sum(first: Int, second: Int) -> Int:
    """The sum in 64 bits."""
    raw: Word = first
    half: Int
    raw = (raw + second) & ALL
    if raw <= HALF:
        return raw
    half = ALL - raw
    return -half - 1


def read_records(
    data: Bytes, buffer: Int, at: IntsOut, end: Ints, take: Ints, batch: Ints, base_offset: Ints,
    base_timestamp: Ints, mask: Ints, batches: IntsOut, offset: IntsOut, timestamp: IntsOut,
    key: WordsOut, value: WordsOut, header_at: IntsOut, header_count: IntsOut, is_good: BytesOut,
) -> int:  # fmt: skip
    record: Int = 0
    all_headers: Int = 0
    reader: _Reader = _Reader()
    reader.data, reader.buffer = data, buffer
    with cython.nogil:
        for each in range(at.shape[0]):
            if at[each] < 0 or end[each] > min(data.shape[0], MAX_VIEW):
                raise ValueError("a batch outside of the data")
            last = record + take[each]
            place = at[each]
            while record < last and place < end[each]:
                following = _next_record(reader, place, end[each])
                if following == 0 or following > end[each]:
                    break
                place += reader.width(place, end[each]) + 1  # attributes: Kafka uses none of them
                headers = reader.fields(place, following)
                is_good[record] = headers >= 0
                if headers < 0:
                    # A damaged record has no key, no value and no headers.
                    headers = reader.timestamp_delta = reader.offset_delta = 0
                    reader.at = reader.key_at = 0
                    reader.length = reader.key_length = -1
                reader.view(reader.at, reader.length)
                value[2 * record], value[2 * record + 1] = reader.front, reader.back
                reader.view(reader.key_at, reader.key_length)
                key[2 * record], key[2 * record + 1] = reader.front, reader.back
                batches[record] = batch[each]
                offset[record] = _sum(base_offset[each], reader.offset_delta)
                timestamp[record] = _sum(base_timestamp[each], reader.timestamp_delta & mask[each])
                header_count[record] = headers
                if headers > 0:
                    header_at[record] = reader.header_at
                    all_headers += headers
                record += 1
                place = following
            at[each] = place
            while record < last:
                is_good[record] = header_count[record] = 0
                record += 1
    return all_headers


def read_record_headers(
    data: Bytes, buffer: Int, at: Ints, count: Ints, key: WordsOut, value: WordsOut
) -> None:
    slot: Int = 0
    stop: Int = min(data.shape[0], MAX_VIEW)
    reader: _Reader = _Reader()
    reader.data, reader.buffer = data, buffer
    with cython.nogil:
        for record in range(at.shape[0]):
            place = at[record]
            if count[record] == 0:
                continue
            width = reader.width(place, stop) if 0 <= place < stop else 0
            if width == 0 or reader.number(place, width) != count[record]:
                raise ValueError("the number of headers is another one")
            place += width
            for header in range(count[record]):
                place = reader.string(place, stop, 0)
                if place == 0:
                    raise ValueError("a header is damaged")
                reader.view(reader.at, reader.length)
                key[slot], key[slot + 1] = reader.front, reader.back
                place = reader.string(place, stop, -1)
                if place == 0:
                    raise ValueError("a header is damaged")
                reader.view(reader.at, reader.length)
                value[slot], value[slot + 1] = reader.front, reader.back
                slot += 2


def make_views(data: Bytes, buffer: Int, at: Ints, length: Ints, views: WordsOut) -> None:
    stop: Int = min(data.shape[0], MAX_VIEW)
    reader: _Reader = _Reader()
    reader.data, reader.buffer = data, buffer
    with cython.nogil:
        for string in range(at.shape[0]):
            if length[string] >= 0 and not 0 <= at[string] <= stop - length[string]:
                raise ValueError("a string outside of the data")
            reader.view(at[string], length[string])
            views[2 * string], views[2 * string + 1] = reader.front, reader.back
