"""Reads the next block while the current one is processed.

Most of the reading happens without Python's lock: the kernel copies bytes, and compiled loops parse
them. So one more thread speeds up a large capture in one process, with the same blocks, at the cost
of a second block in memory. A pipe is not prefetched, because a waiting read cannot be cancelled.

A block is read with FRONT free bytes at its beginning, since the number that the next stage needs
is known only later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from dissector.packets.block import Bytes, PacketBlock
from dissector.packets.files import FileSource
from dissector.packets.formats.capture_reader import Memory

if TYPE_CHECKING:
    from concurrent.futures import Future

FRONT = 1 << 28
"""Free bytes before a block; most are never used, and take no memory."""
_BLOCKS = 2
_MOST_FILES = 48
"""Maximum files in a block, by their average size, for which a second thread saves time."""


def helps(source: FileSource | None) -> TypeGuard[FileSource]:
    """Whether the source has more than one block, and only files, which are not small: these need
    so many calls of Python that two threads would wait for each other."""
    if source is None or source.total_bytes is None:
        return False
    are_small = source.total_bytes * _MOST_FILES < source.block_bytes * len(source.names)
    return source.total_bytes > source.block_bytes and not are_small


class ReadAhead:
    """A `FileSource` that reads one block ahead."""

    def __init__(self, source: FileSource) -> None:
        # Its import takes longer than that of all other modules.
        from concurrent.futures import ThreadPoolExecutor

        self.names = source.names
        self.total_bytes = source.total_bytes
        self.comments = source.comments
        self.secrets = source.secrets.copy()
        """TLS key logs up to the last block that was returned."""
        source.memory = Memory(_BLOCKS)
        self._source = source
        self._thread = ThreadPoolExecutor(1)
        self._next: Future[tuple[PacketBlock | None, list[bytes]]] | None = None

    def read(self, reserve: int) -> PacketBlock | None:
        coming, self._next = self._next or self._thread.submit(self._read), None
        block, secrets = coming.result()
        del coming  # it refers to the block
        self.secrets += secrets[len(self.secrets) :]
        if block is None:
            return None
        self._next = self._thread.submit(self._read)
        return with_room(block, reserve)

    @property
    def host_names(self) -> list[tuple[str, str]]:
        """Of the files that were read so far: see `FileSource`."""
        return self._source.host_names

    def _read(self) -> tuple[PacketBlock | None, list[bytes]]:
        return self._source.read(FRONT), self._source.secrets.copy()

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._next = None
        self._source.close()


def with_room(block: PacketBlock, reserve: int) -> PacketBlock:
    """The block with `reserve` free bytes at its front."""
    data: Bytes
    if reserve <= block.reserve:
        data = block.data[block.reserve - reserve :]
    else:
        data = np.concatenate([np.empty(reserve, np.uint8), block.data[block.reserve :]])
    payload = block.payload + (reserve - block.reserve)
    return replace(block, data=data, reserve=reserve, payload=payload)
