# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=False, infer_types=True
"""Requests in flight: see `exchanges.matching`."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from dissector._native import uncompiled as cython

Int = cython.typedef(cython.longlong)
Ints = cython.typedef(cython.const[cython.longlong][::1])
IntsOut = cython.typedef(cython.longlong[::1])


@cython.final
@cython.cclass
class _Responses:
    """The responses of each connection, in order of time."""

    begin: IntsOut
    """By connection: the first response."""
    end: IntsOut
    """By connection: behind the last response."""
    time: IntsOut
    highest: IntsOut
    """The highest ordinal of the connection's requests that are answered."""

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-2, check=False)
    def add(self, connection: Ints, ordinal: Ints, time: Ints, answered_before: Ints) -> cython.int:
        """Add all responses. Returns whether those of each connection are in order of time."""
        total: Int = 0
        for index in range(connection.shape[0]):
            self.end[connection[index]] += 1
        for row in range(self.end.shape[0]):
            self.begin[row] = total
            total += self.end[row]
            self.end[row] = self.begin[row]
        for index in range(connection.shape[0]):
            row = connection[index]
            place = self.end[row]
            highest = answered_before[row]
            if place > self.begin[row]:
                highest = self.highest[place - 1]
                if self.time[place - 1] > time[index]:
                    return 0
            self.time[place] = time[index]
            self.highest[place] = max(highest, ordinal[index])
            self.end[row] = place + 1
        return 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def count(
        self, connection: Ints, ordinal: Ints, time: Ints, answered_before: Ints, counts: IntsOut
    ) -> cython.int:
        """The requests in flight."""
        before: Int = -1
        low = 0
        for index in range(connection.shape[0]):
            row = connection[index]
            high = self.end[row]
            if row == before and time[index - 1] <= time[index]:
                # Mostly the next one: a search by halves from the first one would cost more.
                while low < high and self.time[low] <= time[index]:
                    low += 1
                high = low
            else:
                low = self.begin[row]
            before = row
            while low < high:
                middle = (low + high) >> 1
                if self.time[middle] <= time[index]:
                    low = middle + 1
                else:
                    high = middle
            highest = answered_before[row]
            if low > self.begin[row]:
                highest = self.highest[low - 1]
            counts[index] = max(ordinal[index] - highest, 1)
        return 0


def count_in_flight(
    connection: Ints, ordinal: Ints, time: Ints, answered_connection: Ints, answered_ordinal: Ints,
    answered_time: Ints, answered_before: Ints, counts: IntsOut,
) -> bool:  # fmt: skip
    responses: _Responses = _Responses()
    connections = len(answered_before)
    responses.begin = memoryview(bytearray(8 * connections + 8)).cast("q")[:connections]
    responses.end = memoryview(bytearray(8 * connections + 8)).cast("q")[:connections]
    responses.time = memoryview(bytearray(8 * len(answered_connection) + 8)).cast("q")
    responses.highest = memoryview(bytearray(8 * len(answered_connection) + 8)).cast("q")
    is_sorted: cython.int
    with cython.nogil:
        is_sorted = responses.add(
            answered_connection, answered_ordinal, answered_time, answered_before
        )
        if is_sorted:
            responses.count(connection, ordinal, time, answered_before, counts)
    return is_sorted != 0
