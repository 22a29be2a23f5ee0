"""The output folder: checked before Spark starts, complete run by run, continued after a kill."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from analysis.cli import main
from analysis.input.exported import ExportedTables
from analysis.spark import job, session, writing
from analysis.spark.dissection import Part, Task, packed, result_of
from analysis.spark.manifests import OWNER, RUNS, JobFolder, Manifest
from analysis.spark.options import Request
from analysis.spark.output import JOB, SUCCESS, Output
from analysis.spark.schemas import arrow_schema, to_spark
from analysis.spark.writing import PARTIAL, RunFiles
from bench.cluster import ENVIRONMENT
from dissector.capture import open_capture
from dissector.errors import DissectorError
from dissector.runs import Plan, planning
from dissector.tables import EXCHANGES, Table
from dissector.tables.schema import PARTITIONS
from tests.analysis.commands import Ran
from tests.analysis.spark.interrupted_job import TABLES
from tests.analysis.spark.sharding import (
    QUOTAS,
    assert_same_rows,
    split_capture,
    write_with_one_process,
    write_with_spark,
)
from tests.dissector.runs.cutting import may_mount

RUN_BYTES = 22_739
"""A run for each file that `split_capture` makes of `QUOTAS`, by time."""
REQUEST = Request([str(QUOTAS)], ("exchanges", "errors"))


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if Spark starts."""

    def start(*given: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "session", start)


def command(output: Path | str, *words: str) -> list[str]:
    return ["spark", str(QUOTAS), "-o", str(output), "--jobs", "2", *words]


