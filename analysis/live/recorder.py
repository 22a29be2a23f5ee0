"""The recorder writes packets to pcapng files, which may rotate.

Each file is self-contained: it describes every interface before the interface's first packet. If
the disk is full, the file is cut after its last whole packet, and the session continues without
recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analysis.live.rotation import AppendedFile, Rotation
from dissector.packets.formats.capture_reader import PacketRecords
from dissector.packets.formats.pcapng_writer import (
    interface_block,
    named_interface,
    packet_blocks,
    section_header,
)


class Recorder(AppendedFile):
    """Writes all packets to `path`, or to rotated files with a time and number in their names.

    Raises DissectorError if the first file cannot be created.
    """

    def __init__(self, path: Path, rotation: Rotation, report: Callable[[str], None]) -> None:
        super().__init__(path, rotation, "packet", report)
        self._interfaces: dict[tuple[int, int], int] = {}
        with self.stopped_by_errors():
            self.append(section_header())

    def record(
        self, names: Sequence[str], records: PacketRecords, capture: NDArray[np.int32]
    ) -> None:
        """Write packets; `capture` has the index of each packet's interface in `names`."""
        if self.failure is not None:
            return
        with self.stopped_by_errors():
            if self.rotate():
                self._interfaces.clear()
                self.append(section_header())
            columns = records.columns
            kind = capture.astype(np.int64) << 32 | (columns.link.astype(np.int64) & 0xFFFFFFFF)
            kinds, index = np.unique(kind, return_inverse=True)
            numbers = [
                self._interface(names, key >> 32, key & 0xFFFFFFFF) for key in kinds.tolist()
            ]
            blocks, ends = packet_blocks(records.data, columns, np.array(numbers)[index])
            self.append(blocks, len(ends))

    def _interface(self, names: Sequence[str], capture: int, link: int) -> int:
        number = self._interfaces.get((capture, link))
        if number is None:
            signed = link - (1 << 32) if link >> 31 else link
            self.append(interface_block(named_interface(names[capture], signed)))
            number = self._interfaces[capture, link] = len(self._interfaces)
        return number
