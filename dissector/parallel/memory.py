"""Shared memory of several processes, and messages with arrays in it.

A region is anonymous memory that is mapped before processes are forked, so it has the same address
in all of them. A message is a pickle (protocol 5, PEP 574) sent through a pipe. The buffers of its
arrays and record batches are not sent: they are copied to the free end of the region, unless they
are in the region already. The unpacked arrays are views of the same memory. Buffers that do not fit
into the region are sent through the pipe.

The processes coordinate which of them may write to a region, and when its content is obsolete.
"""

from __future__ import annotations

import io
import mmap
import pickle
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.packets.block import Bytes
from dissector.packets.capture_reader import Memory
from dissector.streams.byteview import ScatteredBytes

ALIGNMENT: Final = 64
"""Bytes; the alignment that Arrow recommends."""
SMALL: Final = 1 << 10
"""Buffers with fewer bytes are sent through the pipe."""


def mapped(size: int) -> Bytes:
    """New memory that child processes share; unused pages take no memory. Raises OSError."""
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


class Region:
    """A part of the shared memory that takes messages."""

    def __init__(self, memory: Bytes, begin: int = 0) -> None:
        """`begin`: offset of the first byte for messages."""
        self.memory = memory
        self._base = _address(memory)
        self._begin = self.end = begin

    def clear(self, end: int | None = None) -> None:
        """Free the bytes from `end` on; by default, all bytes."""
        self.end = self._begin if end is None else end

    def where(self, buffer: Bytes) -> int | None:
        """Offset in the region; None if the bytes are not in it."""
        offset = _address(buffer) - self._base
        return offset if 0 <= offset <= len(self.memory) - len(buffer) else None

    def room(self, size: int) -> Bytes | None:
        """`size` bytes at the free end; None if there are fewer."""
        begin = -(-self.end // ALIGNMENT) * ALIGNMENT
        if begin + size > len(self.memory):
            return None
        self.end = begin + size
        return self.memory[begin : self.end]

    def put(self, buffer: pickle.PickleBuffer) -> tuple[int, int] | None:
        """Put bytes into the region. Returns offset and size; None if they do not fit."""
        plain: Bytes = np.frombuffer(buffer.raw(), np.uint8)
        offset = self.where(plain)
        if offset is None:
            room = self.room(len(plain)) if len(plain) >= SMALL else None
            if room is None:
                return None
            room[:] = plain
            offset = self.end - len(plain)
        return offset, len(plain)

    def pack(self, value: object) -> bytes:
        """A message that contains `value`, with its arrays in the region as far as they fit."""
        places: list[tuple[int, int]] = []

        def put(buffer: pickle.PickleBuffer) -> bool:
            place = self.put(buffer)
            if place is not None:
                places.append(place)
            return place is None

        sink = io.BytesIO()
        _Pickler(sink, put, self).dump(value)
        return pickle.dumps((sink.getvalue(), places))

    def unpack(self, message: bytes, *, copy: bool = False) -> Any:
        """The value passed to `pack`; its arrays are views of the region, or of a copy."""
        body, places = pickle.loads(message)
        buffers = [self.memory[offset : offset + size] for offset, size in places]
        if copy:
            buffers = [buffer.copy() for buffer in buffers]
        self.end = max([self._begin, *(offset + size for offset, size in places)])
        return pickle.loads(body, buffers=buffers)


class _Pickler(pickle.Pickler):
    """Pickles record batches and byte views by their buffers."""

    def __init__(
        self, sink: io.BytesIO, put: Callable[[pickle.PickleBuffer], bool], region: Region
    ) -> None:
        super().__init__(sink, protocol=5, buffer_callback=put)
        self._region = region

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, ScatteredBytes):
            return ScatteredBytes, (value.data, value.address, value.position, value.length)
        if isinstance(value, pa.RecordBatch):
            return _read_batch, (pickle.PickleBuffer(self._written(value)),)
        return NotImplemented

    def _written(self, batch: pa.RecordBatch) -> Any:
        """The batch as an Arrow stream, in the region if there is room."""
        counter = pa.MockOutputStream()
        _write_batch(counter, batch)
        room = self._region.room(counter.size())
        if room is None:
            sink = pa.BufferOutputStream()
            _write_batch(sink, batch)
            return sink.getvalue()
        _write_batch(pa.FixedSizeBufferWriter(pa.py_buffer(room)), batch)
        return room


def _write_batch(sink: Any, batch: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def _read_batch(buffer: Any) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(buffer)) as reader:
        return reader.read_next_batch()


def _address(memory: Bytes) -> int:
    address: int = memory.__array_interface__["data"][0]
    return address


class Slot(Memory):
    """A region for one block of packets: free bytes, the block's bytes, and messages about it.

    A capture reader takes the memory for its bytes from here. If it still refers to the bytes that
    it took before, it gets separate memory, and `pack` copies.
    """

    def __init__(self, memory: Bytes, front: int, data: int) -> None:
        """`front`: free bytes before the block; `data`: maximum size of the block."""
        super().__init__()
        self.region = Region(memory, front + data)
        self.front = front
        self._data = memory[front : front + data]
        # Views of this array refer to it, and not to `memory`.
        self._root: Bytes = np.frombuffer(memory.data[front : front + data], np.uint8)

    @property
    def is_held(self) -> bool:
        """Whether an object in this process still refers to the bytes of this slot."""
        return sys.getrefcount(self._root) > 2

    def take(self, size: int) -> Bytes:
        """Memory for a block's bytes."""
        if size > len(self._root) or self.is_held:
            return super().take(size)
        return self._root[:size]
