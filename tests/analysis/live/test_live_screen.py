"""The screen of a session, driven by textual's pilot: groups, sorting, pause, exchanges."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow.compute as pc
import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from analysis.browse import kept_exchanges
from analysis.browse.field_view import FieldView
from analysis.browse.kept_exchanges import KeptExchanges
from analysis.browse.live_app import LiveBrowser
from analysis.browse.row_view import RowView
from analysis.live.recent_exchanges import SECONDS, RecentExchanges
from analysis.live.session import Session
from analysis.live.sources import Origin, open_pipeline
from dissector.capture import open_capture
from dissector.packets.live import LiveSource
from tests.analysis.browse.test_browse_app import column, idle, press

CAPTURE = Path(__file__).parents[3] / "captures" / "kafka-4-quotas.pcap.zst"


@pytest.fixture
def app() -> LiveBrowser:
    """The screen over a pipe that ends soon."""
    origin = Origin(str(CAPTURE), (), (9092, 19092), "", 1 << 22)
    source = LiveSource(origin.feeds(), interval=0.01)
    recent, kept = RecentExchanges(), KeptExchanges()
    pipeline = open_pipeline(source, origin, keylog=None, timeout=60)
    session = Session(source, pipeline, [], [recent, kept])
    return LiveBrowser(recent, kept, session, lambda: "all well", "pipe")


async def refreshed(app: LiveBrowser, pilot: Pilot[Exception]) -> None:
    """Wait for the rates and rows of the session so far."""
    app.update()
    await idle(app, pilot)


def test_groups_are_sorted_paused_and_opened(app: LiveBrowser) -> None:
    exchanges = open_capture([CAPTURE]).tables(["exchanges"])["exchanges"].to_pylist()
    clients = {row["client_id"] for row in exchanges}
    apis = {row["api"] for row in exchanges}

    async def drive() -> None:
        async with app.run_test(size=(100, 30)) as pilot:
            groups = app.query_one("#groups", RowView)
            for _ in range(50):
                await refreshed(app, pilot)
                if set(column(groups, "client")) == clients:
                    break
            assert set(column(groups, "client")) == clients
            rates = column(groups, "requests/s")
            assert rates == sorted(rates, reverse=True)
            await press(app, pilot, "S")
            assert column(groups, "client")[-1] == max(
                clients, key=lambda c: sum(row["client_id"] == c for row in exchanges)
            )
            await press(app, pilot, "tab")
            assert set(column(groups, "API")) == apis
            await press(app, pilot, "space")
            assert "paused" in str(app.query_one("#head", Static).render())
            groups.go(column(groups, "API").index("Produce"))
            await press(app, pilot, "enter")
            view = app.query_one("#list", RowView)
            assert view.count == sum(row["api"] == "Produce" for row in exchanges)
            assert ["bulk"] in column(view, "topics")
            fields = app.query_one("#fields", FieldView)
            assert fields.text(0).plain.startswith("Produce version 13")
            await pilot.press("1", "q")

    asyncio.run(drive())
    app.finish()


def test_kept_exchanges_are_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_exchanges, "ROWS", 100)
    rows = open_capture([CAPTURE]).tables(["exchanges"])["exchanges"].combine_chunks()
    kept = KeptExchanges()
    for batch in rows.to_batches(max_chunksize=10):
        kept.read("exchanges", batch)
    shown = kept.rows()
    assert (shown.first, len(shown)) == (len(rows) - 97, 97)
    assert shown.take("request_packet", shown.numbers[-1:]).to_pylist() == [
        rows["request_packet"][-1].as_py()
    ]


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
    now[0] += SECONDS
    assert recent.groups("topic") == []
    assert recent.exchanges == len(rows)


def test_exchanges_without_topics_have_no_topic_group() -> None:
    recent = RecentExchanges()
    rows = open_capture([CAPTURE]).tables(["exchanges"])["exchanges"]
    rows = rows.filter(pc.equal(rows["api"], "ApiVersions")).combine_chunks()
    recent.read("exchanges", rows.to_batches()[0])
    assert recent.groups("topic") == []
    assert [group.name for group in recent.groups("API")] == ["ApiVersions"]