def files_of(folder: Path) -> dict[Path, int]:
    """The Parquet files below a folder, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.parquet")}


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
    no_spark: None, tmp_path: Path, ran: Ran, make, message: str
) -> None:
    make(tmp_path / "tables")
    assert message in ran(*command(tmp_path / "tables"), status=1).err


@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_a_folder_that_is_not_writable(no_spark: None, ran: Ran, mode: str) -> None:
    err = ran(*command("/proc/tables", "--mode", mode), status=1).err
    assert "cannot write /proc/tables" in err


def test_a_job_that_cannot_start_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(command(tmp_path / "tables")) == 1
    assert [*tmp_path.iterdir()] == []


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "errors" / "old").mkdir(parents=True)
    (tmp_path / "errors" / "old" / "thesis.txt").write_text("precious")
    with (
        pytest.raises(DissectorError, match=r"errors contains thesis\.txt, which no job wrote"),
        Output(str(tmp_path), REQUEST, "overwrite").opened(),
    ):
        pass
    assert (tmp_path / "errors" / "old" / "thesis.txt").read_text() == "precious"


def test_a_foreign_parquet_file_is_not_replaced(tmp_path: Path) -> None:
    """In a folder of another job, and in that of the same job."""
    mine = tmp_path / "errors" / "date=2026-11-21" / "report.parquet"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"precious")
    output = Output(str(tmp_path), REQUEST, "overwrite")
    foreign = r"contains report\.parquet, which no job wrote"
    with pytest.raises(DissectorError, match=foreign), output.opened():
        pass
    own = Output(str(tmp_path), REQUEST)
    own.settings(1)
    with pytest.raises(DissectorError, match=foreign), own.opened():
        pass
    assert mine.read_bytes() == b"precious"


def test_a_replaced_job_does_not_take_the_tables_back(tmp_path: Path) -> None:
    first, second = (
        Output(str(tmp_path), Request([str(QUOTAS)], tables, apis=apis), mode)
        for tables, apis, mode in [
            (("exchanges", "errors"), ("Metadata",), "error"),
            (("exchanges",), (), "overwrite"),
        ]
    )
    for output in (first, second):
        with output.opened():
            output.settings(1)
            output.prune({})
            output.job.write("run-000000-0123456789abcdef.json", Manifest((), {}).encoded())
            (tmp_path / "exchanges").mkdir(exist_ok=True)
    replaced = "exchanges already exists, and has other options"
    with pytest.raises(DissectorError, match=replaced), first.opened():
        pass
    with second.opened():
        pass


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b"\xff", b'{"inputs": [], "files": [], "waiting": []}'],
)
def test_a_damaged_manifest_is_an_error(tmp_path: Path, content: bytes) -> None:
    """The captures of its run are unknown, and may be missing."""
    output = Output(str(tmp_path), REQUEST)
    output.job.write("run-000000-0123456789abcdef.json", content)
    with pytest.raises(DissectorError, match=r"/run-000000-0123456789abcdef\.json is damaged"):
        output.complete([], set())


def test_damaged_settings_are_an_error(tmp_path: Path) -> None:
    """Without the key of hashes, states of runs cannot be compared: `overwrite` removes them."""
    output = Output(str(tmp_path), REQUEST)
    output.job.write(JOB, b"")
    output.job.write("run-000000-0123456789abcdef.result", b"")
    with pytest.raises(DissectorError, match=r"/job\.json is damaged: use --mode overwrite"):
        output.settings(1)
    (tmp_path / RUNS / output.job.digest / JOB).unlink()
    with Output(str(tmp_path), REQUEST, "overwrite").opened() as replaced:
        assert replaced.job.names() == {OWNER}


def test_the_name_of_the_folder_may_be_a_pattern(tmp_path: Path) -> None:
    """fsspec expands patterns in `glob` and `cat`."""
    output = Output(str(tmp_path / "out [1]"), REQUEST)
    run = "run-000000-0123456789abcdef"
    with output.opened():
        output.settings(1)
        output.job.write(f"{run}.json", Manifest((), {}).encoded())
        output.job.write(f"{run}.0.rows", b"")
        assert {*output.complete([run], set())} == {run}
        output.job.remove_unfinished(run)
        assert output.job.names() == {JOB, OWNER, f"{run}.json"}
    owner = json.loads(output.job.owner) | {"process": os.getppid()}
    output.job.write(OWNER, json.dumps(owner).encode())
    running = f"process {os.getppid()} on this machine"
    with pytest.raises(DissectorError, match=running), output.opened():
        pass
    other = Output(output.path, Request([str(QUOTAS)], ("errors",)))
    other.prune({})
    assert output.job.names() == set()


def test_a_damaged_result_is_an_error(tmp_path: Path) -> None:
    output = Output(str(tmp_path), REQUEST)
    task = Task(REQUEST, Plan([], 0, 1, 1, (1, 1)), [Part("run-000000-0")], output.job)
    for content in (b"", packed(("file", 0)).to_pybytes()[:-9]):
        output.job.write("run-000000-0.result", content)
        with pytest.raises(DissectorError, match=r"run-000000-0\.result is damaged: remove it"):
            result_of(task, 0)


def test_the_folder_of_a_running_job_is_kept(tmp_path: Path) -> None:
    output = Output(str(tmp_path), REQUEST)
    owner = json.loads(output.job.owner) | {"process": os.getppid()}
    output.job.write(OWNER, json.dumps(owner).encode())
    running = f"process {os.getppid()} on this machine has been writing"
    with pytest.raises(DissectorError, match=running), output.opened():
        pass
    output.job.write(OWNER, json.dumps(owner | {"host": "elsewhere.example"}).encode())
    with output.opened():
        assert output.job.read(OWNER) == output.job.owner


def test_a_job_on_another_machine_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Output(str(tmp_path), REQUEST)
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere.example")
    second = Output(str(tmp_path), REQUEST)
    with second.opened():
        with first.opened():
            second.job.write(OWNER, second.job.owner)
            with pytest.raises(DissectorError, match=r"on elsewhere\.example has been"):
                first.job.check()
        second.job.check()  # the first job has ended


def test_a_file_appears_when_the_run_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For Spark, pyarrow, DuckDB and the commands of this package."""
    (rows,) = open_capture(QUOTAS).tables(["exchanges"])["exchanges"].to_batches()
    pattern = f"{tmp_path}/**/*.parquet"
    monkeypatch.setattr(writing, "_GROUP_ROWS", 1)
    with RunFiles(str(tmp_path), "run-0") as files:
        for _ in range(2):
            files.write("exchanges", to_spark("exchanges", rows))
        written = files.finish()
        (partial,) = (path for path in tmp_path.rglob("*") if path.is_file())
        assert partial.name.startswith(".")
        assert partial.name.endswith(PARTIAL)
        assert ds.dataset(tmp_path / "exchanges").count_rows() == 0
        assert duckdb.sql(f"from glob('{pattern}')").fetchall() == []
    (file,) = written["exchanges"]
    assert file.rows == 2 * len(rows) == ds.dataset(tmp_path / "exchanges").count_rows()
    assert file.bytes == (tmp_path / file.file).stat().st_size
    assert duckdb.read_parquet(pattern).count("*").fetchall() == [(file.rows,)]


