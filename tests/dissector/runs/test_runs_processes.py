"""Processes end with their work, with each other, and with their parent."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pyarrow.parquet as pq
import pytest

from dissector import Capture, open_capture, runs
from dissector.errors import CaptureError, DissectorError
from dissector.packets import open_packets
from dissector.runs import planning, processes
from tests.captures import recorded
from tests.dissector.runs.cutting import differences, may_mount

RECORDING = recorded.CAPTURES / "librdkafka-mock-produce.pcap"
SOON = 180.0
"""Seconds that a busy machine may take for what takes no time."""


SMALL = f"""
from dissector import runs
from dissector.runs import planning
runs.LEAST_BYTES = 0
planning.LEAST_RUN = planning.MOST_RUN = {RECORDING.stat().st_size // 8}
"""
"""Lets several processes read a small file."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    size = RECORDING.stat().st_size // 8
    monkeypatch.setattr(runs, "LEAST_BYTES", 0)
    monkeypatch.setattr(planning, "LEAST_RUN", size)
    monkeypatch.setattr(planning, "MOST_RUN", size)


def capture(jobs: int = 3) -> Capture:
    return open_capture(RECORDING, jobs=jobs)


def running() -> list[multiprocessing.process.BaseProcess]:
    return multiprocessing.active_children()


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not done() and time.monotonic() < end:
        time.sleep(0.01)
    assert done()


def test_nothing_is_left_at_the_end() -> None:
    assert len(capture().tables(["exchanges"])["exchanges"]) > 10
    assert not running()


def test_a_result_without_a_reader_is_deleted() -> None:
    rows = capture().stream(["exchanges"])
    next(rows)
    assert len(running()) == 3
    rows.close()
    assert not running()


@pytest.mark.parametrize("member", range(3))
def test_a_process_that_is_killed_ends_all(member: int) -> None:
    rows = capture().stream(["exchanges", "records"])
    next(rows)  # others wait for their turn
    pid = sorted(each.pid or 0 for each in running())[member]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(DissectorError, match="by signal 9"):
        list(rows)
    assert not running()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_interrupted_leaves_nothing(number: int) -> None:
    """Like Ctrl-C, which all processes of a terminal get, while no caller reads rows."""
    script = f"""{SMALL}
from kafka_dissector.__main__ import main
raise SystemExit(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, "export", RECORDING, "--jobs", "3"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as command:  # fmt: skip
        assert command.stdout
        assert command.stderr
        assert command.stdout.read(1) == b"{"
        os.killpg(command.pid, number)
        assert b"Traceback" not in command.stderr.read()
        assert command.wait(SOON) != 0
        until(lambda: not is_group(command.pid))


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGHUP, 0), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_a_signal_directly_behind_the_fork(number: int, code: int) -> None:
    """A worker begins with the handlers of its parent, which raise an exception."""
    script = f"""
import os, signal
from dissector.runs.processes import Workers
def interrupt(*_): raise KeyboardInterrupt
signal.signal({number:d}, interrupt)
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), {number:d}))
with Workers() as workers:
    workers.start(lambda: None, "works")
    workers._members[0][0].join({SOON})
    print(workers._members[0][0].exitcode)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=2 * SOON
    )
    assert (done.stdout, done.stderr) == (f"{code}\n", "")


