"""SASL tokens without headers.

A SaslHandshake v0 is followed by tokens of its mechanism, framed by their size and nothing else,
until the client sends a frame that is a Kafka request (KIP-43; from v1 on they travel in
SaslAuthenticate, KIP-152). Each token of the client has one of the broker as its answer, so tokens
are paired by their order. Few connections do this, and each for a few frames, so they are looked at
one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int64

SASL_HANDSHAKE = 17

SASL_TOKEN = "SaslToken"
"""What stands for the API of a token that has no header."""


@dataclass(slots=True)
class _Tokens:
    active: bool = True
    """The client's next frame is a token, unless it is a Kafka request."""
    sent: int = 0
    answered: int = 0


class SaslTokens:
    """Finds the tokens among the frames of all connections, and gives them keys to match by."""

    def __init__(self) -> None:
        self._by_connection: dict[int, _Tokens] = {}

    def forget(self, connections: Int64) -> None:
        """Let go of these connections."""
        for each in connections.tolist():
            self._by_connection.pop(each, None)

    def requests(
        self, connection: Int64, api_key: Int64, version: Int64, known: NDArray[np.bool_]
    ) -> tuple[Int64, Int64]:
        """Indices of the client frames that are tokens, and their keys, which are negative.

        Arrays of shape (n,), frames in stream order; `known`: the frame is a Kafka request.
        """
        opens = known & (api_key == SASL_HANDSHAKE) & (version == 0)
        suspects = np.isin(connection, list({*self._by_connection, *connection[opens].tolist()}))
        found, keys = [], []
        for index in np.flatnonzero(suspects).tolist():
            who = int(connection[index])
            tokens = self._by_connection.get(who)
            if opens[index]:
                self._by_connection[who] = _Tokens()
            elif tokens is not None and tokens.active:
                tokens.active = not known[index]
                if tokens.active:
                    found.append(index)
                    keys.append(_key(who, tokens.sent))
                    tokens.sent += 1
        return np.array(found, np.int64), np.array(keys, np.int64)

    def responses(
        self, connection: Int64, key: Int64, size: Int64, request_keys: Int64
    ) -> tuple[Int64, Int64]:
        """Indices of the broker frames that are tokens, and the keys of what they answer.

        `key` and `size` (bytes, without the length) of each broker frame; `request_keys`: what is
        waiting for a response. A frame that has the correlation id of a waiting request answers it.
        """
        suspects = np.isin(connection, list(self._by_connection))
        waiting = set(request_keys.tolist()) if suspects.any() else set()
        found, keys = [], []
        for index in np.flatnonzero(suspects).tolist():
            who = int(connection[index])
            tokens = self._by_connection.get(who)
            if tokens is None:
                continue
            if size[index] >= 4 and int(key[index]) in waiting:
                waiting.discard(int(key[index]))
            elif tokens.answered < tokens.sent:
                found.append(index)
                keys.append(_key(who, tokens.answered))
                tokens.answered += 1
            if not tokens.active and tokens.answered == tokens.sent:
                del self._by_connection[who]
        return np.array(found, np.int64), np.array(keys, np.int64)


def _key(connection: int, ordinal: int) -> int:
    return -1 - (connection << 32 | ordinal)