@pytest.mark.parametrize(("table", "time"), [(EXCHANGES, "request_time"), (PARTITIONS, "time")])
def test_a_row_has_the_date_of_its_request(tmp_path: Path, table: Table, time: str) -> None:
    """Without the request, that of its response."""
    midnight = 1_700_006_400 * 10**9
    given = [{time: midnight - 1, "response_time": midnight}, {"response_time": midnight}]
    rows = pa.RecordBatch.from_pylist(given, table.schema)
    with RunFiles(str(tmp_path), "run-0") as files:
        files.write(table.name, to_spark(table.name, rows))
        written = [each.file for each in files.finish()[table.name]]
    assert written == [f"{table.name}/date=2023-11-{day}/run-0.parquet" for day in (14, 15)]


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    (rows,) = open_capture(QUOTAS).tables(["exchanges"])["exchanges"].to_batches()

    def write() -> None:
        with RunFiles(str(tmp_path), "run-0") as files:
            files.write("exchanges", to_spark("exchanges", rows))
            files.finish()
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write()
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def interrupted(output: Path, *words: str) -> list[str]:
    """The words that run `interrupted_job`."""
    module = "tests.analysis.spark.interrupted_job"
    return [sys.executable, "-m", module, str(output), str(RUN_BYTES), *words]


