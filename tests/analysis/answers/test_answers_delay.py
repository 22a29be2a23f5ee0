"""Delays agree with the logs of producer and readers, record by record."""

from __future__ import annotations

import pandas as pd
import pytest

import analysis
from tests.analysis.answering import capture, made
from tests.analysis.made_rows import partition
from tools.record.kafka.truth import read

MS = 1_000_000
WHERE = ["partition", "offset"]
CLIENT_MS = 60
"""From the wire to where the program notes it, on a busy machine, at both ends."""


def of_clients() -> pd.DataFrame:
    """Each record that a reader had: how long after its producer had made it, in ms.

    The first ones waited in the producer for its connections.
    """
    rows = pd.DataFrame(read("kafka-4-followed"))
    sent = rows.query("event == 'produced' and client_id == 'producer'")[WHERE]
    got = rows.query("event == 'received'").drop_duplicates(["client_id", *WHERE])
    got = got.merge(sent.query("offset > 4"), on=WHERE)
    return got.assign(ms=(got["time"] - got["created"]) / MS)


def test_which_record_took_longest_and_how_long() -> None:
    by = ["reader", "partition", "producer"]
    tables = capture("kafka-4-followed", ("partitions",))
    delays = analysis.delay(tables, by=by).query("producer == 'producer'").set_index(by[:2])
    readers = of_clients().groupby(["client_id", "partition"])
    assert len(readers) >= 6
    for key, times in readers:
        longest, row = times.loc[times["ms"].idxmax()], delays.loc[key]
        assert abs(row["max_ms"] - longest["ms"]) < CLIENT_MS
        if longest["ms"] > 10 * CLIENT_MS:
            assert row["slowest_offset"] == longest["offset"]
        if longest["ms"] < 1000:  # else it had to catch up, record by record
            assert abs(row["p50_ms"] - times["ms"].median()) < CLIENT_MS


def test_the_first_reader_counts_by_default() -> None:
    tables = capture("kafka-4-followed", ("partitions",))
    first = analysis.delay(tables).set_index("partition")
    readers = analysis.delay(tables, by=["partition", "reader"])
    assert first.loc[2, "fetched"] == first.loc[2, "produced"]  # one member read it to the end
    assert (first["max_ms"] <= readers.groupby("partition")["max_ms"].max()).all()
    assert (first["fetched"] >= readers.groupby("partition")["fetched"].max()).all()


def produced(at: int, offset: int) -> dict[str, object]:
    offsets = {"offset": offset, "last_offset": offset}
    return partition("Produce", at * MS, client_id="p") | offsets


def fetched(at: int, first: int, last: int, **columns: object) -> dict[str, object]:
    row = partition("Fetch", at * MS, client_id="r", offset=first, last_offset=last)
    return row | columns


@pytest.mark.parametrize(
    ("fetches", "expected"),
    [
        ([fetched(30, 5, 5)], 20),
        ([fetched(30, 3, 9)], 20),
        ([fetched(30, 5, 5), fetched(50, 5, 5)], 20),  # read twice
        ([fetched(30, 6, 9)], None),  # begun behind it
        ([fetched(30, 2, 4)], None),
        ([fetched(30, 5, 5, replica_id=2), fetched(50, 5, 5)], 40),  # a replica's
        ([fetched(30, 5, 5, error_code=6)], None),
        ([fetched(30, 5, 5, partition=1)], None),
        ([fetched(30, 5, 5, topic="u")], None),
        ([fetched(30, 5, 5, client_id="s"), fetched(20, 5, 5)], 10),
    ],
)
def test_one_record(fetches: list[dict[str, object]], expected: float | None) -> None:
    (row,) = analysis.delay(made(partitions=[produced(10, 5), *fetches])).to_dict("records")
    assert (row["produced"], row["fetched"]) == (1, expected is not None)
    assert row["max_ms"] == expected or (expected is None and pd.isna(row["max_ms"]))
    assert pd.isna(row["slowest_offset"]) == (expected is None)


@pytest.mark.parametrize("logs", [("old", "new"), (None, None)])
def test_a_topic_that_was_created_again_has_another_log(logs: tuple[str | None, ...]) -> None:
    """Its offsets begin at 0 again, even if no message has its id."""
    rows = [
        produced(at, offset) | {"topic_id": log}
        for log, since in zip(logs, (0, 1000), strict=True)
        for at, offset in ((since + 10, 0), (since + 20, 1))
    ]
    rows += [fetched(30, 0, 1, topic_id=logs[0]), fetched(1050, 0, 1, topic_id=logs[1])]
    (row,) = analysis.delay(made(partitions=rows)).to_dict("records")
    assert (row["produced"], row["fetched"]) == (4, 4)
    assert (row["p50_ms"], row["max_ms"]) == (25, 40)  # of 20, 10, 40 and 30


@pytest.mark.parametrize(("error_code", "delays"), [(3, [20, 540]), (6, [20])])
def test_a_broker_that_does_not_know_a_topic_shows_the_end_of_its_log(
    error_code: int, delays: list[int]
) -> None:
    """Produce requests before version 13 have no ids, and the new log is read late."""
    refused = produced(500, 0) | {"offset": None, "last_offset": None, "error_code": error_code}
    rows = [produced(10, 0), refused, produced(510, 0)]
    rows += [fetched(30, 0, 0, topic_id="old"), fetched(1050, 0, 0, topic_id="new")]
    late = fetched(1000, 0, 0, topic_id="old", error_code=100)
    slots = analysis.delay(made(partitions=[*rows, late]), by="500ms").sort_values("500ms")
    assert slots["max_ms"].dropna().tolist() == delays
