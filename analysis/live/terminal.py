"""The terminal: for the full screen, also where standard input brings the packets; and gone."""

from __future__ import annotations

import errno
import os
import sys
import termios
from dataclasses import replace

from analysis.live.opening import Origin
from dissector.errors import DissectorError


def beside(origin: Origin) -> Origin:
    """The same origin, with standard input free for the keyboard.

    Raises DissectorError where there is no terminal.
    """
    if not (sys.stdout.isatty() and sys.stderr.isatty()):  # textual draws on the latter
        raise DissectorError("the full screen needs a terminal")
    if origin.pipe != "-":
        return origin
    packets = os.dup(0)
    try:
        keyboard = os.open("/dev/tty", os.O_RDONLY)
    except OSError as error:
        raise DissectorError("the full screen needs a terminal to read keys from") from error
    os.dup2(keyboard, 0)
    os.close(keyboard)
    return replace(origin, pipe=f"/dev/fd/{packets}")


def leave_if_gone() -> None:
    """After SIGHUP: each standard stream whose terminal is gone becomes /dev/null.

    Every write to it would fail, and the full screen would wait for it without end.
    """
    for stream in (0, 1, 2):
        try:
            termios.tcgetattr(stream)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, stream)
                os.close(nothing)
