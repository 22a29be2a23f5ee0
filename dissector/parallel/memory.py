"""Memory that several processes share, and messages whose arrays lie there.

A region is a stretch of anonymous memory that was mapped before the processes were forked, so that
it is at the same address in all of them. A message is a pickle (protocol 5, PEP 574) that travels
through a pipe; the buffers of its arrays and record batches do not travel: they are copied to the
region's free end, or stay where they are if they are in the region already, and whoever unpacks the
message gets arrays that are views of the same memory. What does not fit into the region any more
travels in the pipe.

Who may write to a region, and when what lies there is over, is for the processes to agree on.
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
"""Bytes; what Arrow likes best."""
SMALL: Final = 1 << 10
"""Bytes of a buffer that is not worth a place of its own."""


def mapped(size: int) -> Bytes:
    """Fresh memory that children share; only what is written to takes room. Raises OSError."""
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


class Region:
    """Part of shared memory, to put messages into."""

    def __init__(self, memory: Bytes, begin: int = 0) -> None:
        """`begin`: where the bytes begin that messages may be put into."""
        self.memory = memory
        self._base = _address(memory)
        self._begin = self.end = begin

    def clear(self, end: int | None = None) -> None:
        """Nothing is in it any more, or only what is before `end`."""
        self.end = self._begin if end is None else end

    def where(self, buffer: Bytes) -> int | None:
        """Offset in the region; None where the bytes are not in it."""
        offset = _address(buffer) - self._base
        return offset if 0 <= offset <= len(self.memory) - len(buffer) else None

    def room(self, size: int) -> Bytes | None:
        """That many bytes at the free end; None where there are not as many."""
        begin = -(-self.end // ALIGNMENT) * ALIGNMENT
        if begin + size > len(self.memory):
            return None
        self.end = begin + size
        return self.memory[begin : self.end]

    def put(self, buffer: pickle.PickleBuffer) -> tuple[int, int] | None:
        """Have these bytes in the region: where, and how many; None where they do not fit."""
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
        """A message that says `value`, with its arrays in the region as far as they fit."""
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
        """What `pack` was given; its arrays are views of the region, or of a copy."""
        body, places = pickle.loads(message)
        buffers = [self.memory[offset : offset + size] for offset, size in places]
        if copy:
            buffers = [buffer.copy() for buffer in buffers]
        self.end = max([self._begin, *(offset + size for offset, size in places)])
        return pickle.loads(body, buffers=buffers)


class _Pickler(pickle.Pickler):
    """Writes record batches, and spaces, as what they are made of."""

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
    """A region for one block of packets: room before its bytes, its bytes, and messages about it.

    A reader of captures takes the memory for its bytes here, unless it still holds on to those that
    it took before: then it gets memory of its own, and `pack` copies.
    """

    def __init__(self, memory: Bytes, front: int, data: int) -> None:
        """`front`: bytes before the block's; `data`: bytes that a block may have."""
        super().__init__()
        self.region = Region(memory, front + data)
        self.front = front
        self._data = memory[front : front + data]
        # An array whose views refer to it, and not to what it is a view of itself.
        self._root: Bytes = np.frombuffer(memory.data[front : front + data], np.uint8)

    @property
    def is_held(self) -> bool:
        """Whether somebody in this process still refers to the bytes that were taken here."""
        return sys.getrefcount(self._root) > 2

    def take(self, size: int) -> Bytes:
        """Room for a block's bytes."""
        if size > len(self._root) or self.is_held:
            return super().take(size)
        return self._root[:size]
