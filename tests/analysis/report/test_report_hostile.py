"""Markup in a client id or topic name stays text, in the file and in the browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains

import dissector
from tests.analysis.made_rows import SECOND, START, MadeCapture
from tests.analysis.report.browser import chromium, report

NAMES = (
    """<img src=x onerror="document.title='owned'">""",
    """</script><script>document.title='owned'</script>""",
    """<!--<script>""",
    """"'><svg onload=document.title='owned'>""",
    """{{ 7 * 7 }}""",
    """<a href="https://example.org/">click</a>""",
    """javascript:document.title='owned'""",
    "\u202edrowssap\x1b[2J\x00",
)


def hostile(number: int, name: str) -> dict[str, list[dict[str, Any]]]:
    """One row of each table with names."""
    time = START + number * SECOND
    ids = {"connection_id": number, "correlation_id": number, "client_id": name}
    ends = {"client_ip": "10.0.0.1", "client_port": 50000 + number, "broker_ip": "10.0.0.9",
            "broker_port": 9092}  # fmt: skip
    place = {"topic": name, "partition": 0, "error": name, "error_code": 3}
    return {
        "exchanges": [
            ids | ends | {
                "capture": name, "api_key": 1, "api": "Fetch", "api_version": 12,
                "status": "answered" if number % 2 else "unanswered", "request_time": time,
                "request_end_time": time, "response_time": time + 2_000_000,
                "response_end_time": time + 2_000_000, "latency_ms": 2.0, "topics": [name],
                "group_id": name, "member_id": name, "throttle_time_ms": 5, "error_count": 1,
                "error_code": 3, "error": name, "in_flight": 1,
            }
        ],
        "errors": [ids | ends | place | {"time": time, "api": "Fetch", "error_message": name}],
        "batches": [ids | place | {"time": time, "api": "Produce", "codec": name, "bytes": 99,
                                   "record_count": 1, "base_offset": 0, "last_offset": 0}],
        "partitions": [ids | place | {"time": time, "api": "Fetch", "group_id": name, "offset": 0,
                                      "high_watermark": 9, "bytes": 10}],
        "memberships": [ids | {"time": time, "response_time": time + SECOND, "api": "JoinGroup",
                               "group_id": name, "group_type": "classic", "member_id": name,
                               "generation": number, "reason": name, "error_code": 0}],
        "transactions": [ids | {"time": time, "response_time": time, "api": "EndTxn",
                                "transactional_id": name, "producer_id": number,
                                "producer_epoch": 0, "committed": True, "error_code": 0}],
        "connections": [ends | {"connection_id": number, "first_time": time, "last_time": time,
                                "protocol": "kafka", "opened": True, "software_name": name,
                                "software_version": name, "client_bytes": 1, "broker_bytes": 1}],
        "problems": [{"time": time, "capture": name, "stage": "frames", "kind": name,
                      "detail": name, "connection_id": number}],
    }  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of these rows."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for number, name in enumerate(NAMES):
        for table, rows in hostile(number, name).items():
            tables.setdefault(table, []).extend(rows)
    capture = MadeCapture(tables, packets=len(NAMES))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dissector, "open_capture", lambda *_, **__: capture)
        return report(tmp_path_factory.mktemp("report") / "x.html", f"{NAMES[0]}.pcap")


def texts(value: Any) -> Iterator[str]:
    """All texts in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


def test_markup_is_escaped_in_the_file(page: Path) -> None:
    text = page.read_text()
    assert [name for name in NAMES if "<" in name and name in text] == []
    assert "{{ 7 * 7 }}" in text
    data = text.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    assert re.search("[<>&]", data) is None
    assert [text for text in texts(json.loads(data)) if not text.isprintable()] == []


def test_markup_has_no_effect_in_the_browser(page: Path) -> None:
    chromium().open(page)
    chromium().run("for (const e of document.querySelectorAll('details')) e.open = true")
    chromium().until(
        "return [...document.querySelectorAll('details')].every((e) => e.querySelector('td'))"
    )
    assert chromium().driver.title == f"{NAMES[0]}.pcap - kafka-dissector"
    assert chromium().console() == []
    elements = "return document.querySelectorAll('img, main a, svg[onload], iframe').length"
    assert chromium().run(elements) == 0
    assert chromium().run("return document.querySelectorAll('script').length") == 3
    bar = chromium().run("return document.querySelector('#errors .mark-rect path')")
    ActionChains(chromium().driver).scroll_to_element(bar).move_to_element(bar).perform()
    chromium().until("return document.querySelector('#vg-tooltip-element.visible td.value')")
    tip = "return document.querySelectorAll('#vg-tooltip-element :is(img, a, script)').length"
    assert chromium().run(tip) == 0
    cells = "return [...document.querySelectorAll('#errors td')].map((each) => each.textContent)"
    texts = set(chromium().run(cells))
    assert set(NAMES[:-1]) <= texts
    assert r"\u202edrowssap\x1b[2J\x00" in texts
