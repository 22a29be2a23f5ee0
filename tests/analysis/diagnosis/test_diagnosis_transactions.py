"""Transactions on made rows: those that stay open, and producers that share a transactional.id."""

from __future__ import annotations

from typing import Any

import pytest

import analysis
from analysis.diagnosis.run import DIAGNOSIS_TABLES
from tests.analysis.answering import capture, made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.made_rows import (
    MS,
    SECOND,
    START,
    connection,
    error,
    exchange,
    exchange_at,
    fetched,
    partition,
)


def test_a_transaction_that_began_before_the_capture_and_is_read() -> None:
    """A reader's batches have the producer id, but nothing else is known of the producer."""
    tables: Any = dict(capture("kafka-4-stuck", DIAGNOSIS_TABLES))
    tables["transactions"] = tables["transactions"][:0]
    tables["batches"] = tables["batches"].query("api == 'Fetch'")
    (finding,) = findings_of("stuck_transactions", tables, open_ms=1000)
    assert finding.sentence == (
        "A transaction that began before the capture holds back partition 0 of topic `ledger`"
    )


@pytest.mark.parametrize(("seconds", "fires"), [(9, False), (10, True)])
def test_a_transaction_that_began_before_the_capture(seconds: int, fires: bool) -> None:
    rows = [fetched(0, 5), fetched(seconds, 5)]
    findings = findings_of("stuck_transactions", made(exchanges=[exchange()], partitions=rows))
    assert [each.subject for each in findings] == ["topic `t`"] * fires
    assert [each.numbers["held"] for each in findings] == [5] * fires


@pytest.mark.parametrize("raises", [False, True], ids=["one epoch", "KIP-890"])
@pytest.mark.parametrize("has_markers", [False, True])
@pytest.mark.parametrize(
    ("has_coordinator", "lost_bytes"), [(False, 0), (True, 0), (True, 90)],
    ids=["leader", "coordinator", "lost packets"],
)  # fmt: skip
def test_the_end_of_a_transaction_is_at_its_coordinator(
    has_coordinator: bool, lost_bytes: int, has_markers: bool, raises: bool
) -> None:
    """The producer aborts a transaction each second. The capture was taken at the leader, and also
    contains the first request to the coordinator, or not."""
    rows: dict[str, list[dict[str, Any]]] = {"batches": [], "transactions": []}
    producer = {"connection_id": 0, "client_id": "eos", "producer_id": 7, "error_code": 0}
    for n in range(20):
        time, epoch = START + n * SECOND, n if raises else 0
        sent = producer | {"time": time, "response_time": time + MS, "producer_epoch": epoch}
        batch = {"api": "Produce", "is_transactional": True, "topic": "t", "partition": 0}
        rows["batches"].append(sent | batch | {"record_count": 2, "base_sequence": 2 * n})
        if has_markers:
            marker = {"api": "WriteTxnMarkers", "client_id": "marker", "committed": False}
            times = {"time": time + SECOND // 2, "response_time": time + SECOND * 6 // 10}
            rows["transactions"].append(sent | marker | times | {"producer_epoch": epoch + raises})
    if has_coordinator:
        given = {"given_producer_id": 7, "given_producer_epoch": 0, "producer_id": None}
        first = producer | given | {"api": "InitProducerId", "time": START - 1}
        rows["transactions"].append(first | {"response_time": START - 1})
    requests = [exchange_at(START + n * SECOND) for n in (0, 30)]
    link = connection(client_lost_bytes=lost_bytes)
    tables = made(exchanges=requests, connections=[link], **rows)
    outcomes = set(analysis.producers(tables, show="transactions")["outcome"])
    if has_markers:
        assert outcomes == {"aborted by the broker" if has_coordinator else "aborted"}
    else:
        assert outcomes == {"open"}
    findings = findings_of("stuck_transactions", tables)
    assert bool(findings) == (has_coordinator and not lost_bytes)


@pytest.mark.parametrize(
    ("closed", "end_s", "has_stopped"),
    [("rst", 2, True), ("fin", 2, True), (None, 2, False), ("fin", 30, False)],
    ids=["killed", "ended", "open", "later"],
)
def test_a_producer_that_stops_inside_a_transaction(
    closed: str | None, end_s: int, has_stopped: bool
) -> None:
    """The broker writes markers after 25 s."""
    sent = {"connection_id": 0, "client_id": "eos", "producer_id": 7, "error_code": 0}
    sent |= {"time": START, "response_time": START, "producer_epoch": 0}
    batch = {"api": "Produce", "is_transactional": True, "topic": "t", "partition": 0}
    given = {"given_producer_id": 7, "given_producer_epoch": 0, "producer_id": None}
    end = START + 25 * SECOND
    marker = {"api": "WriteTxnMarkers", "client_id": "broker", "committed": False, "time": end}
    marker |= {"connection_id": 1, "response_time": end, "producer_epoch": 1}
    tables = made(
        exchanges=[
            exchange(api="Produce", client_id="eos"),
            exchange_at(START + 40 * SECOND, client_id="broker", connection_id=1),
        ],
        connections=[
            connection(closed=closed, last_time=START + end_s * SECOND),
            connection(connection_id=1, closed=None),
        ],
        batches=[sent | batch | {"record_count": 1, "base_sequence": 0}],
        transactions=[sent | given | {"api": "InitProducerId"}, sent | marker],
    )
    (finding,) = findings_of("stuck_transactions", tables)
    assert ("ended 2.0 s after the start" in finding.evidence) == has_stopped
    assert finding.cause.startswith("the producer stopped") == has_stopped


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ({}, "A transaction that began before the capture holds back"),
        ({"client_id": "eos"}, "A transaction of client `eos` holds back"),
    ],
)
def test_the_last_stable_offset_shows_a_transaction_without_its_coordinator(
    names: dict[str, str], sentence: str
) -> None:
    batch = {
        "connection_id": 0, "api": "Produce", "topic": "t", "partition": 0, "base_offset": 5,
        "producer_id": 7, "producer_epoch": 0, "is_transactional": True, "is_control": False,
        "time": START, "error_code": 0, "record_count": 5,
    }  # fmt: skip
    tables = made(
        exchanges=[exchange()], partitions=[fetched(0, 5), fetched(30, 5)],
        batches=[batch | names] if names else [],
    )  # fmt: skip
    (finding,) = findings_of("stuck_transactions", tables)
    assert finding.sentence == f"{sentence} partition 0 of topic `t`"


