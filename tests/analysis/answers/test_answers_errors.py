"""Errors are those of the broker's request log; requests without a response have a reason."""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import analysis
from analysis.kafka.normal import NORMAL_ERRORS, NORMAL_FOR_TOPICS, NORMAL_IN_API
from dissector.protocol import registry
from tests.analysis.answering import CAPTURES, broker_log, capture, made
from tests.analysis.made_rows import START, connection, error, exchange
from tests.captures.recorded import unpacked
from tests.tshark import needs_tshark, tshark

MS = 1_000_000


@pytest.mark.parametrize(
    "name", ["kafka-4-quotas", "kafka-4-transactions", "kafka-4-group-eager", "kafka-4-admin"]
)
def test_codes_are_counted_as_the_broker_logged_them(name: str) -> None:
    log = broker_log(name).dropna(subset=["errors"])
    expected = Counter(
        (registry.api_name(api), code)
        for api, codes in zip(log["api_key"], log["errors"], strict=True)
        for code in codes
    )
    errors = analysis.errors(capture(name), by=["api", "error_code"])
    keys = zip(errors["api"], errors["error_code"], strict=True)
    assert dict(zip(keys, errors["count"], strict=True)) == expected


def test_each_row_has_clients_and_first_and_last_time() -> None:
    rows = [
        error(
            correlation_id=index, time=START + index * MS, client_ip=f"10.0.0.{index % 2}",
            error_code=code, error=name, retriable=again, partition=index // 2,
            error_message=message,
        )
        for index, (code, name, again, message) in enumerate([
            (6, "NOT_LEADER_OR_FOLLOWER", True, None),
            (6, "NOT_LEADER_OR_FOLLOWER", True, None),
            (6, "NOT_LEADER_OR_FOLLOWER", True, "moved"),
            (87, "INVALID_RECORD", False, None),
        ])
    ]  # fmt: skip
    exchanges = [
        exchange(correlation_id=index, response_packet=90 + index, response_time=row["time"])
        for index, row in enumerate(rows)
    ]
    errors = analysis.errors(made(errors=rows[::-1], exchanges=exchanges), by=["topic", "error"])
    assert errors.drop(columns=["first_time", "last_time"]).to_dict("records")[0] == {
        "topic": "t", "error": "NOT_LEADER_OR_FOLLOWER", "error_code": 6, "retriable": True,
        "count": 3, "normal": 3, "responses": 3, "clients": 2, "partitions": 2, "first_packet": 90,
        "message": "moved",
    }  # fmt: skip
    assert [time.value for time in errors.loc[0, ["first_time", "last_time"]]] == [
        START, START + 2 * MS
    ]  # fmt: skip
    assert errors.loc[1, "error_code"] == 87


def test_errors_of_normal_operation_are_counted_apart() -> None:
    refused = {"error_code": 35, "error": "UNSUPPORTED_VERSION"}
    rows = [
        error(correlation_id=n, time=START + n, **each)
        for n, each in enumerate([
            refused | {"api": "ApiVersions"},
            refused | {"api": "Fetch"},
            {"error_code": 6, "error": "NOT_LEADER_OR_FOLLOWER", "api": "Fetch"},
            {"error_code": 12345, "error": None, "api": "Fetch"},
        ])
    ]  # fmt: skip
    errors = analysis.errors(made(errors=rows), by="api").set_index("api")
    assert errors["count"].to_dict() == {"Fetch": 3, "ApiVersions": 1}
    assert errors["normal"].to_dict() == {"Fetch": 1, "ApiVersions": 1}


def test_the_page_lists_each_error_of_normal_operation() -> None:
    lines = re.findall(
        r"^    ([A-Z_]+)  +(?:only in (\w+))?",
        import_module("analysis.answers.errors").__doc__ or "",
        re.M,
    )
    listed = {(name, api) for name, api in lines}
    in_all = {(name, "") for name in NORMAL_ERRORS}
    assert listed == {*in_all, *NORMAL_IN_API, *NORMAL_FOR_TOPICS}


def test_responses_of_one_packet_are_counted_one_by_one() -> None:
    messages = enumerate([None, "", "gone"])
    rows = [error(correlation_id=n, error="X", error_message=message) for n, message in messages]
    exchanges = [exchange(correlation_id=n, response_packet=9) for n in range(3)]
    (row,) = analysis.errors(made(errors=rows, exchanges=exchanges), by="error").to_dict("records")
    assert (row["count"], row["responses"], row["message"]) == (3, 3, "gone")


