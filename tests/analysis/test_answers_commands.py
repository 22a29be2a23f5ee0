"""The command of each answer writes the rows that the function returns, in every format."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from answering import CAPTURES, capture
from made_rows import Make, connection, exchange

import analysis
from analysis.answers import ANSWERS
from analysis.cli import main

QUOTAS = str(CAPTURES / "kafka-4-quotas.pcap.zst")


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_is_a_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert ANSWERS[name].question in said
    for option in ANSWERS[name].options:
        assert f"--{option.name}" in said


def test_help_has_the_answers_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    commands, _, answers = capsys.readouterr().out.partition("Answers:")
    assert "\nCommands:\n" in commands
    assert [line.split()[0] for line in answers.splitlines() if line[2:3].strip()] == list(ANSWERS)


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "arrow", "table"])
def test_rows_are_those_of_the_function(form: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    assert (
        main(["throttle", QUOTAS, "--by", "client_id,api", "--format", form, "-o", str(path)]) == 0
    )
    expected = analysis.throttle(capture("kafka-4-quotas"), by=["client_id", "api"])
    names = ["client_id", "api", "responses", "total_ms"]
    rows = expected[names].astype("object").to_dict("records")
    if form in ("parquet", "arrow"):
        found = pd.read_parquet(path) if form == "parquet" else _stream(path)
        assert found[names].astype("object").to_dict("records") == rows
        return
    text = path.read_text()
    if form == "jsonl":
        assert [{n: json.loads(line)[n] for n in names} for line in text.splitlines()] == rows
    elif form == "csv":
        texts = [{name: str(value) for name, value in row.items()} for row in rows]
        assert [{n: row[n] for n in names} for row in csv.DictReader(text.splitlines())] == texts
    else:
        cells = [line.split() for line in text.splitlines()]
        assert cells[0] == list(expected.columns)
        assert [line[:4] for line in cells[1:-1]] == [[str(v) for v in r.values()] for r in rows]
        assert cells[-1] == ["times", "of", "2026-11-21,", "UTC"]


def _stream(path: Path) -> pd.DataFrame:
    with pa.ipc.open_stream(path) as reader:
        found: pd.DataFrame = reader.read_pandas()
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ["latency", "missing.pcap", "--by", "nonsense"],
        ["latency", "missing.pcap", "--by", "api,api"],
        ["errors", "missing.pcap", "--by", "latency_ms"],
        ["batching", "missing.pcap", "--by", ""],
        ["latency", "missing.pcap", "--slowest", "few"],
        ["latency", "missing.pcap", "--slowest", "-1"],
        ["latency", "missing.pcap", "--format", "xml"],
        ["topology", "missing.pcap", "--by", "topic"],
    ],
)
def test_a_wrong_option_is_told_before_the_capture_is_read(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Error: " in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("name", ANSWERS)
def test_what_cannot_be_read_is_one_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(b"this is no capture at all")
    assert main([name, str(path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Error: ")
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize("name", ["latency", "errors", "unanswered", "versions", "topology"])
@pytest.mark.parametrize(
    ("rows", "sentence"), [([], "No Kafka request"), ([exchange(latency_ms=None)], "None in this")]
)
def test_a_capture_without_it_says_so(
    name: str,
    rows: list[dict[str, object]],
    sentence: str,
    made: Make,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made(exchanges=rows, connections=[connection()])
    assert main([name, "x.pcap"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(sentence)


def test_what_comes_from_the_wire_moves_no_cursor(
    made: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    made(exchanges=[exchange(client_id="\x1b[2J[red]")], connections=[connection()])
    assert main(["latency", "x.pcap", "--by", "client_id"]) == 0
    said = capsys.readouterr().out
    assert "\\x1b[2J[red]" in said
    assert "\x1b" not in said
