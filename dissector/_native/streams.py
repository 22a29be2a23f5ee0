# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The chain of frames in the pieces of streams: see `streams.frame_chain`."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from dissector._native import uncompiled as cython
if cython.compiled:
    from cython.cimports.dissector._native.memory import prefetch

Int = cython.typedef(cython.longlong)
Bytes = cython.typedef(cython.const[cython.uchar][::1])
Ints = cython.typedef(cython.const[cython.longlong][::1])
IntsOut = cython.typedef(cython.longlong[::1])

# Where the walk of a stream ended: the numbers of `frame_chain`.
WHOLE = cython.declare(cython.longlong, 0)
CUT = cython.declare(cython.longlong, 1)
LOST = cython.declare(cython.longlong, 2)
BAD = cython.declare(cython.longlong, 3)
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

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def touch(self, position: Int) -> cython.int:
        """Ask for the memory of a byte that is read later."""
        if cython.compiled and 0 <= position < self.data.shape[0]:
            prefetch(cython.address(self.data[position]))
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def read_size(self, piece: Int, at: Int, end: Int) -> Int:
        """Read the size at an address, which `piece` has or comes before. Returns how the walk
        continues."""
        raw: Int = 0
        inside: Int
        place: Int
        for place in range(at, min(at + 4, end)):
            while piece + 1 < self.address.shape[0] and self.address[piece + 1] <= place:
                piece += 1
            inside = place - self.address[piece]
            if not 0 <= inside < self.length[piece]:
                return LOST
            raw = raw << 8 | self.data[self.position[piece] + inside]
        if at + 4 > end:
            return CUT
        self.size = raw
        if raw > self.limit:  # the highest bit is that of a negative number
            return BAD
        return CUT if at + 4 + raw > end else WHOLE

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def walk(
        self, first: Ints, end: Ints, begin: Int, at: IntsOut, ended: IntsOut, behind: IntsOut,
        frames: IntsOut, total: IntsOut,
    ) -> Int:  # fmt: skip
        """`walk_frames`."""
        room: Int = frames.shape[0] // 3
        count: Int = 0
        pieces: Int = self.address.shape[0]
        stream: Int
        piece: Int
        place: Int
        how: Int
        for stream in range(begin, at.shape[0]):
            piece, place = first[stream], at[stream]
            how = LOST if place < self.address[piece] else WHOLE
            behind[stream] = -1
            while how == WHOLE and place < min(end[stream], MAX_ADDRESS):
                while piece + 1 < pieces and self.address[piece + 1] <= place:
                    piece += 1
                    if piece + 16 < pieces:
                        self.touch(self.position[piece + 16])
                if count == room:
                    at[stream], total[0] = place, count
                    return stream
                how = self.read_size(piece, place, end[stream])
                if how == WHOLE:
                    frames[count] = place
                    frames[room + count] = self.size
                    frames[2 * room + count] = piece
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
    chain.data, chain.address, chain.position, chain.length = data, address, position, length
    chain.limit = limit
    with cython.nogil:
        stream = chain.walk(first, end, stream, at, ended, behind, frames, total)
    return stream
