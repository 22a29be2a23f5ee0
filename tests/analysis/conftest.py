"""Fixtures of several folders."""

from __future__ import annotations

from typing import Any

import pytest

import dissector
from analysis.cli import main
from tests.analysis.commands import Printed, Ran
from tests.analysis.made_rows import MadeCapture, Make


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Make:
    """A capture of rows that no recording has.

    Call it with rows by table; from then on every capture that is opened has these.
    """

    def make(packets: int = 11, **tables: list[dict[str, Any]]) -> None:
        capture = MadeCapture(tables, packets)
        monkeypatch.setattr(dissector, "open_capture", lambda *_, **__: capture, raising=False)

    return make


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Ran:
    """Runs a command in this process; returns what it printed."""

    def run(*words: str, status: int = 0) -> Printed:
        assert main(words) == status
        return Printed(*capsys.readouterr())

    return run


@pytest.fixture
def one_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Diagnoses are those of one rule: all rules take a second."""
    from analysis.diagnosis import run

    monkeypatch.setattr(run, "RULES", {"throttling": run.RULES["throttling"]})


@pytest.fixture
def few_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have few answers, because the charts of all take seconds."""
    from analysis.report import sections

    names = ("latency", "errors", "groups", "quality")
    monkeypatch.setattr(sections, "ANSWERS", {name: sections.ANSWERS[name] for name in names})


@pytest.fixture
def short_reports(one_rule: None, few_answers: None) -> None:
    """Reports have few answers, and the findings of one rule."""


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the full screen, jobs begin soon after the cursor moves."""
    from analysis.browse import answers_pane, exchange_screen

    for module in (answers_pane, exchange_screen):
        monkeypatch.setattr(module, "PAUSE", 0.01)
