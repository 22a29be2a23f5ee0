"""The full screen ends with a signal, and when its terminal is closed."""

from __future__ import annotations

import os
import signal
from select import select

import pytest

from tests.analysis.commands import fork_on_terminal

QUOTAS = "captures/kafka-4-quotas.pcap.zst"


def read_until(terminal: int, text: bytes) -> None:
    """Read what the screen shows, until it contains the text."""
    shown = b""
    while text not in shown:
        assert select([terminal], [], [], 180)[0], shown
        shown += os.read(terminal, 1 << 16)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (None, 129)]
)
@pytest.mark.parametrize("is_complete", [True, False])
def test_the_screen_ends(number: int | None, status: int, is_complete: bool) -> None:
    """Without a number, the terminal is closed. The list is complete, or still read."""
    pid, terminal = fork_on_terminal("browse", QUOTAS, width=100, height=30)
    read_until(terminal, b"137 exchanges" if is_complete else b"\x1b[?1049h")
    if number is None:
        os.close(terminal)
    else:
        os.kill(pid, number)
        with pytest.raises(OSError, match="Input/output error"):  # the other side has closed
            read_until(terminal, b"never shown")
        os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == status
