"""SASL tokens without headers.

After SaslHandshake v0, client and broker exchange tokens of its mechanism. Each is framed by its
size and has no header. They end when the client sends a Kafka request (KIP-43; since v1 tokens
are in SaslAuthenticate, KIP-152). Clients of Kafka 0.9 send GSSAPI tokens without SaslHandshake;
the first one is recognised by its bytes. Each client token has one broker token as its response, so
tokens are paired by their order; only the last token of GSSAPI has none. Few connections have
tokens, and few each: Python takes a step per token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dissector.arrays import mutable
from dissector.packets.block import Int64

SASL_HANDSHAKE = 17

SASL_TOKEN = "SaslToken"
"""The `api` of a token without header."""


@mutable
class Tokens:
    active: bool = True
    """The client's next frame is a token, unless it is a Kafka request."""
    sent: int = 0
    answered: int = 0


class SaslTokens:
    """Finds the tokens among the frames of all connections, and assigns their keys."""

    def __init__(self) -> None:
        self.by_connection: dict[int, Tokens] = {}
        self.without_response: list[int] = []
        """Keys of last tokens: the latest broker frames show that they have no response."""

    def forget(self, connections: Int64) -> None:
        """Drop the state of these connections."""
        for each in connections.tolist():
            self.by_connection.pop(each, None)

    def put(self, rows: Int64, taken: Mapping[int, Tokens]) -> None:
        """Add the state of connections. `rows`: the row of each one."""
        self.by_connection |= {int(rows[index]): tokens for index, tokens in taken.items()}

    def requests(
        self, connection: Int64, api_key: Int64, version: Int64, known: NDArray[np.bool_],
        gssapi: Int64,
    ) -> tuple[Int64, Int64]:  # fmt: skip
        """Indices of the client frames that are tokens, and their keys, which are negative.

        Arrays of shape (n,), frames in stream order; `known`: the frame is a Kafka request.
        `gssapi`: indices of GSSAPI tokens that begin a connection.
        """
        opens = known & (api_key == SASL_HANDSHAKE) & (version == 0)
        for row in connection[gssapi].tolist():
            self.by_connection.setdefault(row, Tokens())
        suspects = np.isin(connection, list({*self.by_connection, *connection[opens].tolist()}))
        indices, keys = [], []
        for index in np.flatnonzero(suspects).tolist():
            row = int(connection[index])
            tokens = self.by_connection.get(row)
            if opens[index]:
                self.by_connection[row] = Tokens()
            elif tokens is not None and tokens.active:
                tokens.active = not known[index]
                if tokens.active:
                    indices.append(index)
                    keys.append(_key(row, tokens.sent))
                    tokens.sent += 1
        return np.array(indices, np.int64), np.array(keys, np.int64)

    def responses(
        self, connection: Int64, key: Int64, size: Int64, request_keys: Int64
    ) -> tuple[Int64, Int64]:
        """Indices of the broker frames that are tokens, and the keys of their requests.

        `key` and `size` (bytes, without the length) of each broker frame; `request_keys`: keys of
        the pending requests. A frame with the correlation id of a pending request responds to it.
        """
        self.without_response = []
        suspects = np.isin(connection, list(self.by_connection))
        pending = Counter(request_keys.tolist() if suspects.any() else ())
        indices, keys = [], []
        for index in np.flatnonzero(suspects).tolist():
            row = int(connection[index])
            tokens = self.by_connection.get(row)
            if tokens is None:
                continue
            if size[index] >= 4 and pending[int(key[index])] > 0:
                pending[int(key[index])] -= 1
                if not tokens.active and 0 < tokens.answered == tokens.sent - 1:
                    self.without_response.append(_key(row, tokens.answered))
                    tokens.answered += 1
            elif tokens.answered < tokens.sent:
                indices.append(index)
                keys.append(_key(row, tokens.answered))
                tokens.answered += 1
            if not tokens.active and tokens.answered == tokens.sent:
                del self.by_connection[row]
        return np.array(indices, np.int64), np.array(keys, np.int64)


def _key(connection: int, ordinal: int) -> int:
    return -1 - (connection << 32 | ordinal)