def test_the_packet_is_that_of_the_response_if_a_client_repeats_its_ids() -> None:
    """A client may always send 0 as its correlation id."""
    times = [START + n for n in range(4)]
    rows = [error(correlation_id=0, time=times[n], error=f"X{n}") for n in (1, 3)]
    exchanges = [
        exchange(correlation_id=0, response_time=time, response_packet=10 + n)
        for n, time in enumerate(times)
    ]
    errors = analysis.errors(made(errors=rows, exchanges=exchanges), by="error")
    assert dict(zip(errors["error"], errors["first_packet"], strict=True)) == {"X1": 11, "X3": 13}


def test_unknown_codes_have_their_number() -> None:
    rows = [
        error(correlation_id=n, time=START + n, error_code=code, error=name)
        for n, (code, name) in enumerate([(12345, None), (12346, None), (12345, None), (3, "X")])
    ]
    errors = analysis.errors(made(errors=rows), by="error")
    assert dict(zip(errors["error"], errors["count"], strict=True)) == {
        "error 12345": 2, "error 12346": 1, "X": 1,
    }  # fmt: skip


def test_timeouts_are_those_that_librdkafka_logged() -> None:
    log = unpacked(CAPTURES / "librdkafka-mock-errors.librdkafka.log.zst").decode()
    timed_out = re.findall(
        r"REQTMOUT\|(\w+)#.* Timed out (\w+?)Request in flight \(after (\d+)ms", log
    )
    names = {"ApiVersion": "ApiVersions"}
    expected = Counter((client, names.get(api, api)) for client, api, _ in timed_out)
    rows = analysis.unanswered(capture("librdkafka-mock-errors"), by=["reason", "client_id", "api"])
    rows = rows[rows["reason"] == "timeout"]
    keys = zip(rows["client_id"], rows["api"], strict=True)
    assert dict(zip(keys, rows["requests"], strict=True)) == expected
    longest = max(float(ms) for *_, ms in timed_out)
    assert rows["longest_ms"].max() == pytest.approx(longest, abs=3)


@needs_tshark
@pytest.mark.parametrize("name", ["kafka-4-librdkafka", "kafka-4-paused", "kafka-4-telemetry"])
def test_a_rst_behind_the_fin_of_a_client_is_no_reset(name: str, tmp_path: Path) -> None:
    """librdkafka closes with requests in flight; its host resets the responses that come later."""
    path = tmp_path / "a.pcap"
    path.write_bytes(unpacked(CAPTURES / f"{name}.pcap.zst"))
    closed = {int(port) for (port,) in tshark(path, ["tcp.srcport"], "-Y", "tcp.flags.fin == 1")}
    tables = capture(name)
    silent = tables["exchanges"].query("status == 'unanswered'")
    assert len(silent)
    assert closed.issuperset(silent["client_port"])
    assert "reset" not in set(analysis.unanswered(tables)["reason"])


def test_requests_of_a_capture_without_responses_are_one_sided() -> None:
    """The capture was filtered: each request that the broker logged is there, and no response."""
    rows = analysis.unanswered(capture("kafka-4-cut-requests"), by=["reason"])
    assert rows["reason"].tolist() == ["one_sided"]
    assert rows["requests"].tolist() == [len(capture("kafka-4-cut-requests")["exchanges"])]


@pytest.mark.parametrize(
    ("ends", "row", "reason"),
    [
        ({"broker_lost_bytes": 9, "closed": "rst"}, {}, "loss"),
        ({"client_lost_bytes": 9}, {}, "loss"),
        ({"broker_packets": 0}, {}, "one_sided"),
        ({"closed": "rst"}, {}, "reset"),
        ({"closed": "fin"}, {}, "timeout"),
        ({"closed": "fin"}, {"request_end_time": START + 4100 * MS}, "closed"),
        ({"closed": "fin"}, {"max_wait_ms": 9000}, "closed"),
        ({"closed": "fin"}, {"api": "JoinGroup"}, "closed"),
        ({"closed": None}, {}, "capture_end"),
    ],
)
def test_the_reason_of_a_missing_response(
    ends: dict[str, Any], row: dict[str, Any], reason: str
) -> None:
    tables = made(
        exchanges=[exchange(status="unanswered", **row), exchange()],
        connections=[connection(**ends)],
    )
    rows = analysis.unanswered(tables)
    assert rows[["reason", "requests"]].to_dict("records") == [{"reason": reason, "requests": 1}]
