"""The full screen over a recording, driven by textual's pilot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event

import duckdb
import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from analysis.answers import ANSWERS
from analysis.browse.app import Browser
from analysis.browse.capture_source import CaptureSource
from analysis.browse.connection_pane import ConnectionPane
from analysis.browse.field_view import FieldView
from analysis.browse.frame import Frame
from analysis.browse.message_pane import MessagePane
from analysis.browse.row_view import RowView
from analysis.cli import main
from analysis.input.filters import Filter
from dissector.capture import open_capture
from dissector.embedded.records import Decode
from dissector.errors import DissectorError
from tests.analysis.commands import Ran
from tests.captures.recorded import CAPTURES

pytestmark = pytest.mark.usefixtures("short_pauses")

CAPTURE = CAPTURES / "kafka-4-quotas.pcap.zst"
OPTIONS = {"keylog": None, "memory": 512 << 20, "show_secrets": False}
PATIENCE = 180
"""Seconds that the jobs of a key may take on a busy machine."""


def command(text: str, chosen: Filter | None) -> str:
    return " ".join(["kafka-dissector", text, *(chosen.options if chosen else ())])


def drive(
    steps: Callable[[Browser, Pilot[Exception]], Awaitable[None]], *paths: Path, first: str = "",
    decode: Decode | None = None, size: tuple[int, int] = (100, 30), waits: bool = True,
) -> None:  # fmt: skip
    """Open the screen, and run steps when the list is there. `waits`: for the list."""
    source = CaptureSource([str(path) for path in paths or (CAPTURE,)], dict(OPTIONS))
    app = Browser(source, "capture", command, chosen=Filter.parse(first), decode=decode)

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            if waits:
                await idle(app, pilot)
            await steps(app, pilot)

    asyncio.run(run())
    source.close()


async def idle(app: Frame, pilot: Pilot[Exception]) -> None:
    """Wait until no job is left, and none begins after a pause of the cursor."""
    quiet, end = 0, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        await pilot.pause(0.02)
        quiet = 0 if app.jobs else quiet + 1
        if quiet == 3:
            return
    pytest.fail(f"jobs that do not end: {app.jobs}")


async def press(app: Frame, pilot: Pilot[Exception], *keys: str) -> None:
    await pilot.press(*keys)
    await idle(app, pilot)


async def select(app: Browser, pilot: Pilot[Exception], filter: str) -> None:
    """Type a filter."""
    await pilot.press("slash")
    app.query_one("#filter", Input).value = filter
    await press(app, pilot, "enter")


def column(view: RowView, name: str) -> list[object]:
    """The values of a column, in the order of the screen; none before there are rows."""
    if name not in view.rows.columns:
        return []
    return [value.as_py() for value in view.rows.take(name, view.numbers)]


def shown(view: FieldView) -> list[str]:
    """The lines that are not folded away."""
    return [view.text(line).plain for line in range(view.count)]


def text(app: Browser, selector: str) -> str:
    return str(app.screen.query_one(selector, Static).render())


def test_exchanges_are_filtered_sorted_and_explained() -> None:
    rows = open_capture([CAPTURE]).tables(["exchanges"])["exchanges"].to_pylist()
    slow = [row for row in rows if row["client_id"] == "producer" and row["latency_ms"] > 100]

    async def steps(app: Browser, pilot: Pilot[Exception]) -> None:
        view = app.query_one("#list", RowView)
        assert view.count == len(rows)
        times = column(view, "time")
        assert times == sorted(times)  # type: ignore[type-var]
        await select(app, pilot, "latency_ms > 100 --client producer")
        assert {*column(view, "request_packet")} == {row["request_packet"] for row in slow}
        assert f"{len(slow)} of {len(rows)} exchanges" in text(app, "#head")
        view.column = list(view.rows.columns).index("latency_ms")
        await press(app, pilot, "s")
        assert column(view, "latency_ms") == sorted(row["latency_ms"] for row in slow)
        await press(app, pilot, "S", "home")
        assert view.value("latency_ms") == max(row["latency_ms"] for row in slow)
        fields = app.query_one("#fields", FieldView)
        assert shown(fields)[0].startswith("Produce version 13, answered after")
        await press(app, pilot, "enter", "down", "down", "down", "down")
        assert "header.client_id" in text(app, "#details")
        assert "00 08 70 72 6f 64 75 63" in text(app, "#details")  # the string "producer"
        await select(app, pilot, "!!")
        assert "--where" in text(app, "#status")
        assert view.count == len(slow)
        await press(app, pilot, "escape", "x")
        assert view.count == len(rows)

    drive(steps)


TWO_CLUSTERS = CAPTURES / "kafka-4-two-clusters.pcap.zst"


@pytest.mark.parametrize("cluster", [None, "", "cmVjb3JkZXIta2Fma2EtMQ"])
def test_several_clusters_are_mixed_unless_one_was_exported(
    cluster: str | None, tmp_path: Path
) -> None:
    """`cluster`: the exported one; None: nothing is exported."""
    if cluster is not None:
        chosen = ["--cluster", cluster] if cluster else []
        arguments = ["export", str(TWO_CLUSTERS), "--table", "all", "-o", str(tmp_path / "x")]
        assert main([*arguments, *chosen]) == 0

    async def steps(app: Browser, pilot: Pilot[Exception]) -> None:
        assert "exchanges" in text(app, "#head")
        assert ("2 clusters" in text(app, "#head")) == (not cluster)

    drive(steps, TWO_CLUSTERS if cluster is None else tmp_path / "x")


def test_a_filter_may_select_no_exchange() -> None:
    async def steps(app: Browser, pilot: Pilot[Exception]) -> None:
        view = app.query_one("#list", RowView)
        before = view.count
        await select(app, pilot, "--client nobody")
        assert view.count == 0
        assert text(app, "#status").startswith("no exchange meets the filter")
        assert f"0 of {before} exchanges" in text(app, "#head")
        for keys in ("s", "S", "enter", "end", "f", "c", "y", "escape", "+", "-", "tab"):
            await press(app, pilot, keys)
        for tab in (*app.TABS, "exchanges"):
            app.show_tab(tab)
            await idle(app, pilot)
        await press(app, pilot, "escape", "x")
        assert view.count == before

    drive(steps)


def test_another_tab_may_be_opened_before_the_list_is_read(one_rule: None) -> None:
    """The fields of the first exchange are then in a tab without a size."""

    async def steps(app: Browser, pilot: Pilot[Exception]) -> None:
        await pilot.press("3", "4")
        await press(app, pilot, "2")
        await press(app, pilot, "1")
        assert app.query_one("#list", RowView).count
        assert shown(app.query_one("#fields", FieldView))

    drive(steps, waits=False)


def test_fields_fold_and_large_arrays_are_folded_at_first() -> None:
    """The response to ApiVersions has an array of more than forty APIs."""

    async def steps(app: Browser, pilot: Pilot[Exception]) -> None:
        fields = app.query_one("#fields", FieldView)
        short = shown(fields)
        (array,) = (line for line in short if "▸" in line)
        assert array.split()[1:3] == ["▸", "api_keys"]
        await press(app, pilot, "enter")
        fields.go(short.index(array))
        await pilot.pause()
        size = text(app, "#details").split("\n")[1]
        await pilot.press("enter")
        assert sum("api_key " in line for line in shown(fields)) > 40
        await pilot.press("down")
        element = text(app, "#details").split("\n")
        assert element[0] == "api_keys[0]"
        assert element[1] != size
        await pilot.press("down", "down", "minus")
        assert text(app, "#details").split("\n")[:2] == ["api_keys", size]  # the line around it
        await pilot.press("plus")
        assert not any("▸" in line for line in shown(fields))
        assert len(shown(fields)) > 200

    drive(steps, first="api = 'ApiVersions'")


def test_records_are_decoded_by_their_schema() -> None:
    """The value of a record of the capture gets the framing of Confluent's serializers."""
    value, framed = b"x" * 100, b"\0" + (42).to_bytes(4) + b"x" * 95
    decode: Decode = lambda number, payload: f"{number}, {len(payload)} bytes"  # noqa: E731

    async def steps(app: Browser, pilot: Pilot[Exception]) -> None:
        source, fields = app.source, app.query_one("#fields", FieldView)
        exchange = source.exchange(app.rows.row(int(app.query_one("#list", RowView).numbers[0])))
        assert exchange is not None
        assert exchange.request_frame is not None
        assert value in exchange.request_frame
        frame = exchange.request_frame.replace(value, framed, 1)
        source.exchange = lambda row: replace(exchange, request_frame=frame)  # type: ignore[method-assign]
        await press(app, pilot, "down")
        assert any("schema 42: 42, 995 bytes" in line for line in shown(fields))

        def fails(number: int, payload: bytes) -> str | None:
            raise DissectorError("the registry does not respond")

        app._decode = fails
        await press(app, pilot, "down")
        assert text(app, "#status") == "the registry does not respond"
        assert any(
            "schema 42, 95 bytes" in line or "schema 42: x" in line for line in shown(fields)
        )

    drive(steps, first="api = 'Produce'", decode=decode)


