"""The command as its user meets it: words, errors, exit status."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import dissector
from analysis.cli import main
from analysis.commands.common import ALL, TABLE_NAMES, chosen_tables
from analysis.commands.output import FORMAT_NAMES
from dissector import tables
from tests.analysis.commands import CAPTURE, COMMAND, ENVIRONMENT, PLAIN, ROOT, Ran
from tests.analysis.made_rows import Make, connection, exchange


def test_names_are_those_of_the_modules_that_know_them() -> None:
    from analysis.export.formats import FORMATS

    assert tuple(tables.TABLES) == TABLE_NAMES == chosen_tables(["errors", ALL])
    assert chosen_tables(["errors", "topics", "errors"]) == ("errors", "topics")
    assert tuple(FORMATS) == FORMAT_NAMES


def test_help_begins_with_the_options_of_the_command(
    ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = ran("cut", "--help").out.splitlines()
    sections = ["Options:", "Filters:", "Output:", "Input and display:"]
    assert [line for line in lines if line.endswith(":") and not line.startswith(" ")] == sections
    at = {name: next(i for i, line in enumerate(lines) if name in line)
          for name in ("--context", "--where", "--overwrite", "--keylog", "--help")}  # fmt: skip
    assert [*at] == sorted(at, key=at.__getitem__)
    assert max(map(len, lines)) <= 80


def test_the_list_of_commands_has_whole_sentences(ran: Ran) -> None:
    assert "..." not in ran("--help").out.replace("CAPTURE...", "").replace("[ARGS]...", "")


@pytest.mark.parametrize("arguments", [["--help"], ["latency", "--help"], ["export", "-h"]])
def test_help_needs_nothing_heavy(arguments: Sequence[str]) -> None:
    check = (
        f"import sys; from analysis.cli import main; status = main({arguments!r});"
        "heavy = {'numpy', 'pyarrow', 'pandas', 'rich', 'dissector.pipeline'} & set(sys.modules);"
        "sys.exit(status or ' '.join(heavy) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, check=False, cwd=ROOT, env=ENVIRONMENT
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"Usage: kafka-dissector")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["summary"],
        ["summary", "--port", "0", "x.pcap"],
        ["show", "--jobs", "2", "x.pcap"],  # it reads in one process
        ["export", "x.pcap", "--table", "nonsense"],
        ["export", "x.pcap", "--format", "xml"],
        ["show", "x.pcap", "--limit", "0"],
        ["show", "x.pcap", "--packet", "first"],
        ["show", "x.pcap", "--packet", "0"],
        ["latency", "x.pcap", "--slowest", "some"],
    ],
)
def test_a_wrong_command_line_is_status_2(arguments: list[str], ran: Ran) -> None:
    assert "Usage:" in ran(*arguments, status=2).err


@pytest.mark.parametrize("arguments", [["summary", "x.pcap"], ["sniff", "-"]])
def test_a_second_key_log_is_not_ignored(arguments: list[str], ran: Ran, tmp_path: Path) -> None:
    keys = tmp_path / "keys.log"
    keys.write_bytes(b"")
    error = ran(*arguments, *["--keylog", str(keys)] * 2, status=2).err
    assert "it takes one file. Concatenate several" in error


def test_a_capture_may_be_a_uri(tmp_path: Path, ran: Ran) -> None:
    path = tmp_path / "a b.pcap"
    path.write_bytes(Path(PLAIN).read_bytes())
    expected = ran("summary", str(path)).out
    assert ran("summary", path.as_uri()).out == expected
    assert main(["latency", tmp_path.as_uri()]) == 0
    path.write_bytes(b"no capture")
    error = ran("latency", PLAIN, path.as_uri(), status=1).err
    assert f"{path} is text, not a pcap or pcapng file" in error


@pytest.mark.parametrize("command", ["summary", "export", "show", "latency"])
@pytest.mark.parametrize("content", [None, b"", b"this is no capture at all, " * 9])
def test_an_unreadable_capture_is_one_sentence_and_status_1(
    command: str, content: bytes | None, tmp_path: Path, ran: Ran
) -> None:
    path = tmp_path / "x.pcap"
    if content is not None:
        path.write_bytes(content)
    output = ran(command, str(path), status=1)
    assert output.out == ""
    assert output.err.startswith("Error: ")
    assert str(path) in output.err
    assert output.err.count("\n") == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "command",
    [
        ["latency"],
        ["diagnose"],
        ["compare", PLAIN],
        ["report", "-o", "page.html"],
        ["export", "--table", "errors"],
        ["export", "--table", "all", "-o", "tables"],
        ["records"],
        ["sql", "select count(*) from exchanges"],
        ["trace", "--key", "k"],
        ["cut", "-o", "cut.pcapng"],
        ["show"],
        ["show", "--client", "acks-1"],
    ],
    ids=lambda command: command[0],
)
def test_files_that_cannot_be_read_are_warnings(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_reports: None,
    ran: Ran,
) -> None:  # fmt: skip
    """Only a file that is missing as a whole is an error."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    half = Path(PLAIN).read_bytes()[:30_000]
    Path("in/half.pcap").write_bytes(half)
    name, *options = command
    query = [options.pop()] if name == "sql" else []
    truncated = "Warning: in/half.pcap: the file ends within the packet that begins at byte "
    err = ran(name, *options, "in", *query).err
    lines = [line for line in err.splitlines() if line.startswith("Warn")]
    if name != "show":  # it ends before the end of the file
        assert lines == [f"{truncated}29891. The result is incomplete."]
    if name == "compare":
        return
    for file in Path().glob("*.*"):
        file.unlink()
    shutil.rmtree("tables", ignore_errors=True)
    err = ran(name, *options, "in", "missing.pcap", "x\x1by", *query, status=1).err
    lines = [line for line in err.splitlines() if line.startswith("Warn")]
    assert lines[:2] == [
        f"Warning: {file}: No such file or directory. The result does not include it."
        for file in ("missing.pcap", r"x\x1by")
    ]


