"""Resync: the search for messages where the chain of sizes of a stream cannot be trusted.

One stream at a time. A place where a message may begin is a node; its weight is the evidence for
its header (see `judging`), for the beginning of a segment, and for its body, in bits. A path leads
from a message to what follows it. It may skip bytes; then the next message has to pay `ENTRY` bits,
as any place among random bytes does. The path of most evidence wins.

Places are the beginnings of segments, what the sizes of other places lead to, and every byte where
the header of a message may stand.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int64
from dissector.streams.bodies import CONSISTENT, SURPLUS, UNKNOWN, BodyCheck
from dissector.streams.byteview import ranges
from dissector.streams.frame_chain import FrameChains
from dissector.streams.header_evidence import (
    BORDER_BITS,
    NO,
    REQUEST_HEAD,
    RESERVED,
    UNCLEAR,
    YES,
    HeaderScorer,
)
from dissector.streams.limits import CERTAINTY, FRAME_LIMIT, SEEK_BYTES
from dissector.streams.table import Bools

ENTRY: Final = CERTAINTY
"""Bits that a message needs which begins where no other one ends."""
CONFIRMED: Final = 2 * ENTRY
"""Bits beyond `ENTRY` of a path that needs no body to confirm it."""
UNALIGNED_RESPONSE: Final = 5
"""More bits for a response that begins no segment: small numbers, which it has, are common."""
BROKEN: Final = 20
"""Bits against a message that ends inside a segment, where no other one begins: either of them is
damaged."""
ODD_HEADER: Final = -24
"""Bits of a message with an impossible header: one that is damaged, or a token of SASL, which has
none."""
COMPLETE_BODY: Final = 16
"""Bits of a message whose body ends where its size says."""
WRONG_BODY: Final = -16
"""Bits of a complete message whose size contradicts its body. What follows may confirm the size:
brokers accept surplus bytes, and definitions may be wrong."""
WRONG_PART: Final = -60
"""The same where the message is incomplete, so that nothing confirms its size."""
SURPLUS_BODY: Final = -12
"""Bits of a response where few bytes follow the body. Requests of some clients have such bytes."""
ACCEPTED: Final = 4
"""Surplus bytes of a response that are no evidence, as in `protocol.surplus`."""
OUT_OF_ORDER: Final = -40
"""Bits of a response that follows the response to a later request."""
UNFINISHED: Final = -30
"""Bits of a message before the end of which its stream ends."""
HOPS: Final = 4
"""Messages that are followed from each place."""
CHECKS: Final = 16
"""Bodies that are read in one search."""
AROUND: Final = 64
"""Places before a message where one may begin that contains it."""
MANY: Final = 32
"""Nodes for which sorting all of them is cheaper than inserting each."""
SEGMENTS_BEHIND: Final = 8
"""Beginnings of segments behind a doubtful place that are weighed with those before it."""


Columns: TypeAlias = NDArray[np.float64]
"""Shape (6, places): the first columns of `Node`. Addresses are below 2^53."""
_AT, _END, _STATE = 0, 1, 3


@dataclass(slots=True)
class Node:
    """A place where a message may begin."""

    at: int
    end: int
    """Address behind the message. -1: the size is impossible or missing."""
    bits: float
    state: int
    """Of the header: NO, UNCLEAR, YES."""
    is_border: bool
    """A segment begins here."""
    correlation: int
    """Of a response."""
    is_checked: bool = False


def weighed(
    chains: FrameChains,
    scorer: HeaderScorer,
    at: Int64,
    index: Int64,
    stream: Int64,
    is_client: Bools,
) -> Columns:
    """What `Node` has of these places, of the chains at `index`."""
    end = chains.end[index]
    size, state, bits = scorer.headers(chains, at, end, stream, is_client)
    border = chains.address[chains.piece_of(at)] == at
    there = np.minimum(chains.gap_after(at), end) - at
    behind = np.where((size < 0) | (size > FRAME_LIMIT) | (there < 4), -1, at + 4 + size)
    bits = np.where(state == NO, ODD_HEADER, bits) + BORDER_BITS * border
    number = chains.space.number(np.minimum(at + 4, chains.space.size), "i4")
    return np.array([at, behind, bits, state, border, number], np.float64)


def weighed_segments(
    chains: FrameChains, scorer: HeaderScorer, index: Int64, stream: Int64, is_client: Bools
) -> Columns:
    """The beginnings of segments of these chains that look like messages, and the places that they
    lead to; by address."""
    count = chains.first[index + 1] - chains.first[index]
    at = chains.address[ranges(chains.first[index], count)[0]]
    owner = np.repeat(np.arange(len(index)), count)
    columns = np.zeros((6, 0))
    for hop in range(HOPS + 1):
        new = weighed(chains, scorer, at, index[owner], stream[owner], is_client[owner])
        columns = np.hstack([columns, new[:, new[_STATE] >= (NO if hop else UNCLEAR)]])
        leads = np.flatnonzero(new[_STATE] == YES)
        at, first = np.unique(new[_END, leads].astype(np.int64), return_index=True)
        owner = owner[leads[first]]
        fresh = (at < chains.end[index[owner]]) & ~np.isin(at, columns[_AT])
        at, owner = at[fresh], owner[fresh]
        if not len(at):
            break
    return columns[:, np.argsort(columns[_AT])]


class Search:
    """The search in one stream of a block. `index`: that of its chain."""

    def __init__(
        self, chains: FrameChains, index: int, stream: int, scorer: HeaderScorer, bodies: BodyCheck,
        segments: Columns, *, is_request: bool,
    ) -> None:  # fmt: skip
        """`segments`: see `weighed_segments`."""
        self._chains = chains
        self._index = index
        self._stream = stream
        self._scorer = scorer
        self._bodies = bodies
        self._is_request = is_request
        self._descent = int(scorer.id_regression(np.array([stream]))[0])
        self._end = int(chains.end[index])
        self._nodes: dict[int, Node] = {}
        self._order: list[int] = []
        """Addresses of the nodes, ascending."""
        self._weighed: set[int] = set()
        """Addresses at which no message can begin, and those of the nodes."""
        self._complete: deque[tuple[int, int]] = deque(maxlen=CHECKS)
        """Messages whose bodies were read to their ends: nothing begins inside them."""
        self._scanned = 0, 0
        """Between these addresses every byte was weighed."""
        begin = chains.address[chains.first[index]]
        low, high = np.searchsorted(segments[_AT], [begin, self._end])
        self._segments = segments[:, low:high]
        """They become nodes where they are needed."""
        self._loaded = np.zeros(self._segments.shape[1], np.bool_)

    def entry(self, begin: int) -> int:
        """Address of the first message behind `begin`, where nothing is known; or -1."""
        first, last = self._pieces(begin)
        width = 1
        while True:
            until = self._address(min(first + width, last))
            path = self._path(begin, until, is_message=False)
            if path and path[0].at == self._address(first):
                return path[0].at
            self._scan(begin, until)
            path = self._path(begin, until, is_message=False)
            if path:
                return path[0].at
            if first + width >= last:
                return -1
            width *= 2

    def path(self, chain: list[int], doubtful: int) -> list[Node]:
        """The path of most evidence from the first message of a chain on.

        `chain`: addresses of messages, each behind the one before. `doubtful`: where something is
        wrong behind them, or in the last of them.
        """
        behind = int(self._chains.piece_of(np.array([doubtful]))[0]) + 1 + SEGMENTS_BEHIND
        until = max(self._address(min(behind, self._pieces(chain[0])[1])), doubtful)
        self._load(chain[0], doubtful + 1)
        self._weigh([*chain, doubtful])
        self._check(self._nodes[chain[0]])
        self._scan(max(chain[0], until - SEEK_BYTES), until)
        return self._path(chain[0], until, is_message=True)

    def inside(self, at: int, *, is_last: bool) -> int:
        """Address of the first message inside an incomplete one whose body does not confirm its
        size; or -1. `is_last`: nothing more comes in the stream."""
        self._weigh([at])
        self._nodes[at].bits += UNFINISHED * is_last
        path = self.path([at], self._end)
        return path[0].at if path and path[0].at != at else -1

    # Places

    def _pieces(self, address: int) -> tuple[int, int]:
        """The first piece that begins at or behind an address, and the end of the pieces."""
        first = int(np.searchsorted(self._chains.address, address))
        return max(first, int(self._chains.first[self._index])), int(
            self._chains.first[self._index + 1]
        )

    def _address(self, piece: int) -> int:
        """Where a piece of the stream begins; the end of the stream behind its last one."""
        if piece >= int(self._chains.first[self._index + 1]):
            return self._end
        return int(self._chains.address[piece])

    def _load(self, begin: int, end: int) -> None:
        """Have the nodes of segments between two addresses."""
        low, high = np.searchsorted(self._segments[_AT], [begin, end])
        index = low + np.flatnonzero(~self._loaded[low:high])
        if len(index):
            self._loaded[index] = True
            self._add(self._segments[:, index])

    def _follow(self, places: list[int]) -> None:
        """Weigh what the messages at some places lead to."""
        ends = places
        for _ in range(HOPS):
            ends = [
                self._nodes[at].end
                for at in ends
                if at in self._nodes and self._nodes[at].state == YES
            ]
            ends = self._weigh(ends)
            if not ends:
                break

    def _scan(self, begin: int, until: int) -> None:
        """Weigh every byte between two addresses where a header may stand."""
        begin = max(begin, int(self._chains.address[self._chains.first[self._index]]))
        low, high = self._scanned
        begin = max(begin, high if low <= begin else begin)
        until = min(until + REQUEST_HEAD - 1, self._end)
        if until - begin < REQUEST_HEAD:
            return
        self._scanned = (low if begin == high else begin), until - REQUEST_HEAD + 1
        window, address = self._chains.bytes_between(self._index, begin, until)
        if len(window) < REQUEST_HEAD:
            return
        places = (
            self._scorer.like_requests(window)
            if self._is_request
            else self._scorer.like_responses(window, self._stream)
        )
        self._follow(self._weigh(address(places).tolist(), least=YES))

    def _weigh(self, places: Iterable[int], least: int = NO) -> list[int]:
        """Add nodes, and return the addresses of the new ones.

        `least`: the least state of those to add.
        """
        new = sorted({at for at in places if at not in self._weighed and self._is_open(at)})
        if not new:
            return []
        size = len(new)
        columns = weighed(
            self._chains, self._scorer, np.array(new), np.full(size, self._index),
            np.full(size, self._stream), np.full(size, self._is_request),
        )  # fmt: skip
        if least == NO:
            self._weighed.update(new)
        return self._add(columns[:, columns[_STATE] >= least])

    def _add(self, columns: Columns) -> list[int]:
        """Add nodes, and return their addresses."""
        at, behind, bits, state, border, number = (row.tolist() for row in columns)
        added = []
        for row in zip(at, behind, bits, state, border, number, strict=True):
            address = int(row[0])
            if address not in self._nodes and self._is_open(address):
                node = Node(address, int(row[1]), row[2], int(row[3]), bool(row[4]), int(row[5]))
                self._nodes[address] = node
                added.append(address)
        self._weighed.update(added)
        if len(added) > MANY:
            self._order = sorted(self._nodes)
        else:
            for address in added:
                insort(self._order, address)
        return added

    # Paths

    def _path(self, begin: int, until: int, *, is_message: bool) -> list[Node]:
        """The path of most evidence behind an address; bodies of its messages are read.

        `until`: places behind this address begin no path. `is_message`: a message begins at
        `begin`, as far as its chain shows.
        """
        for _ in range(CHECKS):
            bits, path, likely = self._solve(begin, until, is_message=is_message)
            first = path[: HOPS if is_message else 1]
            if not is_message and bits >= CONFIRMED:
                first = []
            doubted = [node for node in first or likely if not node.is_checked]
            if path and first:
                doubted += self._around(path[0])
            if not doubted:
                break
            for node in doubted:
                self._check(node)
        return path

    def _around(self, node: Node) -> list[Node]:
        """Messages that begin segments and cover this one, and whose bodies were not read."""
        rank = bisect_left(self._order, node.at)
        outers = (self._nodes[at] for at in self._order[max(rank - AROUND, 0) : rank])
        return [
            outer
            for outer in outers
            if node.at < outer.end <= self._end
            and outer.state == YES
            and outer.is_border
            and not outer.is_checked
        ]

    def _solve(
        self, begin: int, until: int, *, is_message: bool
    ) -> tuple[float, list[Node], list[Node]]:
        """Bits of the path of most evidence, that path, and messages that begin another one if
        their bodies are right."""
        behind = self._address(self._pieces(until)[0] + HOPS)
        self._load(begin, behind)
        low, high = bisect_left(self._order, begin), bisect_left(self._order, behind)
        order = self._order[low:high]
        value: dict[int, float] = {}
        follower: dict[int, int] = {}
        best = [0.0] * (len(order) + 1)
        entry = [-1] * (len(order) + 1)
        likely = []
        for rank in range(len(order) - 1, -1, -1):
            node = self._nodes[order[rank]]
            value[node.at], follower[node.at] = self._value(node, order, value, best, entry)
            best[rank], entry[rank] = best[rank + 1], entry[rank + 1]
            cost = ENTRY + UNALIGNED_RESPONSE * (not (self._is_request or node.is_border))
            gain = value[node.at] - cost
            if node.state == YES and gain > best[rank]:
                best[rank], entry[rank] = gain, node.at
            elif node.state == YES and gain + COMPLETE_BODY > 0 and not node.is_checked:
                likely.append(node)
        at = entry[0]
        if is_message and value.get(begin, 0) >= best[0]:
            at = begin
        path = []
        while at >= 0:
            path.append(self._nodes[at])
            at = follower.get(at, -1)
        if not is_message and path and path[0].at >= until:
            return 0.0, [], likely
        return best[0], path, likely

    def _value(
        self, node: Node, order: list[int], value: dict[int, float], best: list[float],
        entry: list[int],
    ) -> tuple[float, int]:  # fmt: skip
        """Bits of a message and all that follows it, and the next message of the path."""
        if node.end < 0:
            # Nothing says how long it is.
            rank = bisect_left(order, node.at + 1)
            return (0.0 if node.state == UNCLEAR else -BROKEN) + best[rank], entry[rank]
        if node.end >= self._end:
            return node.bits + BORDER_BITS * (node.end == self._end), -1
        following = self._nodes.get(node.end)
        if following is not None and following.state == UNCLEAR and following.end < 0:
            rank = bisect_left(order, node.end)
            return node.bits + best[rank], entry[rank]
        rank = bisect_left(order, node.end)
        is_border = following is not None and following.is_border
        skipped = best[rank] + (BORDER_BITS if is_border else -BROKEN)
        if following is None:
            return node.bits, -1
        linked = value.get(node.end, following.bits) if following.end >= 0 else -np.inf
        if self._is_out_of_order(node, following):
            linked += OUT_OF_ORDER
        if linked >= skipped:
            return node.bits + linked, node.end
        return node.bits + skipped, entry[rank]

    def _is_out_of_order(self, node: Node, following: Node) -> bool:
        """Whether the second of two responses is that to an earlier request."""
        if self._is_request or max(node.correlation, following.correlation) >= RESERVED:
            return False
        return following.correlation <= node.correlation - self._descent

    def _check(self, node: Node) -> None:
        """Read the body of a message, and change its bits by what it says of the size."""
        node.is_checked = True
        if node.end < 0:
            return
        verdict, end = self._bodies.check(self._chains, self._stream, node.at, self._end)
        if node.state != YES and verdict != CONSISTENT:
            return  # tokens of SASL have no header and no body
        if verdict == CONSISTENT:
            if node.end <= self._end and self._is_whole(node):
                node.bits += COMPLETE_BODY
                self._complete.append((node.at, node.end))
                low, high = bisect_right(self._order, node.at), bisect_left(self._order, node.end)
                for at in self._order[low:high]:
                    del self._nodes[at]
                del self._order[low:high]
        elif verdict == SURPLUS:
            is_doubtful = node.end - end > ACCEPTED and not self._is_request
            node.bits += SURPLUS_BODY * (is_doubtful and node.end <= self._end)
        elif verdict != UNKNOWN:
            node.bits += WRONG_BODY if node.end <= self._end else WRONG_PART
            if end < self._end:
                self._weigh([end])

    def _is_open(self, at: int) -> bool:
        """Whether a message may begin at an address, as far as others that are complete tell."""
        inside = any(begin < at < end for begin, end in self._complete)
        return at < self._end and not inside

    def _is_whole(self, node: Node) -> bool:
        """Whether no byte of a message is missing."""
        return int(self._chains.gap_after(np.array([node.at]))[0]) >= node.end
