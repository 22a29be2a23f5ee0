# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The chain of frames in the pieces of streams: see `streams.frame_chain`, `streams.frames`."""

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
Bytes = cython.typedef(cython.const[cython.uchar][::1])
Ints = cython.typedef(cython.const[cython.longlong][::1])
IntsOut = cython.typedef(cython.longlong[::1])

# Where the walk of a stream ended: the numbers of `frame_chain`.
WHOLE = cython.declare(cython.longlong, 0)
CUT = cython.declare(cython.longlong, 1)
LOST = cython.declare(cython.longlong, 2)
BAD = cython.declare(cython.longlong, 3)
SIGN_16 = cython.declare(cython.longlong, 1 << 15)
SIGN_32 = cython.declare(cython.longlong, 1 << 31)
AHEAD = cython.declare(cython.longlong, 16)
"""Pieces whose memory is asked for before it is read."""
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
        place: Int
        begin: Int
        if inside + width <= self.length[piece]:
            begin = self.position[piece] + inside
            if inside < 0 or begin < 0 or begin > self.data.shape[0] - width:
                raise IndexError
            for place in range(begin, begin + width):
                number = number << 8 | self.data[place]
            return number
        return self.scattered(piece, at, width)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def scattered(self, piece: Int, at: Int, width: Int) -> Int:
        """`number`, of bytes in several pieces."""
        number: Int = 0
        inside: Int
        place: Int
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
        frames[3 * room + row] = (self.number(piece, place + 4, 4) ^ SIGN_32) - SIGN_32
        frames[4 * room + row] = (self.number(piece, place + 8, 4) ^ SIGN_32) - SIGN_32
        frames[5 * room + row] = (self.number(piece, place + 12, 2) ^ SIGN_16) - SIGN_16
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def walk(
        self, first: Ints, end: Ints, begin: Int, at: IntsOut, ended: IntsOut, behind: IntsOut,
        frames: IntsOut, total: IntsOut,
    ) -> Int:  # fmt: skip
        """`walk_frames`."""
        room: Int = frames.shape[0] // 6
        count: Int = 0
        pieces: Int = self.address.shape[0]
        stream: Int
        piece: Int
        place: Int
        row: Int
        how: Int
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
                    at[stream], total[0] = place, count
                    return stream
                how = self.read_size(piece, place, end[stream])
                if how == WHOLE:
                    self.add(frames, count, piece, place)
                    count += 1
                    place += 4 + self.size
                elif how == CUT and place + 4 <= end[stream]:
                    behind[stream] = place + 4 + self.size
            ended[stream], at[stream] = how, place
        total[0] = count
        return at.shape[0]


def walk_frames(
    data: Bytes, address: Ints, position: Ints, length: Ints, first: Ints, end: Ints, limit: int,
    begin: int, at: IntsOut, ended: IntsOut, behind: IntsOut, frames: IntsOut, total: IntsOut,
) -> int:  # fmt: skip
    chain: _Chain = _Chain()
    stream: Int = begin
    if address.shape[0] != position.shape[0] or address.shape[0] != length.shape[0]:
        raise IndexError("columns of pieces have different lengths")
    chain.data, chain.address, chain.position, chain.length = data, address, position, length
    chain.limit = limit
    with cython.nogil:
        stream = chain.walk(first, end, stream, at, ended, behind, frames, total)
    return stream


@cython.final
@cython.cclass
class _Layout:
    """Addresses of the pieces of streams."""

    stream: Ints
    at: Ints
    length: Ints
    span: Ints
    gaps: IntsOut
    missing: Int
    """Number of gaps."""

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def add_gap(self, begin: Int, end: Int) -> cython.int:
        """Add the bytes between two addresses, if there are any."""
        if end > begin:
            self.gaps[2 * self.missing], self.gaps[2 * self.missing + 1] = begin, end
            self.missing += 1
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def run(self, address: IntsOut, streams: IntsOut) -> Int:
        """`lay_out`."""
        room: Int = streams.shape[0] // 3
        count: Int = 0
        behind: Int = 0
        captured: Int = 0
        piece: Int
        for piece in range(self.stream.shape[0]):
            if piece == 0 or self.stream[piece] != self.stream[piece - 1]:
                streams[count] = self.stream[piece]
                streams[room + count] = piece
                count += 1
            else:
                behind += self.at[piece] - self.at[piece - 1] - self.span[piece - 1]
            address[piece] = behind
            self.add_gap(captured, behind)
            captured = behind + self.length[piece]
            behind += self.span[piece]
            streams[2 * room + count - 1] = behind
        self.add_gap(captured, behind)
        return count


def lay_out(
    stream: Ints, at: Ints, length: Ints, span: Ints, address: IntsOut, streams: IntsOut,
    gaps: IntsOut,
) -> tuple[int, int]:  # fmt: skip
    layout: _Layout = _Layout()
    count: Int
    layout.stream, layout.at, layout.length, layout.span = stream, at, length, span
    layout.gaps, layout.missing = gaps, 0
    with cython.nogil:
        count = layout.run(address, streams)
    return count, layout.missing


@cython.final
@cython.cclass
class _Frames:
    """Frames, and the pieces that they are in."""

    address: Ints
    position: Ints
    length: Ints
    stream: Ints
    at: Ints
    time: Ints
    end: Ints
    """Address behind the last byte of each slot."""
    until: IntsOut
    count: IntsOut
    gaps: IntsOut
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
        reach: Int
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

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def run(self, start: Ints, size: Ints, first: Ints, frames: IntsOut) -> cython.int:
        """`describe_frames`."""
        rows: Int = start.shape[0]
        row: Int
        piece: Int
        slot: Int
        body: Int
        readable: Int
        inside: Int
        position: Int
        for row in range(rows):
            piece = self.holder = self.last = first[row]
            slot = self.stream[piece]
            body = start[row] + 4
            readable = body + size[row]
            if readable > self.address[piece] + self.length[piece]:
                readable = self.span(body, min(readable, self.end[slot]))
            inside = body - self.address[self.holder]
            frames[row] = -1
            if inside + size[row] <= self.length[self.holder]:
                frames[row] = self.position[self.holder] + inside
            position = self.at[piece] + start[row] - self.address[piece]
            self.count[slot] += 1
            self.gaps[slot] += position != self.until[slot]
            self.until[slot] = position + 4 + size[row]
            frames[rows + row] = min(max(readable - body, 0), size[row])
            frames[2 * rows + row] = self.time[self.last]
            frames[3 * rows + row] = position
            frames[4 * rows + row] = self.count[slot]
            frames[5 * rows + row] = self.gaps[slot]
        return 0


def describe_frames(
    address: Ints, position: Ints, length: Ints, stream: Ints, at: Ints, time: Ints, end: Ints,
    start: Ints, size: Ints, first: Ints, until: IntsOut, count: IntsOut, gaps: IntsOut,
    frames: IntsOut,
) -> None:  # fmt: skip
    described: _Frames = _Frames()
    described.address, described.position, described.length = address, position, length
    described.stream, described.at, described.time, described.end = stream, at, time, end
    described.until, described.count, described.gaps = until, count, gaps
    with cython.nogil:
        described.run(start, size, first, frames)