def test_a_folder_without_captures_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    """Not if a pattern matches it, or if it is in a folder with captures."""
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "full/empty"):
        Path(name).mkdir(parents=True)
    Path("empty/notes.txt").write_text("no capture")
    Path("full/a.pcap").write_bytes(Path(PLAIN).read_bytes())
    line = "Warning: empty: there is no capture file. The result does not include it.\n"
    assert ran("latency", "full/a.pcap", "empty", status=1).err == line
    output = ran("export", "--table", "problems", "empty", "full", status=1)
    assert output.err == line
    assert json.loads(output.out)["kind"] == "unreadable_file"
    assert ran("latency", "full", "full/", "./full", "f*", "full/*").err == ""
    assert ran("latency", "empty", status=1).err == "Error: empty: there is no capture file\n"


@pytest.mark.parametrize("content", [None, b"text", b"\xfd7zXZ\0"])
def test_a_line_break_in_the_name_of_a_file_is_escaped(
    content: bytes | None, tmp_path: Path, ran: Ran
) -> None:
    file = tmp_path / "a\nb.pcap"
    if content is not None:
        file.write_bytes(content)
    error = ran("latency", str(file), status=1).err
    assert error.startswith(f"Error: {tmp_path}/a\\nb.pcap")
    assert error.count("\n") == 1


def test_no_rows_of_an_empty_client_id_are_those_of_a_filter(ran: Ran) -> None:
    for name in ("", "nobody"):
        lines = ran("latency", PLAIN, "--client", name).err.splitlines()
        assert "No latencies in the selected exchanges." in lines


def test_many_files_that_cannot_be_read_are_a_few_lines(tmp_path: Path, ran: Ran) -> None:
    for number in range(12):
        (tmp_path / f"{number:02}.pcap").write_bytes(Path(PLAIN).read_bytes()[:-1])
    lines = ran("latency", str(tmp_path)).err.splitlines()
    assert [line.startswith(f"Warning: {tmp_path}/0") for line in lines] == [True] * 5 + [False]
    command = f"kafka-dissector export {tmp_path} --table problems"
    assert lines[-1] == f"Warning: 7 more files could not be read completely: {command}"


