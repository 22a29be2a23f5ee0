"""The command in pipes and on terminals, with a pager, and interrupted."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import dissector
from analysis import startup
from analysis.cli import main
from analysis.commands.output import FORMAT_NAMES
from dissector import tables
from tests.analysis.commands import (
    CAPTURE,
    COMMAND,
    ENVIRONMENT,
    PLAIN,
    ROOT,
    Ran,
    on_terminal,
    run,
)
from tests.analysis.made_rows import Make, exchange


def test_a_summary_in_a_pipe_is_plain_text() -> None:
    done = run("summary", CAPTURE)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert all(line.isprintable() and line == line.rstrip() for line in text.split("\n"))
    assert "librdkafka" in text
    assert "p99 ms" in text


def test_a_summary_on_a_terminal_has_colour() -> None:
    status, text = on_terminal("summary", CAPTURE)
    assert status == 0
    assert "\x1b[1m" in text
    assert "Requests" in text


@pytest.mark.parametrize("width", [60, 200])
def test_a_narrow_summary_names_its_hidden_columns(width: int) -> None:
    _, text = on_terminal("summary", QUOTAS, width=width, height=500)
    _, _, requests = re.sub("\x1b\\[[0-9;]*m", "", text).partition("\nRequests")
    heading = requests.splitlines()[1]
    hidden = re.search(r"Hidden \(terminal too narrow\): (.*)", requests)
    names = [*re.split("  +", heading.strip()), *(hidden[1].strip().split(", ") if hidden else ())]
    columns = ["API", "version", "requests", "errors", "throttled", "p50 ms", "p99 ms", "max ms"]
    assert sorted(names) == sorted(columns)
    assert (hidden is not None) == (width == 60)


PAGER = f"{sys.executable} -c 'import sys; print(\"PAGED\", len(sys.stdin.readlines()))'"
QUOTAS = str(ROOT / "captures" / "kafka-4-quotas.pcap.zst")


@pytest.mark.parametrize(
    ("arguments", "height", "is_paged"),
    [
        (["summary", QUOTAS], 24, True),
        (["summary", QUOTAS], 200, False),
        (["summary", QUOTAS], 0, False),  # a terminal that does not know its size
        (["summary", "--no-pager", QUOTAS], 24, False),
        (["latency", QUOTAS], 10, True),
        (["latency", QUOTAS], 100, False),
        (["latency", "--wide", QUOTAS], 100, True),  # for its width
        (["sql", QUOTAS, "select range from range(100)"], 24, True),
        (["show", QUOTAS], 24, True),
        (["export", QUOTAS], 24, False),  # rows that come while the capture is read
    ],
)
def test_long_output_goes_to_the_pager(arguments: list[str], height: int, is_paged: bool) -> None:
    status, text = on_terminal(*arguments, width=100 if height else 0, height=height, pager=PAGER)
    assert status == 0
    assert ("PAGED" in text) == is_paged


@pytest.mark.parametrize("pager", ["", "cat", "no-such-program --at all", "true"])
def test_a_missing_pager_loses_nothing(pager: str) -> None:
    status, text = on_terminal("latency", QUOTAS, width=100, height=10, pager=pager)
    assert status == 0
    assert ("BrokerHeartbeat" in text) == (pager != "true")


def test_a_pipe_is_never_paged(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAGER", PAGER)
    assert main(["summary", QUOTAS]) == 0
    output = capfd.readouterr().out
    assert "Requests" in output
    assert "PAGED" not in output


def test_wide_tables_are_whole() -> None:
    arguments = ("network", QUOTAS)
    _, narrow = on_terminal(*arguments, width=120, height=500, pager="cat")
    _, wide = on_terminal(*arguments, "--wide", width=120, height=500, pager="cat")
    assert "Hidden (terminal too narrow): " in narrow
    assert "Hidden" not in wide
    assert "client_zero_windows" in wide.splitlines()[0]


@pytest.mark.parametrize(
    ("form", "shown"),
    [([], 1000), (["--vertical"], 10), (["--format", "markdown"], 10)],
    ids=str,
)
def test_a_terminal_shows_the_first_rows_and_their_total(
    form: list[str], shown: int, made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of rows does not depend on the form; lines for many take seconds."""
    if form:
        monkeypatch.setattr("analysis.commands.output.SHOWN", shown)
    total = shown + 100
    made(exchanges=[exchange(client_id=f"app-{number}") for number in range(total)])
    arguments = ("latency", CAPTURE, "--by", "client_id", *form, "--no-pager")
    status, text = on_terminal(*arguments, width=100, height=40)
    assert status == 0
    assert len(re.findall(r"app-\d+", text)) == shown
    assert f"Hidden: rows {shown + 1:,} to {total:,}" in text
    assert (f"row 1 of {total}" in text) == (form == ["--vertical"])
    whole = run(*arguments).stdout.decode()
    assert len(re.findall(r"app-\d+", whole)) == total
    assert "Hidden" not in whole


