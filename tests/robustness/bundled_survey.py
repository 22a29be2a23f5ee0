"""The exchanges that are missing in damaged copies, many copies at a time; see `bundles`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tests.robustness.bundles import HEADER, RECORD, Copies, Digests, missing
from tests.robustness.robustness_damage import Recording
from tests.robustness.robustness_truth import Packets, Truth, capture_file, packets_of, read

KINDS = "lost", "flipped"
"""The kinds of damage of which copies can be bundled."""


def can_bundle(whole: Recording, kind: str, where: int) -> bool:
    """Whether a copy that is damaged here has whole records, and right times."""
    if kind != "flipped":
        return kind in KINDS
    index = int(whole.begin.searchsorted(where, "right")) - 1
    return index >= 0 and whole.begin[index] + RECORD <= where < whole.end[index]


class BundledSurvey:
    """Damaged copies of a recording. Raises ValueError if it cannot be bundled."""

    def __init__(self, whole: Recording, intact: Truth) -> None:
        self._whole = whole
        self._intact = intact
        self._copies = Copies(whole)
        self._digests = self._copies.digests(intact.exchanges)[1:]
        count = [len(each) for each in intact.needed]
        packet = np.concatenate([np.zeros(0, np.int64), *intact.needed])
        order = np.argsort(packet, kind="stable")
        self._packet = packet[order]
        self._row = np.repeat(np.arange(len(count)), count)[order]

    def missing(self, kind: str, places: list[int]) -> Iterator[tuple[int, int, int]]:
        """For each place: the place, the untouched exchanges, and how many of them are missing."""
        for begin in range(0, len(places), self._copies.size):
            yield from self._of_bundle(kind, places[begin : begin + self._copies.size])

    def _of_bundle(self, kind: str, places: list[int]) -> Iterator[tuple[int, int, int]]:
        whole, copies = self._whole, self._copies
        bodies, damaged, first = [], [], []
        packets = 0
        for number, where in enumerate(places):
            data = copies.copy(number)
            index = where
            first.append(packets)
            if kind == "lost":
                kept = [data[HEADER : whole.begin[where]], data[whole.end[where] :]]
                bodies.append(np.concatenate(kept))
            else:
                data[where] ^= 0xFF
                bodies.append(data[HEADER:])
                index = int(whole.begin.searchsorted(where, "right")) - 1
            packets += len(whole.begin) - (kind == "lost")
            damaged.append(index)
        with capture_file(copies.bundle(bodies)) as path:
            exchanges = read(whole.name, path, "exchanges")["exchanges"]
            captured = packets_of(path) if kind == "flipped" else None
        copy, *digests = copies.digests(exchanges)
        order = np.argsort(copy, kind="stable")
        limits = copy[order].searchsorted(np.arange(len(places) + 1))
        for number, (where, index) in enumerate(zip(places, damaged, strict=True)):
            touched, has_times = np.array([index]), False
            if captured is None:
                only = np.zeros(len(whole.begin), np.bool_)
                only[index] = True
                has_times = self._intact.packets.go_in_order(only)
            else:
                touched = np.union1d(touched, self._shared(captured, first[number] + index, number))
            actual = digests[has_times][order[limits[number] : limits[number + 1]]]
            expected = self._untouched(touched, self._digests[has_times])
            yield where, len(expected), missing(expected, actual)

    def _untouched(self, packets: NDArray[np.int64], digests: Digests) -> Digests:
        """The digests of the exchanges that need none of these packets."""
        low, high = (self._packet.searchsorted(packets, side) for side in ("left", "right"))
        is_touched = np.zeros(len(digests), np.bool_)
        for begin, end in zip(low.tolist(), high.tolist(), strict=True):
            is_touched[self._row[begin:end]] = True
        return digests[~is_touched]

    def _shared(self, captured: Packets, index: int, number: int) -> NDArray[np.int64]:
        """The packets that share sequence numbers with the packet at an index of a bundle."""
        row = captured.row_of(index + 1)
        if row is None:
            return np.zeros(0, np.int64)
        return self._intact.packets.sharing(self._copies.original(captured.fields(row), number))
