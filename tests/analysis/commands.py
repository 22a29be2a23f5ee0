"""Runs the command as a process, in pipes or on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

ROOT = Path(__file__).parents[2]
CAPTURE = str(ROOT / "captures" / "kafka-4-librdkafka.pcap.zst")
PLAIN = str(ROOT / "captures" / "aiokafka-tansu.pcap")
COMMAND = [sys.executable, "-c", "import sys; from analysis.cli import main; sys.exit(main())"]
ENVIRONMENT = dict(os.environ)
"""Without `COLUMNS`, which Python's readline sets behind the back of `os.environ`."""


def run(*arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments], input=stdin, capture_output=True, check=False, timeout=180,
        cwd=ROOT, env=ENVIRONMENT,
    )  # fmt: skip


def on_terminal(
    *arguments: str, width: int = 0, height: int = 0, pager: str | None = None
) -> tuple[int, str]:
    """Run with both outputs on a terminal; return the exit status and the output."""
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(ROOT)
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        if pager is not None:
            os.environ["PAGER"] = pager
        os.environ["TERM"] = "xterm"
        os.execve(COMMAND[0], [*COMMAND, *arguments], os.environ)
    read = b""
    try:
        while piece := os.read(terminal, 1 << 16):
            read += piece
    except OSError:  # how Linux says that the other side has closed
        pass
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), read.decode()
