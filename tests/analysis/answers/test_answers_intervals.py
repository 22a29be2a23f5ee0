"""Rows are grouped by spans of time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pandas as pd
import pytest

import analysis
from analysis.display.presentation import presented
from analysis.names.addresses import Names
from analysis.sql.intervals import interval_start
from analysis.sql.stored import stored
from dissector.errors import DissectorError
from tests.analysis.answering import CAPTURES, capture
from tests.analysis.commands import Ran

TABLES = ("exchanges", "batches", "connections", "errors")


@pytest.mark.parametrize(("name", "floor"), [("minute", "60s"), ("10s", "10s"), ("250ms", "250ms")])
def test_requests_by_time_are_those_of_pandas(name: str, floor: str) -> None:
    tables = capture("kafka-4-quotas", TABLES)
    rows = analysis.latency(tables, by=(name, "api"))
    exchanges = tables["exchanges"].dropna(subset="latency_ms")  # type: ignore[index]
    times = exchanges["request_time"].dt.floor(floor)
    expected = exchanges.groupby([times, "api"])["latency_ms"].agg(["size", "max"])
    actual = rows.set_index([name, "api"])[["count", "max_ms"]].sort_index()
    assert actual.index.tolist() == expected.index.tolist()
    assert actual["count"].tolist() == expected["size"].tolist()
    assert actual["max_ms"].tolist() == expected["max"].tolist()
    assert rows[name].is_monotonic_increasing
    assert rows[name].dtype == pd.DatetimeTZDtype("ns", "UTC")


def test_errors_by_time() -> None:
    tables = capture("kafka-4-quotas", TABLES)
    rows = analysis.errors(tables, by="minute")
    assert rows["count"].sum() == len(tables["errors"])  # type: ignore[index]
    assert (rows["first_time"].dt.floor("60s") == rows["minute"]).all()


def test_delays_by_time() -> None:
    tables = capture("kafka-4-followed", ("partitions",))
    rows = analysis.delay(tables, by=("10s", "topic", "reader"))
    whole = analysis.delay(tables, by=("topic", "reader"))
    assert len(rows) > len(whole)
    assert rows["produced"].sum() == whole["produced"].sum()
    assert (rows["first_time"].dt.floor("10s") == rows["10s"]).all()
    assert (rows["last_time"].dt.floor("10s") == rows["10s"]).all()


@pytest.mark.parametrize("name", ["0s", "5 m", "fortnight", "99999999999d"])
def test_another_word_is_not_a_length_of_time(name: str) -> None:
    with pytest.raises(DissectorError, match=f"no column {name} to group by"):
        analysis.latency(capture("kafka-4-quotas", TABLES), by=name)


ZONES = (
    "America/New_York",  # the clock is changed at 2:00
    "America/Sao_Paulo",  # until 2019, it was set from 0:00 to 1:00: a day without midnight
    "America/Havana",  # from 1:00 to 0:00: a day with two midnights
    "Asia/Kolkata",
    "Australia/Lord_Howe",  # by half an hour
)


def starts(name: str, zone: ZoneInfo, times: Sequence[datetime]) -> list[datetime]:
    """The starts of the intervals of times, which are in order."""
    given = [round(each.timestamp()) * 10**9 for each in times]
    with presented(zone, Names()), stored([], []) as connection:
        start = interval_start(name, "t")
        query = (
            f"select epoch_ns({start}) from (select make_timestamp_ns(unnest(?)) as t) order by t"
        )
        rows = connection.execute(query, [given]).fetchall()
    return [datetime.fromtimestamp(ns // 10**9, zone) for (ns,) in rows]


def times(zone: ZoneInfo) -> list[datetime]:
    """Times of 15 years, several a day."""
    first = datetime(2014, 12, 31, 20, 43, tzinfo=UTC)
    return [(first + n * timedelta(hours=5, minutes=7)).astimezone(zone) for n in range(26_000)]


@pytest.mark.parametrize("name", ZONES)
def test_a_day_begins_at_midnight_of_the_zone(name: str) -> None:
    zone = ZoneInfo(name)
    given = times(zone)
    days = [datetime.combine(each, time(0), zone).timestamp() for each in given]
    assert [start.timestamp() for start in starts("day", zone, given)] == days


@pytest.mark.parametrize("name", ZONES[:-1])
def test_an_hour_begins_at_a_whole_hour_of_the_zone(name: str) -> None:
    zone = ZoneInfo(name)
    given = times(zone)
    hours = [each.replace(minute=0, second=0).timestamp() for each in given]
    assert [start.timestamp() for start in starts("hour", zone, given)] == hours


def test_days_and_hours_of_a_changed_clock() -> None:
    zone = ZoneInfo("America/New_York")
    day, first = datetime(2026, 11, 1, tzinfo=zone), datetime(2026, 11, 1, 1, 30, tzinfo=zone)
    given = (first, first.replace(fold=1), day.replace(hour=23, minute=59))
    assert starts("day", zone, given) == [day] * 3
    hours = [each.timestamp() - day.timestamp() for each in starts("hour", zone, given)]
    assert hours == [3600, 7200, 24 * 3600]
    assert [each.hour for each in starts("6h", zone, given)] == [0, 0, 18]


@pytest.mark.parametrize(
    ("zone", "day", "hour"),
    [
        ("America/New_York", "2026-11-20", "22:00:00.000"),
        ("Asia/Kolkata", "2026-11-21", "09:00:00.000"),
    ],
)
def test_days_of_the_zone_are_shown_as_dates(zone: str, day: str, hour: str, ran: Ran) -> None:
    """The requests are at 03:45 and 03:46 of 2026-11-21 in UTC."""
    path = str(CAPTURES / "aiokafka-tansu.pcap")
    columns = ("--by", "day,hour", "--columns", "day,hour,count", "--tz", zone)
    assert [line.split() for line in ran("latency", path, *columns).out.splitlines()[:2]] == [
        ["day", "hour", "count"], [day, hour, "106"],
    ]  # fmt: skip
    assert ran("latency", path, *columns, "--vertical").out.splitlines()[1].split() == ["day", day]
