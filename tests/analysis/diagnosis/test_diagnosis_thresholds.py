"""Thresholds of rules that the user sets."""

from __future__ import annotations

import pytest

from analysis.diagnosis.catalog import RULES, limits
from analysis.diagnosis.run import DIAGNOSIS_TABLES, diagnose
from analysis.sql.query import no_tables
from dissector.errors import DissectorError
from tests.analysis.answering import capture
from tests.analysis.diagnosis.diagnosing import arrow_tables


@pytest.mark.parametrize(
    "name",
    [
        "kafka-4-cut-list-topics", "kafka-4-errors", "kafka-4-quorum", "kafka-4-racks",
        "kafka-4-tls", "librdkafka-mock-errors",
    ],
)  # fmt: skip
def test_thresholds_may_be_zero(name: str) -> None:
    """Then rules also examine what has no requests, times or latencies."""
    zero = {f"{rule}.{each}": 0 for rule in RULES for each in RULES[rule].limits}
    assert len(diagnose(arrow_tables(name), thresholds=zero))


def test_a_threshold_can_be_changed() -> None:
    changed = {"throttling.total_ms": 10_000.0, "throttling.critical_percent": 101}
    softer = diagnose(capture("kafka-4-quotas", DIAGNOSIS_TABLES), thresholds=changed)
    assert list(softer["severity"]) == ["warning"] * 2
    assert limits({"throttling": 1})["throttling"] == limits({})["throttling"] | {"total_ms": 1}


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("trottling", "there is no rule 'trottling'; choose from: .* Did you mean throttling"),
        ("throttling.total", "the rule throttling has no threshold 'total'; choose from: total_ms"),
        ("removed_versions", "the rule removed_versions has no threshold"),
    ],
)
def test_an_unknown_threshold_is_an_error(key: str, message: str) -> None:
    with pytest.raises(DissectorError, match=message):
        diagnose(no_tables(DIAGNOSIS_TABLES), thresholds={key: 1})