@pytest.mark.parametrize("name", [None, 'it\'s a "name"', "n" * 300])
@pytest.mark.parametrize(
    ("seconds", "isolation", "has_coordinator", "fires"),
    [(15, "read_committed", True, True), (9, "read_committed", True, False),
     (15, "read_uncommitted", True, False), (15, "read_committed", False, False)],
    ids=["long", "short", "no reader waits", "without its coordinator"],
)  # fmt: skip
def test_a_long_transaction_that_its_producer_ends(
    name: str | None, seconds: int, isolation: str, has_coordinator: bool, fires: bool
) -> None:
    """Records of other producers follow its records at offset 5, and readers wait for its end."""
    end = START + seconds * SECOND
    sent = {"connection_id": 1, "client_id": name, "producer_id": 7, "producer_epoch": 0,
            "error_code": 0, "error": "NONE"}  # fmt: skip
    written = partition("Produce", START, connection_id=1, client_id=name)
    batches = [written | sent | {
        "base_offset": 5, "last_offset": 9, "record_count": 5, "is_transactional": True,
        "is_control": False, "base_sequence": 0,
    }]  # fmt: skip
    given = {"given_producer_id": 7, "given_producer_epoch": 0, "producer_id": None}
    begin = {"transactional_id": "eos", "time": START - MS, "response_time": START - MS}
    over = {"transactional_id": "eos", "time": end, "response_time": end, "committed": True}
    transactions = [
        sent | begin | given | {"api": "InitProducerId"},
        sent | over | {"api": "EndTxn"},
    ]
    seen = [fetched(n, 5 if n <= seconds else 20) | {"high_watermark": 20} for n in range(30)]
    fetches = [
        exchange_at(
            row["time"],
            api="Fetch",
            client_id="reader",
            correlation_id=row["correlation_id"],
            isolation_level=isolation,
        )
        for row in seen
    ]
    tables = made(
        exchanges=[*fetches, exchange_at(START, connection_id=1, api="Produce", client_id=name)],
        connections=[connection(), connection(connection_id=1)], partitions=seen,
        batches=batches, transactions=transactions if has_coordinator else [],
    )  # fmt: skip
    findings = findings_of("stuck_transactions", tables)
    assert len(findings) == fires
    for each in findings:
        of_client = f" of client `{name}`" if name else ""
        assert each.sentence.startswith(f"1 transaction{of_client} held back partition 0")
        assert each.clients == ((name,) if name else ())
        assert each.evidence.endswith("Readers: reader.")
        assert each.severity == "note"  # by design, for example of Flink


