"""Reading: from a source of packets to frames, a stretch at a time.

A stretch is what one block of packets brings to the conversation, or the end of the capture: the
frames of each TLS connection's records, in as many parts as it takes, and last those that were not
encrypted. With them go what is known of connections by then, and what could not be read.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import PacketBlock, PacketSource
from dissector.problems import Problem
from dissector.protocol import registry
from dissector.protocol.evidence import evidence
from dissector.protocol.message import body_end, refusal
from dissector.streams import Streams
from dissector.streams.frames import FrameBlock
from dissector.streams.table import OPEN
from dissector.tls import KeyLog
from dissector.tls.keylog_source import KeyFiles

Broker: TypeAlias = tuple[int, int, int]
"""Where one listens: high and low as in `PacketBlock`, and port."""

AHEAD: Final = 3
"""Stretches that reading may be ahead of what is done with them, where several processes share the
work. What one stretch tells of brokers serves that many later, with one process too: so the rows
are the same."""


@dataclass(slots=True)
class Stretch:
    """What was read in one go."""

    frames: deque[FrameBlock]
    """To be taken out one by one, so that nothing keeps their bytes; of all but the last one, more
    frames of the same time follow."""
    now: int
    """ns since 1970: the latest time that was read."""
    ended: NDArray[np.bool_]
    """Whether each connection has seen its end."""
    is_last: bool = False
    problems: list[Problem] = field(default_factory=list)
    """But for those of `frames`."""
    packets: int = 0
    """Packets of any kind."""
    bytes_read: int = 0


class Reading:
    """Reads a source, from packets to frames."""

    def __init__(
        self, source: PacketSource | None, *, ports: Collection[int],
        keylog: str | os.PathLike[str] | None, memory: int, named: Collection[int] = (),
    ) -> None:  # fmt: skip
        """`memory`, `named`: see `Streams`. Raises CaptureError where the key log cannot be read,
        and DissectorError where there is one, but not the package `cryptography`."""
        self.source = source
        self._keys = KeyLog(grows=keylog is not None)
        self._key_files = KeyFiles(getattr(source, "secrets", []), keylog)
        self.streams = Streams(
            ports=ports,
            newest={key: registry.versions(key)[-1] for key in registry.apis()},
            evidence=evidence,
            body_end=body_end,
            memory=memory,
            keys=self._keys,
            named=named,
            refusal=refusal,
        )
        self._told: deque[Iterable[Broker]] = deque()
        self._now = 0

    @property
    def captures(self) -> list[str]:
        """Names of the files; an index into it tells where a packet was."""
        return self.source.names if self.source else []

    def tell(self, brokers: Iterable[Broker]) -> None:
        """The brokers that a stretch named, `AHEAD` stretches before they count."""
        self._told.append(brokers)
        if len(self._told) >= AHEAD:
            self.learn(self._told.popleft())

    def learn(self, brokers: Iterable[Broker]) -> None:
        """Addresses where brokers listen, from the next stretch on."""
        for broker in brokers:
            self.streams.learn_broker(*broker)

    def stretches(self, *, goes_on: bool = False) -> Iterator[Stretch]:
        """All of the source, which is closed at the end.

        `goes_on`: it will have more when this is called again, so that nothing ends here.
        """
        if self.source is None:
            return
        try:
            while (block := self.source.read(self.streams.reserve)) is not None:
                stretch = self._stretch(block)
                del block  # so that the memory of its bytes serves the next one
                yield stretch
            if goes_on:
                return
            frames = self.streams.finish()
            problems = self._key_files.problems()
            yield Stretch(self._parts(frames), self._now, self._ended(), True, problems)
        finally:
            self.source.close()

    def _stretch(self, block: PacketBlock) -> Stretch:
        self._now = max(self._now, block.latest or self._now)
        for text in self._key_files.new():
            self._keys.add(text)
        frames = self.streams.feed(block)
        ended = self._ended()
        ended[self.streams.held] = False  # a message of which a part is held may yet come
        return Stretch(
            self._parts(frames), self._now, ended, False, block.problems,
            block.packets_seen, block.bytes_read,
        )  # fmt: skip

    def _parts(self, frames: FrameBlock) -> deque[FrameBlock]:
        decrypted, self.streams.decrypted = self.streams.decrypted, []
        return deque([*decrypted, frames])

    @property
    def open_connections(self) -> int:
        """Connections that were seen, and not their end."""
        return int((~self._ended()[self.streams.connections.in_use]).sum())

    def _ended(self) -> NDArray[np.bool_]:
        table = self.streams.connections
        ended: NDArray[np.bool_] = (table.closed != OPEN) | table.replaced
        return ended[: table.count]
