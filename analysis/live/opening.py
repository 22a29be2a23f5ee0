"""Opening what is captured from: interfaces or a pipe, as a capture that goes on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from dissector.capture import DEFAULT_PORTS, Capture
from dissector.packets.feed import Feed
from dissector.packets.live import LiveSource, Pipe
from dissector.packets.ring import Ring

REQUEST_WAIT: Final = 60 * 10**9
"""ns after which a request is unanswered: twice the request.timeout.ms of Kafka's clients."""


def opened(
    pipe: str | None, interfaces: Sequence[str], ports: Collection[int], expression: str
) -> tuple[LiveSource, Capture]:
    """Raises as `Ring` and `Pipe` do."""
    feeds: list[Feed]
    if pipe is not None:
        feeds = [Pipe(pipe)]
    else:
        wanted = kernel_filter(ports, expression)
        feeds = [Ring(name, expression=wanted) for name in dict.fromkeys(interfaces)]
    source = LiveSource(feeds)
    return source, Capture(
        source, ports=ports or DEFAULT_PORTS, hold=False, request_wait=REQUEST_WAIT
    )


def kernel_filter(ports: Collection[int], expression: str) -> str:
    """What the kernel is asked for, in libpcap's language."""
    wanted = " or ".join(f"tcp port {port}" for port in ports)
    return " and ".join(f"({each})" for each in (wanted, expression) if each)
