"""Offsets that were assigned twice, as made rows."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.made_rows import SECOND, START, exchange


def batch(second: int, first: int, last: int, **columns: Any) -> dict[str, Any]:
    """A batch whose records got the offsets `first` to `last`."""
    return {
        "api": "Produce", "time": START + second * SECOND, "client_id": "app", "topic": "t",
        "topic_id": "id-1", "partition": 0, "base_offset": first, "last_offset": last,
        "error_code": 0, "crc": 1000 * second + first, "bytes": 100, "connection_id": 0,
        "correlation_id": second,
    } | columns  # fmt: skip


OLD = [batch(n, 10 * n, 10 * n + 9) for n in range(5)]


@pytest.mark.parametrize(
    ("batches", "lost"),
    [
        (OLD, 0),
        ([*OLD, batch(9, 50, 59)], 0),
        ([*OLD, batch(9, 30, 39)], 20),
        ([*OLD, batch(9, 35, 36)], 15),  # within a batch
        ([*OLD, batch(9, 30, 39), batch(10, 40, 49)], 20),
        ([*OLD, batch(9, 30, 39), batch(12, 20, 29)], 30),  # truncated twice
        ([*OLD, batch(9, 40, 49, crc=OLD[4]["crc"])], 0),  # sent again, and stored once
        ([*OLD, batch(9, 40, 49, error_code=6)], 0),
        ([*OLD, batch(9, 40, 49, api="Fetch")], 0),
        ([*OLD, batch(9, 40, 49, partition=1)], 0),
        ([*OLD, batch(9, 0, 9, topic_id="id-2")], 0),  # created again
        ([OLD[4], OLD[2], OLD[3], OLD[0]], 0),  # of several connections, not in order of offsets
        ([*OLD, batch(9, -1, -1)], 0),  # acks=0
    ],
)
def test_offsets_that_were_assigned_again(batches: list[dict[str, Any]], lost: int) -> None:
    findings = findings_of("lost_records", made(batches=batches, exchanges=[exchange()]))
    expected = [f"{lost} acknowledged records of topic `t` were lost"] if lost else []
    assert [each.sentence for each in findings] == expected


@pytest.mark.parametrize(
    ("first", "offsets"), [(49, "acknowledged offset 49 until"), (48, "offsets 48 to 49 until")]
)
def test_the_evidence_names_one_offset_or_the_first_and_the_last(first: int, offsets: str) -> None:
    tables = made(batches=[*OLD, batch(9, first, 49)], exchanges=[exchange()])
    (finding,) = findings_of("lost_records", tables)
    assert offsets in finding.evidence


@pytest.mark.parametrize(("ids", "count"), [([], 0), (["id-1"], 1), (["id-1", "id-2"], 0)])
def test_without_ids_in_produce_the_id_is_that_of_metadata(ids: list[str], count: int) -> None:
    batches = [row | {"topic_id": None} for row in (*OLD, batch(9, 30, 39))]
    topics = [{"topic": "t", "topic_id": each, "partition": 0, "time": START} for each in ids]
    findings = findings_of("lost_records", made(batches=batches, topics=topics))
    assert len(findings) == count


@pytest.mark.parametrize(
    ("acks", "setting"), [(1, "acks=all"), (-1, "min.insync.replicas=2"), (None, "acks=all")]
)
def test_the_setting_depends_on_acks(acks: int | None, setting: str) -> None:
    batches = [*OLD, batch(9, 30, 39), *(row | {"partition": 1} for row in OLD)]
    batches += [batch(10, 0, 0, partition=1, client_id="other")]
    exchanges = [
        exchange(
            correlation_id=row["correlation_id"], request_time=row["time"], api="Produce", acks=acks
        )
        for row in OLD
    ]  # fmt: skip
    (finding,) = findings_of("lost_records", made(batches=batches, exchanges=exchanges))
    assert finding.sentence == "70 acknowledged records of topic `t` were lost"
    assert finding.evidence.startswith("In 2 partitions, most in partition 1 of topic `t`: ")
    assert finding.setting == setting


@pytest.mark.parametrize("topic", ["t", 'it\'s a "name"', "n" * 249])
@pytest.mark.parametrize(
    ("replicas", "setting"),
    [([[2]], "default.replication.factor"), ([[1, 2]], "acks=all"), ([[2], [2, 3]], "acks=all"),
     ([None], "acks=all"), ([], "acks=all")],
    ids=["one", "two", "a reassignment", "unknown", "not in the capture"],
)  # fmt: skip
def test_a_partition_with_one_replica(
    topic: str, replicas: list[list[int] | None], setting: str
) -> None:
    """With one replica, min.insync.replicas=2 would make all producers with acks=all fail."""
    states = [{"topic": topic, "topic_id": "id-1", "partition": 0, "time": START + n}
              | {"replicas": each} for n, each in enumerate(replicas)]  # fmt: skip
    batches = [row | {"topic": topic} for row in (*OLD, batch(9, 30, 39))]
    (finding,) = findings_of("lost_records", made(batches=batches, topics=states))
    assert finding.setting == setting


def test_a_client_that_uses_a_correlation_id_again() -> None:
    batches = [row | {"correlation_id": 0} for row in (*OLD, batch(9, 30, 39))]
    exchanges = [
        exchange(
            correlation_id=0, request_time=row["time"], api="Produce", acks=1, request_packet=n
        )
        for n, row in enumerate(batches)
    ]  # fmt: skip
    (finding,) = findings_of("lost_records", made(batches=batches, exchanges=exchanges))
    assert finding.sentence == "20 acknowledged records of topic `t` were lost"
    assert (finding.requests, finding.first_packet) == (2, 3)


def test_the_first_packet_is_that_of_the_first_time() -> None:
    """Packet numbers start at 1 in each file, so the smallest may be that of a later request."""
    batches = [
        row | {"partition": partition, "time": row["time"] - partition}
        for row in (*OLD, batch(9, 30, 39)) for partition in (0, 1)
    ]  # fmt: skip
    exchanges = [
        exchange(
            correlation_id=row["correlation_id"], request_time=row["time"], api="Produce", acks=1,
            request_packet=100 - n,
        )
        for n, row in enumerate(sorted(batches, key=itemgetter("time")))
    ]  # fmt: skip
    (finding,) = findings_of("lost_records", made(batches=batches, exchanges=exchanges))
    packets = {row["request_time"]: row["request_packet"] for row in exchanges}
    assert finding.first_packet == packets[finding.first_time]