def test_more_of_it_is_about_the_same_capture(made: Make, ran: Ran) -> None:
    made(exchanges=[exchange(status="unanswered")], connections=[connection()])
    output = ran("summary", "a file.pcap", "--port", "9093", "--port", "9094").out
    assert "more: kafka-dissector unanswered 'a file.pcap' --port 9093 --port 9094\n" in output
    output = ran("summary", "-").out
    assert output.startswith("standard input\n")
    assert "more: kafka-dissector unanswered CAPTURE...\n" in output


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("name", [b"a\xff.pcap", b"-\n'\\\x1b.pcap", "-\u202e'é".encode()])
def test_more_of_a_file_with_any_name_can_be_copied_to_a_shell(
    name: bytes, made: Make, ran: Ran
) -> None:
    made(exchanges=[exchange(status="unanswered")], connections=[connection()])
    arguments = ["--where", "client_id <> 'a\nb'"]
    out = ran("summary", *arguments, "--", os.fsdecode(name)).out
    line = out.partition("more: kafka-dissector unanswered ")[2].splitlines()[0]
    assert line.isprintable()
    words = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], stdout=-1, check=True).stdout
    named = b"./" + name if name.startswith(b"-") else name
    assert words.split(b"\0") == [named, *map(os.fsencode, arguments), b""]


@pytest.mark.parametrize(("given", "jobs"), [([], 1), (["--jobs", "3"], 3)])
def test_the_default_is_one_process(
    given: list[str], jobs: int, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    """On any machine: no measurement shows that more are faster."""
    opened: list[object] = []
    open_capture = dissector.open_capture

    def watched(*paths: object, **options: object) -> object:
        opened.append(options["jobs"])
        return open_capture(*paths, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(dissector, "open_capture", watched)
    ran("summary", *given, "captures/kafka-python-mock.pcap")
    assert opened == [jobs]


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["latancy", CAPTURE], "No such command 'latancy'. Did you mean latency?"),
        (
            ["wireshark_plugin"],
            "No such command 'wireshark_plugin'. Did you mean wireshark-plugin?",
        ),
        (
            ["export", CAPTURE, "--table", "exchange"],
            ". Did you mean exchanges?",
        ),
        (["export", CAPTURE, "--columns", "latency"], "transactional_id. Did you mean latency_ms?"),
        (["show", CAPTURE, "--only", "error"], "'request_missing'. Did you mean errors?"),
        (["latency", CAPTURE, "--by", "clientid"], "10s. Did you mean client_id?"),
        (["qqq", CAPTURE], "No such command 'qqq'."),
        (["show", CAPTURE, "--only", "qqq"], "'undecoded', 'request_missing'."),
    ],
)
def test_errors_suggest_a_similar_name(arguments: list[str], suggestion: str, ran: Ran) -> None:
    assert ran(*arguments, status=2).err.endswith(f"{suggestion}\n")


@pytest.mark.parametrize(
    ("environment", "is_coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": ""}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
@pytest.mark.parametrize("command", ["summary", "show", "latency"])
def test_colours_of_a_pipe(
    command: str, environment: dict[str, str], is_coloured: bool,
    monkeypatch: pytest.MonkeyPatch, ran: Ran,
) -> None:  # fmt: skip
    """https://no-color.org and https://force-color.org"""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in ran(command, CAPTURE).out) == is_coloured


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["summary"], None),
        (["diagnose", "--format", "json"], None),
        (["latency"], None),
        (["show", "--limit", "1"], None),
        (["export", "--table", "exchanges"], None),
        (["cut", "--api", "Fetch"], "x.pcapng"),
        (["cut", "--api", "Fetch"], os.fsdecode(b"x\xff.pcapng")),
        (["export", "--table", "exchanges"], os.fsdecode(b"x\xff.parquet")),
        (["report"], "missing/folder/x.html"),
    ],
)
def test_names_of_files_may_have_any_bytes(
    arguments: list[str], output: str | None, tmp_path: Path, short_reports: None, ran: Ran
) -> None:
    path = tmp_path / os.fsdecode(b"a\xff.pcap")
    path.write_bytes(Path(PLAIN).read_bytes())
    written = [] if output is None else ["-o", str(tmp_path / output)]
    out = ran(*arguments, str(path), *written).out
    assert output is None or (tmp_path / output).stat().st_size > 99
    assert "udcff" not in out


