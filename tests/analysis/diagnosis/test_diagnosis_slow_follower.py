"""The rule `slow_broker` about made rows: Produce requests that wait for a follower."""

from __future__ import annotations

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.made_rows import MS, SECOND, START, connection, exchange_at


@pytest.mark.parametrize(
    ("delays", "names_follower"),
    [((5, 250), True), ((100, 250), False), ((240, 250), False), ((250,), False)],
    ids=["one is late", "both are late", "equal", "only one"],
)
def test_produce_requests_that_wait_for_one_follower(
    delays: tuple[int, ...], names_follower: bool
) -> None:
    """Followers 2 and 3 have each record after some ms, and the leader then responds."""
    row = {"topic": "t", "partition": 0, "error_code": 0}
    partitions, exchanges = [], []
    for n in range(150):
        time = START + n * SECOND
        end = time + max(delays) * MS + MS
        ids = {"connection_id": 0, "correlation_id": n}
        exchanges.append(
            exchange_at(time, end, api="Produce", topics=["t"], latency_ms=(end - time) / MS, **ids)
        )
        produced = {"api": "Produce", "time": time, "response_time": end, "last_offset": n}
        partitions.append(row | ids | produced)
        for replica, delay in enumerate(delays, 2):
            for at, offset in ((time - 100 * MS, n), (time + delay * MS, n + 1)):
                ids = {"connection_id": replica, "correlation_id": 2 * n + (at > time)}
                exchanges.append(exchange_at(at, api="Fetch", topics=["t"], **ids))
                fetched = {"api": "Fetch", "time": at, "offset": offset, "replica_id": replica}
                partitions.append(row | ids | fetched | {"high_watermark": n})
    links = [connection(connection_id=n) for n in (0, 2, 3)]
    tables = made(exchanges=exchanges, partitions=partitions, connections=links)
    (finding,) = findings_of("slow_broker", tables)
    assert finding.sentence == (
        "Broker 3, a follower, delays Produce requests to 10.0.0.9:9092: one Produce in twenty "
        "takes 251 ms or more"
        if names_follower
        else "Broker 10.0.0.9:9092 is slow: one Produce in twenty takes 251 ms or more"
    )
    assert ("of t-0 after 250 ms or more, and broker 2" in finding.evidence) == names_follower
    assert (finding.setting is None) == names_follower
