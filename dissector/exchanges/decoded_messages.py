"""The messages of one direction: headers, decoded fields, and the bytes of each frame."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissector.arrays import arrays
from dissector.exchanges.decoded_fields import DecodedFields, Messages
from dissector.exchanges.message_headers import EMPTY, MessageHeaders, members_of
from dissector.packets.block import Int64
from dissector.protocol.notation import Direction


@arrays
class DecodedMessages:
    """n messages of one direction; arrays of shape (n,)."""

    headers: MessageHeaders
    fields: DecodedFields
    known: NDArray[np.bool_]
    """The header is complete, and the definitions contain the API and version."""
    is_token: NDArray[np.bool_]
    """A SASL token, which has no header."""

    @classmethod
    def empty(cls, direction: Direction) -> DecodedMessages:
        """No messages."""
        empty, false = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        messages = Messages(direction, empty, empty, [], empty, empty, empty)
        return cls(EMPTY, DecodedFields(messages, false, empty), false, false)

    @property
    def decoded(self) -> NDArray[np.bool_]:
        """The bytes follow the definition; of an incomplete message, those that are captured."""
        return self.is_token | (self.known & (self.fields.good | ~self.headers.whole))

    @property
    def surplus(self) -> Int64:
        """Bytes after the last field of each message; 0 if the capture has none of them."""
        headers, surplus = self.headers, self.fields.surplus
        missing = headers.bytes - 4 - (headers.end - headers.start)
        return np.where(surplus > 0, surplus + missing, 0)

    def frame(self, index: int) -> bytes:
        """The captured bytes of a message, header included."""
        start, end = int(self.headers.start[index]), int(self.headers.end[index])
        space = self.fields.messages.spaces[int(self.headers.space[index])]
        return space.bytes(start, end - start)

    def frames_of(self, headers: MessageHeaders) -> pa.LargeBinaryArray:
        """The captured bytes of all messages with headers of the same block."""
        in_order = [np.zeros(0, np.int64)]
        arrays = [pa.array([], pa.large_binary())]
        for space, index in members_of(self.fields.messages.spaces, headers.space):
            start = headers.start[index]
            data, offsets = space.take(start, headers.end[index] - start)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            arrays.append(pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(index), buffers))
            in_order.append(index)
        return pa.concat_arrays(arrays).take(pa.array(np.argsort(np.concatenate(in_order))))
