"""A report opens with the findings, and lists the slowest requests."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

import analysis
from analysis.diagnosis import run
from analysis.diagnosis.run import DIAGNOSIS_TABLES
from analysis.display.diagnosis_screen import NAMES_OF_SETTINGS
from analysis.report.page import _marked
from tests.analysis.answering import path_of
from tests.analysis.report.browser import chromium, report, report_of

QUOTAS = "kafka-4-quotas"


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return analysis.load(path_of(QUOTAS), DIAGNOSIS_TABLES)


@pytest.fixture(scope="module")
def findings(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return analysis.diagnose(tables)


def test_findings_are_those_of_diagnose(findings: pd.DataFrame) -> None:
    chromium().open(report_of(QUOTAS), draw=False)
    shown = chromium().run(
        "return [...document.querySelectorAll('.finding')].map((each) =>"
        " [each.querySelector('.severity').textContent, each.querySelector('h3').textContent])"
    )
    assert len(findings) > 1
    sentences = [sentence.replace("`", "") for sentence in findings["sentence"]]
    expected = zip(findings["severity"], sentences, strict=True)
    assert [(severity, title.split(" ", 1)[1]) for severity, title in shown] == list(expected)
    assert chromium().run("return document.querySelectorAll('.finding h3 code').length") > 0


def test_many_findings_of_a_rule_are_counted(
    findings: pd.DataFrame, few_answers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = run._findings
    monkeypatch.setattr(run, "_findings", lambda *given: once(*given) * 12)
    page = report(tmp_path / "x.html", str(path_of(QUOTAS))).read_text()
    assert page.count('<article class="finding') == 10 * findings["rule"].nunique()
    assert re.search(r"And \d+ more findings: .*\d+ of throttling", page)
    assert f"<code>kafka-dissector diagnose {path_of(QUOTAS).name} --format jsonl<" in page


@pytest.mark.parametrize("side", ["client", "broker"])
def test_names_of_settings_are_explained(
    side: str, few_answers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = run._findings
    monkeypatch.setattr(
        run, "_findings", lambda *given: [row | {"side": side} for row in once(*given)]
    )
    page = report(tmp_path / "x.html", str(path_of(QUOTAS))).read_text()
    assert (NAMES_OF_SETTINGS in page) == (side == "client")


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("Client `<b>` & \x1b", "Client <code>&lt;b&gt;</code> &amp; \\x1b"),
        ("one ` alone", "one ` alone"),
        ("`a` and `b`", "<code>a</code> and <code>b</code>"),
    ],
)
def test_names_in_findings_are_code(text: str, html: str) -> None:
    """The name of a client may be any text."""
    assert str(_marked(text)) == html


def test_the_slowest_requests_are_listed(tables: dict[str, pd.DataFrame]) -> None:
    page = report_of(QUOTAS).read_text()
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    (table,) = (rows for name, rows in data["tables"].items() if name.startswith("latency-list"))
    packet = [column["name"] for column in table["columns"]].index("request_packet")
    slowest = analysis.latency(tables, slowest=len(table["rows"]))
    assert [row[packet] for row in table["rows"]] == slowest["request_packet"].tolist()


def test_findings_with_the_same_advice_show_it_once(
    findings: pd.DataFrame, few_answers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as those of clients with the same settings."""
    once, count = run._findings, len(findings)
    monkeypatch.setattr(
        run, "_findings", lambda *given: [row for row in once(*given) for _ in range(2)]
    )
    page = report(tmp_path / "x.html", str(path_of(QUOTAS))).read_text()
    assert page.count('<article class="finding') == 2 * count
    assert page.count("<dd>As above, with the same change.</dd>") == count
    assert page.count("<dt>Change</dt>") == count
