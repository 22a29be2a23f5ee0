"""The command `sql`: queries in, rows out, one sentence for what is wrong."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import analysis
import dissector
from analysis.cli import main
from analysis.display.prompt import completer
from tests.analysis.commands import Ran
from tests.captures.recorded import CAPTURES

CAPTURE = str(CAPTURES / "kafka-4-errors.pcap.zst")
PLAIN = str(CAPTURES / "librdkafka-mock-errors.pcap")
BY_ERROR = "select error, count(*) n, sum(error_code) s from errors group by all order by n desc, 1"


def truth() -> list[dict[str, object]]:
    counts: dict[str, list[int]] = {}
    errors = dissector.open_capture(CAPTURE).tables(["errors"])["errors"]
    for name, code in zip(*(errors[c].to_pylist() for c in ("error", "error_code")), strict=True):
        counts.setdefault(name, []).append(code)
    rows = [{"error": k, "n": len(v), "s": sum(v)} for k, v in counts.items()]
    return sorted(rows, key=lambda row: (-int(str(row["n"])), str(row["error"])))


def test_the_query_is_the_last_argument(ran: Ran) -> None:
    assert ran("sql", CAPTURE, BY_ERROR, "--format", "jsonl").rows == truth()


def test_the_default_format_is_a_table(ran: Ran) -> None:
    head, *lines = ran("sql", CAPTURE, BY_ERROR).out.splitlines()
    assert head.split() == ["error", "n", "s"]
    assert [line.split() for line in lines] == [
        [str(value) for value in row.values()] for row in truth()
    ]


def test_a_long_table_is_cut_with_a_note(ran: Ran) -> None:
    out, err = ran("sql", CAPTURE, "select range from range(1001)")
    assert len(out.splitlines()) == 1 + 1000
    assert "Showing the first 1,000 rows" in err
    assert ran("sql", CAPTURE, "select range from range(1000)").err == ""


REPEATED = "select 1 as a, interval 2 hours as i, 3 as a, 4 as a_1, interval 5 hours as i"


def test_names_of_columns_are_not_repeated(tmp_path: Path, ran: Ran) -> None:
    names = ["a", "i", "a_1", "a_1_1", "i_1"]
    values = [1, "02:00:00", 3, 4, "05:00:00"]
    for form in ("parquet", "arrow"):
        file = tmp_path / form
        ran("sql", CAPTURE, REPEATED, "--format", form, "-o", str(file))
        table = (
            pq.read_table(file)
            if form == "parquet"
            else pa.ipc.open_stream(file.read_bytes()).read_all()
        )
        assert table.to_pylist() == [dict(zip(names, values, strict=True))]
    out = ran("sql", CAPTURE, REPEATED, "--format", "jsonl").out
    pairs = json.loads(out, object_pairs_hook=list)
    assert pairs == list(zip(names, values, strict=True))
    out = ran("sql", CAPTURE, REPEATED, "--format", "csv").out
    assert next(csv.reader(out.splitlines())) == names
    assert ran("sql", CAPTURE, REPEATED).out.splitlines()[0].split() == names
    query = "select e.*, x.* from errors e join exchanges x using (connection_id, correlation_id)"
    ran("sql", CAPTURE, query, "-o", str(tmp_path / "joined.parquet"))
    assert "client_id_1" in pq.read_table(tmp_path / "joined.parquet").column_names


def test_a_file_of_parquet(tmp_path: Path) -> None:
    file = tmp_path / "errors.parquet"
    assert main(["sql", CAPTURE, BY_ERROR, "--format", "parquet", "-o", str(file)]) == 0
    assert [row | {"s": int(row["s"])} for row in pq.read_table(file).to_pylist()] == truth()


def test_types_that_a_format_lacks_are_text(ran: Ran) -> None:
    query = "select interval 90 minute as i, map{'a': 1} as m, [interval 1 day] as l, 1.50 as d"
    out = ran("sql", CAPTURE, query, "--format", "jsonl").out
    assert out == '{"i":"01:30:00","m":"{a=1}","l":"[1 day]","d":1.50}\n'


def test_the_query_may_come_from_standard_input(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("select 6 * 7 as n;"))
    assert ran("sql", CAPTURE, "--format", "csv").out == '"n"\n42\n'


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([CAPTURE, "select foo from exchanges"], 2, 'Error: Referenced column "foo" not found'),
        ([CAPTURE, "select '\udcff' as x"], 2, "Error: the query is not valid UTF-8"),
        ([CAPTURE, "select api::int from exchanges"], 2, "Error: Could not convert string"),
        (
            [CAPTURE, "select timestamp '9999-01-01'", "--format", "csv"],
            2,
            "cannot be written as csv",
        ),
        (["select 1 as n"], 2, "Missing argument 'CAPTURE...'"),
        (["-"], 2, "the capture is read from standard input"),
        (["none.pcap", "select 1 as n"], 1, "Error: none.pcap: No such file or directory\n"),
        ([PLAIN, "select 1 as n", "-o", PLAIN], 2, "is an input file"),
        ([CAPTURE, "select 1 as n", "-o", CAPTURE], 2, "no format has the suffix .zst"),
    ],
)
def test_an_error_is_one_sentence(
    arguments: list[str], status: int, message: str, ran: Ran
) -> None:
    out, err = ran("sql", *arguments, status=status)
    assert out in ("", "\"CAST('9999-01-01' AS TIMESTAMP)\"\n")
    assert message in err
    assert err.count("Error: ") == 1


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "select 1,\n\t2 +\x1b oops oops",
            'Error: syntax error at or near "oops"\nLINE 2: \\t2 +\\x1b oops oops\n',
        ),
        ("from exchangs limit 1", "Error: Table with name exchangs does not exist!\nDid you mean"),
        (
            "select upper(true, 2)",
            "Error: No function matches the given name and argument types 'upper(BOOLEAN, "
            "INTEGER_LITERAL)'. You might need to add explicit type casts.\n"
            "  Candidate functions:\n  upper(",
        ),
    ],
)
def test_a_wrong_query_is_shown_with_its_line_and_a_caret(
    query: str, message: str, ran: Ran
) -> None:
    err = ran("sql", CAPTURE, query, status=2).err
    assert err.startswith(message)
    *_, line, caret = err.splitlines()
    if "oops" in query:
        assert caret.strip() == "^^^^"
        assert line[caret.index("^") :] == "oops"


@pytest.mark.parametrize("length", [255, 256, 5_000, 100_000])
def test_a_query_has_any_length(length: int, ran: Ran) -> None:
    text = "a" * length
    out = ran("sql", CAPTURE, f"select '{text}' as y", "--format", "jsonl").out
    assert json.loads(out) == {"y": text}


@pytest.mark.parametrize("unit", ["date_trunc('second', {})", "time_bucket(interval '1 s', {})"])
def test_the_footer_has_the_day_of_times_of_any_unit(unit: str, ran: Ran) -> None:
    out = ran("sql", CAPTURE, f"select {unit.format('request_time')} from exchanges").out
    time = dissector.open_capture(CAPTURE).tables(["exchanges"])["exchanges"]["request_time"][0]
    day = time.as_py().strftime("%Y-%m-%d")
    assert out.splitlines()[-1] == f"times of {day}, UTC"


@pytest.mark.parametrize("arguments", [[CAPTURE], ["-"]])
def test_an_answer_is_a_view(
    arguments: list[str], ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = dissector.open_capture
    monkeypatch.setattr(dissector, "open_capture", lambda *_, **__: opened(CAPTURE))
    query = "select api, count, net_max_ms from latency where count > 0"
    rows = ran("sql", *arguments, query, "--format", "jsonl").rows
    tables = analysis.load(CAPTURE)
    expected = analysis.latency(tables)[["api", "count"]].to_dict("records")
    assert [{"api": row["api"], "count": row["count"]} for row in rows] == expected


def test_no_query_at_all(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert "no query: pass it" in ran("sql", CAPTURE, status=2).err


def test_a_file_with_a_blank_in_its_name_is_a_capture(
    tmp_path: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "my capture.pcap.zst"
    link.symlink_to(CAPTURE)
    monkeypatch.setattr("sys.stdin", io.StringIO("select count(*) > 0 as b from exchanges"))
    assert ran("sql", str(link), "--format", "jsonl").out == '{"b":true}\n'


def use_prompt(typed: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Type at the prompt, whose history is in the folder."""
    monkeypatch.setenv("XDG_STATE_HOME", folder)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text(typed)
        assert main(["sql", CAPTURE]) == 0


def test_the_prompt_continues_after_errors_and_keeps_a_history(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = "from exchangs\rgiven up\x03select 6 * 7 as answer\r\x04"
    use_prompt(typed, str(tmp_path), monkeypatch)
    out, err = capfd.readouterr()
    assert "42" in out
    assert err.count("Error: ") == 1
    history = (tmp_path / "kafka-dissector" / "queries").read_text()
    assert [line[1:] for line in history.splitlines() if line.startswith("+")] == [
        "from exchangs",
        "select 6 * 7 as answer",
    ]


def test_the_prompt_works_without_a_history(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_prompt("select true as here\rquit;\r", "/dev/null", monkeypatch)
    assert "yes" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("select max(THROTTLE_T", "throttle_time_ms"),
        ("from excha", "exchanges"),
        ("select poll_", "poll_ms"),
        ("from throttl", "throttle"),
        ("from answers.er", "answers.errors"),
    ],
)
def test_the_prompt_completes_names(typed: str, completed: str) -> None:
    completions = completer().get_completions(Document(typed), CompleteEvent())
    assert completed in [each.text for each in completions]
