"""Runs the command as a process, in pipes or on a terminal.

Where the start of Python is not what a test is about, the process is a fork of this one: to import
the modules of a command again takes longer than the command.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, NamedTuple, NoReturn

from analysis.cli import main

ROOT = Path(__file__).parents[2]
CAPTURE = str(ROOT / "captures" / "kafka-4-librdkafka.pcap.zst")
PLAIN = str(ROOT / "captures" / "aiokafka-tansu.pcap")
COMMAND = [sys.executable, "-c", "import sys; from analysis.cli import main; sys.exit(main())"]
ENVIRONMENT = dict(os.environ)
"""Without `COLUMNS`, which Python's readline sets behind the back of `os.environ`."""


class Printed(NamedTuple):
    """What a command printed."""

    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


Ran = Callable[..., Printed]
"""The fixture `ran`."""

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
STREAMS: Final = ("stdin", "stdout", "stderr")


def _be_command(arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Be a process of the command, in a fork that has its standard streams, and end.

    Functions of `atexit` do not run: they are those of the tests.
    """
    os.closerange(len(STREAMS), 1 << 10)
    os.environ.update(environment)
    gc.freeze()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python does when it starts
    status = 1
    vars(sys)["kept"] = vars(sys).copy()  # a stream that is freed closes its file
    try:
        is_raw = bool(os.environ.get("PYTHONUNBUFFERED"))
        for number, name in enumerate(STREAMS):
            file = open(number, "wb" if number else "rb", 0 if number and is_raw else -1)  # noqa: SIM115, PTH123
            has_lines = name == "stderr" or os.isatty(number)
            stream = TextIOWrapper(file, "utf-8", line_buffering=has_lines, write_through=is_raw)
            vars(sys).update({name: stream, f"__{name}__": stream})
        sys.argv = ["kafka-dissector", *arguments]
        status = main()
        sys.stdout.flush()
    finally:
        if error := sys.exc_info()[1]:
            traceback.print_exception(error)
            status = 1
        os._exit(status)


def forked(
    *arguments: str, environment: Mapping[str, str] = NOTHING, **given: Any
) -> subprocess.Popen[bytes]:
    """The command in a fork; `given`: arguments of `Popen`."""
    command = partial(_be_command, arguments, environment)
    return subprocess.Popen(["true"], preexec_fn=command, cwd=ROOT, **given)


def run(
    *arguments: str, stdin: bytes | None = None, environment: Mapping[str, str] = NOTHING,
    stdout: int | IO[bytes] = subprocess.PIPE,
) -> subprocess.CompletedProcess[bytes]:  # fmt: skip
    """What the command in a fork does."""
    source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    pipes = {"stdin": source, "stdout": stdout, "stderr": subprocess.PIPE}
    with forked(*arguments, environment=environment, **pipes) as process:
        output, errors = process.communicate(stdin, timeout=180)
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


def fork_on_terminal(
    *arguments: str, width: int, height: int, **environment: str
) -> tuple[int, int]:
    """The process id of the command in a fork, and its terminal."""
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(ROOT)
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        _be_command(arguments, {"TERM": "xterm", **environment})
    return pid, terminal


def on_terminal(
    *arguments: str, width: int = 0, height: int = 0, pager: str | None = None
) -> tuple[int, str]:
    """Run with both outputs on a terminal; return the exit status and the output."""
    environment = NOTHING if pager is None else {"PAGER": pager}
    pid, terminal = fork_on_terminal(*arguments, width=width, height=height, **environment)
    read = b""
    try:
        while piece := os.read(terminal, 1 << 16):
            read += piece
    except OSError:  # how Linux says that the other side has closed
        pass
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), read.decode()
