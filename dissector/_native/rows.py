# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Rows of Arrow's columns, and lists of words."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from dissector._native import uncompiled as cython

Int = cython.typedef(cython.longlong)
Bytes = cython.typedef(cython.const[cython.uchar][::1])
Codes = cython.typedef(cython.const[cython.int][::1])
Ints = cython.typedef(cython.const[cython.longlong][::1])
BytesOut = cython.typedef(cython.uchar[::1])
CodesOut = cython.typedef(cython.int[::1])
IntsOut = cython.typedef(cython.longlong[::1])
Number = cython.fused_type(cython.short, cython.int, cython.longlong)


def gather(
    values: cython.const[Number][::1], rows: Ints, is_valid: Bytes, offset: Int,
    chosen: Number[::1], has_value: BytesOut,
) -> int:  # fmt: skip
    index: Int
    row: Int
    first: Int
    byte: cython.int
    bit: cython.int
    count: Int = rows.shape[0]
    missing: Int = 0
    with cython.nogil:
        for index in range(count):
            row = rows[index]
            if row >= 0:
                chosen[index] = values[row]
            else:
                chosen[index] = 0
                has_value[index >> 3] &= ~(1 << (index & 7)) & 0xFF
                missing += 1
        if is_valid.shape[0]:
            missing = 0
            for first in range(0, count, 8):
                byte = 0
                for index in range(first, min(first + 8, count)):
                    row = rows[index]
                    if row >= 0:
                        row += offset
                        bit = is_valid[row >> 3] >> (row & 7) & 1
                        byte |= bit << (index & 7)
                        missing -= bit
                has_value[first >> 3] = byte
            missing += count
    return missing


@cython.final
@cython.cclass
class _Lists:
    """The words of each message, without repetitions."""

    end: IntsOut
    """By message: behind its last word among all words."""
    order: IntsOut
    """Index of each word, by message."""
    last: IntsOut
    """By code: 1 + the last message with it."""

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def sort(self, message: Ints) -> cython.int:
        """Bring all words into the order of their messages."""
        index: Int
        row: Int
        total: Int = 0
        for index in range(message.shape[0]):
            self.end[message[index]] += 1
        for row in range(self.end.shape[0]):
            total += self.end[row]
            self.end[row] = total - self.end[row]
        for index in range(message.shape[0]):
            row = message[index]
            self.order[self.end[row]] = index
            self.end[row] += 1
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-2, check=False)
    def write(self, address: Ints, code: Codes, begin: CodesOut, listed: CodesOut) -> Int:
        """`list_words`."""
        place: Int = 0
        row: Int
        index: Int
        before: Int
        count: Int = 0
        for row in range(self.end.shape[0]):
            begin[row] = count
            before = -1
            while place < self.end[row]:
                index = self.order[place]
                if before >= 0 and address[index] < address[before]:
                    return -1
                before = index
                place += 1
                if code[index] >= 0 and self.last[code[index]] <= row:
                    self.last[code[index]] = row + 1
                    listed[count] = code[index]
                    count += 1
        begin[self.end.shape[0]] = count
        return count


def list_words(
    message: Ints, address: Ints, code: Codes, last: IntsOut, begin: CodesOut, listed: CodesOut
) -> int:
    lists: _Lists = _Lists()
    messages = max(len(begin) - 1, 0)
    lists.end = memoryview(bytearray(8 * messages + 8)).cast("q")[:messages]
    lists.order = memoryview(bytearray(8 * len(message) + 8)).cast("q")
    lists.last = last
    count: Int
    with cython.nogil:
        lists.sort(message)
        count = lists.write(address, code, begin, listed)
    return count
