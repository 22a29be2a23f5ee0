"""Reads a source of packets and produces frames, batch by batch.

A batch contains the frames of one block of packets, or those that become complete at the end of the
capture: first the frames of each decrypted TLS connection, then the others. It also contains the
state of connections at that time, and the problems of the block.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import field
from itertools import islice
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dissector.arrays import mutable
from dissector.errors import DissectorError
from dissector.exchanges.repeated_ids import RESPONSE_WAIT
from dissector.packets.block import LAST_PORT, Int64, PacketBlock, PacketSource
from dissector.problems import LATE_SECRETS, Problem, file_problems
from dissector.protocol import registry
from dissector.protocol.body_end import body_end
from dissector.protocol.evidence import evidence
from dissector.protocol.message import refusal
from dissector.streams import Streams
from dissector.streams.connections.table import OPEN, TLS
from dissector.streams.frames import FrameBlock
from dissector.tls import KeyLog
from dissector.tls.keylog_source import KeyLogSource

MOST_FILE_PROBLEMS: Final = 1000
"""Problems of files that are kept; the table `problems` has all of them."""
Broker: TypeAlias = tuple[int, int, int]
"""Address of a broker: high and low as in `PacketBlock`, and port."""


@mutable
class FrameBatch:
    """The frames of one block of packets."""

    frames: deque[FrameBlock]
    """Removed one by one, so that their memory is free early. All have the same time."""
    now: int
    """ns since 1970: the latest time that was read."""
    ended: NDArray[np.bool_]
    """Whether each connection was closed, and its last packet is `RESPONSE_WAIT` ago. If the FIN of
    an end is missing, that end may still respond (RFC 9293, section 3.6): a broker does not read
    the FIN of a client until it has responded."""
    client_held_since: Int64
    """By connection: when the first byte of its client arrived that is in no frame yet, in ns;
    LAST_TIME if there is none."""
    is_last: bool = False
    problems: list[Problem] = field(default_factory=list)
    """Problems apart from those of `frames`."""
    packets: int = 0
    """Packets of any kind."""
    bytes_read: int = 0


class FrameReader:
    """Reads a source, from packets to frames."""

    def __init__(
        self, source: PacketSource | None, *, ports: Collection[int],
        keylog: str | os.PathLike[str] | None, memory: int, named: Collection[int] = (),
    ) -> None:  # fmt: skip
        """`memory`, `named`: see `Streams`.

        Raises CaptureError if the key log cannot be read, and DissectorError if a port is not a
        TCP port, or if the package `cryptography` is missing.
        """
        if invalid := [port for port in ports if not 0 < port <= LAST_PORT]:
            raise DissectorError(f"{invalid[0]} is not a port: choose from 1 to {LAST_PORT}")
        self.source = source
        self._keys = KeyLog(grows=keylog is not None or getattr(source, "expects_secrets", False))
        self.secrets: list[bytes] = getattr(source, "secrets", [])
        """TLS key logs in the captures that were read so far."""
        self._keylog_source = KeyLogSource(self.secrets, keylog)
        self._has_late_secrets = False
        """Whether there are connections with TLS from before the first secrets."""
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
        self.now = 0
        """ns since 1970: the time at the end of the last block."""
        self.file_problems: list[Problem] = []
        """The first problems of files that were read so far; see `problems.FILE_KINDS`."""
        self.without_tcp: Counter[str] = Counter()
        """The sum of `PacketBlock.without_tcp`."""

    @property
    def captures(self) -> list[str]:
        """Names of the files, by index of the packets' file."""
        return self.source.names if self.source else []

    def learn_brokers(self, brokers: Iterable[Broker]) -> None:
        """Learn the addresses of brokers, for the next batch and later ones."""
        self.streams.brokers.update(brokers)

    def batches(self, *, goes_on: bool = False) -> Iterator[FrameBatch]:
        """All batches of the source, which is closed at the end.

        `goes_on`: the source will have more packets when this is called again, so that no stream
        ends here.
        """
        if self.source is None:
            return
        try:
            while (block := self.source.read(self.streams.reserve)) is not None:
                batch = self.feed(block)
                del block  # so that the memory of its bytes is free for the next one
                yield batch
            if goes_on:
                return
            yield self.finish()
        finally:
            self.source.close()

    def finish(self) -> FrameBatch:
        """The last batch: what becomes complete at the end of the capture."""
        self._read_secrets()
        frames = self._with_decrypted(self.streams.finish())
        problems = self._keylog_source.problems()
        if self._has_late_secrets:
            problems.append(Problem("tls", "tls_unsupported", LATE_SECRETS))
        held_since = self.streams.client_held_since
        return FrameBatch(frames, self.now, self._ended(), held_since, True, problems)

    def feed(self, block: PacketBlock) -> FrameBatch:
        """The batch of a block of packets."""
        self.now = block.latest or self.now
        room = max(MOST_FILE_PROBLEMS - len(self.file_problems), 0)
        self.file_problems += islice(file_problems(block.problems), room)
        self.without_tcp.update(block.without_tcp)
        self._read_secrets()
        frames = self.streams.feed(block)
        table = self.streams.connections
        ended = self._ended() & (table.last_time[: table.count] < self.now - RESPONSE_WAIT)
        ended &= ~self.streams.are_half_closed
        ended[self.streams.held] = False  # the rest of a message may still arrive
        return FrameBatch(
            self._with_decrypted(frames), self.now, ended, self.streams.client_held_since, False,
            block.problems, block.packets_seen, block.bytes_read,
        )  # fmt: skip

    def _read_secrets(self) -> None:
        for text in self._keylog_source.read_new():
            if self.secrets and not self._keys.size:
                table = self.streams.connections
                self._has_late_secrets = bool(np.any(table.protocol[: table.count] == TLS))
            self._keys.add(text)

    def _with_decrypted(self, frames: FrameBlock) -> deque[FrameBlock]:
        decrypted, self.streams.decrypted = self.streams.decrypted, []
        return deque([*decrypted, frames])

    @property
    def open_connections(self) -> int:
        """Number of connections whose end was not seen."""
        return int((~self._ended()[self.streams.connections.in_use]).sum())

    def _ended(self) -> NDArray[np.bool_]:
        table = self.streams.connections
        ended: NDArray[np.bool_] = (table.closed != OPEN) | table.replaced
        return ended[: table.count]
