"""The connection table: one row for each TCP connection, as arrays that grow.

A connection has two ends, and each stream is what one end sends. Ends are numbered 0 and 1, the one
with the lower address and port first; stream 2 * row + end is what that end sends. Which end is the
client is told by the handshake, by a known port, or by what was sent; -1 until it is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int8, Int64, UInt16, UInt64

UNDECIDED, KAFKA, TLS, OTHER = range(4)
"""What a connection carries."""

OPEN, FIN_SEEN, RST_SEEN = range(3)
"""How far a connection has come to its end."""

NEVER = -1
"""A time that is not known."""


def _column(dtype: type[np.generic], width: int, fill: int = 0) -> Any:
    shape = (0, width) if width else (0,)
    return field(default_factory=lambda: np.full(shape, fill, dtype), metadata={"fill": fill})


@dataclass(slots=True)
class ConnectionTable:
    """Arrays of shape (rows,) or, by end, (rows, 2). Only the first `count` rows are in use."""

    count: int = 0
    high: UInt64 = _column(np.uint64, 2)
    """Addresses, as in `PacketBlock`."""
    low: UInt64 = _column(np.uint64, 2)
    port: UInt16 = _column(np.uint16, 2)
    client: Int8 = _column(np.int8, 0, -1)
    """Which end is the client: 0, 1, or -1 for not known."""
    protocol: Int8 = _column(np.int8, 0)
    opened: NDArray[np.bool_] = _column(np.bool_, 0)
    """A SYN was seen."""
    closed: Int8 = _column(np.int8, 0)
    replaced: NDArray[np.bool_] = _column(np.bool_, 0)
    """The same pair of ports was opened anew."""
    first_time: Int64 = _column(np.int64, 0)
    """ns."""
    last_time: Int64 = _column(np.int64, 0)
    capture: NDArray[np.int32] = _column(np.int32, 0)
    """File and number of the first packet."""
    packet: Int64 = _column(np.int64, 0)
    syn_time: Int64 = _column(np.int64, 0, NEVER)
    """ns, of the client's first SYN."""
    handshake: Int64 = _column(np.int64, 0, NEVER)
    """ns, from the SYN to the client's first packet that follows the SYN-ACK."""
    isn: Int64 = _column(np.int64, 2, NEVER)
    """Initial sequence number of each end, -1 where its SYN was not seen."""
    packets: Int64 = _column(np.int64, 2)
    bytes: Int64 = _column(np.int64, 2)
    """Payload bytes on the wire, repeated ones too."""
    retransmitted: Int64 = _column(np.int64, 2)
    """Packets with payload and nothing new in it."""
    out_of_order: Int64 = _column(np.int64, 2)
    """Packets that came after one that follows them in the stream."""
    lost: Int64 = _column(np.int64, 2)
    """Bytes that the capture misses."""
    cut: Int64 = _column(np.int64, 2)
    """Bytes that the capture's snap length left out."""

    def add(self, rows: int) -> int:
        """Make room for more rows; the first of them."""
        first, self.count = self.count, self.count + rows
        room = len(self.client)
        if self.count > room:
            size = max(64, 2 * room, self.count)
            for name, spec in self.__dataclass_fields__.items():
                if name != "count":
                    old = getattr(self, name)
                    new = np.full((size, *old.shape[1:]), spec.metadata["fill"], old.dtype)
                    new[:room] = old
                    setattr(self, name, new)
        return first
