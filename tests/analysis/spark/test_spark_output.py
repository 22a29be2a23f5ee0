"""The output folder: checked before Spark starts, complete or absent, and cleaned after a kill."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

from analysis.cli import main
from analysis.spark import plan, session
from analysis.spark.output import HIDDEN, SUCCESS, Output
from analysis.spark.schemas import spark_schema
from analysis.spark.stream import StreamReader
from analysis.spark.writing import Folder, Written
from dissector.capture import open_capture
from dissector.errors import DissectorError
from tests.analysis.spark.sharding import CAPTURES

ROOT = Path(__file__).parents[3]
QUOTAS = CAPTURES / "kafka-4-quotas.pcap.zst"
COMMAND = [sys.executable, "-c", "import sys; from analysis.cli import main; sys.exit(main())"]
TABLE = pa.table({"api": ["Fetch", "Produce"], "request_time_ns": [0, 1]})


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if Spark starts."""

    def start(*given: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "session", start)


@pytest.fixture
def kept(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the Spark session, which other tests need."""
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)


def command(output: Path | str, *words: str) -> list[str]:
    return ["spark", str(QUOTAS), "-o", str(output), "--jobs", "2", *words]


def below(folder: Path) -> set[str]:
    """Names of files below a folder; only the suffix of Parquet files."""
    return {
        each.suffix if each.suffix == ".parquet" else str(each.relative_to(folder))
        for each in folder.rglob("*")
        if each.is_file()
    }


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def write(output: Output) -> None:
    """Write rows to each table, as tasks do."""
    for folder in output.folders.values():
        rows = folder.write(iter(TABLE.to_batches()))
        folder.end(Written(**row) for batch in rows for row in batch.to_pylist())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("x"), "tables is a file; tables need a folder"),
        (lambda path: (path / "exchanges").mkdir(parents=True), "exchanges already exists"),
        (
            lambda path: path.mkdir() or (path / "exchanges").write_text("x"),
            "exchanges is a file, but must be a folder",
        ),
    ],
    ids=["a file", "a table", "a file for a table"],
)
def test_the_folder_is_checked_before_spark_starts(
    no_spark: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], make, message: str
) -> None:
    make(tmp_path / "tables")
    assert main(command(tmp_path / "tables")) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_a_folder_that_is_not_writable(
    no_spark: None, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    assert main(command("/proc/tables", "--mode", mode)) == 1
    assert "cannot write /proc/tables" in capsys.readouterr().err


def test_a_job_that_cannot_start_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(command(tmp_path / "tables")) == 1
    assert [*tmp_path.iterdir()] == []


def test_success_is_written_and_tables_are_replaced_completely(
    kept: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "tables"
    words = command(output, "--table", "exchanges", "--table", "problems")
    expected = len(open_capture(QUOTAS).tables(["exchanges"])["exchanges"])
    assert main(words) == 0
    success = {SUCCESS, f"exchanges/{SUCCESS}", f"problems/{SUCCESS}"}
    assert below(output) == success | {".parquet"}
    before = {*output.rglob("*.parquet")}
    assert main(words) == 1
    assert f"{output}/exchanges already exists" in capsys.readouterr().err
    assert main([*words, "--mode", "overwrite"]) == 0
    assert below(output) == success | {".parquet"}
    after = {*output.rglob("*.parquet")}
    assert not before & after
    assert ds.dataset(output / "exchanges", partitioning="hive").count_rows() == expected


def test_if_the_second_table_fails_no_table_appears(
    kept: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = plan.Dissection.write

    def fail(self: plan.Dissection, name: str, folder: Folder) -> object:
        if name == "errors":
            raise DissectorError("the disk is full")
        return real(self, name, folder)

    monkeypatch.setattr(plan.Dissection, "write", fail)
    words = command(tmp_path / "tables", "--table", "exchanges", "--table", "errors")
    assert main(words) == 1
    assert "the disk is full" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


def test_tables_appear_when_all_are_complete(tmp_path: Path) -> None:
    with Output(str(tmp_path), ["exchanges", "errors"]).opened() as output:
        write(output)
        assert all(name.startswith(HIDDEN) for name in names(tmp_path))
        output.commit()
        assert pq.read_table(tmp_path / "exchanges").num_rows == TABLE.num_rows
    assert names(tmp_path) == {"exchanges", "errors", SUCCESS}


def test_an_error_keeps_existing_tables(tmp_path: Path) -> None:
    with Output(str(tmp_path), ["exchanges"]).opened() as output:
        write(output)
        output.commit()
    before = {*tmp_path.rglob("*")}

    def fail() -> None:
        with Output(str(tmp_path), ["exchanges", "errors"], "overwrite").opened() as output:
            write(output)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert {*tmp_path.rglob("*")} == before


def test_a_failed_move_keeps_existing_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Output(str(tmp_path), ["exchanges"]).opened() as output:
        write(output)
        output.commit()
    before = {*tmp_path.rglob("*.parquet")}
    output = Output(str(tmp_path), ["exchanges"], "overwrite")
    move, moves = output._move, []

    def fail_once(path: str, place: str) -> None:
        moves.append(path)
        if len(moves) == 2:  # the old table is moved, the new one is not
            raise OSError(5, "Input/output error")
        move(path, place)

    monkeypatch.setattr(output, "_move", fail_once)

    def replace() -> None:
        with output.opened():
            write(output)
            output.commit()

    with pytest.raises(DissectorError, match=r"cannot write .*: Input/output error"):
        replace()
    assert {*tmp_path.rglob("*.parquet")} == before


def test_an_incomplete_table_is_reported(tmp_path: Path) -> None:
    (tmp_path / "exchanges").mkdir()
    with (
        pytest.raises(DissectorError, match="without _SUCCESS: its job did not finish"),
        Output(str(tmp_path), ["exchanges"]).opened(),
    ):
        pass


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "records" / "old").mkdir(parents=True)
    (tmp_path / "records" / "old" / "thesis.txt").write_text("precious")
    with (
        pytest.raises(DissectorError, match=r"records contains thesis\.txt, which no job wrote"),
        Output(str(tmp_path), ["records"], "overwrite").opened(),
    ):
        pass
    assert (tmp_path / "records" / "old" / "thesis.txt").read_text() == "precious"


def killed(folder: Path, *, in_commit: bool) -> None:
    """Run a process that writes to a folder and is killed before or during the commit."""
    program = f"""
import os, signal
from analysis.spark.output import Output
from tests.analysis.spark.test_spark_output import write
kill = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
with Output({str(folder)!r}, ["exchanges"], "overwrite").opened() as output:
    write(output)
    if {in_commit}:
        moved, move = [], output._move
        output._move = lambda *places: kill() if moved else moved.append(move(*places))
        output.commit()
    kill()
"""
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert result.returncode == -signal.SIGKILL


@pytest.mark.parametrize("in_commit", [False, True], ids=["before", "within"])
def test_leftovers_of_a_killed_job_are_removed_and_tables_restored(
    tmp_path: Path, in_commit: bool
) -> None:
    with Output(str(tmp_path), ["exchanges"]).opened() as output:
        write(output)
        output.commit()
    first = {each.name for each in tmp_path.rglob("*.parquet")}
    killed(tmp_path, in_commit=in_commit)
    assert any(name.startswith(HIDDEN) for name in names(tmp_path))
    assert (tmp_path / "exchanges").exists() != in_commit
    with Output(str(tmp_path), ["errors"]).opened() as output:
        assert {each.name for each in (tmp_path / "exchanges").rglob("*.parquet")} == first
        write(output)
        output.commit()
    assert names(tmp_path) == {"exchanges", "errors", SUCCESS}


def leftover(folder: Path, host: str, process: int) -> Path:
    actual = folder / f"{HIDDEN}0"
    actual.mkdir()
    owner = {"host": host, "process": process, "began": "2026-03-01T12:00:00+00:00"}
    (actual / "_owner.json").write_text(json.dumps(owner))
    return actual


@pytest.fixture
def running() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "60"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_the_folder_of_a_running_job_is_kept(tmp_path: Path, running: int, mode: str) -> None:
    hidden = leftover(tmp_path, socket.gethostname(), running)
    with (
        pytest.raises(DissectorError, match=f"process {running} on this machine has been writing"),
        Output(str(tmp_path), ["errors"], mode).opened(),
    ):
        pass
    assert hidden.exists()


def test_leftovers_of_another_machine_are_reported(tmp_path: Path) -> None:
    hidden = leftover(tmp_path, "elsewhere.example", 1)
    with (
        pytest.raises(
            DissectorError, match=r"elsewhere\.example, started at .* remove .* overwrite"
        ),
        Output(str(tmp_path), ["errors"]).opened(),
    ):
        pass
    assert hidden.exists()
    with Output(str(tmp_path), ["errors"], "overwrite").opened():
        assert not hidden.exists()


def test_the_command_succeeds_after_a_killed_run(kept: None, tmp_path: Path) -> None:
    output = tmp_path / "tables"
    process = subprocess.Popen([*COMMAND, *command(output)], cwd=ROOT, start_new_session=True)
    try:
        end = time.monotonic() + 120
        while not any(path.stat().st_size for path in output.rglob("_owner.json")):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert any(output.rglob("*"))
    assert main(command(output)) == 0
    assert below(output) == {SUCCESS, f"exchanges/{SUCCESS}", ".parquet"}
    assert len([*output.iterdir()]) == 2


def test_files_that_the_driver_does_not_see_are_an_error(tmp_path: Path) -> None:
    def written(name: str) -> tuple[Folder, list[Written]]:
        folder = Folder(str(tmp_path / name)).begin()
        rows = folder.write(iter(TABLE.to_batches()))
        return folder, [Written(**row) for batch in rows for row in batch.to_pylist()]

    folder, files = written("complete")
    stray = tmp_path / "complete" / "part-of-an-attempt-that-failed.parquet"
    stray.write_bytes(b"PAR1")
    folder.end(files)
    (kept,) = (tmp_path / "complete").iterdir()
    assert (kept.name, kept.stat().st_size) == (files[0].file, files[0].bytes)
    assert pq.read_metadata(kept).num_rows == files[0].rows == TABLE.num_rows

    folder, files = written("missing")
    (tmp_path / "missing" / files[0].file).unlink()
    with pytest.raises(DissectorError, match=r"1 of 1 files that tasks wrote to .* are missing"):
        folder.end(files)

    folder, files = written("cut")
    os.truncate(tmp_path / "cut" / files[0].file, files[0].bytes - 1)
    with pytest.raises(DissectorError, match="or incomplete"):
        folder.end(files)


def test_a_task_writes_only_to_the_drivers_folder(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()  # the name exists, but without the driver's marker
    with pytest.raises(DissectorError, match="is not the driver's folder: the driver and all"):
        next(Folder(str(tmp_path / "tables")).write(iter(TABLE.to_batches())))
    assert [*(tmp_path / "tables").iterdir()] == []


def test_a_stream_needs_a_shared_state_folder(tmp_path: Path) -> None:
    options = {"path": str(QUOTAS), "state": str(tmp_path)}
    reader = StreamReader(options, spark_schema("exchanges"), None)
    with pytest.raises(DissectorError, match=r"elsewhere on .* is not the driver's folder"):
        next(reader.read(InputPartition(str(tmp_path / "elsewhere"))))