@pytest.mark.parametrize("name", [None, 'it\'s a "name"', "n" * 300])
@pytest.mark.parametrize(
    ("committed", "aborted", "fires"),
    [(0, 10, True), (10, 10, True), (11, 10, False), (0, 9, False)],
)
def test_a_client_that_aborts_its_transactions(
    name: str | None, committed: int, aborted: int, fires: bool
) -> None:
    """KIP-890: the epoch rises with each transaction."""
    tables: dict[str, list[dict[str, Any]]] = {"batches": [], "transactions": []}
    for n in range(committed + aborted):
        sent = {"client_id": name, "transactional_id": "eos"}
        batch = {"topic": "t", "partition": 0, "is_transactional": True, "record_count": 2}
        tables["batches"].append(of_producer(n, "Produce", n, base_sequence=0) | sent | batch)
        end = of_producer(n + 0.5, "EndTxn", n, committed=n < committed)
        tables["transactions"].append(end | sent)
    rows = made(exchanges=[exchange()], connections=[connection(connection_id=1)], **tables)
    findings = findings_of("stuck_transactions", rows)
    assert len(findings) == fires
    for each in findings:
        assert each.sentence.endswith(f"aborts 10 of its {committed + aborted} transactions")
        assert "They contain 20 records" in each.evidence
        assert each.clients == ((name,) if name else ())


def started(seconds: float, client: str, epoch: int) -> dict[str, Any]:
    """An InitProducerId with transactional id ``billing``."""
    time = START + int(seconds * SECOND)
    return {
        "connection_id": int(client[-1]), "client_id": client, "api": "InitProducerId",
        "transactional_id": "billing", "time": time, "response_time": time, "error_code": 0,
        "given_producer_id": 7, "given_producer_epoch": epoch,
    }  # fmt: skip


def of_producer(seconds: float, api: str, epoch: int, **columns: Any) -> dict[str, Any]:
    time = START + int(seconds * SECOND)
    return {
        "connection_id": 1, "client_id": "app-1", "api": api, "producer_id": 7, "error_code": 0,
        "producer_epoch": epoch, "time": time, "response_time": time,
    } | columns  # fmt: skip


def test_a_producer_that_is_fenced_without_an_epoch() -> None:
    refused = {"error_code": 90, "error": "PRODUCER_FENCED", "producer_epoch": None}
    row = of_producer(0, "InitProducerId", 0, **refused)
    tables = made(exchanges=[exchange()], transactions=[row])
    (finding,) = findings_of("fenced_producers", tables)
    assert finding.evidence == "1 response reported an outdated epoch."
    assert (finding.numbers["first_epoch"], finding.numbers["last_epoch"]) == (None, None)


