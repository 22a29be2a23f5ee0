"""Findings about consumers whose offset is out of range or missing, on made rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.made_rows import MS, SECOND, START, connection, error, exchange, exchange_at


@pytest.mark.parametrize("replica_id", [None, 2])
def test_a_consumer_that_skips_records_is_one_response(replica_id: int | None) -> None:
    """A follower that is new gets the same error, and starts at the start of the log."""
    reset = error(error_code=1, error="OFFSET_OUT_OF_RANGE", api="Fetch", retriable=True)
    fetch = {"api": "Fetch", "client_id": "app", "topic": "t", "partition": 0, "time": START}
    tables = made(
        exchanges=[exchange(api="Fetch")], errors=[reset], connections=[connection()],
        partitions=[fetch | {"replica_id": replica_id, "offset": 3}],
    )  # fmt: skip
    causes = [each.cause for each in findings_of("recurring_errors", tables)]
    assert ["retention" in cause for cause in causes] == [True] * (replica_id is None)


@pytest.mark.parametrize(
    ("later", "evidence"),
    [
        # auto.offset.reset=latest: the leader returns the end, and the consumer continues there.
        ([("ListOffsets", 5_003), ("Fetch", 5_003)],
         "Consumers skipped up to 5,000 records: from offset 3 to 5,003 of partition 0."),
        # The application asks for the end, and seeks to the start.
        ([("ListOffsets", 5_003), ("Fetch", 1)],
         "Consumers went back by up to 2 offsets: from offset 3 to 1 of partition 0."),
        # KIP-392: the consumer fetches from the leader what a follower does not have yet.
        ([("Fetch", 3)], "Consumers continued at the same offset."),
        ([("ListOffsets", 10)],
         "Consumers skipped up to 7 records: from offset 3 to 10 of partition 0."),
        ([("Fetch", 2**63 - 1)], f"Consumers skipped up to {2**63 - 4:,} records: from offset 3 to "
         f"{2**63 - 1:,} of partition 0."),
        ([], "The consumer requested offset 3 of partition 0. The capture does not contain the "
         "offset at which it continued."),
    ],
    ids=["latest", "seek", "same", "listed", "hostile", "end of the capture"],
)  # fmt: skip
def test_the_records_that_a_consumer_skips(later: list[tuple[str, int]], evidence: str) -> None:
    partition = {"connection_id": 0, "client_id": "app", "topic": "t", "partition": 0}
    refused = partition | {"api": "Fetch", "time": START, "offset": 3, "error_code": 1}
    tables = made(
        exchanges=[exchange(api="Fetch")], connections=[connection()],
        errors=[error(error_code=1, error="OFFSET_OUT_OF_RANGE", api="Fetch", retriable=True)],
        partitions=[refused | {"error": "OFFSET_OUT_OF_RANGE"}] + [
            partition | {"api": api, "time": START + n * SECOND, "offset": offset, "error_code": 0,
                         "last_offset": 2**63 - 1 if offset > 9999 else None}
            for n, (api, offset) in enumerate(later, 1)
        ],
    )  # fmt: skip
    (finding,) = findings_of("recurring_errors", tables)
    assert finding.evidence.endswith(evidence)
    assert ("retention" in finding.cause) == ("back" not in evidence)


@pytest.mark.parametrize(
    ("later", "client_id", "findings"), [(0, "app", 1), (5_003, "app", 2), (0, "follower", 2)]
)
def test_a_reset_because_a_topic_was_created_again(
    later: int, client_id: str, findings: int
) -> None:
    """The consumer goes back to the start of the new log; retention makes it skip records. A
    follower may request a new topic before its leader has the id."""
    partition = {"connection_id": 0, "client_id": "app", "topic": "t", "partition": 0}
    refused = partition | {"api": "Fetch", "time": START, "offset": 900, "error_code": 1}
    errors = [
        error(error_code=100, error="UNKNOWN_TOPIC_ID", api="Fetch", retriable=True,
              client_id=client_id, time=START + n * SECOND)
        for n in range(40)
    ]  # fmt: skip
    errors.append(error(error_code=1, error="OFFSET_OUT_OF_RANGE", api="Fetch", retriable=True))
    rows = [
        exchange_at(START + n * SECOND, api="Fetch", correlation_id=n, client_id=client_id)
        for n in range(41)
    ]
    tables = made(
        exchanges=rows, connections=[connection()], errors=errors,
        partitions=[
            refused | {"error": "OFFSET_OUT_OF_RANGE"},
            partition | {"api": "Fetch", "time": START + SECOND, "offset": later, "error_code": 0},
        ],
    )  # fmt: skip
    reported = findings_of("recurring_errors", tables)
    assert len(reported) == findings
    assert reported[0].cause.startswith("the topic was deleted")
    assert reported[0].severity == "critical"
    assert ("went back by up to 900 offsets" in reported[0].evidence) == (findings == 1)


@pytest.mark.parametrize(
    ("others", "fires"),
    [
        ([("producer", "Produce")], True),
        ([], False),  # only the coordinator is in the capture: the leader is another broker
        ([("producer", "Produce"), ("app", "ListOffsets")], False),  # the group has just begun
        ([("other", "Fetch"), ("app", "Fetch")], False),
    ],
)
def test_a_consumer_that_reads_no_partition_without_an_offset(
    others: list[tuple[str, str]], fires: bool
) -> None:
    """A new group rebalances some times, and asks for its offsets each time."""
    place: dict[str, Any] = {"topic": "t", "partition": 0, "error_code": 0}
    starts = [START + n * SECOND for n in range(6)]
    asked = [
        place | {"api": "OffsetFetch", "client_id": "app", "group_id": "g", "connection_id": 0,
                 "correlation_id": n, "time": at, "response_time": at + MS}
        for n, at in enumerate(starts)
    ]  # fmt: skip
    rows = [
        place | {"api": api, "client_id": name, "time": START + 6 * SECOND, "connection_id": 1}
        for name, api in others
    ]
    tables = made(
        exchanges=[
            exchange_at(at, at + MS, api="OffsetFetch", correlation_id=n)
            for n, at in enumerate(starts)
        ],
        partitions=asked + rows, connections=[connection(last_time=START + 7 * SECOND)],
        memberships=[{"client_id": "app", "group_id": "g", "connection_id": 0}],
    )  # fmt: skip
    assert len(findings_of("recurring_errors", tables)) == fires


@pytest.mark.parametrize(("offsets", "setting"), [([3, 3, 3], "auto.offset.reset"),
                                                  ([3, 4, 5], "retention.ms")])  # fmt: skip
def test_a_consumer_that_does_not_reset_its_offset(offsets: list[int], setting: str) -> None:
    """The application starts it again, and it requests the committed offset again."""
    rows = [
        {"connection_id": n, "client_id": "app", "topic": "t", "partition": 0, "api": "Fetch"}
        | {"time": START + n, "offset": offset, "error_code": 1, "error": "OFFSET_OUT_OF_RANGE"}
        for n, offset in enumerate(offsets)
    ]
    tables = made(
        exchanges=[exchange(api="Fetch")], connections=[connection()], partitions=rows,
        errors=[error(error_code=1, error="OFFSET_OUT_OF_RANGE", api="Fetch", retriable=True)],
    )  # fmt: skip
    (finding,) = findings_of("recurring_errors", tables)
    assert finding.setting == setting
    assert ("3 times, and did not ask for another one" in finding.evidence) == (
        setting == "auto.offset.reset"
    )


@pytest.mark.parametrize("topic", ["t", "it's", None])
@pytest.mark.parametrize(("deleted_s", "same_topic"), [(4, True), (6, True), (4, False)])
def test_records_that_a_client_deleted(deleted_s: int, same_topic: bool, topic: str | None) -> None:
    """KIP-107: an administrator deletes records that a consumer has not read."""
    reset = {"time": START + 5 * SECOND, "error_code": 1, "error": "OFFSET_OUT_OF_RANGE"}
    refused = {"connection_id": 0, "client_id": "app", "topic": topic, "api": "Fetch"} | reset
    names = [topic] if topic else None
    tables = made(
        exchanges=[
            exchange(api="Fetch"),
            exchange_at(START + deleted_s * SECOND, api="DeleteRecords", client_id="cleaner",
                        topics=names if same_topic else ["other"]),
        ],
        connections=[connection()],
        errors=[error(api="Fetch", retriable=True, topic=topic, **reset)],
        partitions=[refused | {"partition": 0, "offset": 3}],
    )  # fmt: skip
    (finding,) = findings_of("recurring_errors", tables)
    is_deleted = deleted_s == 4 and same_topic and topic is not None
    assert ("Client `cleaner` sent DeleteRecords at" in finding.evidence) == is_deleted
    assert finding.cause.startswith("a client deleted records") == is_deleted
    assert (finding.setting == "retention.ms") != is_deleted
