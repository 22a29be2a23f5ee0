"""A copy in a bundle has the exchanges that it has alone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.captures.recorded import CAPTURES
from tests.robustness.bundled_survey import KINDS as BUNDLED
from tests.robustness.bundled_survey import BundledSurvey, can_bundle
from tests.robustness.bundles import HEADER, Copies, missing
from tests.robustness.robustness_damage import KINDS, places_in, recording
from tests.robustness.robustness_truth import capture_file, read, truth


def test_missing_exchanges_are_counted() -> None:
    expected = np.array([5, 7, 7, 9], np.uint64)
    for actual, count in (([5, 7, 7, 9], 0), ([9, 7, 5, 1], 1), ([1, 1], 4), ([], 4)):
        assert missing(expected, np.array(actual, np.uint64)) == count
    assert missing(expected[:0], expected) == 0


@pytest.mark.parametrize("name", ["kafka-4-racks.pcap.zst", "kafka-4-cut.pcap.zst"])
def test_whole_copies_have_all_exchanges(name: str) -> None:
    whole = recording(CAPTURES / name)
    copies = Copies(whole)
    with capture_file(copies.bundle([copies.copy(each)[HEADER:] for each in range(9)])) as path:
        number, *digests = copies.digests(read(name, path, "exchanges")["exchanges"])
    with capture_file(whole.data) as path:
        alone, *expected = copies.digests(read(name, path, "exchanges")["exchanges"])
    assert (alone == -1).all()
    for each in range(9):
        for actual, intact in zip(digests, expected, strict=True):
            assert sorted(actual[number == each]) == sorted(intact)


@pytest.mark.parametrize("kind", BUNDLED)
def test_damaged_copies(kind: str) -> None:
    whole = recording(CAPTURES / "kafka-4-net-loss.pcap.zst")
    intact = truth(whole)
    places = [each for each in places_in(whole, kind, 8, 7) if can_bundle(whole, kind, each)]
    survey = BundledSurvey(whole, intact)
    counts = {place: (untouched, lost) for place, untouched, lost in survey.missing(kind, places)}
    for place in places:
        damage = KINDS[kind][0](whole, place)
        expected = intact.untouched(damage)
        assert counts[place] == (expected.total(), (expected - intact.remaining(damage)).total())


def test_a_missing_exchange_is_noticed() -> None:
    whole = recording(CAPTURES / "kafka-4-java.pcap.zst")
    survey = BundledSurvey(whole, truth(whole))
    ((_, untouched, lost),) = survey.missing("flipped", [3000])
    assert lost == 0
    without_times, with_times = survey._digests
    survey._digests = without_times + np.uint64(1), with_times
    assert [*survey.missing("flipped", [3000])] == [(3000, untouched, untouched)]
