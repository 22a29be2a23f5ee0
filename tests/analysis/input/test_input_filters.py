"""A filter selects exchanges, and the rows of other tables that belong to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import analysis
import dissector
from analysis.answers import ANSWERS
from analysis.frames import frame
from analysis.input.filtered import FilteredCapture
from analysis.input.filters import Filter
from analysis.input.open import with_context
from analysis.input.times import length_ns, time_ns
from analysis.sql.latency_breakdown import PART_NAMES, exchanges_with_parts
from analysis.sql.query import select
from analysis.sql.stored import stored
from dissector.capture import Capture
from dissector.errors import DissectorError
from dissector.pipeline import collected
from dissector.tables import TABLES
from tests.analysis.answering import path_of
from tests.analysis.commands import Ran

NAMES = ("kafka-4-quotas", "kafka-4-transactions", "kafka-4-cut-midway", "kafka-4-group-eager")
FILTERS = (
    Filter(client=["producer*", "c?nsumer"]),
    Filter(api=["fetch", "0"], where=["latency_ms > 1 or latency_ms is null"]),
    Filter(since="0.5", until="20"),
    Filter(broker=["127.0.0.1:9092"], where=["in_flight = 1 -- a comment"]),
    Filter(
        api=["Fetch"], where=["net_ms < 3 and Software like '%java%'", "poll_ms + queue_ms > 0"]
    ),
)
START = time_ns("2026-11-21T23:50:00", None)


def read(path: Path, chosen: Filter) -> dict[str, pa.Table]:
    capture = FilteredCapture(dissector.open_capture(path), chosen)
    return collected(capture.stream(TABLES), TABLES)


@pytest.mark.parametrize("name", NAMES)
def test_every_row_belongs_to_an_exchange(name: str) -> None:
    """The keys of the tables find the exchange of every row."""
    whole = dissector.open_capture(path_of(name)).tables(TABLES)
    rows = read(path_of(name), Filter(where=["true"]))
    used = whole["connections"]["connection_id"]
    used = pc.is_in(used, whole["exchanges"]["connection_id"].combine_chunks())
    whole["connections"] = whole["connections"].filter(used)
    for table in TABLES:
        assert rows[table].equals(whole[table]), table


def test_temporary_files_may_have_any_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "it's [1] *").mkdir()
    expected = read(path_of(NAMES[0]), FILTERS[0])
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert read(path_of(NAMES[0]), FILTERS[0]) == expected


def parts(capture: Capture | FilteredCapture) -> pd.DataFrame:
    """Waits and net latencies of exchanges, as a command computes them."""
    names = with_context(capture, ("exchanges", "batches", "connections"))
    with stored(capture.stream(names), names) as connection:
        rows = frame(select(connection, f"from {exchanges_with_parts()} order by nth"))
    return rows.set_index(["connection_id", "correlation_id", "request_time"])[[*PART_NAMES]]


@pytest.mark.parametrize("api", ["Fetch", "Metadata"])
@pytest.mark.parametrize("name", ["kafka-4-followed", "kafka-4-transactions"])
def test_waits_do_not_depend_on_a_filter(name: str, api: str) -> None:
    capture = dissector.open_capture(path_of(name))
    selected = parts(FilteredCapture(capture, Filter(api=[api])))
    whole = parts(capture)
    assert len(whole) > len(selected) > 10
    pd.testing.assert_frame_equal(selected, whole.loc[selected.index])


def test_ends_of_partitions_do_not_depend_on_a_filter() -> None:
    capture = dissector.open_capture(path_of("kafka-4-followed"))
    ends = []
    for opened in (capture, FilteredCapture(capture, Filter(client=["b"]))):
        names = with_context(opened, ANSWERS["lag"].tables)
        with stored(opened.stream(names), names) as connection:
            rows = analysis.lag(connection)
        ends.append(rows.groupby(["topic", "partition"])["end_offset"].unique().map(list))
    assert len(ends[1]) > 0
    assert ends[1].equals(ends[0].loc[ends[1].index])


def test_waits_in_sql_do_not_depend_on_a_filter(ran: Ran) -> None:
    path = str(path_of("kafka-4-followed"))
    query = "select count(*), sum(net_ms), max(queue_ms) from exchanges where api = 'Fetch'"
    whole, filtered = (ran("sql", path, *each, query).out for each in ([], ["--api", "fetch"]))
    assert whole == filtered


@pytest.mark.sampled(2)
@pytest.mark.parametrize("condition", ["net_ms > 5", "poll_ms > 100", "not queue_ms = 0"])
@pytest.mark.parametrize("name", ["kafka-4-quotas", "kafka-4-transactions"])
def test_conditions_on_waits_select_the_rows_of_sql(name: str, condition: str, ran: Ran) -> None:
    path = str(path_of(name))
    query = "select request_packet, response_packet, net_ms, queue_ms from exchanges order by all"
    in_sql = query.replace("order", f"where {condition} order")
    rows = ran("sql", path, in_sql, "--format", "csv").out
    assert rows == ran("sql", path, "--where", condition, query, "--format", "csv").out
    assert rows.count("\n") > 1


def test_conditions_on_waits_need_the_whole_capture(ran: Ran) -> None:
    path = str(path_of("kafka-4-quotas"))
    error = ran("sniff", path, "--where", "exchanges.net_ms > 5", status=1).err
    assert "net_ms depends on the whole capture" in error
    with pytest.raises(DissectorError, match="batches"):
        Filter(where=["net_ms > 5"]).apply(dissector.open_capture(path).tables(["exchanges"]))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("chosen", FILTERS, ids=lambda chosen: " ".join(chosen.options))
@pytest.mark.parametrize("name", NAMES)
def test_filtering_while_reading_is_filtering_the_tables(name: str, chosen: Filter) -> None:
    early = read(path_of(name), chosen)
    late = chosen.apply(dissector.open_capture(path_of(name)).tables(TABLES))
    for table in TABLES:
        assert early[table].equals(late[table]), table


def test_the_selected_rows_are_those_of_pandas() -> None:
    whole = analysis.load(path_of("kafka-4-quotas"), list(TABLES))
    chosen = Filter(client=["producer"], api=["Produce"], topic=["bulk"])
    rows = analysis.load(path_of("kafka-4-quotas"), list(TABLES), chosen)
    frames = chosen.apply(whole)
    exchanges = whole["exchanges"].query("client_id == 'producer' and api == 'Produce'")
    pd.testing.assert_frame_equal(rows["exchanges"], exchanges.reset_index(drop=True))
    batches = whole["batches"].query("client_id == 'producer' and api == 'Produce'")
    pd.testing.assert_frame_equal(rows["batches"], batches.reset_index(drop=True))
    assert set(rows["connections"]["connection_id"]) == set(exchanges["connection_id"])
    assert len(rows["topics"]) == len(whole["topics"])
    for table in TABLES:
        pd.testing.assert_frame_equal(frames[table], rows[table])


def test_broker_ids_are_those_of_the_tables() -> None:
    rows = dissector.open_capture(path_of("kafka-4-quotas")).tables(TABLES)
    selected = Filter(broker=["1"]).apply(rows)["exchanges"]
    is_advertised = pc.equal(rows["exchanges"]["broker_port"], 9092)  # not the controller
    assert selected.equals(rows["exchanges"].filter(is_advertised))
    assert len(Filter(broker=["2"]).apply(rows)["exchanges"]) == 0
    with pytest.raises(DissectorError, match="needs the table brokers"):
        Filter(broker=["1"]).apply({"exchanges": rows["exchanges"]})


def test_wrong_tables_are_errors() -> None:
    rows = dissector.open_capture(path_of("kafka-4-quotas")).tables(["exchanges"])["exchanges"]
    chosen = Filter(api=["Fetch"])
    for tables, expected in (
        ({"errors": rows}, "no column"),
        ({"exchanges": rows, "messages": rows}, "no table messages"),
        ({"exchanges": rows.to_pylist()}, "must be a DataFrame or an Arrow table"),
        ({}, "needs the table exchanges"),
    ):
        with pytest.raises(DissectorError, match=expected):
            chosen.apply(tables)


def test_the_time_distinguishes_exchanges_with_the_same_ids() -> None:
    rows = dissector.open_capture(path_of("kafka-4-quotas")).tables(TABLES)
    for name in ("exchanges", "batches", "partitions"):
        ids = pa.nulls(len(rows[name]), pa.int32())
        place = rows[name].schema.get_field_index("correlation_id")
        rows[name] = rows[name].set_column(place, rows[name].schema.field(place), ids)
    chosen = Filter(where=["api = 'Produce' and record_count > 10"])
    selected = chosen.apply(rows)
    expected = pc.sum(selected["exchanges"]["record_count"]).as_py()
    assert pc.sum(selected["partitions"]["record_count"]).as_py() == expected
    assert 0 < len(selected["batches"]) < len(rows["batches"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"where": ["clientid = 'a'"]},
            "exchanges has no column clientid. Did you mean client_id?",
        ),
        ({"where": ['api = "Fetch"']}, "for text use single quotes: 'Fetch'"),
        ({"where": ["latency_ms > (select 1)"]}, "cannot contain a subquery"),
        ({"where": ["true) or (true"]}, "syntax error"),
        ({"where": [""]}, "expected one condition"),
        ({"where": ["true, false"]}, "expected one condition"),
        ({"where": ["true from exchanges"]}, "expected one condition"),
        ({"where": ["true; drop table x"]}, "expected one condition"),
        ({"where": ["max(latency_ms) > 1"]}, "aggregates"),
        ({"where": [""]}, "--where ''"),
        ({"api": ["fetc"]}, "--api: no API is called fetc. Did you mean Fetch?"),
        (
            {"api": ["1", "9999"]},
            "--api: no API is called 9999; for exchanges of an unknown API, use "
            '--where "api_key = 1 or api_key = 9999"',
        ),
        ({"since": "yesterday"}, "--since 'yesterday' is not a time; use ISO 8601"),
        ({"until": "2026-13-01"}, "--until '2026-13-01' is not a time in ISO 8601"),
        ({"until": "24:00"}, "'24:00' is not a time of day"),
        ({"client": ["\udcff*"]}, r"client must be UTF-8, not '\udcff*'"),
        ({"since": "\udcff"}, r"since must be UTF-8, not '\udcff'"),
        (
            {"since": "2026-11-21T00:00:01", "until": "2026-11-21T01:00:01+01:00"},
            "--until 2026-11-21T01:00:01+01:00 is not after --since 2026-11-21T00:00:01",
        ),
        ({"since": "20", "until": "0.5s", "start": 0}, "--until 0.5s is not after --since 20"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DissectorError) as error:
        Filter(**options)
    assert message in str(error.value)


def test_a_value_that_fails_is_an_error_with_the_condition() -> None:
    chosen = Filter(where=["request_time > 'soon'"])
    with pytest.raises(DissectorError, match=r"'soon' to a time or an integer$"):
        read(path_of("kafka-4-quotas"), chosen)
    chosen = Filter(where=["topics = 'orders'"])
    with pytest.raises(DissectorError, match=r"are lists: list_contains\(topics, 'x'\)$"):
        read(path_of("kafka-4-quotas"), chosen)
    chosen = Filter(where=["client_id::int = 3"])
    with pytest.raises(DissectorError, match="--where 'client_id::int = 3': Could not convert"):
        read(path_of("kafka-4-quotas"), chosen)


def test_a_relative_time_needs_the_first_packet() -> None:
    assert Filter(since="90").is_relative
    assert not Filter(since="2026-11-21").is_relative
    with pytest.raises(DissectorError, match="90: the time of the first packet is not known"):
        _ = Filter(since="90").sql


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("2026-11-21T23:50:01", 1),
        ("2026-11-22T00:50:02.000000005+01:00", 2.000000005),
        ("2026-11-21 23:50:00Z", 0),
        ("2026-11-21t23:50:00z", 0),
        ("2026-11-21T23:50:01.1234567891", 1.123456789),
        ("2026-11-22T00:50:01.5+01:00:01", 0.5),
        ("23:50:01.1234567891", 1.123456789),
        ("23:50", 0),
        ("23:50:01.5", 1.5),
        ("23:00", -3000),
        ("00:10:00", 1200),
        ("0", 0),
        ("90", 90),
        ("1.5m", 90),
        ("250ms", 0.25),
    ],
)
def test_times(text: str, after: float) -> None:
    assert START is not None
    time = time_ns(text, START)
    assert time is not None
    assert time - START == round(after * 10**9)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("2023-10-28T23:50:00Z", "2023-10-29T00:30:00Z"),  # 01:50
        ("2023-10-29T00:20:00Z", "2023-10-29T00:30:00Z"),  # 02:20, before the clock is changed
        ("2023-10-29T01:10:00Z", "2023-10-29T01:30:00Z"),  # 02:10, after it
        ("2023-10-29T01:40:00Z", "2023-10-29T01:30:00Z"),
    ],
)
def test_a_time_of_day_that_the_clock_repeats(start: str, expected: str) -> None:
    """In Berlin, 02:00 to 03:00 of 2023-10-29 comes twice: at 00:00 and 01:00 UTC."""
    time = time_ns("02:30", time_ns(start, None), ZoneInfo("Europe/Berlin"))
    assert time == time_ns(expected, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1795232798", "'1795232798' is not a time; use ISO 8601"),  # since 1970
        ("1795232798123", "'1795232798123' is not a time; use ISO 8601"),
        ("0001-01-01", "'0001-01-01' is not a time from 1678 to 2261"),
        ("9999-12-31T23:59:59", "is not a time from 1678 to 2261"),
    ],
)
def test_times_that_no_capture_has(text: str, message: str) -> None:
    with pytest.raises(DissectorError, match=message):
        time_ns(text, START)


@given(st.integers(0, 2 * 10**18), st.integers(0, 9))
def test_an_iso_time_keeps_its_nanoseconds(ns: int, zeros: int) -> None:
    ns -= ns % 10**zeros
    text = pd.Timestamp(ns, tz="UTC").isoformat()
    assert time_ns(text, None) == ns


def test_lengths() -> None:
    assert [length_ns(text) for text in ("10s", "5m", "1h", "minute", "2d", "x", "5")] == [
        *(seconds * 10**9 for seconds in (10, 300, 3600, 60, 172_800)), None, None
    ]  # fmt: skip


def test_names_are_not_patterns_unless_they_have_wildcards() -> None:
    rows = dissector.open_capture(path_of("kafka-4-quotas")).tables(["exchanges"])
    assert len(Filter(client=["[p]roducer"]).apply(rows)["exchanges"]) == 0
    assert len(Filter(client=["[p]rod*"]).apply(rows)["exchanges"]) == 0
    assert len(Filter(client=["it's"]).apply(rows)["exchanges"]) == 0
    by_address = len(Filter(client=["127.0.0.1"]).apply(rows)["exchanges"])
    assert by_address == len(rows["exchanges"])


def test_a_backslash_is_a_character() -> None:
    rows = dissector.open_capture(path_of("kafka-4-quotas")).tables(["exchanges"])
    names = pa.array([r"DOM\app"] * len(rows["exchanges"]), pa.string())
    place = rows["exchanges"].schema.get_field_index("client_id")
    rows["exchanges"] = rows["exchanges"].set_column(place, "client_id", names)
    for pattern in (r"DOM\*", r"*\app", r"DOM\app"):
        assert len(Filter(client=[pattern]).apply(rows)["exchanges"]) == 137
    assert len(Filter(client=[r"D\*"]).apply(rows)["exchanges"]) == 0


@pytest.mark.parametrize("chosen", [*FILTERS, Filter()])
def test_the_text_of_a_filter_makes_the_same_filter(chosen: Filter) -> None:
    assert Filter.parse(chosen.text).options == chosen.options


def test_the_text_of_a_filter_is_a_condition_and_options() -> None:
    chosen = Filter.parse("latency_ms > 1 -- slow\nor true --client 'a b' --api=Fetch --until 9")
    assert chosen.where == ("latency_ms > 1 -- slow\nor true",)
    assert (chosen.client, chosen.api, chosen.until) == (("a b",), ("Fetch",), "9")


def test_a_text_is_one_value() -> None:
    """Not a value for each of its characters."""
    assert Filter(client="maker", api="Fetch") == Filter(client=["maker"], api=["Fetch"])
    assert Filter(topic="bulk", where="latency_ms > 1").options == [
        "--where", "latency_ms > 1", "--topic", "bulk",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["where", "client", "topic", "api", "broker", "since", "until"])
@pytest.mark.parametrize("value", [5, [5], None])
def test_other_values_than_texts_are_refused(name: str, value: Any) -> None:
    with pytest.raises(DissectorError, match=f"^{name} must be a text"):
        Filter(**{name: value})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--clients a", "--clients is not an option of a filter: use --where, --client"),
        ("--client", "--client needs a value"),
        ("--client 'a", "no closing quotation"),
        ("--client a b", "b is not an option"),
        ("latencyms > 1", "exchanges has no column latencyms"),
        ("api=Produce", "no column Produce; for text use single quotes: 'Produce'"),
    ],
)
def test_a_wrong_text_of_a_filter_is_explained(text: str, message: str) -> None:
    with pytest.raises(DissectorError, match=message):
        Filter.parse(text)
