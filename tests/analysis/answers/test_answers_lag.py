"""Lag agrees with the offsets that an auditor fetched, and with commits in the logs of members."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import analysis
from dissector.errors import DissectorError
from tests.analysis.answering import capture, made
from tests.analysis.made_rows import SECOND, exchange, exchange_at, partition
from tools.record.kafka.truth import read

NEEDS = ("partitions", "exchanges", "transactions")
WHERE = ["group_id", "partition"]


def clients(event: str) -> pd.DataFrame:
    """The log entries of clients for an event."""
    rows = read("kafka-4-followed")
    return pd.DataFrame([row for row in rows if row.get("event") == event])


def followed(show: str = "last") -> pd.DataFrame:
    return analysis.lag(capture("kafka-4-followed", NEEDS), show=show)


def test_the_last_lag_is_that_of_the_auditor() -> None:
    audited = clients("lag").set_index(WHERE).sort_index()
    lags = followed().set_index(WHERE).sort_index()
    assert lags["committed_offset"].tolist() == audited["committed"].tolist()
    assert lags["end_offset"].tolist() == audited["end"].tolist()
    assert lags["lag"].tolist() == (audited["end"] - audited["committed"]).tolist()
    assert (lags["max_lag"] >= lags["lag"]).all()
    assert lags["lag"].max() > 10


def test_committed_offsets_are_those_of_the_members() -> None:
    logged = clients("committed").dropna(subset="group_id").query("offset >= 0")
    logged = logged.drop_duplicates([*WHERE, "offset"]).sort_values([*WHERE, "offset"])
    rows = followed("all").dropna(subset="committed_time")
    rows = rows[rows["lag"].notna()].drop_duplicates([*WHERE, "committed_offset"])
    rows = rows.sort_values([*WHERE, "committed_offset"])
    assert rows["committed_offset"].tolist() == logged["offset"].tolist()
    assert set(rows["client_id"]) <= set(clients("received")["client_id"])


def test_a_reader_is_where_its_last_record_was() -> None:
    """A reader has fetched records beyond its position: it paused, or had not processed them."""
    received = clients("received").groupby("partition")["offset"].max().to_dict()
    positions = followed().groupby("partition")["position"].max().to_dict()
    assert positions.keys() == received.keys()
    assert all(positions[partition] > received[partition] for partition in positions)


@pytest.mark.parametrize(
    ("name", "tables"),
    [("kafka-4-transactions", NEEDS), ("kafka-4-transactions-old", NEEDS)],
)
def test_offsets_of_a_transaction_count_when_it_commits(name: str, tables: tuple[str, ...]) -> None:
    """The program commits offset 5 in a transaction that commits: see java/Transactions.java."""
    groups = analysis.lag(capture(name, tables)).set_index("group_id")
    assert groups.loc["uncommitted", "committed_offset"] == 5


def test_an_aborted_one_does_not_count() -> None:
    tables: dict[str, Any] = dict(capture("kafka-4-transactions", NEEDS))
    ends = tables["transactions"]
    tables["transactions"] = ends.assign(
        committed=ends["committed"].where(ends["committed"].isna(), False)
    )
    groups = analysis.lag(tables).set_index("group_id")
    assert groups.loc["uncommitted", "committed_time"] is pd.NaT


@pytest.mark.parametrize("reported_by", ["leaders", "administrators"])
def test_a_share_group_is_as_far_behind_as_an_administrator_is_shown(reported_by: str) -> None:
    """The output of kafka-share-groups, from leaders' requests and from responses to the tool."""
    rows = read("kafka-4-group-share")
    shown = pd.DataFrame([row for row in rows if row["source"] == "share-groups"])
    before, after = (each.set_index("partition") for _, each in shown.groupby("time"))
    tables: dict[str, Any] = dict(capture("kafka-4-group-share", NEEDS))
    partitions = tables["partitions"]
    of_tool = partitions["api"] == "DescribeShareGroupOffsets"
    of_leader = partitions["api"].str.contains("ShareGroupState")
    tables["partitions"] = partitions[~of_tool if reported_by == "leaders" else ~of_leader]
    last = analysis.lag(tables).set_index("partition").sort_index()
    assert set(last["group_id"]) == {"sharers"}
    assert last["lag"].tolist() == after["lag"].tolist()
    assert last["committed_offset"].tolist() == after["start_offset"].tolist()
    assert last["lag"].min() > 20
    # The tool asks the leaders' state first, and prints a while later.
    course = analysis.lag(tables, show="all").query("committed_offset.notna()")
    for index, row in before.iterrows():
        mine = course[course["partition"] == index]
        states = set(mine[["committed_offset", "lag"]].itertuples(index=False, name=None))
        assert (row["start_offset"], row["lag"]) in states


def test_a_share_group_of_which_only_the_start_is_known() -> None:
    rows = [
        partition("Produce", 2, offset=0, last_offset=9),
        partition("ReadShareGroupState", 4, group_id="g", offset=4),
    ]
    (row,) = analysis.lag(made(partitions=rows)).to_dict("records")
    assert (row["committed_offset"], row["end_offset"], row["lag"]) == (4, 10, 6)
    assert pd.isna(row["done_count"])


