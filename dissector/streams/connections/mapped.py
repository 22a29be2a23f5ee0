"""Mapped columns: arrays that grow, and whose unused rows take no memory.

A large column has a memory mapping of its own, so that the memory of a chunk of its rows can be
returned to the system.
"""

from __future__ import annotations

import mmap
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

CHUNK: Final = 4096
"""Rows that are packed together. With one byte per row they fill a page."""
MAPPED: Final = 4 * CHUNK
"""Number of rows from which on a column is mapped."""
IS_RELEASABLE: Final = hasattr(mmap, "MADV_DONTNEED") and hasattr(mmap, "MAP_PRIVATE")
"""Whether the system can release a part of a mapping."""

Column = NDArray[Any]


def grown(column: Column, rows: int) -> Column:
    """A longer copy of a column, padded with zeros; chunks of zeros take no memory."""
    shape = (rows, *column.shape[1:])
    if rows < MAPPED or not IS_RELEASABLE:
        longer: Column = np.zeros(shape, column.dtype)
        longer[: len(column)] = column
        return longer
    size = int(np.prod(shape)) * column.itemsize
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    longer = np.frombuffer(memory, column.dtype).reshape(shape)
    for begin in range(0, len(column), CHUNK):
        part = column[begin : begin + CHUNK]
        if part.any():
            longer[begin : begin + len(part)] = part
    return longer


def release(column: Column, begin: int) -> None:
    """Return the memory of a chunk of rows to the system; the rows then read as zero."""
    memory: Any = column.base
    while isinstance(memory, np.ndarray):
        memory = memory.base
    memory = getattr(memory, "obj", None)  # of a memoryview
    size = column[:1].nbytes
    if isinstance(memory, mmap.mmap) and begin * size % mmap.PAGESIZE == 0:
        memory.madvise(mmap.MADV_DONTNEED, begin * size, CHUNK * size)
