"""Make reports and open them in Chromium."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from analysis.cli import main
from tests.analysis.answering import path_of


def report(target: Path, *captures: str) -> Path:
    assert main(["report", *captures, "-o", str(target)]) == 0
    return target


class Browser:
    """Headless Chromium, offline."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, *, wide: int = 1280, dark: bool = False, draw: bool = True) -> None:
        """Open a file and draw all its charts."""
        call = self.driver.execute_cdp_cmd
        call(
            "Network.emulateNetworkConditions",
            {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
        )
        call(
            "Emulation.setDeviceMetricsOverride",
            {"width": wide, "height": 800, "deviceScaleFactor": 1, "mobile": wide < 600},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        call("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get(page.as_uri())
        if not draw:
            return
        self.run("for (const each of document.querySelectorAll('[data-chart]')) draw(each)")
        self.until("return !document.querySelector('[data-chart]:not([data-drawn])')")

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page and return its result."""
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str) -> None:
        """Wait until the script returns a true value."""
        end = time.monotonic() + 120
        while not self.run(script):
            assert time.monotonic() < end, script
            time.sleep(0.05)

    def console(self) -> list[str]:
        """Messages on the page's console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@cache
def chromium() -> Browser:
    """One browser for all tests of a process; skips a test if Chromium is missing."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("Chromium and its driver are not installed; make test installs Debian's")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    atexit.register(chrome.quit)
    return Browser(chrome)


@cache
def report_of(name: str) -> Path:
    """The report of a committed capture."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    capture = path_of(name)
    return report(Path(folder.name) / "x.html", str(capture))