class Jobs:
    """Jobs on files that arrive one by one, and what each of them does."""

    def __init__(self, spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._spark = spark
        self._folder = folder
        self._monkeypatch = monkeypatch
        self._for_each = job._for_each
        self.output = folder / "tables"
        self.done: list[tuple[str, int]] = []
        monkeypatch.setattr(job, "_for_each", self._counted)
        monkeypatch.setattr(planning, "LEAST_RUN", 1)

    def _counted(
        self, spark: SparkSession, task: Task, work: str, numbers: Sequence[int], *given: object
    ) -> None:
        for number in numbers:
            self.before(work, number)
            self._for_each(spark, task, work, [number], *given)
            self.done.append((work, number))

    def before(self, work: str, number: int) -> None:
        """Is called before each task."""

    def run(self, paths: Iterable[str], *, killed_before: tuple[str, int] | None = None) -> None:
        """Run a job; compare its rows with one process. Or kill it before a task, by SIGKILL."""
        self.done.clear()
        request = Request([*paths], TABLES, run_bytes=RUN_BYTES)
        if killed_before:
            work, number = killed_before
            line = interrupted(self.output, "kill", work, str(number), *request.paths)
            killed = subprocess.run(line, env=ENVIRONMENT, start_new_session=True, check=False)
            assert killed.returncode == -signal.SIGKILL
            return
        write_with_spark(self._spark, request, self.output)
        assert (self.output / SUCCESS).exists()
        expected = self._folder / f"one-{len(request.paths)}"
        write_with_one_process(request.paths, TABLES, expected)
        for name in TABLES:
            assert_same_rows(self.output / name, expected / name)


@pytest.fixture
def jobs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    return Jobs(spark, tmp_path, monkeypatch)


def test_complete_runs_are_not_repeated(jobs: Jobs, tmp_path: Path) -> None:
    paths = split_capture(QUOTAS, tmp_path, 4)
    jobs.run(paths[:3])
    assert jobs.done == [(work, run) for work in ("dissect", "finalize") for run in range(3)]
    first = files_of(jobs.output)
    jobs.run(paths[:3])
    assert jobs.done == []
    assert files_of(jobs.output) == first
    jobs.run(paths)  # the last run may have gone on
    assert jobs.done == [(work, run) for work in ("dissect", "finalize") for run in (2, 3)]
    second = files_of(jobs.output)
    kept = {path for path in first if path.name.startswith(("run-000000", "run-000001"))}
    assert kept
    assert kept == {path for path in second if path in first}
    assert all(second[path] == first[path] for path in kept)

    os.utime(paths[3], ns=(0, 0))  # as if it had been written again
    jobs.run(paths)
    assert jobs.done == [("dissect", 3), ("finalize", 3)]
    next(path for path in second if path in kept).unlink()
    jobs.run(paths)
    assert len(jobs.done) == 2
    with pytest.raises(DissectorError, match=r"has rows of .*\.4\.0, which is not among the capt"):
        jobs.run(paths[1:])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("task", [("dissect", 2), ("finalize", 1)])
def test_a_killed_job_is_continued(jobs: Jobs, tmp_path: Path, task: tuple[str, int]) -> None:
    paths = split_capture(QUOTAS, tmp_path, 4)[:3]
    jobs.run(paths, killed_before=task)
    (before,) = {*jobs.output.glob(f"{RUNS}/*")}
    assert (before / OWNER).exists()
    remaining = jobs.output / "exchanges" / "date=2026-11-21" / f".run.parquet.0{PARTIAL}"
    remaining.parent.mkdir(parents=True, exist_ok=True)
    remaining.write_bytes(b"PAR1")
    jobs.run(paths)
    assert jobs.done[0] == task
    assert len(jobs.done) == (4 if task[0] == "dissect" else 2)
    assert not remaining.exists()
    suffixes = {path.name.rpartition(".")[2] for path in before.iterdir()}
    assert suffixes == {"json", "result", "topics"}


def test_a_full_disk(java: None, tmp_path: Path) -> None:
    """The job ends with an error. With more space, it goes on with the parts that are missing."""
    if not may_mount():
        pytest.skip("needs root, to mount a small file system")
    paths = split_capture(QUOTAS, tmp_path, 4)[:3]
    output = tmp_path / "tables"
    output.mkdir()
    line = ["unshare", "--mount", *interrupted(output, "full", "140k", "64m", *paths)]
    job = subprocess.run(line, env=ENVIRONMENT, check=True, capture_output=True, text=True)
    error, *repeated, last = job.stdout.splitlines()
    assert "No space left on device" in error
    assert str(output) in error
    assert 0 < len(repeated) < 6
    assert last == "same rows"
    assert "\tat org.apache.spark" not in job.stderr


def test_readers_see_whole_runs(jobs: Jobs, tmp_path: Path) -> None:
    """During a job, each table has the rows of runs that are complete."""
    paths = split_capture(QUOTAS, tmp_path, 4)[:3]
    seen: list[int] = []

    def look(work: str, number: int) -> None:
        (folder,) = jobs.output.glob(f"{RUNS}/*")
        complete = [
            Manifest.decoded(path.read_bytes())
            for path in folder.glob("*.json")
            if path.name not in (JOB, OWNER)
        ]
        rows = {
            name: sum(f.rows for m in complete for f in m.files.get(name, ())) for name in TABLES
        }
        for name, count in rows.items():
            if (jobs.output / name).exists():
                assert ds.dataset(jobs.output / name).count_rows() == count
        seen.append(rows["exchanges"])

    jobs.before = look
    jobs.run(paths)
    assert seen[:4] == [0, 0, 0, 0]
    assert 0 < seen[4] < seen[5]
    assert len(ExportedTables([jobs.output]).tables(["exchanges"])["exchanges"]) > seen[5]


@pytest.mark.parametrize("kinds", [(), ("unreadable_file",), ("lost_bytes", "unreadable_file")])
def test_a_table_without_some_dates_can_be_read(
    spark: SparkSession, tmp_path: Path, kinds: Sequence[str]
) -> None:
    """It has no rows, only rows without a time, or also rows with a time."""
    paths = [str(QUOTAS)]
    if "lost_bytes" in kinds:
        paths = split_capture(QUOTAS, tmp_path, 3)
        del paths[1]
    if "unreadable_file" in kinds:
        paths.append(str(tmp_path / "damaged.pcap"))
        (tmp_path / "damaged.pcap").write_bytes(b"x" * 99)
    write_with_spark(spark, Request(paths, ("problems",)), tmp_path)
    folder = str(tmp_path / "problems")
    by_reader = [
        pq.read_table(folder),
        spark.read.parquet(folder).toArrow(),
        duckdb.read_parquet(f"{folder}/**/*.parquet", hive_partitioning=True).to_arrow_table(),
    ]
    for rows in by_reader:
        assert {*kinds} <= {*rows["kind"].to_pylist()}
        assert len(rows) == len(by_reader[1])
        assert rows.column_names == [*arrow_schema("problems").names, "date"]
    assert by_reader[1].schema.field("date").type == pa.date32()
    before = files_of(tmp_path)
    write_with_spark(spark, Request(paths, ("problems",)), tmp_path)
    assert files_of(tmp_path) == before


def test_overwrite_and_a_job_with_other_options(kept_spark: SparkSession, tmp_path: Path) -> None:
    words = command(tmp_path, "--api", "Metadata")
    assert main(words) == 0
    first = files_of(tmp_path)
    assert main(words) == 0
    assert files_of(tmp_path) == first
    assert main([*words, "--mode", "overwrite"]) == 0
    second = files_of(tmp_path)
    assert first.keys() == second.keys()
    assert first != second
    assert main(command(tmp_path, "--mode", "overwrite")) == 0
    expected = len(open_capture(QUOTAS).tables(["exchanges"])["exchanges"])
    assert ds.dataset(tmp_path / "exchanges").count_rows() == expected


def test_files_that_the_driver_does_not_see_are_an_error(tmp_path: Path) -> None:
    output = Output(str(tmp_path), REQUEST)
    with pytest.raises(DissectorError, match=r"1 of 1 parts that tasks wrote to .* are missing"):
        output.finish(["run-000000-0"], set(), arrow_schema)


def test_a_task_writes_only_to_the_drivers_folder(tmp_path: Path) -> None:
    folder = JobFolder(str(tmp_path), "0", b"1")
    mismatch = f"on {socket.gethostname()} is not the driver's folder: the driver and all"
    with pytest.raises(DissectorError, match=mismatch):
        folder.check()
    folder.write(OWNER, b"1")
    folder.check()
