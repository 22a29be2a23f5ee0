"""The latest packets of a session, in memory: a `Tap` of `LiveSource`.

The session copies the bytes of each block, and nothing else. They become a file when it is
requested, in the thread that requests it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.live.recorder import Recorder
from analysis.live.rotation import Rotation
from dissector.arrays import value
from dissector.errors import DissectorError
from dissector.packets.formats.capture_reader import PacketRecords

BYTES: Final = 128 << 20
"""Maximum number of bytes of packets that are kept; the oldest are dropped first."""


class _Block(NamedTuple):
    names: Sequence[str]
    records: PacketRecords
    capture: NDArray[np.int32]


@value
class PacketSpan:
    """The packets in a file."""

    packets: int
    first_time: int
    """Time of the first packet, ns."""
    last_time: int
    is_whole: bool
    """No packet of the session was dropped before."""


class KeptPackets:
    """Recording and writing may happen in different threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: deque[_Block] = deque()
        self._bytes = 0
        self._is_whole = True

    def record(
        self, names: Sequence[str], records: PacketRecords, capture: NDArray[np.int32]
    ) -> None:
        """Keep packets; the parameters are those of `Tap`. `records` has at least one."""
        columns = records.columns
        low, high = int(columns.start.min()), int((columns.start + columns.captured).max())
        kept = replace(
            records, data=records.data[low:high].copy(),
            columns=replace(columns, start=columns.start - low),
        )  # fmt: skip
        with self._lock:
            self._blocks.append(_Block([*names], kept, capture))
            self._bytes += high - low
            while self._bytes > BYTES and len(self._blocks) > 1:
                self._bytes -= len(self._blocks.popleft().records.data)
                self._is_whole = False

    def write(self, path: Path) -> PacketSpan:
        """Write the packets to a new file, as pcapng.

        Raises DissectorError if there is no packet, or the file cannot be written.
        """
        with self._lock:
            blocks, is_whole = [*self._blocks], self._is_whole
        if not blocks:
            raise DissectorError("no packet has been captured so far")
        recorder = Recorder(path, Rotation(), lambda message: None)
        for block in blocks:
            recorder.record(*block)
        recorder.close()
        if recorder.failure is not None:
            raise DissectorError(recorder.failure)
        times = [block.records.columns.time for block in blocks]
        return PacketSpan(
            sum(map(len, times)), min(int(each.min()) for each in times),
            max(int(each.max()) for each in times), is_whole,
        )  # fmt: skip
