"""Ctrl-C before the command has imported its modules."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

INTERRUPTED = """
import signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "analysis":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
import runpy
runpy.run_module("kafka_dissector", run_name="__main__", alter_sys=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process has no exit status of a signal")
def test_an_interrupted_start_prints_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, check=False, timeout=180
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")
