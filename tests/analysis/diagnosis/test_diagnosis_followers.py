"""The rule `late_followers` about made rows."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.made_rows import SECOND, START, advertised, connection, exchange, exchange_at


@pytest.mark.parametrize(
    ("fetches", "columns", "says"),
    [
        (1, {}, "In the last 11.0 s of the capture, it sent no Fetch: it was down, or had become "
                "the leader."),
        (12, {}, "It sent no Fetch for 1.0 s."),
        (12, {"request_time": None}, "It sent no Fetch for an unknown time."),
    ],
    ids=["gone", "in a fetch session", "only responses"],
)  # fmt: skip
def test_a_follower_whose_last_fetch_of_a_partition_is_long_ago(
    fetches: int, columns: dict[str, None], says: str
) -> None:
    """No record was confirmed late. In a session (KIP-227), later Fetches name no partitions."""
    row = {"connection_id": 0, "topic": "t", "partition": 0, "error_code": 0}
    fetch = row | {"api": "Fetch", "time": START, "offset": 0, "replica_id": 2}
    produced = [
        row | {"api": "Produce", "time": START + n * SECOND, "last_offset": n, "correlation_id": n}
        | {"response_time": START + n * SECOND + 1}
        for n in range(1, 12)
    ]  # fmt: skip
    exchanges = [
        exchange(api="Produce", acks=-1, correlation_id=n, request_time=START + n * SECOND)
        for n in range(1, 12)
    ]
    exchanges += [
        exchange_at(START + n * SECOND, api="Fetch", correlation_id=99 + n) | columns
        for n in range(fetches)
    ]
    tables = made(
        exchanges=exchanges, partitions=[fetch | {"correlation_id": 99}, *produced],
        connections=[connection()],
    )  # fmt: skip
    (finding,) = findings_of("late_followers", tables)
    assert finding.evidence.endswith(says)


@pytest.mark.parametrize(
    ("wait", "fetches", "acks", "before", "setting"),
    [
        (6, range(12), -1, "answered", ["leader.replication.throttled.rate"]),
        (6, (0,), -1, "answered", ["num.replica.fetchers"]),
        (4, range(12), -1, "answered", []),
        (6, range(12), 1, "answered", []),
        (6, range(12), -1, "unanswered", []),
    ],
    ids=["throttled", "paused", "soon", "acks=1", "behind a lost response"],
)
def test_producers_wait_for_a_follower_in_sync(
    wait: int, fetches: Iterable[int], acks: int, before: str, setting: list[str]
) -> None:
    """Two fetch from offset 0 every half second, and get the record after `wait` seconds."""
    row = {"connection_id": 0, "topic": "t", "error_code": 0}
    end = START + wait * SECOND
    moves = [(START - SECOND + n * SECOND // 2, 0) for n in fetches if n < 2 * wait + 2]
    partitions = [
        row | {"api": "Fetch", "time": time, "offset": offset, "replica_id": replica}
        | {"correlation_id": 100 * replica + n, "partition": partition}
        for n, (time, offset) in enumerate([*moves, (end, 1)])
        for replica in (2, 3) for partition in (0, 1)
    ]  # fmt: skip
    exchanges = [
        exchange(api="Fetch", request_time=each["time"], correlation_id=each["correlation_id"])
        for each in partitions
    ]
    produced = {"api": "Produce", "time": START, "last_offset": 0, "response_time": end + 1}
    produced |= {"connection_id": 5, "correlation_id": 1}
    partitions += [row | produced | {"partition": n} for n in (0, 1)]
    sent = {"api": "Produce", "connection_id": 5}
    exchanges.append(exchange_at(START - SECOND, correlation_id=8, status=before, **sent))
    exchanges.append(
        exchange_at(START, end + 1, acks=acks, topics=["t"], correlation_id=1, **sent)
        | {"latency_ms": wait * 1000.0}
    )
    tables = made(exchanges=exchanges, partitions=partitions, connections=[connection()])
    findings = findings_of("late_followers", tables)
    assert [each.setting for each in findings] == setting * 2
    assert all(f"by up to {wait}.0 s" in each.sentence for each in findings)


@pytest.mark.parametrize(
    ("starts", "missing", "refused", "sentence"),
    [
        ((0, 30), {}, [], "2 followers were out of sync, one after the other"),
        ((0, 15), {}, [], "2 followers were out of sync, one after the other"),
        ((0, 5), {}, [], "2 followers were out of sync"),
        ((0, 30), {3: 0, 33: 1}, [],
         "2 brokers left the cluster one after the other, as in a rolling restart"),
        ((0, 30), {3: 0}, [33],
         "2 brokers left the cluster one after the other, as in a rolling restart"),
        ((0, 30), {3: 0}, [], "2 followers were out of sync, one after the other"),
        ((0, 30), {3: 0, 20: 1}, [], "2 followers were out of sync, one after the other"),
        ((0, 5), {7: 0, 8: 1}, [], "2 brokers left the cluster"),
    ],
    ids=["apart", "a Fetch much later", "at once", "rolling restart", "it refused connections",
         "one remains", "another time", "both left"],
)  # fmt: skip
def test_followers_that_are_out_of_sync_one_after_the_other(
    starts: tuple[int, ...], missing: dict[int, int], refused: list[int], sentence: str
) -> None:
    """Each sends no Fetch for 20 s; meanwhile eleven records to its partition are acknowledged.

    `missing`: the broker that is missing in Metadata at some times. `refused`: times of refused
    connections to broker 1.
    """
    partitions, exchanges = [], []
    for broker, start in enumerate(starts):
        row = {"connection_id": broker, "topic": "t", "partition": broker, "error_code": 0}
        for seconds, offset in ((start, 0), (start + 20, 12)):
            ids = {"correlation_id": 100 + seconds, "connection_id": broker}
            time = START + seconds * SECOND
            fetch = {"api": "Fetch", "time": time, "offset": offset, "replica_id": broker}
            partitions.append(row | fetch | ids)
            exchanges.append(exchange(api="Fetch", request_time=time, **ids))
        for n in range(1, 12):
            time = START + (start + n) * SECOND
            ids = {"correlation_id": start + n, "connection_id": broker}
            produced = {"api": "Produce", "time": time, "last_offset": n, "response_time": time + 1}
            partitions.append(row | produced | ids)
            exchanges.append(exchange(api="Produce", acks=-1, request_time=time, **ids))
    links = [connection(connection_id=n) for n in range(len(starts))]
    ends = {"broker_ip": "10.0.1.1", "connection_id": 7, "handshake_rtt_ms": None, "closed": "rst"}
    ends |= {"client_bytes": 0, "broker_bytes": 0, "client_packets": 1, "broker_packets": 1}
    links += [
        connection(first_time=time, last_time=time, protocol="unknown", **ends)
        for time in (START + n * SECOND for n in refused)
    ]
    brokers = [
        advertised(f"10.0.1.{broker}", broker_id=broker, correlation_id=1000 + seconds)
        | {"time": START + seconds * SECOND}
        for seconds, absent in ({0: 99} | missing).items() for broker in (0, 1) if broker != absent
    ]  # fmt: skip
    tables = made(exchanges=exchanges, partitions=partitions, connections=links, brokers=brokers)
    (finding,) = findings_of("late_followers", tables)
    assert finding.subject == "broker 0, broker 1"
    assert finding.sentence == sentence
    # A rolling restart is planned.
    assert finding.severity == ("note" if "rolling restart" in sentence else "warning")
    assert "Broker 1, from 2023-11-14 22:13" in finding.evidence


@pytest.mark.parametrize("is_refused", [False, True])
@pytest.mark.parametrize("is_delayed", [False, True])
def test_a_follower_of_several_partitions_is_one_finding(
    is_delayed: bool, is_refused: bool
) -> None:
    """Of each partition, eleven records were acknowledged before broker 2 had them. A leader may
    wait for it with another partition meanwhile. Without an ACL, it is not late."""
    row = {"connection_id": 0, "topic": "t", "error_code": 0}
    partitions = [
        row | {"partition": p, "api": "Fetch", "time": START, "offset": 0, "replica_id": 2}
        | {"correlation_id": 99}
        for p in range(3)
    ] + [
        row | {"partition": p, "api": "Produce", "time": START + n * SECOND, "last_offset": n}
        | {"correlation_id": n, "response_time": START + n * SECOND + 1}
        for p in range(3)
        for n in range(1, 12)
    ]  # fmt: skip
    exchanges = [
        exchange(api="Produce", acks=-1, correlation_id=n, request_time=START + n * SECOND)
        for n in range(1, 12)
    ]
    if is_delayed:
        other, end = {"connection_id": 0, "topic": "u", "partition": 0}, START + 13 * SECOND
        sent = {"api": "Produce", "time": START + SECOND, "last_offset": 0, "response_time": end}
        fetch = {"api": "Fetch", "replica_id": 2}
        partitions += [
            other | fetch | {"time": START, "offset": 0, "correlation_id": 99},
            other | fetch | {"time": end - SECOND, "offset": 1, "correlation_id": 100},
            other | sent | {"correlation_id": 50, "error_code": 0},
        ]
        exchanges.append(
            exchange_at(
                START + SECOND, end, api="Produce", acks=-1, topics=["u"], correlation_id=50
            )
            | {"latency_ms": 12_000.0}
        )
    if is_refused:
        denied = {"replica_id": 2, "error": "TOPIC_AUTHORIZATION_FAILED", "error_code": 29}
        partitions.append(row | {"partition": 0, "api": "Fetch", "time": START, **denied})
    tables = made(exchanges=exchanges, partitions=partitions, connections=[connection()])
    if is_refused:
        assert findings_of("late_followers", tables) == []
        return
    (finding,) = findings_of("late_followers", tables)
    assert finding.sentence == "Broker 2 is a follower of 3 partitions and was out of sync"
    assert finding.evidence.startswith("Most: 11 Produce requests to t-0 with acks=all")


@pytest.mark.parametrize(
    ("others", "named_s", "without_s", "is_withheld"),
    [(1, 30, 30, True), (0, 30, 30, False), (1, 2, 30, False), (1, 30, 11, False)],
    ids=["one partition", "no other partition", "no Fetch", "soon in sync"],
)
def test_a_follower_that_is_throttled_is_out_of_sync_with_one_partition(
    others: int, named_s: int, without_s: int, is_withheld: bool
) -> None:
    """A record a second for each partition. The follower confirms those of partition 1 at once,
    and fetches partition 0 for `named_s`, where the leader withholds records for `without_s`. The
    first Fetch comes after the first record."""
    row = {"connection_id": 0, "topic": "t", "error_code": 0}
    partitions, exchanges = [], []
    for n in range(30):
        for number in range(1 + others):
            time = START + n * SECOND
            ids = {"correlation_id": 10 * n + number, "connection_id": 5}
            produced = {"api": "Produce", "time": time, "last_offset": n, "partition": number}
            partitions.append(row | produced | ids | {"response_time": time + SECOND // 2})
            exchanges.append(
                exchange_at(time, time + SECOND // 2, api="Produce", acks=-1, topics=["t"], **ids)
            )
            fetched = {"api": "Fetch", "time": time + SECOND // 4, "replica_id": 2}
            ids = {"correlation_id": 10 * n + number + 5, "connection_id": 0}
            offset = n + 1 if number or n >= without_s else 0
            if number or n < named_s:
                partitions.append(row | fetched | ids | {"offset": offset, "partition": number})
            exchanges.append(exchange(api="Fetch", request_time=fetched["time"], **ids))
    links = [connection(connection_id=n) for n in (0, 5)]
    tables = made(exchanges=exchanges, partitions=partitions, connections=links)
    (finding,) = findings_of("late_followers", tables)
    assert (finding.setting == "leader.replication.throttled.rate") == is_withheld
    assert finding.evidence.startswith("Broker 2 fetched t-0, but 29 Produce") == is_withheld
