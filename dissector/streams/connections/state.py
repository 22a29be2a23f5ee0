"""The state of each stream decides how its bytes are treated. One table has all transitions.

Only `States` changes the state of a stream, or the protocol of a connection. Packet bytes and
decrypted bytes are different streams: each kind has its own `StreamTable` and its own states.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dissector.packets.block import Int64
from dissector.streams.connections.table import (
    ENCRYPTED,
    FRAMED,
    HEAD,
    IGNORED,
    KAFKA,
    OTHER,
    RESUMED,
    SEARCHING,
    TLS,
    Bools,
    ConnectionTable,
    StreamTable,
    streams_at,
)

BEGUN, JOINED, HEAD_LOST, IS_KAFKA, IS_TLS, IS_OTHER, FOUND, ALIGNED, BROKEN, CLOSED = range(10)
"""Events.

BEGUN      the position of the first byte is known: it follows the SYN
JOINED     the first byte is not in the capture, or cannot be recognised
HEAD_LOST  the first bytes are lost or damaged, or did not decide the protocol in time;
           or the client is unknown
IS_KAFKA   the connection carries Kafka; IS_TLS, IS_OTHER: TLS, another protocol
FOUND      a search found a message
ALIGNED    a message ends where a segment ends
BROKEN     a size is lost or impossible
CLOSED     no more bytes will be decrypted
"""

STAY: Final = -1

TRANSITIONS: Final = {
    # from:     NEW        HEAD       SEARCHING  FRAMED     RESUMED    ENCRYPTED  IGNORED
    BEGUN:     (HEAD,      STAY,      STAY,      STAY,      STAY,      STAY,      STAY),
    JOINED:    (SEARCHING, STAY,      STAY,      STAY,      STAY,      STAY,      STAY),
    HEAD_LOST: (SEARCHING, SEARCHING, STAY,      STAY,      STAY,      STAY,      STAY),
    IS_KAFKA:  (STAY,      FRAMED,    STAY,      STAY,      STAY,      STAY,      STAY),
    IS_TLS:    (STAY,      ENCRYPTED, ENCRYPTED, ENCRYPTED, ENCRYPTED, STAY,      STAY),
    IS_OTHER:  (STAY,      IGNORED,   IGNORED,   IGNORED,   IGNORED,   STAY,      STAY),
    FOUND:     (STAY,      STAY,      RESUMED,   RESUMED,   STAY,      STAY,      STAY),
    ALIGNED:   (STAY,      STAY,      STAY,      STAY,      FRAMED,    STAY,      STAY),
    BROKEN:    (STAY,      STAY,      STAY,      SEARCHING, SEARCHING, STAY,      STAY),
    CLOSED:    (STAY,      STAY,      STAY,      STAY,      STAY,      IGNORED,   STAY),
}  # fmt: skip
"""The state after each event, by the state before it."""

_NEXT: Final = np.array([TRANSITIONS[event] for event in range(len(TRANSITIONS))], np.int8)
_DECISIONS: Final = ((KAFKA, IS_KAFKA), (TLS, IS_TLS), (OTHER, IS_OTHER))


class States:
    """Changes the states of the streams of a table."""

    def __init__(self, connections: ConnectionTable, streams: StreamTable) -> None:
        self._connections = connections
        self._streams = streams

    def advance(self, streams: Int64, event: int) -> None:
        """Apply an event to these streams."""
        state = self._streams.state
        before = state[streams]
        after = _NEXT[event, before]
        state[streams] = np.where(after == STAY, before, after)

    def begin(self, streams: Int64, is_head: Bools) -> None:
        """Start streams. `is_head`: whether the position of the first byte is known."""
        self.advance(streams[is_head], BEGUN)
        self.advance(streams[~is_head], JOINED)
        self._follow(streams)

    def decide(self, rows: Int64, protocol: Int64 | int) -> None:
        """Set the protocol of connections; both streams of each change their state."""
        self._streams.protocol[rows] = protocol
        self._connections.protocol[rows] = protocol
        self._follow(streams_at(rows))

    def _follow(self, streams: Int64) -> None:
        """Advance streams to the state that the protocol of their connection requires."""
        protocol = self._streams.protocol[streams >> 1]
        for decided, event in _DECISIONS:
            self.advance(streams[protocol == decided], event)