def test_a_share_group_whose_end_is_unknown_has_an_unknown_lag() -> None:
    state = partition("WriteShareGroupState", group_id="g", offset=4, done_count=3)
    (row,) = analysis.lag(made(partitions=[state])).to_dict("records")
    assert row["committed_offset"] == 4
    assert pd.isna(row["end_offset"])
    assert pd.isna(row["lag"])


def test_a_fetch_that_does_not_repeat_where_it_reads() -> None:
    """In a fetch session the request names what has changed; the response has what came since."""
    first = partition("Fetch", 2, offset=5, high_watermark=5)
    second = partition("Fetch", 4, last_offset=7, high_watermark=10)
    (row,) = analysis.lag(made(partitions=[first, second])).to_dict("records")
    assert (row["position"], row["end_offset"], row["position_lag"]) == (8, 10, 2)


def test_an_unclean_leader_has_a_shorter_log() -> None:
    """As a broker has it that was not in sync: offsets 100 to 199 are lost, and given again."""
    rows = [
        partition("Fetch", 1, offset=0, leader_epoch=0, high_watermark=200, last_offset=199),
        partition("OffsetCommit", 2, group_id="g", offset=200, leader_epoch=0),
        partition("Fetch", 3, offset=100, leader_epoch=2, high_watermark=100),
        partition("Produce", 4, offset=100, last_offset=129),
        partition("OffsetCommit", 5, group_id="g", offset=130, leader_epoch=2),
    ]
    tables = made(partitions=rows)
    last = analysis.lag(tables).set_index("group_id").loc["g"]
    assert last[["committed_offset", "end_offset", "lag"]].tolist() == [130, 130, 0]
    states = analysis.lag(tables, show="all").query("group_id == 'g'")
    assert states["end_offset"].tolist() == [200, 130]


def test_a_topic_that_was_created_again_has_a_new_end() -> None:
    """Its leader epoch is 0 again."""
    rows = [
        partition("ListOffsets", 1, asked_timestamp=-1, offset=200, leader_epoch=0),
        partition("Fetch", 2, offset=150, leader_epoch=0, high_watermark=190, topic_id="A"),
        partition("OffsetCommit", 3, group_id="g", offset=180),
        partition("Fetch", 4, offset=0, leader_epoch=0, high_watermark=9, topic_id="B"),
        partition("Produce", 5, offset=9, last_offset=9),
        partition("OffsetCommit", 6, group_id="g", offset=4),
    ]
    tables = made(partitions=rows)
    states = analysis.lag(tables, show="all")
    assert states["end_offset"].tolist() == [200, 200, 9, 10]
    assert states["lag"].dropna().tolist() == [20, 6]
    assert analysis.lag(tables).set_index("group_id").loc["g", "lag"] == 6


def test_a_commit_of_an_administrator_beyond_the_end() -> None:
    """kafka-consumer-groups --reset-offsets; meanwhile another client of that host reads."""
    admin = {"client_id": "admin", "connection_id": 2}
    rows = [
        partition("Fetch", 2, connection_id=1, offset=3, high_watermark=10),
        partition("OffsetCommit", 4, group_id="g", offset=15, **admin),
        partition("Fetch", 6, connection_id=1, offset=3, high_watermark=10),
    ]
    exchanges = [
        exchange(connection_id=1, api="Fetch", client_id="app", request_time=1, response_time=2),
        exchange(
            connection_id=2, api="OffsetCommit", client_id="admin", group_id="g", topics=["t"],
            request_time=3, response_time=4,
        ),
    ]  # fmt: skip
    groups = analysis.lag(made(partitions=rows, exchanges=exchanges)).set_index("group_id")
    assert groups.loc["g", ["client_id", "committed_offset", "lag"]].tolist() == ["admin", 15, -5]
    (reader,) = groups[groups.index.isna()].to_dict("records")
    assert (reader["client_id"], reader["position"], reader["position_lag"]) == ("app", 3, 7)


def test_the_reads_of_a_member_do_not_hide_the_committer() -> None:
    rows = [
        partition("OffsetCommit", 2, client_id="m", group_id="g", offset=3),
        partition("OffsetCommit", 4, client_id="admin", group_id="g", offset=5),
        partition("Fetch", 6, client_id="m", offset=3, high_watermark=10),
    ]
    commit = exchange_at(2, api="OffsetCommit", client_id="m", group_id="g", topics=["t"])
    (row,) = analysis.lag(made(partitions=rows, exchanges=[commit])).to_dict("records")
    assert (row["client_id"], row["position"], row["lag"]) == ("admin", 3, 5)


def test_readers_without_a_group() -> None:
    alone = analysis.lag(capture("kafka-4-errors", NEEDS))
    assert alone["group_id"].isna().all()
    assert alone["position"].notna().all()


