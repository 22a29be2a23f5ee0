"""Packets as they arrive, in small blocks: the `PacketSource` of interfaces and pipes.

Every INTERVAL all new packets are copied into one block, earlier under load. An empty block is
returned every TICK, so that time advances without packets: `until` is the current time, by which
later stages give up pending data. For an interface this is the system time. The packets of a pipe
may come from another machine, or from another year, so its time advances from its latest packet.

Packets of several interfaces are sorted by time, as far as they arrived together, and numbered as
they arrive, over all interfaces, as in a file to which they are written.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Thread
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dissector.packets.af_packet import LivePackets, PacketRing
from dissector.packets.block import PAD, Bytes, PacketBlock
from dissector.packets.formats.capture_reader import (
    NO_PACKETS,
    Memory,
    PacketColumns,
    PacketRecords,
)
from dissector.packets.layers.fragments import Fragments
from dissector.packets.layers.parser import parse_packets
from dissector.packets.paths import open_reader
from dissector.problems import Problem

INTERVAL: Final = 0.1
"""Seconds between blocks."""
TICK: Final = 1.0
"""Seconds after which an empty block is returned."""
LINGER: Final = 0.06
"""Seconds to wait at the end for packets that the kernel still buffers."""
_SLICE = 0.02
"""Seconds between checks for load."""
PIPE_BYTES: Final = 4 << 20
PIPE_BLOCKS: Final = 16
"""Bytes to read from a pipe at once, and maximum number of such blocks in the queue."""

Tap = Callable[[Sequence[str], PacketRecords, NDArray[np.int32]], None]
"""Called with the names of captures, packets, and the capture of each packet, as index of a name.
"""


class LiveSource:
    """The packets of all `feeds`, until they end or `stop` is called.

    `interval`: seconds between blocks. `tap`: called with the packets before headers are read.
    """

    def __init__(
        self,
        feeds: Sequence[PacketRing | Pipe],
        *,
        interval: float = INTERVAL,
        tap: Tap | None = None,
    ) -> None:
        self.names: list[str] = []
        self.total_bytes: int | None = None
        self.secrets: list[bytes] = next((f.secrets for f in feeds if isinstance(f, Pipe)), [])
        """TLS key logs in the packets of a pipe; it grows."""
        self._feeds = list(feeds)
        self._interval = interval
        self.tap = tap
        self._captures: dict[tuple[int, int], int] = {}  # by feed and interface
        self._fragments = Fragments()
        self._memory = Memory()
        self._packets = 0
        self._is_stopped = False
        self._last_block = self._last_watch = time.monotonic()

    def dropped(self) -> dict[str, int]:
        """Number of packets that the kernel dropped, by interface."""
        return {feed.name: feed.dropped for feed in self._feeds if isinstance(feed, PacketRing)}

    def stop(self) -> None:
        """End after the packets that have already arrived. May be called from any thread."""
        self._is_stopped = True

    def close(self) -> None:
        for feed in self._feeds:
            feed.close()

    def read(self, reserve: int) -> PacketBlock | None:
        """The new packets, with `reserve` free bytes before them; None when all inputs ended."""
        while self._feeds:
            self._wait()
            if self._is_stopped:
                time.sleep(LINGER)
            # Checked before taking packets, so that packets before the end are still taken.
            ended = [feed for feed in self._feeds if feed.ended or self._is_stopped]
            block = self._take(reserve)
            for feed in ended:
                feed.close()
                self._feeds.remove(feed)
            now = time.monotonic()
            if block.packets_seen or block.problems or now - self._last_block >= TICK:
                self._last_block = now
                return block
        return None

    def _wait(self) -> None:
        """Wait until it is time for a block."""
        end = time.monotonic() + self._interval
        while not (self._is_stopped or any(f.is_pressing or f.ended for f in self._feeds)):
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _SLICE))

    def _take(self, reserve: int) -> PacketBlock:
        until = min(filter(None, (feed.time() for feed in self._feeds)), default=None)
        taken = [(index, piece) for index, feed in enumerate(self._feeds) for piece in feed.take()]
        pieces = [piece for _, piece in taken]
        data, columns = self._joined(pieces, reserve)
        for feed in self._feeds:
            feed.release()
        problems = [problem for piece in pieces for problem in piece.problems]
        problems += self._watched()
        captures = [self._capture(index, piece) for index, piece in taken]
        capture = np.concatenate([np.zeros(0, np.int32), *captures])
        if len({index for index, _ in taken}) > 1:
            order = np.argsort(columns.time, kind="stable")
            columns = columns[order]
            capture = capture[order]
        number = self._packets + 1 + np.arange(len(columns.time))
        self._packets += len(number)
        read = sum(piece.bytes_read for piece in pieces)
        records = PacketRecords(data, reserve, columns, number, read, problems)
        if self.tap and len(number):
            self.tap(self.names, records, capture)
        block = parse_packets(records, capture, self.names, self._fragments)
        return replace(block, until=until)

    def _joined(self, pieces: Sequence[LivePackets], reserve: int) -> tuple[Bytes, PacketColumns]:
        """The concatenated bytes of all pieces, and their packets."""
        data = self._memory.take(reserve + sum(len(piece.data) for piece in pieces) + PAD)
        data[-PAD:] = 0
        at = reserve
        columns = []
        for piece in pieces:
            data[at : at + len(piece.data)] = piece.data
            columns.append(replace(piece.columns, start=piece.columns.start + at))
            at += len(piece.data)
        return data, PacketColumns.joined(columns or [NO_PACKETS])

    def _watched(self) -> list[Problem]:
        """Problems of the inputs, reported at most once per TICK."""
        now = time.monotonic()
        if now - self._last_watch < TICK and not self._is_stopped:
            return []
        self._last_watch = now
        return [problem for feed in self._feeds for problem in feed.watch()]

    def _capture(self, feed: int, piece: LivePackets) -> NDArray[np.int32]:
        """The capture of each packet of a piece: an interface, or the pipe."""
        interfaces, index = np.unique(piece.interface, return_inverse=True)
        captures = []
        for each in interfaces.tolist():
            known = self._captures.get((feed, each))
            if known is None:
                known = self._captures[feed, each] = len(self.names)
                self.names.append(self._feeds[feed].name_of(each))
            captures.append(known)
        return np.array(captures, np.int32)[index]


class Pipe:
    """The packets of a pipe, a file, or (as ``-``) standard input, as those of a `PacketRing`.

    A thread reads, so that the writer is not blocked while packets are processed. Raises
    CaptureError if the input is not a capture.
    """

    def __init__(self, path: str) -> None:
        self.secrets: list[bytes] = []
        self._path = path
        self._reader = open_reader(path, self.secrets)
        self._queue: queue.Queue[PacketRecords | None] = queue.Queue(PIPE_BLOCKS)
        self._latest: tuple[int, float] | None = None  # time of a packet, when it came
        self.ended = False
        """Whether no packet will arrive after those that are available now."""
        self._is_closed = False
        Thread(target=self._run, daemon=True).start()

    @property
    def is_pressing(self) -> bool:
        return self._queue.qsize() >= PIPE_BLOCKS // 4

    def name_of(self, interface: int) -> str:
        return self._path

    def time(self) -> int | None:
        if self._latest is None:
            return None
        time_, came = self._latest
        return time_ + int((time.monotonic() - came) * 1e9)

    def take(self) -> list[LivePackets]:
        pieces: list[LivePackets] = []
        while not self._queue.empty():
            records = self._queue.get()
            if records is None:
                self.ended = True
                break
            if len(records.number):
                self._latest = int(records.columns.time[-1]), time.monotonic()
            data = records.data[: len(records.data) - PAD]
            interface = np.zeros(len(records.number), np.int32)
            pieces.append(
                LivePackets(
                    data, records.columns, interface, records.bytes_read, tuple(records.problems)
                )
            )
        return pieces

    def release(self) -> None:
        """Do nothing: each piece has its own memory."""

    def watch(self) -> list[Problem]:
        return []

    def close(self) -> None:
        # The thread may be waiting for bytes: it ends with the process.
        self._is_closed = True

    def _run(self) -> None:
        while not self._is_closed and (records := self._reader.read(0, PIPE_BYTES)) is not None:
            self._queue.put(records)
        self._queue.put(None)
