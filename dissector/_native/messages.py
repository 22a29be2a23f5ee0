# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=False, infer_types=True
"""Numbers, ranges and batches at addresses, and the headers and bodies of messages.

An address counts bytes of streams. `address`, `position` and `length` have one item per piece: the
address of its first byte, the position of this byte in `data`, and its length. Addresses ascend.
Bytes between two pieces are lost, and read as zero.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from dissector._native import uncompiled as cython
if cython.compiled:
    from cython.cimports.dissector._native.memory import *

ONE = cython.declare(cython.ulonglong, 1)
# Of the header of a batch: see `batch_headers`.
FRONT = cython.declare(cython.longlong, 17)
OVERHEAD = cython.declare(cython.longlong, 12)
MIN_BATCH = cython.declare(cython.longlong, 13)
"""Zeros, and so lost bytes, are not a batch."""
# Fields of a node: see `decoder_program`.
KIND = cython.declare(cython.longlong, 0)
WIDTH = cython.declare(cython.longlong, 1)
IS_SIGNED = cython.declare(cython.longlong, 2)
NULLABLE = cython.declare(cython.longlong, 3)
TAG = cython.declare(cython.longlong, 4)
COLUMN = cython.declare(cython.longlong, 5)
INSIDE = cython.declare(cython.longlong, 6)
LEVEL = cython.declare(cython.longlong, 7)
CHILD = cython.declare(cython.longlong, 8)
CHILDREN = cython.declare(cython.longlong, 9)
NODE = cython.declare(cython.longlong, 10)
"""Numbers of a node."""
MAX_NODES = cython.declare(cython.longlong, 1 << 12)
FIXED = cython.declare(cython.longlong, 0)
TEXT = cython.declare(cython.longlong, 1)

STRUCT = cython.declare(cython.longlong, 3)
ARRAY = cython.declare(cython.longlong, 4)
# Items of a table of header versions, besides versions: see `message_headers`.
UNKNOWN = cython.declare(cython.longlong, -1)
NO_API = cython.declare(cython.longlong, -2)
NEW = cython.declare(cython.longlong, -3)
VERSIONS = cython.declare(cython.longlong, 128)
API_VERSIONS = cython.declare(cython.longlong, 18)
UNSUPPORTED_VERSION = cython.declare(cython.longlong, 35)


@cython.cclass
class _Space:
    """Reads bytes at addresses."""

    data: Bytes
    address: Ints
    position: Ints
    length: Ints
    low: Int
    high: Int
    """Addresses of the piece that was read last."""
    shift: Int
    """From its addresses to positions."""
    piece: Int
    size: Int
    """Addresses end here."""
    is_lost: cython.bint
    """Whether a lost byte was read."""

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def touch(self, at: Int) -> cython.int:
        """Ask for the memory of an address that is read later, if it is in the same piece."""
        if cython.compiled and self.low <= at < min(self.high, self.data.shape[0] - self.shift):
            prefetch(cython.address(self.data[at + self.shift]))
        return 0

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def seek(self, at: Int) -> cython.int:
        """Find the piece that has the byte at an address; 0 if this byte is lost."""
        low: Int = 0
        high: Int = self.address.shape[0]
        following: Int = self.piece + 1
        if (
            following < high
            and self.address[following] <= at
            and (following + 1 == high or at < self.address[following + 1])
        ):
            self.piece = following
        else:
            while low < high:
                middle = (low + high) >> 1
                if self.address[middle] <= at:
                    low = middle + 1
                else:
                    high = middle
            if low == 0:
                self.is_lost = True
                return 0
            self.piece = low - 1
        self.low = self.address[self.piece]
        self.high = self.low + self.length[self.piece]
        self.shift = self.position[self.piece] - self.low
        self.is_lost |= at >= self.high
        return at < self.high

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def byte(self, at: Int) -> Int:
        """The byte at an address."""
        if not self.low <= at < self.high and not self.seek(at):
            return 0
        return self.data[at + self.shift]

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-0x7FFF_FFFF_FFFF_FF00)
    @cython.boundscheck(False)
    def number(self, at: Int, width: Int, is_signed: cython.bint) -> Int:
        """The big-endian number in 1, 2, 4 or 8 bytes; one check of bounds serves all of them."""
        value: Word = 0
        byte: Word
        if at < self.low or at > self.high - width:
            if at < self.low or at >= self.high:
                self.seek(at)
            if at < self.low or at > self.high - width:
                return self.scattered(at, width, is_signed)
        begin = at + self.shift
        if begin < 0 or begin > self.data.shape[0] - width:
            raise IndexError
        value = self.data[begin]
        if width >= 2:
            byte = self.data[begin + 1]
            value = value << 8 | byte
        for index in range(2, width):
            byte = self.data[begin + index]
            value = value << 8 | byte
        if is_signed:
            sign = ONE << 8 * width - 1
            value = (value ^ sign) - sign
        return value

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-0x7FFF_FFFF_FFFF_FF00)
    def scattered(self, at: Int, width: Int, is_signed: cython.bint) -> Int:
        """`number`, from several pieces."""
        value: Word = 0
        byte: Word
        for index in range(width):
            byte = self.byte(at + index)
            value = value << 8 | byte
        if is_signed:
            sign = ONE << 8 * width - 1
            value = (value ^ sign) - sign
        return value


def _space(space: _Space, data: Bytes, address: Ints, position: Ints, length: Ints) -> None:
    space.data, space.address, space.position, space.length = data, address, position, length
    last: Int = len(address) - 1
    space.low = space.high = space.shift = 0
    space.piece, space.is_lost = -1, False
    space.size = address[last] + length[last] if last >= 0 else 0


def read_numbers(
    data: Bytes, address: Ints, position: Ints, length: Ints, at: Ints, width: Int,
    is_signed: cython.bint, numbers: IntsOut,
) -> None:  # fmt: skip
    space: _Space = _Space()
    if width not in (1, 2, 4, 8):
        raise ValueError("the width is not 1, 2, 4 or 8")
    is_signed = is_signed or width == 8
    _space(space, data, address, position, length)
    with cython.nogil:
        for index in range(at.shape[0]):
            if index + 24 < at.shape[0]:
                space.touch(at[index + 24])
            numbers[index] = space.number(at[index], width, is_signed)


def copy_ranges(
    data: Bytes, address: Ints, position: Ints, length: Ints, at: Ints, count: Ints,
    copies: BytesOut,
) -> None:  # fmt: skip
    space: _Space = _Space()
    place: Int = 0
    _space(space, data, address, position, length)
    with cython.nogil:
        for index in range(at.shape[0]):
            here = at[index]
            stop = here + count[index]
            while here < stop:
                if not space.low <= here < space.high and not space.seek(here):
                    copies[place] = 0
                    step = 1
                else:
                    step = min(stop, space.high) - here
                    copies[place : place + step] = data[
                        here + space.shift : here + space.shift + step
                    ]
                here += step
                place += step


def follow_batches(
    data: Bytes, address: Ints, position: Ints, length: Ints, start: Ints, stop: Ints,
    smallest: Ints, field: IntsOut, at: IntsOut, size: IntsOut, magic: IntsOut, broken: IntsOut,
) -> int:  # fmt: skip
    space: _Space = _Space()
    count: Int = 0
    _space(space, data, address, position, length)
    with cython.nogil:
        for index in range(start.shape[0]):
            broken[index] = -1
            here = start[index]
            while stop[index] - here >= FRONT:
                kind = space.number(here + 16, 1, False)
                bytes_here = space.number(here + 8, 4, True) + OVERHEAD
                if kind >= smallest.shape[0] or bytes_here < max(smallest[kind], MIN_BATCH):
                    broken[index] = here
                    break
                if count < field.shape[0]:
                    field[count], at[count] = index, here
                    size[count], magic[count] = bytes_here, kind
                count += 1
                here += bytes_here
    return count


@cython.final
@cython.cclass
class _Bodies(_Space):
    """Reads headers, walks bodies by a program, and keeps the requested fields.

    Methods that walk return the address behind a field, or -1 if the field is impossible.
    """

    nodes: Ints32
    is_flexible: cython.bint
    columns: Int
    room: IntsOut
    """Parts of `each` items: row, address and value of each column, then row of the owner and
    index of each level."""
    each: Int
    count: IntsOut
    """Items of each column, then of each level."""
    base: Ints
    """Elements of each level that earlier calls kept."""
    marks: IntsOut
    """`count` before the message."""
    elements: Int
    """Elements that the arrays of the message may still have."""
    value: Int
    """The length or count that was read last."""
    is_full: cython.bint
    stops_at_loss: cython.bint
    """Whether a walk ends at the first lost byte: only its end is of interest."""
    header_versions: Versions
    """See `read_request_headers`."""

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-2)
    def keep(self, column: Int, row: Int, at: Int, value: Int) -> Int:
        """Keep a field. Returns `at`, or -1 if there is no room."""
        count: Int = self.count[column]
        place: Int = 3 * column * self.each + count
        if count == self.each:
            self.is_full = True
            return -1
        self.room[place] = row
        self.room[place + self.each] = at
        self.room[place + 2 * self.each] = value
        self.count[column] = count + 1
        return at

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-2)
    def add_element(self, level: Int, row: Int, ordinal: Int) -> Int:
        """Keep an element. Returns its row, or -1 if there is no room."""
        index: Int = self.columns + level
        count: Int = self.count[index]
        place: Int = (3 * self.columns + 2 * level) * self.each + count
        if count == self.each:
            self.is_full = True
            return -1
        self.room[place] = row
        self.room[place + self.each] = ordinal
        self.count[index] = count + 1
        return self.base[level] + count

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-2)
    def varint(self, at: Int, end: Int) -> Int:
        """An unsigned varint (KIP-482), of five bytes at most, as `value`."""
        index: cython.int
        self.value = 0
        for index in range(5):
            if at >= end:
                return -1
            byte = self.byte(at)
            at += 1
            self.value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return at
        return -1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-2)
    def read_length(self, node: Int, at: Int, end: Int, width: Int) -> Int:
        """A length or count as `value`: -1 for null, never more than the bytes that follow."""
        if self.is_flexible:
            at = self.varint(at, end)
            if at < 0:
                return -1
            self.value -= 1
        else:
            if end - at < width:
                return -1
            self.value = self.number(at, width, True)
            at += width
        if self.value > end - at or self.value < (-1 if self.nodes[node + NULLABLE] else 0):
            return -1
        return at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-2)
    def walk_tags(self, owner: Int, row: Int, at: Int, end: Int) -> Int:
        """Tagged fields (KIP-482): known ones must fill their size, others are skipped."""
        at = self.varint(at, end)
        left = self.value
        while at >= 0 and left > 0:
            at = self.varint(at, end)
            tag = self.value
            if self.is_lost and self.stops_at_loss:
                return -1
            if at >= 0:
                at = self.varint(at, end)
            if at < 0 or self.value > end - at:
                return -1
            behind = at + self.value
            for child in range(self.nodes[owner + CHILDREN]):
                child = NODE * (self.nodes[owner + CHILD] + child)
                if self.nodes[child + TAG] == tag:
                    if self.walk_value(child, row, at, behind) != behind:
                        return -1
                    break
            at = behind
            left -= 1
        return at

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-9, check=False)
    def header_version(self, key: Int, version: Int) -> Int:
        """The header version of a message, or UNKNOWN, NO_API, or NEW."""
        if not 0 <= key < self.header_versions.shape[0] // VERSIONS:
            return NO_API
        if 0 <= version < VERSIONS:
            return self.header_versions[key * VERSIONS + version]
        return NO_API if self.header_versions[key * VERSIONS] == NO_API else UNKNOWN

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-2)
    def body_after(self, at: Int, end: Int, is_tagged: cython.bint) -> Int:
        """The address behind a header: behind `end` if its tagged section is impossible."""
        at = min(at, end)
        if is_tagged:
            at = self.walk_tags(0, 0, at, end)
        return at if at >= 0 else end + 1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def check_range(self, at: Int, end: Int) -> cython.int:
        """ValueError for a header outside of the data."""
        if not 0 <= at <= end <= self.size:
            raise ValueError("a header outside of the data")
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def read_requests(
        self, chosen: Ints, start: Ints, end: Ints, is_whole: Bytes, largest: Int, first: Int,
        keys: IntsOut, versions: IntsOut, lengths: IntsOut, bodies: IntsOut, is_cut: BytesOut,
        is_known: BytesOut,
    ) -> Int:  # fmt: skip
        """`read_request_headers`."""
        has_client: cython.bint
        fits: cython.bint
        cut: cython.bint
        for index in range(first, chosen.shape[0]):
            if index + 16 < chosen.shape[0]:
                self.touch(start[chosen[index + 16]])
            message = chosen[index]
            at, stop = start[message], end[message]
            self.check_range(at, stop)
            key = self.number(min(at, stop), 2, True)
            version = self.number(min(at + 2, stop), 2, True)
            keys[message], versions[message] = key, version
            header = self.header_version(key, version)
            if header == NEW:
                return index
            # In a SASL token that is mistaken for a request, its text would be read as a client id.
            has_client = (
                header != 0 and at + 10 <= stop and (header != NO_API or 0 <= version <= largest)
            )
            length = self.number(min(at + 8, stop), 2, True)
            fits = has_client and -1 <= length <= stop - at - 10
            cut = has_client and not fits and not is_whole[message] and length > 0
            if not fits:
                length = stop - at - 10 if cut else -1
            lengths[message], is_cut[message] = length, cut
            is_known[message] = (
                at + 8 <= stop and header >= 0 and (fits or header == 0 or not is_whole[message])
            )
            if cut:
                bodies[message] = stop + 1
            else:
                at += 8 if header == 0 else 10 + max(length, 0)
                bodies[message] = self.body_after(at, stop, header == 2)
        return chosen.shape[0]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def read_responses(
        self, chosen: Ints, start: Ints, end: Ints, sizes: Ints, keys: Ints, first: Int,
        versions: IntsOut, bodies: IntsOut,
    ) -> Int:  # fmt: skip
        """`read_response_headers`."""
        for index in range(first, chosen.shape[0]):
            if index + 16 < chosen.shape[0]:
                self.touch(start[chosen[index + 16]])
            message = chosen[index]
            at, stop = start[message], end[message]
            self.check_range(at, stop)
            if (
                keys[message] == API_VERSIONS
                and versions[message] > 0
                and self.number(min(at + 4, stop), 2, True) == UNSUPPORTED_VERSION
                and 14 + 6 * self.number(min(at + 6, stop), 4, True) == sizes[message]
            ):
                versions[message] = 0
            header = self.header_version(keys[message], versions[message])
            if header == NEW:
                return index
            bodies[message] = self.body_after(at + 4, stop, header == 1)
        return chosen.shape[0]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-2)
    def walk_struct(self, owner: Int, row: Int, at: Int, end: Int) -> Int:
        node: Int = NODE * self.nodes[owner + CHILD]
        stop: Int = node + NODE * self.nodes[owner + CHILDREN]
        while node < stop and at >= 0:
            if self.nodes[node + TAG] < 0:
                at = self.walk_value(node, row, at, end)
            node += NODE
        return self.walk_tags(owner, row, at, end) if at >= 0 and self.is_flexible else at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-2)
    def walk_array(self, node: Int, row: Int, at: Int, end: Int) -> Int:
        element: Int = NODE * self.nodes[node + CHILD]
        level: Int = self.nodes[node + LEVEL]
        inner: Int = 0
        at = self.read_length(node, at, end, 4)
        count = self.value
        if at < 0 or count <= 0:
            return at
        self.elements -= count
        if self.elements < 0:
            return -1
        if level < 0 and self.nodes[element + KIND] == FIXED:
            count *= self.nodes[element + WIDTH]
            return at + count if count <= end - at else -1
        for index in range(count):
            if level >= 0:
                inner = self.add_element(level, row, index)
                if inner < 0:
                    return -1
            at = self.walk_value(element, inner, at, end)
            if at < 0:
                break
            if self.is_lost and self.stops_at_loss:
                return -1
        return at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-2)
    def walk_nullable(self, node: Int, row: Int, at: Int, end: Int) -> Int:
        """A struct behind a marker, which is a varint for a tagged one (KIP-893)."""
        if self.nodes[node + TAG] >= 0:
            at = self.varint(at, end)
            if at < 0 or self.value == 0:
                return at
        else:
            if at >= end:
                return -1
            self.value = self.number(at, 1, True)
            at += 1
            if self.value == -1:
                return at
        return self.walk_struct(node, row, at, end) if self.value == 1 else -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-2)
    def walk_value(self, node: Int, row: Int, at: Int, end: Int) -> Int:
        kind: Int = self.nodes[node + KIND]
        width: Int = self.nodes[node + WIDTH]
        column: Int = self.nodes[node + COLUMN]
        if kind == FIXED:
            if end - at < width:
                return -1
            if column >= 0:
                length = width  # of a uuid
                if width <= 8:
                    length = self.number(at, width, self.nodes[node + IS_SIGNED])
                at = self.keep(column, row, at, length)
            return at + width if at >= 0 else -1
        if kind == STRUCT:
            if self.nodes[node + NULLABLE]:
                return self.walk_nullable(node, row, at, end)
            return self.walk_struct(node, row, at, end)
        if kind == ARRAY:
            return self.walk_array(node, row, at, end)
        at = self.read_length(node, at, end, 2 if kind == TEXT else 4)
        length = self.value
        if at >= 0 and column >= 0:
            at = self.keep(column, row, at, length)
        return at + length if at >= 0 and length > 0 else at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def check(self) -> cython.int:
        """ValueError for a program whose walk would not end. Deep programs take much of the stack.

        Children stand behind their owner."""
        kind: Int
        first: Int
        nodes: Int = self.nodes.shape[0] // NODE
        if not 0 < nodes <= MAX_NODES or self.nodes[KIND] != STRUCT:
            raise ValueError("a program of no nodes, or of too many")
        for node in range(nodes):
            kind, first = self.nodes[NODE * node + KIND], self.nodes[NODE * node + CHILD]
            if kind == FIXED and self.nodes[NODE * node + WIDTH] < 1:
                raise ValueError("a program with a field without bytes")
            if kind >= STRUCT and (
                first <= node or not 0 <= self.nodes[NODE * node + CHILDREN] <= nodes - first
            ):
                raise ValueError("a program that is not a tree")
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def mend(self, there: Int) -> cython.int:
        """Drop the fields of a message that is not good; of one that is cut at the address `there`,
        keep the fields outside arrays that are complete."""
        column: Int
        for node in range(0, self.nodes.shape[0], 10):
            column = self.nodes[node + COLUMN]
            if column < 0:
                continue
            kept = self.marks[column]
            for item in range(kept, self.count[column]):
                place = 3 * column * self.each + item
                at = self.room[place + self.each]
                size = self.nodes[node + WIDTH]
                if self.nodes[node + KIND] != FIXED:
                    size = self.room[place + 2 * self.each]
                if self.nodes[node + INSIDE] >= 0 or at >= there or at + size > there:
                    continue
                place = 3 * column * self.each + kept
                self.room[place] = self.room[place + item - kept]
                self.room[place + self.each] = at
                self.room[place + 2 * self.each] = self.room[place + item - kept + 2 * self.each]
                kept += 1
            self.count[column] = kept
        for item in range(self.columns, self.count.shape[0]):
            self.count[item] = self.marks[item]
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def walk(
        self, start: Ints, end: Ints, cut: Bytes, least: Int, most: Int, element_bytes: Int,
        limit: Int, part: Int, first: Int, surplus: IntsOut,
    ) -> Int:  # fmt: skip
        """`walk_bodies`."""
        for message in range(first, start.shape[0]):
            surplus[message] = -1  # until it is walked
            if message + 16 < start.shape[0]:
                self.touch(start[message + 16])
                self.touch(start[message + 16] + 64)
            if not 0 <= start[message] <= end[message] <= self.size:
                continue
            for item in range(self.count.shape[0]):
                self.marks[item] = self.count[item]
            self.elements = max(least, min((end[message] - start[message]) // element_bytes, most))
            at = self.walk_struct(0, message, start[message], end[message])
            if self.is_full:
                for item in range(self.count.shape[0]):
                    self.count[item] = self.marks[item]
                return message
            if 0 <= at <= end[message] and end[message] - at <= max(
                limit, (at - start[message]) // part
            ):
                surplus[message] = end[message] - at
            else:
                self.mend(end[message] if cut[message] else -1)
        return start.shape[0]


def _bodies(data: Bytes, address: Ints, position: Ints, length: Ints, nodes: Ints32) -> _Bodies:
    bodies: _Bodies = _Bodies()
    _space(bodies, data, address, position, length)
    bodies.nodes = nodes
    bodies.value, bodies.is_full, bodies.stops_at_loss = 0, False, False  # as in C
    return bodies


def _headers(
    data: Bytes, address: Ints, position: Ints, length: Ints, versions: Versions
) -> _Bodies:
    # A struct without fields: no tag of a header is known.
    nothing = memoryview(bytearray(4 * NODE)).cast("i")
    headers: _Bodies = _bodies(data, address, position, length, nothing)
    headers.header_versions = versions
    return headers


def read_request_headers(
    data: Bytes, address: Ints, position: Ints, length: Ints, header_versions: Versions,
    largest: Int, chosen: Ints, start: Ints, end: Ints, is_whole: Bytes, first: Int, keys: IntsOut,
    versions: IntsOut, lengths: IntsOut, bodies: IntsOut, is_cut: BytesOut, is_known: BytesOut,
) -> int:  # fmt: skip
    headers: _Bodies = _headers(data, address, position, length, header_versions)
    with cython.nogil:
        read = headers.read_requests(
            chosen, start, end, is_whole, largest, first, keys, versions, lengths, bodies, is_cut,
            is_known,
        )  # fmt: skip
    return read


def read_response_headers(
    data: Bytes, address: Ints, position: Ints, length: Ints, header_versions: Versions,
    chosen: Ints, start: Ints, end: Ints, sizes: Ints, keys: Ints, first: Int, versions: IntsOut,
    bodies: IntsOut,
) -> int:  # fmt: skip
    headers: _Bodies = _headers(data, address, position, length, header_versions)
    with cython.nogil:
        read = headers.read_responses(chosen, start, end, sizes, keys, first, versions, bodies)
    return read


def walk_bodies(
    data: Bytes, address: Ints, position: Ints, length: Ints, nodes: Ints32, columns: Int,
    is_flexible: cython.bint, limit: Int, part: Int, start: Ints, end: Ints, cut: Bytes,
    least: Int, most: Int, element_bytes: Int, first: Int, base: Ints, surplus: IntsOut,
    room: IntsOut, count: IntsOut,
) -> int:  # fmt: skip
    bodies: _Bodies = _bodies(data, address, position, length, nodes)
    levels: Int = base.shape[0]
    if columns < 0 or part < 1 or element_bytes < 1 or count.shape[0] != columns + levels:
        raise ValueError("a program of other columns")
    bodies.is_flexible, bodies.columns, bodies.count, bodies.base = (
        is_flexible,
        columns,
        count,
        base,
    )
    bodies.room, bodies.each = room, room.shape[0] // max(3 * columns + 2 * levels, 1)
    bodies.marks = memoryview(bytearray(8 * len(count))).cast("q")
    with cython.nogil:
        bodies.check()
        walked = bodies.walk(
            start, end, cut, least, most, element_bytes, limit, part, first, surplus
        )
    return walked


def find_body_end(
    data: Bytes, nodes: Ints32, is_flexible: cython.bint, start: Int, size: Int, most: Int
) -> int:
    single = memoryview(bytearray(24)).cast("q")
    single[2] = len(data)
    bodies: _Bodies = _bodies(data, single[0:1], single[1:2], single[2:3], nodes)
    bodies.is_flexible, bodies.stops_at_loss, bodies.elements = is_flexible, True, most
    bodies.room = bodies.count = bodies.base = memoryview(bytearray()).cast("q")
    bodies.columns = bodies.each = 0
    if not 0 <= start <= size:
        raise ValueError("a body outside of its message")
    with cython.nogil:
        bodies.check()
        at = bodies.walk_struct(0, 0, start, size)
    return size if bodies.is_lost or bodies.elements < 0 else at