@pytest.mark.parametrize("table", ["exchanges", "errors", "connections", "topics", "problems"])
def test_every_format_has_the_same_rows(table: str, tmp_path: Path) -> None:
    for form in FORMAT_NAMES:
        path = str(tmp_path / form)
        assert main(["export", CAPTURE, "--table", table, "--format", form, "-o", path]) == 0
    rows = [json.loads(line) for line in (tmp_path / "jsonl").read_text().splitlines()]
    read = pa.ipc.open_stream((tmp_path / "arrow").read_bytes()).read_all()
    assert read.schema.equals(tables.TABLES[table].schema)
    assert pq.read_table(tmp_path / "parquet").equals(read)
    assert pa.csv.read_csv(tmp_path / "csv").num_rows == len(read) == len(rows)
    assert rows or table in ("errors", "problems")
    for name in read.column_names:
        if not pa.types.is_timestamp(read[name].type):
            assert read[name].to_pylist() == [row[name] for row in rows]


def test_standard_input_is_a_capture(ran: Ran) -> None:
    whole = ran("export", CAPTURE).out
    piped = run("export", "-", stdin=Path(CAPTURE).read_bytes()).stdout.decode()
    rows = [[json.loads(line) for line in each.splitlines()] for each in (whole, piped)]
    for row in (*rows[0], *rows[1]):
        del row["capture"]
    assert rows[0] == rows[1]
    assert len(rows[0]) > 50


HOSTILE = "\x1b[31m\x9b\u202e\u200b"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "arguments",
    [
        ["latency", f"{HOSTILE}.pcap"],
        ["latency", CAPTURE, "--keylog", HOSTILE],
        ["latency", CAPTURE, "--where", f'"{HOSTILE}" = 1'],
        ["latency", CAPTURE, "--where", f"client_id = '{HOSTILE}'"],
        ["latency", CAPTURE, "--by", HOSTILE],
        ["sql", CAPTURE, f'select 1 as "{HOSTILE}"'],
        ["sql", CAPTURE, f'select 1 as "{HOSTILE}"', "--vertical"],
        ["sql", CAPTURE, f'select 1 as "{HOSTILE}"', "--format", "csv"],
        ["sql", CAPTURE, f'select 1 as "{HOSTILE}"', "--format", "jsonl"],
        ["sql", CAPTURE, f"select '{HOSTILE}' as a", "--format", "csv"],
        ["sql", CAPTURE, f"select '{HOSTILE}' as a", "--format", "jsonl"],
        [HOSTILE],
    ],
    ids=str,
)
def test_names_and_values_move_no_cursor(arguments: list[str]) -> None:
    """File names come from patterns, and conditions are copied from captures."""
    _, text = on_terminal(*arguments, width=200, height=50)
    assert "\x1b[31m" not in text
    without_colours = re.sub("\x1b\\[[0-9;]*m", "", text)
    assert all(line.isprintable() for line in without_colours.splitlines())
    assert "202e" in text


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_pipe_gets_visible_and_invisible_characters(form: str, ran: Ran) -> None:
    """Persian words need the joiner U+200C."""
    assert "a\u200cb" in ran("sql", CAPTURE, "select 'a\u200cb' as a", "--format", form).out


@pytest.mark.parametrize(
    "command", [f"export {{}} --format {form}" for form in FORMAT_NAMES] + ["latency {}"]
)
def test_a_dash_is_standard_output(command: str) -> None:
    words = command.format(PLAIN).split()
    usual, dash = run(*words), run(*words, "-o", "-")
    assert (usual.returncode, dash.returncode) == (0, 0)
    assert usual.stdout == dash.stdout != b""


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_bytes_do_not_go_to_a_terminal(form: str) -> None:
    status, text = on_terminal("export", CAPTURE, "--format", form)
    assert status == 2
    assert f"cannot write {form} to a terminal" in text


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "--version",
        "latency --help",
        *(f"{name} {{}}" for name in ("latency", "diagnose", "summary", "show")),
        *(f"export {{}} --format {form}" for form in FORMAT_NAMES),
        "compare {} {}",
        "trace {} --offset 1",
        "sniff {}",
        "latency {} missing.pcap",  # the rows of the first file are output
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_an_error_of_standard_output(
    command: str, unbuffered: str, one_rule: None
) -> None:
    with Path("/dev/full").open("wb") as full:
        words = command.format(PLAIN, PLAIN).split()
        done = run(*words, stdout=full, environment={"PYTHONUNBUFFERED": unbuffered})
    *before, last = done.stderr.decode().splitlines()
    assert (done.returncode, last) == (1, "Error: standard output: No space left on device")
    # The buffer of Python 3.14 contains all that `show` writes, which then fails at its end.
    usual = ("Warning: missing.pcap", "capturing from", "Stopped after 10 exchanges")
    assert all(line.startswith(usual) for line in before)


def test_a_usage_error_needs_no_standard_output() -> None:
    with Path("/dev/full").open("wb") as full:
        done = run("latency", "--by", stdout=full)
    assert done.returncode == 2
    assert done.stderr.endswith(b"Error: Option '--by' requires an argument.\n")


@pytest.mark.parametrize("command", ["latency", *(f"export --format {f}" for f in FORMAT_NAMES)])
def test_a_full_disk_is_an_error_of_the_file(command: str, ran: Ran) -> None:
    error = ran(*command.split(), PLAIN, "-o", "/dev/full", status=1).err
    assert error == "Error: /dev/full: No space left on device\n"


