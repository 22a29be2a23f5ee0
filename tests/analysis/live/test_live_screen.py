"""The full screen, driven by Textual's pilot: groups, sorting, pause, exchanges of a group."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow.compute as pc
import pytest
from textual.widgets import DataTable

from analysis.live.recent_exchanges import SECONDS, RecentExchanges
from analysis.live.screen import LiveScreen
from analysis.live.session import Session
from analysis.live.sources import Origin, open_pipeline
from dissector.capture import open_capture
from dissector.packets.live import LiveSource

CAPTURE = Path(__file__).parents[3] / "captures" / "kafka-4-quotas.pcap.zst"


@pytest.fixture
def app() -> LiveScreen:
    """The screen over a pipe that ends soon."""
    origin = Origin(str(CAPTURE), (), (9092, 19092), "", 1 << 22)
    source = LiveSource(origin.feeds(), interval=0.01)
    recent = RecentExchanges()
    session = Session(source, open_pipeline(source, origin, keylog=None, timeout=60), [recent])
    return LiveScreen(recent, session, lambda: "all well")


def names(table: DataTable[object]) -> list[str]:
    return [str(table.get_cell_at((row, 0))) for row in range(table.row_count)]


def test_groups_are_sorted_paused_and_opened(app: LiveScreen) -> None:
    exchanges = open_capture([CAPTURE]).tables(["exchanges"])["exchanges"].to_pylist()
    clients = {row["client_id"] for row in exchanges}
    apis = {row["api"] for row in exchanges}

    async def drive() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            table = app.query_one("#groups", DataTable)
            for _ in range(100):
                app.refresh_groups()
                await pilot.pause(0.1)
                if set(names(table)) == clients:
                    break
            assert set(names(table)) == clients
            rates = [float(str(table.get_cell_at((row, 1)))) for row in range(table.row_count)]
            assert rates == sorted(rates, reverse=True)
            await pilot.press("S")
            assert names(table)[-1] == max(
                clients, key=lambda c: sum(row["client_id"] == c for row in exchanges)
            )
            await pilot.press("2")
            assert set(names(table)) == apis
            await pilot.press("space")
            assert "paused" in str(app.query_one("#head").render())
            table.move_cursor(row=names(table).index("Produce"))
            await pilot.press("enter")
            await pilot.pause(0.2)
            opened = app.screen.query_one("#exchanges", DataTable)
            assert opened.row_count == sum(row["api"] == "Produce" for row in exchanges)
            assert "bulk" in str(opened.get_cell_at((0, 4)))
            await pilot.press("escape")
            await pilot.press("q")

    asyncio.run(drive())
    app.finish()


def test_exchanges_expire() -> None:
    now = [100.0]
    recent = RecentExchanges(clock=lambda: now[0])
    rows = open_capture([CAPTURE]).tables(["exchanges"])["exchanges"].combine_chunks()
    recent.read("exchanges", rows.to_batches()[0])
    now[0] += SECONDS / 2
    groups = recent.groups("topic")
    assert {group.name for group in groups} == {
        topic for topics in rows["topics"].to_pylist() for topic in topics or []
    }
    assert recent.last("topic", "no such topic") == []
    now[0] += SECONDS
    assert recent.groups("topic") == []
    assert recent.last("client", "producer") == []
    assert recent.exchanges == len(rows)


def test_exchanges_without_topics_have_no_topic_group() -> None:
    recent = RecentExchanges()
    rows = open_capture([CAPTURE]).tables(["exchanges"])["exchanges"]
    rows = rows.filter(pc.equal(rows["api"], "ApiVersions")).combine_chunks()
    recent.read("exchanges", rows.to_batches()[0])
    assert recent.groups("topic") == []
    assert [group.name for group in recent.groups("API")] == ["ApiVersions"]
