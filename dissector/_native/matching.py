# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=False, infer_types=True
"""Requests in flight: see `exchanges.matching`."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from dissector._native import uncompiled as cython
if cython.compiled:
    from cython.cimports.dissector._native.memory import *


def count_in_flight(
    connection: Ints, ordinal: Ints, time: Ints, answered_connection: Ints, answered_ordinal: Ints,
    answered_time: Ints, answered_before: Ints, counts: IntsOut,
) -> bool:  # fmt: skip
    connections = len(answered_before)
    responses = len(answered_connection)
    begin: IntsOut = memoryview(bytearray(8 * connections + 8)).cast("q")[:connections]
    """By connection: the first response."""
    end: IntsOut = memoryview(bytearray(8 * connections + 8)).cast("q")[:connections]
    """By connection: behind the last response."""
    times: IntsOut = memoryview(bytearray(8 * responses + 8)).cast("q")
    """Of the responses, by connection; ascending."""
    highest: IntsOut = memoryview(bytearray(8 * responses + 8)).cast("q")
    """The highest ordinal of the connection's requests that are answered."""
    total: Int = 0
    before: Int = -1
    low: Int = 0
    row: Int
    is_sorted: cython.bint = True
    with cython.nogil:
        for index in range(responses):
            end[answered_connection[index]] += 1
        for row in range(connections):
            begin[row] = total
            total += end[row]
            end[row] = begin[row]
        for index in range(responses):
            row = answered_connection[index]
            place = end[row]
            most = answered_before[row]
            if place > begin[row]:
                most = highest[place - 1]
                if times[place - 1] > answered_time[index]:
                    is_sorted = False
                    break
            times[place] = answered_time[index]
            highest[place] = max(most, answered_ordinal[index])
            end[row] = place + 1
        for index in range(connection.shape[0] if is_sorted else 0):
            row = connection[index]
            high = end[row]
            if row == before and time[index - 1] <= time[index]:
                # Mostly the next one: a search by halves from the first one would cost more.
                while low < high and times[low] <= time[index]:
                    low += 1
                high = low
            else:
                low = begin[row]
            before = row
            while low < high:
                middle = (low + high) >> 1
                if times[middle] <= time[index]:
                    low = middle + 1
                else:
                    high = middle
            most = highest[low - 1] if low > begin[row] else answered_before[row]
            counts[index] = max(ordinal[index] - most, 1)
    return is_sorted
