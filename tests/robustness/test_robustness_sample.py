"""A few captures, damaged at a few places, keep the rows of undamaged exchanges."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.captures.recorded import CAPTURES
from tests.robustness.__main__ import survey
from tests.robustness.robustness_damage import KINDS, damaged, recording
from tests.robustness.robustness_truth import truth

SAMPLE = (
    "kafka-3-java-0-9.pcap.zst",
    "kafka-4-net-vxlan.pcap.zst",
    "kafka-4-tls-secrets.pcapng.zst",
    "kafka-python-tansu.pcapng.gz",
)
PLACES = 4
FOUND = (
    ("bulk-tansu.pcap.zst", "flipped", 1512),
    ("bulk-tansu.pcap.zst", "lost", 815),
    ("kafka-0-10.pcap.zst", "lost", 1467),
    ("kafka-0-8.pcap.zst", "flipped", 1831),
    ("kafka-0-8.pcap.zst", "flipped", 2440),
    ("kafka-0-8.pcap.zst", "flipped", 3000),
    ("kafka-0-8.pcap.zst", "flipped", 3841),
    ("kafka-0-8.pcap.zst", "lost", 1715),
    ("kafka-2-0.pcap.zst", "lost", 2708),
    ("kafka-3-java-0-8.pcap.zst", "flipped", 3967),
    ("kafka-3-java-2-8.pcap.zst", "flipped", 2957),
    ("kafka-3-java-3-1.pcap.zst", "flipped", 2040),
    ("kafka-3-librdkafka-0-11.pcap.zst", "flipped", 2612),
    ("kafka-3-librdkafka-0-11.pcap.zst", "flipped", 2617),
    ("kafka-4-cut-list-topics.pcap.zst", "flipped", 520),
    ("kafka-4-cut-list-topics.pcap.zst", "lost", 2),
    ("kafka-4-cut-midway.pcap.zst", "flipped", 611),
    ("kafka-4-cut-midway.pcap.zst", "flipped", 612),
    ("kafka-4-cut-midway.pcap.zst", "flipped", 3091),
    ("kafka-4-cut-requests.pcap.zst", "flipped", 78),
    ("kafka-4-cut-requests.pcap.zst", "flipped", 1496),
    ("kafka-4-cut-requests.pcap.zst", "shuffled", 1),
    ("kafka-4-cut-snaplen.pcap.zst", "flipped", 3808),
    ("kafka-4-errors.pcap.zst", "lost", 1446),
    ("kafka-4-errors.pcap.zst", "lost", 1554),
    ("kafka-4-errors.pcap.zst", "lost", 1566),
    ("kafka-4-group-eager.pcap.zst", "flipped", 343),
    ("kafka-4-group-static.pcap.zst", "flipped", 3236),
    ("kafka-4-net-delay.pcap.zst", "flipped", 292),
    ("kafka-4-net-loss.pcap.zst", "flipped", 292),
    ("kafka-4-net-loss.pcap.zst", "flipped", 4040),
    ("kafka-4-platformatic.pcap.zst", "flipped", 3241),
    ("kafka-4-sasl.pcap.zst", "flipped", 3808),
    ("kafka-4-sasl.pcap.zst", "lost", 61),
    ("kafka-4-sasl.pcap.zst", "lost", 276),
    ("kafka-python-mock.pcap", "lost", 63),
    ("kafka-python-tansu.pcapng.gz", "flipped", 2290),
    ("librdkafka-mock-errors.pcap", "flipped", 918),
    ("librdkafka-mock-produce.pcap", "flipped", 343),
    ("librdkafka-mock-produce.pcap", "flipped", 574),
    ("librdkafka-mock-produce.pcap", "flipped", 1260),
    ("librdkafka-mock-produce.pcap", "flipped", 2233),
    ("librdkafka-mock-produce.pcap", "flipped", 4029),
    ("librdkafka-mock-traced.pcap.zst", "flipped", 348),
    ("librdkafka-mock-transactions.pcapng", "flipped", 1158),
    ("librdkafka-mock-transactions.pcapng", "flipped", 1925),
    ("librdkafka-tansu.pcap.zst", "flipped", 2864),
)
"""Places of damage that once cost an exchange which it had not touched."""


@pytest.mark.parametrize("name", SAMPLE)
def test_undamaged_exchanges_remain(name: str) -> None:
    figures = survey(recording(CAPTURES / name), PLACES)
    assert {kind: each.missing for kind, each in figures.items()} == dict.fromkeys(KINDS, 0)


@pytest.mark.parametrize(("name", "kind", "where"), FOUND)
def test_exchanges_that_were_missing_before(name: str, kind: str, where: int) -> None:
    whole = recording(CAPTURES / name)
    intact, damage = truth(whole), KINDS[kind][0](whole, where)
    assert intact.untouched(damage) - intact.remaining(damage) == Counter()


@pytest.mark.parametrize("name", SAMPLE)
def test_damage_touches_little(name: str) -> None:
    whole = recording(CAPTURES / name)
    intact = truth(whole)
    assert whole.made_of(range(len(whole.begin))) == whole.data
    for kind, most in (("lost", 0.3), ("shuffled", 0), ("doubled", 0)):
        for damage in damaged(whole, kind, PLACES):
            assert intact.untouched(damage).total() >= (1 - most) * len(intact.rows)


def test_the_first_request_is_lost_and_the_next_one_has_a_lower_id() -> None:
    """A Java client numbers its first request before ApiVersions, and sends it behind. If
    ApiVersions is lost, the response of the other request is complete nevertheless."""
    whole = recording(CAPTURES / "kafka-4-quorum.pcap.zst")
    intact, damage = truth(whole), KINDS["lost"][0](whole, 6434)
    assert intact.untouched(damage) - intact.remaining(damage) == Counter()
