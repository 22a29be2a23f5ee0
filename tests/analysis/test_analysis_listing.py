"""Listings keep their most important columns at each width of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial

import pyarrow as pa
import pytest
from markdown_it import MarkdownIt
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analysis.answers import ANSWERS
from analysis.display.listing import ROWS, Column, Listing, cell_text
from analysis.display.row_table import cells, markdown, screen, vertical
from analysis.display.terminal import excerpt, plain
from tests.analysis.answering import capture
from tests.analysis.printing import printed

NAMES = (
    "kafka-4-followed", "kafka-4-errors", "kafka-4-net-loss", "kafka-3-java-0-10",
    "kafka-3-zookeeper",
)  # fmt: skip
MUST = {
    "errors": ["error", "api", "topic", "client_id", "count"],
    "audit": ["topic", "partition", "action", "client_id"],
    "network": ["client_id", "broker", "broker_p50_ms", "network_percent"],
    "versions": ["client_id", "client", "api", "breaks"],
    "groups": ["group_id", "trigger", "reason"],
    "producers": ["producer_id", "gaps", "refused", "fenced"],
    "latency": ["api", "count", "net_p50_ms", "net_p99_ms"],
    "lag": ["group_id", "topic", "partition", "lag"],
    "throttle": ["client_id", "api", "total_ms", "longest_ms"],
    "leadership": ["topic", "partition", "previous_leader", "leader"],
}
"""Columns without which the question is not answered."""


@cache
def answered(name: str, recording: str) -> pa.Table:
    answer = ANSWERS[name]
    rows = answer.function(capture(recording, answer.tables))
    return pa.Table.from_pandas(rows, preserve_index=False)


def listed(name: str, recording: str, width: int) -> list[str]:
    answer, table = ANSWERS[name], answered(name, recording)
    by = [each for option in answer.options if option.name == "by" for each in option.default]
    return printed(screen(table, (*by, *answer.essential), answer.useful), width).splitlines()


@pytest.mark.parametrize("width", [80, 10])
def test_headings_from_a_capture_move_no_cursor(width: int) -> None:
    columns = [Column("count"), Column("\x1b[31m\u202e\n[bold]", rank=1)]
    text = printed([Listing(columns, [["1"], ["2"]], hint="use --wide")], width)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert r"\x1b[31m\u202e\n[bold]" in "".join(text.split())


def test_long_texts_are_shortened_with_their_length() -> None:
    client, topics, text = "c" * 30_000, ["t" * 249] * 4, "s" * 1000
    rows = pa.table({"client_id": [client], "topics": [topics], "text": [text], "id": [10**18]})
    _, line = printed(screen(rows)).splitlines()
    assert [cell.strip() for cell in line.split("  ")] == [
        f"{'c' * 249}… (30,000 characters)", f"{', '.join(topics)[:249]}… (1,002 characters)",
        text, str(10**18),
    ]  # fmt: skip
    assert excerpt(topics[0]) == topics[0]
    assert client in printed(vertical(rows, len(rows)), width=100_000)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("recording", NAMES)
@pytest.mark.parametrize("width", [80, 120, 10_000])
def test_an_answer_fits_and_keeps_its_columns(name: str, recording: str, width: int) -> None:
    lines = listed(name, recording, width)
    if lines == ["No rows."]:
        return
    assert all(len(line) <= width for line in lines)
    heads = lines[0].split()
    assert set(MUST.get(name, [])) <= set(heads)
    hidden = hidden_columns(lines)
    columns = [field for field in heads if field in hidden]
    assert columns == []
    assert len(heads) + len(hidden) == len(listed(name, recording, 10_000)[0].split())


def hidden_columns(lines: Sequence[str]) -> list[str]:
    text = " ".join(" ".join(lines).split())
    _, _, text = text.partition("Hidden (terminal too narrow): ")
    names, _, hint = text.partition("; ")
    assert not names or hint.startswith("use --wide")
    return names.split(", ") if names else []


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=list(ANSWERS))
def test_essential_columns_are_columns_of_the_answer(answer: object) -> None:
    each = ANSWERS[answer.name]  # type: ignore[attr-defined]
    variants = (each.columns, *each.other_columns.values())
    by = [name for option in each.options if option.name == "by" for name in option.default]
    declared = {column.name for columns in variants for column in columns} | set(by)
    assert {*each.essential, *each.useful} <= declared
    assert not set(each.essential) & set(each.useful)


def test_a_column_that_is_grouped_by_stays_although_the_answer_names_it_later() -> None:
    table = pa.table({name: [1 << 40] for name in ("client", "count", "median", "api")})
    text = printed(screen(table, ("client", "api", "count", "median", "api")), width=44)
    assert text.split("\n")[0].split() == ["client", "count", "api"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 25.0], ["1", "25"]),
        ([0.5, 25.0], ["0.5", "25.0"]),
        ([0.0004, 25.25], ["0.00", "25.25"]),
        ([1 / 3, None], ["0.333", "-"]),
        ([None, None], ["-", "-"]),
    ],
)
def test_numbers_of_a_column_have_the_decimals_that_it_needs(
    values: list[float | None], expected: list[str]
) -> None:
    table = pa.table({"name": ["a", "b"], "number": pa.array(values, pa.float64())})
    lines = printed(screen(table), width=80).splitlines()
    assert [line.split()[-1] for line in lines[1:]] == expected


def test_texts_are_folded_further_before_an_important_number_is_hidden() -> None:
    names = {
        "error": "COORDINATOR_LOAD_IN_PROGRESS", "api": "InitProducerId",
        "topic": "__consumer_offsets", "transactional_id": "broker-2-fetcher-0",
    }  # fmt: skip
    rows = pa.table({**{name: [text] for name, text in names.items()}, "count": [1], "bytes": [1]})
    lines = printed(screen(rows, (*names, "count"), ("bytes",)), width=78).splitlines()
    assert lines[0].split() == [*names, "count"]
    assert hidden_columns(lines) == ["bytes"]


def test_an_empty_text_is_not_a_missing_one() -> None:
    client_ids = pa.chunked_array([["", None]])
    assert [cell_text(cell) for cell in cells("client_id", client_ids)] == ['""', "-"]


@pytest.mark.parametrize("type", [pa.string(), pa.date32(), pa.null(), pa.list_(pa.string())])
def test_a_column_may_have_no_rows_and_no_values(type: pa.DataType) -> None:
    assert cells("name", pa.nulls(0, type)) == []
    assert cells("name", pa.chunked_array([], type)) == []
    assert [cell_text(cell) for cell in cells("name", pa.nulls(2, type))] == ["-", "-"]


def test_columns_without_values_are_hidden_first() -> None:
    table = pa.table({"name": ["a"], "message": pa.nulls(1, pa.string()), "time_ms": [1 << 30]})
    lines = printed(screen(table, (), ("message", "time_ms")), width=20).splitlines()
    assert lines[0].split() == ["name", "time_ms"]
    assert hidden_columns(lines) == ["message"]


@pytest.mark.parametrize(("width", "numbers"), [(22, 1), (30, 2), (40, 2), (60, 3)])
def test_a_number_is_never_cut(width: int, numbers: int) -> None:
    columns = [
        Column("API"),
        *(Column(name, number=True) for name in ("requests", "p50 ms", "p99")),
    ]
    row = ["ConsumerGroupHeartbeat", "1,234,567", "3.125", "123,456.789"]
    head, first, *_ = printed([Listing(columns, [[cell] for cell in row])], width).splitlines()
    assert head.startswith("API")
    cells = first.split()[1:]
    assert cells == row[1:][:numbers]


def test_lines_are_those_of_a_table_of_rich() -> None:
    columns = [Column("name"), Column("数", number=True), Column("time", is_whole=True)]
    rows = [
        ["日本語", "1", "03:10:11"],
        ["e\u0301 and a space", "1,234.5", Text("-", "dim")],
        ["", Text("-", "bold red"), "x"],
    ]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in columns:
        table.add_column(column.name, justify="right" if column.number else "left")
    for row in rows:
        table.add_row(*row)
    expected, shown = (
        [line.rstrip() for line in printed([each], width=60).splitlines()]
        for each in (table, Listing(columns, [*zip(*rows, strict=True)]))
    )
    assert shown == expected


@pytest.mark.parametrize("form", [screen, markdown, partial(vertical, total=2500)])
def test_a_pipe_gets_long_tables_in_pieces_with_the_text_of_rich(
    form: Callable[[pa.Table], Iterable[RenderableType]],
) -> None:
    names = [("a|b", "日本語", "", None)[index % 4] for index in range(2500)]
    rows = pa.table({"name": names, "number": pa.array(range(2500)), "none": pa.nulls(2500)})
    pieces = [*plain(form(rows))]
    assert max(piece.count("\n") for piece in pieces) <= ROWS
    lines = printed(form(rows)).splitlines()
    assert "".join(pieces).splitlines() == [line.rstrip() for line in lines]


def test_a_cell_without_a_style_is_a_str_which_equal_values_share() -> None:
    values = pa.chunked_array([["app", "app"], ["app", None]])
    first, *others, missing = cells("client_id", values)
    assert type(first) is str
    assert all(cell is first for cell in others)
    assert isinstance(missing, Text)


def test_a_table_in_markdown_has_the_cells_of_the_screen() -> None:
    texts = [
        "a|b",
        "`c`",
        "*d*",
        "<e>",
        "[f](g)",
        "h\\|i",
        "__j",
        "_k_",
        "(__l__)",
        "a._",
        "~~m~~",
        "&lt;n&gt; &#65; &",
        "$o$",
        "\x1b\n\u2028",
        "\u4e2d",
        "",
        None,
    ]
    rows = pa.table({"x|y": pa.array(texts, pa.string()), "n": [*map(float, range(len(texts)))]})
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    text = printed(markdown(rows), 20)
    cells_of = [
        "".join(child.content for child in token.children or ())
        for token in parser.parse(text) if token.type == "inline"
    ]  # fmt: skip
    expected = [cells(name, rows[name]) for name in rows.column_names]
    shown = [cell_text(cell) for row in zip(*expected, strict=True) for cell in row]
    assert cells_of == ["x|y", "n", *shown]
    assert len({Text(line).cell_len for line in text.splitlines()}) == 1
    assert "| __j " in text
    assert 'style="text-align:right"' in parser.render(text)


def test_a_table_in_markdown_has_all_columns_and_the_day_of_its_times() -> None:
    rows = answered("groups", "kafka-4-followed")
    head, line, *body, space, caption = printed(markdown(rows), 80).splitlines()
    assert head.strip("| ").replace(" ", "").split("|") == rows.column_names
    assert (line[:5], len(body), space) == ("| ---", len(rows), "")
    assert caption.startswith("times of 20")


@pytest.mark.parametrize(("width", "is_shown"), [(30, False), (60, True)])
def test_the_day_of_times_is_shown_with_a_time(width: int, is_shown: bool) -> None:
    times = pa.array([1_700_000_000_000_000_000], pa.timestamp("ns"))
    rows = pa.table({"topic": ["orders"], "records": [10**15], "first_time": times})
    lines = printed(screen(rows), width)
    assert ("times of 20" in lines) == is_shown
    assert ("first_time" in lines.splitlines()[0]) == is_shown
