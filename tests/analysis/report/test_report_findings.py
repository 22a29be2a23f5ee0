"""A report opens with the findings, and lists the slowest requests."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import analysis
from analysis.diagnosis.run import DIAGNOSIS_TABLES
from tests.analysis.report.browser import CAPTURES, chromium, report_of

QUOTAS = "kafka-4-quotas"


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return analysis.load(CAPTURES / f"{QUOTAS}.pcap.zst", DIAGNOSIS_TABLES)


def test_findings_are_those_of_diagnose(tables: dict[str, pd.DataFrame]) -> None:
    chromium().open(report_of(QUOTAS))
    shown = chromium().run(
        "return [...document.querySelectorAll('.finding')].map((each) =>"
        " [each.querySelector('.severity').textContent, each.querySelector('h3').textContent])"
    )
    findings = analysis.diagnose(tables)
    assert len(findings) > 1
    expected = zip(findings["severity"], findings["sentence"], strict=True)
    assert [(severity, title.split(" ", 1)[1]) for severity, title in shown] == list(expected)


def test_the_slowest_requests_are_listed(tables: dict[str, pd.DataFrame]) -> None:
    page = report_of(QUOTAS).read_text()
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    (table,) = (rows for name, rows in data["tables"].items() if name.startswith("latency-list"))
    packet = [column["name"] for column in table["columns"]].index("request_packet")
    slowest = analysis.latency(tables, slowest=len(table["rows"]))
    assert [row[packet] for row in table["rows"]] == slowest["request_packet"].tolist()
