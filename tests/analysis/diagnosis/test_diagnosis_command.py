"""The command `diagnose`: its formats, its screen, its exit status."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace

import duckdb
import pytest

from analysis.diagnosis.catalog import limits
from analysis.diagnosis.run import DIAGNOSIS_TABLES, Diagnosis, diagnosed
from analysis.diagnosis.words import sql
from analysis.display.diagnosis_screen import NAMES_OF_SETTINGS, PARTS, screen
from analysis.display.terminal import time_text, utc_text
from analysis.sql.expressions import literal
from tests.analysis.answering import CAPTURES, broker_log, capture
from tests.analysis.commands import Ran
from tests.analysis.printing import printed

QUOTAS = str(CAPTURES / "kafka-4-quotas.pcap.zst")
HEALTHY = str(CAPTURES / "kafka-4-franz-go.pcap.zst")


def test_json_is_one_object(one_rule: None, ran: Ran) -> None:
    whole = json.loads(ran("diagnose", QUOTAS, "--format", "json").out)
    assert {each["clients"][0] for each in whole["findings"]} == {
        "producer", "consumer", "chatty", "maker",
    }  # fmt: skip
    assert whole["findings"][0]["command"].startswith(f"kafka-dissector throttle {QUOTAS}")
    assert whole["findings"][0]["first_time"].endswith("Z")
    assert whole["requests"] >= len(broker_log("kafka-4-quotas"))
    times = {each["client_id"]: each for each in whole["clients"]}
    assert times["producer"]["quota_ms"] <= 4588  # all throttle times of the producer


def test_jsonl_has_a_line_for_each_finding(one_rule: None, ran: Ran) -> None:
    rows = ran("diagnose", QUOTAS, "--format", "jsonl", "--fail-on", "note", status=3).rows
    assert {row["rule"] for row in rows} == {"throttling"}


def test_a_client_can_be_selected(one_rule: None, ran: Ran) -> None:
    text = ran("diagnose", QUOTAS, "--client", "producer", "--fail-on", "critical", status=3).out
    assert "client `producer`" in text.lower()
    log = broker_log("kafka-4-quotas").query("client_id == 'producer' and throttle_time_ms > 0")
    first, last = (time_text(time, 0) for time in (log["time"].min(), log["time"].max()))
    assert re.search(rf"  time       {first}\d+ to {last[11:]}\d+ UTC", text)
    assert "maker" not in text
    assert "--client producer --by client_id" in text


@pytest.mark.parametrize("options", [(), ("--client", "raft-client-3")])
def test_the_time_range_is_that_of_the_summary(options: tuple[str, ...], ran: Ran) -> None:
    """Controllers attempt connections before the first request; a client has some requests only."""
    name = str(CAPTURES / "kafka-4-quorum.pcap.zst")
    summary, diagnosis = (
        ran(command, name, *options).out.splitlines() for command in ("summary", "diagnose")
    )
    (time_range,) = (line for line in summary if " UTC, " in line)
    assert any(line.startswith(f"{time_range.rstrip()}, ") for line in diagnosis)


def test_findings_are_within_the_time_range(ran: Ran) -> None:
    """The broker is down before the first request."""
    name = str(CAPTURES / "kafka-4-quorum.pcap.zst")
    whole = json.loads(ran("diagnose", name, "--format", "json").out)
    times = [time for row in whole["findings"] if (time := row["first_time"])]
    assert times
    assert utc_text(whole["first_time"]) <= min(times)


def test_names_of_settings_are_explained(ran: Ran) -> None:
    """The client `hurried` is librdkafka, which has other names."""
    name = str(CAPTURES / "kafka-4-misused.pcap.zst")
    assert NAMES_OF_SETTINGS in ran("diagnose", name, "--client", "hurried").out
    assert NAMES_OF_SETTINGS not in ran("diagnose", QUOTAS, "--client", "producer").out


def test_no_findings_are_reported_as_such(one_rule: None, ran: Ran) -> None:
    assert "No findings: none of the" in ran("diagnose", HEALTHY, "--fail-on", "note").out


@pytest.mark.parametrize(
    ("threshold", "message"),
    [
        ("throttling", "is not RULE=NUMBER"),
        ("throttling=nan", "'nan' is not a valid number"),
        ("throttling=-1", "not in the range"),
        ("nothing=1", "there is no rule 'nothing'"),
    ],
)
def test_wrong_thresholds(threshold: str, message: str, ran: Ran) -> None:
    err = ran("diagnose", QUOTAS, "--threshold", threshold, status=2).err
    assert message in " ".join(err.split())


@pytest.fixture(scope="module")
def diagnosis() -> Diagnosis:
    return diagnosed(capture("kafka-4-misused", DIAGNOSIS_TABLES), limits({}))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_screen_fits_the_terminal(diagnosis: Diagnosis, width: int) -> None:
    lines = printed(screen(diagnosis, "x.pcap", lambda command: command), width).splitlines()
    # A command is in one piece, so that it can be copied.
    commands = [line[13:].rstrip() for line in lines if line.startswith("  more  ")]
    assert commands == [row["command"] for row in diagnosis.findings]
    assert max(len(line.rstrip()) for line in lines if not line.startswith("  more  ")) <= width
    first = next(line for line in lines if "[" in line)
    assert first.startswith("critical[stuck_transactions]: A transaction of client")


def test_the_number_of_further_clients_follows_the_rows(diagnosis: Diagnosis) -> None:
    """In a narrow terminal, too, where columns are hidden."""
    row = diagnosis.clients[0] | dict.fromkeys(PARTS.values(), 71_000_000.0)
    many = replace(diagnosis, clients=[row] * 12)
    text = printed(screen(many, "x.pcap", lambda command: command), 50)
    lines = [line.strip() for line in text.splitlines()]
    note = lines.index("and 2 more clients")
    assert lines[note - 1].split()[0] == row["client_id"]
    assert lines[note + 1].startswith("Hidden (terminal too narrow): ")


def test_a_rule_with_many_findings_does_not_hide_the_others(diagnosis: Diagnosis) -> None:
    """Such as one for each of 2,000 clients."""
    first, *others = diagnosis.findings
    many = replace(diagnosis, findings=[first] * 2000 + others)
    text = printed(screen(many, "x.pcap", lambda command: command), 120)
    expected = {row["rule"] for row in others} - {first["rule"]}
    assert expected
    assert all(f"[{rule}]" in text for rule in expected)
    assert text.count(f"[{first['rule']}]") == 10
    count = 1990 + sum(row["rule"] == first["rule"] for row in others)
    assert f"and {count:,} more findings: {count:,} of {first['rule']}; --format jsonl" in text


def test_findings_with_the_same_advice_show_it_once(diagnosis: Diagnosis) -> None:
    """Such as those of clients with the same settings."""
    first, second = diagnosis.findings[:2]
    assert first["cause"] != second["cause"]
    mixed = replace(diagnosis, findings=[first, first, first | {"command": "errors"}, second])
    lines = printed(screen(mixed, "x.pcap", lambda command: command), 500).splitlines()
    causes = [line[13:].rstrip() for line in lines if line.startswith("  cause  ")]
    assert [cause.startswith("As above") for cause in causes] == [False, True, False, False]
    commands = [line[13:].rstrip() for line in lines if line.startswith("  more  ")]
    assert commands == [first["command"], "errors", second["command"]]
    assert sum(line.startswith("  evidence  ") for line in lines) == 4


def test_a_client_without_an_id(diagnosis: Diagnosis) -> None:
    """Such as a broker that authenticates again at another one (KIP-368)."""
    unnamed = replace(diagnosis, clients=[diagnosis.clients[0] | {"client_id": None}])
    text = printed(screen(unnamed, "x.pcap", str), 200)
    assert text.split("in total\n")[1].splitlines()[1].split()[0] == "-"


@pytest.mark.parametrize(
    ("last_s", "text"),
    [(5, "00:00:02.000 to 00:00:05.000 UTC, 95.0 s before the end"),
     (2, "00:00:02.000 UTC, 98.0 s before the end"),
     (None, "00:00:02.000 UTC"),  # such as an open transaction
     (99.5, "00:00:02.000 to 00:01:39.500 UTC, < 1 s before the end")],
)  # fmt: skip
def test_a_finding_shows_how_long_it_is_over(
    diagnosis: Diagnosis, last_s: float | None, text: str
) -> None:
    last = None if last_s is None else int(last_s * 10**9)
    finding = diagnosis.findings[0] | {"first_time": 2 * 10**9, "last_time": last}
    shown = replace(diagnosis, findings=[finding], first_time=0, last_time=100 * 10**9)
    lines = printed(screen(shown, "x.pcap", lambda command: command), 120).splitlines()
    (line,) = (line.rstrip() for line in lines if line.startswith("  time  "))
    assert line == f"  time       1970-01-01 {text}"


def test_the_time_of_clients_omits_parts_that_no_client_has(diagnosis: Diagnosis) -> None:
    without = [row | {"quota_ms": 0, "poll_ms": 0.0} for row in diagnosis.clients]
    heads = []
    for clients in (without, [*without[1:], without[0] | {"quota_ms": 1}]):
        text = printed(screen(replace(diagnosis, clients=clients), "x.pcap", str), 200)
        heads.append(text.split("in total\n")[1].splitlines()[0].split())
    assert heads[0] == ["client", "id", "requests", "broker", "network", "queue"]
    assert heads[1] == [*heads[0], "quota"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    "name",
    ["", "it's", "''", '"$x" `y` \\', "!x", "two  spaces ", "x\ny\t", "\x01", "漢\u2028", "-c"],
)
def test_a_shell_and_sql_get_the_names_of_a_query(name: str) -> None:
    """Client ids and groups may have any characters."""
    command = sql(f"""
      select {literal(name)}
        as  name, 'a''  b' as text""")
    assert "\n" not in command
    assert command.isprintable()
    line = f"printf '%s\\0' {command}"
    words = subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout.decode()
    verb, query, _ = words.split("\0")
    assert (verb, duckdb.sql(query).fetchall()) == ("sql", [(name, "a'  b")])


def test_responses_without_requests_are_kafka(ran: Ran) -> None:
    """The advice for captures without Kafka would be wrong; the findings have the reason."""
    output = ran("diagnose", str(CAPTURES / "kafka-4-cut-responses.pcap.zst"))
    assert "There is no request to diagnose." in output.out
    assert "packets in only one direction" in output.out
    assert output.err == ""
