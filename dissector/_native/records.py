# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Records of magic 2 (KIP-98), and Arrow's views of their keys and values."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from dissector._native import uncompiled as cython
if cython.compiled:
    from cython.cimports.dissector._native.memory import touch
else:
    from dissector._native.uncompiled import touch

Int = cython.typedef(cython.longlong)
Word = cython.typedef(cython.ulonglong)
Bytes = cython.typedef(cython.const[cython.uchar][::1])
Ints = cython.typedef(cython.const[cython.longlong][::1])
IntsOut = cython.typedef(cython.longlong[::1])
BytesOut = cython.typedef(cython.uchar[::1])

ALL = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
"""Mask of a word: numbers of C wrap, those of Python do not."""
MIN_RECORD = cython.declare(cython.longlong, 7)
"""Bytes of the smallest record: length, attributes, two deltas, two lengths and a count."""
MAX_WIDTH = cython.declare(cython.longlong, 10)
"""Bytes of the longest varint, which has 64 bits."""
INLINE = cython.declare(cython.longlong, 12)
"""Bytes of the longest string that a view contains."""
AHEAD = cython.declare(cython.longlong, 16)
"""Strings between the one that is read and the one whose memory is asked for."""
MAX_VIEW = cython.declare(cython.longlong, 0x7FFF_FFFF)


@cython.cclass
class _Cursor:
    """Reads the fields of a record, one after the other; `at` is -1 behind a damaged field."""

    data: Bytes
    at: Int
    stop: Int
    """The position that no field extends beyond."""

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-0x7FFF_FFFF_FFFF_FF00)
    def varint(self) -> Int:
        """A signed number in zigzag form: 0, -1, 1, -2 are written as 0, 1, 2, 3."""
        raw: Word = 0
        byte: Word
        half: Int
        at: Int = self.at
        index: Int
        if at < 0:
            return 0
        for index in range(MAX_WIDTH):
            if at + index >= self.stop:
                break
            byte = self.data[at + index]
            raw |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                self.at = at + index + 1
                half = (raw & ALL) >> 1
                return half if raw & 1 == 0 else -half - 1
        self.at = -1
        return 0

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def skip(self, length: Int, least: Int) -> Int:
        """Skip bytes; the length -1 is null. Returns the position of the first byte."""
        begin: Int = self.at
        if begin < 0:
            return 0
        if length < least or length > self.stop - begin:
            self.at = -1
            return 0
        if length > 0:
            self.at = begin + length
        return begin


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=False)
def _next_record(cursor: _Cursor, at: Int, stop: Int) -> Int:
    """The position behind the record at `at`: `stop` + 1 if it extends beyond the stop, 0 if its
    length is invalid."""
    length: Int
    cursor.at, cursor.stop = at, stop
    length = cursor.varint()
    if cursor.at < 0 or length < MIN_RECORD - 1:
        return 0
    return stop + 1 if length > stop - cursor.at else cursor.at + length


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=False)
def _walk(
    cursor: _Cursor, begin: Ints, end: Ints, first: Ints, start: IntsOut, count: IntsOut,
    reached: IntsOut,
) -> cython.int:  # fmt: skip
    lanes: Int = begin.shape[0]
    size: Int = cursor.data.shape[0]
    lane: Int
    group: Int
    following: Int
    is_going: cython.int
    for lane in range(lanes):
        if begin[lane] < 0 or end[lane] > size:
            raise ValueError("a batch outside of the data")
        reached[lane] = begin[lane]
        count[lane] = 0
    # Eight batches in turn, because the next record of one is known only once its memory arrived.
    for group in range(0, lanes, 8):
        is_going = 1
        while is_going:
            is_going = 0
            for lane in range(group, min(group + 8, lanes)):
                if reached[lane] >= end[lane] or first[lane] + count[lane] >= first[lane + 1]:
                    continue
                following = _next_record(cursor, reached[lane], end[lane])
                if following == 0:
                    continue
                start[first[lane] + count[lane]] = reached[lane]
                count[lane] += 1
                reached[lane] = following
                is_going = 1
    return 0


def walk_records(
    data: Bytes, begin: Ints, end: Ints, first: Ints, start: IntsOut, count: IntsOut,
    reached: IntsOut,
) -> None:  # fmt: skip
    cursor: _Cursor = _Cursor()
    cursor.data = data
    with cython.nogil:
        _walk(cursor, begin, end, first, start, count, reached)


