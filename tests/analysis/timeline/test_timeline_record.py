"""Traces of records, compared with what producers and consumers logged."""

from __future__ import annotations

import pandas as pd
import pytest

import analysis
from analysis.sql.query import connected
from analysis.timeline.record import TABLES
from dissector.errors import DissectorError
from tests.analysis.answering import capture, made
from tests.analysis.commands import Ran
from tests.analysis.made_rows import START, exchange
from tests.captures.truth import CAPTURES
from tools.record.kafka.truth import read

FOLLOWED = CAPTURES / "kafka-4-followed.pcap.zst"
MOCK = "librdkafka-mock-produce"
RECORD = ["topic", "partition", "offset"]


@pytest.fixture(scope="module")
def logged() -> pd.DataFrame:
    """What the clients of the recording logged."""
    facts = read("kafka-4-followed")
    return pd.DataFrame(row for row in facts if row["source"] == "client")


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return analysis.load(FOLLOWED, TABLES)


@pytest.fixture(scope="module")
def events(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The traces of all records: one for each offset, of three partitions."""
    offsets = range(int(tables["records"]["offset"].max()) + 1)
    with connected(tables, TABLES) as connection:  # to convert the tables takes longer than a query
        traces = [analysis.trace(connection, topic="work", offset=offset) for offset in offsets]
    rows = pd.concat(traces, ignore_index=True)
    rows["time"] = rows["time"].astype("int64")
    return rows


def test_produced_records_are_those_of_the_producers(
    events: pd.DataFrame, logged: pd.DataFrame
) -> None:
    log = logged.query("event == 'produced'").set_index(["client_id", "partition", "offset"])
    assert len(log) > 100
    for event in ("produced", "acknowledged"):
        wire = events[events["event"] == event].set_index(["client_id", "partition", "offset"])
        assert {*wire.index} == {*log.index}
        # A producer logs after the response.
        assert (wire["time"] <= log["time"].reindex(wire.index)).all()
    created = log["created"].reindex(
        pd.MultiIndex.from_frame(
            events[events["event"] == "produced"][["client_id", "partition", "offset"]]
        )
    )
    produced = events.loc[events["event"] == "produced", "time"].to_numpy()
    assert (created.to_numpy() <= produced).all()


def test_consumers_received_what_was_fetched(events: pd.DataFrame, logged: pd.DataFrame) -> None:
    log = logged.query("event == 'received'").set_index(["client_id", "partition", "offset"])
    fetched = events[events["event"] == "fetched"]
    first = fetched.groupby(["client_id", "partition", "offset"])["time"].min()
    assert len(log) > 100
    assert {*log.index} <= {*first.index}
    assert (first.reindex(log.index).to_numpy() <= log["time"].to_numpy()).all()
    groups = logged.dropna(subset="group_id").groupby("client_id")["group_id"].first()
    readers = fetched[fetched["client_id"].isin(groups.index)]
    assert (readers["group_id"] == readers["client_id"].map(groups)).all()


def test_the_first_commit_beyond_a_record(events: pd.DataFrame, logged: pd.DataFrame) -> None:
    log = logged.query("event == 'committed'")
    committed = events[events["event"] == "committed"].set_index(["group_id", *RECORD[1:]])
    count = 0
    for (group, partition, offset), event in committed.iterrows():
        own = log[(log["group_id"] == group) & (log["partition"] == partition)]
        beyond = own[own["offset"] > offset]
        first = beyond.loc[beyond["time"].idxmin()]
        assert event["client_id"] == first["client_id"]
        assert event["time"] <= first["time"]
        count += 1
    assert count > 100


def test_times_between_events(events: pd.DataFrame) -> None:
    for _, rows in events.groupby(RECORD):
        times = rows["time"].to_numpy()
        assert (times[1:] >= times[:-1]).all()
        assert rows["since_produced_ms"].to_numpy() == pytest.approx((times - times[0]) / 1e6)
        assert rows["since_previous_ms"].to_numpy()[1:] == pytest.approx(
            (times[1:] - times[:-1]) / 1e6
        )
        assert pd.isna(rows["since_previous_ms"].iloc[0])


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"key": "customer-1"}, {"customer-1"}),
        ({"key": "customer-*", "header": "source=acks-1"}, {f"customer-{n}" for n in range(5)}),
        ({"header": "source=acks-*"}, {f"customer-{n}" for n in range(5)}),
        ({"header": "source=acks"}, set()),
        ({"header": "source=[a]cks-*"}, set()),
        ({"key": "customer-1", "topic": "none"}, set()),
    ],
)
def test_records_by_key_and_header(options: dict[str, str], keys: set[str]) -> None:
    tables = capture(MOCK, TABLES)
    events = analysis.trace(tables, **options, limit=1000)
    records = tables["records"].set_index(RECORD)["key"]
    rows = [records.loc[tuple(row)] for row in events[RECORD].drop_duplicates().to_numpy()]
    assert {(row if isinstance(row, bytes) else row.iloc[0]).decode() for row in rows} == keys


@pytest.mark.parametrize(
    ("key", "pattern"),
    [('{"id": 7}', '{"id": 7*'), ("it's", "*'s"), (r"a\b", r"a\*"), ("a\tb", "a\t*"), ("né", "*é")],
)
def test_a_pattern_has_any_characters(key: str, pattern: str) -> None:
    place = {"connection_id": 0, "correlation_id": 7, "topic": "t", "partition": 0, "offset": 4}
    record = place | {"api": "Produce", "time": START, "key": key.encode()}
    tables = made(records=[record], exchanges=[exchange(api="Produce")])
    assert analysis.trace(tables, key=pattern)["event"].to_list() == ["produced"]
    assert not len(analysis.trace(tables, key=f"{pattern}?"))


MS = 1_000_000


@pytest.mark.parametrize(
    ("ends", "committed_ms"),
    [
        ([("EndTxn", True)], 20),
        ([("EndTxn", False)], None),
        ([("EndTxn", False), ("EndTxn", True)], None),
        ([("InitProducerId", None), ("EndTxn", True)], None),
        ([], None),
    ],
    ids=["committed", "aborted", "aborted before", "fenced", "open"],
)
def test_offsets_in_a_transaction_are_committed_with_it(
    ends: list[tuple[str, bool | None]], committed_ms: int | None
) -> None:
    """A producer that starts again aborts the open transaction of its predecessor."""
    place = {"connection_id": 0, "topic": "t", "partition": 0, "error_code": 0}
    group = {"client_id": "app", "group_id": "g"}

    def times(step: int) -> dict[str, int]:
        return {"correlation_id": step, "time": START + step * 10 * MS}

    apis = ["Produce", "TxnOffsetCommit", *(api for api, _ in ends)]
    exchanges = [
        exchange(
            api=api, correlation_id=step, transactional_id="x", request_time=START + step * 10 * MS,
            response_time=START + step * 10 * MS,
        )
        for step, api in enumerate(apis)
    ]  # fmt: skip
    at = {"response_time": START + 10 * MS}
    tables = made(
        records=[place | times(0) | {"api": "Produce", "offset": 4, "key": b"a"}],
        exchanges=exchanges,
        partitions=[place | group | times(1) | at | {"api": "TxnOffsetCommit", "offset": 5}],
        transactions=[
            times(step) | {"connection_id": 0, "response_time": START + step * 10 * MS, "api": api,
                           "transactional_id": "x", "error_code": 0, "committed": committed}
            for step, (api, committed) in enumerate(ends, 2)
        ],
    )  # fmt: skip
    events = analysis.trace(tables, key="a").set_index("event")["since_produced_ms"].to_dict()
    assert events.get("committed") == committed_ms
    assert analysis.lag(tables)["committed_offset"].tolist() == [5] * (committed_ms is not None)


def test_the_commit_of_a_transaction_is_its_end() -> None:
    recorded = analysis.load(CAPTURES / "kafka-4-transactions.pcap.zst", TABLES)
    events = analysis.trace(recorded, topic="ledger", partition=0, offset=4)
    (packet,) = events.loc[events["event"] == "committed", "packet"]
    by_packet = recorded["exchanges"].set_index("response_packet")
    assert by_packet.loc[packet, "api"] == "EndTxn"


def test_command(ran: Ran) -> None:
    command = ["trace", str(FOLLOWED), "--topic", "work", "--partition", "0", "--offset", "10"]
    rows = ran(*command, "--format", "jsonl").rows
    assert [row["event"] for row in rows] == [
        "produced", "acknowledged", "fetched", "fetched", "committed", "committed",
    ]  # fmt: skip
    assert {row["offset"] for row in rows} == {10}
    err = ran(*command[:-1], "100000").err
    assert err.endswith("No records that match the options in this capture.\n")
    err = ran("trace", str(FOLLOWED.with_name("kafka-4-tls.pcap.zst")), "--key", "a").err
    assert err.startswith(
        "No records that match the options in the 3 of 19 connections that could be read; "
    )


def test_a_pattern_matches_whole_bytes() -> None:
    """The bytes `ab` are 6162 in hex, where 16 is not a byte."""
    place = {"connection_id": 0, "correlation_id": 7, "topic": "t", "partition": 0, "offset": 4}
    record = place | {"api": "Produce", "time": START, "key": b"ab"}
    tables = made(records=[record], exchanges=[exchange(api="Produce")])
    assert not len(analysis.trace(tables, key="*\x16*"))
    assert len(analysis.trace(tables, key="*b*"))


def test_errors(tables: dict[str, pd.DataFrame], ran: Ran) -> None:
    with pytest.raises(DissectorError, match="header 'a' is not NAME=VALUE"):
        analysis.trace(tables, header="a")
    with pytest.raises(DissectorError, match="by its header, its key or its offset"):
        analysis.trace(tables, topic="work")
    err = ran("trace", str(FOLLOWED), "--topic", "work", status=2).err
    assert "by its header, its key or its offset" in err
