"""`sniff` as a process of its own: a fork, unless another program or function starts it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.analysis.commands import ROOT, forked

SNIFF = [
    sys.executable, "-c",
    "import os, sys; os.umask(0); from kafka_dissector.__main__ import main; sys.exit(main())",
    "sniff",
]  # fmt: skip
"""The command. It makes private files private itself: its umask is 0."""
Sniff = Callable[..., subprocess.CompletedProcess[str]]
"""The fixture `sniff`."""


def limited(size: int) -> list[str]:
    """Words before a command: its files may have so many bytes (RLIMIT_FSIZE), as on a full disk.
    It writes no `.pyc` files, which would be cut and break later imports."""
    return ["env", "PYTHONDONTWRITEBYTECODE=1", "prlimit", f"--fsize={size}"]


def send(process: subprocess.Popen[bytes], data: bytes) -> None:
    """Write to the pipe of a running command."""
    assert process.stdin
    process.stdin.write(data)
    process.stdin.flush()


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until the condition is true. Raises TimeoutError after three minutes."""
    end = time.monotonic() + 180
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)


@contextmanager
def sniffing(
    *arguments: str, before: Sequence[str] = (), **given: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """A running `sniff`; killed at the end, or after 200 seconds: then its output ends."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | given
    if before or "preexec_fn" in given:
        process = subprocess.Popen([*before, *SNIFF, *arguments], cwd=ROOT, **pipes)
    else:
        process = forked("sniff", *arguments, umask=0, **pipes)
    watchdog = threading.Timer(200, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
