"""The recorder: the packets themselves, in pcapng files that may roll.

Each file stands alone: every interface is described in it before its first packet. Where the disk
is full, the file is cut behind its last whole packet, so that it can be read, and nothing more is
recorded; the session goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from analysis.live.rolling import Files, Rolling
from analysis.terminal import counted
from dissector.errors import CaptureError
from dissector.packets.records import Records
from dissector.packets.writing import SECTION_HEADER, interface_block, packet_blocks


class Recorder:
    """Writes all packets to `path`, or to files of that name with a number.

    Raises CaptureError where the first file cannot be written to.
    """

    tables = frozenset[str]()

    def __init__(self, path: Path, rolling: Rolling, note: Callable[[str], None]) -> None:
        self._path = path
        self._files = Files(path.with_suffix(""), path.suffix, rolling)
        self._rolls = rolling.is_wanted
        self._note = note
        self._interfaces: dict[tuple[int, int], int] = {}
        self.packets = 0
        """Packets that were written."""
        self.failure: str | None = None
        """Why nothing more is written."""
        try:
            self._open()
        except OSError as error:
            raise CaptureError(f"{path}: cannot be written to: {error.strerror}") from error

    def record(self, names: Sequence[str], records: Records, capture: NDArray[np.int32]) -> None:
        """Write packets; `names`: of the interfaces that `capture` counts."""
        if self.failure is not None:
            return
        try:
            if self._rolls and self._files.is_over(self._size):
                self._file.close()
                self._open()
            columns = records.columns
            kind = capture.astype(np.int64) << 32 | (columns.link.astype(np.int64) & 0xFFFFFFFF)
            kinds, index = np.unique(kind, return_inverse=True)
            numbers = [
                self._interface(names, each >> 32, each & 0xFFFFFFFF) for each in kinds.tolist()
            ]
            blocks, ends = packet_blocks(records.data, columns, np.array(numbers)[index])
            self._write(blocks)
            self.packets += len(ends)
        except OSError as error:
            self._give_up(error)

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        """It wants no tables."""

    def tick(self) -> None:
        """Packets are written as they come."""

    def close(self) -> None:
        self._file.close()

    def _open(self) -> None:
        self._current = self._files.next() if self._rolls else self._path
        self._file = FileIO(self._current, "w")
        self._interfaces.clear()
        self._size = 0
        self._write(SECTION_HEADER)

    def _interface(self, names: Sequence[str], capture: int, link: int) -> int:
        number = self._interfaces.get((capture, link))
        if number is None:
            signed = link - (1 << 32) if link >> 31 else link
            self._write(interface_block(names[capture], signed))
            number = self._interfaces[capture, link] = len(self._interfaces)
        return number

    def _write(self, blocks: bytes | bytearray) -> None:
        """Write all of it; a disk that fills up may take a part of it first."""
        view = memoryview(blocks)
        while view:
            view = view[self._file.write(view) or 0 :]
        self._size += len(blocks)

    def _give_up(self, error: OSError) -> None:
        """Cut off what was written in part."""
        self._file.truncate(self._size)
        self._file.close()
        if not self._size:
            self._current.unlink(missing_ok=True)
        self.failure = (
            f"{self._current}: {error.strerror}: after {counted(self.packets, 'packet')}, "
            "which can be read, no more are written"
        )
        self._note(self.failure)
