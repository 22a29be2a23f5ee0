"""Declared connections: comments on a capture file that name connections with Kafka.

A cut may lack the messages that show what its connections carry. Its comments declare it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address

from dissector.packets.block import LAST_PORT, MAPPED, Int64
from dissector.streams.connections.state import States
from dissector.streams.connections.table import (
    KAFKA,
    UNDECIDED,
    ConnectionTable,
    Endpoint,
    StreamTable,
)

_COMMENT = re.compile(
    r"Kafka connection of ([\da-f.:]+) port (\d{1,5}) to ([\da-f.:]+) port (\d{1,5})"
)


def comment(client: tuple[str, int], broker: tuple[str, int]) -> str:
    """A comment that declares a connection. `client`, `broker`: addresses and ports."""
    return "Kafka connection of {} port {} to {} port {}".format(*client, *broker)


class DeclaredConnections:
    """Decides the connections that comments declare."""

    def __init__(self, table: ConnectionTable, streams: StreamTable, states: States) -> None:
        self._table = table
        self._streams = streams
        self._states = states
        self._pairs: dict[tuple[Endpoint, Endpoint], int] = {}
        """Which end is the client, by both ends."""

    def learn(self, comments: Iterable[str]) -> None:
        """Learn from comments on a capture file, as `comment` writes them."""
        for match in filter(None, map(_COMMENT.fullmatch, comments)):
            try:
                client, broker = (endpoint(match[at], int(match[at + 1])) for at in (1, 3))
            except ValueError:
                continue
            self._pairs |= {(client, broker): 0, (broker, client): 1}

    def decide(self, rows: Int64) -> None:
        """Set protocol and client of these connections if they are declared."""
        if not self._pairs:
            return
        table = self._table
        rows = rows[self._streams.protocol[rows] == UNDECIDED]
        pairs = zip(table.endpoints(rows, 0), table.endpoints(rows, 1), strict=True)
        for row, pair in zip(rows.tolist(), pairs, strict=True):
            if (client := self._pairs.get(pair)) is not None:
                table.client[row] = client
                self._states.decide(rows[rows == row], KAFKA)


def endpoint(ip: str, port: int) -> Endpoint:
    """Address and port as in `PacketBlock`. Raises ValueError if they are none."""
    if not 0 < port <= LAST_PORT:
        raise ValueError(f"{port} is not a port")
    address = ip_address(ip)
    number = int(address) | (MAPPED if address.version == 4 else 0)
    return number >> 64, number & (1 << 64) - 1, port
