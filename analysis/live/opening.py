"""Opening what is captured from: interfaces or a pipe, as a capture that goes on."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dissector.packets.feed import Feed
from dissector.packets.live import LiveSource, Pipe
from dissector.packets.ring import Ring
from dissector.pipeline import Pipeline

FORGET_AFTER: Final = 60 * 10**9
"""ns after which a connection that is over is forgotten: longer than anything is waited for."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where packets come from, and which of them."""

    pipe: str | None
    """A file or ``-``; else interfaces."""
    interfaces: Sequence[str]
    ports: Collection[int]
    expression: str
    buffer_bytes: int
    """Of the kernel's buffer, for each interface."""

    def feeds(self) -> list[Feed]:
        """Opened; raises as `Ring` and `Pipe` do."""
        if self.pipe is not None:
            return [Pipe(self.pipe)]
        return [
            Ring(name, expression=self.kernel_filter, buffer_bytes=self.buffer_bytes)
            for name in dict.fromkeys(self.interfaces)
        ]

    @property
    def kernel_filter(self) -> str:
        """What the kernel is asked for, in libpcap's language."""
        wanted = " or ".join(f"tcp port {port}" for port in self.ports)
        return " and ".join(f"({each})" for each in (wanted, self.expression) if each)

    @property
    def is_file(self) -> bool:
        """Whether the packets come from a regular file, which holds what was, not what is."""
        if self.pipe is None:
            return False
        try:
            mode = os.fstat(sys.stdin.fileno()) if self.pipe == "-" else Path(self.pipe).stat()
        except (OSError, ValueError):  # opening it reports why
            return False
        return stat.S_ISREG(mode.st_mode)

    @property
    def name(self) -> str:
        """What it is called in a heading."""
        return ", ".join(self.interfaces) or (
            "standard input" if self.pipe == "-" else self.pipe or ""
        )


def capture_of(
    source: LiveSource, origin: Origin, *, keylog: Path | None, patience: float
) -> Pipeline:
    """`patience`: seconds after which a request counts as unanswered."""
    return Pipeline(
        source, ports=origin.ports or None, hold=False,
        request_wait=int(patience * 10**9), forget_after=FORGET_AFTER, keylog=keylog,
    )  # fmt: skip
