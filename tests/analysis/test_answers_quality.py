"""A capture that was cut on purpose is told to be so, in as many places as it was cut."""

from __future__ import annotations

import pandas as pd
import pytest

import analysis
from analysis.answers import ANSWERS
from tests.analysis.answering import capture, made
from tests.analysis.made_rows import connection, exchange

TABLES = ANSWERS["quality"].tables


def flaws(name: str) -> pd.DataFrame:
    return analysis.quality(capture(name, TABLES)).set_index("flaw")


@pytest.mark.parametrize("name", ["kafka-4-cut", "kafka-4-java"])
def test_a_whole_capture_has_no_flaw(name: str) -> None:
    found = flaws(name)
    assert found["count"].sum() == 0
    assert (found["total"] > 0).all()


@pytest.mark.parametrize(
    ("name", "flaw"),
    [
        ("kafka-4-cut-requests", "connections with one side only"),
        ("kafka-4-cut-responses", "connections with one side only"),
        ("kafka-4-cut-midway", "connections begun before the capture"),
        ("kafka-4-cut-snaplen", "problem: streams cut_packets"),
        ("kafka-4-tls", "connections encrypted"),
    ],
)
def test_what_was_done_to_a_capture_is_told(name: str, flaw: str) -> None:
    """What each was cut by stands in captures/README.md."""
    found = flaws(name)
    assert found.loc[flaw, "count"] > 0
    others = {"connections with one side only", "connections begun before the capture"} - {flaw}
    assert (found.loc[sorted(others), "count"] == 0).all()


def test_each_request_of_a_one_sided_capture_may_have_been_answered() -> None:
    found = flaws("kafka-4-cut-requests").loc[
        "requests whose response may be missing from the capture"
    ]
    assert found["count"] == found["total"] == 437  # as many as the ledger says the broker logged


def test_responses_without_requests_are_counted() -> None:
    found = flaws("kafka-4-cut-responses").loc["responses without their request"]
    assert found["count"] == found["total"] == 437


def test_made_flaws_are_counted() -> None:
    tables = made(
        connections=[
            connection(connection_id=0, client_lost_bytes=7, broker_lost_bytes=3),
            connection(connection_id=1, protocol="unknown", broker_port=443),
            connection(connection_id=2, protocol="unknown", client_bytes=0, broker_bytes=0),
        ],
        exchanges=[exchange(status="undecoded", api="Fetch", api_version=99), exchange()],
        batches=[{"crc_ok": False, "bytes": 70, "topic": "t", "partition": 3}, {"crc_ok": True}],
        problems=[{"stage": "packets", "kind": "unknown_link", "bytes": 5, "detail": "what"}],
    )
    found = analysis.quality(tables).set_index("flaw")
    expected = {
        "connections of no known protocol": (1, 3, 1200, "most with port 443"),
        "connections with holes": (1, 1, 10, "most in connection 0"),
        "exchanges not decoded": (1, 2, None, "Fetch 99"),
        "batches with a wrong checksum": (1, 2, 70, "first in t-3"),
        "problem: packets unknown_link": (1, None, 5, "what"),
    }
    for flaw, row in expected.items():
        found_row = found.loc[flaw].astype("object")
        assert tuple(found_row.where(found_row.notna(), None)) == row, flaw
    assert found["count"].sum() == len(expected)


def test_problems_count_the_packets_they_stand_for() -> None:
    rows = [
        {"stage": "packets", "kind": "unknown_link", "detail": "30 packets are", "count": count}
        for count in (30, 12)
    ]
    found = analysis.quality(made(problems=rows)).set_index("flaw")
    assert found.loc["problem: packets unknown_link", "count"] == 42
