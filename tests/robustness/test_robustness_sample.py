"""A few captures, damaged at a few places: what was not touched is still there."""

from __future__ import annotations

import pytest

from tests.robustness.__main__ import survey
from tests.robustness.robustness_damage import CAPTURES, KINDS, damaged, recording
from tests.robustness.robustness_truth import truth

SAMPLE = (
    "kafka-3-java-0-9.pcap.zst",
    "kafka-4-net-vxlan.pcap.zst",
    "kafka-4-tls-secrets.pcapng.zst",
    "kafka-python-tansu.pcapng.gz",
)
PLACES = 4


@pytest.mark.parametrize("name", SAMPLE)
def test_what_no_damage_touched_is_still_there(name: str) -> None:
    figures = survey(recording(CAPTURES / name), PLACES)
    assert {kind: each.missing for kind, each in figures.items()} == dict.fromkeys(KINDS, 0)


@pytest.mark.parametrize("name", SAMPLE)
def test_damage_touches_little(name: str) -> None:
    whole = recording(CAPTURES / name)
    said = truth(whole)
    assert whole.made_of(range(len(whole.begin))) == whole.data
    for kind, most in (("lost", 0.3), ("shuffled", 0), ("doubled", 0)):
        for damage in damaged(whole, kind, PLACES):
            assert said.untouched(damage).total() >= (1 - most) * len(said.rows)
