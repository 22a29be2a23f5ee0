"""The files of a recording: private, new, with unique names, and complete however it ends."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import stat
import termios
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.cli import main
from analysis.export import parquet
from analysis.live import lines as live_lines
from analysis.live import rotation
from analysis.live.parquet_writer import DEFAULT, TableWriter
from analysis.live.recorder import Recorder
from analysis.live.rotation import Rotation
from dissector.capture import open_capture
from dissector.errors import DissectorError
from dissector.packets.paths import open_reader
from dissector.tables import TABLES
from tests.analysis.live.sniffing import ROOT, Sniff, limited, send, sniffing, wait_for

PLAIN = ROOT / "captures" / "librdkafka-mock-produce.pcap"
IDENTITY = ("client_id", "api", "correlation_id", "client_port", "request_bytes")


def rows_of(capture: Path, table: str = "exchanges") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = open_capture([capture]).tables([table])[table].to_pylist()
    return rows


def identities(rows: Sequence[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in IDENTITY) for row in rows)


def bytes_below(folder: Path, pattern: str) -> int:
    return sum(file.stat().st_size for file in folder.rglob(pattern) if file.is_file())


def check_complete(folder: Path) -> None:
    """Assert that the folder has all tables and packets of PLAIN."""
    assert [*folder.rglob("*.partial")] == []
    expected = rows_of(PLAIN)
    kept = pq.read_table(folder / "tables" / "exchanges").to_pylist()
    assert identities(kept) == identities(expected)
    connections = pq.read_table(folder / "tables" / "connections")
    assert len(connections) == len(rows_of(PLAIN, "connections"))
    assert identities(rows_of(folder / "kept.pcapng")) == identities(expected)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_session_like_the_end_of_a_file(tmp_path: Path, number: int) -> None:
    words = ["--view", "jsonl", "--export", str(tmp_path / "tables")]
    with sniffing("-", *words, "--write", str(tmp_path / "kept.pcapng")) as process:
        send(process, PLAIN.read_bytes())
        assert process.stdout
        first = process.stdout.readline()
        wait_for(lambda: bytes_below(tmp_path, "kept.pcapng") > PLAIN.stat().st_size)
        process.send_signal(number)
        remainder = process.stdout.read()
        assert process.wait(180) == 0
    shown = [json.loads(line) for line in (first + remainder).splitlines()]
    assert identities(shown) == identities(rows_of(PLAIN))
    check_complete(tmp_path)


@pytest.mark.parametrize("view", ["lines", "jsonl", "screen", "none"])
def test_a_closed_terminal_leaves_complete_files(tmp_path: Path, view: str) -> None:
    """When an ssh session ends, SIGHUP arrives and every write to the terminal fails."""
    terminal, inside = pty.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(inside, termios.TIOCSCTTY, 0)

    words = ["--view", view, "--export", str(tmp_path / "tables")]
    words += ["--write", str(tmp_path / "kept.pcapng")]
    with sniffing(
        "-", *words, stdout=inside, stderr=inside, start_new_session=True, preexec_fn=take_terminal
    ) as process:
        os.close(inside)
        data = PLAIN.read_bytes()
        send(process, data)
        wait_for(lambda: bytes_below(tmp_path, "kept.pcapng") > len(data))
        os.close(terminal)
        process.wait(180)
    check_complete(tmp_path)


def test_a_session_under_nohup_continues() -> None:
    with sniffing("-", "--view", "jsonl", before=["nohup"]) as process:
        send(process, PLAIN.read_bytes())
        assert process.stdout
        assert process.stdout.readline()
        status = Path(f"/proc/{process.pid}/status").read_text()
        (ignored,) = re.findall(r"SigIgn:\t(\w+)", status)  # a mask: proc_pid_status(5)
        assert int(ignored, 16) >> signal.SIGHUP - 1 & 1
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=180)
        assert process.returncode == 0


def test_a_closed_pipe_leaves_complete_files(tmp_path: Path) -> None:
    """`sniff - --export DIR | head`: the last rows of the tables are kept."""
    with sniffing("-", "--export", str(tmp_path / "tables")) as process:
        assert process.stdout
        process.stdout.close()
        send(process, PLAIN.read_bytes())
        assert process.wait(180) == 141
    assert [*tmp_path.rglob("*.partial")] == []
    kept = pq.read_table(tmp_path / "tables" / "exchanges").to_pylist()
    assert identities(kept) == identities(rows_of(PLAIN))


@pytest.mark.parametrize("limits", [[], ["--rotate-size", "8k"]])
def test_only_the_owner_can_read_recordings(tmp_path: Path, limits: list[str]) -> None:
    words = ["--write", str(tmp_path / "kept.pcapng"), "--export", str(tmp_path / "tables")]
    words += ["-o", str(tmp_path / "rows.jsonl")]

    modes: list[dict[str, set[int]]] = []

    def look() -> set[str]:
        """The suffixes of the files; `modes` gets their modes."""
        modes.append({})
        for file in tmp_path.rglob("*"):
            with suppress(FileNotFoundError):  # it was renamed meanwhile
                if stat.S_ISREG(mode := file.stat().st_mode):
                    modes[-1].setdefault(file.suffix, set()).add(stat.S_IMODE(mode))
        return {*modes[-1]}

    with sniffing("-", *words, *limits) as process:
        send(process, PLAIN.read_bytes())
        wait_for(lambda: look() >= {".pcapng", ".partial", ".jsonl"})
        assert process.stdin
        process.stdin.close()
        assert process.wait(180) == 0
    assert look() == {".pcapng", ".parquet", ".jsonl"}
    for actual in modes:
        assert {mode for each in actual.values() for mode in each} <= {0o600}


@pytest.mark.parametrize("option", ["--write", "-o"])
@pytest.mark.parametrize("is_dangling", [False, True])
def test_a_symbolic_link_is_not_followed(
    tmp_path: Path, option: str, is_dangling: bool, sniff: Sniff
) -> None:
    target, link = tmp_path / "target", tmp_path / "link.out"
    if not is_dangling:
        target.write_text("precious")
    link.symlink_to(target)
    ended = sniff("-", option, str(link), "--view", "none", stdin=PLAIN)
    assert ended.returncode == 1
    assert ended.stderr == f"Error: {link} already exists: remove it, or choose another name\n"
    assert [*tmp_path.iterdir()] == [link] if is_dangling else target.read_text() == "precious"


def test_an_existing_file_is_not_overwritten(tmp_path: Path, sniff: Sniff) -> None:
    kept = tmp_path / "kept.pcapng"
    kept.write_text("precious")
    ended = sniff("-", "--write", str(kept), "-o", str(tmp_path / "rows.jsonl"), stdin=PLAIN)
    assert (ended.returncode, kept.read_text()) == (1, "precious")
    assert "already exists" in ended.stderr
    assert [*tmp_path.iterdir()] == [kept]  # the next attempt can use the other name


def test_links_with_predicted_names_are_not_followed(tmp_path: Path, sniff: Sniff) -> None:
    target, now = tmp_path / "target", datetime.now(UTC)
    target.write_text("precious")
    (tmp_path / "exchanges").mkdir()
    for second in range(60):
        moment = (now + timedelta(seconds=second)).strftime("%Y%m%dT%H%M%SZ")
        (tmp_path / f"kept-{moment}-00001.pcapng").symlink_to(target)
        table = tmp_path / "exchanges" / f"exchanges-{moment}-00001.parquet.partial"
        table.symlink_to(target)
    words = ["--write", str(tmp_path / "kept.pcapng"), "--rotate-time", "1h"]
    ended = sniff("-", *words, "--export", str(tmp_path), "--view", "none", stdin=PLAIN)
    assert ended.returncode == 0
    assert target.read_text() == "precious"


def test_a_table_folder_that_is_a_link_is_rejected(tmp_path: Path) -> None:
    elsewhere, tables = tmp_path / "elsewhere", tmp_path / "tables"
    elsewhere.mkdir()
    tables.mkdir()
    (tables / "exchanges").symlink_to(elsewhere)
    with pytest.raises(DissectorError, match="exchanges is a symbolic link"):
        TableWriter(tables, Rotation(), print)
    assert [*elsewhere.iterdir()] == []


class FixedClock(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime(2026, 3, 1, 12, 0, 0, 123456, tz)


@pytest.mark.parametrize("is_fixed", [False, True], ids=["same second", "same microsecond"])
def test_simultaneous_recordings_have_separate_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_fixed: bool
) -> None:
    if is_fixed:
        monkeypatch.setattr(rotation, "datetime", FixedClock)
        name = "kept-20260301T120000.123456Z-00001.pcapng"
        (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    reader = open_reader(str(PLAIN), [])
    packets = reader.read(0, 1 << 20)
    reader.close()
    assert packets
    count = len(packets.number)
    limits = Rotation(bytes=1 << 30, keep=4)
    recorders = [Recorder(tmp_path / "kept.pcapng", limits, print) for _ in range(3)]
    for recorder in recorders:
        recorder.record(["lo"], packets, np.zeros(count, np.int32))
    for recorder in recorders:
        recorder.close()
        assert recorder.failure is None
    files = [each for each in tmp_path.iterdir() if not each.is_symlink()]
    assert len(files) == 3
    for file in files:
        capture = open_capture([file])
        capture.tables([])
        assert capture.packets == count
    assert not (tmp_path / "elsewhere").exists()


def test_simultaneous_recordings_keep_all_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if a file has its final name before the other recording starts one of that name."""
    monkeypatch.setattr(rotation, "datetime", FixedClock, raising=False)
    rows = open_capture([PLAIN]).tables(["exchanges"])["exchanges"].combine_chunks().to_batches()
    recordings = [TableWriter(tmp_path, Rotation(seconds=60), print) for _ in range(2)]
    for recording in recordings:
        recording.read("exchanges", rows[0])
        recording.close()
    files = [*(tmp_path / "exchanges").iterdir()]
    assert sorted(each.suffix for each in files) == [".parquet"] * 2
    assert len(pq.read_table(tmp_path / "exchanges")) == 2 * len(rows[0])