def test_a_monitoring_tool_is_no_reader_of_the_groups_that_it_describes() -> None:
    """It reads the offsets of all groups, and the topic of the offsets, on one connection."""
    rows = [
        partition("OffsetFetch", 4, client_id="monitor", group_id="g", offset=5),
        partition("OffsetFetch", 5, client_id="monitor", group_id="h", offset=6),
        partition("Fetch", 6, client_id="monitor", topic="__consumer_offsets", offset=3),
    ]
    described = [
        exchange_at(2, api="OffsetFetch", client_id="monitor", group_id=group, topics=["t"])
        for group in "gh"
    ]
    lags = analysis.lag(made(partitions=rows, exchanges=described))
    readers = lags.fillna({"group_id": "-"}).groupby("topic")["group_id"].agg(list).to_dict()
    assert readers == {"t": ["g", "h"], "__consumer_offsets": ["-"]}


@pytest.mark.slow
def test_an_interval_ends_as_a_capture_that_ends_there() -> None:
    tables = capture("kafka-4-followed", NEEDS)
    rows = analysis.lag(tables, by="5s")
    assert rows["5s"].nunique() > 2
    assert rows["lag"].max() > 10
    for start, group in rows.groupby("5s"):
        before = tables["partitions"]["response_time"] < start + pd.Timedelta("5s")
        until = analysis.lag({**tables, "partitions": tables["partitions"][before]})
        pd.testing.assert_frame_equal(
            group.drop(columns="5s").reset_index(drop=True),
            until.merge(group[["group_id", "topic", "partition"]]),
        )


@pytest.mark.parametrize("options", [{"by": "topic"}, {"by": ("5s", "1s")}])
def test_lag_is_divided_by_one_interval(options: dict[str, Any]) -> None:
    tables = capture("kafka-4-followed", NEEDS)
    with pytest.raises(DissectorError, match="pass one interval"):
        analysis.lag(tables, **options)


def recreated(known_by: str) -> dict[str, pd.DataFrame]:
    """A topic that was deleted and created again, as newer and older clients show it."""
    tables = {**capture("kafka-4-recreated", NEEDS)}
    if known_by == "deletion":
        tables["partitions"] = tables["partitions"].assign(topic_id=None)
    else:
        requests = tables["exchanges"]
        tables["exchanges"] = requests[requests["api"] != "DeleteTopics"]
    return tables


@pytest.mark.parametrize("known_by", ["ids", "deletion"])
def test_offsets_are_deleted_with_their_topic(known_by: str) -> None:
    """kafka-consumer-groups has no row for a group that has not committed since."""
    lines = [row["line"].split() for row in read("kafka-4-recreated") if "command" in row]
    names = ["group_id", "topic", "partition", "committed_offset", "end_offset", "lag"]
    described = [line[:6] for line in lines if line[0] in ("stayer", "leaver") and len(line) == 9]
    rows = analysis.lag(recreated(known_by))[names].astype(str).to_numpy().tolist()
    assert rows == described != []
    slots = analysis.lag(recreated(known_by), by="10s").query("group_id == 'leaver'")
    assert slots["end_offset"].tolist() == [134]


def test_the_end_falls_if_a_topic_is_created_again_without_ids() -> None:
    """While the new log is shorter than the old one was."""
    tables = recreated("ids")
    rows = tables["partitions"].assign(topic_id=None)
    rows = rows[rows["response_time"] < pd.Timestamp("2026-11-28T17:17:26Z")]
    produced = rows[rows["api"] == "Produce"]["last_offset"] + 1
    assert produced.iloc[-1] < produced.max()
    lags = analysis.lag({**tables, "partitions": rows})
    assert set(lags["end_offset"]) == {produced.iloc[-1]}


def test_the_end_does_not_fall_if_responses_show_less_than_the_end() -> None:
    """A transaction is open from offset 50; followers have 90 of 100 records; a share group gets
    its first 10 records again."""
    whole = [
        partition("Produce", 1, offset=0, last_offset=99),
        partition("OffsetCommit", 2, group_id="g", offset=10),
    ]
    less: dict[str, dict[str, Any]] = {
        "read_committed": {"api": "ListOffsets", "asked_timestamp": -1, "offset": 50},
        "acks=1": {"api": "Fetch", "offset": 90, "high_watermark": 90},
        "released": {"api": "ShareFetch", "group_id": "s", "last_offset": 9},
        "administrator": {"api": "DescribeShareGroupOffsets", "offset": 20, "told_lag": 30},
    }
    for name, columns in less.items():
        times = range(SECOND, 5 * SECOND, SECOND)
        later = [partition(**columns, client_id=name, time=time) for time in times]
        groups = analysis.lag(made(partitions=whole + later)).set_index("group_id")
        assert groups.loc["g", ["end_offset", "lag"]].tolist() == [100, 90], name


def test_the_end_of_a_topic_that_was_created_again_falls_for_the_client_that_asked_before() -> None:
    rows = [
        partition("OffsetCommit", 2, group_id="g", offset=3),
        *(
            partition("ListOffsets", time, asked_timestamp=-1, offset=offset)
            for offset, time in ((200, SECOND), (8, 2 * SECOND), (9, 4 * SECOND))
        ),
    ]
    groups = analysis.lag(made(partitions=rows)).set_index("group_id")
    assert groups.loc["g", ["end_offset", "lag"]].tolist() == [9, 6]
