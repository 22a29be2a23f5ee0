"""Resynchronisation: the search for messages in a stream whose chain of sizes is doubtful.

The search treats one stream at a time. A node is a place where a message may begin. Its weight, in
bits, is the evidence of its header (see `header_evidence`), of the start of a segment, and of its
body. A path goes from message to message. It may skip bytes; then the next message costs `ENTRY`
bits, as any place among random bytes does. The path with the most evidence wins. A path cannot
begin with messages that are the content of another one: see `Search._is_content`.

Candidates are the starts of segments, the places that the sizes of other candidates lead to, and
all bytes at which the header of a message is possible.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable
from typing import Final

import numpy as np

from dissector.arrays import mutable
from dissector.streams.connections.table import NEVER
from dissector.streams.frame_chain import FrameChains
from dissector.streams.limits import CERTAINTY, SEEK_BYTES
from dissector.streams.search.bodies import CONSISTENT, RECORDS, SURPLUS, UNKNOWN, BodyCheck
from dissector.streams.search.header_evidence import (
    BORDER_BITS,
    NO,
    REQUEST_BITS,
    REQUEST_HEAD,
    RESERVED,
    SEVERAL,
    UNCLEAR,
    YES,
    HeaderScorer,
)
from dissector.streams.search.places import (
    AT,
    BITS,
    BORDER,
    CONFIRMED,
    ENTRY,
    HOPS,
    NUMBER,
    STATE,
    Columns,
    weighed,
)

UNALIGNED_RESPONSE: Final = 7
"""Additional cost of a response that does not begin a segment: it has small numbers, and these are
common. More than `SIZE_BITS`: if the ids of a client are random, any length that leads to a
response looks like one."""
BROKEN: Final = 20
"""Cost of a message that ends inside a segment where no other one begins: one of them is
damaged."""
COMPLETE_BODY: Final = 16
"""Bits of a complete message whose body fits its size."""
WRONG_BODY: Final = -16
"""Bits of a complete message whose body does not fit its size. The next message may confirm the
size: brokers accept surplus bytes, and definitions may be wrong."""
UNUSUAL_BODY: Final = -26
"""The same for a request with an unusual client id, whose bits become negative. The compressed
messages at the end of a Produce request begin with their size and an offset: they read as a Produce
v0 request with an empty client id, and the next request begins after them."""
WRONG_PART: Final = -60
"""Bits of an incomplete message whose body does not fit its size, and of a part of record batches.
No next message confirms it."""
SURPLUS_BODY: Final = -12
"""Bits of a response with a few surplus bytes. Requests of some clients have such bytes."""
ACCEPTED_SURPLUS: Final = 4
"""Surplus bytes of a response that cost nothing, as in `protocol.limits`."""
OUT_OF_ORDER: Final = -40
"""Bits of a response that follows the response to a later request."""
UNFINISHED: Final = -30
"""Bits of a message that is incomplete at the end of its stream."""
CHECKS: Final = 16
"""Maximum number of bodies that are read in one search."""
OUTER_NODES: Final = 64
"""Nodes before a message that are checked for containing it."""
LONGEST_RUN: Final = 256
"""Maximum number of messages inside segments that are followed to the next start of a segment."""
SORT_FROM: Final = 32
"""From this number of new nodes on, sorting all nodes is cheaper than inserting each new one."""
DENSE_BYTES: Final = 1 << 12
DENSE: Final = DENSE_BYTES // 16
"""Headers of requests in this number of bytes that cannot all be right, because requests with a
body are longer: small numbers, as in lists of partitions. They are no evidence."""
FREQUENT: Final = 512
"""Possible responses with the same correlation id in one scan that are no evidence: a small number.
A broker sends one of them."""
SEGMENTS_AHEAD: Final = 16
"""Starts of segments after the first messages of a path that may be on the path. Brokers send a
response in several segments."""
SEGMENTS_BEHIND: Final = 8
"""Starts of segments after a doubtful place that are included in the search."""


@mutable
class Node:
    """A place where a message may begin."""

    at: int
    end: int
    """Address after the message; -1 if the size is impossible or missing."""
    bits: float
    state: int
    """Verdict on the header: NO, UNCLEAR, YES."""
    is_border: bool
    """A segment begins here, and its length is plausible for the message; see `border_bits`."""
    correlation: int
    """Correlation id, if the message is a response."""
    is_checked: bool = False


class Search:
    """The search in one stream of a block. `index`: that of its chain."""

    def __init__(
        self, chains: FrameChains, index: int, scorer: HeaderScorer, bodies: BodyCheck,
        segments: Columns, *, is_request: bool,
    ) -> None:  # fmt: skip
        """`segments`: the places at and after the starts of its segments; see `places`."""
        self._chains = chains
        self._index = index
        self._stream = stream = chains.stream[index : index + 1]
        self._scorer = scorer
        self._bodies = bodies
        self._is_request = is_request
        self._id_regression = int(scorer.id_regression(stream)[0])
        self._newest_id = int(scorer.newest_id(stream)[0])
        self._sole_id = int(scorer.sole_id(stream)[0])
        self._end = int(chains.end[index])
        self._nodes: dict[int, Node] = {}
        self._order: list[int] = []
        """Addresses of the nodes, ascending."""
        self._weighed: set[int] = set()
        """Addresses of the nodes, and addresses at which no message can begin."""
        self._complete: deque[tuple[int, int]] = deque(maxlen=CHECKS)
        """Messages whose bodies fit their sizes: no other message begins inside them."""
        self._scanned = 0, 0
        """All bytes between these addresses were scanned."""
        self._first_piece, self._end_piece = chains.first[index : index + 2].tolist()
        self._begin = int(chains.address[self._first_piece])
        low, high = segments[AT].searchsorted([self._begin, self._end])
        self._segments = segments[:, low:high]
        """They become nodes when a path reaches them."""
        self._places: list[float] = self._segments[AT].tolist()
        self._loaded = bytearray(len(self._places))

    def entry(self, begin: int) -> int:
        """Address of the first message after `begin`, where no boundary is known; or -1."""
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
        """The path with the most evidence from the first message of a chain on.

        `chain`: addresses of successive messages. `doubtful`: a doubtful address after them, or in
        the last one.
        """
        behind = int(self._chains.piece_of(np.array([doubtful]))[0]) + 1 + SEGMENTS_BEHIND
        until = max(self._address(min(behind, self._pieces(chain[0])[1])), doubtful)
        self._load(chain[0], doubtful + 1)
        self._weigh([*chain, doubtful])
        first = self._nodes.get(chain[0])  # None inside a message that an earlier search confirmed
        if first is not None:
            self._check(first)
        self._scan(max(chain[0], until - SEEK_BYTES), until)
        return self._path(chain[0], until, is_message=first is not None)

    def inside(self, at: int, *, is_last: bool) -> int:
        """Address of the first message inside an incomplete one whose body does not confirm its
        size; or -1. `is_last`: the stream has ended."""
        self._weigh([at])
        if is_last and at in self._nodes:
            self._nodes[at].bits += UNFINISHED
        path = self.path([at], self._end)
        return path[0].at if path and path[0].at != at else -1

    # Places

    def _pieces(self, address: int) -> tuple[int, int]:
        """The first piece that begins at or after an address, and the end of the pieces."""
        first = int(self._chains.address.searchsorted(address))
        return max(first, self._first_piece), self._end_piece

    def _address(self, piece: int) -> int:
        """Address of a piece of the stream; after its last piece, the end of the stream."""
        return int(self._chains.address[piece]) if piece < self._end_piece else self._end

    def _load(self, begin: int, end: int) -> None:
        """Add the nodes of segments between two addresses."""
        low, high = bisect_left(self._places, begin), bisect_left(self._places, end)
        if (low := self._loaded.find(0, low, high)) >= 0:
            index = [each for each in range(low, high) if not self._loaded[each]]
            self._loaded[low:high] = bytes([True]) * (high - low)
            self._add(self._segments[:, index])

    def _follow(self, places: list[int]) -> None:
        """Add the nodes that the messages at these places lead to, at least up to the next one that
        begins a segment: see `_is_content`."""
        for hop in range(LONGEST_RUN):
            nodes = [self._nodes[at] for at in places if at in self._nodes]
            places = self._weigh(
                node.end
                for node in nodes
                if node.state == YES and (hop < HOPS or not node.is_border)
            )
            if not places:
                break

    def _scan(self, begin: int, until: int) -> None:
        """Add nodes at all bytes between two addresses where a header is possible."""
        begin = max(begin, self._begin)
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
            self._scorer.candidate_requests(window)
            if self._is_request
            else self._scorer.candidate_responses(window, self._stream)
        )
        columns = self._columns(address(places).tolist())
        columns = columns[:, columns[STATE] == YES]
        if self._is_request:
            columns = _sparse(columns)
        elif self._sole_id in (NEVER, SEVERAL):
            columns = _rare(columns)
        self._follow(self._add(columns))

    def _weigh(self, places: Iterable[int]) -> list[int]:
        """Add nodes at these places, and return the addresses of the new ones."""
        columns = self._columns(places)
        self._weighed.update(columns[AT].astype(np.int64).tolist())
        return self._add(columns)

    def _columns(self, places: Iterable[int]) -> Columns:
        """The columns of those of these places that were not weighed yet."""
        new = sorted({at for at in places if at not in self._weighed and self._is_open(at)})
        if not new:
            return np.zeros((6, 0))
        at = np.array(new)
        return weighed(self._chains, self._scorer, at, np.full_like(at, self._index))

    def _add(self, columns: Columns) -> list[int]:
        """Add nodes that do not exist yet, and return their addresses."""
        at, behind, bits, state, border, number = (row.tolist() for row in columns)
        added = []
        for row in zip(at, behind, bits, state, border, number, strict=True):
            address = int(row[0])
            if address not in self._nodes and self._is_open(address):
                is_border = row[4] == BORDER_BITS
                node = Node(address, int(row[1]), row[2], int(row[3]), is_border, int(row[5]))
                self._nodes[address] = node
                added.append(address)
        self._weighed.update(added)
        if len(added) > SORT_FROM:
            self._order = sorted(self._nodes)
        else:
            for address in added:
                insort(self._order, address)
        return added

    # Paths

    def _path(self, begin: int, until: int, *, is_message: bool) -> list[Node]:
        """The path with the most evidence after an address; the bodies of its messages are read.

        `until`: end of the addresses where a path may begin. `is_message`: a message begins at
        `begin`, according to its chain.
        """
        for _ in range(CHECKS):
            bits, path, likely = self._solve(begin, until, is_message=is_message)
            first = path[: HOPS if is_message else 1]
            if not is_message and bits >= CONFIRMED:
                # The messages after these do not confirm them: see `UNUSUAL_BODY` and `RECORDS`.
                first = [n for n in first if self._is_unusual(n) or self._lacks_request(n)]
            unchecked = [node for node in first or likely if not node.is_checked]
            if path and first:
                unchecked += self._outer(path[0])
            if not unchecked:
                break
            for node in unchecked:
                self._check(node)
        return path

    def _is_unusual(self, node: Node) -> bool:
        """Whether a message is a request with an unusual client id that begins no segment."""
        return self._is_request and node.bits < REQUEST_BITS

    def _lacks_request(self, node: Node) -> bool:
        """Whether a message is a response to an unknown request."""
        client = int(self._stream[0]) ^ 1
        return not (self._is_request or self._bodies.log.find(client, node.correlation))

    def _outer(self, node: Node) -> list[Node]:
        """Messages that begin segments and cover this one, and whose bodies were not read."""
        rank = bisect_left(self._order, node.at)
        outers = (self._nodes[at] for at in self._order[max(rank - OUTER_NODES, 0) : rank])
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
        """The path with the most evidence: its bits, its nodes, and messages that would begin
        another path if their bodies were read and fit."""
        behind = self._address(self._pieces(until)[0] + SEGMENTS_AHEAD)
        self._load(begin, behind)
        low, high = bisect_left(self._order, begin), bisect_left(self._order, behind)
        order = self._order[low:high]
        content: dict[int, bool] = {}
        for at in reversed(self._order[high:]):
            content[at] = self._is_content(self._nodes[at], content)
        value: dict[int, float] = {}
        follower: dict[int, int] = {}
        best = [0.0] * (len(order) + 1)
        entry = [-1] * (len(order) + 1)
        likely = []
        for rank in range(len(order) - 1, -1, -1):
            node = self._nodes[order[rank]]
            value[node.at], follower[node.at] = self._value(node, order, value, best, entry)
            content[node.at] = self._is_content(node, content)
            best[rank], entry[rank] = best[rank + 1], entry[rank + 1]
            cost = ENTRY + UNALIGNED_RESPONSE * (not (self._is_request or node.is_border))
            gain = -np.inf if content[node.at] else value[node.at] - cost
            # Of two paths with the same evidence, the first one explains more bytes.
            if node.state == YES and gain >= best[rank]:
                best[rank], entry[rank] = gain, node.at
            elif node.state == YES and gain + COMPLETE_BODY > 0 and not node.is_checked:
                likely.append(node)
        at = entry[0]
        # A message that covers the first one may have been confirmed.
        if is_message and begin in value and value[begin] >= best[0]:
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
        """Bits of the best path from a message on, and the next message of that path."""
        if node.end < 0:
            # Its size is unknown.
            rank = bisect_left(order, node.at + 1)
            return (0.0 if node.state == UNCLEAR else -BROKEN) + best[rank], entry[rank]
        if node.end >= self._end:
            return node.bits, -1
        following = self._nodes.get(node.end)
        if following is None:
            return node.bits, -1
        rank = bisect_left(order, node.end)
        if following.state == UNCLEAR and following.end < 0:
            return node.bits + best[rank], entry[rank]
        skipped = best[rank] + (BORDER_BITS if following.is_border else -BROKEN)
        linked = value.get(node.end, following.bits) if following.end >= 0 else -np.inf
        if self._is_out_of_order(node, following):
            linked += OUT_OF_ORDER
        if linked >= skipped:
            return node.bits + linked, node.end
        return node.bits + skipped, entry[rank]

    def _is_content(self, node: Node, content: dict[int, bool]) -> bool:
        """Whether the messages from this one on are the content of a message, such as captured
        Kafka traffic in a record: none of them begins or ends where a segment does, and they end
        where no message begins, although no byte is missing.

        `content`: the same of the messages after it.
        """
        if node.is_border:
            return False
        if node.end < 0:
            return node.state != UNCLEAR
        following = self._nodes.get(node.end)
        if node.end >= self._end or following is None:
            return node.state == NO
        return following.state != UNCLEAR and content[node.end]

    def _is_out_of_order(self, node: Node, following: Node) -> bool:
        """Whether the second of two responses belongs to the same request as the first, or to an
        earlier one."""
        if self._is_request or max(node.correlation, following.correlation) >= RESERVED:
            return False
        if following.correlation == node.correlation:
            return self._sole_id not in (NEVER, node.correlation)
        if following.correlation > node.correlation - self._id_regression:
            return False
        if node.correlation < self._newest_id:
            return True
        pair = (np.array([each]) for each in (following.correlation, node.correlation))
        return bool(self._scorer.is_late(self._stream, *pair)[0])

    def _check(self, node: Node) -> None:
        """Read the body of a message, and adjust its bits: does the body fit the size?"""
        node.is_checked = True
        if node.end < 0:
            return
        verdict, end = self._bodies.check(self._chains, self._index, node.at)
        if node.state != YES and verdict != CONSISTENT:
            return  # SASL tokens have no header and no body
        if verdict == CONSISTENT:
            if node.end <= self._end and self._is_whole(node):
                node.bits += COMPLETE_BODY
                self._complete.append((node.at, node.end))
                low, high = bisect_right(self._order, node.at), bisect_left(self._order, node.end)
                for at in self._order[low:high]:
                    del self._nodes[at]
                del self._order[low:high]
        elif verdict == SURPLUS:
            is_doubtful = node.end - end > ACCEPTED_SURPLUS and not self._is_request
            node.bits += SURPLUS_BODY * (is_doubtful and node.end <= self._end)
            if not is_doubtful:
                self._shorten(node, end)
        elif verdict != UNKNOWN:
            wrong = UNUSUAL_BODY if self._is_unusual(node) else WRONG_BODY
            is_part = node.end > self._end or verdict == RECORDS
            node.bits += WRONG_PART if is_part else wrong
            if end < self._end:
                self._weigh([end])
        elif node.end <= self._end:
            # The body is not captured, or cannot be read. Most messages begin a segment.
            low = max(node.at, node.end - ACCEPTED_SURPLUS - 1)
            near = slice(bisect_right(self._places, low), bisect_left(self._places, node.end))
            at, border = self._segments[[AT, BORDER], near]
            starts = at[border == BORDER_BITS]
            if len(starts):
                self._shorten(node, int(starts[0]))

    def _shorten(self, node: Node, end: int) -> None:
        """Let a message end a few bytes before its size says, if no message can begin after it, or
        if the next one begins at `end`."""
        self._weigh([end, node.end])
        behind, inner = self._nodes.get(node.end), self._nodes.get(end)
        if behind is None:
            return
        is_impossible = self._is_request and behind.end < 0 and behind.state != UNCLEAR
        gain = inner.bits - behind.bits if inner is not None and inner.state == YES else 0.0
        if is_impossible or gain >= CERTAINTY:
            node.end = end

    def _is_open(self, at: int) -> bool:
        """Whether a message may begin at an address: not inside a complete message."""
        inside = any(begin < at < end for begin, end in self._complete)
        return at < self._end and not inside

    def _is_whole(self, node: Node) -> bool:
        """Whether no byte of a message is missing."""
        return int(self._chains.gap_after(np.array([node.at]))[0]) >= node.end


def _sparse(columns: Columns) -> Columns:
    """The columns of those of these requests that are not `DENSE`. Those with unusual client ids
    are counted apart, since they are no evidence against the others."""
    key = 2 * (columns[AT] // DENSE_BYTES) + (columns[BITS] < REQUEST_BITS)
    _, owner, count = np.unique(key, return_inverse=True, return_counts=True)
    return columns[:, count[owner] <= DENSE]


def _rare(columns: Columns) -> Columns:
    """The columns of those of these responses whose correlation id few others have."""
    _, owner, count = np.unique(columns[NUMBER], return_inverse=True, return_counts=True)
    return columns[:, count[owner] <= FREQUENT]
