"""The screen of a session, driven by textual's pilot: groups, sorting, pause, exchanges."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow.compute as pc
import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList, Static

from analysis.browse import kept_exchanges
from analysis.browse.field_view import FieldView
from analysis.browse.kept_exchanges import KeptExchanges
from analysis.browse.live_app import LiveBrowser
from analysis.browse.row_view import RowView
from analysis.input.filters import Filter
from analysis.live import kept_packets, recent_exchanges
from analysis.live.kept_packets import KeptPackets
from analysis.live.recent_exchanges import SECONDS, RecentExchanges
from analysis.live.session import Session
from analysis.live.sources import Origin, open_pipeline
from analysis.summary.counts import Summary
from dissector.capture import open_capture
from dissector.embedded.records import Decode
from dissector.errors import DissectorError
from dissector.packets.files import FileSource
from dissector.packets.live import LiveSource
from dissector.streams.streaming import DEFAULT_MEMORY
from tests.analysis.browse.test_browse_app import column, idle, press
from tests.captures.recorded import CAPTURES

pytestmark = pytest.mark.usefixtures("short_pauses")

CAPTURE = CAPTURES / "kafka-4-quotas.pcap.zst"


@pytest.fixture
def app() -> LiveBrowser:
    """The screen over a pipe that ends soon."""
    origin = Origin(str(CAPTURE), (), (9092, 19092), "", 1 << 22)
    source = LiveSource(origin.feeds(), interval=0.01)
    options = {"keylog": None, "memory": DEFAULT_MEMORY}
    browser = LiveBrowser(lambda rows: rows, Filter(), options, None)
    source.tap = browser.tap
    pipeline = open_pipeline(source, origin, keylog=None, timeout=180)
    session = Session(source, pipeline, [], browser.watchers)
    browser.attach(session, lambda: "all well", "pipe")
    return browser


async def refreshed(app: LiveBrowser, pilot: Pilot[Exception]) -> None:
    """Wait for the rates and rows of the session so far."""
    app.update()
    await idle(app, pilot)


def test_groups_are_sorted_paused_and_opened(
    app: LiveBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_exchanges, "SECONDS", 600.0)  # none expires on a busy machine
    exchanges = open_capture([CAPTURE]).tables(["exchanges"])["exchanges"].to_pylist()
    clients = {row["client_id"] for row in exchanges}
    apis = {row["api"] for row in exchanges}

    async def drive() -> None:
        async with app.run_test(size=(100, 30)) as pilot:
            groups = app.query_one("#groups", RowView)
            await pilot.pause()
            app._ended.result(timeout=180)
            await refreshed(app, pilot)
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


def test_a_timer_that_fires_while_the_screen_closes(app: LiveBrowser) -> None:
    async def drive() -> None:
        async with app.run_test(size=(100, 60)) as pilot:
            await pilot.pause()
            app._ended.result(timeout=180)
            await press(app, pilot, "2")
        assert not app.query("#list")
        app.update()
        app._explain()
        app._finished("list", app.query_one, "#list")
        app._failed("list", DissectorError("closed"), False)

    asyncio.run(drive())
    app.finish()


def test_records_are_decoded_as_on_the_screen_of_a_capture() -> None:
    decode: Decode = lambda number, payload: None  # noqa: E731
    assert LiveBrowser(lambda rows: rows, Filter(), {}, decode)._decode is decode


def test_tabs_rest_on_the_kept_packets(app: LiveBrowser) -> None:
    """The packets of an exchange, findings and answers are those of `browse`."""

    async def drive() -> None:
        async with app.run_test(size=(100, 30)) as pilot:
            await pilot.pause()
            app._ended.result(timeout=180)
            await press(app, pilot, "2")
            app.action_filter_by("--client producer")
            await idle(app, pilot)
            view = app.query_one("#list", RowView)
            packet = view.value("request_packet")
            await press(app, pilot, "c")
            head = str(app.query_one("#head", Static).render())
            assert "based on all 523 packets, 04:17:34 to 04:18:27" in head  # as capinfos
            packets = app.query_one("#packets", RowView)
            assert packet in column(packets, "packet")
            assert column(packets, "content")[0] == "SYN"
            before = app._snapshot
            await press(app, pilot, "r")
            assert app._snapshot is not before
            await press(app, pilot, "4")
            findings = app.query_one("#findings-list", OptionList)
            assert findings.option_count == 1
            await press(app, pilot, "5", "down")
            await pilot.pause(0.3)
            await idle(app, pilot)
            answer = app.query_one("#answer", RowView)
            assert column(answer, "client_id") == ["producer"]
            await pilot.press("q")

    asyncio.run(drive())
    app.finish()


def test_kept_packets_are_the_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packets = KeptPackets()
    with pytest.raises(DissectorError, match="no packet has been captured so far"):
        packets.write(tmp_path / "none.pcapng")
    monkeypatch.setattr(kept_packets, "BYTES", 50_000)
    source = FileSource([str(CAPTURE)], block_bytes=1 << 14)
    while (batch := source.read_records()) is not None:
        packets.record(["file"], *batch)
    span = packets.write(tmp_path / "last.pcapng")
    original, kept = times(CAPTURE), times(tmp_path / "last.pcapng")
    assert not span.is_whole
    assert kept == original[-span.packets :]
    assert 0 < span.packets < len(original)
    assert (span.first_time, span.last_time) == (kept[0], kept[-1])


def times(path: Path) -> list[int]:
    """The time of each packet."""
    source, packet_times = FileSource([str(path)], block_bytes=1 << 20), list[int]()
    while (batch := source.read_records()) is not None:
        packet_times += batch[0].columns.time.tolist()
    return packet_times


def test_kept_exchanges_are_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_exchanges, "ROWS", 100)
    rows = open_capture([CAPTURE]).tables(["exchanges"])["exchanges"].combine_chunks()
    kept = KeptExchanges()
    for batch in rows.to_batches(max_chunksize=10):
        kept.read("exchanges", batch)
    shown = kept.rows()
    assert shown.numbers.tolist() == [*range(len(rows) - 97, len(rows))]
    assert shown.take("request_packet", shown.numbers[-1:]).to_pylist() == [
        rows["request_packet"][-1].as_py()
    ]


@pytest.mark.parametrize("dimension", ["client", "API", "broker"])
def test_errors_are_those_of_the_summary(dimension: str) -> None:
    """Errors of normal operation do not count; a response counts once."""
    capture = open_capture([CAPTURE.with_name("kafka-4-errors.pcap.zst")])
    recent, summary = RecentExchanges(), Summary()
    for name, rows in capture.stream(Summary.TABLES):
        summary.read([(name, rows)])
        if name in recent.tables:
            recent.read(name, rows)
    groups = recent.groups(dimension)
    errors = sum(use.errors for use in summary.apis())
    assert 0 < errors < sum(row["count"] for row in summary.errors())
    assert sum(groups["errors"].to_pylist()) == errors
    if dimension == "API":
        at = groups["API"].index("ApiVersions").as_py()
        assert groups["errors"][at].as_py() == sum(
            use.errors for use in summary.apis() if use.api == "ApiVersions"
        )


def test_exchanges_expire() -> None:
    now = [100.0]
    recent = RecentExchanges(clock=lambda: now[0])
    rows = open_capture([CAPTURE]).tables(["exchanges"])["exchanges"].combine_chunks()
    recent.read("exchanges", rows.to_batches()[0])
    now[0] += SECONDS / 2
    groups = recent.groups("topic")
    assert {*groups["topic"].to_pylist()} == {
        topic for topics in rows["topics"].to_pylist() for topic in topics or []
    }
    now[0] += SECONDS
    assert not len(recent.groups("topic"))
    assert recent.exchanges == len(rows)


def test_exchanges_without_topics_have_no_topic_group() -> None:
    recent = RecentExchanges()
    rows = open_capture([CAPTURE]).tables(["exchanges"])["exchanges"]
    rows = rows.filter(pc.equal(rows["api"], "ApiVersions")).combine_chunks()
    recent.read("exchanges", rows.to_batches()[0])
    assert not len(recent.groups("topic"))
    assert recent.groups("API")["API"].to_pylist() == ["ApiVersions"]
