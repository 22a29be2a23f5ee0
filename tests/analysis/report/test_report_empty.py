"""Reports of captures with few or no exchanges."""

from __future__ import annotations

import html
import json
import struct
from pathlib import Path
from typing import Any

import pytest

import analysis
from analysis.answers import ANSWERS
from analysis.display.terminal import size_text
from tests.analysis.answering import path_of
from tests.analysis.commands import Ran
from tests.analysis.made_rows import START, Make, connection
from tests.analysis.report.browser import chromium, report

UNDECODED: dict[str, Any] = {
    "connection_id": 0, "client_ip": "10.0.0.1", "client_port": 5, "broker_ip": "10.0.0.9",
    "broker_port": 9092, "api_key": 1, "api": "Fetch", "api_version": 99, "correlation_id": 7,
    "status": "undecoded", "request_time": START, "request_end_time": START, "error_count": 0,
}  # fmt: skip


def data(page: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(page.split('id="data">')[1].split("</script>")[0])
    return parsed


def empty(tmp_path: Path) -> str:
    path = tmp_path / "empty.pcap"
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
    return str(path)


def test_an_empty_capture(tmp_path: Path) -> None:
    page = report(tmp_path / "x.html", empty(tmp_path))
    text = html.unescape(page.read_text())
    assert "No Kafka exchanges in the 0 connections of this capture." in text
    chromium().open(page)
    assert chromium().console() == []
    assert chromium().run("return document.querySelectorAll('section').length") == len(ANSWERS)
    assert chromium().run("return document.querySelectorAll('.chart').length") == 0


def test_a_filter_that_selects_nothing(short_reports: None, tmp_path: Path) -> None:
    page = report(tmp_path / "x.html", str(path_of("kafka-4-quotas")), "--topic", "nothing")
    text = html.unescape(page.read_text())
    assert "The filter selects no exchange of this capture." in text
    assert "No rows in the selected exchanges." in text
    for wrong in ("no TCP packets", "No Kafka exchanges in", "No rows in this capture"):
        assert wrong not in text


def test_the_head_of_a_part_has_its_time_and_bytes(short_reports: None, tmp_path: Path) -> None:
    """Its connections begin before it, and last longer."""
    ends = ("2026-11-21T04:17:50", "2026-11-21T04:17:55")
    capture = str(path_of("kafka-4-quotas"))
    page = report(tmp_path / "x.html", capture, "--since", ends[0], "--until", ends[1])
    head = page.read_text().split("<main")[0]
    exchanges = analysis.load(capture, "exchanges")["exchanges"]
    times = exchanges["request_time"].astype("str").str[:19].str.replace(" ", "T")
    part = exchanges[(times >= ends[0]) & (times < ends[1])]
    first, last = (f"{time:%H:%M:%S.%f}"[:12] for time in (
        part["request_time"].min(), part["response_end_time"].max()
    ))  # fmt: skip
    assert f"2026-11-21 {first} to {last} UTC" in head
    size = size_text(int(part["request_bytes"].sum() + part["response_bytes"].sum()))
    assert f"<dd>{size}</dd>" in head


def test_findings_about_a_capture_of_refused_connections(
    made: Make, few_answers: None, tmp_path: Path
) -> None:
    refused = connection(
        protocol="unknown", client_packets=1, broker_packets=1, client_bytes=0, broker_bytes=0,
        closed="rst", handshake_rtt_ms=None,
    )  # fmt: skip
    made(exchanges=[], connections=[refused] * 3)
    page = report(tmp_path / "x.html", "x.pcap").read_text()
    assert "10.0.0.9:9092 refuses connections" in page


@pytest.mark.parametrize(
    ("error", "is_alert"), [("REBALANCE_IN_PROGRESS", False), ("TOPIC_AUTHORIZATION_FAILED", True)]
)
def test_errors_of_normal_operation_are_no_alert(
    error: str, is_alert: bool, made: Make, short_reports: None, tmp_path: Path
) -> None:
    row = {"connection_id": 0, "correlation_id": 7, "time": START, "api": "Heartbeat"}
    made(
        exchanges=[UNDECODED | {"status": "answered", "error_count": 1}],
        errors=[row | {"client_ip": "10.0.0.1", "error_code": 1, "error": error}],
    )
    page = report(tmp_path / "x.html", "x.pcap").read_text()
    tile = page.split(">errors</a></dt>")[0].rsplit("<div", 1)[1]
    link = page.split(">errors<span")[1].split(">")[0]
    assert ("alert" in tile, "alert" in link) == (is_alert, is_alert)


def test_one_exchange(made: Make, tmp_path: Path) -> None:
    answered = UNDECODED | {
        "status": "answered", "response_time": START, "response_end_time": START,
        "latency_ms": 0.0, "api_version": 12,
    }  # fmt: skip
    made(exchanges=[answered])
    page = report(tmp_path / "x.html", "one.pcap")
    chromium().open(page)
    assert chromium().console() == []
    assert len(data(page.read_text())["tables"]["latency"]["rows"]) == 1


def test_only_undecoded_exchanges(made: Make, short_reports: None, tmp_path: Path) -> None:
    connection = {"connection_id": 0, "protocol": "kafka", "opened": True}
    made(exchanges=[UNDECODED, UNDECODED | {"correlation_id": 8}], connections=[connection])
    text = report(tmp_path / "x.html", "x.pcap").read_text()
    assert "None of the 2 exchanges could be decoded" in text
    flaws = {row[0]: row[1] for row in data(text)["tables"]["quality"]["rows"]}
    assert flaws["exchanges not decoded"] == 2


def test_a_response_without_its_request(made: Make, short_reports: None, tmp_path: Path) -> None:
    row = UNDECODED | {"status": "request_missing", "request_time": None, "response_time": START}
    made(exchanges=[row | {"request_end_time": None, "response_end_time": START}])
    assert (
        "could be decoded"
        not in report(tmp_path / "x.html", "x.pcap").read_text().split("<main")[0]
    )


def test_another_protocol(short_reports: None, tmp_path: Path) -> None:
    capture = path_of("other/mysql*")
    text = report(tmp_path / "x.html", str(capture)).read_text()
    assert "No Kafka exchanges in the " in text


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["none.pcap", "-o", "x.html"], 1, "Error: none.pcap: No such file or directory\n"),
        (["{empty}", "-o", "{empty}"], 2, "is an input file"),
        (["{empty}", "-o", "{empty}/such/x.html"], 2, "is a file, not a folder"),
    ],
)
def test_an_error_is_one_sentence(
    arguments: list[str], status: int, message: str, tmp_path: Path,
    ran: Ran, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    formatted = [argument.format(empty=empty(tmp_path)) for argument in arguments]
    assert message in ran("report", *formatted, status=status).err
    assert [path.name for path in tmp_path.iterdir()] == ["empty.pcap"]


def test_a_missing_package_is_named(
    tmp_path: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "analysis.report.page", None)
    err = ran("report", empty(tmp_path), "-o", str(tmp_path / "x.html"), status=1).err
    assert "pip install 'kafka-dissector[report]'" in err