@pytest.mark.parametrize("columns", [80, 200])
def test_each_width_shows_marks_and_whole_lines_of_bytes(columns: int) -> None:
    """Columns beyond an edge have a mark beside the scroll bar; 8 bytes or more are in a line."""

    async def steps(app: Browser, pilot: Pilot[Exception]) -> None:
        view = app.query_one("#list", RowView)
        edge = view.visible_width
        assert view.visible_width < view.size.width == columns
        assert view.line_width > columns
        assert view.render_line(0).text[edge - 1] == "›"
        first = [view.text(0).plain[: len("04:17:42.213623")], view.head().plain.split()[0]]
        assert first == ["04:17:42.213623", "time▲"]
        await pilot.press("end")
        view.action_sideways(len(view.rows.columns))
        await pilot.press("right")
        head = view.render_line(0).text
        assert head[0] == "‹"
        assert "›" not in head
        assert view.column_name in head
        assert len(text(app, "#details").split("\n")[1].split()) > 8
        await pilot.press("c")
        await idle(app, pilot)
        assert not app.check_action("connection", ())

    drive(steps, first="api = 'Produce'", size=(columns, 24))


def test_a_number_at_the_edge_is_whole_or_an_ellipsis() -> None:
    def edges(view: RowView) -> list[str]:
        """The cells of numbers that are partly outside of the screen."""
        left, line, at = view.scroll_offset.x, view.text(0).plain, 0
        right, cells = left + view.visible_width, []
        for name, width in zip(view._names, view._widths, strict=True):
            inside = max(at, left) < min(at + width, right)
            if name in view._of_numbers and inside and not left <= at <= right - width:
                cells.append(line[max(at, left) : min(at + width, right)].strip())
            at += width + 2
        return cells

    async def steps(app: Browser, pilot: Pilot[Exception]) -> None:
        view, cut = app.query_one("#list", RowView), set()
        for _ in view.rows.columns:
            cut.update(edges(view))
            view.action_sideways(1)  # the key `right`, which starts no job
            await pilot.pause()
        assert "…" in cut
        assert {len(cell) for cell in cut} == {1}  # a number of one digit is whole

    drive(steps, size=(84, 24))


