"""Places: the evidence that messages begin at places of many streams, in bits.

The evidence of a place is

- its header; see `header_evidence`;
- the start of a segment, since most messages begin one;
- the end of its message, if the stream ends there, or a segment before missing bytes;
- the messages that follow: each message leads to the place after it.

The evidence has three uses: `detection` decides connections by it, `doubts` accepts the messages
after missing bytes that need no search, and `resync` searches for the others.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dissector.byteview import ranges
from dissector.packets.block import Int64
from dissector.streams.connections.table import NEVER, Bools
from dissector.streams.frame_chain import FrameChains
from dissector.streams.limits import CERTAINTY, USUAL_FRAME
from dissector.streams.search.header_evidence import (
    BORDER_BITS,
    LONGEST_STEP,
    NO,
    UNCLEAR,
    YES,
    HeaderScorer,
    border_bits,
)

ENTRY: Final = CERTAINTY
"""Cost, in bits, of a message that does not begin where another one ends."""
CONFIRMED: Final = 2 * ENTRY
"""Bits beyond `ENTRY` of messages that need no body to confirm them."""
IMPOSSIBLE_HEADER: Final = -24
"""Bits of a message with an impossible header: it is damaged, or it is a SASL token, which has no
header."""
HOPS: Final = 4
"""Messages that are followed from each place."""
SURE_HOPS: Final = 2
"""The first messages of these, whose headers must be possible."""
SURE: Final = CERTAINTY + BORDER_BITS
"""A place with these bits is accepted, whatever follows: those of a message that is a segment."""

Columns: TypeAlias = NDArray[np.float64]
"""Shape (6, places), ascending by address. Addresses are below 2^53.

AT      address of the place
END     address after the message; -1 if its size is impossible or missing
BITS    evidence
STATE   verdict on the header: NO, UNCLEAR, YES
BORDER  bits of the segment that begins here; 0 without one
NUMBER  correlation id, if the message is a response
"""
AT, END, BITS, STATE, BORDER, NUMBER = range(6)
NO_PLACE: Final = (-1, -1, 0, UNCLEAR, 0, NEVER)


def segment_starts(chains: FrameChains, index: Int64, first: Int64) -> tuple[Int64, Int64]:
    """The starts of the segments of these chains from the pieces `first` on: addresses, and the
    position in `index` of each."""
    count = np.maximum(chains.first[index + 1] - first, 0)
    return chains.address[ranges(first, count)[0]], np.repeat(np.arange(len(index)), count)


def weighed(chains: FrameChains, scorer: HeaderScorer, at: Int64, index: Int64) -> Columns:
    """The columns of these addresses in the chains at `index`."""
    end, gap = chains.end[index], chains.gap_after(at)
    size, state, bits = scorer.headers(chains, at, index)
    readable = np.minimum(gap, end) - at
    behind = np.where((size < 0) | (size > USUAL_FRAME) | (readable < 4), -1, at + 4 + size)
    bits = np.where(state == NO, IMPOSSIBLE_HEADER, bits)
    is_end = (behind == end) | ((behind == gap) & chains.is_segment_end(behind))
    border = border_bits(chains, at, behind, ~scorer.may_be_client(chains.stream[index]))
    bits += border + BORDER_BITS * is_end
    number = chains.number(at + 4, "i4")
    return np.array([at, behind, bits, state, border, number], np.float64)


def weighed_chains(chains: FrameChains, scorer: HeaderScorer, at: Int64, index: Int64) -> Columns:
    """The columns of those of these addresses that look like messages, and of the places that they
    lead to."""
    columns = np.zeros((6, 0))
    for hop in range(HOPS + 1):
        new = weighed(chains, scorer, at, index)
        columns = np.hstack([columns, new[:, new[STATE] >= (NO if hop else UNCLEAR)]])
        columns = columns[:, np.argsort(columns[AT])]
        leads = (new[STATE] == YES) & (new[END] < chains.end[index])
        leads[leads] = _rank(columns, new[END, leads]) == columns.shape[1]
        at, first = np.unique(new[END, leads].astype(np.int64), return_index=True)
        if not len(at):
            break
        index = index[leads][first]
    return columns


def _rank(columns: Columns, at: NDArray[np.float64] | Int64) -> Int64:
    """The index of each address in the columns, or their number if it is not there."""
    rank: Int64 = columns[AT].searchsorted(at)
    rank[np.append(columns[AT], -1)[rank] != at] = columns.shape[1]
    return rank


def _runs(chains: FrameChains, columns: Columns, at: Int64) -> NDArray[np.float64]:
    """The messages that follow each other from each address on; shape (6, HOPS, addresses).
    `NO_PLACE` where no message follows."""
    limit = chains.end[chains.end.searchsorted(columns[AT], "right")]
    leads = (columns[STATE] == YES) & (columns[END] < limit)
    following = np.append(_rank(columns, np.where(leads, columns[END], -2)), columns.shape[1])
    columns = np.column_stack([columns, NO_PLACE])
    rank = _rank(columns[:, :-1], at)
    runs = np.empty((6, HOPS, len(at)))
    for hop in range(HOPS):
        runs[:, hop] = columns[:, rank]
        rank = following[rank]
    return runs


def verdicts(chains: FrameChains, scorer: HeaderScorer, at: Int64, index: Int64) -> Int64:
    """YES, NO or UNCLEAR for each of these starts of segments in undecided connections."""
    columns = weighed_chains(chains, scorer, at, index)
    at, _, bits, state, border, number = _runs(chains, columns, at)
    is_good = np.logical_and.accumulate(state == YES)
    score = np.where(is_good, bits, border)
    score[1:] *= is_good[:-1]
    score = score.cumsum(0)
    # After two good messages, or a very good one, the next one may be damaged.
    is_bad = (state[:SURE_HOPS] == NO) & (score[:SURE_HOPS] < SURE)
    is_bad[1:] &= is_good[: SURE_HOPS - 1]
    # Clients count, so correlation ids are near each other; only some clients always send 0.
    step = np.abs(np.diff(number, axis=0))
    is_far = (step > LONGEST_STEP) | ((step == 0) & (number[:-1] != 0))
    is_far &= is_good[:-1] & (at[1:] >= 0) & ~scorer.may_be_client(chains.stream[index])
    is_wrong = is_bad.any(0) | is_far.any(0) | (at[0] < 0)
    return np.where(is_wrong, NO, np.where(score[-1] >= CERTAINTY, YES, UNCLEAR))


def are_confirmed(chains: FrameChains, scorer: HeaderScorer, at: Int64, index: Int64) -> Bools:
    """Whether headers confirm the messages at these starts of segments, so that no body needs to
    be read."""
    columns = weighed_chains(chains, scorer, at, index)
    _, _, bits, state, _, number = _runs(chains, columns, at)
    is_good = np.logical_and.accumulate(state == YES)
    confirmed: Bools = (bits * is_good).sum(0) >= ENTRY + CONFIRMED
    ascends = (np.diff(number, axis=0) > 0) | ~is_good[1:]
    confirmed &= scorer.may_be_client(chains.stream[index]) | ascends.all(0)
    return confirmed
