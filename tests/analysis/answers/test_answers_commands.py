"""The command of each answer writes the rows that the function returns, in every format."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import analysis
from analysis.answers import ANSWERS
from analysis.cli import main
from tests.analysis.answering import CAPTURES, capture, path_of
from tests.analysis.commands import Ran
from tests.analysis.made_rows import Make, connection, exchange

QUOTAS = str(CAPTURES / "kafka-4-quotas.pcap.zst")


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_is_a_command(name: str, ran: Ran) -> None:
    output = " ".join(ran(name, "--help").out.split())
    assert ANSWERS[name].question in output
    for option in ANSWERS[name].options:
        assert f"--{option.name.replace('_', '-')}" in output


def test_a_former_name_works_and_is_hidden(ran: Ran) -> None:
    former = ran("trust", QUOTAS).out
    assert ran("quality", QUOTAS).out == former
    assert "trust" not in ran("--help").out


def test_help_has_the_answers_apart(ran: Ran) -> None:
    commands, _, answers = ran("--help").out.partition("Answers:")
    assert "\nCommands:\n" in commands
    assert [line.split()[0] for line in answers.splitlines() if line[2:3].strip()] == list(ANSWERS)


@pytest.fixture(scope="module")
def throttled() -> pd.DataFrame:
    return analysis.throttle(capture("kafka-4-quotas"), by=["client_id", "api"])


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "arrow", "table"])
def test_rows_are_those_of_the_function(form: str, throttled: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "out"
    assert (
        main(["throttle", QUOTAS, "--by", "client_id,api", "--format", form, "-o", str(path)]) == 0
    )
    names = ["client_id", "api", "responses", "total_ms"]
    rows = throttled[names].astype("object").to_dict("records")
    if form in ("parquet", "arrow"):
        written = pd.read_parquet(path) if form == "parquet" else _stream(path)
        assert written[names].astype("object").to_dict("records") == rows
        return
    text = path.read_text()
    if form == "jsonl":
        assert [{n: json.loads(line)[n] for n in names} for line in text.splitlines()] == rows
    elif form == "csv":
        texts = [{name: str(value) for name, value in row.items()} for row in rows]
        assert [{n: row[n] for n in names} for row in csv.DictReader(text.splitlines())] == texts
    else:
        cells = [line.split() for line in text.splitlines()]
        assert cells[0] == list(throttled.columns)
        assert [line[:4] for line in cells[1:-1]] == [[str(v) for v in r.values()] for r in rows]
        assert cells[-1] == ["times", "of", "2026-11-21,", "UTC"]


def _stream(path: Path) -> pd.DataFrame:
    with pa.ipc.open_stream(path) as reader:
        table: pd.DataFrame = reader.read_pandas()
    return table


@pytest.mark.parametrize(
    "arguments",
    [
        ["latency", "missing.pcap", "--by", "nonsense"],
        ["latency", "missing.pcap", "--by", "api,api"],
        ["errors", "missing.pcap", "--by", "latency_ms"],
        ["batching", "missing.pcap", "--by", ""],
        ["batching", "missing.pcap", "--columns", "batches,"],
        ["latency", "missing.pcap", "--slowest", "few"],
        ["latency", "missing.pcap", "--slowest", "-1"],
        ["latency", "missing.pcap", "--format", "xml"],
        ["topology", "missing.pcap", "--by", "topic"],
        ["latency", "missing.pcap", "--where", "clientid = 'a'"],
        ["summary", "missing.pcap", "--api", "Fetc"],
        ["report", "missing.pcap", "--since", "soon"],
        ["report", "missing.pcap", "--until", ""],
    ],
)
def test_a_wrong_option_is_an_error_before_the_capture_is_read(
    arguments: list[str], ran: Ran
) -> None:
    output = ran(*arguments, status=2)
    assert output.out == ""
    assert "Error: " in output.err
    assert "Traceback" not in output.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["latency", "x.pcap", "--by", "api", "--slowest", "3"], "pass either --by or --slowest"),
        (["skew", "x.pcap", "--top", "20"], "--top needs --show keys"),
        (["stuck", "x.pcap", "--show", "lag", "--min-ms", "5"], "--min-ms needs --show offsets"),
        (["zones", "x.pcap", "--show", "consumers", "--by", "api"], "--by needs --show pairs"),
    ],
)
def test_an_option_without_effect_is_an_error(
    arguments: list[str], sentence: str, ran: Ran
) -> None:
    assert ran(*arguments, status=2).err.endswith(f"Error: {sentence}\n")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("latency", "No latencies in this capture.\n"),
        ("throttle", "No throttled responses in this capture.\n"),
        ("unanswered", "No unanswered requests in this capture.\n"),
        ("versions", "No requests in versions that Kafka 4.0 removed in this capture.\n"),
    ],
)
def test_a_capture_without_rows_names_the_missing_kind(
    name: str, sentence: str, made: Make, ran: Ran
) -> None:
    made(exchanges=[exchange(latency_ms=None)], connections=[connection()])
    assert ran(name, "x.pcap") == ("", sentence)
    made(exchanges=[], connections=[connection()])
    assert ran(name, "x.pcap").err.startswith("No Kafka request")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["producers", "--show", "gaps"], "No gaps in sequence numbers in this capture.\n"),
        (["clients", "--show", "settings"], "No settings of clients in this capture.\n"),
        (["zones", "--show", "consumers"], "No consumers in this capture.\n"),
    ],
)
def test_an_option_that_shows_something_else_names_it(
    arguments: list[str], sentence: str, made: Make, ran: Ran
) -> None:
    made(exchanges=[exchange()], connections=[connection()])
    assert ran(*arguments, "x.pcap") == ("", sentence)


def test_an_empty_result_names_the_unread_connections(made: Make, ran: Ran) -> None:
    encrypted = [connection(connection_id=n, protocol="tls") for n in (1, 2)]
    made(exchanges=[exchange()], connections=[connection(), *encrypted])
    for name, rows in (("errors", "errors"), ("groups", "rebalances")):
        assert ran(name, "x.pcap").err == (
            f"No {rows} in the 1 of 3 connections that could be read; for the others, see "
            "kafka-dissector quality x.pcap\n"
        )
    assert ran("export", "x.pcap", "--table", "errors").err == (
        "No rows of errors in the 1 of 3 connections that could be read; for the others, see "
        "kafka-dissector quality x.pcap\n"
    )
    old = exchange(api="Produce", api_version=2)
    made(exchanges=[old], connections=[connection(), *encrypted])
    warning = "only 1 of 3 connections could be read; for the others, see kafka-dissector quality"
    assert ran("versions", "x.pcap").err == f"Warning: {warning} x.pcap\n"
    for command in (["quality", "x.pcap"], ["versions", "x.pcap", "--api", "Produce"]):
        assert "Warning" not in ran(*command).err
    one_sided = connection(broker_packets=0, broker_bytes=0)
    made(exchanges=[exchange(status="unanswered")], connections=[one_sided])
    assert "No errors in the 0 of 1 connections that could be read" in ran("errors", "x.pcap").err
    made(exchanges=[], connections=encrypted)
    for command in (["groups", "x.pcap"], ["export", "x.pcap", "--table", "errors"]):
        assert ran(*command).err.startswith("No Kafka request or response was found.")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "No Kafka request or response was found."),
        (["--table", "records"], "No rows of records in this capture."),
        (["--client", "nobody"], "No exchange is selected."),
    ],
)
def test_an_export_without_rows_is_explained(
    arguments: list[str], sentence: str, made: Make, ran: Ran
) -> None:
    made(exchanges=[], connections=[connection()])
    output = ran("export", "x.pcap", *arguments)
    assert (output.out, sentence in output.err) == ("", True)


MAGIC = {"parquet": b"PAR1", "arrow": b"\xff\xff\xff\xff", "csv": b'"', "jsonl": b'{"'}


@pytest.mark.sampled(5)  # each command and each format once
@pytest.mark.parametrize(
    ("name", "form"),
    [("x.parquet", "parquet"), ("x.CSV", "csv"), ("x.jsonl", "jsonl"), ("x.arrow", "arrow")],
)
@pytest.mark.parametrize(
    "command",
    [["throttle", QUOTAS], ["export", QUOTAS], ["records", QUOTAS], ["sql", QUOTAS, "from topics"]],
    ids=lambda command: command[0],
)
def test_the_name_of_the_file_is_its_format(
    command: list[str], name: str, form: str, tmp_path: Path
) -> None:
    named, asked = tmp_path / name, tmp_path / "asked"
    assert main([*command, "-o", str(named)]) == 0
    assert main([*command, "-o", str(asked), "--format", form]) == 0
    assert named.read_bytes() == asked.read_bytes()
    assert named.read_bytes().startswith(MAGIC[form])


def test_a_format_that_contradicts_the_name_is_an_error(tmp_path: Path, ran: Ran) -> None:
    path = tmp_path / "x.parquet"
    err = ran("export", QUOTAS, "-o", str(path), "--format", "csv", status=2).err
    assert "--format csv contradicts" in err
    assert not path.exists()


@pytest.mark.parametrize("name", ["x.csv.gz", "x.XLSX"])
@pytest.mark.parametrize("form", [[], ["--format", "csv"]], ids=["default", "csv"])
def test_a_name_of_a_format_that_is_not_written_is_an_error(
    name: str, form: list[str], tmp_path: Path, ran: Ran
) -> None:
    """Other programs would refuse the file: gzip, a spreadsheet, pandas."""
    for command in ("latency", "export"):
        err = ran(command, QUOTAS, "-o", str(tmp_path / name), *form, status=2).err
        error = " ".join(err.split())
        assert f"no format has the suffix {Path(name).suffix}; choose from .csv," in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "command",
    [
        ["export", QUOTAS, "-o"],
        ["records", QUOTAS, "-o"],
        ["errors", QUOTAS, "-o"],
        ["sql", QUOTAS, "select 1 as n", "-o"],
        ["report", QUOTAS, "-o"],
    ],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("name", ["x.csv", "x.csv.partial"])
def test_a_file_is_replaced_only_where_that_is_wanted(
    command: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    monkeypatch.setattr("analysis.report.page.page", lambda *_: [b"<html>"])
    there = tmp_path / name
    there.write_bytes(b"precious")
    path = tmp_path / "x.csv"
    assert f"{there} exists: pass --overwrite to replace it" in " ".join(
        ran(*command, str(path), status=2).err.split()
    )
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"precious"]
    ran(*command, str(path), "--overwrite")
    assert [each.name for each in tmp_path.iterdir()] == ["x.csv"]
    assert path.read_bytes() != b"precious"


def test_columns_are_chosen_and_ordered(tmp_path: Path, ran: Ran) -> None:
    path = tmp_path / "x.csv"
    arguments = ["throttle", QUOTAS, "--columns", "total_ms,client_id", "-o", str(path)]
    ran(*arguments)
    assert path.read_text().splitlines()[0] == '"total_ms","client_id"'
    err = ran("throttle", "missing.pcap", "--columns", "nonsense", status=2).err
    assert "no column 'nonsense'; choose from: client_id" in err
    ran("export", "missing.pcap", "--columns", "api,api", status=2)


@pytest.mark.parametrize("words", [["throttle", QUOTAS], ["sql", QUOTAS, "from topics"]])
def test_a_table_in_markdown(words: list[str], tmp_path: Path, ran: Ran) -> None:
    path = tmp_path / "x.md"
    ran(*words, "-o", str(path))
    lines = path.read_text().splitlines()
    assert all(line.startswith("| ") and line.endswith(" |") for line in lines[:3])
    assert set(lines[1]) == set("| -:")
    ran(*words, "--format", "markdown", "--wide", status=2)
    ran("export", QUOTAS, "-o", str(tmp_path / "rows.md"))  # rows for programs have no such format
    assert (tmp_path / "rows.md").read_text().startswith('{"')


def test_the_vertical_form_has_a_line_for_each_value(ran: Ran) -> None:
    lines = ran("throttle", QUOTAS, "--vertical").out.splitlines()
    expected = analysis.throttle(capture("kafka-4-quotas"))
    assert lines[0] == f"row 1 of {len(expected)}"
    assert [line.split()[0] for line in lines[1 : 1 + len(expected.columns)]] == list(expected)
    assert lines[1].split() == ["client_id", expected["client_id"][0]]


def test_control_characters_of_a_capture_are_escaped(made: Make, ran: Ran) -> None:
    made(exchanges=[exchange(client_id="\x1b[2J[red]")], connections=[connection()])
    output = ran("latency", "x.pcap", "--by", "client_id").out
    assert "\\x1b[2J[red]" in output
    assert "\x1b" not in output


QUOTAS = str(path_of("kafka-4-quotas"))
MAKER = ["--client", "maker"]
SELECTED = "Filter: client_id = 'maker' or client = 'maker': 7 of 137 exchanges\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["latency"], ["export", "--format", "csv"], ["show"], ["sql"],
    ],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_a_command_prints_its_filter(arguments: list[str], ran: Ran) -> None:
    name, *options = arguments
    query = ["select count(*) from exchanges"] if name == "sql" else []
    output = ran(name, QUOTAS, *MAKER, *options, *query)
    assert SELECTED in output.err
    if name == "export":
        assert len(output.out.splitlines()) == 1 + 7
    if name == "sql":
        assert output.out.split() == ["count_star()", "7"]


def test_the_summary_shows_its_filter_and_repeats_it(ran: Ran) -> None:
    output = ran("summary", QUOTAS, *MAKER)
    assert SELECTED in output.out
    assert f"more: kafka-dissector errors {QUOTAS} --client maker\n" in output.out
    assert output.err == ""


def test_the_head_of_a_filtered_summary_is_about_the_selected_exchanges(ran: Ran) -> None:
    """The connections begin before the selected part, and last longer."""
    tables = analysis.load(QUOTAS)
    start = tables["connections"]["first_time"].min()
    times = [start + pd.Timedelta(seconds=seconds) for seconds in (10, 20)]
    rows = tables["exchanges"]
    rows = rows[rows["request_time"].between(*times, inclusive="left")]
    span, counts = ran("summary", QUOTAS, "--since", "10s", "--until", "20s").out.splitlines()[1:3]
    ends = (rows["request_time"].min(), rows["response_end_time"].max())
    assert span.startswith(f"{ends[0]:%Y-%m-%d %H:%M:%S}.")
    assert f"to {ends[1]:%H:%M:%S}." in span
    size = (rows["request_bytes"] + rows["response_bytes"]).sum()
    assert counts == f"6 connections, {size / 1000:.1f} kB of payload, {len(rows)} exchanges"


def test_times_that_select_nothing_are_beside_those_of_the_capture(ran: Ran) -> None:
    """05:17 is in the capture in Berlin, not in UTC."""
    span = "2026-11-21 04:17:35.080 to 2026-11-21 04:18:27.442 UTC"
    err = ran("latency", QUOTAS, "--since", "05:17").err
    assert f"0 of 137 exchanges, which are of {span}\n" in err
    err = ran("latency", QUOTAS, "--since", "05:17", "--tz", "Europe/Berlin").err
    assert "137 of 137 exchanges; times in UTC\n" in err


def test_a_filter_that_selects_nothing_is_named(ran: Ran) -> None:
    output = ran("latency", QUOTAS, "--client", "nobody")
    assert output.out == ""
    assert output.err == (
        "No latencies in the selected exchanges.\n"
        "Filter: client_id = 'nobody' or client = 'nobody': 0 of 137 exchanges; "
        "`clients` lists all clients\n"
    )
    err = ran("latency", QUOTAS, "--topic", "nothing", "--broker", "host").err
    assert err.endswith(
        ": 0 of 137 exchanges; `latency --by topic` lists all topics; "
        "`latency --by broker` lists all brokers\n"
    )