def test_names_in_a_comparison_and_of_encrypted_captures_may_have_any_bytes(
    tmp_path: Path, ran: Ran
) -> None:
    path = str(tmp_path / os.fsdecode(b"a\xff.pcap.zst"))
    shutil.copy(ROOT / "captures" / "kafka-4-tls.pcap.zst", path)
    whole = json.loads(ran("compare", path, path, "--format", "json").out)
    assert whole["before"]["capture"].endswith(r"/a\xff.pcap.zst")
    (row,) = ran("encrypted", path, "--format", "jsonl").rows
    assert row["slowest_capture"] == whole["after"]["capture"]


@pytest.mark.parametrize(
    "arguments",
    [["wireshark-plugin"], ["report", PLAIN], ["export", PLAIN, "--format", "otlp"]],
)
def test_the_name_of_a_written_file_is_printable(
    arguments: list[str], tmp_path: Path, short_reports: None, ran: Ran
) -> None:
    path = tmp_path / "\u202e\x1b[31m"
    assert ran(*arguments, "-o", str(path)).err.strip().isprintable()
    assert path.stat().st_size > 99


def test_a_name_that_is_not_utf_8_is_escaped(tmp_path: Path, ran: Ran) -> None:
    path = tmp_path / os.fsdecode(b"a\xff.pcap")
    path.write_bytes(b"no capture")
    output = ran("summary", PLAIN, str(path), status=1).out
    assert r"/a\xff.pcap is text, not a pcap or pcapng file" in output
    folder = str(tmp_path / os.fsdecode(b"\xff"))
    tables = ["--table", "errors", "--table", "topics"]
    error = ran("export", PLAIN, *tables, "-o", folder, status=2).err
    assert r"/\xff is not UTF-8: choose another folder" in error


def test_a_file_without_a_command(ran: Ran) -> None:
    error = ran(PLAIN, status=2).err
    assert error.endswith(f"is a file, not a command: kafka-dissector summary {PLAIN}\n")


def test_an_empty_name_is_not_the_current_folder(ran: Ran) -> None:
    assert "the name of a file is empty" in ran("summary", "", status=2).err


@pytest.mark.parametrize(
    ("closed", "arguments", "status", "sentence"),
    [
        ("<&-", ["summary", "-"], 1, "Error: standard input is empty"),
        ("<&-", ["sql", PLAIN], 2, "Error: no query: pass it as the last argument"),
        (">&-", ["summary", PLAIN], 1, "Error: standard output: Bad file descriptor"),
        (">&-", ["--help"], 1, "Error: standard output: Bad file descriptor"),
        ("<&- >&- 2>&-", ["summary", "missing.pcap"], 1, ""),
    ],
)
def test_standard_streams_may_be_closed(
    closed: str, arguments: list[str], status: int, sentence: str
) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" "$@" {closed}', *COMMAND, *arguments],
        capture_output=True, check=False, cwd=ROOT, env=ENVIRONMENT, timeout=180,
    )  # fmt: skip
    assert done.returncode == status
    assert sentence in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_a_full_disk_of_temporary_files_names_their_folder(
    monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device")

    monkeypatch.setattr("pyarrow.ipc.new_file", full)
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    assert ran("sql", PLAIN, "from exchanges", status=1).err.splitlines()[-1] == (
        "Error: temporary files in /tmp: No space left on device; set TMPDIR to another folder"
    )
