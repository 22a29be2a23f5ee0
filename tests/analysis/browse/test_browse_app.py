"""The full screen over a recording, driven by textual's pilot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from analysis.browse.app import Browser
from analysis.browse.capture_source import CaptureSource
from analysis.browse.connection_pane import ConnectionPane
from analysis.browse.cursor_view import LineView
from analysis.browse.jobs import JobApp
from analysis.browse.message_pane import MessagePane
from analysis.browse.row_view import RowView
from analysis.cli import main
from analysis.input.filters import Filter
from dissector.capture import open_capture

CAPTURE = Path(__file__).parents[3] / "captures" / "kafka-4-quotas.pcap.zst"
OPTIONS = {"keylog": None, "memory": 512 << 20, "show_secrets": False}


def command(text: str, chosen: Filter | None) -> str:
    return " ".join(["kafka-dissector", text, *(chosen.options if chosen else ())])


def drive(
    steps: Callable[[Browser, Pilot[Exception]], Awaitable[None]], *paths: Path, first: str = ""
) -> None:
    """Open the screen, and run steps when the list is there."""
    source = CaptureSource([str(path) for path in paths or (CAPTURE,)], dict(OPTIONS))
    app = Browser(source, "capture", command, chosen=Filter.parse(first))

    async def run() -> None:
        async with app.run_test(size=(100, 30)) as pilot:
            await idle(app, pilot)
            await steps(app, pilot)

    asyncio.run(run())
    source.close()


async def idle(app: JobApp, pilot: Pilot[Exception]) -> None:
    """Wait until no job is left, and none begins after a pause of the cursor."""
    quiet = 0
    for _ in range(200):
        await pilot.pause(0.04)
        quiet = 0 if app.jobs else quiet + 1
        if quiet == 3:
            return
    pytest.fail(f"jobs that do not end: {app.jobs}")


async def press(app: JobApp, pilot: Pilot[Exception], *keys: str) -> None:
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
        fields = app.query_one("#fields", LineView)
        lines = [fields.text(line).plain for line in range(fields.count)]
        assert lines[0].startswith("Produce version 13, answered after")
        await press(app, pilot, "enter", "down", "down", "down", "down")
        assert "header.client_id" in text(app, "#details")
        assert "00 08 70 72 6f 64 75 63" in text(app, "#details")  # the string "producer"
        await select(app, pilot, "!!")
        assert "--where" in text(app, "#status")
        assert view.count == len(slow)
        await press(app, pilot, "escape", "x")
        assert view.count == len(rows)

    drive(steps)


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


def test_exported_tables_have_rows_without_messages(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    assert main(["export", str(CAPTURE), "--table", "exchanges", "-o", str(file)]) == 0

    async def steps(app: Browser, pilot: Pilot[Exception]) -> None:
        assert app.query_one("#list", RowView).count == 137
        fields = app.query_one("#fields", LineView)
        assert "client_id" in "".join(fields.text(line).plain for line in range(fields.count))
        assert app.query_one(MessagePane).content is None
        await press(app, pilot, "c")
        assert "exported tables do not contain packets" in text(app, "#status")

    drive(steps, file)


def test_the_command_needs_a_terminal_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["browse", str(CAPTURE)]) == 1
    assert "needs a terminal" in capsys.readouterr().err