def is_group(group: int) -> bool:
    """Whether there is any process in it."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "reads ended by signal 9 \\(Killed\\)"),
        (lambda: os._exit(3), "reads ended with status 3"),
    ],
)
def test_a_process_that_ends_before_its_time(work: Callable[[], None], message: str) -> None:
    with processes.Workers() as made:
        channel, _ = multiprocessing.Pipe(duplex=False)
        made.start(work, "reads")
        with pytest.raises(DissectorError, match=message):
            made.ready([channel])
    assert not running()


@pytest.mark.parametrize("number", range(1, 5))
def test_an_error_of_work_is_raised(number: int) -> None:
    """Also if the channel of the worker is closed before it has ended."""

    def work(each: int, known: None) -> tuple[int, IO[bytes]]:
        if each == number:
            raise OSError(errno.ENOSPC, "No space left on device")
        return each, tempfile.TemporaryFile()

    with processes.Workers() as made:
        results = made.map(work, range(1, 5), jobs=1, ahead=2, known=lambda: None)
        gc.collect()  # the other ends of the channels
        with pytest.raises(DissectorError, match="No space left on device"):
            list(results)
    assert not running()


def test_an_error_of_a_process_is_raised() -> None:
    def fails() -> None:
        raise CaptureError("the key log is gone")

    def starves() -> None:
        raise MemoryError

    for work, message in ((fails, "the key log is gone"), (starves, "out of memory")):
        with processes.Workers() as made:
            channel, _ = multiprocessing.Pipe(duplex=False)
            made.start(work, "reads")
            with pytest.raises(DissectorError, match=message):
                made.ready([channel])


def test_a_process_that_does_not_listen_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "END_TIMEOUT", 0.1)
    made = processes.Workers()
    made.start(stop, "sleeps")
    pid = running()[0].pid or 0
    until(lambda: state_of(pid) == "T")
    made.close()
    assert not running()


def state_of(pid: int) -> str:
    """State of a process in Linux; empty if the process does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_children_end_with_a_parent_that_is_killed() -> None:
    script = f"""{SMALL}
import sys, multiprocessing
from dissector import open_capture
rows = open_capture({str(RECORDING)!r}, jobs=3).stream(["exchanges"])
next(rows)
print(*(each.pid for each in multiprocessing.active_children()), flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout
        children = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(children) == 3
        parent.kill()
        until(lambda: not any(state_of(child) not in ("", "Z") for child in children))


def test_small_files_and_pipes_are_read_by_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    rows = open_capture(RECORDING, jobs=4).stream(["exchanges"])
    next(rows)
    assert not running()
    limits = 1, 1
    source = open_packets([RECORDING])
    assert runs.plan(source, 4, limits) is None
    source.total_bytes = runs.LEAST_BYTES
    monkeypatch.setattr(planning, "LEAST_RUN", 10_000)
    monkeypatch.setattr(planning, "MOST_RUN", 10_000)
    assert runs.plan(source, 1, limits) is None
    plan = runs.plan(source, 2, limits)
    assert plan is not None
    assert plan.jobs == 2
    source.total_bytes = 35_000_000
    assert runs.plan(source, 2, limits) is None
    source.total_bytes = None  # a pipe's
    assert runs.plan(source, 2, limits) is None


def test_a_full_disk_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(DissectorError, match="No space left on device"):
        capture().tables(["exchanges"])
    assert not running()


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    """The command ends with an error, and leaves nothing. With more space, it has all rows."""
    if not may_mount():
        pytest.skip("needs root, to mount a small file system")
    disk, rows, expected = (tmp_path / name for name in ("disk", "rows", "expected"))
    disk.mkdir()
    script = f"""{SMALL}
import os, subprocess
from analysis.cli import main
def export(output, jobs):
    words = ["export", {str(RECORDING)!r}, "--table", "all", "-o", output, "--jobs", jobs]
    return main(words)
def mount(*options):
    size = ",".join(options)
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", {str(disk)!r}], check=True)
mount("size=64k")
print(export({str(rows)!r}, "3"), os.listdir({str(disk)!r}), flush=True)
mount("remount", "size=64m")
print(export({str(rows)!r}, "3"), export({str(expected)!r}, "1"))
"""
    job = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", script],
        env=os.environ | {"TMPDIR": str(disk)}, capture_output=True, text=True,
    )  # fmt: skip
    assert f"Error: {disk}: No space left on device" in job.stderr
    assert "Traceback" not in job.stderr
    assert job.stdout.splitlines() == ["1 []", "0 0"]
    tables = [
        {path.name: pq.read_table(path) for path in folder.iterdir()} for folder in (expected, rows)
    ]
    assert tables[0].keys() == tables[1].keys()
    assert not differences(*tables)


@pytest.mark.parametrize("size", [0, 70_000])
def test_a_file_that_becomes_shorter_is_reported(tmp_path: Path, size: int) -> None:
    """Some tools that rotate files empty the oldest one, to write it again."""
    path = Path(shutil.copy(RECORDING, tmp_path))
    opened = open_capture(path, jobs=3)
    rows = opened.stream(["exchanges", "problems"])
    os.truncate(path, size)  # the runs are planned, and not yet read
    list(rows)
    details = {each.detail for each in opened.file_problems if each.kind == "damaged_stream"}
    assert details
    assert all(each.startswith("the file was made shorter while it was read: ") for each in details)


def test_a_file_that_is_removed_is_named(tmp_path: Path) -> None:
    """A process that finds no file must not report the folder of its rows."""
    path = str(tmp_path / "removed.pcap")
    run = planning.Run(0, 0, 70_000, ends_file=False)
    with pytest.raises(CaptureError, match=r"removed\.pcap: No such file or directory"):
        run.warm_up(1000, run, [path])


def test_options_that_need_one_process() -> None:
    rows = open_capture(RECORDING, jobs=3, hold=False).stream(["exchanges"])
    next(rows)
    assert not running()


def test_a_daemon_forks_no_processes() -> None:
    with processes.Workers() as made:
        channel, sender = multiprocessing.Pipe(duplex=False)
        made.start(lambda: sender.send_bytes(str(processes.can_fork()).encode()), "asks")
        assert made.ready([channel])[0].recv_bytes() == b"False"
    assert processes.can_fork()
