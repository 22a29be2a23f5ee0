"""Make the pictures of documents from recordings: `python -m tools.pictures`.

report.png   the top of the report of a recording, in Chromium
browse.png   the full screen of `browse`, driven by textual's pilot, drawn by Chromium
"""

from __future__ import annotations

import asyncio
import re
import shutil
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL, run
from tempfile import TemporaryDirectory
from typing import Final

from textual.pilot import Pilot

from analysis.browse.app import Browser
from analysis.browse.capture_source import CaptureSource
from analysis.cli import main as kafka_dissector
from analysis.commands.common import Input
from analysis.input.filters import Filter
from tools.shown_output import DOCS, ROOT

PICTURES: Final = DOCS / "pictures"
RECORDING: Final = ROOT / "captures" / "kafka-4-quotas.pcap.zst"
WIDTH: Final = 1280
HEIGHT: Final = 900
SCREEN: Final = 118, 32
"""Columns and lines of the full screen."""
FILTER: Final = "latency_ms > 100 --client producer"
KEYS: Final = ("down", "down", "enter", *["down"] * 14)
"""From the first row of the list to a field with bytes."""
SECONDS: Final = 120
"""Longest time of a step."""


def report(to: Path) -> None:
    """A picture of the report; raises FileNotFoundError without Chromium."""
    with TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        status = kafka_dissector(["report", str(RECORDING), "-o", str(page)])
        assert status == 0
        _draw(page, to, WIDTH, HEIGHT)


def browse(to: Path) -> None:
    """A picture of the full screen; raises as `report`."""
    svg = asyncio.run(_screen())
    match = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert match
    with TemporaryDirectory() as folder:
        page = Path(folder) / "browse.html"
        page.write_text(f"<body style='margin: 0'>{svg}</body>")
        _draw(page, to, *(round(float(size)) for size in match.groups()))


async def _screen() -> str:
    """The full screen as SVG."""
    source = Input(("kafka.pcap",), (), None, None, 512)
    options = {"keylog": None, "memory": 512 << 20, "show_secrets": False}
    app = Browser(
        CaptureSource([str(RECORDING)], options), "kafka.pcap",
        lambda text, chosen: replace(source, filter=chosen).again(text),
        chosen=Filter.parse(FILTER),
    )  # fmt: skip
    async with app.run_test(size=SCREEN) as pilot:
        await _idle(app, pilot)
        for key in KEYS:
            await pilot.press(key)
            await _idle(app, pilot)
        return app.export_screenshot(title="kafka-dissector browse kafka.pcap")


async def _idle(app: Browser, pilot: Pilot[Exception]) -> None:
    """Wait until no job is left, and none begins after a pause of the cursor."""
    async with asyncio.timeout(SECONDS):
        quiet = 0
        while quiet < 6:
            await pilot.pause(0.04)
            quiet = 0 if app.jobs else quiet + 1


def _draw(page: Path, to: Path, width: int, height: int) -> None:
    """Draw an HTML page with Chromium, without a network: textual's SVG names fonts of a server."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise FileNotFoundError("chromium")
    with TemporaryDirectory() as folder:
        run(
            [
                browser, "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu",
                f"--user-data-dir={folder}/profile", f"--window-size={width},{height}",
                "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=5000",
                f"--screenshot={to}", page.as_uri(),
            ],
            check=True, timeout=SECONDS, stdout=DEVNULL, stderr=DEVNULL,
        )  # fmt: skip


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    report(PICTURES / "report.png")
    browse(PICTURES / "browse.png")


if __name__ == "__main__":
    main()
