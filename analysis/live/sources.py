"""The sources of a live capture, interfaces or a pipe, and the pipeline over them."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from dissector.arrays import value
from dissector.packets.af_packet import PacketRing, filter_program
from dissector.packets.live import LiveSource, Pipe
from dissector.packets.paths import input_name
from dissector.pipeline import Pipeline

FORGET_AFTER: Final = 60 * 10**9
"""ns after which a closed connection is forgotten: longer than any wait for late packets."""


@value
class Origin:
    """Where packets come from, and the filter for them."""

    pipe: str | None
    """A file or ``-``; None for interfaces."""
    interfaces: Sequence[str]
    ports: Collection[int]
    expression: str
    buffer_bytes: int
    """Size of the kernel's buffer per interface."""

    def feeds(self) -> Sequence[PacketRing | Pipe]:
        """Open the sources. Raises what `PacketRing` and `Pipe` raise."""
        if self.pipe is not None:
            return [Pipe(self.pipe)]
        if self.expression:
            filter_program(self.expression)  # an error quotes what the user typed
        return [
            PacketRing(name, expression=self.kernel_filter, buffer_bytes=self.buffer_bytes)
            for name in dict.fromkeys(self.interfaces)
        ]

    @property
    def kernel_filter(self) -> str:
        """The kernel's filter, in libpcap's language."""
        ports = " or ".join(map(_of_port, self.ports))
        return " and ".join(f"({part})" for part in (ports, self.expression) if part)

    @property
    def is_file(self) -> bool:
        """Whether the packets come from a regular file, so that they are not live."""
        if self.pipe is None:
            return False
        try:
            mode = os.fstat(sys.stdin.fileno()) if self.pipe == "-" else Path(self.pipe).stat()
        except (OSError, ValueError):  # `feeds` reports the reason
            return False
        return stat.S_ISREG(mode.st_mode)

    @property
    def name(self) -> str:
        """The name of the source in headings."""
        return ", ".join(self.interfaces) or input_name(self.pipe or "")


def _of_port(port: int) -> str:
    """A filter of the packets of a TCP port, in libpcap's language.

    `tcp port` matches only TCP directly after IP. A segment of BIG TCP in IPv6 has a hop-by-hop
    header of 8 bytes between them, with its size (RFC 2675, section 2).
    """
    is_port = f"ip6[48:2] == {port} or ip6[50:2] == {port}"
    return f"tcp port {port} or (ip6[6] == 0 and ip6[40] == 6 and ip6[41] == 0 and ({is_port}))"


def open_pipeline(
    source: LiveSource, origin: Origin, *, keylog: Path | None, timeout: float
) -> Pipeline:
    """`timeout`: seconds after which a request counts as unanswered."""
    return Pipeline(
        source, ports=origin.ports or None, hold=False,
        request_wait=int(timeout * 10**9), forget_after=FORGET_AFTER, keylog=keylog,
    )  # fmt: skip