@pytest.mark.parametrize("starts", [("app-1", "app-2"), ("app-1", "app-2", "app-1", "app-2")])
def test_instances_that_share_a_transactional_id(starts: tuple[str, ...]) -> None:
    """The broker aborts the transaction of the fenced instance (KIP-98): it is the same cause."""
    refused = {"error_code": 90, "error": "PRODUCER_FENCED", "committed": True}
    transactions = [
        *(started(2 * n, name, 2 * n) for n, name in enumerate(starts)),
        of_producer(1, "AddPartitionsToTxn", 0, topic="t", partition=0),
        of_producer(2.1, "WriteTxnMarkers", 1, committed=False),
        of_producer(2.2, "EndTxn", 0, **refused),
    ]
    links = [connection(connection_id=1), connection(connection_id=2, client_ip="10.0.0.2")]
    fenced = error(time=START + 22 * SECOND // 10, error="PRODUCER_FENCED", client_id="app-1")
    tables = made(
        exchanges=[exchange()], transactions=transactions, connections=links, errors=[fenced]
    )
    (finding,) = findings_of("fenced_producers", tables)
    assert finding.first_time == finding.last_time == fenced["time"]
    assert finding.clients == ("app-1", "app-2")
    assert ("fence each other" in finding.sentence) == (len(starts) == 4)
    assert (
        "Brokers aborted 1 transaction with 0 records, 1.1 s after its start." in finding.evidence
    )
    each = len(starts) // 2
    assert f"`app-1` on 10.0.0.1 ({each}), client `app-2` on 10.0.0.2 ({each})" in finding.evidence
    assert findings_of("stuck_transactions", tables) == []


@pytest.mark.parametrize(("name", "fires"), [("app-1", False), ("another", True)])
def test_transactions_that_end_because_of_another_producer_are_part_of_its_finding(
    name: str, fires: bool
) -> None:
    """While the coordinator aborts the transaction of a fenced producer, its EndTxn gets this."""
    refused = of_producer(0, "EndTxn", 0, error_code=90, error="PRODUCER_FENCED", committed=True)
    state = {"api": "EndTxn", "error": "INVALID_TXN_STATE", "error_code": 48, "retriable": False}
    errors = [
        error(time=START + n * SECOND, client_id=name, correlation_id=n, **state) for n in range(3)
    ]
    tables = made(exchanges=[exchange()], transactions=[refused], errors=errors)
    assert len(findings_of("fenced_producers", tables)) == 1
    assert len(findings_of("recurring_errors", tables)) == fires


@pytest.mark.parametrize("first", [0, 3], ids=["one epoch", "KIP-890"])
def test_a_producer_that_is_fenced_after_a_long_transaction_has_one_finding(first: int) -> None:
    """The broker aborts the transaction after 25 s, and refuses its end. With KIP-890, the
    epoch has risen before, with each transaction."""
    batch = {"api": "Produce", "is_transactional": True, "topic": "t", "partition": 0}
    batch |= {"record_count": 3, "base_sequence": 0}
    refused = {"error_code": 47, "error": "INVALID_PRODUCER_EPOCH", "committed": True}
    transactions = [
        started(0, "app-1", 0),
        of_producer(1, "AddPartitionsToTxn", first, topic="t", partition=0),
        of_producer(26, "WriteTxnMarkers", first + 1, committed=False, client_id="broker"),
        of_producer(30, "EndTxn", first, **refused),
    ]
    fenced = error(time=START + 30 * SECOND, error="INVALID_PRODUCER_EPOCH", client_id="app-1")
    tables = made(
        exchanges=[exchange(), exchange_at(START + 30 * SECOND)], transactions=transactions,
        connections=[connection(connection_id=1)], errors=[fenced],
        batches=[of_producer(1.5, "Produce", first) | batch],
    )  # fmt: skip
    (finding,) = findings_of("fenced_producers", tables)
    assert finding.setting == "transaction.timeout.ms"
    assert finding.evidence.endswith(
        "Brokers aborted 1 transaction with 3 records, 25.0 s after its start."
    )
    assert findings_of("stuck_transactions", tables) == []


@pytest.mark.parametrize("name", ["kafka-4-transactions", "kafka-4-java-4-0"])
def test_a_late_end_of_an_aborted_transaction_is_part_of_the_finding_about_it(name: str) -> None:
    tables = capture(name, DIAGNOSIS_TABLES)
    (finding,) = findings_of("stuck_transactions", tables)
    assert finding.evidence.endswith("lost. 1 later EndTxn failed with INVALID_TXN_STATE.")
    errors = findings_of("recurring_errors", tables)
    assert all(finding.clients != each.clients for each in errors)