def test_a_row_group_of_tables_has_few_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of a megabyte, up to the number of rows of a group, would take 32 GB of memory."""
    (rows,) = open_capture([PLAIN]).tables(["records"])["records"].combine_chunks().to_batches()
    monkeypatch.setattr(parquet, "GROUP_BYTES", rows.nbytes)
    writer = TableWriter(tmp_path, Rotation(), print, ["records"])
    for _ in range(3):
        writer.read("records", rows)
    writer.close()
    (file,) = (tmp_path / "records").iterdir()
    metadata = pq.read_metadata(file)
    groups = [metadata.row_group(each).num_rows for each in range(metadata.num_row_groups)]
    assert groups == [len(rows)] * 3


def test_two_processes_write_to_one_folder(tmp_path: Path) -> None:
    data, both = PLAIN.read_bytes(), []
    words = ["--write", str(tmp_path / "kept.pcapng"), "--rotate-size", "8k"]
    words += ["-o", str(tmp_path / "rows.jsonl"), "--export", str(tmp_path / "tables")]
    with (
        sniffing("-", *words, "--view", "none") as left,
        sniffing("-", *words, "--view", "none") as right,
    ):
        for process in (left, right):
            send(process, data)
            assert process.stdin
            process.stdin.close()
            both.append(process)
        assert [process.wait(180) for process in both] == [0, 0]
    expected = identities(rows_of(PLAIN))
    twice = Counter({each: 2 * count for each, count in expected.items()})
    kept = pq.read_table(tmp_path / "tables" / "exchanges").to_pylist()
    assert identities(kept) == twice
    lines = [line for file in tmp_path.glob("rows-*.jsonl") for line in file.open()]
    assert identities([json.loads(line) for line in lines]) == twice


def test_a_table_without_rows_can_be_read(tmp_path: Path, sniff: Sniff) -> None:
    """For DuckDB, a pattern without files is an error."""
    words = ["--view", "none", "--export", str(tmp_path)]
    assert sniff("-", *words, stdin=PLAIN).returncode == 0
    for name in DEFAULT:
        rows = duckdb.read_parquet(f"{tmp_path / name}/*.parquet")
        assert rows.columns == TABLES[name].schema.names
        assert rows.count("*").fetchall() == [(len(rows_of(PLAIN, name)),)]


@pytest.mark.parametrize(
    ("options", "command"), [((), "groups"), (("--table", "all"), "lag")], ids=["default", "all"]
)
def test_answers_read_the_tables(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: Sequence[str], command: str,
    sniff: Sniff,
) -> None:  # fmt: skip
    capture, folder = str(ROOT / "captures" / "kafka-4-group-eager.pcap.zst"), str(tmp_path / "t")
    assert sniff(capture, "--view", "none", "--export", folder, *options).returncode == 0
    printed = []
    for path in (capture, folder):
        assert main([command, path, "--format", "jsonl"]) == 0
        printed.append(capfd.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].count("\n") > 1
    assert main(["summary", folder]) == 0


def test_json_lines_rotate(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    batch = open_capture([PLAIN]).tables(["exchanges"])["exchanges"].combine_chunks()
    piece = len(batch) // 10
    lines = live_lines.JsonLinesFile(path, lambda rows: rows, Rotation(bytes=6_000, keep=3), print)
    for start in range(0, piece * 10, piece):
        lines.read("exchanges", batch.slice(start, piece).to_batches()[0])
    lines.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    kept = [json.loads(line) for file in files for line in file.open()]
    numbers = [row["correlation_id"] for row in kept]
    whole = batch["correlation_id"].to_pylist()[: piece * 10]
    assert numbers == whole[-len(numbers) :]
    assert all(file.stat().st_size >= 6_000 for file in files[:-1])


def test_rotation_that_fails_ends_only_this_output(tmp_path: Path) -> None:
    """The next file cannot be created: here, its folder was replaced by a file."""
    folder, reported = tmp_path / "kept", []
    path, batch = folder / "rows.jsonl", pa.record_batch({"row": [1]})
    lines = live_lines.JsonLinesFile(path, lambda rows: rows, Rotation(bytes=1), reported.append)
    lines.read("exchanges", batch)
    (kept,) = folder.iterdir()
    moved = kept.rename(tmp_path / "moved.jsonl")
    folder.rmdir()
    folder.touch()
    for _ in range(2):
        lines.read("exchanges", batch)
    lines.close()
    assert moved.read_text() == '{"row":1}\n'
    (message,) = reported
    assert message == lines.failure
    assert "-00002.jsonl: Not a directory: stopped after 1 row" in message


@pytest.mark.parametrize("limits", [[], ["--rotate-size", "4k"]])
def test_where_filters_json_lines(tmp_path: Path, limits: list[str], sniff: Sniff) -> None:
    words = ["-o", str(tmp_path / "rows.jsonl"), "--where", "api = 'Produce'", *limits]
    assert sniff("-", *words, "--view", "none", stdin=PLAIN).returncode == 0
    expected = [row for row in rows_of(PLAIN) if row["api"] == "Produce"]
    rows = [json.loads(line) for file in tmp_path.glob("rows*") for line in file.open()]
    assert identities(rows) == identities(expected)


@pytest.mark.parametrize("limits", [[], ["--rotate-size", "1k"]])
def test_a_full_disk_leaves_whole_json_lines(tmp_path: Path, limits: list[str]) -> None:
    words = ["-o", str(tmp_path / "rows.jsonl"), "--view", "jsonl", *limits]
    with sniffing("-", *words, before=limited(3000)) as process:
        shown, message = process.communicate(PLAIN.read_bytes(), timeout=180)
    assert process.returncode == 1
    assert "which can be read" in message.decode()
    assert "Traceback" not in message.decode()
    assert len(shown.splitlines()) == len(rows_of(PLAIN))
    for file in tmp_path.iterdir():
        for line in file.open():
            json.loads(line)
