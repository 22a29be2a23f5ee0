# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=False, infer_types=True
"""The chain of frames in the pieces of streams: see `streams.frame_chain`, `streams.frames`."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from dissector._native import uncompiled as cython
if cython.compiled:
    from cython.cimports.dissector._native.memory import *
else:
    from dissector._native.uncompiled import touch

# Where the walk of a stream ended: the numbers of `frame_chain`.
WHOLE = cython.declare(cython.longlong, 0)
CUT = cython.declare(cython.longlong, 1)
LOST = cython.declare(cython.longlong, 2)
BAD = cython.declare(cython.longlong, 3)
SIGN_16 = cython.declare(cython.longlong, 1 << 15)
SIGN_32 = cython.declare(cython.longlong, 1 << 31)
HEAD = cython.declare(cython.longlong, 16)
"""Bytes of a frame with its size and the numbers that are read of it."""
AHEAD = cython.declare(cython.longlong, 16)
"""Pieces whose memory is asked for before it is read."""
MIN = cython.declare(cython.longlong, -(1 << 63))
ALL_32 = cython.declare(cython.longlong, 0xFFFF_FFFF)
LEAST_REQUEST = cython.declare(cython.longlong, 10)
"""Bytes of a request without its client id."""
LEAST_RESPONSE = cython.declare(cython.longlong, 4)
REQUEST_HEAD = cython.declare(cython.longlong, 8)
RESPONSE_HEAD = cython.declare(cython.longlong, 4)
"""Bytes up to the end of the correlation id."""
MAX_ADDRESS = cython.declare(cython.longlong, 1 << 62)
"""So that the sum of an address and the size of a frame does not overflow."""


@cython.final
@cython.cclass
class _Chain:
    """Walks from frame to frame."""

    data: Bytes
    address: Ints
    position: Ints
    length: Ints
    limit: Int
    """The largest size of a frame."""
    size: Int
    """The size that was read last."""
    is_lost: cython.bint
    """A byte of a number is lost."""

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def read_size(self, piece: Int, at: Int, end: Int) -> Int:
        """Read the size at an address, which `piece` has or comes before. Returns how the walk
        continues."""
        width: Int = min(4, end - at)
        self.is_lost = False
        self.size = self.number(piece, at, width)
        if self.is_lost:
            return LOST
        if width == 4 and self.size > self.limit:  # the highest bit is that of a negative number
            return BAD
        return CUT if at + 4 > end or at + 4 + self.size > end else WHOLE

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    @cython.boundscheck(False)
    def number(self, piece: Int, at: Int, width: Int) -> Int:
        """The big-endian number at an address, which `piece` has or comes before. Lost bytes are
        0, and set `is_lost`. `walk` has checked that there is such a piece."""
        number: Int = 0
        inside: Int = at - self.address[piece]
        if inside + width <= self.length[piece]:
            begin = self.position[piece] + inside
            if width == 4 and inside >= 0:
                return self.word(begin)
            if inside < 0 or begin < 0 or begin > self.data.shape[0] - width:
                raise IndexError
            for place in range(begin, begin + width):
                number = number << 8 | self.data[place]
            return number
        return self.scattered(piece, at, width)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    @cython.boundscheck(False)
    def word(self, at: Int) -> Int:
        """The big-endian number of 4 bytes at a position in the data."""
        word: cython.uint
        if at < 0 or at > self.data.shape[0] - 4:
            raise IndexError
        word = self.data[at]  # a C compiler makes one load of these expressions
        word = word << 24 | self.data[at + 1] << 16 | self.data[at + 2] << 8 | self.data[at + 3]
        return word

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def scattered(self, piece: Int, at: Int, width: Int) -> Int:
        """`number`, of bytes in several pieces."""
        number: Int = 0
        for place in range(at, at + width):
            while piece + 1 < self.address.shape[0] and self.address[piece + 1] <= place:
                piece += 1
            inside = place - self.address[piece]
            number <<= 8
            if 0 <= inside < self.length[piece]:
                number |= self.data[self.position[piece] + inside]
            else:
                self.is_lost = True
        return number

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def add(self, frames: IntsOut, row: Int, piece: Int, place: Int) -> cython.int:
        """Add the frame at an address."""
        room: Int = frames.shape[0] // 6
        frames[row] = place
        frames[room + row] = self.size
        frames[2 * room + row] = piece
        begin: Int = self.position[piece] + place - self.address[piece]
        if place + HEAD <= self.address[piece] + self.length[piece]:
            frames[3 * room + row] = (self.word(begin + 4) ^ SIGN_32) - SIGN_32
            frames[4 * room + row] = (self.word(begin + 8) ^ SIGN_32) - SIGN_32
            frames[5 * room + row] = (self.word(begin + 12) >> 16 ^ SIGN_16) - SIGN_16
            return 0
        frames[3 * room + row] = (self.number(piece, place + 4, 4) ^ SIGN_32) - SIGN_32
        frames[4 * room + row] = (self.number(piece, place + 8, 4) ^ SIGN_32) - SIGN_32
        frames[5 * room + row] = (self.number(piece, place + 12, 2) ^ SIGN_16) - SIGN_16
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def walk(
        self, first: Ints, end: Ints, begin: Int, at: IntsOut, ended: IntsOut, behind: IntsOut,
        until: IntsOut, frames: IntsOut, count: Int,
    ) -> Int:  # fmt: skip
        """`walk_frames`."""
        room: Int = frames.shape[0] // 6
        pieces: Int = self.address.shape[0]
        for stream in range(begin, at.shape[0]):
            piece, place = first[stream], at[stream]
            for row in range(piece, min(piece + AHEAD, pieces)):
                touch(self.data, self.position[row])
            how = LOST if place < self.address[piece] else WHOLE
            behind[stream] = -1
            while how == WHOLE and place < min(end[stream], MAX_ADDRESS):
                while piece + 1 < pieces and self.address[piece + 1] <= place:
                    piece += 1
                    if piece + AHEAD < pieces:
                        touch(self.data, self.position[piece + AHEAD])
                if count == room:
                    at[stream], until[stream] = place, count
                    return stream
                how = self.read_size(piece, place, end[stream])
                if how == WHOLE:
                    self.add(frames, count, piece, place)
                    count += 1
                    place += 4 + self.size
                elif how == CUT and place + 4 <= end[stream]:
                    behind[stream] = place + 4 + self.size
            ended[stream], at[stream], until[stream] = how, place, count
        return at.shape[0]


def walk_frames(
    data: Bytes, address: Ints, position: Ints, length: Ints, first: Ints, end: Ints, limit: Int,
    begin: Int, at: IntsOut, ended: IntsOut, behind: IntsOut, until: IntsOut, frames: IntsOut,
    count: Int,
) -> int:  # fmt: skip
    chain: _Chain = _Chain()
    if address.shape[0] != position.shape[0] or address.shape[0] != length.shape[0]:
        raise IndexError("columns of pieces have different lengths")
    chain.data, chain.address, chain.position, chain.length = data, address, position, length
    chain.limit = limit
    with cython.nogil:
        stream = chain.walk(first, end, begin, at, ended, behind, until, frames, count)
    return stream


def find_unusual(
    until: Ints, is_client: Bytes, newest: Ints, lowest: Ints, highest: Ints, size: Ints,
    first: Ints, third: Ints, rows: IntsOut,
) -> int:  # fmt: skip
    count: Int = 0
    row: Int = 0
    usual: cython.bint
    with cython.nogil:
        for stream in range(until.shape[0]):
            before = MIN
            while row < until[stream]:
                number = first[row]
                if is_client[stream]:
                    api = number >> 16
                    usual = number != 0 and 0 <= api < newest.shape[0]
                    usual = usual and number & 0xFFFF <= newest[api]
                    usual = usual and -1 <= third[row] <= size[row] - LEAST_REQUEST
                else:
                    usual = lowest[stream] <= number <= highest[stream] and number > before
                    usual = usual and size[row] >= LEAST_RESPONSE
                    before = number
                if not usual:
                    rows[count] = row
                    count += 1
                row += 1
    return count


def read_request_ids(
    piece: Ints, first: Ints, second: Ints, slot: Ints, client: Ints, limit: Int, least: IntsOut,
    most: IntsOut, fall: IntsOut, earliest: IntsOut, key: IntsOut, kind: Ints32Out,
) -> int:  # fmt: skip
    count: Int = 0
    with cython.nogil:
        for row in range(piece.shape[0]):
            each = slot[piece[row]]
            if client[each] < 0:
                continue
            number = second[row]
            key[count] = client[each] << 32 | (number & ALL_32)
            kind[count] = first[row]
            count += 1
            if number >= limit:
                continue
            if earliest[each] < 0:
                earliest[each] = row
                least[each] = most[each] = number
            else:
                fall[each] = max(fall[each], most[each] + 1 - number)
                least[each], most[each] = min(least[each], number), max(most[each], number)
    return count


def read_response_ids(
    piece: Ints, first: Ints, slot: Ints, lowest: Ints, highest: Ints, latest: IntsOut
) -> None:
    with cython.nogil:
        for row in range(piece.shape[0]):
            each = slot[piece[row]]
            if lowest[each] <= first[row] <= highest[each]:
                latest[each] = first[row]


def lay_out(
    stream: Ints, at: Ints, length: Ints, span: Ints, address: IntsOut, streams: IntsOut,
    gaps: IntsOut,
) -> tuple[int, int]:  # fmt: skip
    room: Int = streams.shape[0] // 3
    count: Int = 0
    missing: Int = 0
    behind: Int = 0
    captured: Int = 0
    with cython.nogil:
        for piece in range(stream.shape[0]):
            if piece == 0 or stream[piece] != stream[piece - 1]:
                streams[count] = stream[piece]
                streams[room + count] = piece
                count += 1
            else:
                behind += at[piece] - at[piece - 1] - span[piece - 1]
            address[piece] = behind
            if behind > captured:
                gaps[2 * missing], gaps[2 * missing + 1] = captured, behind
                missing += 1
            captured = behind + length[piece]
            behind += span[piece]
            streams[2 * room + count - 1] = behind
        if behind > captured:
            gaps[2 * missing], gaps[2 * missing + 1] = captured, behind
            missing += 1
    return count, missing


@cython.final
@cython.cclass
class _Pieces:
    """The pieces that frames are in."""

    address: Ints
    length: Ints
    holder: Int
    """The pieces with the first byte of the body of a frame, and with its last byte."""
    last: Int

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def span(self, body: Int, behind: Int) -> Int:
        """Find the pieces of a frame that begins in `last`. Returns the address of its first
        missing byte, or its end."""
        pieces: Int = self.address.shape[0]
        piece: Int = self.last
        while piece + 1 < pieces and self.address[piece + 1] <= body:
            piece += 1
        self.holder = piece
        while self.last + 1 < pieces and self.address[self.last + 1] < behind:
            self.last += 1
        while True:
            reach = self.address[piece] + self.length[piece]
            if reach >= behind:
                return behind
            piece += 1
            if piece == pieces or self.address[piece] != reach:
                return max(reach, body)


def describe_frames(
    address: Ints, slot: Ints, at: Ints, length: Ints, position: Ints, time: Ints, capture: Ints,
    number: Ints, acknowledged: Ints, end: Ints, origin: Ints, client: Ints, order: Ints,
    start: Ints, size: Ints, holder: Ints, first: Ints, second: Ints, until: IntsOut,
    count: IntsOut, gaps: IntsOut, connections: IntsOut, captures: IntsOut, bodies: IntsOut,
    positions: IntsOut, sizes: IntsOut, readables: IntsOut, ids: IntsOut, packets: IntsOut,
    times: IntsOut, end_times: IntsOut, sequences: IntsOut, acknowledgements: IntsOut,
    ranks: IntsOut, runs: IntsOut,
) -> int:  # fmt: skip
    pieces: _Pieces = _Pieces()
    requests: Int = 0
    request: Int = 0
    pieces.address, pieces.length = address, length
    with cython.nogil:
        for frame in range(holder.shape[0]):
            requests += client[slot[holder[frame]]] >= 0
        response = requests
        for index in range(order.shape[0]):
            frame = order[index]
            piece = pieces.holder = pieces.last = holder[frame]
            stream = slot[piece]
            if client[stream] >= 0:
                row = request
                request += 1
            else:
                row = response
                response += 1
            body, body_size = start[frame] + 4, size[frame]
            readable = body + body_size
            if readable > address[piece] + length[piece]:
                readable = pieces.span(body, min(readable, end[stream]))
            inside = body - address[pieces.holder]
            place = at[piece] + start[frame] - address[piece]
            count[stream] += 1
            gaps[stream] += place != until[stream]
            until[stream] = place + 4 + body_size
            connections[row] = max(client[stream], -1 - client[stream])
            captures[row] = capture[piece]
            bodies[row] = body
            positions[row] = -1
            if inside + body_size <= length[pieces.holder]:
                positions[row] = position[pieces.holder] + inside
            sizes[row] = body_size
            readables[row] = min(max(readable - body, 0), body_size)
            ids[row] = 0
            if client[stream] < 0 and readables[row] >= RESPONSE_HEAD:
                ids[row] = first[frame]
            elif client[stream] >= 0 and readables[row] >= REQUEST_HEAD:
                ids[row] = second[frame]
            packets[row] = number[piece]
            times[row] = time[piece]
            end_times[row] = time[pieces.last]
            sequences[row] = (origin[stream] + place) & ALL_32
            acknowledgements[row] = acknowledged[piece]
            ranks[row] = count[stream]
            runs[row] = gaps[stream]
    return requests