def test_tabs_have_the_packets_findings_and_answers_of_the_filter() -> None:
    async def steps(app: Browser, pilot: Pilot[Exception]) -> None:
        view = app.query_one("#list", RowView)
        assert {*column(view, "client_id")} == {"producer"}
        await press(app, pilot, "c")
        packets = app.query_one(ConnectionPane).query_one("#packets", RowView)
        contents = column(packets, "content")
        assert contents[0] == "SYN"
        assert any(str(each).startswith("ApiVersions request") for each in contents)
        await press(app, pilot, "3")
        findings = app.query_one("#findings-list", OptionList)
        assert findings.option_count == 1
        await press(app, pilot, "4", "down")
        await pilot.pause(0.3)
        await idle(app, pilot)
        answer = app.query_one("#answer", RowView)
        assert {*column(answer, "client_id")} == {"producer"}
        await press(app, pilot, "y")
        await press(app, pilot, "enter")
        assert app.clipboard == "kafka-dissector throttle --client producer"
        assert app.clipboard in text(app, "#status")

    drive(steps, first="--client producer")


def test_answers_that_the_cursor_has_left_are_not_computed() -> None:
    """Each would delay the next one, and the end of the program."""

    async def steps(app: Browser, pilot: Pilot[Exception]) -> None:
        await press(app, pilot, "4")
        names = [*ANSWERS]
        assert [*app.source._results] == names[:1]
        with app.source._lock:  # as while an answer is computed
            for _ in range(3):
                await pilot.press("down")
                await pilot.pause(0.3)
        await idle(app, pilot)
        assert [*app.source._results] == [names[0], names[3]]

    drive(steps)


