"""Requests inside segments, in streams whose connections are not decided yet.

A client that does not wait for responses, or whose window was closed, sends requests in segments
that begin inside them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dissector.packets.block import Int64
from dissector.streams.connections.table import Bools, ConnectionTable
from dissector.streams.detection.candidates import READINGS, Candidates
from dissector.streams.frame_chain import FrameChains
from dissector.streams.limits import SEEK_BYTES
from dissector.streams.search.header_evidence import (
    BORDER_BITS,
    NO,
    REQUEST_HEAD,
    YES,
    HeaderScorer,
)
from dissector.streams.search.places import verdicts
from dissector.streams.search.request_evidence import DECISION, opposite_responses

INNER_BYTES = 2 << 20
"""Bytes of a stream at an unknown port that are searched for requests inside segments: twice the
largest request of a producer by default (max.request.size). Other protocols may have a place in
each few bytes that looks like a request."""

FIRST_SLICE, SLICE_GROWTH = 1 << 10, 2
"""Bytes of each stream that are searched for such requests first, and the growth of later slices.
Arrays of numbers have `READINGS` candidates in a few bytes."""


class InnerRequests:
    """Finds a request of each stream with a response, or to which no response is needed."""

    def __init__(
        self, table: ConnectionTable, scorer: HeaderScorer, candidates: Candidates
    ) -> None:
        self._table = table
        self._scorer = scorer
        self._candidates = candidates

    def find(
        self, chains: FrameChains, index: Int64, begin: Int64, end: Int64, at_broker: Bools
    ) -> tuple[Int64, Int64]:
        """Bits of the first request of each stream, anywhere from `begin` to `end`, that the other
        end has answered, or to which it need not respond (acks=0); and the first address where
        later bytes may confirm one. -1 if there is none.

        `at_broker`: the receiver is a broker. Any byte of a
        stream to another receiver that sent no bytes may begin a request, so it needs more bits.
        """
        bits, pending = np.full((2, len(index)), -1)
        readings = np.zeros(len(index), np.int64)
        is_any = ~(self._table.has_bytes(chains.stream[index] ^ 1) | at_broker)
        is_done = np.zeros(len(index), np.bool_)
        for at, owner in self._places(chains, index, begin, end, is_done):
            verdict = verdicts(chains, self._scorer, at, index[owner])
            is_open = verdict != NO
            first = first_of(len(index), owner[is_open], at[is_open])
            pending = np.where(pending < 0, first, pending)
            good = verdict == YES
            at, owner = at[good], owner[good]
            rank = readings[owner] + np.arange(len(owner)) - owner.searchsorted(owner)
            at, owner = at[rank < READINGS], owner[rank < READINGS]
            readings += np.bincount(owner, minlength=len(readings))
            header_bits = self._scorer.requests(chains, at, index[owner])[2].astype(np.int64)
            known_bits = header_bits - BORDER_BITS * is_any[owner]
            for place, each, known in zip(
                at.tolist(), owner.tolist(), known_bits.tolist(), strict=True
            ):
                if bits[each] < 0:
                    score = self._candidates.bits(chains, int(index[each]), place, known)
                    bits[each] = score if score >= DECISION else -1
            is_done |= (bits >= 0) | (readings == READINGS)
        return bits, pending

    def _places(
        self, chains: FrameChains, index: Int64, begin: Int64, end: Int64, is_done: Bools
    ) -> Iterator[tuple[Int64, Int64]]:  # fmt: skip
        """Places from `begin` to `end` that may begin a request with an expected correlation id,
        and the position in `index` of each. In parts of at most twice `SEEK_BYTES` places, since
        each byte of a stream may be one: a slice of each stream, then longer ones of those that are
        not done. `is_done`: set it between the parts.
        """
        expected = self._expected_ids(chains, index)
        slice_bytes = FIRST_SLICE
        while expected:
            parts: list[Int64] = []
            owners: list[int] = []
            count = 0
            for each, numbers in [*expected.items()]:
                until = min(int(begin[each]) + slice_bytes, int(end[each]))
                if begin[each] >= until or is_done[each]:
                    del expected[each]
                    continue
                behind = min(until + REQUEST_HEAD - 1, int(end[each]))
                window, address = chains.bytes_between(int(index[each]), int(begin[each]), behind)
                at = address(self._scorer.candidate_requests(window))
                if numbers is not None:
                    at = at[np.isin(chains.number(at + 8, "i4"), numbers)]
                parts.append(at)
                owners.append(each)
                count += len(at)
                if count >= SEEK_BYTES:
                    yield _joined(parts, owners)
                    parts, owners, count = [], [], 0
            yield _joined(parts, owners)
            begin = chains.after_gap(begin + slice_bytes)
            slice_bytes = min(SLICE_GROWTH * slice_bytes, SEEK_BYTES)

    def _expected_ids(self, chains: FrameChains, index: Int64) -> dict[int, Int64 | None]:
        """The correlation ids that the other end of each stream sent, by position in `index`. None
        for any, if it sent no bytes and the first bytes of the stream are not known to be those of
        another protocol."""
        expected: dict[int, Int64 | None] = {}
        is_answered = self._table.has_bytes(chains.stream[index] ^ 1)
        for each, chain in enumerate(index.tolist()):
            _, number, fits = opposite_responses(chains, chain)
            is_refused = self._candidates.is_head_rejected(int(chains.stream[chain]))
            if not (is_answered[each] or is_refused):
                expected[each] = None
            elif fits.any():
                expected[each] = number[fits]
        return expected


def first_of(count: int, owner: Int64, value: Int64) -> Int64:
    """The first value of each of `count` owners; -1 if it has none."""
    first = np.full(count, -1)
    first[owner[::-1]] = value[::-1]
    return first


def _joined(parts: list[Int64], owners: list[int]) -> tuple[Int64, Int64]:
    """All parts in one array, and the owner of each element."""
    counts = np.array([len(each) for each in parts], np.int64)
    places = np.concatenate([*parts, np.zeros(0, np.int64)])
    return places, np.repeat(np.array(owners, np.int64), counts)
