"""Groups that skip the first records of partitions, on made rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.made_rows import SECOND, START, batch, connection, exchange_at, partition

NAMES = [None, 'it\'s a "name"', "n" * 249]


def added(name: str | None = "app", topic: str = "t") -> dict[str, list[dict[str, Any]]]:
    """A member reads partition 0; records of the new partition 1 are produced after 10 and 20 s,
    and it begins at their end, after 30 s."""
    own = {"client_id": name, "connection_id": 0, "topic": topic}
    new = own | {"partition": 1}

    def at(api: str, seconds: int, row: dict[str, Any], **columns: Any) -> dict[str, Any]:
        return partition(api, START + seconds * SECOND, **row | columns)

    partitions = [
        at("OffsetFetch", 0, own, group_id="g", offset=7), at("Fetch", 0, own, offset=7),
        at("OffsetFetch", 29, new, group_id="g", offset=None),
        at("ListOffsets", 29, new, asked_timestamp=-1, offset=20),
        at("Fetch", 30, new, offset=20, topic_id="id-1"), at("Fetch", 31, new, offset=25),
        at("Fetch", 32, new, offset=25) | {"time": None, "response_time": None},
    ]  # fmt: skip
    sent = {"topic": topic, "partition": 1, "connection_id": 1, "client_id": "shop"}
    batches = [
        batch("Produce", START + seconds * SECOND, **sent, base_offset=base, last_offset=base + 9,
              error_code=0, topic_id="id-1")
        for seconds, base in ((10, 0), (20, 10))
    ]  # fmt: skip
    exchanges = [
        exchange_at(START + n * SECOND, api=api, client_id=name, topics=[topic], group_id=group,
                    correlation_id=n)
        for n, (api, group) in enumerate([("OffsetFetch", "g"), ("Fetch", None)])
    ]  # fmt: skip
    return {
        "exchanges": exchanges, "partitions": partitions, "batches": batches,
        "connections": [connection(), connection(connection_id=1)],
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=["null", "quotes", "long"])
@pytest.mark.parametrize("topic", ["t", 'it\'s a "name"'])
def test_a_group_that_begins_at_the_end_of_a_new_partition(name: str | None, topic: str) -> None:
    (finding,) = findings_of("lost_records", made(**added(name, topic)))
    assert finding.sentence.startswith(f"Group `g` skipped 20 records of topic `{topic}`")
    assert f"The first Fetch of {topic}-1, at " in finding.evidence
    assert finding.clients == ((name,) if name else ())
    assert (finding.severity, finding.setting) == ("critical", "auto.offset.reset=earliest")


@pytest.mark.parametrize(
    ("table", "index", "changed", "records"),
    [
        ("partitions", 0, {"offset": None}, 0),
        ("partitions", 2, {"offset": 20}, 0),
        ("partitions", 3, {"asked_timestamp": -2}, 0),
        ("partitions", 4, {"offset": 0}, 0),
        ("partitions", 4, {"topic_id": "id-2"}, 0),
        ("partitions", 1, {"time": START + 6 * SECOND}, 10),
        ("partitions", 1, {"time": START + 16 * SECOND}, 0),
        ("batches", 0, {"error_code": 6}, 10),
        ("batches", 0, {"base_offset": None, "last_offset": None}, 10),
        ("batches", 1, {"base_offset": 20, "last_offset": 29}, 10),
    ],
    ids=[
        "no commits", "a commit", "earliest", "from the start", "another topic",
        "starts 4 s before", "has just started", "refused", "acks=0", "after the end",
    ],
)  # fmt: skip
def test_records_that_a_group_does_not_skip(
    table: str, index: int, changed: dict[str, Any], records: int
) -> None:
    tables = added()
    tables[table][index] |= changed
    findings = findings_of("lost_records", made(**tables))
    assert [f"skipped {records} records" in each.sentence for each in findings] == [True] * (
        records > 0
    )
