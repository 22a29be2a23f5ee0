"""Start-up: what a command imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.captures.recorded import CAPTURES
from tests.programs import ROOT, printed

CAPTURE = CAPTURES / "aiokafka-tansu.pcap"
TASKS = Path("/proc/self/task")
MEMORY_POOL = "ARROW_DEFAULT_MEMORY_POOL"


DEFERRED = """
import sys
from analysis.cli import main
sys.argv = ["kafka-dissector", "--version"]
main()
import numpy as np, pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet
assert pa.array(np.arange(3)).to_pylist() == np.unique([2, 0, 1, 1]).tolist() == [0, 1, 2]
unused = {"numpy.ma.core", "numpy._typing._dtype_like", "pandas", "pydoc", "_ssl", "pyarrow._s3fs"}
print(sorted(unused & {*sys.modules}))

masked = np.ma
array = masked.masked_array([1, 2], [False, True])
assert isinstance(array, masked.MaskedArray) and isinstance(array, np.ma.MaskedArray)
assert masked.is_masked(array) and not np.ma.is_masked(np.arange(3))
assert pa.array(array).to_pylist() == [1, None]

import ssl
assert ssl.create_default_context().verify_mode == ssl.CERT_REQUIRED
assert isinstance(ssl.get_default_verify_paths().openssl_cafile, str)

from analysis.startup import allow_pandas
from numpy.typing import ArrayLike
allow_pandas()
import pandas
assert pandas.Series(array).isna().tolist() == [False, True]
"""


@pytest.mark.parametrize(("raised", "reported"), [("KeyboardInterrupt", 0), ("ValueError", 1)])
def test_a_signal_in_a_callback_is_not_reported(raised: str, reported: int) -> None:
    """Python ignores exceptions there, for example at the end of an import."""
    program = f"""
import os, signal
from analysis import startup
startup.prepare()
class Ended:
    def __del__(self):
        if {raised} is ValueError:
            raise ValueError
        os.kill(os.getpid(), signal.SIGTERM)
Ended()
try:
    startup.raise_interruption()
except startup.Terminated as error:
    print(error.number)
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert ended.stderr.count("Exception ignored") == reported
    assert ended.stdout.split() == ["15"] * (not reported)


def test_modules_are_imported_when_they_are_used() -> None:
    assert printed(DEFERRED).splitlines()[1:] == ["[]"]


COMMAND = """
import sys
from pathlib import Path
from analysis.cli import main
sys.argv = ["kafka-dissector", "--version"]
main()
import numpy
threads = Path("/proc/self/task")
print(len([*threads.iterdir()]) if threads.exists() else 1)
import pyarrow
print(pyarrow.default_memory_pool().backend_name)
from numpy._core._multiarray_umath import _get_madvise_hugepage
print(_get_madvise_hugepage())
"""


@pytest.mark.parametrize(
    ("chosen", "expected"), [({}, "system"), ({MEMORY_POOL: "mimalloc"}, "mimalloc")]
)
def test_a_command_configures_libraries(
    monkeypatch: pytest.MonkeyPatch, chosen: dict[str, str], expected: str
) -> None:
    for name in ("NUMPY_MADVISE_HUGEPAGE", "OPENBLAS_NUM_THREADS", MEMORY_POOL):
        monkeypatch.delenv(name, raising=False)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    assert printed(COMMAND).splitlines()[1:] == ["1", expected, "False"]


@pytest.mark.parametrize("command", [["export"], ["sql", "FROM brokers"], ["summary"]])
def test_a_process_ends_without_a_word(command: list[str]) -> None:
    name, *arguments = command
    line = [sys.executable, "-m", "kafka_dissector", name, str(CAPTURE), *arguments]
    assert subprocess.run(line, capture_output=True, text=True, check=True).stderr == ""


@pytest.mark.parametrize(
    "command",
    [["export"], ["export", "--table", "all", "-o", "tables"], ["show", "--limit", "1"],
     ["summary"]],
)  # fmt: skip
def test_a_command_without_a_query_needs_no_duckdb(command: list[str], tmp_path: Path) -> None:
    name, *arguments = (str(tmp_path / each) if each == "tables" else each for each in command)
    line = [name, str(CAPTURE), *arguments]
    program = f"import sys; from analysis.cli import main; main({line!r}); print(*sys.modules)"
    assert {"pyarrow", "duckdb"} & {*printed(program).split()} == {"pyarrow"}


@pytest.mark.skipif(not TASKS.exists(), reason="threads are listed by Linux")
@pytest.mark.parametrize(
    "command", [["export", "--table", "all", "-o"], ["sniff", "--export"], ["summary"]]
)
def test_no_thread_of_arrow_is_left_at_the_end(command: list[str], tmp_path: Path) -> None:
    """A thread that frees an array of NumPy while the interpreter ends aborts the process. Threads
    of Python are joined, and are gone a moment later."""
    name, *arguments = command
    line = [name, str(CAPTURE), *arguments, *[str(tmp_path / "tables")] * bool(arguments)]
    program = f"""import atexit, pathlib, sys, time
def is_left(task):
    try:
        return "jemalloc" not in (task / "comm").read_text()
    except OSError:
        return False
def threads():
    return sum(map(is_left, pathlib.Path({str(TASKS)!r}).iterdir()))
def show():
    for _ in range(100):
        if threads() > 1:
            time.sleep(0.02)
    print("threads:", threads())
atexit.register(show)
sys.argv[1:] = {line!r}
from kafka_dissector.__main__ import main
main()"""
    assert printed(program).splitlines()[-1] == "threads: 1"
