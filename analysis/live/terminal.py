"""The terminal: keyboard input for the full-screen interface, and a terminal that was closed."""

from __future__ import annotations

import errno
import os
import sys
import termios
from dataclasses import replace

from analysis.live.sources import Origin
from dissector.errors import DissectorError


def with_keyboard(origin: Origin) -> Origin:
    """Free standard input for the keyboard if packets come from it; returns the new origin.

    Raises DissectorError if there is no terminal.
    """
    if not (sys.stdout.isatty() and sys.stderr.isatty()):  # textual draws on the latter
        raise DissectorError("--view screen needs a terminal")
    if origin.pipe != "-":
        return origin
    packets = os.dup(0)
    try:
        keyboard = os.open("/dev/tty", os.O_RDONLY)
    except OSError as error:
        raise DissectorError("--view screen needs a terminal to read keys from") from error
    os.dup2(keyboard, 0)
    os.close(keyboard)
    return replace(origin, pipe=f"/dev/fd/{packets}")


def replace_closed_terminal() -> None:
    """After SIGHUP: replace each standard stream whose terminal was closed by /dev/null.

    Every write to it would fail, and the full-screen interface would wait for it forever.
    """
    for stream in (0, 1, 2):
        try:
            termios.tcgetattr(stream)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, stream)
                os.close(null)
