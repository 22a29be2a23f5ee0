# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=False, infer_types=True
"""Codes of words and of pairs of endpoints, in order of appearance.

They are found again by SipHash-1-3 (Aumasson, Bernstein: SipHash, a fast short-input PRF): without
the key, nobody can choose words that have the same hash.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from dissector._native import uncompiled as cython
if cython.compiled:
    from cython.cimports.dissector._native.memory import *
else:
    from dissector._native.uncompiled import touch

ALL = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
"""Mask of a word: numbers of C wrap, those of Python do not."""
START_0 = cython.declare(cython.ulonglong, 0x736F6D6570736575)
START_1 = cython.declare(cython.ulonglong, 0x646F72616E646F6D)
START_2 = cython.declare(cython.ulonglong, 0x6C7967656E657261)
START_3 = cython.declare(cython.ulonglong, 0x7465646279746573)
PAIR_BYTES = cython.declare(cython.ulonglong, 36)
PAIR_WORDS = cython.declare(cython.longlong, 5)
RECENT = cython.declare(cython.ulonglong, 0xFFF)
"""Last entry of the table of recent pairs, and of that of recent words."""
SPREAD = cython.declare(cython.ulonglong, 0x9E37_79B9_7F4A_7C15)
"""A product with it has all bits of the other factor in its highest 12 bits (Knuth)."""


def _zeros(count: int) -> memoryview:
    """The bytes of `count` numbers of 8 bytes."""
    return memoryview(bytearray(8 * count))


@cython.cclass
class _Table:
    """A hash table that numbers items, and the hash of the words in `scratch`."""

    key: Words
    scratch: WordsOut
    table: IntsOut
    """1 + code of an item; 0 where a slot is free."""
    first: IntsOut
    """Index of the first item of each code."""
    count: Int

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(0x7FFF_FFFF_FFFF_FF00)
    def hash(self, words: Int) -> Word:
        """The hash of so many words; the highest byte of the last one is the length in bytes."""
        v0: Word = self.key[0] ^ START_0
        v1: Word = self.key[1] ^ START_1
        v2: Word = self.key[0] ^ START_2
        v3: Word = self.key[1] ^ START_3
        for index in range(words + 3):
            word = 0
            if index < words:
                word = self.scratch[index]
            elif index == words:
                v2 ^= 0xFF
            v3 ^= word
            v0 = (v0 + v1) & ALL
            v2 = (v2 + v3) & ALL
            v1 = ((v1 << 13 | v1 >> 51) & ALL) ^ v0
            v3 = ((v3 << 16 | v3 >> 48) & ALL) ^ v2
            v0 = (v0 << 32 | v0 >> 32) & ALL
            v2 = (v2 + v1) & ALL
            v0 = (v0 + v3) & ALL
            v1 = ((v1 << 17 | v1 >> 47) & ALL) ^ v2
            v3 = ((v3 << 21 | v3 >> 43) & ALL) ^ v0
            v2 = (v2 << 32 | v2 >> 32) & ALL
            v0 ^= word
        return v0 ^ v1 ^ v2 ^ v3

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def add(self, slot: Word, item: Int) -> Int:
        """Give an item the next code, in a free slot."""
        self.first[self.count] = item
        self.count += 1
        self.table[slot] = self.count
        return self.count - 1


@cython.final
@cython.cclass
class _Ranges(_Table):
    """Ranges of bytes."""

    data: Bytes
    at: Ints
    length: Ints
    recent: IntsOut
    """Code of the latest word by its length and last bytes; -1 if there is none. Anyone can choose
    words that share an entry, so the hash table finds those that are not in theirs."""

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(0x7FFF_FFFF_FFFF_FF00)
    @cython.boundscheck(False)
    def word(self, at: Int) -> Word:
        """The little-endian number in 8 bytes; one check of bounds serves all of them."""
        low: Word
        high: Word
        if at < 0 or at > self.data.shape[0] - 8:
            raise IndexError
        low, high = self.data[at + 3], self.data[at + 7]
        # A C compiler makes one load of each of these expressions.
        low = low << 24 | self.data[at + 2] << 16 | self.data[at + 1] << 8 | self.data[at]
        high = high << 24 | self.data[at + 6] << 16 | self.data[at + 5] << 8 | self.data[at + 4]
        return high << 32 | low

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(0x7FFF_FFFF_FFFF_FF00)
    def hash_range(self, at: Int, length: Int) -> Word:
        """The hash of a range of bytes."""
        word: Word = 0
        byte: Word
        last: Word = length & 0xFF
        whole: Int = length >> 3
        for index in range(whole):
            self.scratch[index] = self.word(at + 8 * index)
        for index in range(8 * whole, length):
            byte = self.data[at + index]
            word |= byte << 8 * (index & 7)
        self.scratch[whole] = word | last << 56
        return self.hash(whole + 1)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def is_word(self, code: Int, right: Int, length: Int) -> cython.int:
        """Whether a range has the bytes of a code."""
        left: Int = self.at[self.first[code]]
        whole: Int = length >> 3
        if self.length[self.first[code]] != length:
            return 0
        for index in range(whole):
            if self.word(left + 8 * index) != self.word(right + 8 * index):
                return 0
        for index in range(8 * whole, length):
            if self.data[left + index] != self.data[right + index]:
                return 0
        return 1


def _ranges(data: Bytes, at: Ints, length: Ints, key: Words) -> _Ranges:
    """Ranges inside of the data; ValueError for others."""
    ranges: _Ranges = _Ranges()
    longest: Int = 0
    with cython.nogil:
        for index in range(at.shape[0]):
            if not 0 <= at[index] <= data.shape[0] or not (
                0 <= length[index] <= data.shape[0] - at[index]
            ):
                raise ValueError("a word outside of the data")
            longest = max(longest, length[index])
    ranges.data, ranges.at, ranges.length, ranges.key = data, at, length, key
    ranges.scratch = _zeros(longest // 8 + 1).cast("Q")
    return ranges


def _table(count: int) -> memoryview:
    """A free table of which `count` entries take at most half."""
    slots = 64
    while slots < 2 * count:
        slots *= 2
    return _zeros(slots).cast("q")


def number_words(
    data: Bytes, at: Ints, length: Ints, key: Words, code: Ints32Out, first: IntsOut
) -> int:
    ranges: _Ranges = _ranges(data, at, length, key)
    ranges.table, ranges.first, ranges.count = _table(len(at)), first, 0
    ranges.recent = memoryview(bytearray(b"\xff" * 8 * (RECENT + 1))).cast("q")
    mask: Word = ranges.table.shape[0] - 1
    with cython.nogil:
        for index in range(at.shape[0]):
            if index + 24 < at.shape[0]:
                touch(data, at[index + 24])
            begin, size = at[index], length[index]
            place = size
            if size >= 8:
                place += ranges.word(begin + size - 8) * SPREAD & ALL
            place = place >> 52
            code[index] = ranges.recent[place]
            if code[index] >= 0 and ranges.is_word(code[index], begin, size):
                continue
            slot = ranges.hash_range(begin, size) & mask
            while True:
                if ranges.table[slot] == 0:
                    code[index] = ranges.add(slot, index)
                    break
                code[index] = ranges.table[slot] - 1
                if ranges.is_word(code[index], begin, size):
                    break
                slot = (slot + 1) & mask
            ranges.recent[place] = code[index]
    return ranges.count


def hash_words(data: Bytes, at: Ints, length: Ints, key: Words, hashes: WordsOut) -> None:
    ranges: _Ranges = _ranges(data, at, length, key)
    with cython.nogil:
        for index in range(at.shape[0]):
            hashes[index] = ranges.hash_range(at[index], length[index])


@cython.final
@cython.cclass
class _Pairs(_Table):
    """The endpoints of packets."""

    src_high: Words
    src_low: Words
    src_port: Ports
    dst_high: Words
    dst_low: Words
    dst_port: Ports
    pairs: WordsOut
    """The words of each code, which `read` returns in `scratch`."""
    recent: IntsOut
    """1 + code of the latest two pairs, by a hash of few bits; else 0."""

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def read(self, packet: Int) -> cython.int:
        """Set the words in `scratch` to both endpoints of a packet, the smaller one first: both
        directions have the same words. Returns whether the source is the larger one.

        Without branches: nobody can predict the direction of a packet.
        """
        high: Word = self.src_high[packet]
        low: Word = self.src_low[packet]
        port: Word = self.src_port[packet]
        other_high: Word = self.dst_high[packet]
        other_low: Word = self.dst_low[packet]
        other_port: Word = self.dst_port[packet]
        larger: cython.int = (high > other_high) | (
            (high == other_high) & ((low > other_low) | ((low == other_low) & (port > other_port)))
        )
        swapped: Word = -larger & ALL
        difference: Word = (high ^ other_high) & swapped
        self.scratch[0], self.scratch[2] = high ^ difference, other_high ^ difference
        difference = (low ^ other_low) & swapped
        self.scratch[1], self.scratch[3] = low ^ difference, other_low ^ difference
        difference = (port ^ other_port) & swapped
        self.scratch[4] = (port ^ difference) << 16 | (other_port ^ difference) | PAIR_BYTES << 56
        return larger

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def is_pair(self, code: Int) -> cython.int:
        """Whether the words in `scratch` are those of a code."""
        at: Int = PAIR_WORDS * code
        return (
            (self.scratch[0] ^ self.pairs[at])
            | (self.scratch[1] ^ self.pairs[at + 1])
            | (self.scratch[2] ^ self.pairs[at + 2])
            | (self.scratch[3] ^ self.pairs[at + 3])
            | (self.scratch[4] ^ self.pairs[at + 4])
        ) == 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def find(self, packet: Int, hashes: WordsOut) -> Int:
        """The code of the words in `scratch`, which may be new."""
        mask: Word = self.table.shape[0] - 1
        value: Word = self.hash(PAIR_WORDS)
        slot: Word = value & mask
        while True:
            if self.table[slot] == 0:
                hashes[self.count] = value
                for word in range(PAIR_WORDS):
                    self.pairs[PAIR_WORDS * self.count + word] = self.scratch[word]
                return self.add(slot, packet)
            if self.is_pair(self.table[slot] - 1):
                return self.table[slot] - 1
            slot = (slot + 1) & mask

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def number(self, begin: Int, sender: IntsOut, hashes: WordsOut) -> Int:
        """`number_pairs`, from a packet on. Returns the packet at which the table is full."""
        larger: Int
        for packet in range(begin, self.src_high.shape[0]):
            if 2 * self.count >= self.table.shape[0]:
                return packet
            larger = self.read(packet)
            # Not an XOR of all words: ports and addresses may be numbered in the same way.
            place = self.scratch[4] * SPREAD & ALL
            place = ((place ^ place >> 32) + (self.scratch[1] ^ self.scratch[3])) & ALL
            place = (place * SPREAD & ALL) >> 52
            number = self.recent[place] - 1
            if number < 0 or not self.is_pair(number):
                number = self.recent[place ^ 1] - 1
                if number < 0 or not self.is_pair(number):
                    number = self.find(packet, hashes)
                self.recent[place ^ 1] = self.recent[place]
                self.recent[place] = number + 1
            sender[packet] = 2 * number + larger
        return self.src_high.shape[0]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def fill(self, hashes: WordsOut) -> cython.int:
        """Add all codes to a free table."""
        mask: Word = self.table.shape[0] - 1
        for code in range(self.count):
            slot = hashes[code] & mask
            while self.table[slot] != 0:
                slot = (slot + 1) & mask
            self.table[slot] = code + 1
        return 0


def number_pairs(
    src_high: Words, src_low: Words, src_port: Ports, dst_high: Words, dst_low: Words,
    dst_port: Ports, key: Words, sender: IntsOut, first: IntsOut, hashes: WordsOut,
    words: WordsOut,
) -> int:  # fmt: skip
    packet: Int = 0
    pairs: _Pairs = _Pairs()
    pairs.src_high, pairs.src_low, pairs.src_port = src_high, src_low, src_port
    pairs.dst_high, pairs.dst_low, pairs.dst_port = dst_high, dst_low, dst_port
    pairs.key, pairs.scratch = key, _zeros(PAIR_WORDS).cast("Q")
    pairs.first, pairs.pairs, pairs.count = first, words, 0
    pairs.recent = _zeros(RECENT + 1).cast("q")
    while packet < src_high.shape[0]:
        # A block has fewer pairs than packets: a small table stays in the cache.
        pairs.table = _table(max(1024, 4 * pairs.count))
        with cython.nogil:
            pairs.fill(hashes)
            packet = pairs.number(packet, sender, hashes)
    return pairs.count
