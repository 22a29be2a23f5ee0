"""Make the pictures of documents from recordings: `python -m tools.pictures`.

report.png   the top of the report of a recording, in Chromium
"""

from __future__ import annotations

import shutil
from pathlib import Path
from subprocess import run
from tempfile import TemporaryDirectory
from typing import Final

from analysis.cli import main as kafka_dissector
from tools.shown_output import DOCS, ROOT

PICTURES: Final = DOCS / "pictures"
RECORDING: Final = ROOT / "captures" / "kafka-4-quotas.pcap.zst"
WIDTH: Final = 1280
HEIGHT: Final = 900


def report(to: Path) -> None:
    """A picture of the report; raises FileNotFoundError without Chromium."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise FileNotFoundError("chromium")
    with TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        status = kafka_dissector(["report", str(RECORDING), "-o", str(page)])
        assert status == 0
        run(
            [
                browser, "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu",
                f"--user-data-dir={folder}/profile", f"--window-size={WIDTH},{HEIGHT}",
                "--virtual-time-budget=5000", f"--screenshot={to}", page.as_uri(),
            ],
            check=True, timeout=120, capture_output=True,
        )  # fmt: skip


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    report(PICTURES / "report.png")


if __name__ == "__main__":
    main()
