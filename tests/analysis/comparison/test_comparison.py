"""Changes between recordings are found, and noise is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import analysis
from analysis.answers import Tables
from analysis.cli import main
from analysis.comparison.measures import MEASURES
from analysis.comparison.profile import profile
from analysis.comparison.run import COMPARED_TABLES, compare
from analysis.input.filters import Filter
from analysis.sql.query import connected, no_tables
from dissector.errors import DissectorError
from tests.analysis.answering import CAPTURES, broker_log, capture, made
from tests.analysis.commands import Ran
from tests.analysis.made_rows import SECOND, START, batch, exchange, exchange_at

STEADY = str(CAPTURES / "kafka-4-steady.pcap.zst")
SMALL = str(CAPTURES / "kafka-4-quotas.pcap.zst")
QUOTA = str(CAPTURES / "kafka-4-steady-quota.pcap.zst")
NEVER = no_tables(COMPARED_TABLES)


def part(name: str, since: float, until: float) -> Tables:
    """The exchanges between two times, in seconds after the first request."""
    tables = capture(name, COMPARED_TABLES)
    start = int(tables["exchanges"]["request_time"].min().value)
    return Filter(since=f"{since}s", until=f"{until}s", start=start).apply(tables)


@pytest.fixture(scope="module")
def recorded() -> Iterator[Callable[..., Tables]]:
    """Opens tables of a recording, or of a `part` of it, once for all tests."""
    with ExitStack() as stack:

        @cache
        def tables(name: str, *times: float) -> Tables:
            chosen = part(name, *times) if times else capture(name, COMPARED_TABLES)
            return stack.enter_context(connected(chosen, COMPARED_TABLES))

        yield tables


@pytest.fixture(scope="module")
def quota(recorded: Callable[..., Tables]) -> pd.DataFrame:
    return compare(recorded("kafka-4-steady"), recorded("kafka-4-steady-quota"))


@pytest.fixture(scope="module")
def disk(recorded: Callable[..., Tables]) -> pd.DataFrame:
    return compare(recorded("kafka-4-disk"), recorded("kafka-4-disk-slow"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ends", [(8, 17, 26), (10, 18, 26), (12, 19, 26), (14, 20, 26)])
def test_two_halves_of_a_steady_load_are_equal(
    ends: tuple[int, int, int], recorded: Callable[..., Tables]
) -> None:
    first, middle, last = ends
    halves = recorded("kafka-4-steady", first, middle), recorded("kafka-4-steady", middle, last)
    assert len(compare(*halves)) == 0
    unchanged = compare(*halves, unchanged=True)
    assert set(unchanged["change"]) == {"none"}
    assert {"net_p50_ms", "requests_per_s"} <= set(unchanged["measure"])


def test_a_capture_equals_itself(recorded: Callable[..., Tables]) -> None:
    tables = recorded("kafka-4-steady")
    assert len(compare(tables, tables)) == 0
    rows = compare(tables, tables, unchanged=True)
    assert (rows["change_percent"].dropna() == 0).all()


def test_a_quota_comes_first(quota: pd.DataFrame) -> None:
    first = quota.iloc[0]
    assert (first["client_id"], first["api"], first["measure"], first["change"]) == (
        "shop", "Produce", "throttled_ms_per_s", "new",
    )  # fmt: skip
    log = broker_log("kafka-4-steady-quota")
    throttled = log.loc[log["client_id"] == "shop", "throttle_time_ms"].sum()
    rows = capture("kafka-4-steady-quota", COMPARED_TABLES)["exchanges"]
    times = rows.loc[(rows["client_id"] == "shop") & (rows["api"] == "Produce"), "request_time"]
    seconds = (times.max() - times.min()).total_seconds()
    assert first["after"] == pytest.approx(throttled / seconds, rel=0.01)
    assert first["is_worse"]
    assert list(quota["measure"]) == sorted(
        quota["measure"], key=[each.name for each in MEASURES].index
    )


def test_a_slower_disk_comes_first(recorded: Callable[..., Tables]) -> None:
    """The request log has the same latencies, without the time in the kernel."""
    names = ("kafka-4-disk", "kafka-4-disk-slow")
    tables = [recorded(name) for name in names]
    rows = compare(*tables)[:2]
    assert list(rows["measure"]) == ["net_p50_ms", "net_p95_ms"]
    assert set(zip(rows["client_id"], rows["api"], strict=True)) == {("shop", "Produce")}
    assert rows["is_worse"].all()
    logs = [broker_log(name) for name in names]
    logged = [log.loc[log["api"] == "PRODUCE", "total_ms"] for log in logs]
    for row, quantile in zip(rows.itertuples(), (0.5, 0.95), strict=True):
        before, after = (each.quantile(quantile) for each in logged)
        assert row.before == pytest.approx(before, abs=2, rel=0.01)
        assert row.after == pytest.approx(after, abs=2, rel=0.01)
    assert not compare(*reversed(tables))["is_worse"].any()
    everything = compare(*tables, unchanged=True)
    fetches = everything[everything["api"] == "Fetch"].set_index("measure")["change"]
    assert set(fetches[["net_p50_ms", "net_p95_ms", "bytes_per_s"]]) == {"none"}


def test_a_change_is_inside_its_interval(disk: pd.DataFrame) -> None:
    rows = disk.dropna(subset=["low_percent"])
    assert len(rows)
    assert (rows["low_percent"] <= rows["change_percent"]).all()
    assert (rows["change_percent"] <= rows["high_percent"]).all()


def test_a_rate_is_that_of_the_time_in_which_a_client_is_active() -> None:
    """Clients that start later in one of the captures, of which one also sends half as often."""

    def clients(begin: int, rates: dict[str, float]) -> Tables:
        generator = np.random.default_rng(begin)
        times = {
            name: begin + np.cumsum(generator.exponential(1 / rate, int(50 * rate)))
            for name, rate in rates.items()
        }
        times["other"] = np.arange(100)
        rows = [
            exchange_at(START + int(time * SECOND), client_id=name, correlation_id=n)
            for name, each in times.items()
            for n, time in enumerate(each)
        ]
        return made(exchanges=rows)

    rows = compare(clients(2, {"same": 10, "rarer": 10}), clients(45, {"same": 10, "rarer": 5}))
    changes = {*zip(rows["client_id"], rows["measure"], strict=True)}
    assert changes == {("rarer", "requests_per_s"), ("rarer", "bytes_per_s")}
    before, after = rows[["before", "after"]].iloc[0]
    assert (before, after) == pytest.approx((10, 5), rel=0.15)


def test_a_short_burst_has_no_rate_and_a_shorter_one_no_variance() -> None:
    times = {
        "other": np.arange(100),
        "burst": np.linspace(50, 80, 200),
        "peak": np.linspace(50, 55, 200),
    }
    rows = [
        exchange_at(START + int(time * SECOND), client_id=name)
        for name, each in times.items()
        for time in each
    ]
    tables = made(exchanges=rows)
    compared = compare(tables, tables, unchanged=True).groupby("client_id")["measure"].agg(set)
    quantiles = {"net_p50_ms", "net_p95_ms"}
    assert compared["other"] == {*quantiles, "requests_per_s", "bytes_per_s"}
    assert compared["burst"] == quantiles
    assert "peak" not in compared


def test_another_client_version_comes_first(recorded: Callable[..., Tables]) -> None:
    rows = compare(recorded("kafka-3-java-2-4"), recorded("kafka-3-java-3-5"))
    assert rows.iloc[0]["measure"] == "software"
    details = set(rows.loc[rows["measure"] == "software", "detail"])
    assert details == {"apache-kafka-java 2.4.1 -> apache-kafka-java 3.5.2"}
    assert "api_version" not in set(rows["measure"])  # the software explains them


def test_the_order_of_versions_and_software_is_no_change() -> None:
    """Two instances with one client id, during an update: which has more requests is noise."""

    def mixed(*counts: int) -> Tables:
        versions = [v for v, count in zip((12, 13), counts, strict=True) for _ in range(count)]
        names = [{"connection_id": n, "software_version": f"4.{v}"} for n, v in enumerate(versions)]
        return made(
            exchanges=[exchange(connection_id=n, api_version=v) for n, v in enumerate(versions)],
            connections=[{"software_name": "java"} | name for name in names],
        )

    assert not len(compare(mixed(6, 4), mixed(4, 6)))
    assert list(compare(mixed(6, 4), mixed(0, 6))["detail"]) == [
        "java 4.12, java 4.13 -> java 4.13"
    ]


def test_programs_without_a_client_id_are_not_one_client() -> None:
    """A program that runs once is in one capture only; it is no update of the others."""

    def programs(*names: str, client_id: str | None) -> Tables:
        return made(
            exchanges=[
                exchange(connection_id=n, client_id=client_id, api_version=n)
                for n in range(len(names))
            ],
            connections=[
                {"connection_id": n, "software_name": name, "software_version": "1"}
                for n, name in enumerate(names)
            ],
        )

    for client_id, changes in ((None, 0), ("", 0), ("shop", 1)):
        before, after = (programs(*names, client_id=client_id) for names in (["a"], ["a", "b"]))
        assert list(compare(before, after)["measure"]) == ["software"] * changes


def test_names_with_another_uuid_are_those_of_the_other_capture() -> None:
    """Kafka Streams has another process id after each start on a new disk."""

    def application(process: str, latency_ms: float) -> Tables:
        client_id = f"counter-{process}-StreamThread-1-producer"
        rows = [
            exchange_at(
                START + n * SECOND, client_id=client_id, group_id=f"spark-{process}-driver",
                correlation_id=n, latency_ms=latency_ms,
            )
            for n in range(100)
        ]  # fmt: skip
        return made(exchanges=rows)

    first, second = "3a4ee2d6-0f6c-4c25-9d30-0a8a4e0b6d43", "d1c3b7a8-52ab-4f7e-8a61-9f2f0c7b1e55"
    rows = compare(application(first, 5.0), application(second, 50.0))
    assert {*rows["measure"]} == {"net_p50_ms", "net_p95_ms"}
    assert {*rows["client_id"]} == {"counter-*-StreamThread-1-producer"}


def test_a_topic_is_known_by_its_id(recorded: Callable[..., Tables]) -> None:
    """Without Metadata, only Produce requests before version 13 name the topic (KIP-516)."""
    whole = capture("kafka-4-steady", COMPARED_TABLES)
    fetched = whole["batches"]["api"] == "Fetch"
    (topic_id,) = whole["batches"]["topic_id"][fetched].unique()
    cut = {
        "exchanges": whole["exchanges"].assign(
            topics=[
                [topic_id] if api == "Fetch" else topics
                for api, topics in whole["exchanges"][["api", "topics"]].itertuples(index=False)
            ]
        ),
        "batches": whole["batches"].assign(topic=whole["batches"]["topic"].mask(fetched, topic_id)),
    }
    rows = compare(recorded("kafka-4-steady"), {**whole, **cut}, unchanged=True)
    assert {"net_p50_ms", "requests_per_s"} <= set(rows["measure"])
    assert set(rows["change"]) == {"none"}
    assert (rows["change_percent"].dropna() == 0).all()


def test_clients_groups_and_topics_that_come_or_go(recorded: Callable[..., Tables]) -> None:
    rows = compare(recorded("kafka-4-steady"), recorded("kafka-4-misused"))
    present = rows.set_index(["measure", "detail"])["change"]
    assert present["client", "shop"] == "gone"
    assert present["client", "hurried"] == "new"
    assert present["group", "workers"] == "new"
    assert present["topic", "quiet"] == "new"
    log = broker_log("kafka-4-steady")
    gone = rows[(rows["measure"] == "client") & (rows["detail"] == "shop")].iloc[0]
    assert gone["before"] == pytest.approx((log["client_id"] == "shop").sum(), abs=2)
    assert gone["unit"] == "requests"


def with_job(*seconds: int, until: int = 100) -> Tables:
    """A client with ten requests a second, and a job with as many in some of the seconds."""
    rows = [
        exchange_at(START + n * SECOND // 10, client_id=name, correlation_id=n)
        for n in range(10 * until)
        for name in ("shop", *(["job"] if n // 10 in seconds else []))
    ]
    return made(exchanges=rows)


@pytest.mark.parametrize(
    ("seconds", "until", "is_gone"),
    [
        ([50], 100, False),  # the other capture lacks it with a probability of 0.95^20 = 0.36
        ([20, 70], 100, False),  # 0.9^20 = 0.12
        (range(50, 100), 100, True),  # 0.5^20 = 1e-6
        (range(100), 100, True),
        (range(50, 100), 10, False),  # the other capture is as long as two slices: 0.5^2 = 0.25
        (range(100), 10, True),
    ],
)
def test_a_job_that_runs_once_in_a_while_is_in_one_capture_by_chance(
    seconds: Iterable[int], until: int, is_gone: bool
) -> None:
    rows = compare(with_job(*seconds), with_job(until=until))
    gone = rows[rows["measure"] == "client"]
    assert gone["detail"].tolist() == ["job"] * is_gone


def test_the_results_are_the_same_in_each_run(recorded: Callable[..., Tables]) -> None:
    halves = recorded("kafka-4-steady", 12, 19), recorded("kafka-4-steady", 19, 26)
    pd.testing.assert_frame_equal(
        compare(*halves, unchanged=True), compare(*halves, unchanged=True)
    )


def test_empty_captures_have_no_change() -> None:
    assert len(compare(NEVER, NEVER)) == 0
    assert "topic" in compare(NEVER, NEVER, by="topic")
    with pytest.raises(DissectorError, match="no column colour to group by"):
        compare(NEVER, NEVER, by="colour")


def at(*times: int) -> Tables:
    """A request at each time, in ns."""
    return made(exchanges=[exchange_at(time, correlation_id=n) for n, time in enumerate(times)])


def test_a_capture_of_decades() -> None:
    years = at(*(n * SECOND * 86_400 * 365 for n in range(50)))
    rows = compare(years, years, unchanged=True)
    assert "requests_per_s" in set(rows["measure"])
    assert set(rows["change"]) == {"none"}


def test_a_capture_without_time_has_neither_rates_nor_a_variance() -> None:
    moment = at(*[START] * 60)
    assert not len(compare(moment, errors(0), unchanged=True))
    assert set(compare(moment, errors(60), unchanged=True)["measure"]) == {"error_percent"}


def errors(count: int, error: str = "KAFKA_STORAGE_ERROR") -> Tables:
    """A client with 200 requests in 100 s, of which the first ones of each ten fail."""
    rows, failed = [], []
    for n in range(200):
        time = START + n * SECOND // 2
        rows.append(exchange_at(time, correlation_id=n))
        if n % 10 < count:
            failed.append(
                {"time": time, "connection_id": 0, "correlation_id": n, "error": error,
                 "api": "Metadata"}
            )  # fmt: skip
    return made(exchanges=rows, errors=failed)


@pytest.mark.parametrize(("after", "change"), [(0, None), (1, "new"), (5, "new")])
def test_new_errors(after: int, change: str | None) -> None:
    rows = compare(errors(0), errors(after))
    assert list(rows["measure"]) == ["error_percent"] * bool(change)
    if change:
        assert rows.iloc[0]["change"] == change
        assert rows.iloc[0]["after"] == pytest.approx(10 * after)


def produced(*busy: int) -> Tables:
    """A batch in each of 4 partitions in each second, and 9 times more bytes in the `busy` one."""
    rows = [
        batch("Produce", START + second * SECOND, partition=n, bytes=9000 if n in busy else 1000)
        for second in range(60) for n in range(4)
    ]  # fmt: skip
    requests = [exchange_at(START + second * SECOND, api="Produce") for second in range(60)]
    return made(exchanges=requests, batches=rows)


def test_a_partition_that_becomes_hot() -> None:
    rows = compare(produced(), produced(3))
    hot = rows[rows["measure"] == "partition_percent"].to_dict("records")
    assert [(row["detail"], row["before"], row["after"]) for row in hot] == [("t-3", 25, 75)]
    assert hot[0]["is_worse"]
    swapped = compare(produced(3), produced())
    assert swapped[swapped["measure"] == "partition_percent"]["is_worse"].tolist() == [False]
    assert "partition_percent" not in compare(produced(3), produced(3))["measure"].tolist()


def test_errors_of_normal_operation_are_no_change() -> None:
    assert not len(compare(errors(0), errors(5, "REBALANCE_IN_PROGRESS")))


def test_a_group_keeps_no_more_numbers_than_latencies() -> None:
    """A large cluster has tens of thousands of clients with a few requests each."""
    rows = [
        exchange_at(START + n * SECOND, client_id=f"app-{n // 4}", latency_ms=10.0 ** (n % 4))
        for n in range(400)
    ]
    with connected(made(exchanges=rows), COMPARED_TABLES) as tables:
        groups = profile(tables, ("client_id", "api")).groups.values()
    assert len(groups) == 100
    assert {group.latencies.shape for group in groups} == {(3, 4)}
    assert {float(group.bins().sum()) for group in groups} == {4.0}


def test_swapped_captures_have_the_mirror_image_of_the_changes(
    recorded: Callable[..., Tables], disk: pd.DataFrame
) -> None:
    mirrored = compare(recorded("kafka-4-disk-slow"), recorded("kafka-4-disk"))
    order = ["measure", "client_id", "api"]
    changes, mirrored = (each.sort_values(order, ignore_index=True) for each in (disk, mirrored))
    assert len(changes)
    assert changes[order].equals(mirrored[order])
    assert changes["before"].equals(mirrored["after"])
    # A factor of 5 is + 400 % or - 80 %.
    products = (1 + changes["low_percent"] / 100) * (1 + mirrored["high_percent"] / 100)
    assert products.tolist() == pytest.approx([1.0] * len(changes))


def test_the_command_writes_the_rows_and_exits_with_3_if_a_change_matters(
    quota: pd.DataFrame, ran: Ran
) -> None:
    rows = ran("compare", STEADY, QUOTA, "--format", "jsonl", "--fail-on", "worse", status=3).rows
    assert [row["measure"] for row in rows] == list(quota["measure"])
    lines = ran("compare", STEADY, QUOTA, "--fail-on", "change", status=3).out.splitlines()
    assert lines[0].startswith(f"before  {STEADY}, 2026-")
    assert lines[4].split()[:3] == ["shop", "Produce", "throttled_ms_per_s"]
    at = lines[3].split().index("unit")
    assert [line.split()[at] for line in lines[4:]] == ["ms/s"]


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("nobody", "There is no request to compare."),
        ("consumer", "Nothing to compare: no group has 50 requests."),
        (
            "shop",
            "No change beyond random variation in 4 measures of groups with 50 requests or more. "
            "To list them, pass --all.",
        ),
    ],
)
def test_no_change_is_not_too_few_requests(client: str, text: str, ran: Ran) -> None:
    path = STEADY if client == "shop" else SMALL
    out = ran("compare", path, path, "--client", client, "--fail-on", "change").out
    assert out.splitlines()[-1] == text


def test_json_is_one_object(recorded: Callable[..., Tables], tmp_path: Path) -> None:
    file = tmp_path / "changes.json"
    arguments = ["compare", STEADY, QUOTA, "--by", "topic", "--format", "json"]
    assert main([*arguments, "-o", str(file)]) == 0
    whole = json.loads(file.read_text())
    rows = compare(recorded("kafka-4-steady"), recorded("kafka-4-steady-quota"), by="topic")
    for name in ("measure", "unit"):
        assert [row[name] for row in whole["changes"]] == rows[name].tolist()
    assert whole["changes"][0]["topic"] == "orders"
    for side, path in (("before", STEADY), ("after", QUOTA)):
        times = analysis.load(path, "exchanges")["exchanges"]["request_time"].dropna()
        assert whole[side]["capture"] == path
        assert whole[side]["requests"] == len(times)
        assert whole[side]["first_time"] == times.min().value
        span = (times.max().value - times.min().value) / 1e9
        assert whole[side]["seconds"] == pytest.approx(span)


@pytest.mark.parametrize(
    ("zone", "day", "minute"),
    [("UTC", "2026-11-22", "20:44:00.000"), ("Asia/Kolkata", "2026-11-23", "02:14:00.000")],
)
def test_intervals_are_those_of_the_zone(zone: str, day: str, minute: str, ran: Ran) -> None:
    """The first request is at 20:44:33 of 2026-11-22 in UTC."""
    arguments = ["compare", STEADY, STEADY, "--all", "--by", "day,minute", "--tz", zone]
    header, first, *_ = ran(*arguments).out.splitlines()[3:]
    assert header.split()[:2] == ["day", "minute"]
    assert first.split()[:2] == [day, minute]


def test_intervals_of_json_are_in_utc(ran: Ran) -> None:
    arguments = ["--all", "--by", "minute", "--tz", "Asia/Kolkata", "--format", "jsonl"]
    row = json.loads(ran("compare", SMALL, SMALL, *arguments).out.splitlines()[0])
    assert row["minute"] == "2026-11-21T04:17:00.000000000Z"


def test_the_heading_counts_the_connections_that_could_be_read(ran: Ran) -> None:
    """Their clients did not go: their connections are encrypted."""
    out = ran("compare", STEADY, str(CAPTURES / "kafka-4-tls.pcap.zst")).out
    assert out.splitlines()[2] == "        3 of 19 connections could be read"


def test_a_table_has_no_empty_columns(ran: Ran) -> None:
    old, new = (str(CAPTURES / f"kafka-3-java-{each}.pcap.zst") for each in ("2-4", "3-5"))
    header = ran("compare", old, new).out.splitlines()[3]
    assert header.split() == ["client_id", "measure", "change", "detail"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([STEADY], "takes two captures, BEFORE and AFTER, not 1"),
        (["-", "-"], "standard input can be read only once"),
        ([STEADY, QUOTA, "--by", "colour"], "no column colour to group by"),
        ([STEADY, QUOTA, "--columns", "colour"], "no column 'colour'"),
        ([STEADY, QUOTA, "--confidence", "100"], "--confidence"),
        ([STEADY, QUOTA, "--threshold", "nan"], "'nan' is not a valid number"),
    ],
)
def test_wrong_command_lines(arguments: list[str], message: str, ran: Ran) -> None:
    assert message in " ".join(ran("compare", *arguments, status=2).err.split())


def test_it_is_public() -> None:
    assert analysis.compare is compare
