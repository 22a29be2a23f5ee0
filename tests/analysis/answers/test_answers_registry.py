"""Every answer accepts each capture, also with empty tables, and has the documented columns."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache

import pandas as pd
import pytest

import analysis
from analysis.answers import ANSWERS, Answer, Tables, Variant
from analysis.columns import resolved
from analysis.frames import frame
from analysis.sql.query import connected, no_tables, table_of
from dissector.errors import DissectorError
from dissector.tables import TABLES
from tests.analysis.answering import ANSWER_TABLES, EMPTY, capture, made, opened
from tests.analysis.made_rows import connection, exchange
from tests.programs import printed

ALL = pytest.mark.parametrize("answer", ANSWERS.values(), ids=list(ANSWERS))


def grouped_by(answer: Answer) -> list[str]:
    return [name for option in answer.options if option.name == "by" for name in option.default]


@cache
def without_rows(name: str) -> pd.DataFrame:
    """The answer on an empty capture, from no other tables than those that it declares."""
    return ANSWERS[name].function(no_tables(ANSWERS[name].tables))


@pytest.fixture(scope="module")
def recorded(request: pytest.FixtureRequest) -> Iterator[Tables]:
    with opened(request.param) as connection:
        yield connection


RECORDED = pytest.mark.parametrize("recorded", ["kafka-4-quotas"], indirect=True)


@ALL
def test_an_empty_capture_has_an_answer_without_rows(answer: Answer) -> None:
    empty = without_rows(answer.name)
    assert len(empty) == 0 or answer.name == "quality"
    expected = frame(table_of([], answer.columns)).dtypes
    assert empty.dtypes[expected.index].equals(expected)
    by = grouped_by(answer)
    assert list(empty.columns) == by + [name for name in expected.index if name not in by]


@pytest.mark.parametrize(
    ("answer", "variant"),
    [(answer, variant) for answer in ANSWERS.values() for variant in answer.variants],
    ids=lambda each: each.name if isinstance(each, Answer) else each.value,
)
def test_an_empty_capture_has_no_rows_of_a_variant(answer: Answer, variant: Variant) -> None:
    value = 3 if variant.value == "N" else variant.value
    empty = answer.function(EMPTY, **{variant.option: value})
    expected = frame(table_of([], resolved(variant.columns))).dtypes
    assert empty.dtypes.equals(expected)
    assert len(empty) == 0


@ALL
def test_help_has_all_parameters_and_columns(answer: Answer) -> None:
    text = answer.function.__doc__ or ""
    assert answer.question in text
    assert all(
        f"`{option.name}`: {option.meaning}" in " ".join(text.split()) for option in answer.options
    )
    columns = [answer.columns, *answer.other_columns.values()]
    assert {column.name for each in columns for column in each} <= {*re.findall(r"\w+", text)}
    assert answer.name in repr(ANSWERS)


@ALL
def test_a_wrong_choice_is_an_error(answer: Answer) -> None:
    for option in answer.options:
        if option.choices:
            with pytest.raises(DissectorError, match=f"not one of {', '.join(option.choices)}"):
                answer.function(EMPTY, **{option.name: "nonsense"})


@pytest.mark.sampled(4)
@ALL
@pytest.mark.parametrize(
    "recorded", ["kafka-4-quotas", "kafka-4-cut", "librdkafka-mock-errors"], indirect=True
)
def test_the_shape_does_not_depend_on_the_capture(answer: Answer, recorded: Tables) -> None:
    rows = answer.function(recorded)
    assert rows.dtypes.equals(without_rows(answer.name).dtypes)
    assert rows.index.equals(pd.RangeIndex(len(rows)))


NOTHING = {"latency_ms": None, "response_time": None, "response_end_time": None}


@pytest.fixture(scope="module")
def single(request: pytest.FixtureRequest) -> Iterator[Tables]:
    with connected(made(exchanges=[exchange(**request.param)]), ANSWER_TABLES) as connection:
        yield connection


@pytest.mark.sampled(3)
@ALL
@pytest.mark.parametrize(
    "single",
    [
        {},
        NOTHING | {"status": "unanswered"},
        NOTHING | {"status": "undecoded", "api": None, "api_version": 99, "client_id": None},
        {"status": "request_missing", "api": None, "api_key": None, "request_time": None}
        | {"request_end_time": None, "latency_ms": None, "client_id": None},
    ],
    ids=["answered", "unanswered", "undecoded", "request_missing"],
    indirect=True,
)
def test_one_exchange_is_enough(answer: Answer, single: Tables) -> None:
    rows = answer.function(single)
    assert rows.dtypes.equals(without_rows(answer.name).dtypes)


@ALL
def test_an_answer_does_not_change_its_tables(answer: Answer) -> None:
    whole = capture("kafka-4-quotas", ANSWER_TABLES)
    tables = {name: whole[name] for name in answer.tables}
    before = {name: table.copy(deep=True) for name, table in tables.items()}
    answer.function(tables)
    for name, table in tables.items():
        pd.testing.assert_frame_equal(table, before[name])


@ALL
def test_declarations_are_complete(answer: Answer) -> None:
    assert set(answer.tables) <= set(TABLES)
    assert answer.question.endswith("?")
    assert getattr(analysis, answer.name) is answer.function
    assert answer.name in dir(analysis)
    assert all(column.meaning for column in answer.columns)
    for column in answer.columns:
        assert (column.unit == "ms") == column.name.endswith("_ms"), column.name


@pytest.mark.parametrize(
    "answer", [each for each in ANSWERS.values() if grouped_by(each)], ids=lambda each: each.name
)
def test_a_wrong_column_is_a_sentence(answer: Answer) -> None:
    for by in (["nonsense"], [], ["api", "api"]):
        with pytest.raises(DissectorError, match=r"column"):
            answer.function(no_tables(answer.tables), by=by)


@pytest.mark.parametrize(
    "answer", [each for each in ANSWERS.values() if grouped_by(each)], ids=lambda each: each.name
)
@RECORDED
def test_a_column_of_the_answer_is_grouped_by_or_refused(answer: Answer, recorded: Tables) -> None:
    for column in answer.columns:
        try:
            rows = answer.function(recorded, by=[column.name])
        except DissectorError:
            continue
        assert list(rows.columns).count(column.name) == 1
        assert rows.columns[0] == column.name


PARTS = ("How to read it", "What to do", "How it is computed", "Limitations")


@ALL
def test_its_page_has_an_output_and_all_parts(answer: Answer) -> None:
    text = sys.modules[answer.function.__module__].__doc__ or ""
    assert f"    $ kafka-dissector {answer.name} captures/" in text
    places = [text.index(f"**{part}.**") for part in PARTS]
    assert places == sorted(places)


def test_an_unknown_name_is_not_there() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        analysis.nonsense  # noqa: B018


def test_the_registry_imports_nothing_heavy() -> None:
    check = "import sys, analysis.answers; print({'numpy', 'pyarrow', 'pandas'} & set(sys.modules))"
    assert printed(check) == "set()\n"


@pytest.fixture(scope="module")
def extreme() -> Iterator[Tables]:
    """Tables with numbers at the limits of 64 bits."""
    limits = (2**63 - 1, -(2**63))
    offsets = ("offset", "high_watermark", "last_stable_offset", "last_offset", "told_lag")
    partitions = [
        {
            "connection_id": 0, "correlation_id": n, "time": n, "response_time": n + 1, "api": api,
            "client_id": "app", "group_id": "g", "topic": "t", "partition": 2**31 - 1, "bytes": 9,
            "error_code": 0, "record_count": 2, "asked_timestamp": -1, "replica_id": replica,
        } | dict.fromkeys(offsets, limit)
        for n, (api, replica, limit) in enumerate(
            (api, replica, limit)
            for api in ("Fetch", "Produce", "OffsetCommit", "ListOffsets", "ShareFetch")
            for replica in (None, 2)
            for limit in limits
        )
    ]  # fmt: skip
    tables = made(partitions=partitions, connections=[connection()])
    with connected(tables, ANSWER_TABLES) as opened_tables:
        yield opened_tables


@ALL
def test_numbers_at_the_limits_of_64_bits_have_an_answer(answer: Answer, extreme: Tables) -> None:
    """A message may have any number."""
    for options in ({}, *({v.option: v.value} for v in answer.variants if v.option == "show")):
        answer.function(extreme, **options)
    if answer.name == "lag":
        assert answer.function(extreme)["lag"].dropna().empty
