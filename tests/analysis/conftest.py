"""A capture of made rows, where a test needs rows that no recording has."""

from __future__ import annotations

from typing import Any

import pytest

import dissector
from tests.analysis.made_rows import MadeCapture, Make


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Call it with rows by table; from then on every capture that is opened has these."""

    def make(packets: int = 11, **tables: list[dict[str, Any]]) -> None:
        capture = MadeCapture(tables, packets)
        monkeypatch.setattr(dissector, "open_capture", lambda *_, **__: capture, raising=False)

    return make