def started(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """The command with pipes without buffers."""
    return subprocess.Popen(
        [*COMMAND, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd=ROOT, env=ENVIRONMENT | environment, bufsize=0,
    )  # fmt: skip


def close_reader(process: subprocess.Popen[bytes], *, after: int = 0) -> None:
    """Read some bytes, and no more: the command ends without an error."""
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert len(process.stdout.read(after)) == after
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(180) == 141


def end(process: subprocess.Popen[bytes], number: int, folder: Path, first: str) -> bytes:
    """Send a signal when the folder has the first file, while the command reads its input.

    Returns the text on standard error.
    """
    assert process.stdin is not None
    process.stdin.write(Path(CAPTURE).read_bytes())
    until = time.monotonic() + 180
    while not list(folder.glob(first)) and time.monotonic() < until:
        time.sleep(0.001)
    process.send_signal(number)
    output, errors = process.communicate(timeout=180)
    assert output == b""
    return errors


@pytest.mark.parametrize(
    "command",
    [["summary"], ["show"], *(["export", "--format", form] for form in FORMAT_NAMES)],
    ids=lambda command: command[-1],
)
def test_a_closed_pipe_is_not_an_error(command: list[str]) -> None:
    close_reader(started(*command, CAPTURE))


def test_a_pipe_that_closes_midway_is_noticed_without_buffer() -> None:
    """A raw stream reports no error if it has written a part: these rows are one part."""
    close_reader(started("export", QUOTAS, PYTHONUNBUFFERED="1"), after=1)


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=lambda each: str(each),
)
def test_an_interrupt_keeps_what_was_written(number: int, status: int, tmp_path: Path) -> None:
    process = started("export", "-", "-o", str(tmp_path / "rows"))
    errors = end(process, number, tmp_path, "*")
    assert process.returncode == status
    assert errors.decode() == f"{tmp_path / 'rows.partial'} contains the rows read so far.\n"
    assert [each.name for each in tmp_path.iterdir()] == ["rows.partial"]


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("latency -", "*"),
        ("latency - -o {}/rows.csv", "*"),
        ("export - --table all -o {}/tables", "*/*"),
    ],
)
def test_sigterm_leaves_no_incomplete_files(command: str, first: str, tmp_path: Path) -> None:
    """Not the temporary folder of answers, either, which has files of large tables only."""
    process = started(*command.format(tmp_path).split(), TMPDIR=str(tmp_path))
    assert end(process, signal.SIGTERM, tmp_path, first) == b""
    assert process.returncode == 143
    assert not list(tmp_path.iterdir())


def test_a_signal_whose_exception_was_lost_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    """Imports of modules in C may lose it. The next block of input ends the command."""
    monkeypatch.setattr(startup, "_received", [signal.SIGTERM])
    assert ran("export", CAPTURE, status=143) == ("", "")


def test_an_error_after_a_signal_is_the_signal(monkeypatch: pytest.MonkeyPatch, ran: Ran) -> None:
    """DuckDB raises RuntimeError after Ctrl-C."""

    def interrupted(*_: object, **__: object) -> None:
        startup._received[:] = [signal.SIGINT]
        raise RuntimeError("Query interrupted")

    monkeypatch.setattr(startup, "_received", [])
    monkeypatch.setattr("duckdb.connect", interrupted)
    assert ran("latency", CAPTURE, status=130) == ("", "")


def test_sigterm_ends_the_prompt_of_sql() -> None:
    """Ctrl-C only cancels a line."""
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(ROOT)
        os.execv(COMMAND[0], [*COMMAND, "sql", PLAIN])
    read = b""
    while b"sql>" not in read:
        read += os.read(terminal, 1 << 16)
        if b"\x1b[6n" in read:  # the prompt asks for the position of the cursor
            os.write(terminal, b"\x1b[1;1R")
    os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + 180
    while not (ended := os.waitpid(pid, os.WNOHANG))[0] and time.monotonic() < until:
        time.sleep(0.05)
    os.close(terminal)
    assert (ended[0], os.waitstatus_to_exitcode(ended[1])) == (pid, 143)


def test_an_interrupt_leaves_no_unreadable_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = dissector.Capture.stream

    def interrupted(self: dissector.Capture, names: list[str], **_: object) -> Iterator[object]:
        yield next(stream(self, names))
        assert list(tmp_path.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr(dissector.Capture, "stream", interrupted)
    assert main(["export", CAPTURE, "--table", "all", "-o", str(tmp_path)]) == 130
    assert main(["export", CAPTURE, "--table", "all", "-o", str(tmp_path / "new")]) == 130
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "interrupted"),
    [
        ("--help", "analysis.cli.app.parse_args"),  # before the command
        *((f"{name} x.pcap", "dissector.open_capture") for name in ("summary", "export", "show")),
    ],
)
def test_an_interrupt_is_status_130_without_output(
    command: str, interrupted: str, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(interrupted, interrupt)
    assert ran(*command.split(), status=130) == ("", "")
