# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=False, infer_types=True
"""Rows of Arrow's columns, and lists of words."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from dissector._native import uncompiled as cython
if cython.compiled:
    from cython.cimports.dissector._native.memory import *

Number = cython.fused_type(cython.short, cython.int, cython.longlong)


def gather(
    values: cython.const[Number][::1], rows: Ints, is_valid: Bytes, offset: Int,
    chosen: Number[::1], has_value: BytesOut,
) -> int:  # fmt: skip
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


def list_words(
    message: Ints, address: Ints, code: Ints32, last: IntsOut, begin: Ints32Out, listed: Ints32Out
) -> int:
    messages = max(len(begin) - 1, 0)
    end: IntsOut = memoryview(bytearray(8 * messages + 8)).cast("q")[:messages]
    """By message: behind its last word among all words."""
    order: IntsOut = memoryview(bytearray(8 * len(message) + 8)).cast("q")
    """Index of each word, by message."""
    place: Int = 0
    count: Int = 0
    with cython.nogil:
        for index in range(message.shape[0]):
            end[message[index]] += 1
        for row in range(end.shape[0]):
            place += end[row]
            end[row] = place - end[row]
        for index in range(message.shape[0]):
            row = message[index]
            order[end[row]] = index
            end[row] += 1
        place = 0
        for row in range(end.shape[0]):
            begin[row] = count
            before = -1
            while place < end[row]:
                index = order[place]
                if before >= 0 and address[index] < address[before]:
                    count = -1
                    break
                before = index
                place += 1
                if code[index] >= 0 and last[code[index]] <= row:
                    last[code[index]] = row + 1
                    listed[count] = code[index]
                    count += 1
            if count < 0:
                break
        begin[end.shape[0]] = count
    return count