@cython.final
@cython.cclass
class _Records(_Cursor):
    """Fields of records, as columns."""

    start: Ints
    is_good: BytesOut
    timestamp_delta: IntsOut
    offset_delta: IntsOut
    key_at: IntsOut
    key_length: IntsOut
    value_at: IntsOut
    value_length: IntsOut
    header_count: IntsOut

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def read(self, record: Int) -> Int:
        """Read one record. Returns the number of its headers."""
        length: Int
        header: Int
        headers: Int
        self.at, self.stop = self.start[record], self.data.shape[0]
        length = self.varint()
        if self.at < 0 or not 0 < length <= self.stop - self.at:
            return self.clear(record)
        self.stop = self.at + length
        self.at += 1  # attributes: Kafka uses none of their bits
        self.timestamp_delta[record] = self.varint()
        self.offset_delta[record] = self.varint()
        self.key_length[record] = self.varint()
        self.key_at[record] = self.skip(self.key_length[record], -1)
        self.value_length[record] = self.varint()
        self.value_at[record] = self.skip(self.value_length[record], -1)
        headers = self.varint()
        if self.at < 0 or not 0 <= headers <= (self.stop - self.at) >> 1:
            return self.clear(record)
        for header in range(headers):
            self.skip(self.varint(), 0)  # the key of a header is never null
            self.skip(self.varint(), -1)
            if self.at < 0:
                break
        if self.at != self.stop:
            return self.clear(record)
        self.is_good[record] = 1
        self.header_count[record] = headers
        return headers

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def clear(self, record: Int) -> Int:
        """A damaged record has no key, no value and no headers."""
        self.is_good[record] = 0
        self.timestamp_delta[record] = self.offset_delta[record] = 0
        self.key_at[record] = self.value_at[record] = self.header_count[record] = 0
        self.key_length[record] = self.value_length[record] = -1
        return 0

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def read_all(self) -> Int:
        headers: Int = 0
        record: Int
        for record in range(self.start.shape[0]):
            headers += self.read(record)
        return headers


def read_records(
    data: Bytes, start: Ints, is_good: BytesOut, timestamp_delta: IntsOut, offset_delta: IntsOut,
    key_at: IntsOut, key_length: IntsOut, value_at: IntsOut, value_length: IntsOut,
    header_count: IntsOut,
) -> int:  # fmt: skip
    headers: Int
    records: _Records = _Records()
    records.data = data
    records.start, records.is_good = start, is_good
    records.timestamp_delta, records.offset_delta = timestamp_delta, offset_delta
    records.key_at, records.key_length = key_at, key_length
    records.value_at, records.value_length = value_at, value_length
    records.header_count = header_count
    with cython.nogil:
        headers = records.read_all()
    return headers


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=False)
def _read_headers(
    cursor: _Cursor, at: Ints, count: Ints, key_at: IntsOut, key_length: IntsOut,
    value_at: IntsOut, value_length: IntsOut,
) -> cython.int:  # fmt: skip
    slot: Int = 0
    record: Int
    header: Int
    cursor.stop = cursor.data.shape[0]
    for record in range(at.shape[0]):
        cursor.at = at[record]
        if count[record] == 0:
            continue
        if cursor.varint() != count[record]:
            raise ValueError("the number of headers is another one")
        for header in range(count[record]):
            key_length[slot] = cursor.varint()
            key_at[slot] = cursor.skip(key_length[slot], 0)
            value_length[slot] = cursor.varint()
            value_at[slot] = cursor.skip(value_length[slot], -1)
            slot += 1
        if cursor.at < 0:
            raise ValueError("a header is damaged")
    return 0


def read_record_headers(
    data: Bytes, at: Ints, count: Ints, key_at: IntsOut, key_length: IntsOut, value_at: IntsOut,
    value_length: IntsOut,
) -> None:  # fmt: skip
    cursor: _Cursor = _Cursor()
    cursor.data = data
    with cython.nogil:
        _read_headers(cursor, at, count, key_at, key_length, value_at, value_length)


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=False)
def _make_views(
    data: Bytes, number: Int, at: Ints, length: Ints, views: cython.ulonglong[::1]
) -> cython.int:
    size: Int = data.shape[0]
    front: Word
    back: Word
    byte: Word
    begin: Int
    bytes_in: Int
    string: Int
    index: Int
    for string in range(at.shape[0]):
        if string + AHEAD < at.shape[0]:
            touch(data, at[string + AHEAD])
        begin, bytes_in = at[string], max(length[string], 0)
        if not 0 <= begin <= size or not bytes_in <= size - begin or begin > MAX_VIEW:
            raise ValueError("a string outside of the data")
        if bytes_in > MAX_VIEW:
            raise ValueError("a string is too long for a view")
        front, back = bytes_in, 0
        for index in range(min(bytes_in, 4 if bytes_in > INLINE else INLINE)):
            byte = data[begin + index]
            if index < 4:
                front |= byte << 8 * index + 32
            else:
                back |= byte << 8 * index - 32
        if bytes_in > INLINE:
            back = begin
            back = back << 32 | number
        views[2 * string], views[2 * string + 1] = front, back
    return 0


def make_views(
    data: Bytes, number: int, at: Ints, length: Ints, views: cython.ulonglong[::1]
) -> None:
    buffer: Int = number
    with cython.nogil:
        _make_views(data, buffer, at, length, views)
