"""The recorder: the packets themselves, in pcapng files that may roll.

Each file stands alone: every interface is described in it before its first packet. Where the disk
is full, the file is cut behind its last whole packet, and the session goes on without recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from analysis.live.rolling import GrowingFile, Rolling
from dissector.packets.records import Records
from dissector.packets.writing import SECTION_HEADER, interface_block, packet_blocks


class Recorder:
    """Writes all packets to `path`, or to files of that name with a time and a number.

    Raises DissectorError where the first file cannot be created.
    """

    tables = frozenset[str]()

    def __init__(self, path: Path, rolling: Rolling, note: Callable[[str], None]) -> None:
        self._file = GrowingFile(path, rolling, "packet", note)
        self._interfaces: dict[tuple[int, int], int] = {}
        try:
            self._file.append(SECTION_HEADER)
        except OSError as error:
            self._file.give_up(error)

    @property
    def failure(self) -> str | None:
        """Why no more packets are written."""
        return self._file.failure

    def record(self, names: Sequence[str], records: Records, capture: NDArray[np.int32]) -> None:
        """Write packets; `names`: of the interfaces that `capture` counts."""
        if self.failure is not None:
            return
        try:
            if self._file.roll():
                self._interfaces.clear()
                self._file.append(SECTION_HEADER)
            columns = records.columns
            kind = capture.astype(np.int64) << 32 | (columns.link.astype(np.int64) & 0xFFFFFFFF)
            kinds, index = np.unique(kind, return_inverse=True)
            numbers = [
                self._interface(names, each >> 32, each & 0xFFFFFFFF) for each in kinds.tolist()
            ]
            blocks, ends = packet_blocks(records.data, columns, np.array(numbers)[index])
            self._file.append(blocks, len(ends))
        except OSError as error:
            self._file.give_up(error)

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        """It wants no tables."""

    def tick(self) -> None:
        """Packets are written as they come."""

    def close(self) -> None:
        self._file.close()

    def _interface(self, names: Sequence[str], capture: int, link: int) -> int:
        number = self._interfaces.get((capture, link))
        if number is None:
            signed = link - (1 << 32) if link >> 31 else link
            self._file.append(interface_block(names[capture], signed))
            number = self._interfaces[capture, link] = len(self._interfaces)
        return number