def test_a_computation_is_interrupted_at_the_end() -> None:
    """The program would wait for it: here for an answer of two queries, each of minutes."""
    started, interrupted = Event(), []

    def compute(connection: duckdb.DuckDBPyConnection) -> None:
        started.set()
        for number in range(2):
            try:
                connection.execute("select sum(sqrt(range)) from range(100000000000)")
            except duckdb.InterruptException:
                interrupted.append(number)

    async def steps(app: Browser, pilot: Pilot[Exception]) -> None:
        job = partial(app.source._result, "long", Filter(), compute, lambda: False)
        app.start("answer", "long", job, lambda _: None)
        while not started.is_set():
            await pilot.pause(0.02)
        await pilot.press("q")

    drive(steps)
    assert interrupted == [0, 1]


def test_keys_go_to_a_time_add_a_condition_and_copy() -> None:
    async def steps(app: Browser, pilot: Pilot[Exception]) -> None:
        view = app.query_one("#list", RowView)
        await pilot.press("t", "0", "4", ":", "1", "8")
        await press(app, pilot, "enter")
        assert str(view.value("time")) >= "2026-11-21 04:18"
        assert view.cursor > 0
        packet = view.value("request_packet")
        await press(app, pilot, "y")
        await press(app, pilot, "enter")
        assert f"frame.number in {{{packet}, " in app.clipboard
        await press(app, pilot, "right", "f")
        assert app.query_one("#filter", Input).value == f"client_id = '{view.value('client_id')}'"
        assert view.value("request_packet") == packet  # the cursor stays on the exchange
        await press(app, pilot, "question_mark")
        assert len(app.screen_stack) == 2
        await press(app, pilot, "escape", "t", "x", "enter")
        assert "is not a time" in text(app, "#status")

    drive(steps)


def test_a_filter_does_not_control_the_terminal() -> None:
    async def steps(app: Browser, pilot: Pilot[Exception]) -> None:
        bar = app.query_one("#filter", Input)
        line = bar.render_line(0)
        assert line.text.startswith("client_id <> 'a\ufffd[2J\ufffd\ufffdb'")
        assert line.text.isprintable()
        assert app.query_one("#list", RowView).count == 137

    drive(steps, first="client_id <> 'a\x1b[2J\u202e\nb'")


def test_exported_tables_have_rows_without_messages(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    assert main(["export", str(CAPTURE), "--table", "exchanges", "-o", str(file)]) == 0

    async def steps(app: Browser, pilot: Pilot[Exception]) -> None:
        assert app.query_one("#list", RowView).count == 137
        fields = app.query_one("#fields", FieldView)
        assert "client_id" in "".join(shown(fields))
        assert app.query_one(MessagePane).content is None
        await press(app, pilot, "c")
        assert "exported tables do not contain packets" in text(app, "#status")

    drive(steps, file)


def test_the_command_needs_a_terminal_and_valid_options(ran: Ran) -> None:
    assert "needs a terminal" in ran("browse", str(CAPTURE), status=1).err
    err = ran("browse", str(CAPTURE), "--schema-registry", "no-folder", status=1).err
    assert "no-folder is neither a folder" in err
